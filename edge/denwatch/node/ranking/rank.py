"""How good a notification is for one subscriber: scores, degrees and priorities become a `Rank`.

For each matching subscription, value = score * degree / 255. The product is the one rule that
keeps both ends: with crisp matches (255) it is PrefSIENA's score, with equal scores it is the
order by degree of match, it grows with both, and a zero in either is worth nothing. Ordering by
score first would ignore the degree; a sum would let a high score make up for a poor match.

Of several matching subscriptions the maximum counts (Definition 5), unless the subscriber wants the
minimum, the mean or a weighted sum (`combine_values`). Priorities ("prefer A over B")
come first. They become levels, 1 for the most preferred: level l is what nothing left over by the
levels before is preferred to (*winnow*, Definition 10). A notification ranks with its best level,
and the maximum is taken within that level only, because "A over B" has no exceptions. The paper
assumes that conditions do not conflict; here a cycle is an error that names it, because its members
would otherwise belong to no level and get no notification.

Ranks compare as tuples; greater is better. `core.delivery` computes them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from denwatch.node.core.items import COMBINATIONS

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


def keep_acyclic(conditions: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Return the conditions without those that would close a circle with the ones before them."""
    kept: dict[tuple[T, T], None] = {}
    worse: dict[T, list[T]] = {}
    for preferred, other in dict.fromkeys(conditions):
        if not _reaches(worse, other, preferred):
            kept[preferred, other] = None
            worse.setdefault(preferred, []).append(other)
    return list(kept)


def _reaches(worse: dict[T, list[T]], start: T, end: T) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        item = waiting.pop()
        if item == end:
            return True
        for other in worse.get(item, ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return False


class Rank(NamedTuple):
    """How good a notification is for one subscriber: minus the winnow level, then the value."""

    priority: int
    value: float


MAXIMUM, MINIMUM, MEAN, SUM = COMBINATIONS


def combine_values(
    values: Sequence[float], combination: str = MAXIMUM, weights: Sequence[float] = ()
) -> float:
    """Return one value for what several subscriptions say; `weights` count in a sum only.

    The result does not depend on the order of the values: all nodes rank alike.
    """
    if combination == MINIMUM:
        return min(values)
    if combination == MEAN:
        return math.fsum(values) / len(values)
    if combination == SUM:
        return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))
    return max(values)
