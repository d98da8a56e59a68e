"""What the nodes report in their statuses: the network with its cuts, and the devices.

`NetworkMemory` and the functions below it are pure; `now` is an argument. A status names the peers
that its node has a link with *now*, so earlier links must be remembered for a cut to be seen.
`StatusMonitor` receives the statuses on a thread of its own.

The position of a device is that of its last notification for this subscriber; nobody else's
notifications are used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from denwatch.client.console.feed import format_value, read_list
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.subscriber.display import describe_span
from denwatch.client.subscriber.link import Identity, StatusReader
from denwatch.client.vocabulary import Vocabulary

SILENT = 35_000  # ms: three times the usual interval of a status, and a bit
FORGOTTEN = 3_600_000  # ms without a sign of life
_MOST_NODES = 40


@dataclass(frozen=True)
class NodeView:
    """One node. `state`: "up", "silent" (no status), "stopped" (in order), "told" (by peers).

    `quiet` says for how long one that is silent or stopped has been so.
    """

    name: str
    state: str
    quiet: str
    is_ours: bool  # the one that serves us
    peers: tuple[str, ...]
    lag: str
    queue: int
    devices: int


@dataclass(frozen=True)
class LinkView:
    """Two nodes that have, or had, a link."""

    first: str
    second: str
    is_up: bool


@dataclass(frozen=True)
class NetworkView:
    """All nodes, their links, and the parts that are not connected with each other."""

    nodes: tuple[NodeView, ...] = ()
    links: tuple[LinkView, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether some nodes cannot reach others."""
        return len(self.parts) > 1

    @property
    def state(self) -> str:
        """ "unknown", "down" (no node is up), "cut", "reduced" (some are not up), or "well"."""
        states = {node.state for node in self.nodes}
        if not states:
            return "unknown"
        if "up" not in states:
            return "down"
        return "cut" if self.is_cut else "reduced" if states & {"silent", "stopped"} else "well"

    def describe(self) -> str:
        """Return the state of the network in one sentence."""
        state, count = self.state, len(self.nodes)
        if state == "unknown":
            return "No node has reported yet."
        if state == "cut":
            sides = " | ".join(" + ".join(part) for part in self.parts)
            return f"The network is cut into {len(self.parts)} parts: {sides}"
        if state == "well":
            return "One node, no peers." if count == 1 else f"All {count} nodes are connected."
        quiet = [node for node in self.nodes if node.quiet]
        named = ", ".join(f"{node.name} {node.state} for {node.quiet}" for node in quiet)
        up = "No node is up" if state == "down" else f"{count - len(quiet)} of {count} nodes are up"
        return f"{up}: {named or 'none reports to this console'}."

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "state": self.state,
            "sentence": self.describe(),
        }


@dataclass
class _Known:
    fields: Mapping[str, Any] = field(default_factory=dict)
    heard: int | None = None  # when its own status came
    mentioned: int = 0  # when anybody last named it
    stopped: int | None = None  # when it said that it stops


