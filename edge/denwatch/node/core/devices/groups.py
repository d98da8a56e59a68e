"""Devices that sense the same and have the same room: which active wishes they get.

As long as all of them fit, they get all. Otherwise those come first that serve most subscriptions,
their own and the ones they cover, then those with the highest scores; the rest is counted, and the
log says so. Choosing anew is work for a tick, not for every subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from denwatch.node.core.devices.senses import Change, Sense, SenseKey
from denwatch.node.core.devices.wishes import HEAD, measure_wish, name_head


class GroupKey(NamedTuple):
    """What devices have in common that get the same wishes."""

    senses: tuple[SenseKey, ...]
    capacity: int


class Room:
    """The bytes that wishes take on a device: each its own, and a head for each set of features."""

    def __init__(self) -> None:
        self.used = 0
        self._heads: dict[bytes, int] = {}

    def measure(self, body: bytes) -> int:
        """Return what one more would take."""
        return measure_wish(body) + (0 if name_head(body) in self._heads else HEAD)

    def add(self, body: bytes) -> None:
        """Take room for a wish."""
        head = name_head(body)
        self.used += self.measure(body)
        self._heads[head] = self._heads.get(head, 0) + 1

    def remove(self, body: bytes) -> None:
        """Give its room back."""
        head = name_head(body)
        self._heads[head] -= 1
        if not self._heads[head]:
            del self._heads[head]
        self.used -= self.measure(body)


class Group:
    """What one kind of device shall have installed."""

    def __init__(self, capacity: int, senses: Sequence[Sense]) -> None:
        self.capacity = capacity
        self.senses = tuple(senses)
        self.selected: dict[bytes, Sense] = {}
        self.is_stale = False  # a choice may have to be made
        self._room = Room()
        for sense in senses:
            for body in sense.active:
                self._select(body, sense)

    @property
    def is_settled(self) -> bool:
        """Whether no wish waits for its place: only then is it known what devices need not have."""
        return not any(sense.waiting for sense in self.senses)

    def count_omitted(self) -> int:
        """Return how many active wishes find no room."""
        return sum(len(sense.active) for sense in self.senses) - len(self.selected)

    def find_lease(self, body: bytes) -> int:
        """Return until when a wish must stay on the devices; 0: they shall not have it."""
        sense = self.selected.get(body)
        return 0 if sense is None else sense.find_lease(body)

    def follow(self, sense: Sense, change: Change) -> list[bytes]:
        """Take over what changed in one of the senses; return what devices must hear of."""
        told = [body for body in change.dropped if self._deselect(body)]
        if told and self.count_omitted():
            self.is_stale = True  # somebody else fits now
        told += [body for body in change.added if self._select(body, sense)]
        told += [body for body in change.renewed if body in self.selected]
        return told

    def choose(self) -> list[bytes]:
        """Choose anew if that is due: the best first; return what devices must hear of."""
        if not self.is_stale:
            return []
        self.is_stale = False
        before = self.selected
        self.selected = {}
        self._room = Room()
        ranked = []
        for sense in self.senses:
            for body in sense.active:
                served, score = sense.rate(body)
                ranked.append((-served, -score, len(body), body, sense))
        ranked.sort(key=lambda row: row[:4])
        for *_, body, sense in ranked:
            self._select(body, sense)
        self.is_stale = False
        changed = [body for body in before if body not in self.selected]
        return changed + [body for body in self.selected if body not in before]

    def _select(self, body: bytes, sense: Sense) -> bool:
        if self._room.used + self._room.measure(body) > self.capacity:
            self.is_stale = True
            return False
        self._room.add(body)
        self.selected[body] = sense
        return True

    def _deselect(self, body: bytes) -> bool:
        if self.selected.pop(body, None) is None:
            return False
        self._room.remove(body)
        return True
