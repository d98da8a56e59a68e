"""The demo's site: three nodes, five devices, four people; folders, keys, configurations.

Made by the same builder as the sites of the tests, which uses what an operator has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from denwatch.client.vocabulary.loading import load_shipped

from demo.sensors import DevicePlan
from simulator.site import Site, find_free_port, write_watchdog

NODES = ("north", "middle", "south")
_LOOKS = 20  # ms after which a device looks for its next reading
_STEPS = 100  # of a sensor in one unit, as `write_watchdog` has them


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
        node.configure(('address = ""', f'address = "{address}"'))
        self.metrics[name] = f"http://{address}/metrics"


def make_site(folder: Path, people: Iterable[str], devices: Iterable[DevicePlan]) -> DemoSite:
    """Make the folders, keys and configurations of everybody."""
    site = DemoSite(folder)
    for name in NODES:
        site.add_bridged_node(name)
    for person in people:
        site.add_subscriber(person)
    vocabulary = load_shipped("rescue")
    for plan in devices:
        keys = site.nodes[plan.node].add_device(plan.name)
        fields = {"period": _LOOKS, "link": {"longest_delay": 2}}
        rows = [plan.values]
        path = write_watchdog(folder / plan.name, keys, rows, vocabulary, plan.event, **fields)
        config = json.loads(path.read_text(encoding="utf-8"))
        for name, channel in zip(plan.values, config["events"][0]["channels"], strict=True):
            if name in plan.accuracy:
                typical, worst = plan.accuracy[name]
                channel |= {"typical": round(typical * _STEPS), "worst": round(worst * _STEPS)}
        path.write_text(json.dumps(config), encoding="utf-8")
    return site
