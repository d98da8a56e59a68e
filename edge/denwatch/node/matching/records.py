"""Records: what the index keeps of a subscription to evaluate it exactly, as 64-bit words.

    word 0   id
    word 1   aggregator 3 bits, threshold 8, certain 8, predicates 5, boxes 5, flags 5, group 29
    word 2   next record of the same hash bucket 32, slot in the bit rows 32 (both -1 for none)
    then a word a predicate: low 16, high 16, left 8, right 8, hedge 4, negated, wide, attribute 10
    then, by flag: thetas and weight, a word a predicate; recent, one word; the pattern, its length
    and its bytes; the rules, their order and a word for each pair of predicates

One record is 24 + 8 bytes a predicate for most subscriptions, and stands in one or two cache lines.
Only this file knows the layout. `recs` holds all records; `r` is where one begins; `head` is its
word 1. A batch of subscriptions arrives as two structured arrays.

The second half is the table of ids, a chained hash table that grows by one bucket at a time (linear
hashing): when entries outnumber buckets, one bucket is split. No insertion ever rehashes the whole
table, so a node with a million subscriptions adds one without a pause. Chains run through the
records themselves; `heads` is only the first record of each bucket, -1 if it is empty. `shape` is
(buckets, buckets at the start of this round, entries). The trie of masks uses the same scheme.

    round = 4, buckets = 6: a key's hash & 7 is its bucket if that is below 6, else hash & 3
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from denwatch.node.matching.compiling import Array, compiled, int64
from denwatch.protocol.degrees import MIN
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import SubscriptionVector
from numpy.typing import NDArray

# What a batch consists of. Predicates, and the numbers of `code` (pattern bytes, then the rules'
# coefficients), follow each other in the order of the subscriptions.
SUBSCRIPTION = np.dtype(
    [
        ("id", np.int64),
        ("until", np.int32),  # recent: full until so many seconds, gone at so many; 0, 0: always
        ("gone", np.int32),
        ("count", np.uint8),  # predicates
        ("aggregator", np.uint8),
        ("threshold", np.uint8),
        ("certain", np.uint8),
        ("pattern", np.uint8),  # its length in bytes
        ("rules", np.uint8),  # coefficients of each rule: 0 (no rules), 1 or 3
    ],
    align=True,
)
PREDICATE = np.dtype(
    [
        ("attribute", np.uint16),
        ("low", np.uint16),
        ("high", np.uint16),
        ("left", np.uint8),
        ("right", np.uint8),
        ("hedge", np.uint8),
        ("negated", np.uint8),
        ("wide", np.uint8),
        ("possible", np.uint8),
        ("certain", np.uint8),
        ("weight", np.uint8),
    ],
    align=True,
)

EVENT_ATTRIBUTES = 16  # an attribute here is global: event * 16 + its bit within the event
ATTRIBUTES = 64 * EVENT_ATTRIBUTES
MAX_PREDICATES = 31
MAX_BOXES = 16
HEADER = 3
NOWHERE = -1

PLAIN = 1  # min of 8-bit predicates: no pattern, no thetas, no age
EXTRA = 2
RECENT = 4
PATTERN = 8
RULES = 16


@compiled
def get_kind(head: int) -> int:
    """Return the aggregator."""
    return head & 7


@compiled
def get_threshold(head: int) -> int:
    """Return the threshold of possibility."""
    return (head >> 3) & 255


@compiled
def get_certain(head: int) -> int:
    """Return the threshold of certainty."""
    return (head >> 11) & 255


@compiled
def get_count(head: int) -> int:
    """Return the number of predicates."""
    return (head >> 19) & 31


@compiled
def get_boxes(head: int) -> int:
    """Return the number of boxes that stand for this record in its group."""
    return (head >> 24) & 31


@compiled
def get_flags(head: int) -> int:
    """Return the flags PLAIN, EXTRA, RECENT, PATTERN and RULES."""
    return (head >> 29) & 31


@compiled
def get_group(head: int) -> int:
    """Return the number of the group."""
    return head >> 34


@compiled
def place_record(recs: Array, r: int, group: int, boxes: int) -> None:
    """Note the record's group and the number of its boxes."""
    kept = recs[r + 1] & (0xFFFFFF | 31 << 29)
    recs[r + 1] = kept | boxes << 24 | group << 34


@compiled
def get_next(recs: Array, r: int) -> int:
    """Return the next record of the hash bucket, or -1."""
    return int64(np.int32(recs[r + 2] & 0xFFFFFFFF))


@compiled
def set_next(recs: Array, r: int, following: int) -> None:
    """Note the next record of the hash bucket."""
    recs[r + 2] = (recs[r + 2] & ~0xFFFFFFFF) | (following & 0xFFFFFFFF)


@compiled
def get_slot(recs: Array, r: int) -> int:
    """Return the first slot in the bit rows, or -1 for a record among the packed ones."""
    return recs[r + 2] >> 32


