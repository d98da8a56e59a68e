"""A node's core: one event in, one transaction, the actions out.

Deterministic: the same state, events and times give the same actions. It reads no clock, no
socket and no random source; what it reads from the disk is what it wrote there.

The walk of a reading is `handle`, from top to bottom:

    decode, check, store   the protocol that owns the topic opens the message, refuses what is
                           wrong, and stores items; the store collects them as changes
    match, decide          `_report_changes`: who is told which items came and went, in which order
    emit                   `_send`: peers get what they lack; the actions are returned

No protocol calls back the one that called it, and none looks at a store that it was not told
about: after every step, all changes are reported before the next step begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from denwatch.node.core import events
from denwatch.node.core.device_protocol import DeviceKeys, DeviceProtocol
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.home_assistant import HomeAssistantProtocol, HomeSettings, Visibility
from denwatch.node.core.item_store import Added, ItemStore, Removed, RunNumbers, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    CLAIM,
    DELIVERED,
    NOTIFICATION,
    PREFERENCE,
    SUBSCRIPTION,
    VOCABULARY,
)
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.operator_protocol import OperatorProtocol
from denwatch.node.core.peers import PeerProtocol, PeerSettings
from denwatch.node.core.peers.item_exchange import PeerKeys, PendingDeliveries
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.core.subscriptions import ItemClock, Roles, SubscriberSettings
from denwatch.node.core.trust import PROVED, Notices, Proofs, Trust
from denwatch.node.core.updates import DeviceUpdates
from denwatch.node.replication.clock import Clocks

# What a tick consists of, in this order; after a failure each is a transaction of its own.
TICK_PARTS = ("expiry", "trust", "subscribers", "devices", "peers", "home")


@dataclass(frozen=True)
class Protocols:
    """What a node speaks; a test leaves out what it does not need."""

    subscribers: SubscriberProtocol | None = None
    devices: DeviceProtocol | None = None
    peers: PeerProtocol | None = None
    operators: OperatorProtocol | None = None
    home: HomeAssistantProtocol | None = None
    trust: Trust | None = None
    proofs: Proofs | None = None


class Node:
    """One DENS node. `watch` sees every change of the item store; simulations use it."""

    def __init__(
        self,
        item_store: ItemStore,
        reader: events.Reader,
        protocols: Protocols,
        watch: Callable[[Added | Removed], None] | None = None,
    ) -> None:
        self.item_store = item_store
        self.watch = watch
        self._reader = reader
        self.protocols = protocols
        # Who handles a topic, by its first three levels, `dens/1/<what>/`, or by all of it.
        self.receivers: dict[str, Callable[[Transaction, events.Message], None]] = {}
        self._listeners: dict[str, Callable[[Transaction, events.Listening], None]] = {}
        self._acknowledged: dict[str, Callable[[Transaction, events.Acknowledged], None]] = {}
        if protocols.subscribers is not None:
            self.receivers[events.REQUESTS] = protocols.subscribers.receive
            self.receivers[events.REPORTS] = protocols.subscribers.receive
            self._listeners[events.REPLIES] = protocols.subscribers.listen
            self._listeners[events.NOTES] = protocols.subscribers.listen
            self._acknowledged[events.NOTES] = protocols.subscribers.acknowledge
        if protocols.devices is not None:
            self.receivers[events.DEVICES] = protocols.devices.receive
            self._listeners[events.DEVICES] = protocols.devices.listen
            self._acknowledged[events.DEVICES] = protocols.devices.acknowledge
        if protocols.peers is not None:
            self.receivers[events.PEERS] = protocols.peers.receive
        if protocols.operators is not None:
            self.receivers[events.OPERATORS] = protocols.operators.receive
        if protocols.home is not None:
            if protocols.home.status_topic is not None:
                self.receivers[protocols.home.status_topic] = protocols.home.receive
            self._listeners[events.HOME] = protocols.home.listen

    def restore(self) -> None:
        """Load the state that an earlier run stored; once, before anything else."""
        self.item_store.restore(self._reader)
        p = self.protocols
        for before in (p.trust, p.proofs, p.subscribers):
            if before is not None:
                before.restore(self._reader)
        # Subscriptions are read once; the others look at them.
        in_force = None if p.subscribers is None else p.subscribers.list_in_force()
        if p.devices is not None:
            p.devices.restore(self._reader, in_force)
        if p.peers is not None:
            p.peers.restore(self._reader, in_force or ())
        for after in (p.operators, p.home):
            if after is not None:
                after.restore(self._reader)

    def handle(self, event: events.Event, now: int) -> list[events.Action]:
        """Return what follows from an event."""
        transaction = Transaction(now, self._reader)
        if isinstance(event, events.Message):
            topic = event.topic
            receive = self.receivers.get(_find_prefix(topic)) or self.receivers.get(topic)
            if receive is not None:
                receive(transaction, event)
        elif isinstance(event, events.Acknowledged):
            acknowledge = self._acknowledged.get(_find_prefix(event.topic))
            if acknowledge is not None:
                acknowledge(transaction, event)
        elif isinstance(event, events.Listening):
            listen = self._listeners.get(_find_prefix(event.topic))
            if listen is not None:
                listen(transaction, event)
        elif isinstance(event, events.PeerUp | events.PeerDown):
            self._meet(transaction, event.name, isinstance(event, events.PeerUp))
        elif isinstance(event, events.ClockSet):
            if self.protocols.peers is not None:
                self.protocols.peers.correct_clock(transaction, event.offset)
        else:
            for part in (event.part,) if event.part else TICK_PARTS:
                self._tick(transaction, part)
        self._report_changes(transaction)
        self._send(transaction)
        return transaction.actions

    def perform(self, act: Callable[[Transaction], object], now: int) -> list[events.Action]:
        """Return what follows from something that this node does by itself."""
        transaction = Transaction(now, self._reader)
        act(transaction)
        self._report_changes(transaction)
        self._send(transaction)
        return transaction.actions

    def _meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        """Begin or end a contact, after all deliveries became items that can be exchanged."""
        if self.protocols.subscribers is not None:
            self.protocols.subscribers.report_receipts(transaction)
            self._report_changes(transaction)
        if self.protocols.peers is not None:
            self.protocols.peers.meet(transaction, peer, is_up)

    def _tick(self, transaction: Transaction, part: str) -> None:
        """Do what is due of one part."""
        if part == "expiry":
            self.item_store.expire(transaction)
        else:
            protocol = getattr(self.protocols, part)
            if protocol is not None:
                protocol.tick(transaction)
        self._report_changes(transaction)

    def _report_changes(self, transaction: Transaction) -> None:
        """Tell everybody concerned which items came and went, until nothing new came."""
        while transaction.changes:
            changes, transaction.changes = transaction.changes, []
            for change in changes:
                if isinstance(change, Added):
                    self._report_added(transaction, change)
                else:
                    self._report_removed(transaction, change)
                if self.watch is not None:
                    self.watch(change)

    def _report_added(self, transaction: Transaction, change: Added) -> None:
        items, source = change
        kind = items[0].kind
        subscribers = self.protocols.subscribers
        if subscribers is not None:
            if kind == NOTIFICATION:
                subscribers.add_notifications(transaction, items, source)
            elif kind == SUBSCRIPTION:
                subscribers.add_subscriptions(transaction, items, source)
            elif kind == DELIVERED:
                subscribers.add_receipts(transaction, items, source)
            elif kind == VOCABULARY:
                subscribers.add_vocabularies(transaction, items, source)
            elif kind == ANNOUNCEMENT:
                subscribers.add_announcements(transaction, items)
            elif kind == PREFERENCE:
                subscribers.add_preferences(transaction, items)
            elif kind == CLAIM:
                subscribers.add_claims(transaction, items)
        if self.protocols.devices is not None and kind == SUBSCRIPTION:
            self.protocols.devices.add_subscriptions(transaction, items)
        if self.protocols.peers is not None:
            self.protocols.peers.add_items(transaction, items, source)
        if self.protocols.home is not None and kind == NOTIFICATION and not source:
            self.protocols.home.show_readings(transaction, items)
        if self.protocols.proofs is not None and kind in PROVED:
            self.protocols.proofs.add(transaction, items)

    def _report_removed(self, transaction: Transaction, change: Removed) -> None:
        item, reason, source = change
        subscribers = self.protocols.subscribers
        if subscribers is not None:
            if item.kind == NOTIFICATION:
                subscribers.remove_notification(transaction, item, reason)
            elif item.kind == SUBSCRIPTION:
                subscribers.remove_subscription(transaction, item, reason)
            elif item.kind == DELIVERED:
                subscribers.remove_receipts(transaction, item)
            elif item.kind == ANNOUNCEMENT:
                subscribers.directory.remove(item.dot)
            elif item.kind == PREFERENCE:
                subscribers.remove_preference(transaction, item)
            elif item.kind == CLAIM:
                subscribers.remove_claim(transaction, item)
        if self.protocols.devices is not None and item.kind == SUBSCRIPTION:
            self.protocols.devices.remove_subscription(transaction, item)
        if self.protocols.peers is not None:
            self.protocols.peers.remove_item(transaction, item, reason, source)
        if self.protocols.proofs is not None and item.kind in PROVED:
            self.protocols.proofs.note_removed(transaction, item, reason)

    def _send(self, transaction: Transaction) -> None:
        """Send peers what they lack, now that everything else of this transaction is known."""
        if self.protocols.peers is not None:
            self.protocols.peers.finish(transaction)


def _find_prefix(topic: str) -> str:
    """Return the first three levels of a topic, `dens/1/<what>/`."""
    return topic[: topic.find("/", len("dens/1/")) + 1]


# Putting a core together -----------------------------------------------------------------------


class CoreStore(events.Reader, Protocol):
    """The durable state that a core reads; `denwatch.node.store` has the real one."""

    @property
    def epoch(self) -> int:
        """How often the store was opened: the node's boot epoch."""


