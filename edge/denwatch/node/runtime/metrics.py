"""What a node reports about itself: metrics for Prometheus, and its status as one JSON object.

The only file that imports prometheus_client. Metrics are named `denwatch_<what>_total`, with one
label `kind` where the core gives one, and gauges that are read when somebody opens the page. The
status is published on `dens/1/status/<node>`, retained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

from denwatch.client.version import find_version
from denwatch.node.core.device_protocol import DeviceProtocol
from denwatch.node.core.devices import Device
from denwatch.node.core.events import Count
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.operator_protocol import OperatorProtocol
from denwatch.node.core.peers import PeerProtocol
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.security import Keyring
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

MOST_NAMES = 100  # devices that a status names
_MOST_LABELS = 500  # counters of all names; some labels are reasons, which others can vary


class Metrics:
    """A node's counters, and the page that shows them with its gauges."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._totals: dict[tuple[str, str], int] = {}
        self._read_gauges: Callable[[], Mapping[str, float]] = dict
        self._server: tuple[WSGIServer, Thread] | None = None

    def count(self, what: Count) -> None:
        """Add one count of the core. Called for every message, so it does no more than that."""
        key = (what.name, what.label)
        if key not in self._totals and len(self._totals) >= _MOST_LABELS and what.label:
            key = (what.name, "other")
        self._totals[key] = self._totals.get(key, 0) + what.amount

    def read_totals(self) -> dict[str, int]:
        """Return all counters by "name" or "name.label"."""
        return {
            f"{name}.{label}" if label else name: total
            for (name, label), total in sorted(self._totals.items())
        }

    def collect(self) -> Iterable[Metric]:
        """Yield counters and gauges; prometheus_client calls it."""
        counters: dict[str, CounterMetricFamily] = {}
        for (name, label), total in sorted(self._totals.copy().items()):
            if name not in counters:
                counters[name] = CounterMetricFamily(
                    f"denwatch_{name}", name.replace("_", " "), labels=["node", "kind"]
                )
            counters[name].add_metric([self._node, label], total)
        yield from counters.values()
        for name, value in self._read_gauges().items():
            gauge = GaugeMetricFamily(f"denwatch_{name}", name.replace("_", " "), labels=["node"])
            gauge.add_metric([self._node], value)
            yield gauge

    def serve(self, host: str, port: int, read_gauges: Callable[[], Mapping[str, float]]) -> int:
        """Show the page on http://host:port/metrics; return the port."""
        self._read_gauges = read_gauges
        registry = CollectorRegistry()
        registry.register(self)
        self._server = start_http_server(port, host, registry=registry)
        return int(self._server[0].server_port)

    def stop(self) -> None:
        """Close the page."""
        if self._server is not None:
            self._server[0].shutdown()
            self._server[0].server_close()
            self._server[1].join()


