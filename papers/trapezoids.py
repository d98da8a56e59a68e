"""A-ToPSS's sets: trapezoids in floats, their reduced encodings, and the compiled loops over them.

A set is LR with straight sides, given by its four points m1 <= m2 <= m3 <= m4: support [m1, m4],
core [m2, m3]. Crisp sets and values are trapezoids without slopes, and closed: a bound belongs to
its set. Only this file knows the closed forms of possibility and necessity; misprints in the paper
are put right (N = inf max(mu, 1 - pi); a predicate is evaluated where m4 >= n1 and m1 <= n4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from denwatch.protocol.degrees import CRISP, slope
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from numba import njit

Trapezoid = tuple[float, float, float, float]
Publication = Mapping[int, Trapezoid]  # by attribute

MAX_CONSTRAINTS = 255  # counted in a byte

F = TypeVar("F", bound=Callable[..., Any])


class Constraint(NamedTuple):
    """One predicate: "attribute is set", the least it must reach, and its weight."""

    attribute: int
    points: Trapezoid
    possible: float = 0.0  # theta of possibility
    certain: float = 0.0  # theta of necessity
    weight: float = 1.0


class Interest(NamedTuple):
    """One subscription: constraints that must all hold, and what their aggregate must reach."""

    constraints: tuple[Constraint, ...]
    possible: float = 0.0  # omega of possibility
    certain: float = 0.0  # omega of necessity


def compile_kernel(function: F) -> F:
    """Compile a function to machine code, keeping its type for the checker."""
    return cast(F, njit(cache=True)(function))


@compile_kernel
def rate_possible(
    m1: float, m2: float, m3: float, m4: float, n1: float, n2: float, n3: float, n4: float
) -> float:
    """Return sup min(mu, pi) of two trapezoids."""
    if m3 < n2:  # mu stands left of pi: its falling side meets pi's rising one
        return (m4 - n1) / ((m4 - m3) + (n2 - n1)) if m4 > n1 else 0.0
    if n3 < m2:
        return (n4 - m1) / ((n4 - n3) + (m2 - m1)) if n4 > m1 else 0.0
    return 1.0


@compile_kernel
def rate_certain(
    m1: float, m2: float, m3: float, m4: float, n1: float, n2: float, n3: float, n4: float
) -> float:
    """Return inf max(mu, 1 - pi): one minus how possible the outside of mu is, on either side."""
    right = 0.0
    if n4 > m3:
        right = 1.0 if m4 <= n3 else (n4 - m3) / ((m4 - m3) + (n4 - n3))
    left = 0.0
    if n1 < m2:
        left = 1.0 if m1 >= n2 else (m2 - n1) / ((m2 - m1) + (n2 - n1))
    return 1.0 - max(left, right)


def check_trapezoid(points: Trapezoid, what: str) -> None:
    """Raise ValueError unless the points rise: with a core, so that possible >= certain.

    A core may be unbounded, as in "at least 18"; a slope may not.
    """
    m1, m2, m3, m4 = points
    if not m1 <= m2 <= m3 <= m4:
        raise ValueError(f"{what}: {points} is not a trapezoid with a core")
    if (isinf(m1) and m1 < m2) or (isinf(m4) and m3 < m4):
        raise ValueError(f"{what}: {points} has a side without end")


def check_interest(interest: Interest) -> None:
    """Raise ValueError for an interest that no engine could hold."""
    if not 1 <= len(interest.constraints) <= MAX_CONSTRAINTS:
        count = len(interest.constraints)
        raise ValueError(f"{count} constraints: an interest has 1 to {MAX_CONSTRAINTS}")
    for c in interest.constraints:
        check_trapezoid(c.points, f"attribute {c.attribute}")
        if not c.weight > 0:
            raise ValueError(f"attribute {c.attribute}: weight {c.weight} is not positive")
    thresholds = [interest.possible, interest.certain]
    for c in interest.constraints:
        thresholds += [c.possible, c.certain]
    if not all(0 <= threshold <= 1 for threshold in thresholds):
        raise ValueError(f"a threshold is outside 0..1: {interest}")


def translate_subscription(s: SubscriptionVector) -> Interest:
    """Return a subscription vector as an interest over a domain of 0..1.

    Its aggregator is the engine's affair. ValueError for what has no straight sides or no place in
    the model: hedges, negations, patterns, freshness.
    """
    if s.pattern or s.recent or s.consequents or any(p.negated or p.hedge for p in s.predicates):
        raise ValueError("A-ToPSS has no hedge, negation, pattern, freshness or rules here")
    constraints = [
        Constraint(
            s.event << 4 | p.attribute,
            translate_predicate(p),
            p.possible / 255,
            p.certain / 255,
            float(p.weight),
        )
        for p in s.predicates
    ]
    return Interest(tuple(constraints), s.threshold / 255, s.certain / 255)


def translate_predicate(p: Predicate) -> Trapezoid:
    """Return the real trapezoid of a triple; its feet may lie outside the domain."""

    def spread(code: int) -> float:
        return 0.0 if code == CRISP else 256 / slope(code)

    low, high = p.low / p.last, p.high / p.last
    return low - spread(p.left), low, high, high + spread(p.right)


def translate_notification(n: NotificationVector) -> dict[int, Trapezoid]:
    """Return a notification vector as a publication over a domain of 0..1."""

    def scale(reading: Reading) -> Trapezoid:
        last = 65535 if reading.wide else 255
        a, b, c, d = reading.points
        return a / last, b / last, c / last, d / last

    return {n.event << 4 | reading.attribute: scale(reading) for reading in n.readings}


# Reduced encodings of degrees (A-ToPSS, precision against space): 8, 4, 3 or 2 bits for a float.
#
# A code names a cell: 0..1 is divided into 2**bits equal parts, and a degree passes a threshold if
# its cell is not below the threshold's. So nothing that a float would pass is lost; what lies in
# the threshold's own cell but below it passes as well, and that is the loss of precision.
# Codes are packed without a bit between them.

FLOAT = 32
BITS = (FLOAT, 8, 4, 3, 2)

Bytes = npt.NDArray[np.uint8]


@compile_kernel
def encode(degree: float, bits: int) -> int:
    """Return the cell of a degree; the highest cell contains 1."""
    cells = 1 << bits
    return min(int(degree * cells), cells - 1)


@compile_kernel
def decode(code: int, bits: int) -> float:
    """Return a degree inside the cell: 0 for the lowest, 1 for the highest."""
    return code / ((1 << bits) - 1)


@compile_kernel
def read_code(packed: Bytes, index: int, bits: int) -> int:
    """Return the code at an index."""
    at = index * bits
    both = packed[at >> 3] | np.int64(packed[(at >> 3) + 1]) << 8
    code: int = (both >> (at & 7)) & ((1 << bits) - 1)
    return code


@compile_kernel
def write_code(packed: Bytes, index: int, bits: int, code: int) -> None:
    """Write the code at an index; a code of three bits may straddle two bytes."""
    at = index * bits
    byte = at >> 3
    shift = at & 7
    mask = ((1 << bits) - 1) << shift
    both = packed[byte] | np.int64(packed[byte + 1]) << 8
    both = (both & ~mask) | (code << shift)
    packed[byte] = both & 255
    packed[byte + 1] = both >> 8


def allocate_codes(count: int, bits: int) -> Bytes:
    """Return room for so many codes of 0, and the byte that the last may reach into."""
    return np.zeros((count * bits + 7) // 8 + 1, dtype=np.uint8)


# The two stages in machine code: rating predicates, and collecting subscriptions. The arrays belong
# to `atopss.Tally`. Encoded means are rounded up, so that no subscription that a float passes is
# lost.

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Slots = npt.NDArray[np.int32]

# An attribute's predicates: their points, their own thresholds, their numbers.
Table = tuple[Floats, Floats, Slots]
# The predicate vector as floats and as codes, and the bits of a code.
Rated = tuple[Singles, Bytes, int]
# A predicate's degrees as floats and as codes, the bits of a code, the aggregation, the weight.
How = tuple[np.float32, np.float32, int, int, int, int, np.float32]
# Subscriptions' scores as floats and as codes, counts of their predicates, sums of weights.
Vectors = tuple[Singles, Bytes, Bytes, Singles]
# How many predicates each subscription has, and its thresholds as floats and as codes.
Limits = tuple[Bytes, Singles, Bytes]

_MIN = 0
_MAX = 1


@compile_kernel
def _record(number: int, possible: float, certain: float, i: int, table: Table, to: Rated) -> bool:
    """Store a predicate's degrees as encoded; return whether they reach its thresholds."""
    thetas = table[1]
    floats, codes, bits = to
    if bits == FLOAT:
        floats[number, 0] = possible
        floats[number, 1] = certain
        high = bool(floats[number, 0] >= np.float32(thetas[i, 0]))
        return high and bool(floats[number, 1] >= np.float32(thetas[i, 1]))
    possible_code = encode(possible, bits)
    certain_code = encode(certain, bits)
    write_code(codes, 2 * number, bits, possible_code)
    write_code(codes, 2 * number + 1, bits, certain_code)
    enough = possible_code >= encode(thetas[i, 0], bits)
    return enough and certain_code >= encode(thetas[i, 1], bits)


