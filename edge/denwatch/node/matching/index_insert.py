"""Insertion and removal: how the boxes of records get their memory in the index, and leave it.

Two steps. `plan_boxes` finds, for every record of a batch, its group, its boxes, and a good place
among the others; `place_boxes` gives the boxes their memory. A group keeps its newest boxes packed.
When they reach a limit they become a block of bit rows, and two blocks of equal size become one of
double size while that is small: so a subscription costs the same whether a million others came one
by one or at once. A free slot in a block is used again.

The caller reserves room first (`count_needs`): nothing here allocates memory that lasts. Records of
one group must stand together in `order`, because a group's limit is decided for all of them at
once.

    staged   new records in the order of arrival; record i is staged[starts[i]:starts[i + 1]]
    order    which of them to insert, sorted by group; targets[n] is the place of number order[n]
    lanes    the packed boxes of all records; those of record i are lanes[ends[i]:ends[i + 1]]
    used     where the reserved room begins in bits, slots, packed, zones, blocks; kernels move it
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.bit_rows import (
    EMPTY,
    NEXT,
    ROWS,
    SLOTS,
    WORDS,
    ZONES,
    copy_rows,
    count_rows,
    drop_packed,
    finish_rows,
    flip_slot,
    measure_entry,
    measure_rows,
    measure_zones,
    merge_zones,
    pack_box,
    round_words,
    toggle_slot,
    widen_by_slot,
)
from denwatch.node.matching.boxes import build_boxes, make_scratch
from denwatch.node.matching.compiling import Array, compiled, int64
from denwatch.node.matching.masks import (
    ATTRS,
    BLOCK,
    FREE,
    LEVEL,
    PACKED,
    ROOM,
    TAIL,
    WIDTH,
    find_group,
    sort_attributes,
)
from denwatch.node.matching.records import (
    MAX_PREDICATES,
    NOWHERE,
    get_boxes,
    get_group,
    get_slot,
    link_record,
    place_record,
    set_slot,
    unlink_record,
)


@compiled
def mix_centre(box: Array, width: int) -> int:
    """Return the place of a box's middle on a Z-order curve over its first four attributes.

    The bits of the attributes' middles (9 bits each, the top 8 used) take turns, the highest first.
    Boxes that are neighbours in this order have similar values, so a zone of 512 of them has a
    small box around it, and their records are used together.
    """
    axes = min(width, 4)
    mixed = 0
    for bit in range(8):
        for j in range(axes):
            mixed = mixed << 1 | (((box[j, 0] + box[j, 1]) >> (8 - bit)) & 1)
    return mixed


@compiled
def plan_boxes(
    recs: Array, starts: Array, nodes: Array, heads: Array, shape: Array, groups: Array,
    attrs: Array, counts: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Find each record's group and boxes; return (keys, lanes, ends).

    A key is the group, then where the record should stand in it: sorting by key makes `order`. How
    many boxes a record has, and its group, is written into the record; the group's LEVEL is lowered
    to the lowest level that a box asks for. `nodes`, `groups` and `attrs` must have room for every
    mask of the batch being new.
    """
    n = starts.size - 1
    keys = np.empty(n, np.int64)
    ends = np.zeros(n + 1, np.int64)
    lanes = np.empty(3 * n + 64, np.int64)
    mask = np.empty(MAX_PREDICATES, np.int64)
    work, sizes, notes, found = make_scratch(MAX_PREDICATES)
    for i in range(n):
        r = starts[i]
        width = sort_attributes(recs, r, mask)
        group = find_group(mask, width, nodes, heads, shape, groups, attrs, counts)
        level = build_boxes(recs, r, mask[:width], work, sizes, notes, found)
        groups[group, LEVEL] = min(groups[group, LEVEL], level)
        size = sizes[0]
        step = measure_entry(width) - 1
        if ends[i] + size * step > lanes.size:
            larger = np.empty(2 * lanes.size + size * step, np.int64)
            larger[: lanes.size] = lanes
            lanes = larger
        for b in range(size):
            pack_box(work[0, b], width, lanes, ends[i] + b * step)
        ends[i + 1] = ends[i] + size * step
        keys[i] = group << 32 | (mix_centre(work[0, 0], width) if size else 0)
        place_record(recs, r, group, size)
    return keys, lanes[: ends[n]], ends


