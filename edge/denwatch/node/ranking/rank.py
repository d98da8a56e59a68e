"""How good a notification is for one subscriber: scores, degrees and priorities become a `Rank`.

For each matching subscription, value = score * degree / 255. The product is the one rule that
keeps both ends: with crisp matches (255) it is PrefSIENA's score, with equal scores it is the
order by degree of match, it grows with both, and a zero in either is worth nothing. Ordering by
score first would ignore the degree; a sum would let a high score make up for a poor match.

The values of several matching subscriptions are combined as the subscriber asked (Definition 5: the
maximum). Priorities ("prefer A over B") come first. They become levels, 1 for the most preferred:
level l is what nothing left over by the levels before is preferred to (*winnow*, Definition 10). A
notification ranks with its best level, and values are combined within that level only, because
"A over B" has no exceptions. The paper assumes that conditions do not conflict; here a cycle is an
error that names it, because its members would otherwise belong to no level and get no notification.

Ranks compare as tuples; greater is better. Between equal ranks `sort_best_first` compares degree,
then freshness, then id, so the order is total and every node computes the same one; sums are
`math.fsum`, which does not depend on the order of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

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


S = TypeVar("S", bound=Hashable)

FULL_DEGREE = 255


class Rank(NamedTuple):
    """How good a notification is for one subscriber: minus the winnow level, then the value."""

    priority: int
    value: float

    @property
    def level(self) -> int:
        """The winnow level, 1 for the most preferred."""
        return -self.priority


class Combination(StrEnum):
    """How the values of several matching subscriptions become one."""

    MAX = "max"
    MEAN = "mean"
    MIN = "min"
    WEIGHTED_SUM = "weighted-sum"
    MOST_SPECIFIC = "most-specific"  # the maximum over those that cover no other matching one


@dataclass(frozen=True, slots=True)
class Preference(Generic[S]):
    """A preferential subscription (Definition 4): what is wanted, by whom, and how much.

    `refresh` is the subscriber's own expiry in seconds; `weight` counts only in a weighted sum.
    """

    id: Hashable
    subscriber: Hashable
    subscription: S
    score: float = 1.0
    refresh: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"subscription {self.id!r}: score {self.score} is not in 0..1")
        if not (0.0 <= self.weight < math.inf):
            raise ValueError(f"subscription {self.id!r}: weight {self.weight} is not finite, >= 0")
        if self.refresh is not None and not self.refresh > 0.0:
            raise ValueError(f"subscription {self.id!r}: refresh {self.refresh} is not above 0")


@dataclass(frozen=True, slots=True)
class PreferenceMatch(Generic[S]):
    """One subscription that a notification matched, and how well (1..255)."""

    preference: Preference[S]
    degree: int
    level: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= FULL_DEGREE:
            raise ValueError(
                f"subscription {self.preference.id!r}: degree {self.degree} is not in 1..255"
            )

    @property
    def value(self) -> float:
        """Score and degree as one number, 0..1."""
        return self.preference.score * self.degree / FULL_DEGREE


def select_deciding(matches: Sequence[PreferenceMatch[S]]) -> list[PreferenceMatch[S]]:
    """Return the matches of the best winnow level: only they make the rank."""
    best = min(match.level for match in matches)
    return [match for match in matches if match.level == best]


def combine_matches(
    matches: Sequence[PreferenceMatch[S]], combination: Combination, covers: Callable[[S, S], bool]
) -> Rank:
    """Return the rank of a notification from what it matched; at least one match is needed."""
    if not matches:
        raise ValueError("a notification that matches nothing has no rank")
    deciding = select_deciding(matches)
    match combination:
        case Combination.MAX:
            value = max(m.value for m in deciding)
        case Combination.MIN:
            value = min(m.value for m in deciding)
        case Combination.MEAN:
            value = math.fsum(m.value for m in deciding) / len(deciding)
        case Combination.WEIGHTED_SUM:
            value = math.fsum(m.value * m.preference.weight for m in deciding)
        case Combination.MOST_SPECIFIC:
            value = max(m.value for m in select_most_specific(deciding, covers))
    return Rank(-deciding[0].level, value)


def select_most_specific(
    matches: Sequence[PreferenceMatch[S]], covers: Callable[[S, S], bool]
) -> list[PreferenceMatch[S]]:
    """Return the matches that cover no other one, unless that one covers them too.

    PrefSIENA's text says "that no other covers", against its own example: there the general
    subscription, which nothing covers, is the one to be ignored.
    """

    def is_strictly_above(a: PreferenceMatch[S], b: PreferenceMatch[S]) -> bool:
        upper, lower = a.preference.subscription, b.preference.subscription
        return covers(upper, lower) and not covers(lower, upper)

    return [a for a in matches if not any(is_strictly_above(a, b) for b in matches if b is not a)]


class Ranked(NamedTuple):
    """One notification for one subscriber, with all that its place depends on."""

    rank: Rank
    degree: int
    published: float
    note_id: int


def sort_best_first(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Sort by rank, degree, freshness, and the smaller id: a total order, the same everywhere."""
    return sorted(ranked, key=lambda r: (*(-part for part in r[0]), -r[1], -r[2], r[3]))
