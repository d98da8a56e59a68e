"""The compiled parts of global matching: decoding vectors, and keeping the matches in force.

The layout of vectors is the protocol's; tests compare every kernel with the protocol's decoder.
What a kernel cannot read goes to that decoder, which knows the rest or names the wrong byte. This
file imports nothing that starts threads: workers are forked after it is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from denwatch.node.matching.compiling import Array, compiled, count_trailing_zeros, int64, prefetch
from denwatch.node.matching.records import (
    PREDICATE,
    SUBSCRIPTION,
    SubscriptionBatch,
    pack_subscriptions,
)
from denwatch.node.matching.search import NotificationBatch
from denwatch.protocol import notification, subscription
from denwatch.protocol.degrees import HARMONIC
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import LAST_AGE, LAST_DURATION
from numpy.typing import NDArray

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)


_NOTE, _SUBSCRIPTION = notification.TYPE, subscription.TYPE
_MAX_NOTE, _HEAD = notification.MAX_LENGTH, 8
_WHY, _UNCERTAIN, _WIDE, _FAULTS, _OLDS = 1, 2, 4, 8, 16  # a notification's flags
_AHEAD = 16  # matches, from prefetching a row to using it


@compiled
def count_bits(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled
def read_pair(data: Array, at: int) -> int:
    """Return two bytes, the higher first."""
    return int64(data[at]) << 8 | int64(data[at + 1])


@compiled
def count_readings(data: Array, ends: Array, counts: Array) -> int:
    """Write how many readings each vector announces, -1 for a wrong head; return the sum.

    Kernel: looks at the eight bytes of each head only, so that arrays can be allocated once.
    """
    total = 0
    for n in range(ends.size - 1):
        start = int64(ends[n])
        length = int64(ends[n + 1]) - start
        counts[n] = -1
        if length < _HEAD or length > _MAX_NOTE:
            continue
        if data[start] & 0xC0 != _NOTE or data[start + 1] & 0xE0:
            continue
        counts[n] = count_bits(read_pair(data, start + 6))
        total += counts[n]
    return total


@compiled
def read_notes(
    data: Array, ends: Array, counts: Array, starts: Array, attributes: Array, points: Array,
    wides: Array,
) -> None:  # fmt: skip
    """Write the new readings of all vectors; a wrong vector gets none and the count -1.

    Old readings are checked and passed over: `job.match_content` serves who asks for them.

    Kernel: one pass over all bytes. `size` is the next free reading; when a vector turns out to be
    wrong, it falls back to where the vector began, so nothing of it remains.
    """
    size = 0
    for n in range(ends.size - 1):
        starts[n] = size
        if counts[n] < 0:
            continue
        at = int64(ends[n])
        stop = int64(ends[n + 1])
        base = int64(data[at] & 63) * 16
        flags = int64(data[at + 1])
        features = read_pair(data, at + 6)
        right = read_pair(data, at + 4) <= LAST_AGE and (features or flags & _FAULTS)
        at += _HEAD
        uncertain = int64(0)
        wide = int64(0)
        olds = int64(0)
        for flag in (_UNCERTAIN, _WIDE, _FAULTS, _OLDS):
            if flags & flag:
                mask = read_pair(data, at) if at + 2 <= stop else 0
                at += 2
                allowed = 0xFFFF & ~features if flag == _FAULTS else features
                right = right and mask and not mask & ~allowed
                if flag == _UNCERTAIN:
                    uncertain = mask
                elif flag == _WIDE:
                    wide = mask
                elif flag == _OLDS:
                    olds = mask
                    right = right and (olds != features or flags & _FAULTS)
        first = size
        left = features
        while left:  # only set bits: a test of all sixteen is predicted wrongly every other time
            bit = count_trailing_zeros(left)
            left &= left - 1
            many = 4 if uncertain >> bit & 1 else 1
            step = 2 if wide >> bit & 1 else 1
            if not right or at + many * step > stop:
                right = False
                break
            attributes[size] = base + bit
            wides[size] = step - 1
            for i in range(many):
                value = read_pair(data, at) if step == 2 else int64(data[at])
                at += step
                for j in range(i, 4 if i == many - 1 else i + 1):
                    points[size, j] = value
                if i and value < points[size, i - 1]:
                    right = False
            if many == 4 and points[size, 0] == points[size, 3]:
                right = False
            size += 1 - (olds >> bit & 1)
        while olds:
            olds &= olds - 1
            right = right and at < stop and 0 < data[at] <= LAST_DURATION
            at += 1
        if flags & _WHY:
            right = right and at + 2 <= stop and data[at] <= 15
            at += 2
        if not right or at != stop:
            size = first
            counts[n] = -1
    starts[ends.size - 1] = size


@compiled
def read_subscriptions(data: Array, ends: Array, subs: Array, preds: Array, plain: Array) -> int:
    """Write the rows and predicates of the plain vectors; return the number of predicates.

    Kernel: like `read_notes`, it takes back the predicates of a vector that turns out not to be
    plain; those vectors go to the protocol's decoder.
    """
    size = 0
    for n in range(ends.size - 1):
        start = int64(ends[n])
        length = int64(ends[n + 1]) - start
        plain[n] = False
        if length < _HEAD + 3 or data[start] & 0xC0 != _SUBSCRIPTION or data[start + 1] & 8:
            continue
        features = read_pair(data, start + 6)
        count = count_bits(features)
        negated = int64(data[start + 1] >> 4)
        kind = data[start + 1] & 7
        if length != _HEAD + 3 * count or kind > HARMONIC or data[start + 5] > LAST_DURATION:
            continue
        if negated >> min(count, 4):
            continue
        at = start + _HEAD
        first = size
        rising = True
        for bit in range(16):
            if features >> bit & 1:
                preds[size].attribute = int64(data[start] & 63) * 16 + bit
                preds[size].low = data[at]
                preds[size].high = data[at + 1]
                preds[size].left = data[at + 2]
                preds[size].right = data[at + 2]
                place = size - first
                preds[size].negated = negated >> place & 1 if place < 4 else 0
                rising = rising and data[at] <= data[at + 1]
                at += 3
                size += 1
        if not rising:
            size = first
            continue
        plain[n] = True
        subs[n].count = count
        subs[n].aggregator = kind
        subs[n].threshold = data[start + 4]
    return size


@compiled
def keep_hits(
    starts: Array, numbers: Array, possible: Array, certain: Array, attributes: Array,
    notification_ids: Array, at: Array, doubt: Array, words: Array, rows: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Return (note, subscription, subscriber, degrees) of the matches in force.

    Kernel: filters the index's matches by time and vocabulary, with rows prefetched. A row has a
    subscription's id, begin, end, subscriber and, as bits, the vocabularies that it agrees with;
    `words` has the bit of each notification's vocabulary. A subscription is in force if
    begins - doubt <= at < ends.
    """
    size = numbers.size
    places = rows.ravel()
    notes = np.empty(size, np.int64)
    ids = np.empty(size, np.int64)
    subscribers = np.empty(size, np.int32)
    degrees = np.empty((3, size), np.int16)
    kept = 0
    for n in range(starts.size - 1):
        time = at[n]
        latest = time + doubt[n]
        word = words[n]
        for hit in range(starts[n], starts[n + 1]):
            if hit + _AHEAD < size:
                prefetch(places, int64(numbers[hit + _AHEAD]) * rows.shape[1])
            row = int64(numbers[hit])
            if rows[row, 1] <= latest and time < rows[row, 2] and rows[row, 4] & word:
                notes[kept] = notification_ids[n]
                ids[kept] = rows[row, 0]
                subscribers[kept] = rows[row, 3]
                degrees[0, kept] = possible[hit]
                degrees[1, kept] = certain[hit]
                degrees[2, kept] = attributes[hit] & 15
                kept += 1
    return notes[:kept], ids[:kept], subscribers[:kept], degrees[:, :kept]