@compiled
def set_slot(recs: Array, r: int, slot: int) -> None:
    """Note the first slot in the bit rows."""
    recs[r + 2] = (recs[r + 2] & 0xFFFFFFFF) | slot << 32


@compiled
def get_attribute(word: int) -> int:
    """Return the attribute of a predicate's word."""
    return (word >> 54) & 1023


@compiled
def find_pattern(recs: Array, r: int) -> int:
    """Return where the record's pattern stands: its length, then its bytes, eight a word."""
    head = recs[r + 1]
    count = get_count(head)
    flags = get_flags(head)
    return r + HEADER + count * (2 if flags & EXTRA else 1) + (1 if flags & RECENT else 0)


@compiled
def measure_record(recs: Array, r: int) -> int:
    """Return the record's length in words."""
    flags = get_flags(recs[r + 1])
    count = get_count(recs[r + 1])
    end = find_pattern(recs, r)
    if flags & PATTERN:
        end += 1 + (recs[end] + 7) // 8
    if flags & RULES:
        end += 1 + count * (count - 1) // 2
    return end - r


@compiled
def encode_records(subs: Array, preds: Array, code: Array) -> tuple[Array, Array, int, int]:
    """Return (records, starts, highest attribute, most predicates) of a batch.

    `subs` and `preds` are arrays of SUBSCRIPTION and PREDICATE; `code` holds pattern bytes and rule
    coefficients, in the order of the subscriptions. The batch must come from checked vectors:
    nothing is checked here. The last of the starts is the end. PLAIN marks what `evaluate_plain`
    can do: the min of 8-bit predicates and nothing else.
    """
    highest = 0
    most = 0
    starts = np.empty(subs.size + 1, np.int64)
    recs = np.empty(subs.size * HEADER + 2 * preds.size + code.size + 3 * subs.size, np.int64)
    at = 0
    p = 0
    c = 0
    for i in range(subs.size):
        sub = subs[i]
        starts[i] = at
        count = int64(sub.count)
        most = max(most, count)
        flags = PLAIN if sub.aggregator == MIN else 0
        for j in range(p, p + count):
            pred = preds[j]
            highest = max(highest, int64(pred.attribute))
            if pred.possible or pred.certain or pred.weight != 1:
                flags |= EXTRA
            if pred.wide:
                flags &= ~PLAIN
        if sub.gone:
            flags |= RECENT
        if sub.pattern:
            flags |= PATTERN
        if sub.rules:
            flags |= RULES
        if flags & ~PLAIN:
            flags &= ~PLAIN
        recs[at] = sub.id
        recs[at + 1] = (
            int64(sub.aggregator)
            | int64(sub.threshold) << 3
            | int64(sub.certain) << 11
            | count << 19
            | flags << 29
        )
        recs[at + 2] = NOWHERE
        at += HEADER
        for j in range(p, p + count):
            pred = preds[j]
            recs[at] = (
                int64(pred.low)
                | int64(pred.high) << 16
                | int64(pred.left) << 32
                | int64(pred.right) << 40
                | int64(pred.hedge) << 48
                | int64(pred.negated != 0) << 52
                | int64(pred.wide != 0) << 53
                | int64(pred.attribute) << 54
            )
            at += 1
        if flags & EXTRA:
            for j in range(p, p + count):
                pred = preds[j]
                recs[at] = (
                    int64(pred.possible) | int64(pred.certain) << 8 | int64(pred.weight) << 16
                )
                at += 1
        p += count
        if flags & RECENT:
            recs[at] = int64(sub.until) | int64(sub.gone) << 32
            at += 1
        if flags & PATTERN:
            length = int64(sub.pattern)
            recs[at] = length
            at += 1
            for j in range(length):
                if j & 7 == 0:
                    recs[at + (j >> 3)] = 0
                recs[at + (j >> 3)] |= int64(code[c]) << ((j & 7) * 8)
                c += 1
            at += (length + 7) // 8
        if flags & RULES:
            order = int64(sub.rules)
            recs[at] = order
            at += 1
            for _ in range(count * (count - 1) // 2):
                recs[at] = int64(code[c]) + 32768
                if order == 3:
                    recs[at] |= (int64(code[c + 1]) + 128) << 16
                    recs[at] |= (int64(code[c + 2]) + 128) << 24
                c += order
                at += 1
    starts[subs.size] = at
    return recs[:at].copy(), starts, highest, most


@compiled
def gather_records(recs: Array, heads: Array, shape: Array) -> tuple[Array, Array]:
    """Return copies of all records that the table of ids holds, and where each one starts.

    Two passes over the table, to measure and to copy; used to build a compact index.
    """
    starts = np.zeros(shape[2] + 1, np.int64)
    staged = np.empty(0, np.int64)
    for filling in range(2):  # measure, then copy
        if filling:
            staged = np.empty(starts[shape[2]], np.int64)
        n = 0
        for bucket in range(shape[0]):
            r = int64(heads[bucket])
            while r >= 0:
                length = measure_record(recs, r)
                if filling:
                    for j in range(length):
                        staged[starts[n] + j] = recs[r + j]
                n += 1
                starts[n] = starts[n - 1] + length
                r = get_next(recs, r)
    return staged, starts


@compiled
def scramble(key: int) -> int:
    """Return a hash of at least 0 whose low bits depend on the whole key."""
    key = (key ^ (key >> 32)) * 0x2545F4914F6CDD1D
    key = (key ^ ((key >> 29) & 0x7FFFFFFFF)) * 0x369DEA0F31A53F85
    return (key >> 20) & 0xFFFFFFFFFFF


@compiled
def find_bucket(shape: Array, key: int) -> int:
    """Return the bucket of a key: of the doubled size if that bucket is already open."""
    number = scramble(key)
    bucket = number & (2 * shape[1] - 1)
    return bucket if bucket < shape[0] else number & (shape[1] - 1)


@compiled
def open_bucket(heads: Array, shape: Array) -> int:
    """Open one more bucket, empty; return the one whose entries it shares from now on."""
    if shape[0] == 2 * shape[1]:
        shape[1] *= 2
    heads[shape[0]] = -1
    shape[0] += 1
    return shape[0] - 1 - shape[1]


@compiled
def find_record(recs: Array, heads: Array, shape: Array, id: int) -> int:
    """Return where the record with this id stands, or -1."""
    r = int64(heads[find_bucket(shape, id)])
    while r >= 0 and recs[r] != id:
        r = get_next(recs, r)
    return r


@compiled
def find_known(recs: Array, heads: Array, shape: Array, ids: Array) -> Array:
    """Return which of the ids have a record."""
    known = np.empty(ids.size, np.bool_)
    for i in range(ids.size):
        known[i] = find_record(recs, heads, shape, ids[i]) >= 0
    return known


@compiled
def link_record(recs: Array, heads: Array, shape: Array, r: int) -> None:
    """Enter a record whose id is not yet in the table; `heads` must have room for one more bucket.

    Afterwards, if entries outnumber buckets, one bucket is opened and shares the entries of
    another.
    """
    bucket = find_bucket(shape, recs[r])
    set_next(recs, r, int64(heads[bucket]))
    heads[bucket] = r
    shape[2] += 1
    if shape[2] > shape[0]:
        old = open_bucket(heads, shape)
        entry = int64(heads[old])
        heads[old] = -1
        while entry >= 0:
            following = get_next(recs, entry)
            bucket = find_bucket(shape, recs[entry])
            set_next(recs, entry, int64(heads[bucket]))
            heads[bucket] = entry
            entry = following


@compiled
def unlink_record(recs: Array, heads: Array, shape: Array, r: int) -> None:
    """Remove a record from the table; it must be there. Buckets are never closed again."""
    bucket = find_bucket(shape, recs[r])
    following = get_next(recs, r)
    shape[2] -= 1
    entry = int64(heads[bucket])
    if entry == r:
        heads[bucket] = following
        return
    while get_next(recs, entry) != r:
        entry = get_next(recs, entry)
    set_next(recs, entry, following)


# Batches of subscriptions -------------------------------------------------------------------
#
# From the protocol's objects, or from columns whose rows were decoded and checked before.


@dataclass(frozen=True)
class SubscriptionBatch:
    """Subscriptions: one row each, their predicates, and the numbers of patterns and rules."""

    subs: NDArray[np.void]
    preds: NDArray[np.void]
    code: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.subs)