# What a call used up of the reserved room, and what it left behind: a packed region that was
# outgrown is reported as (start, words) pairs.
USED_BITS, USED_SLOTS, USED_PACKED, USED_ZONES, USED_BLOCKS = 0, 1, 2, 3, 4


@compiled
def find_room(wanted: int) -> int:
    """Return the size of the packed region for so many boxes."""
    room = 4
    while room < wanted:
        room *= 2
    return room


@compiled
def count_needs(
    order: Array, recs: Array, starts: Array, groups: Array, buckets: int, limit: int, reuse: bool
) -> tuple[int, int, int, int, int]:
    """Return the bits, slots, packed words, zones and blocks that `place_boxes` may need.

    It makes the same decisions as `place_boxes`, from the same state: reuse a free slot, stay
    packed, or become a block. Keep the two in step.
    """
    bits = slots = packed = zones = blocks = 0
    i = 0
    while i < order.size:
        group = get_group(recs[starts[order[i]] + 1])
        boxes = 0
        while i < order.size and get_group(recs[starts[order[i]] + 1]) == group:
            boxes += get_boxes(recs[starts[order[i]] + 1])
            i += 1
        total = groups[group, PACKED] + boxes
        width = groups[group, WIDTH]
        if reuse and boxes == 1 and groups[group, FREE] >= 0:
            continue
        if total >= limit:
            words = round_words(total)
            bits += measure_rows(words, width, buckets)
            slots += words * 64
            zones += measure_zones(words, width)
            blocks += 1
        elif total > groups[group, ROOM]:
            packed += find_room(total) * measure_entry(width)
    return bits, slots, packed, zones, blocks


@compiled
def store_records(
    order: Array, staged: Array, starts: Array, targets: Array, recs: Array, heads: Array,
    shape: Array,
) -> None:  # fmt: skip
    """Copy records to their targets in the given order and enter them in the table of ids.

    Their ids must not be in the table. In sorted order, records of one zone become neighbours.
    """
    for i in range(order.size):
        start = starts[order[i]]
        for j in range(starts[order[i] + 1] - start):
            recs[targets[i] + j] = staged[start + j]
        set_slot(recs, targets[i], NOWHERE)
        link_record(recs, heads, shape, targets[i])


@compiled
def fill_slot(
    bits: Array, start: int, words: int, slot: int, width: int, buckets: int, lanes: Array, at: int,
    recs: Array, r: int, slots: Array, base: int, zones: Array, around: int,
) -> None:  # fmt: skip
    """Mark one box of a record in the rows of a block under construction.

    The first box of a record writes its slot into the record; the others follow in the next slots.
    """
    toggle_slot(bits, start, words, slot, width, buckets, lanes, at)
    widen_by_slot(zones, around, slot, width, lanes, at)
    slots[base + slot] = r
    if get_slot(recs, r) == NOWHERE:  # its first box
        set_slot(recs, r, base + slot)


