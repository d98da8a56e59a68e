"""Matching of uncertain readings by the protocol's definition, which has judges of its own; and
random cases. Slow, obvious, the judge of covering.
"""

from __future__ import annotations

from random import Random

from denwatch.protocol.degrees import MAX, MIN
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import (
    NOT,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

Points = tuple[int, int, int, int]


def find_possibility(code: int, points: Points) -> int:
    """Return to what degree the value may be this code."""
    a, b, c, d = points
    if b <= code <= c:
        return 255
    if code <= a or code >= d:
        return 0
    rise, run = (code - a, b - a) if code < b else (d - code, d - c)
    return (255 * rise + run // 2) // run


def is_wanted(vector: SubscriptionVector, reading: dict[int, Points]) -> bool:
    """Return whether a reading matches."""
    readings = [Reading(attribute, points) for attribute, points in sorted(reading.items())]
    found = match(vector, NotificationVector(vector.event, readings))
    return found is not None and found.matched


# Random cases ----------------------------------------------------------------------------------


class Dice(Random):
    """Random numbers in the words of this file."""

    def below(self, limit: int) -> int:
        """Return a number of 0..limit-1."""
        return self.randrange(limit)

    def byte(self) -> int:
        """Return a byte, its extremes more often than others."""
        return self.choice((0, 255, *[self.randrange(256)] * 6))

    def chance(self, parts: int) -> bool:
        """Return True once in so many times."""
        return not self.randrange(parts)


_KINDS = (0, 0, 0, 0, 0, 1, 2, 3)  # mostly min
_THRESHOLDS = (128, 128, 128, 1, 100, 200, 243, 255)


def draw_vector(dice: Dice, attributes: int = 2) -> SubscriptionVector:
    """Return a vector of one event as people subscribe: a few attributes, now and then certain.

    Ends of ranges are close together: where they are not, thresholds hardly matter.
    """
    chosen = [bit for bit in range(attributes) if dice.chance(2)] or [dice.below(attributes)]
    if dice.chance(6):
        chosen.append(chosen[0])  # the same attribute again
    predicates = [_draw_predicate(dice, bit) for bit in chosen]
    kind = _KINDS[dice.below(len(_KINDS))]
    pattern = b""
    if len(predicates) == 2 and kind != MAX and dice.chance(4):
        pattern = bytes([0, 1, OR | 2])
        if kind == MIN and dice.chance(3):
            pattern += bytes([NOT])
    threshold = _THRESHOLDS[dice.below(len(_THRESHOLDS))]
    certain = dice.below(threshold) if dice.chance(3) else 0
    return SubscriptionVector(
        1, predicates, kind if len(predicates) > 1 else MIN, threshold, certain, pattern=pattern
    )


def _draw_predicate(dice: Dice, attribute: int) -> Predicate:
    low, high = sorted(30 + 20 * dice.below(10) + dice.below(5) for _ in range(2))
    ends = dice.below(3)  # above, below, between
    theta = dice.byte() if dice.chance(8) else 0
    return Predicate(
        attribute,
        0 if ends == 1 else low,
        255 if ends == 0 else high,
        dice.byte() if dice.chance(2) else 255,
        negated=dice.chance(6),
        hedge=dice.choice((1, 2, 3, 5, 10, 15)) if dice.chance(6) else 0,
        possible=theta,
        certain=dice.below(theta + 1) if dice.chance(3) else 0,
    )


def draw_set(dice: Dice) -> list[SubscriptionVector]:
    """Return vectors of one event: anything, or ranges of one attribute side by side."""
    if dice.chance(2):
        attributes = 1 + dice.below(2)
        return [draw_vector(dice, attributes) for _ in range(2 + dice.below(4))]
    certain_ones = dice.below(4)  # of four
    vectors = []
    for _ in range(3 + dice.below(3)):
        low = 40 * dice.below(6)
        width = 40 * (1 + dice.below(3))
        range_ = Predicate(0, low, min(255, low + width), 255 if dice.chance(2) else dice.byte())
        threshold = _THRESHOLDS[dice.below(len(_THRESHOLDS))]
        certain = 1 + dice.below(threshold) if dice.below(4) < certain_ones else 0
        vectors.append(SubscriptionVector(1, [range_], MIN, threshold, certain))
    return vectors


def draw_reading(dice: Dice, vectors: list[SubscriptionVector]) -> dict[int, Points]:
    """Return a reading of all attributes near an end of somebody's range, exact now and then."""
    reading = {}
    step = dice.choice((40, 40, 4))
    for bit in range(2):
        ends = [end for v in vectors for p in v.predicates for end in (p.low, p.high)]
        first = min(255, max(0, ends[dice.below(len(ends))] + dice.below(61) - 40))
        points = [first]
        for _ in range(3):
            points.append(min(255, points[-1] + dice.below(step)))
        reading[bit] = (first,) * 4 if dice.chance(6) else tuple(points)
    return reading  # type: ignore[return-value]  # four points each
