"""The servers (nodes) that an app may use: their addresses, when to try each, which is best.

No I/O, no clock; the random source is an argument. The choice among several nodes in range is
PrefSIENA's (section 3.3), and more: the one where most of our subscriptions are covered already; of
those, where most waits for us, where most devices can answer, which is nearest, and which has least
to search.
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


_STEP = 50  # ms: round trips that differ by less are equal


class ProbeOffer(NamedTuple):
    """A probed server's reply, in the order of the criteria: the least is the best."""

    new_roots: int  # how many of our subscriptions nothing there covers
    waiting: int  # minus how many notifications wait for us there
    devices: int  # minus how many devices there can answer any of our subscriptions
    round_trip: int  # of the probe, in steps
    nodes: int  # how many different subscriptions it has
    url: str  # breaks the last tie

    def describe(self) -> str:
        """Return what counts for this server, and against it, in words."""
        if self.new_roots == UNKNOWN:
            return f"{self.url}: it did not say what it has"
        words = f"{self.new_roots} of ours are not covered there, {-self.waiting} wait for us"
        near = f"about {(self.round_trip + 1) * _STEP} ms away at most"
        return f"{self.url}: {words}, {-self.devices} devices can answer, {near}"


def read_offer(
    server: NodeUrl, fields: Mapping[str, object] | None, round_trip: int = 0
) -> ProbeOffer:
    """Return a probed server's offer; `fields` is None for one that did not reply."""
    roots, nodes = (_read_count(fields, key) for key in ("new_roots", "nodes"))
    waiting, devices = (_read_count(fields, key, 0) for key in ("waiting", "devices"))
    return ProbeOffer(roots, -waiting, -devices, round_trip // _STEP, nodes, server.url)


def explain_choice(offers: Iterable[ProbeOffer]) -> list[str]:
    """Return why a server was chosen among those that were probed, one line each, best first."""
    ordered = sorted(offers)
    lines = [offer.describe() for offer in ordered]
    if len(ordered) > 1:
        reasons = ("fewer new ones", "more waits there", "more devices", "nearer", "fewer nodes")
        pairs = zip(reasons, ordered[0], ordered[1], strict=False)
        why = next((reason for reason, one, other in pairs if one != other), "by its name")
        lines[0] += f"; chosen: {why}"
    return lines


def _read_count(fields: Mapping[str, object] | None, key: str, missing: int = UNKNOWN) -> int:
    found = (fields or {}).get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return missing
    return max(0, int(found))
