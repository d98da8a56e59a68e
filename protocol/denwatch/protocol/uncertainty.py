"""Uncertain readings: how possible and how certain it is that one satisfies a predicate.

A reading is a trapezoid pi with support [a, d] and core [b, c]. Possible is the highest
min(mu, pi), certain the lowest max(mu, 255 - pi), over all values. Both come from cuts:
possible >= t means that the t-cuts of mu and pi meet; certain >= t means that wherever
pi > 255 - t, mu reaches t. So a search over 256 degrees replaces one over all values.
"""

from .cuts import cut_set, invert_hedge
from .degrees import fuzzify, hedge
from .vectors import Predicate


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


def _search(holds: object, p: Predicate, points: tuple[int, int, int, int]) -> int:
    """Return the highest degree for which holds() is true; at 0 it always is."""
    low = 0
    high = 255
    while low < high:
        middle = (low + high + 1) >> 1
        if holds(p, points, middle):  # type: ignore[operator]
            low = middle
        else:
            high = middle - 1
    return low
