"""A node's core: takes one event, hands it to the part it concerns, returns the actions.

Deterministic: the same state, events and times give the same actions. It reads no clock, no
socket and no random source; what it reads from the disk is what it wrote there.
"""

from __future__ import annotations

from collections.abc import Sequence

from denwatch.node.core.holdings import Holdings
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
from denwatch.node.core.turn import Turn


class Node:
    """One DENS node. `parts` are asked in their order; the first that owns a topic has it."""

    def __init__(self, holdings: Holdings, parts: Sequence[Part]) -> None:
        self.holdings = holdings
        self.parts = tuple(parts)
        self._owners: dict[str, Part] = {}
        for part in self.parts:
            for prefix in part.topics:
                self._owners[prefix] = part
        holdings.attach(self.parts)

    def restore(self, reader: Reader, now: int) -> None:
        """Take up what an earlier run left."""
        self.holdings.restore()
        for part in self.parts:
            part.restore(reader, now)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Return what follows from an event."""
        turn = Turn(now)
        self.holdings.begin_turn()
        if isinstance(event, Message):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.receive(turn, event)
        elif isinstance(event, Acknowledged):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.acknowledge(turn, event)
        elif isinstance(event, Listening):
            owner = self._find_owner(event.topic)
            if owner is not None:
                owner.listen(turn, event)
        elif isinstance(event, PeerUp | PeerDown):
            for part in self.parts:
                part.meet(turn, event.name, isinstance(event, PeerUp))
        elif isinstance(event, ClockSet):
            for part in self.parts:
                part.correct_clock(turn, event.offset)
        else:
            self.holdings.expire(turn)
            for part in self.parts:
                part.tick(turn)
        for part in self.parts:
            part.finish(turn)
        return turn.actions

    def _find_owner(self, topic: str) -> Part | None:
        """Return the part of a topic: its prefix is the first three levels, `dens/1/<what>/`."""
        end = topic.find("/", len("dens/1/"))
        return self._owners.get(topic[: end + 1]) if end > 0 else None
