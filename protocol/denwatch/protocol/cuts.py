"""Alpha-cuts: where a degree reaches a threshold, as intervals of integers.

Cuts commute with min, max and not, so for those "degree >= t" is exactly a formula over intervals.
For the other aggregators the cuts at `find_level` are what every match must satisfy.
"""

from .degrees import MAX, MIN, SUGENO, aggregate, hedge, reach
from .vectors import Predicate


def invert_hedge(code: int, degree: int) -> int:
    """Return the lowest degree that the hedge lifts to at least `degree`."""
    if not code:
        return degree
    low = 0
    high = 255
    while low < high:
        middle = (low + high) >> 1
        if hedge(middle, code) >= degree:
            high = middle
        else:
            low = middle + 1
    return low


def cut_set(p: Predicate, t: int) -> tuple[int, int]:
    """Return the values whose degree is at least t (0..255), before hedge and negation."""
    if t <= 0:
        return 0, p.last
    low = p.low - reach(p.left, t, p.wide)
    high = p.high + reach(p.right, t, p.wide)
    return max(low, 0), min(high, p.last)


def cut(p: Predicate, t: int) -> list[tuple[int, int]]:
    """Return the values for which the predicate's degree is at least t: rising, apart, inclusive.

    One interval, or up to two for a negated predicate; t may be 0..256, where 256 is never reached.
    """
    if p.negated:
        return complement(_cut_hedged(p, 256 - t), p.last)
    return _cut_hedged(p, t)


def _cut_hedged(p: Predicate, t: int) -> list[tuple[int, int]]:
    if t > 255:
        return []
    return [cut_set(p, invert_hedge(p.hedge, t))]


def complement(intervals: list[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """Return what the intervals leave of 0..last."""
    gaps = []
    start = 0
    for low, high in intervals:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= last:
        gaps.append((start, last))
    return gaps


def within(inner: list[tuple[int, int]], outer: list[tuple[int, int]]) -> bool:
    """Return whether every inner interval lies in one outer interval."""
    return all(any(a <= low and high <= b for a, b in outer) for low, high in inner)


def covers_at(p: Predicate, t: int, q: Predicate, u: int) -> bool:
    """Return whether p reaches t wherever q reaches u; exact."""
    return within(cut(q, u), cut(p, t))


def covers(p: Predicate, q: Predicate) -> bool:
    """Return whether p's degree is nowhere below q's; exact, by the cuts at every degree."""
    if p.attribute != q.attribute or p.wide != q.wide:
        return False
    return all(within(cut(q, t), cut(p, t)) for t in range(1, 256))


def find_level(kind: int, count: int, t: int, weights: bytes, i: int) -> int:
    """Return the degree that predicate i of `count` must reach for the aggregate to reach t.

    The lowest degree that reaches t while all others are full: exact for min, necessary for the
    others. Max and Takagi-Sugeno rules ask nothing of one predicate alone (0).
    """
    if kind in (MAX, SUGENO):
        return 0
    if kind == MIN:
        return t
    degrees = bytearray(b"\xff" * count)
    low = 0
    high = 256
    while low < high:
        middle = (low + high) >> 1
        degrees[i] = min(middle, 255)
        if middle > 255 or aggregate(kind, degrees, 0, count, weights, 0) >= t:
            high = middle
        else:
            low = middle + 1
    return low
