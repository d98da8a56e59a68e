"""The two layouts of a group's boxes: packed lanes for few, bit rows for many; and their scans.

PACKED. An entry is its record's place and then 16-bit lanes, four to a 64-bit word: `low` and
`255 - high` of each attribute. A notification is packed alike (the *probe*), as the last and 255 -
first value of each reading, with the top bit of every lane set. One subtraction compares four
bounds: a lane keeps its top bit if and only if its bound holds. No lane borrows from the next,
because all values are below 256 and the top bit (0x8000) is larger.

    entry of 2 attributes   [record | low0, 255-high0, low1, 255-high1]
    probe                            [last0, 255-first0, last1, 255-first1] + 0x8000 in each lane

BIT ROWS. A block holds 64 * words boxes, one bit each. For each attribute it has two families:

    S[x]  the boxes whose interval holds the value x, one row for each of the buckets
    L[y]  the boxes whose interval begins at or before y, y in steps of four buckets

An exact reading x asks for S[x]: one row, where a range encoding of both ends would ask for two.
An uncertain one that may lie in [a, b] asks for S[a] | (L[b] & ~L[a - 1]): the intervals that hold
a, and those that begin in (a, b]. L may be coarse because candidates are evaluated anyway.

    bits[ROWS + (attribute * (buckets + buckets/4) + row) * words + word]     rows S, then rows L
    slots[SLOTS + slot]   the record of that box; -2 - (next free slot) if the slot is free

Rows are built from their ends: a box toggles S where it begins and after it ends, then each row is
the one before it xor its toggles. So building costs three bits a box and one pass over the rows.

ZONES. Eight words of a row are a cache line: the 512 boxes there are a zone. The packed box around
each zone stands in the column `zones`, which fits a cache, so that a zone without candidates costs
one or two comparisons and none of its rows is read. Bulk loading puts similar boxes into a zone.

The index of a loop over words is unsigned (`uint64`): numba then omits the test for negative
indexes, and the loop compiles to vector instructions.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from denwatch.node.matching.compiling import (
    Array,
    compiled,
    count_trailing_zeros,
    int64,
    prefetch,
    uint64,
)

TOPS = -0x7FFF7FFF7FFF8000  # 0x8000 in each of the four lanes


@compiled
def measure_entry(width: int) -> int:
    """Return the words of an entry, for a mask of so many attributes."""
    return 1 + (width + 1) // 2


@compiled
def pack_box(box: Array, width: int, lanes: Array, at: int) -> None:
    """Write a box as lanes from lanes[at] on; box[j] is (low, high) of attribute j, both 0..255."""
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
    """Write readings first[base:base+width]..last[base:base+width] (0..255) to `probe`, as lanes.

    The top bit of every lane is set, so that subtracting a box cannot borrow across lanes. In an
    odd width the last two lanes hold 0 on both sides and always pass.
    """
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
    """Append ~record of every entry whose box the readings meet; return the new size.

    packed[start:] are `count` entries of 1 + (width + 1) // 2 words each. `found` has room for
    `count` more. A candidate is written as ~record, so that it is negative and differs from a slot
    of the bit rows. Fast because up to two attributes cost one subtraction, one AND and one
    compare, without a branch for each bound; masks of up to four attributes, the usual ones, keep
    the probe in registers.
    """
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
    """Remove the entries of a record, keep the others in order; return how many are left.

    All `count` entries are read: a group has fewer than 256 packed ones.
    """
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
    """Return the words of a row for so many boxes.

    1, 2, 4 or a multiple of 8: a row then never straddles a cache line without need.
    """
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
    """Let the box around a zone hold one more box: the lower of every lane.

    Both are `count` words of lanes, zones[zone:] and lanes[at:]. A lower `low` and a lower `255 -
    high` both mean a wider box, so one minimum serves all lanes.
    """
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
    """Mark where a box begins and ends; `finish_rows` turns the marks into rows.

    bits[start:] are the rows of a block under construction, all 0 before the first mark. In S a box
    toggles its bit at `low` and after `high`; in L it sets it at `low`. Three writes an attribute
    instead of one for every value of the interval.
    """
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
    """Turn marks into rows: a running xor down the S rows, a running or down the L rows.

    After it, bit b of S[x] is set if and only if an odd number of its toggles is at or before x,
    which is low <= x <= high. Each row is read and written once, in order, by vector instructions.
    """
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
    """Insert a box into finished rows, or remove it: both flip the same bits.

    Before an insertion the slot has no bit anywhere; before a removal it has exactly those of this
    box, so `lanes` must be the box that was inserted. Costs a write for each value of the interval:
    for one box that is less than building the block anew.
    """
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
    """Copy the rows of a block into those of a wider one, from word `first` on.

    Both have `rows` rows, of `words` and of `wider` words; they do not overlap in memory.
    """
    size = uint64(words)
    for row in range(rows):
        a = uint64(source + row * words)
        b = uint64(target + row * wider + first)
        for i in range(size):
            bits[b + i] = bits[a + i]


@compiled
def merge_zones(zones: Array, source: int, words: int, target: int, first: int, width: int) -> None:
    """Widen the zones of a block by those of a smaller one that was copied in from word `first` on.

    A small block (1, 2, 4 words) has one zone, and several of them share a zone of the larger
    block.
    """
    lanes = (width + 1) // 2
    for word in range(words):
        zone = target + (first + word) // ZONE * lanes
        widen_zone(zones, zone, zones, source + word // ZONE * lanes, lanes)


@compiled
def load_reading(
    bits: Array, at: int, words: int, offset: int, size: int, a: int, b: int, buckets: int,
    shift: int, common: Array, fresh: bool,
) -> None:  # fmt: skip
    """Let `common` hold (fresh) or keep the boxes whose interval on one attribute meets [a, b].

    bits[at:] are the attribute's rows, of `words` words; `size` words from `offset` on are
    combined, at most a zone. An exact reading (a == b) is one row; an uncertain one is three rows,
    S[a] | (L[b] & ~L[a - 1]), with b and a - 1 rounded up and down to L's steps: too many boxes at
    most, never too few.
    """
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

    `zones` holds the packed box around each zone, tested as in `scan_packed`. first[base:] are the
    readings' lowest values. If `exact` (at most four attributes, exact readings), an entry of
    `pending` says where the four rows begin (a missing one repeats the last: that costs less than a
    branch), the first slot and the number of words; else tag, block and zone, with -1 in the last
    place. Begins at `zone`; returns the zone after the last one seen (all, unless `pending` is
    full) and the new size. Fast because rows are prefetched here and read only after many zones are
    marked: the memory latency of up to 256 zones overlaps.
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
    """Append the slots of the boxes that the readings meet in the marked zones.

    pending[:marked] are entries of `mark_zones`, whose rows have arrived in the cache by now. For
    exact readings four rows are ANDed in one loop that compiles to vector instructions; what is
    left is walked bit by bit (lowest bit, then clear it), so empty words cost one test. `found`
    must have room for 512 slots for each marked zone.
    """
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