@compiled
def place_boxes(
    order: Array, targets: Array, lanes: Array, ends: Array, recs: Array, groups: Array,
    blocks: Array, bits: Array, slots: Array, packed: Array, zones: Array, used: Array,
    buckets: int, limit: int, reuse: bool,
) -> Array:  # fmt: skip
    """Place the boxes of stored records; return the packed regions that were outgrown.

    For each group in turn: one box into a free slot of a block (`reuse`), or all of them appended
    to the packed part, which moves to a larger region if it is full, or, at `limit`, packed and new
    boxes together as a new block. Outgrown regions are (start, words) rows, for the caller to give
    back; slots of a new block that stay empty are chained as free.
    """
    left = np.empty((order.size, 2), np.int64)
    outgrown = 0
    i = 0
    while i < order.size:
        group = get_group(recs[targets[i] + 1])
        stop = i
        boxes = 0
        while stop < order.size and get_group(recs[targets[stop] + 1]) == group:
            boxes += get_boxes(recs[targets[stop] + 1])
            stop += 1
        row = groups[group]
        width = row[WIDTH]
        step = measure_entry(width)
        total = row[PACKED] + boxes
        if reuse and boxes == 1 and row[FREE] >= 0:
            slot = row[FREE]
            row[FREE] = -2 - slots[slot]
            block = row[BLOCK]
            while not 0 <= slot - blocks[block, SLOTS] < 64 * blocks[block, WORDS]:
                block = blocks[block, NEXT]
            at = slot - blocks[block, SLOTS]
            where = ends[order[i]]
            start = blocks[block, ROWS]
            flip_slot(bits, start, blocks[block, WORDS], at, width, buckets, lanes, where)
            widen_by_slot(zones, blocks[block, ZONES], at, width, lanes, where)
            slots[slot] = targets[i]
            set_slot(recs, targets[i], slot)
            i = stop
        elif total < limit:
            if total > row[ROOM]:
                room = find_room(total)
                for j in range(row[PACKED] * step):
                    packed[used[USED_PACKED] + j] = packed[row[TAIL] + j]
                if row[ROOM]:
                    left[outgrown, 0] = row[TAIL]
                    left[outgrown, 1] = row[ROOM] * step
                    outgrown += 1
                row[TAIL] = used[USED_PACKED]
                row[ROOM] = room
                used[USED_PACKED] += room * step
            for n in range(i, stop):
                for at in range(ends[order[n]], ends[order[n] + 1], step - 1):
                    to = row[TAIL] + row[PACKED] * step
                    packed[to] = targets[n]
                    for j in range(step - 1):
                        packed[to + 1 + j] = lanes[at + j]
                    row[PACKED] += 1
            i = stop
        else:
            words = round_words(total)
            start = used[USED_BITS]
            base = used[USED_SLOTS]
            block = used[USED_BLOCKS]
            around = used[USED_ZONES]
            used[USED_BITS] += measure_rows(words, width, buckets)
            used[USED_SLOTS] += words * 64
            used[USED_ZONES] += measure_zones(words, width)
            used[USED_BLOCKS] += 1
            zones[around : used[USED_ZONES]] = EMPTY
            slot = 0
            for at in range(row[TAIL], row[TAIL] + row[PACKED] * step, step):
                fill_slot(
                    bits, start, words, slot, width, buckets, packed, at + 1, recs, packed[at],
                    slots, base, zones, around,
                )  # fmt: skip
                slot += 1
            for n in range(i, stop):
                for at in range(ends[order[n]], ends[order[n] + 1], step - 1):
                    fill_slot(
                        bits, start, words, slot, width, buckets, lanes, at, recs, targets[n],
                        slots, base, zones, around,
                    )  # fmt: skip
                    slot += 1
            i = stop
            finish_rows(bits, start, words, width, buckets)
            for slot in range(64 * words - 1, total - 1, -1):
                slots[base + slot] = -2 - row[FREE]
                row[FREE] = base + slot
            blocks[block, ROWS] = start
            blocks[block, WORDS] = words
            blocks[block, SLOTS] = base
            blocks[block, ZONES] = around
            blocks[block, NEXT] = row[BLOCK]
            row[BLOCK] = block
            row[PACKED] = 0
    return left[:outgrown]


@compiled
def can_merge(groups: Array, blocks: Array, group: int, most: int) -> bool:
    """Return whether the group's two newest blocks are equal in size and small enough to merge."""
    newest = groups[group, BLOCK]
    if newest < 0 or blocks[newest, NEXT] < 0:
        return False
    words = blocks[newest, WORDS]
    return words == blocks[blocks[newest, NEXT], WORDS] and 2 * words <= most


