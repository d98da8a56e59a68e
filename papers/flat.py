"""FNIF and FNIFS: flat lists without predicate indexing, features first (DENS paper, Fig. 5a, 5b).

Both compare feature masks before any membership function is applied. FNIF walks all subscriptions
in the order of their arrival; FNIFS keeps them sorted by features, so that the walk starts at the
event's first mask, ends after the notification's own (a subset is never the larger number), and
tests each distinct mask once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

from papers.evaluation import Entry, Readings, evaluate, join_key


class FNIF:
    """The flat algorithm without indexing: one pass over all subscriptions."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        self._entries[id] = self._prepare(id, subscription)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        del self._entries[id]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id."""
        readings = Readings(notification)
        hits = []
        for entry in self._find_candidates(readings):
            hit = self._evaluate(entry, readings, age)
            if hit:
                hits.append(hit._replace(id=entry.id))
        hits.sort()
        return hits

    def filter(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return one hit for each distinct mask: what a publisher sends at the source.

        Once a mask has a hit, its notification goes out, and only other masks are still of
        interest. The hits stand in the order in which they were found.
        """
        readings = Readings(notification)
        sent: set[int] = set()
        hits = []
        for entry in self._find_candidates(readings):
            if entry.key in sent:
                continue
            hit = self._evaluate(entry, readings, age)
            if hit:
                sent.add(entry.key)
                hits.append(hit._replace(id=entry.id))
        return hits

    def _prepare(self, id: int, subscription: SubscriptionVector) -> Entry:
        return Entry(id, subscription)

    def _evaluate(self, entry: Entry, readings: Readings, age: int) -> SubscriptionMatch | None:
        return evaluate(entry, readings, age)

    def _find_candidates(self, readings: Readings) -> Iterator[Entry]:
        outside = readings.outside
        event = readings.event << 16
        for entry in self._entries.values():
            if entry.key & outside == event:
                yield entry


class FNIFS(FNIF):
    """The flat algorithm over subscriptions sorted by their features."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[int] = []
        self._runs: dict[int, dict[int, Entry]] = {}

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if id in self._entries:
            self.remove(id)
        super().add(id, subscription)
        entry = self._entries[id]
        if entry.key not in self._runs:
            self._runs[entry.key] = {}
            insort(self._keys, entry.key)
        self._runs[entry.key][id] = entry

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        key = self._entries[id].key
        super().remove(id)
        del self._runs[key][id]
        if not self._runs[key]:
            del self._runs[key]
            del self._keys[bisect_left(self._keys, key)]

    def _find_candidates(self, readings: Readings) -> Iterator[Entry]:
        first = bisect_left(self._keys, join_key(readings.event, 0))
        stop = bisect_right(self._keys, readings.key)
        for at in range(first, stop):
            key = self._keys[at]
            if readings.admits(key):
                yield from self._runs[key].values()
