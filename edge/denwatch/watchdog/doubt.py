"""Uncertain readings: to which degree a trapezoid is possibly, or certainly, in a fuzzy set.

By cuts, as `protocol.uncertainty` says of objects: possible to t is where the t-cuts of set and
reading meet, certain to t where the strict cut of the reading lies within that of the set.
"""

from array import array

from ..protocol.degrees import hedge, reach


def search(
    shape: tuple[int, int, int, int, int, int], reading: "array[int]", is_certain: bool
) -> int:
    """Return the highest degree that holds for (low, high, left, right, wide, hedge)."""
    low, high, left, right, wide, code = shape
    least = 0
    most = 255
    while least < most:
        t = (least + most + 1) >> 1
        level = _invert_hedge(code, t)
        floor = low - reach(left, level, wide)
        ceiling = high + reach(right, level, wide)
        first, last = _cut(reading, 256 - t if is_certain else t)
        if is_certain:
            holds = floor <= first and last <= ceiling
        else:
            holds = floor <= last and first <= ceiling
        if holds:
            least = t
        else:
            most = t - 1
    return least


def _cut(reading: "array[int]", t: int) -> tuple[int, int]:
    """Return the values whose possibility is at least t (1..255)."""
    a, b, c, d = reading
    rise = b - a
    fall = d - c
    first = max(a - (rise // 2 - t * rise) // 255, a + 1) if rise else b
    last = min(d + (fall // 2 - t * fall) // 255, d - 1) if fall else c
    return first, last


def _invert_hedge(code: int, degree: int) -> int:
    """Return the lowest degree that the hedge lifts to at least `degree`."""
    low = 0
    high = 255
    while low < high:
        middle = (low + high) >> 1
        if hedge(middle, code) >= degree:
            high = middle
        else:
            low = middle + 1
    return low
