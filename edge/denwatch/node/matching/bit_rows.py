"""Packed boxes: the layout of small groups and of what was added lately.

An entry is its record's place and then 16-bit lanes: low and 255 - high of each attribute, so two
attributes to a 64-bit word. A notification is packed alike, as the last and 255 - first value of
each reading, with the top bit of every lane set: one subtraction compares four bounds, and a lane
that keeps its top bit holds. The four intervals of a mask of four take two such operations.
"""

from __future__ import annotations

from denwatch.node.matching.compiling import (
    Array,
    compiled,
    count_trailing_zeros,
    int64,
    prefetch,
    uint64,
)

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)


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


# One block: where its rows stand, words of a row, where its slots and its zones stand, the group's
# next block.
ROWS = 0
WORDS = 1
SLOTS = 2
ZONES = 3
NEXT = 4

ZONE = 8  # words of a row in one zone
EMPTY = 0x00FF00FF00FF00FF  # around nothing


@compiled
def round_words(boxes: int) -> int:
    """Return the words of a row for so many boxes: rows do not straddle cache lines for nothing."""
    words = (boxes + 63) // 64
    if words > 4:
        return (words + ZONE - 1) // ZONE * ZONE
    return 4 if words == 3 else max(words, 1)


@compiled
def count_rows(buckets: int) -> int:
    """Return the rows of one attribute."""
    return buckets + buckets // 4


@compiled
def measure_rows(words: int, width: int, buckets: int) -> int:
    """Return the size of a block's rows, in words: whole cache lines."""
    return (words * count_rows(buckets) * width + 7) // 8 * 8


@compiled
def measure_zones(words: int, width: int) -> int:
    """Return the size of the boxes around a block's zones, in words."""
    return (words + ZONE - 1) // ZONE * ((width + 1) // 2)


@compiled
def widen_zone(zones: Array, zone: int, lanes: Array, at: int, count: int) -> None:
    """Let the box around a zone hold one more box: the lower of every lane."""
    for i in range(count):
        old = zones[zone + i]
        new = lanes[at + i]
        lower = 0
        for lane in range(0, 64, 16):
            lower |= min((old >> lane) & 0xFFFF, (new >> lane) & 0xFFFF) << lane
        zones[zone + i] = lower


