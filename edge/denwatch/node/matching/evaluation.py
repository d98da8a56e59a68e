"""Degrees, compiled: the protocol's integer arithmetic, and one record evaluated exactly.

Nothing is defined here: `protocol` says what a degree is, and tests compare every function with
its original over all arguments. The tables are computed from the originals when the module loads;
numba compiles them in as constants. A fuzzy set is passed as low, high, left, right (codes of its
slopes), hedge, negation, wide; a reading as its four points a <= b <= c <= d.

`evaluate` and `evaluate_plain` answer what `protocol.matching.match` answers, as one number: -1 for
no match, else possible | certain << 8 | deciding attribute << 16. Readings are looked up by
attribute; the caller must make sure that none is missing (the group's mask is a subset).

    values   by attribute: the exact 8-bit value, or -1 for a reading of another kind
    place    by attribute: the row of its reading in `points` and `wides`
    points   four points a reading; wides: 1 if they are 16-bit
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import Array, compiled, int64
from denwatch.node.matching.records import (
    EXTRA,
    HEADER,
    PATTERN,
    RECENT,
    find_pattern,
    get_attribute,
    get_certain,
    get_count,
    get_flags,
    get_kind,
    get_threshold,
)
from denwatch.protocol import degrees, vectors

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
    """Return the degree of x, before hedge and negation.

    255 inside [low, high]; outside, 255 minus slope times distance. Slopes have 8 fractional bits;
    a wide distance is in 1/65535 of the domain, so it is divided by 257 * 256.
    """
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
    """Return the largest distance from the core where the degree is still at least `degree`.

    The inverse of `fuzzify`, rounding included: 255 - (distance * slope + half) // unit >= degree.
    """
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
    """Return the values whose possibility is at least t (1..255).

    The sides of the trapezoid are rounded as the protocol rounds them; the core always belongs.
    """
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
    """Return (possible, certain) of a set for a reading, hedge and negation included.

    An exact reading is looked up. Otherwise two binary searches over t: possibility reaches t if
    the t-cuts of set and reading overlap, certainty if the strict (255 - t)-cut of the reading lies
    inside the set's t-cut. Both are monotone in t, so eight steps each are enough.
    """
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
    """Return values[start:stop] as one degree; the weights serve the weighted mean only.

    Rounded to nearest like the protocol. Product in 14 fractional bits; geometric by tables of
    logarithms and powers; harmonic by reciprocals of 22 bits. At least one value; weights not all
    0.
    """
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
    """Return the degree (0..256) that operand i must reach for the aggregate to reach t.

    Found by bisection with all other operands at 255: aggregates grow with each operand. 256 if
    even 255 is too little. `scratch` has room for `count` degrees.
    """
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


_OR, _NOT = vectors.OR, vectors.NOT
NO_MATCH = -1
INEXACT = -2

# Rows of the scratch memory: the predicates' degrees, their weights, and a stack.
_POSSIBLE, _CERTAIN, _WEIGHT, _HIGH, _LOW, _BLAME = 0, 1, 2, 3, 4, 5


@compiled
def make_degrees() -> Array:
    """Return the memory that `evaluate` works in."""
    return np.empty((6, 32), np.int64)


@compiled
def evaluate_plain(recs: Array, r: int, head: int, values: Array) -> int:
    """Return the answer for the min of 8-bit predicates and exact 8-bit values, else INEXACT.

    `head` must have the flag PLAIN. Most candidates take this path: one pass over the predicates'
    words, a multiplication each, no call and no scratch memory.
    """
    least = 256
    blame = 0
    for at in range(r + HEADER, r + HEADER + get_count(head)):
        word = recs[at]
        x = int64(values[get_attribute(word)])
        if x < 0:
            return INEXACT
        degree = 255
        low = word & 0xFFFF
        high = (word >> 16) & 0xFFFF
        if x < low:
            degree = max(255 - (((low - x) * SLOPE[(word >> 32) & 255] + 128) >> 8), 0)
        elif x > high:
            degree = max(255 - (((x - high) * SLOPE[(word >> 40) & 255] + 128) >> 8), 0)
        tone = (word >> 48) & 31
        if tone:
            degree = HEDGE[tone & 15, degree]
            if tone & 16:
                degree = 255 - degree
        if degree < least:
            least = degree
            blame = word
    if least < get_threshold(head) or least < get_certain(head):
        return NO_MATCH
    return least | least << 8 | get_attribute(blame) << 16


@compiled
def run_pattern(recs: Array, at: int, kind: int, count: int, degrees: Array) -> None:
    """Leave (possible, certain, who decided) of a pattern at the bottom of the stack.

    recs[at] is the pattern's length, its bytes follow, eight a word. "not" exchanges possible and
    certain; rows _HIGH, _LOW and _BLAME of `degrees` are the stack.
    """
    high, low, blame = degrees[_HIGH], degrees[_LOW], degrees[_BLAME]
    top = 0
    for i in range(recs[at]):
        op = (recs[at + 1 + (i >> 3)] >> ((i & 7) * 8)) & 255
        if op < count:
            high[top] = degrees[_POSSIBLE, op]
            low[top] = degrees[_CERTAIN, op]
            blame[top] = op
            top += 1
        elif op == _NOT:
            possible = high[top - 1]
            high[top - 1] = 255 - low[top - 1]
            low[top - 1] = 255 - possible
        else:
            how = MAX if op & 0xF0 == _OR else kind
            first = top - (op & 15)
            blame[first] = blame[find_decisive(how, high, first, top)]
            high[first] = aggregate(how, high, first, top, degrees[_WEIGHT])
            low[first] = aggregate(how, low, first, top, degrees[_WEIGHT])
            top = first + 1


@compiled
def apply_rules(
    recs: Array, r: int, at: int, count: int, degrees: Array, place: Array, points: Array,
    wides: Array,
) -> int:  # fmt: skip
    """Return the fuzzy mean of the Takagi-Sugeno rules, each weighing as much as its pair holds.

    recs[at] is the order (1: constant, 3: linear), then a word for each pair i < j of predicates.
    """
    order = recs[at]
    total = 0
    weight = 0
    for i in range(count):
        for j in range(i + 1, count):
            at += 1
            result = (recs[at] & 0xFFFF) - 32768
            if order == 3:
                x = find_centre(place[get_attribute(recs[r + HEADER + i])], points, wides)
                y = find_centre(place[get_attribute(recs[r + HEADER + j])], points, wides)
                p = ((recs[at] >> 16) & 255) - 128
                q = ((recs[at] >> 24) & 255) - 128
                result = min(255, max(0, result + ((p * x + q * y + 32) >> 6)))
            share = min(degrees[i], degrees[j])
            total += share * result
            weight += share
    return (total + weight // 2) // weight if weight else 0


@compiled
def find_centre(at: int, points: Array, wides: Array) -> int:
    """Return the middle of a reading's core as an 8-bit value."""
    middle = (int64(points[at, 1]) + int64(points[at, 2])) // 2
    return middle >> 8 if wides[at] else middle


