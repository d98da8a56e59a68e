"""One emulated node: the real core with all its parts, on an emulated disk.

Does what the process of a real node does around a core, in the same order: writes and records of a
turn, commit, and only then what it says. It dies where its disk says so (`Crashed`, `StoreError`):
then it is started anew from what is on the disk. Knows nothing of links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core.device_protocol import DeviceProtocol
from denwatch.node.core.device_registry import DeviceSettings
from denwatch.node.core.events import Action, Count, Event, Log, Publish, Write
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.peers import PeerProtocol, PeerSettings
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.log import DiskFiles, Writer, encode_record
from denwatch.node.replication.clock import Clocks

from simulator.disk import FieldFaults, FieldMedium, FieldStore
from simulator.keys import Ring, Roster

Watch = Callable[["Host", Log, int], None]


@dataclass(frozen=True)
class HostSettings:
    """How all nodes of a field are set up; times in ms."""

    peers: PeerSettings = field(default_factory=PeerSettings)
    # All have one vocabulary from the start: none has to tell it to the others.
    subscribers: SubscriberSettings = field(
        default_factory=lambda: SubscriberSettings(is_announcing=False)
    )
    devices: DeviceSettings = field(default_factory=DeviceSettings)
    logs: str | None = None  # folder for log segments in the nodes' own format
    disk_delay: int = 2  # from an event to what is said about it, for the commit

    def with_strategy(self, strategy: str) -> HostSettings:
        """Return these settings with another strategy."""
        return replace(self, peers=replace(self.peers, strategy=strategy))


class Host:
    """A node that may be up or down. `wall_error` is by how much its machine's clock is wrong."""

    def __init__(
        self,
        name: str,
        roster: Roster,
        vocabulary: Vocabulary,
        settings: HostSettings,
        watch: Watch | None = None,
    ) -> None:
        self.name = name
        self.ring = Ring(name, roster)
        self.settings = settings
        self.medium = FieldMedium()
        self.faults = FieldFaults()
        self.wall_error = 0
        self.time = 0  # of the last event, in the node's own timeline
        self.is_up = False
        self.counts: dict[str, int] = {}
        self._vocabulary = vocabulary
        self._watch = watch
        self._base = 0  # the node's time = the field's time + this

    def start(self, now: int) -> None:
        """Start, or start again from the disk alone; raises what the disk raises."""
        self.medium.is_open = False
        store = self.store = FieldStore(self.name, self.medium, self.faults)
        wall = now + self.wall_error
        self.clocks = Clocks(self.name, store.epoch)
        self._base = self.wall_error + self.clocks.restore(store, wall)
        self.time = now + self._base
        self._build()
        self._writer = Writer(store, DiskFiles(self.settings.logs)) if self.settings.logs else None
        self.node.restore()
        self.is_up = True
        self._settle([Log("start", {"software": "denwatch field"})])

    def _build(self) -> None:
        """Put the parts together, as `denwatch.node.runtime.build` does."""
        store, clocks = self.store, self.clocks
        self.item_store = ItemStore(self.name, store.epoch, self.ring.sign, clocks.localise)
        self.vocabularies = Vocabularies(self._vocabulary)
        self.subscribers = SubscriberProtocol(
            self.item_store,
            self.vocabularies,
            roles=self.ring,
            clock=clocks,
            settings=self.settings.subscribers,
        )
        self.devices = DeviceProtocol(
            self.item_store,
            self.ring,
            self.vocabularies,
            clocks.localise,
            self.settings.devices,
            has_room=lambda: not self.subscribers.is_full,
        )
        self.peers = PeerProtocol(
            self.item_store, self.ring, self.subscribers, clocks, self.settings.peers
        )
        protocols = Protocols(self.subscribers, self.devices, self.peers)
        self.node = Node(self.item_store, store, protocols)

    def handle(self, event: Event, now: int) -> list[Publish]:
        """Take an event; return what may be said now that all of it is on the disk."""
        self.time = now + self._base
        return self._settle(self.node.handle(event, self.time))

    def act(self, change: Callable[[Transaction], None], now: int) -> list[Publish]:
        """Let something of the node itself happen, in a transaction of its own."""
        self.time = now + self._base
        return self._settle(self.node.perform(change, self.time))

    def _settle(self, actions: Sequence[Action]) -> list[Publish]:
        """Write what is to be written, commit, and return what may be said now."""
        writes: list[Write] = []
        records: list[bytes] = []
        published: list[Publish] = []
        logs: list[Log] = []
        for action in actions:
            if isinstance(action, Write):
                writes.append(action)
            elif isinstance(action, Publish):
                published.append(action)
            elif isinstance(action, Count):
                self.counts[action.name] = self.counts.get(action.name, 0) + action.amount
            else:
                logs.append(action)
                if self.settings.logs:
                    stamp = self.clocks.stamp(self.time)
                    records.append(encode_record(action.kind, action.fields, self.time, stamp))
        if writes or records:
            self.store.apply(writes, records)
        self.store.commit()
        if self._watch is not None:  # only what is on the disk has happened
            for log in logs:
                self._watch(self, log, self.time)
        return published

    def die(self) -> None:
        """Lose everything that is not on the disk."""
        self.is_up = False
        self.store.crash()

    def move_log(self) -> None:
        """Move records from the disk into segments."""
        if self._writer is not None and self.is_up:
            self._writer.move(self.time)
            self.store.commit()

    def close(self, now: int) -> None:
        """Stop in order, with all records in segments."""
        if self.is_up:
            self.time = now + self._base
            if self._writer is not None:
                self._settle([Log("stop", {"reason": "the end of the emulation"})])
                self._writer.close(self.time)
            self.is_up = False
            self.store.close()
