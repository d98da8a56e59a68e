"""One node's core with all its protocols, hosted on a store in simulated time.

The one place besides the product's own process that runs a core: the simulator's nodes are these,
and tests and benchmarks add to them what they are about. Does what the process of a real node does
around a core, in the same order: writes and log records of a transaction, commit, and only then
what it publishes. The store is the memory model, which fails where `faults` says (`Crashed`,
`StoreError`), or SQLite; after `die` the node is started anew from what is on the disk alone. Knows
nothing of links.

    node = HostedNode("north", Ring("north", roster), load_shipped("rescue"))
    node.start(now)
    published = node.handle(Message("medic7", "dens/1/sub/medic7", b"gas is high"), now)
    node.restart(now + 1000)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.node.core.device_protocol import DeviceProtocol
from denwatch.node.core.events import Action, Count, Event, Log, Publish, Write
from denwatch.node.core.home_assistant import Visibility
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.mending import mend_damage
from denwatch.node.core.node import CoreKeys, CoreSettings, Node, build_core
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.peers import PeerProtocol
from denwatch.node.core.peers.item_exchange import PendingDeliveries
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.core.subscriptions import ItemClock, Roles, SubscriberSettings
from denwatch.node.core.updates import Rollout, UpdateImage
from denwatch.node.log import DiskFiles, Writer, encode_record
from denwatch.node.replication.clock import Clocks
from denwatch.node.store import Storage, Store
from denwatch.protocol.frames import HelloAnswer

from simulator.disk import FieldFaults, FieldMedium, FieldStore
from simulator.memory_store import MemoryStore

Watch = Callable[["HostedNode", Log, int], None]


@dataclass(frozen=True)
class HostSettings(CoreSettings):
    """How hosted nodes are set up; times in ms."""

    # All have one vocabulary from the start: none has to tell it to the others.
    subscribers: SubscriberSettings | None = field(
        default_factory=lambda: SubscriberSettings(is_announcing=False)
    )
    database: str | None = None  # path of an SQLite file; None: the memory model of a store
    logs: str | None = None  # folder for log segments in the nodes' own format
    disk_delay: int = 2  # from an event to what is said about it, for the commit

    def with_strategy(self, strategy: str) -> HostSettings:
        """Return these settings with another strategy."""
        assert self.peers is not None, "a strategy is for peers"
        return replace(self, peers=replace(self.peers, strategy=strategy))


class HostedNode:
    """A node that may be up or down. `wall_error` is by how much its machine's clock is wrong.

    Log records go to `watch` as soon as they are on the disk; without one they are kept in `logs`.
    `clock` is one that the node believes instead of measuring the clocks of others.
    """

    def __init__(
        self,
        name: str,
        keys: CoreKeys,
        vocabulary: Vocabulary | None = None,
        settings: HostSettings | None = None,
        watch: Watch | None = None,
        *,
        roles: Roles | None = None,
        clock: ItemClock | None = None,
    ) -> None:
        self.name = name
        self.keys = keys
        self.settings = settings or HostSettings()
        self.medium = FieldMedium()
        self.faults = FieldFaults()
        self.wall_error = 0
        self.time = 0  # of the last event, in the node's own timeline
        self.is_up = False
        self.logs: list[Log] = []
        self.counts: dict[str, int] = {}  # by name, and by name.label where there is a label
        self.defects: list[str] = []  # exceptions that left its event loop
        # Answers that replace those of the subscribers' protocol, for a node without one.
        self.pending: PendingDeliveries | None = None
        self.check_room: Callable[[], bool] | None = None
        self.rollout: tuple[Rollout, dict[bytes, UpdateImage]] | None = None  # of code for devices
        self.visibility: Visibility | None = None  # what Home Assistant may see; None: it is absent
        self.vocabulary = vocabulary or load_shipped("rescue")
        self._watch = watch
        self._roles = roles
        self._clock = clock
        self._starts = 0
        self._base = 0  # the node's time = the simulated time + this

    # Life -----------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        """Start, or start again from the disk alone; raises what the disk raises."""
        self.store = self.open_store()
        self.clocks = Clocks(self.name, self.store.epoch)
        self._base = self.wall_error
        if self._clock is None:
            self._base += self.clocks.restore(self.store, now + self.wall_error)
        self.time = now + self._base
        self.store.apply(mend_damage(self.store, self.time))
        self.store.commit()
        self.vocabularies = self.make_vocabularies()
        self.node = self.build_core()
        self._writer = None
        if self.settings.logs:
            self._writer = Writer(self.store, DiskFiles(self.settings.logs))
        self.node.restore()
        if self.rollout is not None:
            self.devices.updates.replace(*self.rollout)
        self.is_up = True
        if self._watch is not None or self._writer is not None:
            self.settle([Log("start", {"software": "denwatch field"})])

    def open_store(self) -> Storage:
        """Open the store; after a death it is what survived."""
        if self.settings.database is not None:
            return Store(self.settings.database, self.name)
        self.medium.is_open = False
        # No epoch comes twice, even if the disk forgot a start: a machine's clock sees to that.
        self._starts += 1
        return FieldStore(self.name, self.medium, self.faults, first_epoch=self._starts)

    def make_vocabularies(self) -> Vocabularies:
        """Return the vocabularies that a node knows at its start."""
        return Vocabularies(self.vocabulary)

    def build_core(self) -> Node:
        """Return the core, not restored yet."""
        return build_core(
            self.name,
            self.store,
            self.keys,
            self.vocabularies,
            self._clock or self.clocks,
            self.settings,
            roles=self._roles,
            visibility=self.visibility,
            pending=self.pending,
            has_room=self.check_room,
        )

    def die(self) -> None:
        """Lose everything that is not on the disk."""
        self.is_up = False
        if isinstance(self.store, MemoryStore):
            self.store.crash()
        else:
            self.store.close()

    def restart(self, now: int) -> None:
        """Die, and start again from the disk."""
        self.die()
        self.start(now)

    def close(self, now: int) -> None:
        """Stop in order, with all records in segments."""
        if self.is_up:
            self.time = now + self._base
            if self._writer is not None:
                self.settle([Log("stop", {"reason": "the end of the emulation"})])
                self._writer.close(self.time)
            self.is_up = False
            self.store.close()

    # Protocols ------------------------------------------------------------------------------

    @property
    def item_store(self) -> ItemStore:
        """The items that the node holds."""
        return self.node.item_store

    @property
    def subscribers(self) -> SubscriberProtocol:
        """The subscribers' protocol, which the settings must not leave out."""
        return cast("SubscriberProtocol", self.node.protocols.subscribers)

    @property
    def devices(self) -> DeviceProtocol:
        """The devices' protocol, which the settings must not leave out."""
        return cast("DeviceProtocol", self.node.protocols.devices)

    @property
    def peers(self) -> PeerProtocol:
        """The peers' protocol, which the settings must not leave out."""
        return cast("PeerProtocol", self.node.protocols.peers)

    def find_answer(self, device: str) -> HelloAnswer:
        """Return the answer that a device's batches belong to; to a stranger none was given."""
        for known in self.devices.list_devices() if self.is_up else ():
            if known.name == device:
                return HelloAnswer(known.hello[0], *known.answer)
        return HelloAnswer(1, 1, 1)

    # Events ---------------------------------------------------------------------------------

    def handle(self, event: Event, now: int) -> list[Publish]:
        """Handle an event; return what may be sent now that all of it is on the disk."""
        self.time = now + self._base
        return self.settle(self.node.handle(event, self.time))

    def act(self, change: Callable[[Transaction], object], now: int) -> list[Publish]:
        """Let something of the node itself happen, in a transaction of its own."""
        self.time = now + self._base
        return self.settle(self.node.perform(change, self.time))

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        """Write what is to be written, commit, and return what may be sent now."""
        writes: list[Write] = []
        records: list[bytes] = []  # without a writer nobody would move them on
        published: list[Publish] = []
        logs: list[Log] = []
        for action in actions:
            if isinstance(action, Write):
                writes.append(action)
            elif isinstance(action, Publish):
                published.append(action)
            elif isinstance(action, Count):
                self._count(action)
            else:
                logs.append(action)
        if (
            self._writer is not None or self._watch is None
        ):  # a record that does not fit is an error
            records = [self._encode(log) for log in logs]
        if self._writer is None:
            records.clear()  # nobody would move them on
        if writes or records:
            self.store.apply(writes, records)
        self.store.commit()
        if self._watch is None:
            for log in logs:
                self._encode(log)  # raises if it does not fit the table of kinds
            self.logs += logs
        else:  # only what is on the disk has happened
            for log in logs:
                self._watch(self, log, self.time)
        return published

    def _count(self, count: Count) -> None:
        names = (count.name, f"{count.name}.{count.label}") if count.label else (count.name,)
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + count.amount

    def _encode(self, log: Log) -> bytes:
        return encode_record(log.kind, log.fields, self.time, self.clocks.stamp(self.time))

    def find_logs(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the fields of the log records of a kind."""
        return [log.fields for log in self.logs if log.kind == kind]

    def move_log(self) -> None:
        """Move records from the disk into segments."""
        if self._writer is not None and self.is_up:
            self._writer.move(self.time)
            self.store.commit()


def describe_defect(error: BaseException) -> str:
    """Return what a node raised, and where in the product."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "denwatch" in frame.filename] or frames
    where = f" in {own[-1].name}" if own else ""
    return f"{type(error).__name__}{where}: {str(error)[:200]}"
