"""Matching of uncertain readings by definition, over all 256 codes: slow, obvious, the judge.

A reading is a trapezoid over the codes of its attribute. A predicate is possible to the highest
min(membership, possibility) of any code, certain to the lowest max(membership, 255 - possibility).
Only the membership of one code and the mean of some degrees are the product's; they have judges of
their own.
"""

from __future__ import annotations

from random import Random

from denwatch.protocol.degrees import MAX, MIN, aggregate, fuzzify, hedge
from denwatch.protocol.vectors import NOT, OR, Predicate, SubscriptionVector

Points = tuple[int, int, int, int]
Degrees = tuple[int, int]  # possible, certain


def find_possibility(code: int, points: Points) -> int:
    """Return to what degree the value may be this code."""
    a, b, c, d = points
    if b <= code <= c:
        return 255
    if code <= a or code >= d:
        return 0
    rise, run = (code - a, b - a) if code < b else (d - code, d - c)
    return (255 * rise + run // 2) // run


def measure(p: Predicate, points: Points) -> Degrees:
    """Return how possible and how certain it is that the value fulfils a predicate."""
    possible, certain = 0, 255
    for code in range(
        points[0], points[3] + 1
    ):  # beyond it is possible to 0, which changes nothing
        member = hedge(fuzzify(code, p.low, p.high, p.left, p.right, p.wide), p.hedge)
        member = 255 - member if p.negated else member
        may = find_possibility(code, points)
        possible = max(possible, min(member, may))
        certain = min(certain, max(member, 255 - may))
    return possible, certain


def is_wanted(vector: SubscriptionVector, reading: dict[int, Points]) -> bool:
    """Return whether a reading matches."""
    if any(p.attribute not in reading for p in vector.predicates):
        return False
    degrees = [measure(p, reading[p.attribute]) for p in vector.predicates]
    for p, (possible, certain) in zip(vector.predicates, degrees, strict=True):
        if possible < p.possible or certain < p.certain:
            return False
    possible, certain = join(vector, degrees)
    return possible >= vector.threshold and certain >= vector.certain


def join(vector: SubscriptionVector, degrees: list[Degrees]) -> Degrees:
    """Return the two degrees of the whole formula."""
    weights = bytes(p.weight for p in vector.predicates)
    if not vector.pattern:
        return mean(vector.aggregator, degrees, weights)
    stack: list[Degrees] = []
    for op in vector.pattern:
        if op < 16:
            stack.append(degrees[op])
        elif op == NOT:
            possible, certain = stack.pop()
            stack.append((255 - certain, 255 - possible))
        else:
            parts = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            stack.append(mean(MAX if op & 0xF0 == OR else vector.aggregator, parts, b""))
    return stack[0]


def mean(kind: int, degrees: list[Degrees], weights: bytes) -> Degrees:
    """Aggregate both lanes."""
    if kind in (MIN, MAX):
        choose = min if kind == MIN else max
        return choose(d[0] for d in degrees), choose(d[1] for d in degrees)
    lanes = [
        aggregate(kind, bytearray(lane), 0, len(degrees), weights, 0)
        for lane in zip(*degrees, strict=True)
    ]
    return lanes[0], lanes[1]


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
    for bit in range(2):
        ends = [end for v in vectors for p in v.predicates for end in (p.low, p.high)]
        first = min(255, max(0, ends[dice.below(len(ends))] + dice.below(61) - 40))
        points = [first]
        for _ in range(3):
            points.append(min(255, points[-1] + dice.below(40)))
        reading[bit] = (first,) * 4 if dice.chance(6) else tuple(points)
    return reading  # type: ignore[return-value]  # four points each
