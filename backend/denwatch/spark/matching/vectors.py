"""Many vectors at once: the bytes of a column to the arrays that the index takes.

Every notification vector and every plain subscription vector is read by a kernel. What a kernel
cannot read goes to the protocol's own decoder, which knows the rest, or says which byte is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from denwatch.node.matching.batch import NotificationBatch, SubscriptionBatch, pack_subscriptions
from denwatch.node.matching.records import PREDICATE, SUBSCRIPTION
from denwatch.protocol import notification, subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.spark.matching.kernels import count_readings, read_notes, read_subscriptions
from numpy.typing import NDArray


def view_bytes(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of a binary column and where each value ends; a null has none."""
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
    """Return the readings of a column of notification vectors, and which of them can be read.

    One that cannot has no readings, so it matches nothing; `explain_note` says what is wrong.
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


def explain_note(vector: bytes) -> str | None:
    """Return why a notification vector cannot be read; None if it can."""
    try:
        notification.decode(vector)
    except ProtocolError as error:
        return str(error)
    return None


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
