"""Marks: what was delivered here, told to other nodes so that they do not deliver it again.

A mark is on the disk with its delivery; many become one item, now and then, or when a node is met.
"""

from __future__ import annotations

import msgspec
from denwatch.node.core.interface import Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import DELIVERED, NEVER, DeliveredBody, Dot, encode_body, read_dot
from denwatch.node.core.subscribers.people import Owner
from denwatch.node.core.subscribers.settings import SubscriberSettings
from denwatch.node.core.subscribers.tables import Mark, Tables, encode_row, join_name, split_name
from denwatch.node.core.transaction import Transaction

_decoder = msgspec.msgpack.Decoder(Mark)


class Marks:
    """Deliveries that other nodes are not told yet."""

    def __init__(self, item_store: ItemStore, tables: Tables, settings: SubscriberSettings) -> None:
        self._item_store = item_store
        self._table = tables.mark
        self._places = tables.place
        self._settings = settings
        self._waiting: dict[str, dict[Dot, int]] = {}  # subscriber: notification: its expiry
        self._told = 0

    def restore(self, reader: Reader) -> None:
        """Take up the marks that were not told."""
        for key, row in self._table.scan(reader):
            name, rest = split_name(key)
            self._waiting.setdefault(name, {})[read_dot(rest)] = _decoder.decode(row).expires

    def keep(self, transaction: Transaction, name: str, dot: Dot, expires: int) -> None:
        """Note that a subscriber has a notification that expires then, in our timeline."""
        self._table.put(transaction, join_name(name, dot.key), encode_row(Mark(expires)))
        dots = self._waiting.setdefault(name, {})
        dots[dot] = expires
        if len(dots) >= self._settings.mark_batch:
            self._tell_of(transaction, name)

    def note_place(self, transaction: Transaction, owner: Owner, node: str) -> None:
        """Note where an item was made for somebody; who listens here is here."""
        if not (owner.is_listening and owner.place == self._item_store.name):
            self._set_place(transaction, owner, node)

    def _set_place(self, transaction: Transaction, owner: Owner, node: str) -> None:
        if owner.place != node:
            owner.place = node
            self._places.put(transaction, join_name(owner.name), node.encode())

    def tell_place(self, transaction: Transaction, owner: Owner) -> None:
        """Tell that somebody with subscriptions came here: by a mark, be it one of nothing.

        Nodes that have few copies to give keep them for where a subscriber is.
        """
        here = self._item_store.name
        if not (owner.is_listening and owner.subs) or owner.place == here:
            return
        self._set_place(transaction, owner, here)
        if owner.name in self._waiting:
            self._tell_of(transaction, owner.name)
            return
        body = encode_body(DeliveredBody(owner.name, []))
        expires = transaction.now + self._settings.place_life
        self._item_store.originate(transaction, DELIVERED, expires, body, is_signed=False)
        transaction.count("places")

    def tell_due(self, transaction: Transaction) -> None:
        """Tell what others are to know, now and then."""
        if transaction.now - self._told >= self._settings.mark_interval:
            self._told = transaction.now
            self.tell(transaction)

    def tell(self, transaction: Transaction) -> None:
        """Make items of all marks, one a subscriber."""
        for name in list(self._waiting):
            self._tell_of(transaction, name)

    def _tell_of(self, transaction: Transaction, name: str) -> None:
        dots = self._waiting.pop(name)
        ends = dots.values()
        expires = NEVER if NEVER in ends else max(ends)
        body = DeliveredBody(name, [list(dot) for dot in dots])
        # Signed when it first leaves, like notifications: there may be one for each subscriber.
        self._item_store.originate(
            transaction, DELIVERED, expires, encode_body(body), is_signed=False
        )
        for dot in dots:
            self._table.put(transaction, join_name(name, dot.key), None)
        transaction.count("marks", len(dots))
