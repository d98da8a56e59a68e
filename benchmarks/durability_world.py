"""Nodes in one process, on emulated disks that fail where a plan says: no sockets, no real clock.

Each node is the real thing from the MQTT server's bytes down to the store's operations: a
`DurableNode` with all protocols, `MemoryStore` with `Faults`, the log's `Writer`. A node that dies
loses its links and all that was not committed, and is built anew from its medium. Everything
happens in rounds: clients say something, each node takes all of it, commits once, and only then
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.config import NodeConfig, load_config
from denwatch.node.core.events import Event
from denwatch.node.log import Writer
from denwatch.node.mqtt.interface import Close, Input, LinkLost, LinkOpened, LinkReceived, Send
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.build import build_node, read_limits
from denwatch.node.runtime.durable_node import DurableNode, Effects
from denwatch.node.runtime.process import SteadyClock
from denwatch.node.security import Keyring, open_keyring
from denwatch.node.store import Store, StoreError

from benchmarks.durability_log import check_log
from simulator.memory_store import Crashed, EmulatedDisk, Faults, MemoryStore
from simulator.open_server import OpenRules
from simulator.site import Site

START = 1_800_000_000_000
ROUND = 500  # ms
NODES = ("a", "b")
DEVICE = "dog"
PEOPLE = ("medic", "chief")  # one at each node


@dataclass(frozen=True)
class Plan:
    """Configurations and keys of two nodes, made once for many runs."""

    configs: dict[str, NodeConfig]
    keyrings: dict[str, Keyring]
    vocabulary: Vocabulary


def make_plan(folder: Path) -> Plan:
    """Make the folders of two nodes that know each other, and of a device of the first."""
    first, second = NODES
    url = "mqtt://127.0.0.1:1"  # nobody listens: there are no sockets
    site = Site(folder)
    for name in NODES:
        site.add_node(name, url=url, addresses=["127.0.0.1"], interval=10)
    site.first.add_device(DEVICE)
    for name, person in zip(NODES, PEOPLE, strict=True):
        site.nodes[name].add_subscriber(person)
    configs = {name: load_config(site.nodes[name].config) for name in NODES}
    keyrings = {name: open_keyring(folder / name) for name in NODES}
    # They have met before, and shown each other their cards.
    for one, other in ((first, second), (second, first)):
        credentials = keyrings[one].make_credentials(other)
        assert credentials is not None
        assert keyrings[other].check_credentials(one, credentials[1].encode())
    return Plan(configs, keyrings, load_shipped("rescue"))


@dataclass
class MemoryFiles:
    """The directory of a log, in memory; it outlives the node's deaths."""

    files: dict[str, bytes] = field(default_factory=dict)

    def list_names(self) -> list[str]:
        """Return the names of all files, in order."""
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        return self.files[name]

    def create(self, name: str, data: bytes) -> None:
        """Begin a file that must not exist."""
        if name in self.files:
            raise FileExistsError(name)
        self.files[name] = data

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a file."""
        self.files[name] += data

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        self.files[name] = self.files[name][:size]

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        self.files[new] = self.files.pop(old)

    def remove(self, name: str) -> None:
        """Delete a file."""
        del self.files[name]

    def sync(self, name: str) -> None:
        """Everything is durable at once: the log's own tests cut it off anywhere."""

    def sync_directory(self) -> None:
        """As `sync`."""