@compile_kernel
def rate_predicates(
    table: Table, to: Rated, n1: float, n2: float, n3: float, n4: float
) -> Slots:  # fmt: skip
    """Rate every predicate of an attribute; return the numbers of those that are satisfied."""
    points, _, numbers = table
    found = np.empty(len(points), dtype=np.int32)
    count = 0
    for i in range(len(points)):
        m1, m2, m3, m4 = points[i]
        possible = rate_possible(m1, m2, m3, m4, n1, n2, n3, n4)
        certain = rate_certain(m1, m2, m3, m4, n1, n2, n3, n4)
        if possible > 0 and _record(numbers[i], possible, certain, i, table, to):
            found[count] = numbers[i]
            count += 1
    return found[:count]


@compile_kernel
def rate_sorted_predicates(
    table: Table, to: Rated, n1: float, n2: float, n3: float, n4: float
) -> Slots:  # fmt: skip
    """Do the same where predicates stand by their points: pass those left of pi, stop right of it.

    Degrees of predicates that are passed stay as they were; nobody reads them.
    """
    points, _, numbers = table
    found = np.empty(len(points), dtype=np.int32)
    count = 0
    for i in range(len(points)):
        if points[i, 0] > n4:
            break
        if points[i, 3] < n1:
            continue
        m1, m2, m3, m4 = points[i]
        possible = rate_possible(m1, m2, m3, m4, n1, n2, n3, n4)
        # Certain is 0 unless pi's core lies within mu's support.
        inside = m4 >= n3 and m1 <= n2
        certain = rate_certain(m1, m2, m3, m4, n1, n2, n3, n4) if inside else 0.0
        if possible > 0 and _record(numbers[i], possible, certain, i, table, to):
            found[count] = numbers[i]
            count += 1
    return found[:count]


