"""The servers (nodes) that an app may use: their addresses, when to try each, which is best.

No I/O, no clock; the random source is an argument. The choice among several nodes in range is
PrefSIENA's (section 3.3): the one to whose subscription graph ours would add the fewest new roots,
then the one with the smallest graph.
"""

from __future__ import annotations

import ipaddress
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from denwatch.client.subscriber.messages import SubscriberError

PORTS = {"mqtt": 1883, "mqtts": 8883}
UNKNOWN = 1 << 62  # a node that does not report its graph is chosen after all that do


@dataclass(frozen=True)
class NodeUrl:
    """The address at which a node listens."""

    url: str
    host: str
    port: int
    is_tls: bool

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, so that nothing is sent over a network."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_server(text: str) -> NodeUrl:
    """Return the server of mqtt://host[:port] or mqtts://host[:port]."""
    try:
        parts = urlsplit(text if "://" in text else f"mqtt://{text}")
        port = parts.port
    except ValueError as error:
        raise SubscriberError(f"{text!r} is not the address of a node: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise SubscriberError(f"{text!r} is not the address of a node: mqtt://HOST or mqtts://HOST")
    if parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
        raise SubscriberError(
            f"{text!r}: give only host and port; names and passwords are separate options"
        )
    port = port or PORTS[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}:{port}"
    return NodeUrl(url, parts.hostname, port, parts.scheme == "mqtts")


@dataclass(frozen=True)
class BackOff:
    """How long to wait after a failure: doubling, with jitter so that apps do not retry in step."""

    first: int = 500  # ms
    longest: int = 60_000

    def draw_delay(self, failures: int, rng: random.Random) -> int:
        """Return the ms to wait after so many failures in a row."""
        ceiling = min(self.longest, self.first * 2 ** min(failures - 1, 30))
        return int(ceiling * (0.5 + rng.random() / 2))


DENIED = "refused: wrong name or password"  # why a server does not let us in


@dataclass
class _Record:
    failures: int = 0
    not_before: int = 0
    is_denied: bool = False


class ServerList:
    """The servers with their recent failures; says which to try and when."""

    def __init__(self, servers: Iterable[NodeUrl], back_off: BackOff, rng: random.Random) -> None:
        self._records: dict[NodeUrl, _Record] = {}
        self.replace(servers)
        self._back_off = back_off
        self._rng = rng

    def list_due(self, now: int) -> list[NodeUrl]:
        """Return the servers that may be tried now, in the order in which they were named."""
        return [server for server, r in self._records.items() if r.not_before <= now]

    def find_next_time(self) -> int:
        """Return when the first of them may be tried."""
        return min(record.not_before for record in self._records.values())

    @property
    def is_denied(self) -> bool:
        """Whether every server refused our name or password when it was last tried."""
        return all(record.is_denied for record in self._records.values())

    def record_failure(self, server: NodeUrl, now: int, reason: str) -> None:
        """Record that a server could not be used: it is left alone for a while."""
        record = self._records.get(server)
        if record is not None:  # it may no longer be in the list
            record.failures += 1
            record.is_denied = reason == DENIED
            record.not_before = now + self._back_off.draw_delay(record.failures, self._rng)

    def record_success(self, server: NodeUrl) -> None:
        """Record that a server serves us."""
        if server in self._records:
            self._records[server] = _Record()

    def replace(self, servers: Iterable[NodeUrl]) -> None:
        """Use other servers; what is known of those that stay is kept."""
        found = self.check(servers)
        self._records = {server: self._records.get(server, _Record()) for server in found}

    @staticmethod
    def check(servers: Iterable[NodeUrl]) -> list[NodeUrl]:
        """Return the servers; refuse none at all."""
        found = list(servers)
        if not found:
            raise SubscriberError("no node is named: give at least one address")
        return found

    def __contains__(self, server: NodeUrl) -> bool:
        return server in self._records


class ProbeOffer(NamedTuple):
    """A probed server's reply, in the order of the criteria: the least is the best."""

    new_roots: int  # how many roots our subscriptions would add to its graph
    nodes: int  # how large its graph is
    url: str  # breaks the last tie


def read_offer(server: NodeUrl, fields: Mapping[str, object] | None) -> ProbeOffer:
    """Return a probed server's offer; `fields` is None for one that did not reply."""
    roots, nodes = (_read_count(fields, key) for key in ("new_roots", "nodes"))
    return ProbeOffer(roots, nodes, server.url)


def _read_count(fields: Mapping[str, object] | None, key: str) -> int:
    found = (fields or {}).get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return UNKNOWN
    return max(0, int(found))