class NetworkMemory:
    """All statuses so far: `learn` adds one, `view` returns the network as it is now."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self._links: set[tuple[str, str]] = set()  # in the order of their names

    def learn(self, node: str, fields: Mapping[str, Any], now: int) -> None:
        """Add a status."""
        known = self._nodes.setdefault(node, _Known())
        known.fields, known.heard, known.mentioned, known.stopped = fields, now, now, None
        for peer in _read_peers(fields):
            self._nodes.setdefault(peer, _Known()).mentioned = now
            self._links.add((min(node, peer), max(node, peer)))

    def forget(self, node: str, now: int) -> None:
        """Record that a node has stopped in order."""
        known = self._nodes.setdefault(node, _Known())
        known.stopped = known.mentioned = now

    def view(self, now: int, served_by: str = "") -> NetworkView:
        """Return the network as it is; `served_by` is the node that serves us."""
        recent = sorted(
            (name for name, known in self._nodes.items() if now - known.mentioned < FORGOTTEN),
            key=lambda name: (-self._nodes[name].mentioned // FORGOTTEN, name),
        )[:_MOST_NODES]
        links = [
            LinkView(a, b, self._is_up(a, b, now))
            for a, b in sorted(self._links)
            if a in recent and b in recent
        ]
        nodes = [self._describe(name, now, served_by) for name in sorted(recent)]
        alive = [node.name for node in nodes if node.state != "stopped"]
        parts = find_parts(alive, [(x.first, x.second) for x in links if x.is_up])
        return NetworkView(tuple(nodes), tuple(links), parts)

    def list_statuses(self, now: int) -> dict[str, Mapping[str, Any]]:
        """Return the last statuses of the nodes that reported lately."""
        return {
            name: known.fields
            for name, known in sorted(self._nodes.items())
            if known.heard is not None and now - known.mentioned < FORGOTTEN
        }

    def list_lost(self, now: int) -> dict[str, int]:
        """Return the nodes of which nothing is known now, and when they last reported."""
        return {
            name: known.heard
            for name, known in self._nodes.items()
            if known.heard is not None and self._find_state(name, now) != "up"
        }

    def _is_up(self, a: str, b: str, now: int) -> bool:
        """A link is up if every end that is up reports it, and at least one end is up."""
        said = [
            other in _read_peers(self._nodes[one].fields)
            for one, other in ((a, b), (b, a))
            if self._find_state(one, now) == "up"
        ]
        return bool(said) and all(said)

    def _find_state(self, name: str, now: int) -> str:
        known = self._nodes[name]
        if known.stopped is not None:
            return "stopped"
        if known.heard is not None and now - known.heard < SILENT:
            return "up"
        is_told = known.heard is None or any(
            other.heard is not None
            and now - other.heard < SILENT
            and name in _read_peers(other.fields)
            for other in self._nodes.values()
        )
        return "told" if is_told else "silent"

    def _describe(self, name: str, now: int, served_by: str) -> NodeView:
        known = self._nodes[name]
        fields = known.fields
        lag = fields.get("lag_ms")
        state = self._find_state(name, now)
        since = {"silent": known.heard, "stopped": known.stopped}.get(state)
        return NodeView(
            name,
            state,
            "" if since is None else describe_span(now - since),
            name == served_by,
            tuple(_read_peers(fields)),
            describe_lag(lag) if isinstance(lag, int | float) else "",
            _read_count(fields, "queue"),
            _read_count(fields, "devices"),
        )


def find_parts(names: list[str], links: list[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of names that are connected, largest first."""
    group = {name: {name} for name in names}
    for a, b in links:
        if a in group and b in group and group[a] is not group[b]:
            merged = group[a] | group[b]
            for name in merged:
                group[name] = merged
    unique = {tuple(sorted(members)) for members in group.values()}
    return tuple(sorted(unique, key=lambda part: (-len(part), part)))


def describe_lag(ms: float) -> str:
    """Return how far a node lags behind its peers."""
    if ms <= 0:
        return "up to date"
    return "under 1 s behind" if ms < 1_000 else f"{describe_span(int(ms))} behind"


def _read_peers(fields: Mapping[str, Any]) -> list[str]:
    return [name for name in read_list(fields.get("peers")) if isinstance(name, str)]


def _read_count(fields: Mapping[str, Any], key: str) -> int:
    found = fields.get(key)
    return int(found) if isinstance(found, int | float) else 0


# Devices: what they sense and where they are ----------------------------------------------------


@dataclass(frozen=True)
class Announcement:
    """A device at a node that senses attributes of an event; lost: when its node last reported."""

    node: str
    device: str
    event: str
    attributes: tuple[str, ...]
    is_present: bool
    lost: int = 0


