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

_FULL = 255 * 1024  # a membership's unit in `cuts`

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


def _tabulate_memberships() -> Array:
    """Return `degrees.find_membership` by hedge code and t; nothing is asked at 0."""
    table = np.zeros((16, 256), np.int64)
    for code in [code for code in range(16) if code & 3 or not code]:
        table[code, 1:] = [degrees.find_membership(code, t) for t in range(1, 256)]
    return table


SLOPE = np.array([*map(degrees.slope, range(CRISP)), _ABRUPT], np.int64)
HEDGE = _tabulate_hedges()
LOWEST = _tabulate_inverses(HEDGE)
MEMBERSHIP = _tabulate_memberships()
# Between these levels lie the cuts of exact and of uncertain readings, which round differently.
OUTER = np.minimum(LOWEST, (MEMBERSHIP + 512) // 1024)
INNER = np.maximum(LOWEST, (MEMBERSHIP + 1535) // 1024)
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
def cut_level(low: int, high: int, left: int, right: int, wide: int, t: int) -> tuple[int, int]:
    """Return where the degree is at least t (0..255), before hedge and negation."""
    last = 65535 if wide else 255
    if t <= 0:
        return 0, last
    return max(low - reach(left, t, wide), 0), min(high + reach(right, t, wide), last)


@compiled
def cut_set(
    low: int, high: int, left: int, right: int, hedge: int, wide: int, t: int
) -> tuple[int, int]:
    """Return where the hedged degree of an exact value is at least t (0..255), before negation."""
    return cut_level(low, high, left, right, wide, LOWEST[hedge, t])


@compiled
def cut_reading(a: int, b: int, c: int, d: int, t: int, unit: int) -> tuple[int, int]:
    """Return where the possibility rounds to at least t (1..255), in 1/unit of a code."""
    share = (2 * t - 1) * unit
    return a * unit + (share * (b - a) + 509) // 510, d * unit - (share * (d - c) + 509) // 510


@compiled
def stretch(code: int, hedge: int, wide: int, t: int) -> int:
    """Return how far from the core the hedged degree rounds to t, as `cuts.cut_finely` does."""
    if code == CRISP:
        return 0
    return ((_FULL - MEMBERSHIP[hedge, t]) * (1028 if wide else 64) - 1) // SLOPE[code]


@compiled
def approach(gap: int, run: int, code: int, hedge: int, wide: int) -> int:
    """Return to which degree a set and a reading beside it meet: the highest t of both cuts.

    `gap` is from the set's core to the reading's support, `run` from there to its core.
    """
    if code == CRISP:
        return min((510 * -gap // run + 1) >> 1, 255) if run and gap < 0 else 0
    if not (hedge or wide):
        return approach_plainly(gap, run, code)
    return approach_finely(gap, run, code, hedge, wide)


@compiled
def approach_finely(gap: int, run: int, code: int, hedge: int, wide: int) -> int:
    """Return the same under a hedge or of 16 bits, by halving: the highest t of both cuts."""
    unit = 16 if wide else 256
    t = 0
    top = 255
    while t < top:
        middle = (t + top + 1) >> 1
        near = gap * unit + ((2 * middle - 1) * unit * run + 509) // 510
        if near <= stretch(code, hedge, wide, middle):
            t = middle
        else:
            top = middle - 1
    return t


@compiled
def approach_plainly(gap: int, run: int, code: int) -> int:
    """Return the same without hedge, of 8 bits: where two lines cross, and one step of correction.

    Both cuts end at the crossing but for rounding, which costs less than one degree. A cut ends at
    (n - 1) // slope, and x is not beyond it if x * slope < n: one division in all, and no branch.
    """
    slope = SLOPE[code]
    t = int64(255.5 - (gap + run) * slope * 255.0 / (65280 + run * slope))
    near = 256 * gap + ((2 * t - 1) * 256 * run + 509) // 510
    return max(t - int64(near * slope >= 16744448 - 65536 * t), 0)


@compiled
def leave(room: int, run: int, code: int, hedge: int, wide: int) -> int:
    """Return to which degree a reading lies outside a set, on one side.

    `room` is from the set's core to the end of the reading's support, `run` from the reading's core
    to there. The highest t to which a value may be where the opposite of the set reaches t.
    """
    if room <= 0:
        return 0
    if code == CRISP:
        return min((510 * (room - 1) // run + 1) >> 1, 255) if run else 255
    if not (hedge or wide):
        return leave_plainly(room, run, code)
    return leave_finely(room, run, code, hedge, wide)


@compiled
def leave_finely(room: int, run: int, code: int, hedge: int, wide: int) -> int:
    """Return the same under a hedge or of 16 bits, by halving."""
    unit = 16 if wide else 256
    t = 0
    top = 255
    while t < top:
        middle = (t + top + 1) >> 1
        needed = stretch(code, hedge, wide, 256 - middle) + 1
        if needed + ((2 * middle - 1) * unit * run + 509) // 510 <= room * unit:
            t = middle
        else:
            top = middle - 1
    return t


@compiled
def leave_plainly(room: int, run: int, code: int) -> int:
    """Return the same without hedge, of 8 bits, as `approach_plainly` does.

    A crossing at a whole degree counts, so what floats lose is added: fractions are no finer than
    1/8,000,000.
    """
    slope = SLOPE[code]
    t = int64(room * slope * 255.0 / (65280 + run * slope) + 0.500000001)
    left = 256 * room - ((2 * t - 1) * 256 * run + 509) // 510
    return min(t - int64(left * slope < 65536 * t - 32768), 255)


@compiled
def leave_either(low: int, high: int, left: int, right: int, a: int, b: int, c: int, d: int) -> int:
    """Return to which degree a reading lies outside a set without hedge, of 8 bits, on either side.

    The side where the lines cross higher decides, which two products tell. Rounding may take one
    degree from it, and only then the other side can have more: mostly one division in all.
    """
    below = low - a
    above = d - high
    if below <= 0 and above <= 0:
        return 0
    if left == CRISP or right == CRISP:
        return max(leave(below, b - a, left, 0, 0), leave(above, d - c, right, 0, 0))
    slope = SLOPE[left]
    other = SLOPE[right]
    room, run = below, b - a
    if below * slope * (65280 + (d - c) * other) < above * other * (65280 + (b - a) * slope):
        room, run, slope = above, d - c, other
    t = int64(room * slope * 255.0 / (65280 + run * slope) + 0.500000001)
    if t > 255:
        return 255
    if (256 * room - ((2 * t - 1) * 256 * run + 509) // 510) * slope >= 65536 * t - 32768:
        return t
    return max(leave(below, b - a, left, 0, 0), leave(above, d - c, right, 0, 0))


@compiled
def measure(
    low: int, high: int, left: int, right: int, hedge: int, negated: int, wide: int,
    a: int, b: int, c: int, d: int,
) -> tuple[int, int]:  # fmt: skip
    """Return (possible, certain) of a set for a reading, hedge and negation included.

    An exact reading is looked up. Otherwise it is possible to 255 if the cores meet, else to where
    the nearer sides do; and certain to what lies outside on neither side.
    """
    if a == d:
        possible = HEDGE[hedge, fuzzify(a, low, high, left, right, wide)]
        certain = possible
    else:
        possible = 255
        if b > high:
            possible = approach(a - high, b - a, right, hedge, wide)
        elif c < low:
            possible = approach(low - d, d - c, left, hedge, wide)
        below = leave(low - a, b - a, left, hedge, wide)
        certain = 255 - max(below, leave(d - high, d - c, right, hedge, wide))
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
# Operators of a program over one attribute; the lower eight bits of two of them count operands.
_JOIN_AND, _JOIN_OR, _JOIN_NOT = 0x100, 0x200, 0x300
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
def evaluate_doubtful(
    recs: Array, r: int, head: int, place: Array, points: Array, wides: Array
) -> int:
    """Return the answer for the min of 8-bit predicates and uncertain 8-bit values, else INEXACT.

    Like `evaluate_plain`: possible first, which rejects most; certain only as far as it can lower
    the least so far. Hedges, 16 bits and one attribute twice are left to `evaluate`.
    """
    threshold = get_threshold(head)
    least = 256
    sure = 255
    blame = 0
    previous = int64(-1)
    for at in range(r + HEADER, r + HEADER + get_count(head)):
        word = recs[at]
        attribute = get_attribute(word)
        where = int64(place[attribute])
        tone = (word >> 48) & 31
        if wides[where] or tone & 15 or attribute <= previous:
            return INEXACT
        previous = attribute
        low = word & 0xFFFF
        high = (word >> 16) & 0xFFFF
        left = (word >> 32) & 255
        right = (word >> 40) & 255
        a = int64(points[where, 0])
        d = int64(points[where, 3])
        if a == d:
            degree = fuzzify(a, low, high, left, right, 0)
            possible = 255 - degree if tone else degree
            certain = possible
        else:
            b = int64(points[where, 1])
            c = int64(points[where, 2])
            beside = 255  # how far the set and the reading meet, and how far it is outside
            outside = 0
            if b > high:
                beside = approach(a - high, b - a, right, 0, 0)
            elif c < low:
                beside = approach(low - d, d - c, left, 0, 0)
            if not tone and beside < threshold:
                return NO_MATCH
            if tone or sure > 0:
                outside = leave_either(low, high, left, right, a, b, c, d)
            possible = outside if tone else beside
            certain = 255 - (beside if tone else outside)
        if possible < threshold:
            return NO_MATCH
        if possible < least:
            least = possible
            blame = word
        sure = min(sure, certain)
    if sure < get_certain(head):
        return NO_MATCH
    return least | sure << 8 | get_attribute(blame) << 16


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
def size_points(at: int, points: Array, wides: Array, wide: int) -> tuple[int, int, int, int]:
    """Return a reading's points at a predicate's resolution.

    8-bit points become 16-bit ones by * 257 (255 becomes 65535), 16-bit ones 8-bit ones by >> 8.
    """
    a = int64(points[at, 0])
    b = int64(points[at, 1])
    c = int64(points[at, 2])
    d = int64(points[at, 3])
    if wide and not wides[at]:
        return a * 257, b * 257, c * 257, d * 257
    if wides[at] and not wide:
        return a >> 8, b >> 8, c >> 8, d >> 8
    return a, b, c, d


@compiled
def measure_predicate(word: int, at: int, points: Array, wides: Array) -> tuple[int, int]:
    """Return (possible, certain) of a predicate for a reading, at the predicate's resolution."""
    wide = (word >> 53) & 1
    a, b, c, d = size_points(at, points, wides, wide)
    return measure(
        word & 0xFFFF, (word >> 16) & 0xFFFF, (word >> 32) & 255, (word >> 40) & 255,
        (word >> 48) & 15, (word >> 52) & 1, wide, a, b, c, d,
    )  # fmt: skip


# One attribute several times ---------------------------------------------------------------------
#
# Under min and max, operands over one uncertain attribute are judged together, as `cuts` and
# `matching` of the protocol say. Such subscriptions are few, so what follows allocates.


@compiled
def is_met(
    recs: Array, first_word: int, program: Array, size: int, a: int, b: int, c: int, d: int,
    side: int, t: int,
) -> bool:  # fmt: skip
    """Return whether a value that the reading may have, to t, fits the program, or not, to t.

    `program` is postfix: a predicate's number, or an operator and how many operands it takes.
    """
    wide = (recs[first_word + program[0]] >> 53) & 1
    unit = 16 if wide else 256
    first, last = cut_reading(a, b, c, d, t, unit)
    ends = np.empty((size, 4), np.int64)  # of each predicate: low, high; not it: below, above
    for i in range(size):
        if program[i] >= _JOIN_AND:
            continue
        word = recs[first_word + program[i]]
        left, right, tone = (word >> 32) & 255, (word >> 40) & 255, (word >> 48) & 15
        low = (word & 0xFFFF) * unit
        high = ((word >> 16) & 0xFFFF) * unit
        ends[i, 0] = low - stretch(left, tone, wide, t)
        ends[i, 1] = high + stretch(right, tone, wide, t)
        ends[i, 2] = low - stretch(left, tone, wide, 256 - t) - (unit if left == CRISP else 1)
        ends[i, 3] = high + stretch(right, tone, wide, 256 - t) + (unit if right == CRISP else 1)
    stack = np.empty((2, size), np.bool_)
    for place in range(4 * size + 2):
        x = first if place == 4 * size else last
        if place < 4 * size:
            if program[place >> 2] >= _JOIN_AND:
                continue
            x = ends[place >> 2, place & 3]
        if x < first or x > last:
            continue
        top = 0
        for i in range(size):
            op = program[i]
            if op < _JOIN_AND:
                fits = ends[i, 0] <= x <= ends[i, 1]
                fails = x <= ends[i, 2] or x >= ends[i, 3]
                negated = (recs[first_word + op] >> 52) & 1
                stack[0, top] = fails if negated else fits
                stack[1, top] = fits if negated else fails
                top += 1
            elif op == _JOIN_NOT:
                fits = stack[0, top - 1]
                stack[0, top - 1] = stack[1, top - 1]
                stack[1, top - 1] = fits
            else:
                lower = top - (op & 255)
                with_any = 0 if op >= _JOIN_OR else 1
                for j in range(lower + 1, top):
                    stack[with_any, lower] |= stack[with_any, j]
                    stack[1 - with_any, lower] &= stack[1 - with_any, j]
                top = lower + 1
        if stack[side, 0]:
            return True
    return False


@compiled
def measure_together(
    recs: Array, first_word: int, program: Array, size: int, a: int, b: int, c: int, d: int,
) -> tuple[int, int]:  # fmt: skip
    """Return (possible, certain) of a program over one attribute, by two searches over t."""
    found = np.zeros(2, np.int64)
    for side in range(2):
        top = 255
        while found[side] < top:
            t = (found[side] + top + 1) >> 1
            if is_met(recs, first_word, program, size, a, b, c, d, side, t):
                found[side] = t
            else:
                top = t - 1
    return found[0], 255 - found[1]


@compiled
def run_together(
    recs: Array, r: int, kind: int, count: int, degrees: Array, place: Array, points: Array,
    wides: Array,
) -> None:  # fmt: skip
    """Leave (possible, certain, who decided) at the bottom of the stack, like `run_pattern`.

    Every entry of the stack has its part of the program, one behind the other, as long as it is
    over one attribute.
    """
    at = find_pattern(recs, r)
    length = recs[at] if get_flags(recs[r + 1]) & PATTERN else count + 1
    first_word = r + HEADER
    high, low, blame = degrees[_HIGH], degrees[_LOW], degrees[_BLAME]
    attributes = np.empty(32, np.int64)
    starts = np.zeros(33, np.int64)
    code = np.empty(256, np.int64)
    part = np.empty(256, np.int64)
    parts = np.empty((3, 32), np.int64)
    top = 0
    for i in range(length):
        if get_flags(recs[r + 1]) & PATTERN:
            op = (recs[at + 1 + (i >> 3)] >> ((i & 7) * 8)) & 255
            operands = op & 15
            how = MAX if op & 0xF0 == _OR else kind
        else:
            op = i if i < count else 0x40
            operands = count
            how = kind
        size = starts[top]
        if op < count:
            word = recs[first_word + op]
            high[top], low[top] = degrees[_POSSIBLE, op], degrees[_CERTAIN, op]
            blame[top] = op
            where = place[get_attribute(word)]
            a, b, c, d = size_points(where, points, wides, (word >> 53) & 1)
            attributes[top] = get_attribute(word) if a < d else -1
            code[size] = op
            top += 1
            starts[top] = size + 1
        elif op == _NOT:
            possible = high[top - 1]
            high[top - 1] = 255 - low[top - 1]
            low[top - 1] = 255 - possible
            code[size] = _JOIN_NOT
            starts[top] = size + 1
        else:
            first = top - operands
            used = 0
            for j in range(first, top):
                same = 1 if attributes[j] >= 0 and how in (MIN, MAX) else 0
                if same:
                    for k in range(first, top):
                        if k != j and attributes[k] == attributes[j]:
                            same = same + 1 if k > j else -32
                if same < 0:
                    continue
                parts[0, used], parts[1, used], parts[2, used] = high[j], low[j], blame[j]
                if same > 1:
                    best = j
                    size = 0
                    for k in range(j, top):
                        if attributes[k] == attributes[j]:
                            for n in range(starts[k], starts[k + 1]):
                                part[size] = code[n]
                                size += 1
                            if high[k] > high[best] if how == MAX else high[k] < high[best]:
                                best = k
                    part[size] = (_JOIN_OR if how == MAX else _JOIN_AND) | same
                    size += 1
                    word = recs[first_word + part[0]]
                    where = place[attributes[j]]
                    a, b, c, d = size_points(where, points, wides, (word >> 53) & 1)
                    parts[0, used], parts[1, used] = measure_together(
                        recs, first_word, part, size, a, b, c, d
                    )
                    parts[2, used] = blame[best]
                used += 1
            if used == 1:  # all over one attribute: their code is that of the whole
                code[starts[top]] = (_JOIN_OR if how == MAX else _JOIN_AND) | operands
                starts[first + 1] = starts[top] + 1
                high[first], low[first], blame[first] = parts[0, 0], parts[1, 0], parts[2, 0]
            else:
                attributes[first] = -1
                starts[first + 1] = starts[first]
                blame[first] = parts[2, find_decisive(how, parts[0], 0, used)]
                high[first] = aggregate(how, parts[0], 0, used, degrees[_WEIGHT])
                low[first] = aggregate(how, parts[1], 0, used, degrees[_WEIGHT])
            top = first + 1


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
    previous = int64(-1)
    again = False  # second predicates on an attribute stand last
    repeated = False
    for i in range(count):
        word = recs[r + HEADER + i]
        at = int64(place[get_attribute(word)])
        possible, certain = measure_predicate(word, at, points, wides)
        again = again or get_attribute(word) <= previous
        repeated = repeated or (again and points[at, 0] < points[at, 3])
        previous = get_attribute(word)
        degrees[_WEIGHT, i] = 1
        if flags & EXTRA:
            extra = recs[r + HEADER + count + i]
            degrees[_WEIGHT, i] = (extra >> 16) & 255
            if possible < extra & 255 or certain < (extra >> 8) & 255:
                return NO_MATCH
        degrees[_POSSIBLE, i] = possible
        degrees[_CERTAIN, i] = certain
    if flags & PATTERN or (repeated and kind in (MIN, MAX)):
        if repeated:
            run_together(recs, r, kind, count, degrees, place, points, wides)
        else:
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
