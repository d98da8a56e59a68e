"""The demo's site: three nodes, six devices, three people; folders, keys, configurations.

It uses what an operator has: `denwatch node --init`, `denwatch keys invite`, `add` and `show`.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denwatch.cli import main as denwatch
from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.loading import load_shipped, merge_vocabularies
from denwatch.node.core.vocabularies import shorten_hash

VOCABULARIES = ("rescue", "weather")
NODES = ("north", "middle", "south")
PERIOD = 50  # ms from one reading of a device to the next
_SCALE = 100  # steps of a sensor in one unit


@dataclass(frozen=True)
class DevicePlan:
    """A device: where it is, what event it senses, and its readings to be."""

    name: str
    node: str
    event: str
    rows: Sequence[Mapping[str, float]]


@dataclass
class Site:
    """Folders and ports of everything."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    bridges: dict[str, tuple[int, int]] = field(default_factory=dict)  # port, target port

    def url(self, node: str) -> str:
        """Return where a node listens."""
        return f"mqtt://127.0.0.1:{self.ports[node]}"


def load_vocabulary() -> Vocabulary:
    """Return the words of patients and of weather together."""
    first, second = (load_shipped(name) for name in VOCABULARIES)
    return merge_vocabularies(first, second)


def make_site(folder: Path, people: Sequence[str], devices: Sequence[DevicePlan]) -> Site:
    """Make everything; the others call the first node over bridges, and the second directly."""
    site = Site(folder)
    taken = iter(find_free_ports(3 * len(NODES)))
    for node in NODES:
        site.ports[node], site.metrics[node] = next(taken), next(taken)
    first, second, *_ = NODES
    call("node", "--init", str(folder / first), "--name", first, "--listen", site.url(first))
    for node in NODES[1:]:
        bridge = next(taken)
        site.bridges[f"{first}-{node}"] = (bridge, site.ports[first])
        invitation = str(folder / f"{node}.invite")
        keys = ("keys", "--directory", str(folder / first))
        url = f"mqtt://127.0.0.1:{bridge}"
        call(*keys, "invite", node, "--address", "127.0.0.1", "--url", url, "--output", invitation)
        init = ["node", "--init", str(folder / node), "--join", invitation]
        init += ["--listen", site.url(node)]
        if node != second:
            init += ["--peer", f"{second}={site.url(second)}"]
        call(*init)
    for node in NODES:
        _configure(folder / node / "node.toml", site.metrics[node])
    for person in people:
        keys = ("keys", "--directory", str(folder / first))
        told = call(*keys, "add", "subscriber", person, "--role", "medic")
        site.passwords[person] = told.split("shown this once: ")[1].split()[0]
    vocabulary = load_vocabulary()
    for device in devices:
        _make_device(site, device, vocabulary)
    return site


def call(*words: str) -> str:
    """Run a `denwatch` command and return what it printed."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        status = denwatch(words)
    if status:
        raise SystemExit(f"denwatch {' '.join(words)}: exit status {status}")
    return told.getvalue()


def find_free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _configure(path: Path, metrics: int) -> None:
    """Say what the demo wants otherwise than the defaults."""
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ('vocabulary = ["rescue"]', f"vocabulary = {json.dumps(VOCABULARIES)}"),
        ('address = ""', f'address = "127.0.0.1:{metrics}"'),
        ("interval_seconds = 10", "interval_seconds = 2"),
    ):
        if text.count(old) != 1:
            raise SystemExit(f"{path}: {old!r} is not there once")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def _make_device(site: Site, device: DevicePlan, vocabulary: Vocabulary) -> None:
    folder = site.folder / device.name
    folder.mkdir()
    keys = ("keys", "--directory", str(site.folder / device.node))
    call(*keys, "add", "device", device.name)
    event = vocabulary.events[device.event]
    names = list(device.rows[0])
    channels = [
        {
            "source": "replay",
            "field": place,
            "attribute": event.attributes[name].bit,
            "low": round(event.attributes[name].low * _SCALE),
            "high": round(event.attributes[name].high * _SCALE),
        }
        for place, name in enumerate(names)
    ]
    shown: dict[str, Any] = json.loads(call(*keys, "show", device.name, "--secrets"))
    config = {
        "device": device.name,
        "nodes": shown["nodes"][:1],  # its own; the others are out of its reach
        "vocabulary": shorten_hash(vocabulary).hex(),
        "spool": {"file": str(folder / "spool.bin"), "blocks": 16},
        "sources": {
            "replay": {
                "kind": "csv",
                "path": str(folder / "readings.csv"),
                "columns": names,
                "scales": [_SCALE] * len(names),
            }
        },
        "events": [{"event": event.number, "period": PERIOD, "channels": channels}],
        "link": {"longest_delay": 2},
    }
    (folder / "watchdog.json").write_text(json.dumps(config), encoding="utf-8")
    lines = [",".join(names)]
    lines += [",".join(f"{row[name]:.2f}" for name in names) for row in device.rows]
    (folder / "readings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
