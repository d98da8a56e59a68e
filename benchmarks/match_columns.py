"""Batches for the index from columns of numbers, checked by the protocol's rules."""

from __future__ import annotations

import numpy as np
from denwatch.node.matching.records import (
    ATTRIBUTES,
    MAX_PREDICATES,
    PREDICATE,
    SUBSCRIPTION,
    SubscriptionBatch,
)
from denwatch.node.matching.search import NotificationBatch
from denwatch.protocol.degrees import MAX, SUGENO, WEIGHTED
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import MAX_RULE_PREDICATES, check_pattern
from numpy.typing import ArrayLike, NDArray


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
