"""The crisp attribute-value algorithm that both papers compare with: count what holds.

A hash table leads from an attribute to its distinct predicates: points by their value, intervals by
their lower bound. A predicate that holds adds one to each of its subscriptions; those whose count
is complete match. There are no degrees. A fuzzy predicate is taken as one of the three intervals of
the A-ToPSS paper (its Table 1), an uncertain reading as the middle of its core ("point" there); for
crisp predicates and exact readings the answer is that of the fuzzy definition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from enum import Enum

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.cuts import cut_set, invert_hedge
from denwatch.protocol.degrees import MIN
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

from papers.evaluation import Readings

Bounds = tuple[int, int]  # lowest and highest value that hold


class Reach(Enum):
    """How much of a fuzzy set its crisp interval takes: the degree at which it is cut."""

    PESSIMISTIC = 1  # the whole support
    MIDDLE = 128
    OPTIMISTIC = 255  # the core alone


class Table:
    """The distinct predicates of one attribute and the subscriptions that contain each."""

    __slots__ = ("holders", "points", "ranges", "wide")

    def __init__(self, wide: bool) -> None:
        self.wide = wide
        self.holders: dict[Bounds, dict[int, None]] = {}
        self.points: dict[int, Bounds] = {}
        self.ranges: list[Bounds] = []

    def find(self, value: int) -> list[Bounds]:
        """Return the predicates that hold for a value."""
        found = [self.points[value]] if value in self.points else []
        stop = bisect_right(self.ranges, (value, 1 << 16))
        found.extend([bounds for bounds in self.ranges[:stop] if bounds[1] >= value])
        return found

    def insert(self, bounds: Bounds, id: int) -> None:
        """Add a subscription to a predicate, and the predicate if it is new."""
        if bounds not in self.holders:
            self.holders[bounds] = {}
            if bounds[0] == bounds[1]:
                self.points[bounds[0]] = bounds
            else:
                insort(self.ranges, bounds)
        self.holders[bounds][id] = None

    def discard(self, bounds: Bounds, id: int) -> None:
        """Take a subscription from a predicate, and the predicate away if it was the last."""
        del self.holders[bounds][id]
        if self.holders[bounds]:
            return
        del self.holders[bounds]
        if bounds[0] == bounds[1]:
            del self.points[bounds[0]]
        else:
            del self.ranges[bisect_left(self.ranges, bounds)]


class AttributeValue:
    """The crisp counting algorithm over conjunctions of intervals."""

    def __init__(self, reach: Reach = Reach.MIDDLE) -> None:
        self._reach = reach
        self._tables: dict[int, Table] = {}
        self._wanted: dict[int, set[tuple[int, Bounds]]] = {}
        self._blame: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a conjunction, or replace the one with this id; ValueError for anything else."""
        s = subscription
        if s.aggregator != MIN or s.pattern or s.recent:
            raise ValueError("the crisp algorithm knows plain conjunctions (min) only")
        wanted = set()
        for p in s.predicates:
            if p.negated:
                raise ValueError(f"attribute {p.attribute}: no crisp interval is a negation")
            # The low bit keeps 8-bit and 16-bit predicates on one attribute apart.
            wanted.add((s.event << 5 | p.attribute << 1 | p.wide, cut_predicate(p, self._reach)))
        if id in self._wanted:
            self.remove(id)
        for attribute, bounds in wanted:
            table = self._tables.setdefault(attribute, Table(bool(attribute & 1)))
            table.insert(bounds, id)
        self._wanted[id] = wanted
        self._blame[id] = s.predicates[0].attribute

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        for attribute, bounds in self._wanted.pop(id):
            self._tables[attribute].discard(bounds, id)
            if not self._tables[attribute].holders:
                del self._tables[attribute]
        del self._blame[id]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002 - ageless
        """Return the hits by rising id, all of full degree."""
        readings = Readings(notification)
        counts: dict[int, int] = {}
        for wide, points in ((0, readings.narrow), (1, readings.wide)):
            for attribute, trapezoid in points.items():
                table = self._tables.get(readings.event << 5 | attribute << 1 | wide)
                if table is None:
                    continue
                value = (trapezoid[1] + trapezoid[2]) // 2
                for bounds in table.find(value):
                    for id in table.holders[bounds]:
                        counts[id] = counts.get(id, 0) + 1
        full = [id for id, count in counts.items() if count == len(self._wanted[id])]
        return [SubscriptionMatch(id, 255, 255, self._blame[id]) for id in sorted(full)]


def cut_predicate(p: Predicate, reach: Reach) -> Bounds:
    """Return the crisp interval of a fuzzy predicate."""
    return cut_set(p, invert_hedge(p.hedge, reach.value))
