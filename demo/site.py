"""The demo's site: three nodes, six devices, three people; folders, keys, configurations.

Made by the same builder as the sites of the tests, which uses what an operator has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.loading import load_shipped, merge_vocabularies

from simulator.site import Site, find_free_port, write_watchdog

VOCABULARIES = ("rescue", "weather")
NODES = ("north", "middle", "south")
PERIOD = 50  # ms from one reading of a device to the next


@dataclass(frozen=True)
class DevicePlan:
    """A device: where it is, what event it senses, and its readings to be."""

    name: str
    node: str
    event: str
    rows: Sequence[Mapping[str, float]]


class DemoSite(Site):
    """The three nodes with their metrics, and the bridges over which two of them call the first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bridges: dict[str, tuple[int, int]] = {}  # port, target port
        self.metrics: dict[str, str] = {}  # URL of each node's page

    def add_bridged_node(self, name: str) -> None:
        """Add a node that calls the first one over a bridge, and all others directly."""
        via = None
        if self.nodes:
            port = find_free_port()
            self.bridges[f"{self.first.name}-{name}"] = (port, self.first.port)
            via = f"mqtt://127.0.0.1:{port}"
        others = [*self.nodes.values()][1:]
        peers = [f"--peer={node.name}={node.url}" for node in others]
        node = self.add_node(name, *peers, via=via, addresses=["127.0.0.1"], interval=2)
        address = f"127.0.0.1:{find_free_port()}"
        node.configure(
            ('vocabulary = ["rescue"]', f"vocabulary = {json.dumps(VOCABULARIES)}"),
            ('address = ""', f'address = "{address}"'),
        )
        self.metrics[name] = f"http://{address}/metrics"


def load_vocabulary() -> Vocabulary:
    """Return the words of patients and of weather together."""
    first, second = (load_shipped(name) for name in VOCABULARIES)
    return merge_vocabularies(first, second)


def make_site(folder: Path, people: Sequence[str], devices: Sequence[DevicePlan]) -> DemoSite:
    """Make the folders, keys and configurations of everybody."""
    site = DemoSite(folder)
    for name in NODES:
        site.add_bridged_node(name)
    for person in people:
        site.add_subscriber(person)
    vocabulary = load_vocabulary()
    for plan in devices:
        device = site.nodes[plan.node].add_device(plan.name)
        fields = {"period": PERIOD, "link": {"longest_delay": 2}}
        write_watchdog(folder / plan.name, device, plan.rows, vocabulary, plan.event, **fields)
    return site
