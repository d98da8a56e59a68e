"""The two stages of A-ToPSS in machine code: rating predicates, and gathering subscriptions.

Loops over arrays that `tally.py` owns. Encoded means are rounded up, so that no subscription that a
float would pass is lost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from papers.encodings import (
    FLOAT,
    Bytes,
    decode,
    encode,
    read_code,
    write_code,
)
from papers.trapezoids import compile_kernel, rate_certain, rate_possible

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
