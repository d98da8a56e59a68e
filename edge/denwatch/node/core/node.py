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
from dataclasses import dataclass

from denwatch.node.core.device_protocol import DeviceProtocol
from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    OPERATORS,
    PEERS,
    REPLIES,
    REQUESTS,
    Acknowledged,
    Action,
    ClockSet,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Reader,
)
from denwatch.node.core.home_assistant import HomeAssistantProtocol
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION, VOCABULARY
from denwatch.node.core.operator_protocol import OperatorProtocol
from denwatch.node.core.peers import PeerProtocol
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.core.transaction import Added, Removed, Transaction
from denwatch.node.core.trust import Trust


@dataclass(frozen=True)
class Protocols:
    """What a node speaks; a test leaves out what it does not need."""

    subscribers: SubscriberProtocol | None = None
    devices: DeviceProtocol | None = None
    peers: PeerProtocol | None = None
    operators: OperatorProtocol | None = None
    home: HomeAssistantProtocol | None = None
    trust: Trust | None = None


class Node:
    """One DENS node. `watch` sees every change of the item store; simulations use it."""

    def __init__(
        self,
        item_store: ItemStore,
        reader: Reader,
        protocols: Protocols,
        watch: Callable[[Added | Removed], None] | None = None,
    ) -> None:
        self.item_store = item_store
        self.watch = watch
        self._reader = reader
        self._protocols = protocols
        # Who handles a topic, by its first three levels, `dens/1/<what>/`.
        self.receivers: dict[str, Callable[[Transaction, Message], None]] = {}
        self._listeners: dict[str, Callable[[Transaction, Listening], None]] = {}
        self._acknowledged: dict[str, Callable[[Transaction, Acknowledged], None]] = {}
        if protocols.subscribers is not None:
            self.receivers[REQUESTS] = protocols.subscribers.receive
            self._listeners[REPLIES] = protocols.subscribers.listen
            self._listeners[NOTES] = protocols.subscribers.listen
            self._acknowledged[NOTES] = protocols.subscribers.acknowledge
        if protocols.devices is not None:
            self.receivers[DEVICES] = protocols.devices.receive
            self._listeners[DEVICES] = protocols.devices.listen
            self._acknowledged[DEVICES] = protocols.devices.acknowledge
        if protocols.peers is not None:
            self.receivers[PEERS] = protocols.peers.receive
        if protocols.operators is not None:
            self.receivers[OPERATORS] = protocols.operators.receive

    def restore(self) -> None:
        """Load the state that an earlier run stored; once, before anything else."""
        self.item_store.restore(self._reader)
        p = self._protocols
        for protocol in (p.trust, p.subscribers, p.devices, p.peers, p.operators, p.home):
            if protocol is not None:
                protocol.restore(self._reader)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Return what follows from an event."""
        transaction = Transaction(now, self._reader)
        if isinstance(event, Message):
            receive = self.receivers.get(_find_prefix(event.topic))
            if receive is not None:
                receive(transaction, event)
        elif isinstance(event, Acknowledged):
            acknowledge = self._acknowledged.get(_find_prefix(event.topic))
            if acknowledge is not None:
                acknowledge(transaction, event)
        elif isinstance(event, Listening):
            listen = self._listeners.get(_find_prefix(event.topic))
            if listen is not None:
                listen(transaction, event)
        elif isinstance(event, PeerUp | PeerDown):
            self._meet(transaction, event.name, isinstance(event, PeerUp))
        elif isinstance(event, ClockSet):
            if self._protocols.peers is not None:
                self._protocols.peers.correct_clock(transaction, event.offset)
        else:
            self._tick(transaction)
        self._report_changes(transaction)
        self._send(transaction)
        return transaction.actions

    def perform(self, act: Callable[[Transaction], object], now: int) -> list[Action]:
        """Return what follows from something that this node does by itself."""
        transaction = Transaction(now, self._reader)
        act(transaction)
        self._report_changes(transaction)
        self._send(transaction)
        return transaction.actions

    def _meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        """Begin or end a contact, after all deliveries became items that can be exchanged."""
        if self._protocols.subscribers is not None:
            self._protocols.subscribers.report_receipts(transaction)
            self._report_changes(transaction)
        if self._protocols.peers is not None:
            self._protocols.peers.meet(transaction, peer, is_up)

    def _tick(self, transaction: Transaction) -> None:
        """Do what is due, one protocol after the other."""
        self.item_store.expire(transaction)
        self._report_changes(transaction)
        p = self._protocols
        for protocol in (p.trust, p.subscribers, p.devices, p.peers, p.home):
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
        subscribers = self._protocols.subscribers
        if subscribers is not None:
            if kind == NOTIFICATION:
                subscribers.add_notifications(transaction, items, source)
            elif kind == SUBSCRIPTION:
                subscribers.add_subscriptions(transaction, items, source)
            elif kind == DELIVERED:
                subscribers.add_receipts(transaction, items, source)
            elif kind == VOCABULARY:
                subscribers.add_vocabularies(transaction, items, source)
        if self._protocols.devices is not None and kind == SUBSCRIPTION:
            self._protocols.devices.add_subscriptions(transaction, items)
        if self._protocols.peers is not None:
            self._protocols.peers.add_items(transaction, items, source)
        if self._protocols.home is not None and kind == NOTIFICATION and not source:
            self._protocols.home.show_readings(transaction, items)

    def _report_removed(self, transaction: Transaction, change: Removed) -> None:
        item, reason, source = change
        subscribers = self._protocols.subscribers
        if subscribers is not None:
            if item.kind == NOTIFICATION:
                subscribers.remove_notification(transaction, item, reason)
            elif item.kind == SUBSCRIPTION:
                subscribers.remove_subscription(transaction, item, reason)
            elif item.kind == DELIVERED:
                subscribers.remove_receipts(transaction, item)
        if self._protocols.devices is not None and item.kind == SUBSCRIPTION:
            self._protocols.devices.remove_subscription(transaction, item)
        if self._protocols.peers is not None:
            self._protocols.peers.remove_item(transaction, item, reason, source)

    def _send(self, transaction: Transaction) -> None:
        """Send peers what they lack, now that everything else of this transaction is known."""
        if self._protocols.peers is not None:
            self._protocols.peers.finish(transaction)


def _find_prefix(topic: str) -> str:
    """Return the first three levels of a topic, `dens/1/<what>/`."""
    return topic[: topic.find("/", len("dens/1/")) + 1]