# Columns of vectors ---------------------------------------------------------------------


def view_bytes(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of a binary column and where each value ends; a null is empty."""
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, ends, data = column.buffers()
    if ends is None:
        return np.zeros(1, np.uint8), np.zeros(1, np.int64)
    # A copy that can be written to: to the compiler, Arrow's own memory is another type.
    places = np.frombuffer(ends, kind)[column.offset : column.offset + len(column) + 1]
    where = places.astype(np.int64)
    if data is None or not data.size:
        return np.zeros(1, np.uint8), where
    return np.frombuffer(data, np.uint8)[: where[-1]].copy(), where


def decode_notes(column: pa.Array) -> tuple[NotificationBatch, NDArray[np.bool_]]:
    """Return the readings of a column of notification vectors, and which vectors are readable.

    An unreadable one has no readings, so it matches nothing; the protocol's decoder says why.
    """
    data, ends = view_bytes(column)
    size = len(column)
    counts = np.empty(size, np.int64)
    total = int(count_readings(data, ends, counts))
    starts = np.zeros(size + 1, np.int64)
    attributes = np.empty(total, np.int32)
    points = np.empty((total, 4), np.int32)
    wides = np.empty(total, np.uint8)
    read_notes(data, ends, counts, starts, attributes, points, wides)
    used = int(starts[-1])
    ages = np.zeros(size, np.int64)  # a notification matches as it was when it was read
    readings = NotificationBatch(starts, attributes[:used], points[:used], wides[:used], ages)
    return readings, counts >= 0


def find_restricted(column: pa.Array) -> NDArray[np.int64]:
    """Return the rows of the vectors that have restrictors, by their flags."""
    data, ends = view_bytes(column)
    rows = np.flatnonzero(np.diff(ends) > _HEAD + 1)
    at = ends[rows]
    flags = data[at + 1] & 8 != 0, data[at + 8] & subscription.MORE != 0
    return rows[flags[0] & flags[1] & (data[at + 9] & subscription.RESTRICTORS != 0)]


def decode_subscriptions(column: pa.Array) -> tuple[SubscriptionBatch, dict[int, str]]:
    """Return a column of subscription vectors as a batch, numbered by row, and why rows fail."""
    data, ends = view_bytes(column)
    subs = np.zeros(len(column), SUBSCRIPTION)
    subs["id"] = np.arange(len(column))
    preds = np.zeros(len(data) // 3 + 1, PREDICATE)
    preds["weight"] = 1
    plain = np.zeros(len(column), np.bool_)
    used = int(read_subscriptions(data, ends, subs, preds, plain))
    errors: dict[int, str] = {}
    pairs: list[tuple[int, Any]] = []
    for row in np.flatnonzero(~plain).tolist():
        try:
            pairs.append((row, subscription.decode(column[row].as_py() or b"")))
        except ProtocolError as error:
            errors[row] = str(error)
    rest = pack_subscriptions(pairs)
    return (
        SubscriptionBatch(
            np.concatenate((subs[plain], rest.subs)),
            np.concatenate((preds[:used], rest.preds)),
            rest.code,
        ),
        errors,
    )
