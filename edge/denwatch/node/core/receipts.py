"""Receipts: which subscriber has which notification, as other nodes hear of it.

A delivery is on the disk together with its receipt (`sub.mark`); many receipts become one item, now
and then, or when a node is met, so that others do not deliver it again. A receipt of nothing
reports that a subscriber came here: nodes that have few copies to give keep them for where a
subscriber is. Only this file makes receipts.

A receipt is believed if its origin made the notification, or proves by a hash of the notification's
signature that it had it (`Pending.is_proved`). So a member that lies can withhold from a subscriber
only what it was sent, and nothing that does not exist yet.
"""

from __future__ import annotations

import msgspec
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import DELIVERED, NEVER, DeliveredBody, Dot, encode_body, read_dot
from denwatch.node.core.subscriptions import (
    SubscriberSettings,
    SubscriberState,
    Subscriptions,
    encode_row,
    join_name,
    split_name,
)

RECEIPTS = "sub.mark"  # subscriber, dot: has it, which other nodes do not know yet


class ReceiptRow(msgspec.Struct, array_like=True):
    """Somebody has a notification that expires then, in our timeline; the proof that we had it."""

    expires: int
    proof: bytes = b""


_receipt_decoder = msgspec.msgpack.Decoder(ReceiptRow)


class Receipts:
    """Deliveries that other nodes do not know of yet."""

    def __init__(
        self, item_store: ItemStore, subscriptions: Subscriptions, settings: SubscriberSettings
    ) -> None:
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._settings = settings
        self._waiting: dict[str, dict[Dot, ReceiptRow]] = {}  # by subscriber and notification
        self._reported = 0  # when all were reported last

    def restore(self, reader: Reader) -> None:
        """Load the receipts that were not reported."""
        for key, row in reader.scan(RECEIPTS):
            name, rest = split_name(key)
            self._waiting.setdefault(name, {})[read_dot(rest)] = _receipt_decoder.decode(row)

    def keep(
        self, transaction: Transaction, name: str, dot: Dot, expires: int, proof: bytes
    ) -> None:
        """Note that a subscriber has a notification that expires then, in our timeline."""
        row = ReceiptRow(expires, proof)
        transaction.write(RECEIPTS, join_name(name, dot.key), encode_row(row))
        dots = self._waiting.setdefault(name, {})
        dots[dot] = row
        if len(dots) >= self._settings.receipt_batch:
            self._report_subscriber(transaction, name)

    def note_place(self, transaction: Transaction, subscriber: SubscriberState, node: str) -> None:
        """Note where an item was made for a subscriber; who listens here is here."""
        if not (subscriber.is_listening and subscriber.place == self._item_store.name):
            self._subscriptions.set_place(transaction, subscriber, node)

    def report_place(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Report that a subscriber came here: by a receipt, be it one of nothing."""
        here = self._item_store.name
        is_here = subscriber.is_listening and subscriber.subscriptions
        if not is_here or subscriber.place == here:
            return
        self._subscriptions.set_place(transaction, subscriber, here)
        if subscriber.name in self._waiting:
            self._report_subscriber(transaction, subscriber.name)
            return
        body = encode_body(DeliveredBody(subscriber.name, []))
        expires = transaction.now + self._settings.place_life
        self._item_store.originate(transaction, DELIVERED, expires, body, is_signed=False)
        transaction.count("places")

    def report_due(self, transaction: Transaction) -> None:
        """Report everything, if that was not done for a while."""
        if transaction.now - self._reported >= self._settings.receipt_interval:
            self._reported = transaction.now
            self.report(transaction)

    def report(self, transaction: Transaction) -> None:
        """Make items of all receipts, one for each subscriber."""
        for name in list(self._waiting):
            self._report_subscriber(transaction, name)

    def _report_subscriber(self, transaction: Transaction, name: str) -> None:
        dots = self._waiting.pop(name)
        ends = [row.expires for row in dots.values()]
        expires = NEVER if NEVER in ends else max(ends)
        notes = [[*dot, row.proof] if row.proof else [*dot] for dot, row in dots.items()]
        body = DeliveredBody(name, notes)
        # Signed when it first leaves, like notifications: there may be one for each subscriber.
        self._item_store.originate(
            transaction, DELIVERED, expires, encode_body(body), is_signed=False
        )
        for dot in dots:
            transaction.write(RECEIPTS, join_name(name, dot.key), None)
        transaction.count("marks", len(dots))
