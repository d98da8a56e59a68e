"""A-ToPSS: two stages, predicates and then subscriptions (A-ToPSS paper, section 4).

A hash table leads from an attribute to its distinct predicates, in the order of arrival or sorted
by their four points; each is rated once for a publication. A predicate that is possible and reaches
its own thresholds is followed to its subscriptions, by its association list or by its row of the
association matrix; they gather degrees and count. A subscription matches if its count is complete
and its aggregate reaches its thresholds. So every constraint must hold somewhat, whatever the
aggregation: min, max, mean or weighted mean, one for all subscriptions as in the paper.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from denwatch.node.matching.plugins import SubscriptionMatch

from papers.encodings import BITS, FLOAT
from papers.stages import (
    Singles,
    Table,
    rate_predicates,
    rate_sorted_predicates,
)
from papers.tally import Tally
from papers.trapezoids import (
    Constraint,
    Interest,
    Publication,
    check_interest,
    check_trapezoid,
)

Ids = npt.NDArray[np.int64]


class Aggregation(IntEnum):
    """How a subscription's degree comes from its predicates'."""

    MIN = 0
    MAX = 1
    MEAN = 2
    WEIGHTED = 3


class Order(Enum):
    """How the predicates of an attribute stand."""

    REGULAR = "regular"
    SORTED = "sorted"


class Association(Enum):
    """How a predicate leads to its subscriptions."""

    LIST = "list"
    MATRIX = "matrix"


class Degrees(NamedTuple):
    """A subscription that matches, and how well: 0..1, as exact as the encoding."""

    id: int
    possible: float
    certain: float


class ATopss:
    """The approximate matcher of A-ToPSS in all its variants."""

    def __init__(
        self,
        order: Order = Order.SORTED,
        association: Association = Association.LIST,
        bits: int = FLOAT,
        aggregation: Aggregation = Aggregation.MIN,
    ) -> None:
        if bits not in BITS:
            raise ValueError(f"degrees of {bits} bits: there are {BITS}")
        self._order = order
        self._aggregation = aggregation
        self._tally = Tally(bits, int(aggregation), association is Association.MATRIX)
        self._used = 0  # predicate numbers given out so far
        self._free: list[int] = []  # and those of them that may be given again
        self._numbers: dict[Constraint, int] = {}
        self._tables: dict[int, list[tuple[Constraint, int]]] = {}
        self._arrays: dict[int, Table] = {}  # the tables, laid out for rating
        self._interests: dict[int, Interest] = {}
        self._slots: dict[int, int] = {}
        self._ids = array("q")
        self._free_slots: list[int] = []

    def __len__(self) -> int:
        return len(self._interests)

    def count_predicates(self) -> int:
        """Return the number of distinct predicates."""
        return sum(len(table) for table in self._tables.values())

    def count_bytes(self) -> dict[str, int]:
        """Return the memory of the degree vectors and of the association, in bytes."""
        return self._tally.count_bytes()

    def add(self, id: int, subscription: Interest) -> None:
        """Add an interest, or replace the one with this id."""
        check_interest(subscription)
        if id in self._interests:
            self.remove(id)
        if self._free_slots:
            slot = self._free_slots.pop()
            self._ids[slot] = id
        else:
            slot = len(self._ids)
            self._ids.append(id)
        predicates = {self._find_or_insert(c) for c in subscription.constraints}
        self._tally.open_slot(slot, len(predicates), subscription.possible, subscription.certain)
        for number in predicates:
            self._tally.associate(number, slot)
        self._interests[id] = subscription
        self._slots[id] = slot

    def remove(self, id: int) -> None:
        """Remove an interest; KeyError if there is none with this id."""
        interest = self._interests.pop(id)
        slot = self._slots.pop(id)
        for c in dict.fromkeys(interest.constraints):
            number = self._find(c)
            if not self._tally.dissociate(number, slot):
                self._drop(c, number)
        self._tally.close_slot(slot)
        self._free_slots.append(slot)

    def match(self, notification: Publication, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002 - ageless
        """Return the hits by rising id, degrees rounded to 0..255."""
        hits = []
        for id, possible, certain in self.match_degrees(notification):
            attribute = self._blame(self._interests[id].constraints)
            hits.append(
                SubscriptionMatch(id, round(255 * possible), round(255 * certain), attribute)
            )
        return hits

    def match_degrees(self, publication: Publication) -> list[Degrees]:
        """Return what matches by rising id, with the degrees as they are stored."""
        answer = self.match_subscriptions(self.match_predicates(publication))
        columns = [column.tolist() for column in answer]
        return sorted(Degrees(*row) for row in zip(*columns, strict=True))

    def match_predicates(self, publication: Publication) -> list[int]:
        """Return the predicates that are satisfied: the first stage alone."""
        rate = rate_sorted_predicates if self._order is Order.SORTED else rate_predicates
        satisfied: list[int] = []
        for attribute, points in publication.items():
            check_trapezoid(points, f"attribute {attribute}")
            if attribute not in self._tables:
                continue
            n1, n2, n3, n4 = points
            table = self._lay_out(attribute)
            satisfied += rate(table, self._tally.get_rated(), n1, n2, n3, n4).tolist()
        return satisfied

    def match_subscriptions(self, satisfied: list[int]) -> tuple[Ids, Singles, Singles]:
        """Return ids, possibilities and necessities from satisfied predicates: the second stage.

        In no particular order, as arrays that the next publication overwrites.
        """
        slots, possibles, certains = self._tally.gather(satisfied)
        return np.frombuffer(self._ids, dtype=np.int64)[slots], possibles, certains

    def _lay_out(self, attribute: int) -> Table:
        """Return an attribute's predicates as arrays, made again only after a change."""
        if attribute not in self._arrays:
            table = self._tables[attribute]
            self._arrays[attribute] = (
                np.array([c.points for c, _ in table], dtype=np.float64),
                np.array([(c.possible, c.certain) for c, _ in table], dtype=np.float64),
                np.array([number for _, number in table], dtype=np.int32),
            )
        return self._arrays[attribute]

    def _find(self, c: Constraint) -> int:
        """Return a stored predicate's number: by hash, or by bisection where they stand sorted."""
        if self._order is Order.REGULAR:
            return self._numbers[c]
        table = self._tables[c.attribute]
        return table[bisect_left(table, (c, -1))][1]

    def _find_or_insert(self, c: Constraint) -> int:
        table = self._tables.setdefault(c.attribute, [])
        if self._order is Order.REGULAR:
            if c in self._numbers:
                return self._numbers[c]
        else:
            at = bisect_left(table, (c, -1))
            if at < len(table) and table[at][0] == c:
                return table[at][1]
        number = self._free.pop() if self._free else self._used
        self._used = max(self._used, number + 1)
        self._tally.open_predicate(number, c.weight)
        self._arrays.pop(c.attribute, None)
        if self._order is Order.REGULAR:
            self._numbers[c] = number
            table.append((c, number))
        else:
            insort(table, (c, number))
        return number

    def _drop(self, c: Constraint, number: int) -> None:
        """Forget a predicate that no subscription contains any more."""
        table = self._tables[c.attribute]
        table.remove((c, number))
        if not table:
            del self._tables[c.attribute]
        self._numbers.pop(c, None)
        self._arrays.pop(c.attribute, None)
        self._free.append(number)

    def _blame(self, constraints: Sequence[Constraint]) -> int:
        """Return the attribute that decided: the least possible one, for max the most."""
        pick = max if self._aggregation is Aggregation.MAX else min
        return pick(constraints, key=lambda c: self._tally.read_possible(self._find(c))).attribute
