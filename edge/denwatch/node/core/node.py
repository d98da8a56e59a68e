"""A node's core: takes one event, hands it to the part it concerns, returns the actions.

Deterministic: the same state, events and times give the same actions. It reads no clock, no
socket and no random source; what it reads from the disk is what it wrote there.
"""

from __future__ import annotations

from collections.abc import Sequence

from denwatch.node.core.interface import (
    Acknowledged,
    Action,
    ClockSet,
    Event,
    Listening,
    Message,
    Part,
    PeerDown,
    PeerUp,
    Reader,
)
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.transaction import Transaction


class Node:
    """One DENS node. `parts` are asked in their order; the first that owns a topic has it."""

    def __init__(self, item_store: ItemStore, parts: Sequence[Part]) -> None:
        self.item_store = item_store
        self.parts = tuple(parts)
        self._owners: dict[str, Part] = {}
        for part in self.parts:
            for prefix in part.topics:
                self._owners[prefix] = part
        item_store.attach(self.parts)

    def restore(self, reader: Reader, now: int) -> None:
        """Take up what an earlier run left."""
        self.item_store.restore()
        for part in self.parts:
            part.restore(reader, now)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Return what follows from an event."""
        transaction = Transaction(now)
        self.item_store.begin_transaction()
        if isinstance(event, Message):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.receive(transaction, event)
        elif isinstance(event, Acknowledged):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.acknowledge(transaction, event)
        elif isinstance(event, Listening):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.listen(transaction, event)
        elif isinstance(event, PeerUp | PeerDown):
            for part in self.parts:
                part.meet(transaction, event.name, isinstance(event, PeerUp))
        elif isinstance(event, ClockSet):
            for part in self.parts:
                part.correct_clock(transaction, event.offset)
        else:
            self.item_store.expire(transaction)
            for part in self.parts:
                part.tick(transaction)
        for part in self.parts:
            part.finish(transaction)
        return transaction.actions

    def _find_owner(self, topic: str) -> Part | None:
        """Return the part of a topic: its prefix is the first three levels, `dens/1/<what>/`."""
        end = topic.find("/", len("dens/1/"))
        return self._owners.get(topic[: end + 1]) if end > 0 else None
