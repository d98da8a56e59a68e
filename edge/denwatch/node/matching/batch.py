"""Batches: many subscriptions or many notifications as a few arrays.

Arrays come from columns (a data frame, Arrow, a generator of work) or from the protocol's objects.
An attribute here is global: event * 16 + the attribute's bit within the event.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from denwatch.node.matching.records import ATTRIBUTES, MAX_PREDICATES, PREDICATE, SUBSCRIPTION
from denwatch.protocol.degrees import MAX, SUGENO, WEIGHTED
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import (
    MAX_RULE_PREDICATES,
    NotificationVector,
    SubscriptionVector,
    check_pattern,
)
from numpy.typing import ArrayLike, NDArray

EVENT_ATTRIBUTES = 16


@dataclass(frozen=True)
class SubscriptionBatch:
    """Subscriptions: one row each, their predicates, and the numbers of patterns and rules."""

    subs: NDArray[np.void]
    preds: NDArray[np.void]
    code: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.subs)


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


def sign_id(id: int) -> int:
    """Return a 64-bit id as the signed number that arrays hold."""
    if not 0 <= id < 1 << 64:
        raise ValueError(f"id {id} is not in 0..2**64 - 1")
    return id - (1 << 64) if id >> 63 else id


def build_subscription_batch(
    ids: ArrayLike, counts: ArrayLike, preds: NDArray[np.void], **columns: ArrayLike
) -> SubscriptionBatch:
    """Return the batch of subscriptions with `counts` predicates each.

    `preds` is an array of dtype PREDICATE; the columns are those of SUBSCRIPTION, broadcast:
    aggregator, threshold, certain, until, gone. Patterns and rules come from objects only.
    """
    numbers = np.asarray(ids, np.uint64)
    subs = np.zeros(len(numbers), SUBSCRIPTION)
    subs["id"] = numbers.view(np.int64)
    subs["count"] = counts
    subs["threshold"] = 128
    for name, column in columns.items():
        if name not in ("aggregator", "threshold", "certain", "until", "gone"):
            raise ValueError(f"a batch has no column {name!r}")
        subs[name] = column
    batch = SubscriptionBatch(subs, np.ascontiguousarray(preds, PREDICATE), np.zeros(0, np.int16))
    check_batch(batch)
    return batch


def build_predicates(
    attribute: ArrayLike, low: ArrayLike, high: ArrayLike, **columns: ArrayLike
) -> NDArray[np.void]:
    """Return predicates from columns: left, right, hedge, negated, wide, possible, certain, weight.

    Without left and right the sets are crisp; without right they are symmetric.
    """
    preds = np.zeros(len(np.asarray(attribute)), PREDICATE)
    preds["attribute"] = attribute
    preds["low"] = low
    preds["high"] = high
    preds["left"] = columns.pop("left", 255)
    preds["right"] = columns.pop("right", preds["left"])
    preds["weight"] = columns.pop("weight", 1)
    for name, column in columns.items():
        preds[name] = column
    return preds


def check_batch(batch: SubscriptionBatch) -> None:
    """Raise ProtocolError for a batch that breaks the protocol's rules."""
    subs, preds = batch.subs, batch.preds
    last = np.where(preds["wide"] != 0, 65535, 255)
    kind = subs["aggregator"]
    starts = np.cumsum(subs["count"], dtype=np.int64) - subs["count"]
    if int(subs["count"].sum(dtype=np.int64)) != len(preds):
        raise ProtocolError(f"{len(preds)} predicates, not {subs['count'].sum(dtype=np.int64)}")
    weighted = np.repeat(kind == WEIGHTED, subs["count"])
    rules = [
        (subs["count"] < 1, "no predicate"),
        (subs["count"] > MAX_PREDICATES, f"more than {MAX_PREDICATES} predicates"),
        (kind > SUGENO, "no such aggregator"),
        (
            (kind == SUGENO) != (subs["rules"] != 0),
            "rules without their aggregator, or without them",
        ),
        (
            (subs["rules"] != 0) & (subs["count"] > MAX_RULE_PREDICATES),
            "too many predicates for rules",
        ),
        ((subs["pattern"] != 0) & np.isin(kind, (MAX, WEIGHTED, SUGENO)), "a pattern there"),
        ((subs["gone"] != 0) & (subs["until"] >= subs["gone"]), "recent is not a rising pair"),
        ((subs["until"] < 0) | (subs["gone"] < 0), "recent is negative"),
    ]
    for broken, words in rules:
        if broken.any():
            raise ProtocolError(f"subscription {int(np.argmax(broken))} of the batch: {words}")
    limits = [
        (preds["attribute"] >= ATTRIBUTES, f"attribute not below {ATTRIBUTES}"),
        (preds["low"] > preds["high"], "low above high"),
        (preds["high"] > last, "high beyond the domain"),
        (preds["hedge"] > 15, "no such hedge"),
        ((preds["hedge"] != 0) & (preds["hedge"] & 3 == 0), "a second hedge without a first"),
        (preds["weight"] < 1, "a weight of 0"),
        (~weighted & (preds["weight"] != 1), "weights are for the weighted mean only"),
    ]
    for broken, words in limits:
        if broken.any():
            at = int(np.argmax(broken))
            owner = int(np.searchsorted(starts, at, "right")) - 1
            raise ProtocolError(f"subscription {owner} of the batch, predicate {at}: {words}")
    at = 0
    for i in np.flatnonzero((subs["pattern"] != 0) | (subs["rules"] != 0)):
        length, count = int(subs["pattern"][i]), int(subs["count"][i])
        if length:
            check_pattern(bytes(batch.code[at : at + length].astype(np.uint8)), count)
        at += length + int(subs["rules"][i]) * (count * (count - 1) // 2)
    if at != len(batch.code):
        raise ProtocolError(f"{len(batch.code)} numbers of code, not {at}")


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


def build_notification_batch(
    starts: ArrayLike,
    attributes: ArrayLike,
    points: ArrayLike,
    wides: ArrayLike | None = None,
    ages: ArrayLike | None = None,
) -> NotificationBatch:
    """Return notifications from columns; `points` is one value or four points a reading.

    Arrays that cannot be written to (Arrow's, or a mapped file's) are copied: to the compiler they
    are another type, and the search would be compiled a second time for them.
    """
    where = np.array(starts, np.int64)
    values = np.array(points, np.int32)
    if values.ndim == 1:
        values = np.repeat(values[:, None], 4, axis=1)
    names = np.array(attributes, np.int32)
    flags = np.zeros(len(names), np.uint8) if wides is None else np.array(wides, np.uint8)
    old = np.zeros(len(where) - 1, np.int64) if ages is None else np.array(ages, np.int64)
    if values.shape != (len(names), 4) or len(flags) != len(names) or len(old) != len(where) - 1:
        raise ValueError("columns of different lengths")
    if len(names):
        top = np.where(flags != 0, 65535, 255)
        if (values[:, 0] < 0).any() or (values[:, 3] > top).any() or (np.diff(values) < 0).any():
            raise ValueError("a reading has four rising points within its domain")
        if (
            names.min() < 0
            or where[0] != 0
            or where[-1] != len(names)
            or (np.diff(where) < 0).any()
        ):
            raise ValueError("negative attributes, or starts that do not rise from 0 to the end")
    return NotificationBatch(where, names, values, flags, old)


def pack_notifications(
    notifications: Sequence[NotificationVector], ages: Sequence[int]
) -> NotificationBatch:
    """Return the readings of notifications; `ages` are theirs, in seconds."""
    starts = array("q", (0,))
    rows = array("i")
    points = array("i")
    wides = bytearray()
    for n in notifications:
        base = n.event * EVENT_ATTRIBUTES
        for reading in n.readings:
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
