"""FIP: the flat algorithm with indexed predicates (DENS paper, Fig. 4b).

A hash table leads from an attribute to its distinct predicates; each is evaluated once for a
notification, whoever asks for it. Its association list leads on to the subscriptions that contain
it, which collect their predicates' degrees; those that have all are scored.
"""

from __future__ import annotations

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.degrees import GEOMETRIC, HARMONIC, MIN, PRODUCT
from denwatch.protocol.evaluator import OR
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

from papers.evaluation import Entry, Readings, conclude

_ZERO_IS_FATAL = (MIN, PRODUCT, GEOMETRIC, HARMONIC)
_OPERATOR = 0xF0


class Indexed:
    """One distinct predicate and the subscriptions that contain it.

    There is one association list for each degree that subscriptions ask of it: a list whose level
    is not reached need not be followed.
    """

    __slots__ = ("lists", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.lists: dict[int, dict[int, Slot]] = {}


class Slot:
    """A subscription's line in the subscription list: where its degrees are collected."""

    __slots__ = ("certains", "count", "entry", "possibles", "size", "turn", "wanted")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.wanted: dict[tuple[object, ...], list[int]] = {}  # predicate -> its places
        self.size = len(entry.subscription.predicates)
        self.possibles = bytearray(self.size)
        self.certains = bytearray(self.size)
        self.turn = 0
        self.count = 0


class FIP:
    """The flat algorithm with a predicate hash table and association lists."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._table: dict[int, dict[tuple[object, ...], Indexed]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._slots)

    def count_predicates(self) -> int:
        """Return the number of distinct predicates in the table."""
        return sum(len(predicates) for predicates in self._table.values())

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if id in self._slots:
            self.remove(id)
        slot = Slot(Entry(id, subscription))
        level = find_level(subscription)
        for place, p in enumerate(subscription.predicates):
            name = p.fields()
            table = self._table.setdefault(subscription.event << 4 | p.attribute, {})
            indexed = table.get(name)
            if indexed is None:
                indexed = table[name] = Indexed(p)
            indexed.lists.setdefault(level, {})[id] = slot
            slot.wanted.setdefault(name, []).append(place)
        self._slots[id] = slot

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        slot = self._slots.pop(id)
        s = slot.entry.subscription
        level = find_level(s)
        for p in {p.fields(): p for p in s.predicates}.values():
            attribute = s.event << 4 | p.attribute
            indexed = self._table[attribute][p.fields()]
            del indexed.lists[level][id]
            if not indexed.lists[level]:
                del indexed.lists[level]
            if not indexed.lists:
                del self._table[attribute][p.fields()]
                if not self._table[attribute]:
                    del self._table[attribute]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id."""
        readings = Readings(notification)
        self._turn += 1
        complete: list[Slot] = []
        for attribute in readings.narrow:
            for name, indexed in self._table.get(readings.event << 4 | attribute, {}).items():
                p = indexed.predicate
                possible, certain = readings.measure(p)
                if possible < p.possible or certain < p.certain:
                    continue
                for level, slots in indexed.lists.items():
                    if possible >= level:
                        self._spread(name, possible, certain, slots, complete)
        hits = []
        for slot in complete:
            hit = conclude(slot.entry, slot.possibles, slot.certains, readings, age)
            if hit:
                hits.append(hit._replace(id=slot.entry.id))
        hits.sort()
        return hits

    def _spread(
        self,
        name: tuple[object, ...],
        possible: int,
        certain: int,
        slots: dict[int, Slot],
        complete: list[Slot],
    ) -> None:
        """Write a predicate's degrees into the lines of its subscriptions."""
        turn = self._turn
        for slot in slots.values():
            if slot.turn != turn:
                slot.turn = turn
                slot.count = 0
            for place in slot.wanted[name]:
                slot.possibles[place] = possible
                slot.certains[place] = certain
                slot.count += 1
            if slot.count == slot.size:
                complete.append(slot)


def find_level(s: SubscriptionVector) -> int:
    """Return the degree below which any one predicate rules the subscription out; 0: none does."""
    if s.threshold == 0 or s.aggregator not in _ZERO_IS_FATAL:
        return 0
    if any(op & _OPERATOR >= OR for op in s.pattern):  # alternatives and negations
        return 0
    return s.threshold if s.aggregator == MIN else 1
