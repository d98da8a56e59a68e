"""The earliest arrival possible: one item through a network of contacts that come and go. Pure.

A contact is a closed span of time in which two nodes can hand over anything at once. Nothing could
have been faster than what this file finds, so it is what replication is measured against: no limit
of bandwidth or of copies, and every contact known in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NEVER = np.iinfo(np.int64).max
Times = npt.NDArray[np.int64]


class Contact(NamedTuple):
    """Two nodes with a link between them from `begin` to `end`, both included; ms."""

    first: str
    second: str
    begin: int
    end: int


class Stay(NamedTuple):
    """A subscriber at a node from `begin` to `end`, both included; ms."""

    node: str
    begin: int
    end: int


class Graph:
    """The contacts of a network, by node, in the order in which they end."""

    def __init__(self, contacts: Iterable[Contact], names: Iterable[str] = ()) -> None:
        contacts = list(contacts)
        found = {name for contact in contacts for name in contact[:2]} | set(names)
        self.names = sorted(found)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        rows = sorted(
            (self.numbers[one], contact.end, contact.begin, self.numbers[other])
            for contact in contacts
            for one, other in (contact[:2], contact[1::-1])
        )
        table = np.array(rows, np.int64).reshape(-1, 4)
        self._starts = np.searchsorted(table[:, 0], np.arange(len(self.names) + 1))
        self._ends = np.ascontiguousarray(table[:, 1])
        self._begins = np.ascontiguousarray(table[:, 2])
        self._others = np.ascontiguousarray(table[:, 3])

    def find_arrivals(self, origin: str, time: int, until: int = NEVER) -> Times:
        """Return when each node can have an item that `origin` has at `time`, NEVER if it cannot.

        Dijkstra's algorithm; a node that has it at t hands it over in each contact that ends at t
        or later. Nothing moves after `until`.
        """
        arrivals = np.full(len(self.names), NEVER, np.int64)
        if origin not in self.numbers or time > until:
            return arrivals
        waiting = arrivals.copy()
        arrivals[self.numbers[origin]] = waiting[self.numbers[origin]] = time
        while True:
            node = int(waiting.argmin())
            now = waiting[node]
            if now == NEVER:
                return arrivals
            waiting[node] = NEVER
            first, last = self._starts[node], self._starts[node + 1]
            first += np.searchsorted(self._ends[first:last], now)
            others = self._others[first:last]
            times = np.maximum(self._begins[first:last], now)
            is_better = (times < arrivals[others]) & (times <= until)
            if is_better.any():
                others, times = others[is_better], times[is_better]
                np.minimum.at(arrivals, others, times)
                np.minimum.at(waiting, others, times)

    def read(self, arrivals: Times, node: str) -> int:
        """Return when a node has it."""
        number = self.numbers.get(node)
        return NEVER if number is None else int(arrivals[number])


class Meeting(NamedTuple):
    """Where and when somebody can have something at the earliest, and what that waited for."""

    time: int
    node: str
    awaited: str  # nothing, contact, subscription or person


def find_meeting(
    graph: Graph, note: Times, subscriptions: Iterable[Times], stays: Iterable[Stay], until: int
) -> Meeting | None:
    """Return when a subscriber can have a notification at the earliest; None if at no time.

    It takes the notification, one of the matching subscriptions and the subscriber at one node.
    """
    asked = list(subscriptions)
    born = int(note.min(initial=NEVER))
    best: Meeting | None = None
    for stay in stays:
        here = graph.read(note, stay.node)
        known = min((graph.read(times, stay.node) for times in asked), default=NEVER)
        time = max(here, known, stay.begin)
        if time > min(stay.end, until) or time == NEVER or (best and best.time <= time):
            continue
        if time == born:
            awaited = "nothing"
        elif time == here:
            awaited = "contact"
        else:
            awaited = "subscription" if time == known else "person"
        best = Meeting(time, stay.node, awaited)
    return best


def group_stays(rows: Iterable[tuple[str, str, int, int]]) -> Mapping[str, list[Stay]]:
    """Return the stays of each subscriber, in order, from (subscriber, node, begin, end)."""
    stays: dict[str, list[Stay]] = {}
    for subscriber, node, begin, end in sorted(rows, key=lambda row: (row[0], row[2], row[3])):
        stays.setdefault(subscriber, []).append(Stay(node, begin, end))
    return stays
