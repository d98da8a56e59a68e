"""Baselines: the same answer without an index, to compare with and to check against.

`PlainMatcher` asks `protocol.matching.match` about every subscription: slow, complete, obviously
right. The two scans hold the triples of many subscriptions (min, 8-bit, no patterns) in columns
and look at all of them for every notification of exact values: what one would write with numba or
numpy before thinking of an index. They are compiled, typed and contiguous: honest competitors.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import Array, compiled, int64
from denwatch.node.matching.evaluation import SLOPE
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.matching.records import SubscriptionBatch
from denwatch.protocol.degrees import MIN
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector
from numpy.typing import NDArray


class PlainMatcher:
    """A dictionary of subscriptions, each held against every notification."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, SubscriptionVector] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        self._subscriptions[id] = subscription

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        del self._subscriptions[id]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id; `age` is the notification's, in seconds."""
        hits = []
        for id, s in sorted(self._subscriptions.items()):
            found = match(s, notification, age)
            if found is not None and found.matched:
                attribute = s.predicates[found.predicate].attribute
                hits.append(SubscriptionMatch(id, found.possible, found.certain, attribute))
        return hits


@compiled
def scan_triples(
    ids: Array, starts: Array, words: Array, thresholds: Array, values: Array
) -> tuple[Array, Array, Array]:
    """Return (ids, degrees, attributes) of the hits; a value of -1 stands for a missing reading.

    A subscription is left at its first predicate that falls below the threshold.
    """
    hits = np.empty(ids.size, np.int64)
    degrees = np.empty(ids.size, np.uint8)
    blames = np.empty(ids.size, np.int32)
    size = 0
    for i in range(ids.size):
        threshold = int64(thresholds[i])
        least = int64(256)
        blame = int64(0)
        p = starts[i]
        stop = starts[i + 1]
        while p < stop:
            word = words[p]
            attribute = word >> 32
            x = int64(values[attribute])
            before = (word & 255) - x
            after = x - ((word >> 8) & 255)
            code = (word >> 16) & 255 if before > 0 else (word >> 24) & 255
            degree = max(255 - ((max(before, after, 0) * SLOPE[code] + 128) >> 8), 0)
            if degree < least:
                least = degree
                blame = attribute
            if degree < threshold or x < 0:
                break
            p += 1
        if p == stop:
            hits[size] = ids[i]
            degrees[size] = least
            blames[size] = blame
            size += 1
    return hits[:size], degrees[:size], blames[:size]


class TripleScan:
    """The triples of a batch in columns, and the two scans over them."""

    def __init__(self, batch: SubscriptionBatch, attributes: int) -> None:
        plain = (batch.subs["aggregator"] == MIN).all() and not len(batch.code)
        for name in ("hedge", "negated", "wide", "possible", "certain"):
            plain = plain and not batch.preds[name].any()
        if not plain or batch.subs["gone"].any():
            raise ValueError("a scan of triples knows the min of 8-bit predicates only")
        self.attributes = attributes
        self.ids = np.ascontiguousarray(batch.subs["id"])
        self.starts = np.concatenate(([0], np.cumsum(batch.subs["count"], dtype=np.int64)))
        self.attribute = batch.preds["attribute"].astype(np.int32)
        self.low, self.high = (batch.preds[name].astype(np.uint8) for name in ("low", "high"))
        self.left, self.right = (batch.preds[name].copy() for name in ("left", "right"))
        self.threshold = np.maximum(batch.subs["threshold"], batch.subs["certain"])
        # One word a predicate: the compiled scan is several times faster over it than over columns.
        self.words = self.attribute.astype(np.int64) << 32
        for shift, part in enumerate((self.low, self.high, self.left, self.right)):
            self.words |= part.astype(np.int64) << (8 * shift)

    def spread(self, attributes: NDArray[np.int32], values: NDArray[np.int32]) -> Array:
        """Return exact values by attribute, -1 where there is none."""
        table = np.full(self.attributes, -1, np.int32)
        table[attributes] = values
        return table

    def scan(self, table: Array) -> tuple[Array, Array, Array]:
        """Return (ids, degrees, attributes) of the hits by the compiled scan."""
        found: tuple[Array, Array, Array] = scan_triples(
            self.ids, self.starts, self.words, self.threshold, table
        )  # fmt: skip
        return found

    def scan_numpy(self, table: Array) -> tuple[Array, Array, Array]:
        """Return the same by numpy: all degrees, then the lowest of each subscription."""
        x = table[self.attribute]
        before = self.low.astype(np.int32) - x
        after = x - self.high
        lost = np.where(before > 0, before * SLOPE[self.left], 0)
        lost += np.where(after > 0, after * SLOPE[self.right], 0)
        degree = np.maximum(255 - ((lost + 128) >> 8), 0)
        degree[x < 0] = -1
        least = np.minimum.reduceat(degree, self.starts[:-1])
        hits = np.flatnonzero((least >= self.threshold) & (least >= 0))
        blames = np.empty(len(hits), np.int32)
        for k, i in enumerate(hits):
            start = self.starts[i]
            blames[k] = self.attribute[start + np.argmin(degree[start : self.starts[i + 1]])]
        return self.ids[hits], least[hits].astype(np.uint8), blames
