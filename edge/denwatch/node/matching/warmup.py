"""Compile ahead: every kernel of the index, from the cache on disk or anew, before work arrives.

A node calls this when it starts, a Spark worker before it forks; otherwise the first notification
waits for the compiler.
"""

from __future__ import annotations

from denwatch.node.matching.batch import pack_subscriptions
from denwatch.node.matching.index import PACKED_LIMIT, FuzzyIndex
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector


def warm_up() -> None:
    """Run every kernel once, on a few hundred subscriptions."""
    index = FuzzyIndex()
    subscription = SubscriptionVector(0, [Predicate(0, 10, 20, 100)])
    count = 2 * PACKED_LIMIT  # one by one: packed, then two blocks that merge
    for id in range(count):
        index.add(id, subscription)
    for _ in range(2):  # new ones, then known ones
        pairs = [(id, subscription) for id in range(count, count + 200)]
        index.add_batch(pack_subscriptions(pairs))
    index.remove(0)
    index.add(0, SubscriptionVector(0, [Predicate(0, 10, 20, 100)], 3))
    index.compact()
    index.match(NotificationVector(0, [Reading(0, (5, 10, 10, 15))]))