class NodeStatus:
    """Reads the state of a node for the metrics page and for its published status."""

    def __init__(
        self,
        durable_node: DurableNode,
        clocks: Clocks,
        vocabularies: Vocabularies,
        keyring: Keyring,
        metrics: Metrics,
    ) -> None:
        self.metrics = metrics
        self._durable_node = durable_node
        self._clocks = clocks
        self._vocabularies = vocabularies
        self._keyring = keyring

    @property
    def _protocols(
        self,
    ) -> tuple[SubscriberProtocol, DeviceProtocol, PeerProtocol, OperatorProtocol]:
        p = self._durable_node.node.protocols
        assert p.subscribers is not None, "a node that runs has all protocols"
        assert p.devices is not None
        assert p.peers is not None
        assert p.operators is not None
        return p.subscribers, p.devices, p.peers, p.operators

    def describe_start(self) -> dict[str, object]:
        """Return the fields of the log's record of a start."""
        strategy = self._protocols[2].settings.strategy
        return {"software": f"denwatch {find_version()}", "strategy": strategy}

    def read_gauges(self, now: int) -> dict[str, float]:
        """Return how many there are of everything now; the metrics' thread asks, too."""
        if not self._durable_node.has_core:
            return {}
        item_store = self._durable_node.node.item_store
        subscribers, devices, _, _ = self._protocols
        return {
            "subscriptions": item_store.count(SUBSCRIPTION),
            "notifications": item_store.count(NOTIFICATION),
            "waiting": subscribers.count_waiting(),
            "attached": subscribers.count_attached(),
            **subscribers.stories.count(),
            "peers": len(self._durable_node.peers),
            "clock_doubt_ms": self._clocks.doubt_peers(now),
            **self._count_connections(),
            **{f"devices_{name}": number for name, number in devices.describe().items()},
        }

    def _count_connections(self) -> dict[str, float]:
        server = self._durable_node.server
        if server is None:
            return {}
        return {"links": server.budget.named, "half_open": server.budget.half_open}

    def describe(self, now: int, uptime: int) -> dict[str, object]:
        """Return the node's status; times are in ms.

        `at` is what the machine's clock shows, `clock_ms` by how much that is ahead of the node's
        own timeline, `doubt_ms` by how much the node may be wrong about the timeline of a peer
        that it is linked with. `lag_ms` is for how long something has been waiting to be
        exchanged with such a peer, at most: 0 if all are up to date, null if there is none.
        """
        gauges = self.read_gauges(now)
        totals = self.metrics.read_totals()
        _, devices, peers, operators = self._protocols
        item_store = self._durable_node.node.item_store
        return {
            "node": item_store.name,
            "version": find_version(),
            "epoch": item_store.epoch,
            "at": self._clocks.date(now),
            "uptime_s": uptime // 1000,
            "subscriptions": gauges["subscriptions"],
            "passive": gauges["devices_passive"],
            "notifications": gauges["notifications"],
            "queue": gauges["waiting"],
            "attached": gauges["attached"],
            "delivered": totals.get("notes_delivered", 0),
            "devices": gauges["devices_present"],
            "publishers": list_publishers(devices.list_devices(), self._vocabularies),
            "peers": sorted(self._durable_node.peers),
            "lag_ms": peers.find_lag(now),
            "plan": operators.describe(),
            "clock_ms": self._clocks.wall,
            "doubt_ms": gauges["clock_doubt_ms"],
            "conflicts": self._keyring.conflicts,
            "refused": [
                {"who": each.user, "address": each.address, "what": each.what, "why": each.why}
                | {"times": each.times, "at": self._clocks.date(each.at)}
                for each in self._durable_node.refusals.recent
            ],
            "counts": totals,
        }

    def encode(self, now: int, uptime: int) -> bytes:
        """Return the payload of the status message."""
        return json.dumps(self.describe(now, uptime), separators=(",", ":")).encode()


def list_publishers(
    devices: Iterable[Device], vocabularies: Vocabularies, limit: int = MOST_NAMES
) -> list[dict[str, Any]]:
    """Return groups of devices: an event, its attributes, who is present, who is away, and how
    many more there are.

    The status is published again and again, so its size is bounded: devices that sense the same
    are in one group, and beyond `limit` names they are only counted. Present devices are named
    first. An event or attribute that no vocabulary here knows is named by its number.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Device]] = {}
    for device in devices:
        for number, (features, _) in device.sensed.items():
            event = vocabularies.find_event(device.vocabulary, number)
            names = []
            for bit in range(16):
                if features >> bit & 1:
                    attribute = event.find_bit(bit) if event is not None else None
                    names.append(attribute.name if attribute else f"attribute_{bit}")
            name = event.name if event is not None else f"event_{number}"
            groups.setdefault((name, tuple(names)), []).append(device)
    listed: list[dict[str, Any]] = []
    for (event_name, attributes), members in sorted(groups.items()):
        members.sort(key=lambda device: (not device.is_present, device.name))
        named = members[: max(0, limit)]
        limit -= len(named)
        listed.append(
            {
                "event": event_name,
                "attributes": list(attributes),
                "present": [device.name for device in named if device.is_present],
                "away": [device.name for device in named if not device.is_present],
                "more": len(members) - len(named),
            }
        )
    return listed
