"""Boxes: the alpha-cut of a whole subscription, as a few boxes of 8-bit intervals.

A box gives one interval to each attribute of the subscription's mask. A subscription can match only
if for one of its boxes every reading meets the interval: exact values stand in it, the cuts of
uncertain ones overlap it. Cuts commute with min, max and not, so this disjunction is the pattern
itself, with negations moved to the predicates; a negated predicate leaves two intervals. For other
aggregators each operand is cut at the level that it must reach. What would need more than
MAX_BOXES boxes is relaxed to fewer, larger ones: candidates are evaluated exactly in any case.

Two predicates on one attribute are met separately by an uncertain reading, even where no single
value satisfies both. So disjoint intervals do not meet in nothing but in the gap between them,
which such a reading covers; intervals that overlap meet in their intersection (Helly's theorem).

    work    [depth, box, attribute, 0 or 1]: a stack of lists of boxes, (low, high) of each
            attribute
    sizes   how many boxes there are at each depth
    notes   [4, 256] numbers: levels and polarities of pattern bytes, and scratch
    found   up to two intervals, low and high of each
    attrs   the attributes of the mask, rising; a box's attribute j is attrs[j]
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import Array, compiled
from denwatch.node.matching.evaluation import (
    INNER,
    MAX,
    MIN,
    OUTER,
    SUGENO,
    WEIGHTED,
    cut_level,
    find_level,
)
from denwatch.node.matching.records import (
    EXTRA,
    HEADER,
    MAX_BOXES,
    PATTERN,
    find_pattern,
    get_attribute,
    get_certain,
    get_count,
    get_flags,
    get_kind,
    get_threshold,
)
from denwatch.protocol import vectors

_OR, _NOT = vectors.OR, vectors.NOT
_DEPTH = 16  # of a pattern's stack; one more for a product under construction
_LONGEST = 127  # bytes of a pattern


@compiled
def make_scratch(width: int) -> tuple[Array, Array, Array, Array]:
    """Return the memory that `build_boxes` works in, for masks of up to `width` attributes."""
    work = np.empty((_DEPTH + 1, MAX_BOXES, width, 2), np.int64)
    return work, np.zeros(_DEPTH + 1, np.int64), np.empty((4, 256), np.int64), np.empty(4, np.int64)


@compiled
def cut_word(word: int, flip: int, t: int, found: Array) -> int:
    """Write the 8-bit intervals where a predicate reaches t (0..256); return how many (0..2).

    `word` is a predicate's word of a record; `flip` negates it once more. A wide (16-bit) set is
    cut at its own resolution and rounded outwards to 8 bits. 256 is a level that nothing reaches.
    Hedges round differently for exact and for uncertain readings: the cut is around both.
    """
    wide = (word >> 53) & 1
    negated = ((word >> 52) & 1) ^ flip
    shift = 8 if wide else 0
    last = 65535 if wide else 255
    if negated:
        t = 256 - t
    level = t
    tone = (word >> 48) & 15
    if tone and t <= 255:
        level = INNER[tone, t] if negated else OUTER[tone, t]
    if level > 255:
        found[0] = 0
        found[1] = 255
        return 1 if negated else 0
    low, high = cut_level(
        word & 0xFFFF, (word >> 16) & 0xFFFF, (word >> 32) & 255, (word >> 40) & 255, wide, level
    )
    if not negated:
        found[0] = low >> shift
        found[1] = high >> shift
        return 1
    count = 0
    if low > 0:
        found[0] = 0
        found[1] = (low - 1) >> shift
        count = 1
    if high < last:
        found[2 * count] = (high + 1) >> shift
        found[2 * count + 1] = 255
        count += 1
    return count


@compiled
def narrow(box: Array, at: int, low: int, high: int) -> None:
    """Let the box also ask for [low, high] of one attribute (see the head: a gap, not nothing)."""
    start = max(box[at, 0], low)
    stop = min(box[at, 1], high)
    box[at, 0] = min(start, stop)  # disjoint: the gap between the two
    box[at, 1] = max(start, stop)


@compiled
def fill_box(work: Array, sizes: Array, depth: int, width: int) -> None:
    """Leave the one box that asks for nothing."""
    sizes[depth] = 1
    for at in range(width):
        work[depth, 0, at, 0] = 0
        work[depth, 0, at, 1] = 255


@compiled
def constrain(
    work: Array, sizes: Array, depth: int, width: int, at: int, found: Array, count: int
) -> None:
    """Let all boxes at `depth` also ask that attribute `at` meets one of the found intervals.

    No interval leaves no box; two intervals double the boxes, or, if those are too many, are
    replaced by the one interval around both.
    """
    if count == 0:
        sizes[depth] = 0
    size = sizes[depth]
    if count == 2 and 2 * size <= MAX_BOXES:
        for i in range(size):
            for j in range(width):
                work[depth, size + i, j, 0] = work[depth, i, j, 0]
                work[depth, size + i, j, 1] = work[depth, i, j, 1]
            narrow(work[depth, size + i], at, found[2], found[3])
        sizes[depth] = 2 * size
    elif count == 2:  # too many: ask only for what surrounds both
        found[1] = found[3]
    for i in range(size):
        narrow(work[depth, i], at, found[0], found[1])


@compiled
def join(work: Array, sizes: Array, depth: int, width: int) -> None:
    """Or: let the boxes at `depth` be those at depth and at depth + 1 (all values, if too many)."""
    size = sizes[depth]
    other = sizes[depth + 1]
    if size + other > MAX_BOXES:
        fill_box(work, sizes, depth, width)
        return
    for i in range(other):
        for j in range(width):
            work[depth, size + i, j, 0] = work[depth + 1, i, j, 0]
            work[depth, size + i, j, 1] = work[depth + 1, i, j, 1]
    sizes[depth] = size + other


@compiled
def multiply(work: Array, sizes: Array, depth: int, width: int) -> None:
    """And: let the boxes at `depth` be every box there narrowed by every box at depth + 1.

    If the product is too large, the side with fewer boxes stays: fewer conditions, more candidates.
    """
    size = sizes[depth]
    other = sizes[depth + 1]
    if size * other > MAX_BOXES:  # keep one side: fewer conditions, more candidates
        if other < size:
            work[depth, :other, :width] = work[depth + 1, :other, :width]
            sizes[depth] = other
        return
    product = work[_DEPTH]
    for i in range(size):
        for o in range(other):
            for j in range(width):
                product[i * other + o, j, 0] = work[depth, i, j, 0]
                product[i * other + o, j, 1] = work[depth, i, j, 1]
                low = work[depth + 1, o, j, 0]
                high = work[depth + 1, o, j, 1]
                narrow(product[i * other + o], j, low, high)
    sizes[depth] = size * other
    work[depth, : sizes[depth], :width] = product[: sizes[depth], :width]


@compiled
def assign_levels(recs: Array, at: int, kind: int, t: int, notes: Array) -> int:
    """Write the level and the polarity of each pattern byte, from its end: parents come first.

    The last byte of a postfix pattern is its root, which must reach t. An operand of "or" and of
    min must reach the level of its parent; an operand of another aggregator the level that
    `find_level` computes; "not" flips the polarity. A level of 0 asks for nothing. Returns the
    pattern's length.
    """
    length = recs[at]
    levels, flips, stack, sides = notes[0], notes[1], notes[2], notes[3]
    weights = notes[3, 128:]
    top = 1
    stack[0] = t
    sides[0] = 0
    for i in range(length - 1, -1, -1):
        op = (recs[at + 1 + (i >> 3)] >> ((i & 7) * 8)) & 255
        top -= 1
        level = stack[top]
        flip = sides[top]
        levels[i] = level
        flips[i] = flip
        operands = 0 if op < 64 else 1 if op == _NOT else op & 15
        if op == _NOT:
            flip = 1 - flip
        elif operands and op & 0xF0 != _OR and kind != MIN:
            level = 0 if flip else find_level(kind, operands, level, weights, 0, notes[2, 128:])
        for _ in range(operands):
            stack[top] = level
            sides[top] = flip
            top += 1
    return length


@compiled
def run_pattern(
    recs: Array, r: int, attrs: Array, width: int, kind: int, t: int, work: Array, sizes: Array,
    notes: Array, found: Array,
) -> int:  # fmt: skip
    """Leave the boxes of a pattern at depth 0; return the lowest level asked for.

    Runs the postfix bytes over a stack of box lists. By De Morgan a negated "and" joins like an
    "or".
    """
    at = find_pattern(recs, r)
    length = assign_levels(recs, at, kind, t, notes)
    lowest = 255
    top = 0
    for i in range(length):
        op = (recs[at + 1 + (i >> 3)] >> ((i & 7) * 8)) & 255
        if op < 64:
            word = recs[r + HEADER + op]
            fill_box(work, sizes, top, width)
            count = cut_word(word, notes[1, i], notes[0, i], found)
            constrain(work, sizes, top, width, find_place(attrs, word), found, count)
            if notes[0, i] > 0:
                lowest = min(lowest, notes[0, i])
            top += 1
        elif op != _NOT:
            for _ in range((op & 15) - 1):
                top -= 1
                if (op & 0xF0 == _OR) != (notes[1, i] == 1):  # a negated "and" is an "or"
                    join(work, sizes, top - 1, width)
                else:
                    multiply(work, sizes, top - 1, width)
    return lowest


@compiled
def find_place(attrs: Array, word: int) -> int:
    """Return the place of a predicate's attribute among those of the mask."""
    attribute = get_attribute(word)
    place = 0
    while attrs[place] != attribute:
        place += 1
    return place


