"""What real clients do to a server besides publishing: many links, many filters, much at once.

Idle links, one SUBSCRIBE with hundreds of filters, a payload of megabytes, and a reader that does
not read while others do. The same for the node and for Mosquitto, with the raw client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.common import percentile
from benchmarks.node_client import Client, Login, Publisher, connect, wait_until
from benchmarks.node_servers import MeasuredServer

FILTERS = 500
LARGE = 10_000_000  # bytes
_AT_ONCE = 50  # links that are opened together
_SHARED = "bench/crowd/"
_RATE = 300.0  # messages/s
_SIZE = 2_000  # bytes of each: a reader that stalls has its socket full after a second
_WINDOW = 10


@dataclass(frozen=True)
class Crowd:
    """What one server did."""

    links: int
    links_s: float  # until all were connected
    kb_per_link: float
    filters_ms: float  # from SUBSCRIBE to SUBACK
    large_ms: float  # from the first byte sent to the last received
    delay_ms: float  # of a message, p50
    stalled_delay_ms: float  # the same while another receiver does not read

    @property
    def delay_ratio(self) -> float:
        """By how much a reader that stalls delays others."""
        return self.stalled_delay_ms / self.delay_ms


async def measure_crowd(
    server: MeasuredServer, make_login: Callable[[str], Login], links: int, seconds: float
) -> Crowd:
    """Do all of it to one server; `make_login` makes one with a client id."""
    port = server.port
    before = server.read_memory()
    began = time.perf_counter()
    idle: list[Client] = []
    for first in range(0, links, _AT_ONCE):
        names = [f"crowd-{number}" for number in range(first, min(first + _AT_ONCE, links))]
        idle += await asyncio.gather(*(connect(port, make_login(name)) for name in names))
    elapsed = time.perf_counter() - began
    kb = (server.read_memory() - before) * 1024 / links
    for client in idle:
        client.transport.close()
    filters = await _measure_filters(port, make_login)
    large = await _measure_large(port, make_login)
    count = int(seconds * _RATE)
    alone = await _measure_delay(port, make_login, count)
    stalled = await connect(port, make_login("crowd-stalled"), [_SHARED + "delay"])
    stalled.transport.pause_reading()
    beside = await _measure_delay(port, make_login, count)
    stalled.transport.abort()
    return Crowd(links, elapsed, kb, filters, large, alone, beside)


async def _measure_filters(port: int, make_login: Callable[[str], Login]) -> float:
    client = await connect(port, make_login("crowd-filters"))
    began = time.perf_counter()
    await client.subscribe([f"{_SHARED}{number}/state" for number in range(FILTERS)])
    elapsed = time.perf_counter() - began
    client.transport.close()
    return 1000 * elapsed


async def _measure_large(port: int, make_login: Callable[[str], Login]) -> float:
    topic = _SHARED + "large"
    receiver = await connect(port, make_login("crowd-receiver"), [topic])
    sender = await connect(port, make_login("crowd-sender"))
    publisher = Publisher(sender, topic, [bytes(LARGE)], 1)
    began = time.perf_counter()
    publisher.go_on()
    await wait_until(lambda: receiver.received == 1, lambda: receiver.received)
    elapsed = time.perf_counter() - began
    for client in (sender, receiver):
        client.transport.close()
    return 1000 * elapsed


async def _measure_delay(port: int, make_login: Callable[[str], Login], count: int) -> float:
    """Return the median delay from one client to another, in ms, at an even rate."""
    topic = _SHARED + "delay"
    came: list[float] = []
    receiver = await connect(
        port,
        make_login("crowd-reader"),
        [topic],
        on_note=lambda _: came.append(time.perf_counter()),
    )
    sender = await connect(port, make_login("crowd-writer"))
    publisher = Publisher(sender, topic, [bytes(_SIZE)] * count, _WINDOW)
    await publisher.run_paced(_RATE)
    await wait_until(lambda: len(came) >= count, lambda: len(came))
    for client in (sender, receiver):
        client.transport.close()
    delays = [read - sent for read, sent in zip(came, publisher.sent_at, strict=True)]
    return 1000 * percentile(delays, 0.5)
