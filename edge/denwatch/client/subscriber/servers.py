"""The nodes that an app may use: their addresses, when to try each, and which one is best.

No I/O, no clock; the random source is an argument. The choice among several nodes in range is
PrefSIENA's (section 3.3): the one to which our subscriptions add the fewest new roots, then the
one with the smallest graph.
"""

from __future__ import annotations

import ipaddress
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from denwatch.client.subscriber.errors import SubscriberError
from denwatch.node.ranking.forwarder import ServerOffer, choose_server

PORTS = {"mqtt": 1883, "mqtts": 8883}
UNKNOWN = 1 << 62  # a node that does not say what we would add to it is taken after all that do


@dataclass(frozen=True)
class Server:
    """Where a node listens."""

    url: str
    host: str
    port: int
    is_tls: bool

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, so that nothing goes over a wire."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_server(text: str) -> Server:
    """Return the server of mqtt://host[:port] or mqtts://host[:port]."""
    try:
        parts = urlsplit(text if "://" in text else f"mqtt://{text}")
        port = parts.port
    except ValueError as error:
        raise SubscriberError(f"{text!r} is no address of a node: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise SubscriberError(f"{text!r} is no address of a node: mqtt://HOST or mqtts://HOST")
    if parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
        raise SubscriberError(f"{text!r}: only host and port; names and passwords go elsewhere")
    port = port or PORTS[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}:{port}"
    return Server(url, parts.hostname, port, parts.scheme == "mqtts")


@dataclass(frozen=True)
class BackOff:
    """How long to leave a node alone that failed: doubling, and never two apps in step."""

    first: int = 500  # ms
    longest: int = 60_000

    def draw_delay(self, failures: int, rng: random.Random) -> int:
        """Return the ms to wait after so many failures in a row."""
        ceiling = min(self.longest, self.first * 2 ** min(failures - 1, 30))
        return int(ceiling * (0.5 + rng.random() / 2))


@dataclass
class _Record:
    failures: int = 0
    not_before: int = 0
    reason: str = ""


class Servers:
    """Keeps what was learnt about each server, and says which to try."""

    def __init__(self, servers: Iterable[Server], back_off: BackOff, rng: random.Random) -> None:
        self._records = {server: _Record() for server in servers}
        if not self._records:
            raise SubscriberError("no node is named: give at least one address")
        self._back_off = back_off
        self._rng = rng

    def list_due(self, now: int) -> list[Server]:
        """Return the servers that may be tried now, in the order in which they were named."""
        return [server for server, r in self._records.items() if r.not_before <= now]

    def find_next_time(self) -> int:
        """Return when the first of them may be tried."""
        return min(record.not_before for record in self._records.values())

    def note_failure(self, server: Server, now: int, reason: str) -> int:
        """Note that a server could not be used; return when it may be tried again."""
        record = self._records.get(server)
        if record is None:  # no longer among ours
            return now
        record.failures += 1
        record.not_before = now + self._back_off.draw_delay(record.failures, self._rng)
        record.reason = reason
        return record.not_before

    def note_success(self, server: Server) -> None:
        """Note that a server serves us."""
        if server in self._records:
            self._records[server] = _Record()

    def replace(self, servers: Iterable[Server]) -> None:
        """Take other servers; what is known of those that stay is kept."""
        found = {server: self._records.get(server, _Record()) for server in servers}
        if not found:
            raise SubscriberError("no node is named: give at least one address")
        self._records = found

    def __contains__(self, server: Server) -> bool:
        return server in self._records


def read_offer(server: Server, fields: Mapping[str, object] | None) -> ServerOffer:
    """Return what a probed node offers; None stands for one that did not say."""
    roots, nodes = (_read_count(fields, key) for key in ("new_roots", "nodes"))
    return ServerOffer(roots, nodes, server.url)


def choose(offers: Mapping[Server, ServerOffer]) -> Server:
    """Return the server that the two criteria prefer."""
    best = choose_server(offers.values())
    return next(server for server, offer in offers.items() if offer is best)


def _read_count(fields: Mapping[str, object] | None, key: str) -> int:
    found = (fields or {}).get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return UNKNOWN
    return max(0, int(found))