@compile_kernel
def _add_floats(
    scores: Singles,
    slot: int,
    possible: np.float32,
    certain: np.float32,
    first: bool,
    kind: int,
    w: np.float32,
) -> None:
    if kind in (_MIN, _MAX):
        if first:
            scores[slot, 0] = possible
            scores[slot, 1] = certain
        elif kind == _MIN:
            scores[slot, 0] = min(scores[slot, 0], possible)
            scores[slot, 1] = min(scores[slot, 1], certain)
        else:
            scores[slot, 0] = max(scores[slot, 0], possible)
            scores[slot, 1] = max(scores[slot, 1], certain)
    else:
        scores[slot, 0] += possible * w
        scores[slot, 1] += certain * w


@compile_kernel
def _add_codes(
    scores: Bytes,
    at: int,
    bits: int,
    code: int,
    first: bool,
    kind: int,
    before: float,
    w: np.float32,
) -> None:
    if not first:
        old = read_code(scores, at, bits)
        if kind == _MIN:
            code = min(old, code)
        elif kind == _MAX:
            code = max(old, code)
        else:
            # Single precision carries dust: a hair less than half a cell's share is let go.
            code = int(np.ceil((old * before + code * w) / (before + w) - 1e-6))
    write_code(scores, at, bits, code)


@compile_kernel
def _add(slot: int, how: How, vectors: Vectors) -> None:
    """Add a predicate's degrees to one subscription."""
    possible, certain, possible_code, certain_code, bits, kind, w = how
    floats, codes, counts, weights = vectors
    first = counts[slot] == 0
    before = weights[slot]
    if bits == FLOAT:
        _add_floats(floats, slot, possible, certain, first, kind, w)
    else:
        _add_codes(codes, 2 * slot, bits, possible_code, first, kind, before, w)
        _add_codes(codes, 2 * slot + 1, bits, certain_code, first, kind, before, w)
    weights[slot] += w
    counts[slot] += 1


@compile_kernel
def follow_list(slots: Slots, how: How, vectors: Vectors) -> None:
    """Add a predicate's degrees to the subscriptions in its association list."""
    for k in range(len(slots)):
        _add(slots[k], how, vectors)


@compile_kernel
def follow_row(row: Bytes, size: int, how: How, vectors: Vectors) -> None:
    """Do the same by the predicate's row of the association matrix: one bit a subscription."""
    for slot in range(size):
        if row[slot >> 3] >> (slot & 7) & 1:
            _add(slot, how, vectors)


@compile_kernel
def list_complete(
    size: int, bits: int, kind: int, vectors: Vectors, limits: Limits, out: Singles
) -> Slots:
    """Return the subscriptions that have all predicates and reach their thresholds."""
    floats, codes, counts, weights = vectors
    sizes, lowest, lowest_codes = limits
    found = np.empty(size, dtype=np.int32)
    count = 0
    for slot in range(size):
        if counts[slot] == 0 or counts[slot] != sizes[slot]:
            continue
        if bits == FLOAT:
            total = np.float32(1.0) if kind in (_MIN, _MAX) else weights[slot]
            possible = floats[slot, 0] / total
            certain = floats[slot, 1] / total
            passed = possible >= lowest[slot, 0] and certain >= lowest[slot, 1]
        else:
            possible_code = read_code(codes, 2 * slot, bits)
            certain_code = read_code(codes, 2 * slot + 1, bits)
            passed = possible_code >= read_code(lowest_codes, 2 * slot, bits)
            passed = passed and certain_code >= read_code(lowest_codes, 2 * slot + 1, bits)
            possible = np.float32(decode(possible_code, bits))
            certain = np.float32(decode(certain_code, bits))
        if passed:
            out[count, 0] = possible
            out[count, 1] = certain
            found[count] = slot
            count += 1
    return found[:count]