class Host:
    """One node: dies at a fault, and starts again in the next round."""

    def __init__(self, name: str, plan: Plan, faults: Faults | None = None) -> None:
        self.name = name
        self.plan = plan
        self.faults = faults or Faults()
        self.medium = EmulatedDisk()
        self.files = MemoryFiles()
        self.now = START
        self.is_up = False
        self.deaths = 0
        self.links: dict[int, Callable[[bytes], None]] = {}
        self._crash: Callable[[], object] = lambda: None  # of the store, once there is one
        self.send_out: Callable[[Effects], None] = lambda _: None
        self._last_link = 0
        self._inputs: list[Callable[[], None]] = []

    # Life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store and restore the node, as `open_node` does."""
        config, keyring = self.plan.configs[self.name], self.plan.keyrings[self.name]
        self.store = MemoryStore(self.name, self.medium, faults=self.faults)
        self._crash = self.store.crash
        clocks = Clocks(self.name, self.store.epoch)
        lead = clocks.restore(self.store, self.now)
        read = lambda: self.now / 1000  # noqa: E731
        clock = SteadyClock(lead, read, read)
        store = cast("Store", self.store)  # what is used of it, both have
        built = build_node(config, keyring, self.plan.vocabulary, store, clocks)
        # Names are not the matter here: everybody is let in under the one that he gives.
        server = MqttServer(OpenRules(), read_limits(config))
        node = built.durable_node.node
        self.durable_node = DurableNode(node, self.store, server, lambda _: None, clocks.stamp)
        self.durable_node.restore(clock.read())
        self._clock = clock
        self.durable_node.log("start", built.status.describe_start(), clock.read())
        self.writer = Writer(self.store, self.files)
        self.commit()
        self.is_up = True

    def turn(self, now: int) -> None:
        """Take all that came in, commit, answer; or die on the way."""
        self.now = now
        inputs, self._inputs = self._inputs, []
        try:
            if not self.is_up:
                self.start()  # what was said to a dead node is lost
                return
            for give in inputs:
                give()
            self.durable_node.tick(self._clock.read())
            self.commit()
            self.writer.move(self._clock.read())
            self.store.commit()
        except (Crashed, StoreError):
            self.die()

    def commit(self) -> None:
        """Make everything durable, then let it out."""
        self.perform(self.durable_node.commit())

    def perform(self, effects: Effects) -> None:
        """Let out what may be known now."""
        for output in effects.outputs:
            if isinstance(output, Send) and output.link in self.links:
                self.links[output.link](output.data)
            elif isinstance(output, Close):
                self.drop(output.link)
        self.send_out(effects)
        for committed in effects.committed:
            committed()

    def die(self) -> None:
        """Lose everything but the medium."""
        self.deaths += 1
        self.is_up = False
        self._crash()
        self._inputs.clear()
        self.links.clear()

    # Links ----------------------------------------------------------------------------------

    def open(self, receive: Callable[[bytes], None]) -> int:
        """Open a link to the node's server; return its number."""
        self._last_link += 1
        link = self._last_link
        self.links[link] = receive
        self._take(LinkOpened(link))
        return link

    def send(self, link: int, data: bytes) -> None:
        """Send bytes over a link."""
        self._take(LinkReceived(link, data))

    def drop(self, link: int) -> None:
        """Break a link."""
        if self.links.pop(link, None) is not None:
            self._take(LinkLost(link))

    def deliver(self, event: Event, committed: Callable[[], None] | None = None) -> None:
        """Give the node an event of a connection that it opened itself."""
        self._inputs.append(
            lambda: self.durable_node.receive_event(event, self._clock.read(), committed)
        )

    def _take(self, event: Input) -> None:
        self._inputs.append(lambda: self.durable_node.receive_input(event, self._clock.read()))

    # Afterwards -----------------------------------------------------------------------------

    def find_log_fault(self) -> str:
        """Return what is wrong with the log: numbers from 1 on, each once; "" if nothing."""
        self._close_log()
        check = check_log(self.files.files)
        if not check.faults and check.records + 1 != self.store.next_number:
            return f"it ends at {check.records}, before {self.store.next_number - 1}"
        return "; ".join(check.faults)

    def _close_log(self) -> None:
        """Stop in order; a death on the way is followed by another start."""
        while True:
            try:
                if not self.is_up:
                    self.start()
                self.writer.close(self._clock.read())
                return
            except (Crashed, StoreError):
                self.die()
