"""Qualitative priorities: "prefer A over B" becomes levels, 1 for the most preferred.

Level l is what nothing left over by the levels before is preferred to (PrefSIENA, Definition 10).
The paper assumes that conditions do not conflict; here a cycle is an error that names it, because
its members would otherwise belong to no level and their notifications would be lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class PriorityCycle(ValueError):
    """Conditions that prefer a thing over itself; `cycle` lists it from best to best again."""

    def __init__(self, cycle: list[Hashable]) -> None:
        self.cycle = cycle
        super().__init__("priorities conflict: " + " over ".join(map(str, cycle)))


class UnknownPriority(KeyError):
    """A condition that names something that is not there."""

    def __str__(self) -> str:
        return f"priority names {self.args[0]!r}, which is not among the subscriptions"


def assign_levels(items: Iterable[T], conditions: Iterable[tuple[T, T]]) -> dict[T, int]:
    """Return the winnow level of each item; a condition is (preferred, less preferred)."""
    better: dict[T, dict[T, None]] = {item: {} for item in items}
    worse: dict[T, dict[T, None]] = {item: {} for item in better}
    for preferred, other in conditions:
        for item in (preferred, other):
            if item not in better:
                raise UnknownPriority(item)
        better[other][preferred] = None
        worse[preferred][other] = None

    waiting = {item: len(above) for item, above in better.items()}
    levels: dict[T, int] = {}
    current = [item for item, count in waiting.items() if count == 0]
    level = 1
    while current:
        following: list[T] = []
        for item in current:
            levels[item] = level
            for other in worse[item]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    following.append(other)
        current = following
        level += 1
    if len(levels) < len(better):
        raise PriorityCycle(_find_cycle([item for item in better if item not in levels], better))
    return levels


def _find_cycle(stuck: list[T], better: dict[T, dict[T, None]]) -> list[Hashable]:
    """Follow "what is better than this" until it repeats: every stuck item has such a one."""
    stuck_set = set(stuck)
    path: dict[T, None] = {}
    item = stuck[0]
    while item not in path:
        path[item] = None
        item = next(other for other in better[item] if other in stuck_set)
    upwards = [*path]
    loop = upwards[upwards.index(item) :]
    return [item, *reversed(loop)]
