"""The nodes as their statuses tell of them: who sees whom, who is silent, where the network is cut.

Pure; `now` is an argument. A status names the peers that its node has a link with *now*, so what
was linked before has to be remembered for a cut to be seen: that is what `Memory` is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from denwatch.client.subscriber.display import describe_span

SILENT = 35_000  # ms: three times the usual interval of a status, and a bit
FORGOTTEN = 3_600_000  # ms without a sign of life
_MOST_NODES = 40


@dataclass(frozen=True)
class NodeView:
    """One node. `state`: "up", "silent" (no news), "stopped" (in order), "told" (by others)."""

    name: str
    state: str
    is_ours: bool  # serves us
    peers: tuple[str, ...]
    lag: str
    queue: int
    devices: int
    subscriptions: int
    heard: int | None


@dataclass(frozen=True)
class LinkView:
    """Two nodes that have, or had, a link."""

    first: str
    second: str
    is_up: bool
    since: int  # ms: of the last sign of it


@dataclass(frozen=True)
class NetworkView:
    """All nodes, their links, and the parts that do not see each other."""

    nodes: tuple[NodeView, ...] = ()
    links: tuple[LinkView, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether some nodes cannot reach others."""
        return len(self.parts) > 1

    def describe(self) -> str:
        """Return the state of the network in one sentence."""
        if not self.nodes:
            return "No node has been heard of yet."
        if not self.is_cut:
            count = len(self.parts[0]) if self.parts else 0
            return "One node, no peers." if count == 1 else f"All {count} nodes are connected."
        sides = " | ".join(" + ".join(part) for part in self.parts)
        return f"The network is cut into {len(self.parts)} parts: {sides}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "links": [asdict(link) for link in self.links],
            "is_cut": self.is_cut,
            "sentence": self.describe(),
        }


@dataclass
class _Known:
    fields: Mapping[str, Any] = field(default_factory=dict)
    heard: int | None = None  # its own status
    mentioned: int = 0  # by anybody
    is_stopped: bool = False


class Memory:
    """What was said so far. Fed with statuses, asked for the view of now."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self._links: dict[tuple[str, str], int] = {}  # when it was last said to be up

    def learn(self, node: str, fields: Mapping[str, Any], now: int) -> None:
        """Take a status."""
        known = self._nodes.setdefault(node, _Known())
        known.fields, known.heard, known.mentioned, known.is_stopped = fields, now, now, False
        for peer in _read_peers(fields):
            self._nodes.setdefault(peer, _Known()).mentioned = now
            self._links[_pair(node, peer)] = now

    def forget(self, node: str, now: int) -> None:
        """Take a good-bye: the node has stopped in order."""
        known = self._nodes.setdefault(node, _Known())
        known.is_stopped, known.mentioned = True, now

    def view(self, now: int, served_by: str = "") -> NetworkView:
        """Return the network as it is; `served_by` is the node that our own link is with."""
        recent = sorted(
            (name for name, known in self._nodes.items() if now - known.mentioned < FORGOTTEN),
            key=lambda name: (-self._nodes[name].mentioned // FORGOTTEN, name),
        )[:_MOST_NODES]
        links = [
            LinkView(a, b, self._is_up(a, b, now), seen)
            for (a, b), seen in sorted(self._links.items())
            if a in recent and b in recent
        ]
        nodes = [self._describe(name, now, served_by) for name in sorted(recent)]
        alive = [node.name for node in nodes if node.state != "stopped"]
        parts = find_parts(alive, [(x.first, x.second) for x in links if x.is_up])
        return NetworkView(tuple(nodes), tuple(links), parts)

    def list_statuses(self, now: int) -> dict[str, Mapping[str, Any]]:
        """Return what the nodes that were heard lately said last."""
        return {
            name: known.fields
            for name, known in sorted(self._nodes.items())
            if known.heard is not None and now - known.mentioned < FORGOTTEN
        }

    def _is_up(self, a: str, b: str, now: int) -> bool:
        """A link is up if an end that is heard says so; silence of both says nothing good."""
        said = []
        for one, other in ((a, b), (b, a)):
            if self._find_state(one, now) == "up":
                said.append(other in _read_peers(self._nodes[one].fields))
        return bool(said) and all(said)

    def _find_state(self, name: str, now: int) -> str:
        known = self._nodes[name]
        if known.is_stopped:
            return "stopped"
        if known.heard is None:
            return "told"
        return "up" if now - known.heard < SILENT else "silent"

    def _describe(self, name: str, now: int, served_by: str) -> NodeView:
        known = self._nodes[name]
        fields = known.fields
        lag = fields.get("lag_ms")
        return NodeView(
            name,
            self._find_state(name, now),
            name == served_by,
            tuple(_read_peers(fields)),
            describe_lag(lag) if isinstance(lag, int | float) else "",
            _read_count(fields, "queue"),
            _read_count(fields, "devices"),
            _read_count(fields, "subscriptions"),
            known.heard,
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
    """Return for how long something waits to be exchanged."""
    if ms <= 0:
        return "up to date"
    return "under 1 s behind" if ms < 1_000 else f"{describe_span(int(ms))} behind"


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def _read_peers(fields: Mapping[str, Any]) -> list[str]:
    found = fields.get("peers")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _read_count(fields: Mapping[str, Any], key: str) -> int:
    found = fields.get(key)
    return int(found) if isinstance(found, int | float) else 0