def read_announcements(
    statuses: Mapping[str, Mapping[str, Any]], lost: Mapping[str, int]
) -> tuple[list[Announcement], int]:
    """Return the devices that the nodes report, and how many they only count.

    Of a node that is lost since then nobody knows whether its devices are there.
    """
    found: list[Announcement] = []
    more = 0
    for node, fields in sorted(statuses.items()):
        for group in read_list(fields.get("publishers")):
            if not isinstance(group, Mapping):
                continue
            event = str(group.get("event", ""))
            attributes = tuple(str(name) for name in read_list(group.get("attributes")))
            found += [
                Announcement(
                    *(node, str(device), event, attributes),
                    key == "present" and node not in lost,
                    lost.get(node, 0),
                )
                for key in ("present", "away")
                for device in read_list(group.get(key))
            ]
            left = group.get("more")
            more += left if isinstance(left, int) else 0
    return found, more


def build_sources(
    announcements: Iterable[Announcement],
    vocabulary: Vocabulary,
    notifications: Iterable[ReceivedNotification],
) -> list[dict[str, Any]]:
    """Return devices as the page shows them: present ones first, by name.

    `lost` is since when nobody knows whether a device is there, 0 if that is known.
    """
    last: dict[str, ReceivedNotification] = {}
    for notification in notifications:
        device = str(notification.fields.get("device") or "")
        if device and (device not in last or (notification.at or 0) > (last[device].at or 0)):
            last[device] = notification
    devices: dict[str, dict[str, Any]] = {}
    for one in announcements:
        entry = devices.setdefault(
            one.device,
            {"name": one.device, "nodes": [], "is_present": False, "lost": 0, "sensed": []},
        )
        entry["lost"] = max(entry["lost"], one.lost)
        if one.is_present:  # it may be known at another node from before
            entry["is_present"] = True
        if one.node not in entry["nodes"]:
            entry["nodes"].insert(0 if one.is_present else len(entry["nodes"]), one.node)
        _add_sensed(entry["sensed"], one, vocabulary)
    for name, entry in devices.items():
        found = last.get(name)
        entry["place"] = describe_place(found) if found else ""
        entry["at"] = found.at if found else None
        entry["lost"] *= not entry["is_present"]
    return sorted(devices.values(), key=lambda entry: (not entry["is_present"], entry["name"]))


def _add_sensed(sensed: list[dict[str, Any]], one: Announcement, vocabulary: Vocabulary) -> None:
    event = vocabulary.events.get(one.event)
    known = event.attributes if event is not None else {}
    listed = [
        {
            "name": name,
            "label": name.replace("_", " "),
            "domain": known[name].describe_domain() if name in known else "not in this vocabulary",
        }
        for name in one.attributes
    ]
    entry = {"event": one.event, "attributes": listed}
    if entry not in sensed:
        sensed.append(entry)


def describe_place(notification: ReceivedNotification) -> str:
    """Return the position that a notification has; "" if it has none."""
    values = notification.values
    names = [name for name in ("east", "north") if name in values]
    return ", ".join(f"{format_value(values[name])} {name}" for name in names)


# Listening -----------------------------------------------------------------------------------

_STEP = 0.5  # s


class StatusMonitor:
    """What the nodes report, kept current by a thread. Hold `lock` to read `memory` or `served`.

    It has connections of its own: a subscriber is connected to one node, the map needs all of them.
    """

    def __init__(self, identity: Identity, servers: Iterable[str], now: Callable[[], int]) -> None:
        self.memory = NetworkMemory()
        self.served: dict[str, str] = {}  # by server: the node whose status came from there last
        self.lock = threading.Lock()
        self._reader = StatusReader(identity, servers, "console")
        self._now = now
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="denwatch-statuses", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        self._reader.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._reader.step(_STEP):
                with self.lock:
                    if message.fields is not None:
                        self.memory.learn(message.node, message.fields, self._now())
                        self.served[message.server] = message.node
                    else:
                        self.memory.forget(message.node, self._now())
