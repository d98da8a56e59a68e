"""Evaluate one record exactly for one notification: what `protocol.matching.match` says, compiled.

The answer is one number: -1 for no match, else possible, certain << 8 and the deciding attribute
<< 16. Readings are looked up by attribute; the caller saw to it that none is missing.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.arithmetic import (
    HEDGE,
    MAX,
    SLOPE,
    SUGENO,
    aggregate,
    find_decisive,
    measure,
)
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
from denwatch.protocol import evaluator

_OR, _NOT = evaluator.OR, evaluator.NOT
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
    """Return the answer for the min of 8-bit predicates and exact 8-bit values.

    A value of -1 stands for a reading of another kind.
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
    """Leave (possible, certain, who decided) of a pattern at the bottom of the stack."""
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
    """Return the fuzzy mean of the rules, each weighing as much as its pair holds."""
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
    """Return (possible, certain) of a predicate for a reading, at the predicate's resolution."""
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
    """Return the answer for any record and any readings."""
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
