"""Overload: which notifications a full node gives up, last resort: lowest degree times freshness.

Never the oldest as such. What nobody is known to want goes first, then what matches least and has
the least of its life left.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from denwatch.node.core.items import Dot, read_dot
from denwatch.node.core.subscribers.tables import Table, Want, decode_want
from denwatch.node.core.transaction import Transaction

_LIFE = 7 * 86_400_000  # ms: of what never expires


def rate_freshness(want: Want, now: int) -> float:
    """Return how much of its life a notification has left, 0..1."""
    life = (want.expires - want.at) if want.expires else _LIFE
    left = life - (now - want.latest)
    return min(1.0, max(0.0, left / life)) if life > 0 else 0.0


def choose_victims(
    table: Table, transaction: Transaction, count: int, find_degree: Callable[[Want], int]
) -> list[tuple[Dot, int]]:
    """Return so many notifications that are worth least, with their degrees, least first."""

    def rate(row: tuple[bytes, bytes]) -> tuple[float, float, bytes]:
        want = decode_want(row[1])
        freshness = rate_freshness(want, transaction.now)
        return find_degree(want) * freshness, freshness, row[0]

    worst = heapq.nsmallest(count, map(rate, table.scan(transaction)))
    victims = []
    for _, _, key in worst:
        row = table.get(transaction, key)
        assert row is not None, "a row that was there a moment ago"
        victims.append((read_dot(key), find_degree(decode_want(row))))
    return victims
