"""The best possible day: every contact carries everything at once, and everybody tells everybody.

Plays all contacts, subscriptions, notifications and people forward in time once, with a set of bits
a node. Shares no code with the analysis whose answers it is compared with, which searches a graph
of contacts backwards from each notification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from simulator.witness import Span


class Wanted(NamedTuple):
    """Who would have a notification: it and a subscription must be where the person is."""

    note: int
    subscriptions: tuple[int, ...]


class Meeting(NamedTuple):
    """Where and when a person can have a notification at the earliest, and what came last."""

    time: int
    node: str
    awaited: str  # nothing, contact, subscription or person


class Flood:
    """One play. Items are numbered: bit n of a node's set is item n."""

    def __init__(self, births: Mapping[int, tuple[str, int]]) -> None:
        """`births` says where and when each item begins."""
        self._births = dict(births)
        self._items = list(births)
        self._number = {item: number for number, item in enumerate(self._items)}
        self._held: dict[str, int] = {}
        self._links: dict[str, dict[str, None]] = {}
        self._people: dict[str, str] = {}  # where each person is
        self._came: dict[tuple[str, int], int] = {}  # node, item: since when
        self.found: dict[tuple[int, str], Meeting] = {}

    def run(
        self,
        contacts: Iterable[Span],
        stays: Iterable[Span],
        wanted: Mapping[str, Sequence[Wanted]],
    ) -> dict[tuple[int, str], Meeting]:
        """Return by note and person when it could have been delivered, for ever after its birth."""
        events: list[tuple[int, int, tuple[str, ...]]] = []
        for span in contacts:
            events += [(span.begin, 1, span[:2]), (span.end, 0, span[:2])]
        for span in stays:
            events += [(span.begin, 3, span[:2]), (span.end, 2, span[:2])]
        for item, (node, time) in self._births.items():
            events.append((time, 4, (node, str(item))))
        open_: dict[str, dict[int, Wanted]] = {
            person: {each.note: each for each in each_wanted}
            for person, each_wanted in wanted.items()
        }
        for time, group in groupby(sorted(events), key=lambda event: event[0]):
            touched: dict[str, None] = {}
            for _, kind, (one, other) in group:  # of one moment: all changes, then what follows
                self._change(kind, one, other, time)
                touched |= {one: None, other: None}
            for node in touched:
                self._spread(node, time)
            for person, node in self._people.items():
                self._meet(person, node, open_.get(person, {}), time)
        return self.found

    def _change(self, kind: int, one: str, other: str, time: int) -> None:
        if kind == 0:
            self._links.get(one, {}).pop(other, None)
            self._links.get(other, {}).pop(one, None)
        elif kind == 1:
            self._links.setdefault(one, {})[other] = None
            self._links.setdefault(other, {})[one] = None
        elif kind == 2:
            if self._people.get(one) == other:
                del self._people[one]
        elif kind == 3:
            self._people[one] = other
        else:
            item = int(other)
            self._held[one] = self._held.get(one, 0) | 1 << self._number[item]
            self._came[one, item] = time

    def _spread(self, node: str, time: int) -> None:
        """Let all that are linked, directly or through others, have what any of them has."""
        together, waiting = {node: None}, [node]
        while waiting:
            for other in self._links.get(waiting.pop(), ()):
                if other not in together:
                    together[other] = None
                    waiting.append(other)
        everything = 0
        for other in together:
            everything |= self._held.get(other, 0)
        for other in together:
            news = everything & ~self._held.get(other, 0)
            if news:
                self._held[other] = everything
                for item in self._list_items(news):
                    self._came[other, item] = time

    def _list_items(self, bits: int) -> list[int]:
        found = []
        while bits:
            found.append(self._items[(bits & -bits).bit_length() - 1])
            bits &= bits - 1
        return found

    def _meet(self, person: str, node: str, wanted: dict[int, Wanted], time: int) -> None:
        held = self._held.get(node, 0)
        for note, each in list(wanted.items()):
            if not held >> self._number[note] & 1:
                continue
            known = [self._came[node, w] for w in each.subscriptions if held >> self._number[w] & 1]
            if known:
                self.found[note, person] = Meeting(
                    time, node, self._explain(node, note, known, time)
                )
                del wanted[note]

    def _explain(self, node: str, note: int, known: Sequence[int], time: int) -> str:
        if time == self._births[note][1]:
            return "nothing"
        if self._came[node, note] == time:
            return "contact"
        return "subscription" if min(known) == time else "person"