@compiled
def measure_predicate(word: int, at: int, points: Array, wides: Array) -> tuple[int, int]:
    """Return (possible, certain) of a predicate for a reading, at the predicate's resolution.

    8-bit points become 16-bit ones by * 257 (255 becomes 65535), 16-bit ones 8-bit ones by >> 8.
    """
    a = int64(points[at, 0])
    b = int64(points[at, 1])
    c = int64(points[at, 2])
    d = int64(points[at, 3])
    wide = (word >> 53) & 1
    if wide and not wides[at]:
        a, b, c, d = a * 257, b * 257, c * 257, d * 257
    elif wides[at] and not wide:
        a, b, c, d = a >> 8, b >> 8, c >> 8, d >> 8
    return measure(
        word & 0xFFFF, (word >> 16) & 0xFFFF, (word >> 32) & 255, (word >> 40) & 255,
        (word >> 48) & 15, (word >> 52) & 1, wide, a, b, c, d,
    )  # fmt: skip


@compiled
def rate_age(age: int, limits: int) -> int:
    """Return the degree to which an age is recent."""
    until = limits & 0xFFFFFFFF
    gone = limits >> 32
    if age <= until:
        return 255
    return 255 * (gone - age) // (gone - until) if age < gone else 0


@compiled
def evaluate(
    recs: Array, r: int, place: Array, points: Array, wides: Array, age: int, degrees: Array
) -> int:
    """Return the answer for any record and any readings.

    The general path: predicates one by one, with their own thresholds (EXTRA), then pattern, rules
    or aggregate, then age. Leaves at the first predicate that misses its threshold.
    """
    head = recs[r + 1]
    flags = get_flags(head)
    kind = get_kind(head)
    count = get_count(head)
    for i in range(count):
        word = recs[r + HEADER + i]
        possible, certain = measure_predicate(word, place[get_attribute(word)], points, wides)
        degrees[_WEIGHT, i] = 1
        if flags & EXTRA:
            extra = recs[r + HEADER + count + i]
            degrees[_WEIGHT, i] = (extra >> 16) & 255
            if possible < extra & 255 or certain < (extra >> 8) & 255:
                return NO_MATCH
        degrees[_POSSIBLE, i] = possible
        degrees[_CERTAIN, i] = certain
    if flags & PATTERN:
        run_pattern(recs, find_pattern(recs, r), kind, count, degrees)
        possible = degrees[_HIGH, 0]
        certain = degrees[_LOW, 0]
        decisive = degrees[_BLAME, 0]
    else:
        decisive = find_decisive(kind, degrees[_POSSIBLE], 0, count)
        if kind == SUGENO:
            at = find_pattern(recs, r)
            high = apply_rules(recs, r, at, count, degrees[_POSSIBLE], place, points, wides)
            low = apply_rules(recs, r, at, count, degrees[_CERTAIN], place, points, wides)
            possible = high
            certain = min(high, low)
        else:
            possible = aggregate(kind, degrees[_POSSIBLE], 0, count, degrees[_WEIGHT])
            certain = aggregate(kind, degrees[_CERTAIN], 0, count, degrees[_WEIGHT])
    if flags & RECENT:
        fresh = rate_age(age, recs[find_pattern(recs, r) - 1])
        possible = min(possible, fresh)
        certain = min(certain, fresh)
    if possible < get_threshold(head) or certain < get_certain(head):
        return NO_MATCH
    blame = get_attribute(recs[r + HEADER + decisive])
    return possible | certain << 8 | blame << 16