@compiled
def build_boxes(
    recs: Array, r: int, attrs: Array, work: Array, sizes: Array, notes: Array, found: Array
) -> int:
    """Leave a record's boxes in work[0, :sizes[0]]; return the lowest level (1..255) asked for.

    `attrs` must be the record's own mask. Deterministic: removing a subscription builds the same
    boxes again to find the bits that it set. Afterwards every notification that matches the record
    meets one of the boxes with its cuts at the returned level.
    """
    head = recs[r + 1]
    kind = get_kind(head)
    count = get_count(head)
    flags = get_flags(head)
    width = attrs.size
    t = max(get_threshold(head), get_certain(head))
    lowest = 255
    by_predicate = flags & PATTERN == 0 and kind != MAX and kind != SUGENO
    fill_box(work, sizes, 0, width)
    if flags & PATTERN:
        lowest = run_pattern(recs, r, attrs, width, kind, t, work, sizes, notes, found)
    elif kind == MAX:
        sizes[0] = 0
        for i in range(count):
            word = recs[r + HEADER + i]
            fill_box(work, sizes, 1, width)
            intervals = cut_word(word, 0, t, found)
            constrain(work, sizes, 1, width, find_place(attrs, word), found, intervals)
            join(work, sizes, 0, width)
        if t:
            lowest = t
    elif kind == WEIGHTED and flags & EXTRA:
        for i in range(count):
            notes[1, i] = (recs[r + HEADER + count + i] >> 16) & 255
    elif kind == WEIGHTED:
        notes[1, :count] = 1
    level = find_level(kind, count, t, notes[1], 0, notes[0]) if by_predicate else 0
    for i in range(count):
        word = recs[r + HEADER + i]
        if by_predicate and kind == WEIGHTED and i:
            level = find_level(kind, count, t, notes[1], i, notes[0])
        needed = level
        if flags & EXTRA:
            extra = recs[r + HEADER + count + i]
            needed = max(needed, extra & 255, (extra >> 8) & 255)
        if needed > 0:
            intervals = cut_word(word, 0, needed, found)
            constrain(work, sizes, 0, width, find_place(attrs, word), found, intervals)
            lowest = min(lowest, needed)
    return lowest