@compiled
def widen_by_slot(zones: Array, start: int, slot: int, width: int, lanes: Array, at: int) -> None:
    """Widen the zone of a slot by the slot's box."""
    size = (width + 1) // 2
    widen_zone(zones, start + slot // (64 * ZONE) * size, lanes, at, size)


@compiled
def find_shift(buckets: int) -> int:
    """Return by how many bits a value is shifted to find its bucket."""
    shift = 0
    while buckets << shift < 256:
        shift += 1
    return shift


@compiled
def toggle_slot(
    bits: Array, start: int, words: int, slot: int, width: int, buckets: int, lanes: Array, at: int
) -> None:
    """Mark where a box begins and ends, in rows that were all 0 before the first mark."""
    shift = find_shift(buckets)
    bit = int64(1) << (slot & 63)
    column = start + (slot >> 6)
    for j in range(width):
        low, high = unpack_bounds(lanes, at, j)
        bits[column + (low >> shift) * words] ^= bit
        if (high >> shift) + 1 < buckets:
            bits[column + ((high >> shift) + 1) * words] ^= bit
        bits[column + (buckets + (low >> (shift + 2))) * words] |= bit
        column += count_rows(buckets) * words


@compiled
def finish_rows(bits: Array, start: int, words: int, width: int, buckets: int) -> None:
    """Turn marks into rows."""
    size = uint64(words)
    for _ in range(width):
        for row in range(1, count_rows(buckets)):
            to = uint64(start + row * words)
            before = to - size
            if row < buckets:
                for i in range(size):
                    bits[to + i] ^= bits[before + i]
            elif row > buckets:
                for i in range(size):
                    bits[to + i] |= bits[before + i]
        start += count_rows(buckets) * words


@compiled
def flip_slot(
    bits: Array, start: int, words: int, slot: int, width: int, buckets: int, lanes: Array, at: int
) -> None:
    """Write a box into finished rows, or take it out again: a free slot has no bit anywhere."""
    shift = find_shift(buckets)
    bit = int64(1) << (slot & 63)
    column = start + (slot >> 6)
    for j in range(width):
        low, high = unpack_bounds(lanes, at, j)
        for x in range(low >> shift, (high >> shift) + 1):
            bits[column + x * words] ^= bit
        for y in range(buckets + (low >> (shift + 2)), count_rows(buckets)):
            bits[column + y * words] ^= bit
        column += count_rows(buckets) * words


@compiled
def copy_rows(
    bits: Array, source: int, words: int, target: int, wider: int, first: int, rows: int
) -> None:
    """Copy the rows of a block into those of a wider one, from word `first` on."""
    size = uint64(words)
    for row in range(rows):
        a = uint64(source + row * words)
        b = uint64(target + row * wider + first)
        for i in range(size):
            bits[b + i] = bits[a + i]


@compiled
def merge_zones(zones: Array, source: int, words: int, target: int, first: int, width: int) -> None:
    """Widen the zones of a block by those of a part that stands from word `first` on."""
    lanes = (width + 1) // 2
    for word in range(words):
        zone = target + (first + word) // ZONE * lanes
        widen_zone(zones, zone, zones, source + word // ZONE * lanes, lanes)


@compiled
def load_reading(
    bits: Array, at: int, words: int, offset: int, size: int, a: int, b: int, buckets: int,
    shift: int, common: Array, fresh: bool,
) -> None:  # fmt: skip
    """Let `common` hold (fresh) or keep the boxes whose interval on one attribute meets [a, b]."""
    n = uint64(size)
    held = uint64(at + (a >> shift) * words + offset)
    if a == b:
        if fresh:
            for i in range(n):
                common[i] = bits[held + i]
        else:
            for i in range(n):
                common[i] &= bits[held + i]
        return
    begun = uint64(at + (buckets + (b >> (shift + 2))) * words + offset)
    before = (a >> (shift + 2)) - 1
    if fresh:
        for i in range(n):
            common[i] = -1
    if before < 0:
        for i in range(n):
            common[i] &= bits[held + i] | bits[begun + i]
        return
    earlier = uint64(at + (buckets + before) * words + offset)
    for i in range(n):
        common[i] &= bits[held + i] | (bits[begun + i] & ~bits[earlier + i])


@compiled
def mark_zones(
    bits: Array, zones: Array, blocks: Array, block: int, zone: int, width: int, probe: Array,
    first: Array, base: int, exact: bool, buckets: int, shift: int, pending: Array, size: int,
    tag: int,
) -> tuple[int, int]:  # fmt: skip
    """Append the zones that the readings may meet to `pending`, and ask for their rows.

    first[base:] are the readings' lowest values. Where up to four are exact, the entry says where
    the four rows begin (a missing one repeats the last: that costs less than asking how many there
    are), the first slot, and the number of words; else tag, block, zone, and -1 in the last place.
    Begins at `zone`; returns the zone after the last one seen (all, unless `pending` is full) and
    the new size.
    """
    start = blocks[block, ROWS]
    words = blocks[block, WORDS]
    rows = count_rows(buckets)
    lanes = (width + 1) // 2
    at = blocks[block, ZONES] + zone * lanes
    count = (words + ZONE - 1) // ZONE
    a = start + (first[base] >> shift) * words
    b = start + (rows + (first[base + 1] >> shift)) * words if width > 1 else a
    c = start + (2 * rows + (first[base + 2] >> shift)) * words if width > 2 else b
    d = start + (3 * rows + (first[base + 3] >> shift)) * words if width > 3 else c
    while zone < count and size < pending.shape[0]:
        common = probe[0] - zones[at]
        if lanes > 1:
            common &= probe[1] - zones[at + 1]
            for j in range(2, lanes):
                common &= probe[j] - zones[at + j]
        if common & TOPS == TOPS:
            offset = zone * ZONE
            prefetch(bits, a + offset)
            if width > 1:
                prefetch(bits, b + offset)
            if width > 2:
                prefetch(bits, c + offset)
            if width > 3:
                prefetch(bits, d + offset)
            if exact:
                pending[size, 0] = a + offset
                pending[size, 1] = b + offset
                pending[size, 2] = c + offset
                pending[size, 3] = d + offset
                pending[size, 4] = blocks[block, SLOTS] + (offset << 6)
                pending[size, 5] = min(ZONE, words - offset)
            else:
                pending[size, 0] = tag
                pending[size, 1] = block
                pending[size, 2] = zone
                pending[size, 5] = -1
            size += 1
        zone += 1
        at += lanes
    return zone, size


@compiled
def scan_zone(
    bits: Array, blocks: Array, block: int, zone: int, width: int, first: Array, last: Array,
    base: int, buckets: int, shift: int, common: Array,
) -> int:  # fmt: skip
    """Let `common` hold the boxes of a zone that readings of any kind meet; return its words."""
    words = blocks[block, WORDS]
    span = count_rows(buckets) * words
    offset = zone * ZONE
    count = min(ZONE, words - offset)
    for j in range(width):
        load_reading(
            bits, blocks[block, ROWS] + j * span, words, offset, count, first[base + j],
            last[base + j], buckets, shift, common, j == 0,
        )  # fmt: skip
    return count


@compiled
def scan_pending(
    pending: Array, marked: int, widths: Array, first: Array, last: Array, widest: int,
    blocks: Array, bits: Array, buckets: int, shift: int, common: Array, found: Array, size: int,
) -> int:  # fmt: skip
    """Append the slots of the boxes that the readings meet in the marked zones."""
    for p in range(marked):
        count = pending[p, 5]
        slot = pending[p, 4]
        if count < 0:
            tag = pending[p, 0]
            block = pending[p, 1]
            zone = pending[p, 2]
            count = scan_zone(
                bits, blocks, block, zone, widths[tag], first, last, tag * widest, buckets, shift,
                common,
            )  # fmt: skip
            slot = blocks[block, SLOTS] + (zone * ZONE << 6)
        else:
            a = uint64(pending[p, 0])
            b = uint64(pending[p, 1])
            c = uint64(pending[p, 2])
            d = uint64(pending[p, 3])
            for i in range(uint64(count)):
                common[i] = bits[a + i] & bits[b + i] & bits[c + i] & bits[d + i]
        for i in range(count):
            word = common[i]
            while word:
                found[size] = slot + count_trailing_zeros(word)
                word &= word - 1
                size += 1
            slot += 64
    return size
