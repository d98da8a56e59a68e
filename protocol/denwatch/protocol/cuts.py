"""Alpha-cuts, where a degree reaches a threshold, as intervals of integers; and what they say of
uncertain readings.

THEORY     The t-cut of a fuzzy set is where its degree is at least t. Sets here rise to a core and
           fall again, so a cut is one interval; a negated set's is what that leaves, up to two.
           Cuts commute with min, max and not, so for those "degree >= t" is exactly a formula over
           intervals. For the other aggregators, the cuts at `find_level` are what every match must
           satisfy.
DOUBT      An uncertain reading is a trapezoid pi with support [a, d] and core [b, c]. Possible is
           the highest min(mu, pi) over all values, certain the lowest max(mu, 255 - pi).
             possible >= t   the t-cuts of mu and pi meet;
             certain >= t    wherever pi > 255 - t, mu reaches t.
           So a search over 256 degrees replaces one over up to 65,536 values.
EXAMPLE    Core 100..200, crisp; reading (190, 195, 205, 210). The cuts meet at every t up to 255
           (195..200 is in both cores): possible 255. Certain is 0: pi is 255 at 205, where mu is 0.
"""

from .degrees import MAX, MIN, SUGENO, aggregate, fuzzify, hedge, reach
from .vectors import Predicate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


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


def trapezoid(x: int, points: tuple[int, int, int, int]) -> int:
    """Return the possibility (0..255) that the reading is x."""
    a, b, c, d = points
    if x < b:
        return (255 * (x - a) + (b - a) // 2) // (b - a) if x > a else 0
    if x > c:
        return (255 * (d - x) + (d - c) // 2) // (d - c) if x < d else 0
    return 255


def cut_reading(points: tuple[int, int, int, int], t: int) -> tuple[int, int]:
    """Return the values whose possibility is at least t (1..255)."""
    a, b, c, d = points
    rise = b - a
    fall = d - c
    low = a - (rise // 2 - t * rise) // 255 if rise else b
    high = d + (fall // 2 - t * fall) // 255 if fall else c
    # At the very foot the rounded ramp may start at the foot itself, where the possibility is 0.
    return max(low, a + 1) if rise else b, min(high, d - 1) if fall else c


def measure(p: Predicate, points: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return (possible, certain) of the predicate, hedge and negation included."""
    if points[0] == points[3]:
        degree = hedge(fuzzify(points[0], p.low, p.high, p.left, p.right, p.wide), p.hedge)
        possible = certain = degree
    else:
        possible = _search(_is_possible, p, points)
        certain = _search(_is_certain, p, points)
    if p.negated:
        return 255 - certain, 255 - possible
    return possible, certain


def _is_possible(p: Predicate, points: tuple[int, int, int, int], t: int) -> bool:
    low, high = cut_set(p, invert_hedge(p.hedge, t))
    first, last = cut_reading(points, t)
    return low <= last and first <= high


def _is_certain(p: Predicate, points: tuple[int, int, int, int], t: int) -> bool:
    low, high = cut_set(p, invert_hedge(p.hedge, t))
    first, last = cut_reading(points, 256 - t)
    return low <= first and last <= high


def _search(
    holds: "Callable[[Predicate, tuple[int, int, int, int], int], bool]",
    p: Predicate,
    points: tuple[int, int, int, int],
) -> int:
    """Return the highest degree for which holds() is true; at 0 it always is."""
    low = 0
    high = 255
    while low < high:
        middle = (low + high + 1) >> 1
        if holds(p, points, middle):
            low = middle
        else:
            high = middle - 1
    return low
