"""Receipts: which subscriber has which notification, as other nodes hear of it.

A delivery is on the disk together with its receipt (`sub.mark`); many receipts become one item, now
and then, or when a node is met, so that others do not deliver it again. A receipt of nothing
reports that a subscriber came here: nodes that have few copies to give keep them for where a
subscriber is. Only this file makes receipts.

A receipt is believed if its origin made the notification, or proves by a hash of the notification's
signature that it had it (`Pending.is_proved`). So a member that lies can withhold from a subscriber
only what it was sent, and nothing that does not exist yet.

A receipt of what counts against a top-k brings the notification along, signed by its origin, with
the time of the decision (`CountedNote`): so the next node counts it, though it never had it. It is
kept (`sub.counted`) until the receipt ends, since its subscriptions may come later than it.
"""

from __future__ import annotations

import msgspec
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    DELIVERED,
    NEVER,
    NOTIFICATION,
    CountedNote,
    DeliveredBody,
    Dot,
    encode_body,
    read_dot,
)
from denwatch.node.core.subscriptions import (
    SubscriberSettings,
    SubscriberState,
    Subscriptions,
    encode_row,
    join_name,
    split_name,
)

RECEIPTS = "sub.mark"  # subscriber, dot: has it, which other nodes do not know yet
COUNTED = "sub.counted"  # subscriber, dot: another node delivered it, and it counts


class ReceiptRow(msgspec.Struct, array_like=True):
    """Somebody has a notification that expires then, in our timeline; the proof that we had it."""

    expires: int
    proof: bytes = b""
    counted: tuple[int, int, list[int]] | None = None  # decided, turn, subscriptions


class CountedRow(msgspec.Struct, array_like=True):
    """What another node delivered; `decided` is in our timeline, the rest as it was said."""

    decided: int
    turn: int
    ids: list[int]
    expires: int
    body: bytes
    signature: bytes


_counted_decoder = msgspec.msgpack.Decoder(CountedRow)
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
        self._unwritten: dict[tuple[str, Dot], ReceiptRow] = {}  # those that are not on the disk
        self._reported = 0  # when all were reported last
        self._counted: dict[str, dict[Dot, CountedRow]] = {}  # by subscriber and notification

    def restore(self, reader: Reader) -> None:
        """Load the receipts that were not reported."""
        for key, row in reader.scan(RECEIPTS):
            name, rest = split_name(key)
            self._waiting.setdefault(name, {})[read_dot(rest)] = _receipt_decoder.decode(row)
        for key, row in reader.scan(COUNTED):
            name, rest = split_name(key)
            self._counted.setdefault(name, {})[read_dot(rest)] = _counted_decoder.decode(row)
            self._subscriptions.find_subscriber(name).is_counted = False

    def keep(self, transaction: Transaction, name: str, dot: Dot, row: ReceiptRow) -> None:
        """Note that a subscriber has a notification; `flush` writes it, unless it is reported."""
        dots = self._waiting.setdefault(name, {})
        if dot not in dots:
            self._unwritten[name, dot] = row
        dots[dot] = row
        if len(dots) >= self._settings.receipt_batch:
            self._report_subscriber(transaction, name)

    def flush(self, transaction: Transaction) -> None:
        """Write what was kept in this transaction and not reported in it."""
        for (name, dot), row in self._unwritten.items():
            transaction.write(RECEIPTS, join_name(name, dot.key), encode_row(row))
        self._unwritten.clear()

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
        notes = [self._write_note(transaction, dot, row) for dot, row in dots.items()]
        body = DeliveredBody(name, notes)
        # Signed when it first leaves, like notifications: there may be one for each subscriber.
        self._item_store.originate(
            transaction, DELIVERED, expires, encode_body(body), is_signed=False, said=body
        )
        for dot in dots:
            if self._unwritten.pop((name, dot), None) is None:
                transaction.write(RECEIPTS, join_name(name, dot.key), None)
        transaction.count("marks", len(dots))

    def _write_note(self, transaction: Transaction, dot: Dot, row: ReceiptRow) -> list[object]:
        if row.counted is not None:
            item = self._item_store.get(transaction, NOTIFICATION, dot)
            if item is not None:
                item = item if item.signature else self._item_store.sign(item)
                return [
                    *dot,
                    row.proof,
                    [*row.counted, item.expires, item.body, item.signature],
                ]
        return [*dot, row.proof] if row.proof else [*dot]

    # What other nodes delivered -------------------------------------------------------------

    def keep_counted(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        dot: Dot,
        note: CountedNote,
        decided: int,
    ) -> None:
        """Note what counts against a top-k; `decided` is when that was, in our timeline."""
        row = CountedRow(decided, *note[1:])
        self._counted.setdefault(subscriber.name, {})[dot] = row
        transaction.write(COUNTED, join_name(subscriber.name, dot.key), encode_row(row))
        subscriber.is_counted = False

    def forget_counted(self, transaction: Transaction, name: str, dot: Dot) -> None:
        """Forget it: its receipt has ended."""
        if self._counted.get(name, {}).pop(dot, None) is not None:
            transaction.write(COUNTED, join_name(name, dot.key), None)

    def find_counted(self, name: str) -> dict[Dot, CountedRow]:
        """Return what other nodes delivered to a subscriber and brought along."""
        return self._counted.get(name, {})