def sign_id(id: int) -> int:
    """Return a 64-bit id as the signed number that arrays hold."""
    if not 0 <= id < 1 << 64:
        raise ValueError(f"id {id} is not in 0..2**64 - 1")
    return id - (1 << 64) if id >> 63 else id


def pack_subscriptions(pairs: Iterable[tuple[int, SubscriptionVector]]) -> SubscriptionBatch:
    """Return the batch of (id, subscription) pairs."""
    subs: list[tuple[int, ...]] = []
    preds: list[tuple[int, ...]] = []
    code: list[int] = []
    for id, s in pairs:
        base = s.event * EVENT_ATTRIBUTES
        until, gone = map(decode_duration, s.recent) if s.recent else (0, 0)
        rules = len(s.consequents[0]) if s.consequents else 0
        subs.append(
            (sign_id(id), until, gone, len(s.predicates), s.aggregator, s.threshold, s.certain,
             len(s.pattern), rules)
        )  # fmt: skip
        for p in s.predicates:
            preds.append(
                (base + p.attribute, p.low, p.high, p.left, p.right, p.hedge, p.negated, p.wide,
                 p.possible, p.certain, p.weight)
            )  # fmt: skip
        code.extend(s.pattern)
        for rule in s.consequents or ():
            code.extend(rule)
    return SubscriptionBatch(
        np.array(subs, SUBSCRIPTION), np.array(preds, PREDICATE), np.array(code, np.int16)
    )
