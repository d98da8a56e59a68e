"""Marks: what was delivered here, told to other nodes so that they do not deliver it again.

A mark is on the disk with its delivery; many become one item, now and then, or when a node is met.
"""

from __future__ import annotations

import msgspec
from denwatch.node.core.holdings import Holdings
from denwatch.node.core.items import DELIVERED, NEVER, DeliveredBody, Dot, encode_body, read_dot
from denwatch.node.core.subscribers.people import Owner
from denwatch.node.core.subscribers.settings import SubscriberSettings
from denwatch.node.core.subscribers.tables import Mark, Tables, encode_row, join_name, split_name
from denwatch.node.core.turn import Turn

_decoder = msgspec.msgpack.Decoder(Mark)


class Marks:
    """Deliveries that other nodes are not told yet."""

    def __init__(self, holdings: Holdings, tables: Tables, settings: SubscriberSettings) -> None:
        self._holdings = holdings
        self._table = tables.mark
        self._places = tables.place
        self._settings = settings
        self._waiting: dict[str, dict[Dot, int]] = {}  # subscriber: notification: its expiry
        self._told = 0

    def restore(self) -> None:
        """Take up the marks that were not told."""
        for key, row in self._table.scan():
            name, rest = split_name(key)
            self._waiting.setdefault(name, {})[read_dot(rest)] = _decoder.decode(row).expires

    def keep(self, turn: Turn, name: str, dot: Dot, expires: int) -> None:
        """Note that a subscriber has a notification that expires then, in our timeline."""
        self._table.put(turn, join_name(name, dot.key), encode_row(Mark(expires)))
        dots = self._waiting.setdefault(name, {})
        dots[dot] = expires
        if len(dots) >= self._settings.mark_batch:
            self._tell_of(turn, name)

    def note_place(self, turn: Turn, owner: Owner, node: str) -> None:
        """Note where an item was made for somebody; who listens here is here."""
        if not (owner.is_listening and owner.place == self._holdings.name):
            self._set_place(turn, owner, node)

    def _set_place(self, turn: Turn, owner: Owner, node: str) -> None:
        if owner.place != node:
            owner.place = node
            self._places.put(turn, join_name(owner.name), node.encode())

    def tell_place(self, turn: Turn, owner: Owner) -> None:
        """Tell that somebody with subscriptions came here: by a mark, be it one of nothing.

        Nodes that have few copies to give keep them for where a subscriber is.
        """
        here = self._holdings.name
        if not (owner.is_listening and owner.subs) or owner.place == here:
            return
        self._set_place(turn, owner, here)
        if owner.name in self._waiting:
            self._tell_of(turn, owner.name)
            return
        body = encode_body(DeliveredBody(owner.name, []))
        expires = turn.now + self._settings.place_life
        self._holdings.originate(turn, DELIVERED, expires, body, is_signed=False)
        turn.count("places")

    def tell_due(self, turn: Turn) -> None:
        """Tell what others are to know, now and then."""
        if turn.now - self._told >= self._settings.mark_interval:
            self._told = turn.now
            self.tell(turn)

    def tell(self, turn: Turn) -> None:
        """Make items of all marks, one a subscriber."""
        for name in list(self._waiting):
            self._tell_of(turn, name)

    def _tell_of(self, turn: Turn, name: str) -> None:
        dots = self._waiting.pop(name)
        ends = dots.values()
        expires = NEVER if NEVER in ends else max(ends)
        body = DeliveredBody(name, [list(dot) for dot in dots])
        # Signed when it first leaves, like notifications: there may be one for each subscriber.
        self._holdings.originate(turn, DELIVERED, expires, encode_body(body), is_signed=False)
        for dot in dots:
            self._table.put(turn, join_name(name, dot.key), None)
        turn.count("marks", len(dots))