@compiled
def merge_blocks(
    group: int, groups: Array, blocks: Array, bits: Array, slots: Array, zones: Array, recs: Array,
    start: int, base: int, around: int, buckets: int,
) -> int:  # fmt: skip
    """Write the group's two newest blocks as one into fresh room; return the block left over.

    Fresh room is bits[start:], slots[base:] and zones[around:], of double size. The older block
    becomes the first half. Slots move, so the chain of free slots is translated, and every record
    learns its new first slot: boxes of one record stand side by side, so only the first of a run
    counts.
    """
    newest = groups[group, BLOCK]
    older = blocks[newest, NEXT]
    words = blocks[newest, WORDS]
    width = groups[group, WIDTH]
    rows = count_rows(buckets) * width
    zones[around : around + measure_zones(2 * words, width)] = EMPTY
    for side in range(2):
        block = blocks[newest if side else older]
        copy_rows(bits, block[ROWS], words, start, 2 * words, side * words, rows)
        merge_zones(zones, block[ZONES], words, around, side * words, width)
    half = 64 * words
    # The chain of free slots first: it runs through the old slots.
    slot = groups[group, FREE]
    groups[group, FREE] = -1
    for side in range(2):
        old = blocks[newest if side else older, SLOTS]
        for at in range(half):
            slots[base + side * half + at] = slots[old + at]
    while slot >= 0:
        following = -2 - int64(slots[slot])
        if 0 <= slot - blocks[older, SLOTS] < half:
            slot += base - blocks[older, SLOTS]
        elif 0 <= slot - blocks[newest, SLOTS] < half:
            slot += base + half - blocks[newest, SLOTS]
        slots[slot] = -2 - groups[group, FREE]
        groups[group, FREE] = slot
        slot = following
    previous = int64(-1)
    for at in range(base, base + 2 * half):
        r = int64(slots[at])
        if r >= 0 and r != previous:
            set_slot(recs, r, at)
        previous = r
    blocks[newest, ROWS] = start
    blocks[newest, WORDS] = 2 * words
    blocks[newest, SLOTS] = base
    blocks[newest, ZONES] = around
    blocks[newest, NEXT] = blocks[older, NEXT]
    return older


@compiled
def remove_boxes(
    r: int, recs: Array, heads: Array, shape: Array, groups: Array, attrs: Array, blocks: Array,
    bits: Array, slots: Array, packed: Array, buckets: int,
) -> None:  # fmt: skip
    """Remove a record's boxes from its group and the record from the table of ids.

    Packed boxes are found by their record. Boxes in bit rows are built again from the record, and
    the same bits that inserted them are flipped back; their slots become free. Zones are not
    narrowed.
    """
    unlink_record(recs, heads, shape, r)
    row = groups[get_group(recs[r + 1])]
    width = row[WIDTH]
    step = measure_entry(width)
    slot = get_slot(recs, r)
    boxes = get_boxes(recs[r + 1])
    if boxes and slot == NOWHERE:
        row[PACKED] = drop_packed(packed, row[TAIL], row[PACKED], step, r)
        return
    work, sizes, notes, found = make_scratch(width)
    if boxes:
        mask = attrs[row[ATTRS] : row[ATTRS] + width]
        build_boxes(recs, r, mask, work, sizes, notes, found)
    lanes = np.empty(step, np.int64)
    block = row[BLOCK]
    for box in range(boxes):
        at = slot + box
        while not 0 <= at - blocks[block, SLOTS] < 64 * blocks[block, WORDS]:
            block = blocks[block, NEXT]
        pack_box(work[0, box], width, lanes, 0)
        inside = at - blocks[block, SLOTS]
        flip_slot(bits, blocks[block, ROWS], blocks[block, WORDS], inside, width, buckets, lanes, 0)
        slots[at] = -2 - row[FREE]
        row[FREE] = at
