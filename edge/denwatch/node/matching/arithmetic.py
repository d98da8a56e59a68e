"""The protocol's integer arithmetic, compiled: fuzzify, cuts, (possible, certain), aggregation.

Nothing is defined here: `protocol` says what a degree is, and tests compare every function with
its original over all arguments. The tables are computed from the originals when the module loads.
A fuzzy set is passed as low, high, left, right and hedge, negation, wide; a reading as four points.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import Array, compiled
from denwatch.protocol import degrees

MIN, MAX, PRODUCT, ARITHMETIC = degrees.MIN, degrees.MAX, degrees.PRODUCT, degrees.ARITHMETIC
GEOMETRIC, WEIGHTED, SUGENO = degrees.GEOMETRIC, degrees.WEIGHTED, degrees.SUGENO
CRISP = degrees.CRISP

# A crisp set loses everything at the first step, also where a step is 1/65535 of the domain.
_ABRUPT = 1 << 26


def _tabulate_hedges() -> Array:
    """Return the hedged degree by hedge code and degree; codes that the wire refuses are 0."""
    codes = [code for code in range(16) if code & 3 or not code]
    table = np.zeros((16, 256), np.int64)
    for code in codes:
        table[code] = [degrees.hedge(degree, code) for degree in range(256)]
    return table


def _tabulate_inverses(hedges: Array) -> Array:
    """Return the lowest degree that a hedge lifts to at least t, by hedge code and t."""
    return np.array([np.searchsorted(row, np.arange(256)) for row in hedges], np.int64)


SLOPE = np.array([*map(degrees.slope, range(CRISP)), _ABRUPT], np.int64)
HEDGE = _tabulate_hedges()
LOWEST = _tabulate_inverses(HEDGE)
LOG = np.array([0, *map(degrees.logarithm, range(1, 256))], np.int64)
POWER = np.array([degrees.power(log) for log in range(LOG[255] + 1)], np.int64)


@compiled
def fuzzify(x: int, low: int, high: int, left: int, right: int, wide: int) -> int:
    """Return the degree of x, before hedge and negation."""
    if x < low:
        lost = (low - x) * SLOPE[left]
    elif x > high:
        lost = (x - high) * SLOPE[right]
    else:
        return 255
    lost = (lost + 32896) // 65792 if wide else (lost + 128) >> 8
    return 255 - lost if lost < 255 else 0


@compiled
def reach(code: int, degree: int, wide: int) -> int:
    """Return the largest distance from the core where the degree is still at least `degree`."""
    if code == CRISP:
        return 0
    unit = 65792 if wide else 256
    return ((256 - degree) * unit - unit // 2 - 1) // SLOPE[code]


@compiled
def cut_set(
    low: int, high: int, left: int, right: int, hedge: int, wide: int, t: int
) -> tuple[int, int]:
    """Return where the hedged degree is at least t (0..255), before negation."""
    last = 65535 if wide else 255
    t = LOWEST[hedge, t]
    if t <= 0:
        return 0, last
    return max(low - reach(left, t, wide), 0), min(high + reach(right, t, wide), last)


@compiled
def cut_reading(a: int, b: int, c: int, d: int, t: int) -> tuple[int, int]:
    """Return the values whose possibility is at least t (1..255)."""
    first = b
    last = c
    if b > a:
        first = max(a - ((b - a) // 2 - t * (b - a)) // 255, a + 1)
    if d > c:
        last = min(d + ((d - c) // 2 - t * (d - c)) // 255, d - 1)
    return first, last


@compiled
def measure(
    low: int, high: int, left: int, right: int, hedge: int, negated: int, wide: int,
    a: int, b: int, c: int, d: int,
) -> tuple[int, int]:  # fmt: skip
    """Return (possible, certain) of a set for a reading, hedge and negation included."""
    if a == d:
        possible = HEDGE[hedge, fuzzify(a, low, high, left, right, wide)]
        certain = possible
    else:
        possible = 0
        top = 255
        while possible < top:
            t = (possible + top + 1) >> 1
            start, stop = cut_set(low, high, left, right, hedge, wide, t)
            first, last = cut_reading(a, b, c, d, t)
            if start <= last and first <= stop:
                possible = t
            else:
                top = t - 1
        certain = 0
        top = 255
        while certain < top:
            t = (certain + top + 1) >> 1
            start, stop = cut_set(low, high, left, right, hedge, wide, t)
            first, last = cut_reading(a, b, c, d, 256 - t)
            if start <= first and last <= stop:
                certain = t
            else:
                top = t - 1
    if negated:
        return 255 - certain, 255 - possible
    return possible, certain


@compiled
def aggregate(kind: int, values: Array, start: int, stop: int, weights: Array) -> int:
    """Return values[start:stop] as one degree; the weights serve the weighted mean only."""
    count = stop - start
    if kind in (MIN, MAX):
        result = values[start]
        for i in range(start + 1, stop):
            if (values[i] < result) == (kind == MIN):
                result = values[i]
        return result
    if kind == PRODUCT:
        result = 255 << 14
        for i in range(start, stop):
            result = (result * values[i] + 127) // 255
        return (result + 8192) >> 14
    total = 0
    if kind == WEIGHTED:
        count = 0
        for i in range(start, stop):
            total += weights[i - start] * values[i]
            count += weights[i - start]
        return (total + count // 2) // count
    if kind == ARITHMETIC:
        for i in range(start, stop):
            total += values[i]
        return (total + count // 2) // count
    for i in range(start, stop):
        if values[i] == 0:
            return 0
        total += LOG[values[i]] if kind == GEOMETRIC else 4194304 // values[i]
    if kind == GEOMETRIC:
        return POWER[(total + count // 2) // count]
    return (count * 4194304 + total // 2) // total


@compiled
def find_decisive(kind: int, values: Array, start: int, stop: int) -> int:
    """Return the position of the degree that decides: the highest for max, else the lowest."""
    best = start
    for i in range(start + 1, stop):
        if values[i] > values[best] if kind == MAX else values[i] < values[best]:
            best = i
    return best


@compiled
def find_level(kind: int, count: int, t: int, weights: Array, i: int, scratch: Array) -> int:
    """Return the degree (0..256) that operand i must reach for the aggregate to reach t."""
    if kind in (MAX, SUGENO):
        return 0
    if kind == MIN:
        return t
    scratch[:count] = 255
    low = 0
    high = 256
    while low < high:
        middle = (low + high) >> 1
        scratch[i] = min(middle, 255)
        if middle > 255 or aggregate(kind, scratch, 0, count, weights) >= t:
            high = middle
        else:
            low = middle + 1
    return low
