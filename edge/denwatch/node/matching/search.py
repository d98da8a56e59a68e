"""The search: from notifications to matches, in one compiled call that holds no interpreter lock.

For each notification: find the groups by their masks, scan the packed boxes and the bit rows of
each group, then evaluate the candidates. Time goes into waiting for memory, so the search is split
into stages with buffers between them, and each stage asks for the memory of the next:

    groups ->  probe  -> scan_packed ------------------------> found -> evaluate_found -> answers
                      -> mark_zones -> pending -> scan_pending ->

`pending` (zones whose rows are on their way) is emptied when it is full, `found` (candidates whose
records are on their way) when it is long enough; both also at the end of a notification.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from denwatch.node.matching.bit_rows import (
    NEXT,
    ZONE,
    ZONES,
    find_shift,
    mark_zones,
    pack_probe,
    scan_packed,
    scan_pending,
)
from denwatch.node.matching.compiling import Array, compiled, int64, prefetch
from denwatch.node.matching.evaluation import (
    INEXACT,
    NO_MATCH,
    cut_reading,
    evaluate,
    evaluate_doubtful,
    evaluate_plain,
    make_degrees,
)
from denwatch.node.matching.masks import (
    ATTRS,
    BLOCK,
    LEVEL,
    NODE_CHILDREN,
    PACKED,
    TAIL,
    WIDTH,
    grow,
    list_masks,
    prefer_list,
    walk_masks,
)
from denwatch.node.matching.records import EVENT_ATTRIBUTES, HEADER, PLAIN, get_flags
from denwatch.protocol.vectors import NotificationVector
from numpy.typing import NDArray

_GATHERED = 12288  # candidates after which to evaluate
_PACKED = 512  # more than a group has packed boxes
_PENDING = 256  # zones to ask for before the first is read
_AHEAD = 12  # records to ask for in advance


# Batches of notifications, and their matches --------------------------------------------------


@dataclass(frozen=True)
class NotificationBatch:
    """Notifications: the readings of number i are starts[i]:starts[i + 1] of the other columns."""

    starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    points: NDArray[np.int32]  # four a reading
    wides: NDArray[np.uint8]
    ages: NDArray[np.int64]  # seconds, one a notification

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class MatchBatch:
    """Matches: those of notification i are starts[i]:starts[i + 1] of the other columns.

    They stand in the order of the index, not of ids.
    """

    starts: NDArray[np.int64]
    ids: NDArray[np.uint64]
    possible: NDArray[np.uint8]
    certain: NDArray[np.uint8]
    attributes: NDArray[np.int32]
    candidates: int  # boxes that were looked at closely


def pack_notifications(
    notifications: Sequence[NotificationVector], ages: Sequence[int]
) -> NotificationBatch:
    """Return the new readings of notifications; `ages` are theirs, in seconds.

    Old readings are for `joins.py`.
    """
    starts = array("q", (0,))
    rows = array("i")
    points = array("i")
    wides = bytearray()
    for n in notifications:
        base = n.event * EVENT_ATTRIBUTES
        for reading in n.readings:
            if reading.age:
                continue
            rows.append(base + reading.attribute)
            points.extend(reading.points)
            wides.append(reading.wide)
        starts.append(len(rows))
    # Columns over the lists' own memory: for one notification, a third of copying them.
    return NotificationBatch(
        np.frombuffer(starts, np.int64),
        np.frombuffer(rows, np.int32) if rows else np.empty(0, np.int32),
        np.frombuffer(points, np.int32).reshape(-1, 4) if rows else np.empty((0, 4), np.int32),
        np.frombuffer(wides, np.uint8) if rows else np.empty(0, np.uint8),
        np.array(ages, np.int64),
    )


# The search -------------------------------------------------------------------------------------


@compiled
def bound_reading(points: Array, wides: Array, at: int, t: int) -> tuple[int, int]:
    """Return the 8-bit values between which a reading's t-cut lies, at either resolution.

    A predicate may be evaluated with 8 or with 16 bits, which round differently; the bounds cover
    both. They are rounded outwards: boxes hold codes, readings what lies between them too.
    """
    a = int64(points[at, 0])
    b = int64(points[at, 1])
    c = int64(points[at, 2])
    d = int64(points[at, 3])
    if wides[at]:
        first, last = cut_reading(a, b, c, d, t, 16)
        low, high = cut_reading(a >> 8, b >> 8, c >> 8, d >> 8, t, 256)
    else:
        first, last = cut_reading(257 * a, 257 * b, 257 * c, 257 * d, t, 16)
        low, high = cut_reading(a, b, c, d, t, 256)
    first = min(first >> 12, low >> 8)
    last = max((last + 4095) >> 12, (high + 255) >> 8)
    return max(first, 0), min(last, 255)


@compiled
def evaluate_found(
    found: Array, size: int, slots: Array, recs: Array, values: Array, place: Array, points: Array,
    wides: Array, age: int, degrees: Array, previous: int, ids: Array, answers: Array, total: int,
) -> tuple[int, int]:  # fmt: skip
    """Append the matches among the candidates; return the new total and the last record looked at.

    A candidate in found[:size] is a slot of the bit rows, or ~record of a packed box. First all
    slots become records, then each record is prefetched 12 candidates ahead of its evaluation. The
    boxes of one subscription stand side by side, so it is enough to compare with the record before;
    `previous` carries this across calls. `ids` and `answers` must have room for `size` more.
    """
    for c in range(size):
        found[c] = slots[found[c]] if found[c] >= 0 else ~found[c]
    for c in range(size):
        if c + _AHEAD < size:
            prefetch(recs, found[c + _AHEAD])
            prefetch(recs, found[c + _AHEAD] + HEADER + 1)  # it may reach into the next line
        r = found[c]
        if r == previous:
            continue
        previous = r
        head = recs[r + 1]
        answer = INEXACT
        if get_flags(head) & PLAIN:
            answer = evaluate_plain(recs, r, head, values)
            if answer == INEXACT:
                answer = evaluate_doubtful(recs, r, head, place, points, wides)
        if answer == INEXACT:
            answer = evaluate(recs, r, place, points, wides, age, degrees)
        if answer != NO_MATCH:
            ids[total] = recs[r]
            answers[total] = answer
            total += 1
    return total, previous


@compiled
def bound_readings(
    attrs: Array, start: int, width: int, values: Array, place: Array, points: Array, wides: Array,
    t: int, first: Array, last: Array, base: int,
) -> bool:  # fmt: skip
    """Write between which 8-bit values a group's readings lie; return whether all are exact.

    t is the group's LEVEL: the lowest degree that any of its boxes asks for, so the cut is wide
    enough for all of them. Results go to first[base:] and last[base:], in the order of the group's
    attributes.
    """
    exact = True
    for j in range(width):
        attribute = int64(attrs[start + j])
        value = int64(values[attribute])
        first[base + j] = value
        last[base + j] = value
        if value < 0:
            at = int64(place[attribute])
            first[base + j], last[base + j] = bound_reading(points, wides, at, t)
            exact = exact and first[base + j] == last[base + j]
    return exact


@compiled
def ask_ahead(
    mine: Array, tag: int, count: int, groups: Array, packed: Array, blocks: Array, zones: Array
) -> None:
    """Ask for the memory of the next groups: one hop further for each that is nearer.

    A group's row leads to its packed boxes and blocks, a block to its zones. 6, 4 and 2 groups
    ahead each hop has arrived when the next one needs it.
    """
    if tag + 6 < count:
        prefetch(groups, mine[tag + 6] * groups.shape[1])
    if tag + 4 < count:
        group = mine[tag + 4]
        prefetch(packed, groups[group, TAIL])
        if groups[group, BLOCK] >= 0:
            prefetch(blocks, groups[group, BLOCK] * blocks.shape[1])
    if tag + 2 < count:
        block = groups[mine[tag + 2], BLOCK]
        if block >= 0:
            prefetch(zones, blocks[block, ZONES])


@compiled
def split_answers(answers: Array, total: int) -> tuple[Array, Array, Array]:
    """Return the possible degrees, the certain ones, and the attributes of answers."""
    possible = np.empty(total, np.uint8)
    certain = np.empty(total, np.uint8)
    attributes = np.empty(total, np.int32)
    for i in range(total):
        possible[i] = answers[i] & 255
        certain[i] = (answers[i] >> 8) & 255
        attributes[i] = answers[i] >> 16
    return possible, certain, attributes


@compiled
def search(
    starts: Array, attributes: Array, points: Array, wides: Array, ages: Array, recs: Array,
    slots: Array, bits: Array, zones: Array, packed: Array, groups: Array, blocks: Array,
    nodes: Array, heads: Array, shape: Array, attrs: Array, counts: Array, buckets: int,
    widest: int,
) -> tuple[Array, Array, Array, Array, Array, int]:  # fmt: skip
    """Return (ends, ids, possible, certain, attributes, number of candidates).

    The matches of notification i are those from ends[i] to ends[i + 1]. `starts`, `attributes`,
    `points`, `wides` and `ages` are a NotificationBatch; the other arrays are the index's columns,
    which nobody may change meanwhile. Every array that grows with the work is allocated here, once
    for the whole batch. The inner loop is a small state machine (group `tag`, its `block`, its
    `zone`), so that it can stop anywhere to empty a full buffer and go on.
    """
    shift = find_shift(buckets)
    width = 64 * (nodes.shape[1] - NODE_CHILDREN)
    present = np.zeros(width // 64, np.int64)
    words = np.empty(width // 64, np.int64)
    values = np.empty(width, np.int32)
    place = np.empty(width, np.int32)
    mine = np.empty(256, np.int64)
    widths = np.empty(256, np.int64)
    first = np.empty(256 * widest, np.int64)
    last = np.empty(256 * widest, np.int64)
    probe = np.empty(widest // 2 + 1, np.int64)
    common = np.empty(ZONE, np.int64)
    pending = np.empty((_PENDING, 6), np.int64)
    found = np.empty(_GATHERED + _PENDING * ZONE * 64 + _PACKED, np.int64)
    degrees = make_degrees()
    ends = np.zeros(starts.size, np.int64)
    ids = np.empty(256, np.int64)
    answers = np.empty(256, np.int32)
    total = 0
    candidates = 0
    for n in range(starts.size - 1):
        present[:] = 0
        for at in range(starts[n], starts[n + 1]):
            attribute = int64(attributes[at])
            if attribute < width:
                present[attribute >> 6] |= int64(1) << (attribute & 63)
                place[attribute] = at
                exact = points[at, 0] == points[at, 3] and not wides[at]
                values[attribute] = points[at, 0] if exact else -1
        used = 0
        for w in range(present.size):
            if present[w]:
                words[used] = w
                used += 1
        few = prefer_list(starts[n + 1] - starts[n], widest, counts)
        if few:
            mine, count = list_masks(present, groups, attrs, counts, mine)
        else:
            mine, count = walk_masks(present, words[:used], nodes, heads, shape, groups, mine)
        if count > widths.size:
            widths = np.empty(mine.size, np.int64)
            first = np.empty(mine.size * widest, np.int64)
            last = np.empty(mine.size * widest, np.int64)
        size = 0
        marked = 0
        previous = int64(-1)
        tag = 0
        block = int64(-1)
        zone = 0
        exact = True
        while True:
            if block >= 0:  # go on where the zones were too many, or with the next block
                zone, marked = mark_zones(
                    bits, zones, blocks, block, zone, widths[tag], probe, first, tag * widest,
                    exact and widths[tag] <= 4, buckets, shift, pending, marked, tag,
                )  # fmt: skip
                if marked < _PENDING:
                    block = blocks[block, NEXT]
                    zone = 0
                    if block < 0:
                        tag += 1
            elif tag < count:
                group = mine[tag]
                if not few:
                    ask_ahead(mine, tag, count, groups, packed, blocks, zones)
                wide = groups[group, WIDTH]
                widths[tag] = wide
                exact = bound_readings(
                    attrs, groups[group, ATTRS], wide, values, place, points, wides,
                    groups[group, LEVEL], first, last, tag * widest,
                )  # fmt: skip
                pack_probe(first, last, tag * widest, wide, probe)
                if groups[group, PACKED]:
                    size = scan_packed(
                        packed, groups[group, TAIL], groups[group, PACKED], wide, probe, found, size
                    )
                block = groups[group, BLOCK]
                if block < 0:
                    tag += 1
            done = tag == count
            if marked == _PENDING or done:
                size = scan_pending(
                    pending, marked, widths, first, last, widest, blocks, bits, buckets, shift,
                    common, found, size,
                )  # fmt: skip
                marked = 0
            if size > _GATHERED or done:
                candidates += size
                if total + size > ids.size:
                    ids = grow(ids, total + size)
                    answers = grow(answers, total + size)
                total, previous = evaluate_found(
                    found, size, slots, recs, values, place, points, wides, ages[n], degrees,
                    previous, ids, answers, total,
                )  # fmt: skip
                size = 0
            if done:
                break
        ends[n + 1] = total
    possible, certain, blames = split_answers(answers, total)
    return ends, ids[:total], possible, certain, blames, candidates
