"""What the server says of itself: counts, and the `$SYS` topics under which brokers state them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from denwatch.node.mqtt.exchange import Exchange

COUNTS = (
    "connects",
    "connects_refused",
    "takeovers",
    "timeouts",  # no CONNECT, silence beyond the keep-alive, a reader that stopped
    "malformed",
    "messages_received",
    "messages_sent",
    "refused",  # publishes and subscriptions
    "held",  # publishes that had to wait
    "slow",  # receivers that were sent away
    "dropped_qos0",
    "sessions_expired",
)

_ROOT = "$SYS/broker/"


def describe_server(
    counts: dict[str, int], links: int, exchange: Exchange
) -> Iterator[tuple[str, int]]:
    """Yield topics and numbers; the names are Mosquitto's where it has one."""
    yield _ROOT + "clients/connected", sum(1 for s in exchange.sessions.values() if s.link)
    yield _ROOT + "clients/total", len(exchange.sessions)
    yield _ROOT + "connections", links
    yield _ROOT + "messages/received", counts["messages_received"]
    yield _ROOT + "messages/sent", counts["messages_sent"]
    yield _ROOT + "retained messages/count", exchange.retained.count
    yield _ROOT + "store/bytes", exchange.outbound.bytes
    for name in COUNTS:
        yield f"{_ROOT}counts/{name}", counts[name]
