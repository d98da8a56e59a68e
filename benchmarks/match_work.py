"""The work of the matching benchmark: subscriptions and notifications as columns.

Values, cores and slopes are uniform, so that no region of a domain is favoured. What decides how
much work a matcher has is how many masks there are and how many predicates hold; both are stated
in the results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from denwatch.node.matching.records import SubscriptionBatch
from denwatch.node.matching.search import NotificationBatch
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from numpy.typing import NDArray

from benchmarks.match_columns import (
    build_notification_batch,
    build_predicates,
    build_subscription_batch,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """What a workload looks like."""

    attributes: int
    masks: int
    narrowest: int = 1  # attributes of a mask
    widest: int = 4
    popular: float = 0.0  # Zipf exponent of attributes in masks and notifications; 0: all alike
    core: float = 2.0  # mean width of a core, in 1/255 of the domain
    steep: int = 170  # the lowest gamma code: 255 is crisp


FEW_MASKS = Shape(attributes=32, masks=300)
DENSE = Shape(attributes=32, masks=300, core=8.0, steep=120)
MANY_MASKS = Shape(attributes=32, masks=18_000)
A_TREE = Shape(attributes=122, masks=200_000, narrowest=2, widest=6, popular=0.6)


def draw_masks(rng: np.random.Generator, shape: Shape) -> list[Ints]:
    """Return distinct masks, as rising attributes."""
    share = 1 / np.arange(1, shape.attributes + 1) ** shape.popular
    share /= share.sum()
    masks: dict[tuple[int, ...], Ints] = {}
    while len(masks) < shape.masks:
        width = int(rng.integers(shape.narrowest, shape.widest + 1))
        mask = np.sort(rng.choice(shape.attributes, width, replace=False, p=share))
        masks.setdefault(tuple(mask.tolist()), mask)
    return list(masks.values())


def draw_subscriptions(
    rng: np.random.Generator, shape: Shape, masks: list[Ints], count: int, first: int = 0
) -> SubscriptionBatch:
    """Return subscriptions whose masks follow Zipf's law; ids count from `first`."""
    share = 1 / np.arange(1, len(masks) + 1)
    chosen = rng.choice(len(masks), count, p=share / share.sum())
    widths = np.array([len(mask) for mask in masks])
    table = np.zeros((len(masks), shape.widest), np.int64)
    for row, mask in zip(table, masks, strict=True):
        row[: len(mask)] = mask
    counts = widths[chosen]
    owner = np.repeat(np.arange(count), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    low = rng.integers(0, 256, len(owner))
    high = np.minimum(255, low + rng.geometric(1 / (shape.core + 1), len(owner)) - 1)
    gamma = rng.integers(shape.steep, 256, len(owner))
    preds = build_predicates(table[chosen[owner], place], low, high, left=gamma)
    thresholds = rng.integers(100, 230, count)
    return build_subscription_batch(
        np.arange(first, first + count), counts, preds, threshold=thresholds
    )


def draw_notifications(
    rng: np.random.Generator, shape: Shape, count: int, fewest: int, most: int
) -> list[NotificationBatch]:
    """Return notifications of exact values that carry `fewest` to `most` attributes."""
    share = 1 / np.arange(1, shape.attributes + 1) ** shape.popular
    share /= share.sum()
    notes = []
    for _ in range(count):
        carried = int(rng.integers(fewest, most + 1))
        names = np.sort(rng.choice(shape.attributes, carried, replace=False, p=share))
        notes.append(build_notification_batch([0, carried], names, rng.integers(0, 256, carried)))
    return notes


def list_objects(batch: SubscriptionBatch, event: int) -> list[SubscriptionVector]:
    """Return a batch of at most sixteen attributes as the protocol's objects."""
    rows = iter(batch.preds.tolist())
    subscriptions = []
    for sub in batch.subs:
        predicates = []
        for _ in range(int(sub["count"])):
            attribute, low, high, left, right, *_ = next(rows)
            predicates.append(Predicate(attribute, low, high, left, right))
        subscriptions.append(SubscriptionVector(event, predicates, threshold=int(sub["threshold"])))
    return subscriptions


def make_notification(readings: NotificationBatch, event: int) -> NotificationVector:
    """Return one notification of at most sixteen attributes as the protocol's object."""
    rows = zip(readings.attributes.tolist(), readings.points.tolist(), strict=True)
    return NotificationVector(event, [Reading(name, tuple(points)) for name, points in rows])
