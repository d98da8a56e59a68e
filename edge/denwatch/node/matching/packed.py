"""Packed boxes: the layout of small groups and of what was added lately.

An entry is its record's place and then 16-bit lanes: low and 255 - high of each attribute, so two
attributes to a 64-bit word. A notification is packed alike, as the last and 255 - first value of
each reading, with the top bit of every lane set: one subtraction compares four bounds, and a lane
that keeps its top bit holds. The four intervals of a mask of four take two such operations.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from denwatch.node.matching.compiling import Array, compiled

TOPS = -0x7FFF7FFF7FFF8000  # 0x8000 in each of the four lanes


@compiled
def measure_entry(width: int) -> int:
    """Return the words of an entry, for a mask of so many attributes."""
    return 1 + (width + 1) // 2


@compiled
def pack_box(box: Array, width: int, lanes: Array, at: int) -> None:
    """Write a box as lanes."""
    for j in range(0, width, 2):
        word = box[j, 0] | (255 - box[j, 1]) << 16
        if j + 1 < width:
            word |= box[j + 1, 0] << 32 | (255 - box[j + 1, 1]) << 48
        lanes[at + j // 2] = word


@compiled
def unpack_bounds(lanes: Array, at: int, j: int) -> tuple[int, int]:
    """Return the interval of attribute j of the box whose lanes start at `at`."""
    word = lanes[at + (j >> 1)] >> ((j & 1) * 32)
    return word & 0xFFFF, 255 - ((word >> 16) & 0xFFFF)


@compiled
def pack_probe(first: Array, last: Array, base: int, width: int, probe: Array) -> None:
    """Write the readings first[base:], last[base:] of a mask as lanes with their top bits set."""
    for j in range(0, width, 2):
        at = base + j
        word = last[at] | (255 - first[at]) << 16
        if j + 1 < width:
            word |= last[at + 1] << 32 | (255 - first[at + 1]) << 48
        probe[j // 2] = word | TOPS


@compiled
def scan_packed(
    packed: Array, start: int, count: int, width: int, probe: Array, found: Array, size: int
) -> int:
    """Append ~record of every entry whose box the readings meet; return the new size."""
    if width <= 2:
        first = probe[0]
        for at in range(start, start + 2 * count, 2):
            if (first - packed[at + 1]) & TOPS == TOPS:
                found[size] = ~packed[at]
                size += 1
    elif width <= 4:
        first = probe[0]
        second = probe[1]
        for at in range(start, start + 3 * count, 3):
            if (first - packed[at + 1]) & (second - packed[at + 2]) & TOPS == TOPS:
                found[size] = ~packed[at]
                size += 1
    else:
        step = measure_entry(width)
        for at in range(start, start + step * count, step):
            common = TOPS
            for j in range(step - 1):
                common &= probe[j] - packed[at + 1 + j]
            if common == TOPS:
                found[size] = ~packed[at]
                size += 1
    return size


@compiled
def drop_packed(packed: Array, start: int, count: int, step: int, r: int) -> int:
    """Remove the entries of a record, keep the others in order; return how many are left."""
    to = start
    for at in range(start, start + count * step, step):
        if packed[at] != r:
            if to != at:
                for j in range(step):
                    packed[to + j] = packed[at + j]
            to += step
    return (to - start) // step