class CoreKeys(DeviceKeys, PeerKeys, Protocol):
    """What a core needs of a keyring; `denwatch.node.security.keyring` has the real one."""

    def sign(self, data: bytes) -> bytes:
        """Return this node's signature."""


@dataclass(frozen=True)
class CoreSettings:
    """How a core's protocols behave. A protocol whose settings are None is left out."""

    subscribers: SubscriberSettings | None = field(default_factory=SubscriberSettings)
    devices: DeviceSettings | None = field(default_factory=DeviceSettings)
    peers: PeerSettings | None = field(default_factory=PeerSettings)
    follows_plan: bool | None = None  # whether an operator's plan is used; None: no operators
    home: HomeSettings | None = None  # None: what Home Assistant still shows is withdrawn


def build_core(
    name: str,
    store: CoreStore,
    keys: CoreKeys,
    vocabularies: Vocabularies,
    clocks: ItemClock,
    settings: CoreSettings,
    *,
    roles: Roles | None = None,
    visibility: Visibility | None = None,
    notices: Notices | None = None,
    pending: PendingDeliveries | None = None,
    has_room: Callable[[], bool] | None = None,
    numbers: RunNumbers | None = None,
    updates: DeviceUpdates | None = None,
) -> Node:
    """Put a node's core together; nothing is restored yet.

    `roles`: what subscribers may see, everything if None. `visibility`: what Home Assistant may
    see; None: there is none. `notices`: the keyring whose revocations travel. `pending` and
    `has_room` replace what the subscribers' protocol answers to peers and devices. `numbers`: those
    of the core that this one replaces within a run. `updates`: what devices are to be updated to.
    """
    item_store = ItemStore(name, store.epoch, keys.sign, clocks.localise, numbers)
    proofs = Proofs(item_store, keys)
    subscribers = devices = peers = operators = home = None
    if settings.subscribers is not None:
        subscribers = served = SubscriberProtocol(
            item_store,
            vocabularies,
            roles=roles,
            clock=clocks,
            settings=settings.subscribers,
            proofs=proofs,
        )
        pending = pending or served
        has_room = has_room or (lambda: not served.is_full)
    if settings.devices is not None:
        devices = DeviceProtocol(
            item_store,
            keys,
            vocabularies,
            clocks.localise,
            settings.devices,
            has_room=has_room or (lambda: True),
        )
        devices.updates = updates or devices.updates
        if subscribers is not None:
            subscribers.use_placement(devices.explain)
    trust = None if notices is None else Trust(item_store, notices)
    if settings.peers is not None:
        assert pending is not None, "peers ask who waits for a notification"
        assert isinstance(clocks, Clocks), "peers measure each other's clocks"
        peers = PeerProtocol(item_store, keys, pending, clocks, settings.peers, trust)
        if settings.follows_plan is not None:
            operators = OperatorProtocol(
                item_store,
                peers.validator.judge,
                peers.use_strategy,
                is_following=settings.follows_plan,
            )
    if visibility is not None:
        assert devices is not None, "Home Assistant shows devices"
        registered = devices.list_devices
        home = HomeAssistantProtocol(
            name,
            vocabularies.find_event,
            lambda: (device for device in registered() if keys.list_key_ids(device.name)),
            visibility,
            clocks.show,
            settings.home,
        )
    protocols = Protocols(subscribers, devices, peers, operators, home, trust, proofs)
    return Node(item_store, store, protocols)
