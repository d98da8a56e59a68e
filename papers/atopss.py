"""A-ToPSS: two stages, predicates and then subscriptions (A-ToPSS paper, section 4).

A hash table leads from an attribute to its distinct predicates, in the order of arrival or sorted
by their four points; each is rated once for a publication. A predicate that is possible and reaches
its own thresholds is followed to its subscriptions, by its association list or by its row of the
association matrix; they collect degrees and count. A subscription matches if its count is complete
and its aggregate reaches its thresholds. So every constraint must hold somewhat, whatever the
aggregation: min, max, mean or weighted mean, one for all subscriptions as in the paper.

`Tally` owns the paper's arrays: a predicate vector and a subscription vector of (possible,
certain), as floats or as packed codes, counters, association lists or one association bit matrix.
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

from papers.trapezoids import (
    BITS,
    FLOAT,
    Bytes,
    Constraint,
    Interest,
    Publication,
    Rated,
    Singles,
    Slots,
    Table,
    allocate_codes,
    check_interest,
    check_trapezoid,
    encode,
    follow_list,
    follow_row,
    list_complete,
    rate_predicates,
    rate_sorted_predicates,
    read_code,
    write_code,
)

_WEIGHTED = 3
_ROOM = 128  # subscriptions at first; doubled as needed, and always whole bytes of bits


class Tally:
    """The vectors of both stages and the association between them."""

    def __init__(self, bits: int, kind: int, matrix: bool) -> None:
        self._bits = bits
        self._kind = kind
        self._lists: list[array[int]] = []
        self._holders: list[int] = []  # how many subscriptions contain each predicate
        self._predicate_weights: list[float] = []
        self._predicates = np.zeros((16, 2), dtype=np.float32)
        self._predicate_codes = self._allocate(16)
        self._matrix = np.zeros((16, _ROOM // 8), dtype=np.uint8) if matrix else None
        self._size = 0
        self._sizes = np.zeros(_ROOM, dtype=np.uint8)
        self._limits = np.zeros((_ROOM, 2), dtype=np.float32)
        self._limit_codes = self._allocate(_ROOM)
        self._make_scores(_ROOM)

    def _allocate(self, count: int) -> Bytes:
        """Return room for so many pairs of codes; none where degrees are floats."""
        return allocate_codes(0 if self._bits == FLOAT else 2 * count, min(self._bits, 8))

    def _make_scores(self, room: int) -> None:
        """Allocate what a publication starts from anew."""
        self._floats = np.zeros((room if self._bits == FLOAT else 0, 2), dtype=np.float32)
        self._codes = self._allocate(room)
        self._counts = np.zeros(room, dtype=np.uint8)
        self._weights = np.zeros(room, dtype=np.float32)
        self._out = np.zeros((room, 2), dtype=np.float32)

    def _double(self) -> None:
        """Make room for twice as many subscriptions."""
        self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])
        self._limits = np.concatenate([self._limits, np.zeros_like(self._limits)])
        limit_codes = self._allocate(len(self._sizes))
        limit_codes[: len(self._limit_codes)] = self._limit_codes
        self._limit_codes = limit_codes
        if self._matrix is not None:
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)], axis=1)
        self._make_scores(len(self._sizes))

    def count_bytes(self) -> dict[str, int]:
        """Return the bytes of the degree vectors in use, and of the association."""
        degrees = 2 * (len(self._lists) + self._size)
        vectors = degrees * 4 if self._bits == FLOAT else (degrees * self._bits + 7) // 8
        if self._matrix is None:
            association = sum(4 * len(slots) for slots in self._lists)
        else:
            association = len(self._lists) * ((self._size + 7) // 8)
        return {"degrees": vectors, "association": association}

    def open_predicate(self, number: int, weight: float) -> None:
        """Make room for a predicate; numbers come one after another or are used again."""
        if number == len(self._lists):
            self._lists.append(array("i"))
            self._holders.append(0)
            self._predicate_weights.append(weight)
            if number >= len(self._predicates):
                self._predicates = np.concatenate(
                    [self._predicates, np.zeros_like(self._predicates)]
                )
                self._predicate_codes = self._allocate(len(self._predicates))
                if self._matrix is not None:
                    self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self._predicate_weights[number] = weight

    def open_slot(self, slot: int, predicates: int, possible: float, certain: float) -> None:
        """Make room for a subscription with so many predicates and these thresholds."""
        if slot >= len(self._sizes):
            self._double()
        self._size = max(self._size, slot + 1)
        self._sizes[slot] = predicates
        self._limits[slot] = possible, certain
        if self._bits != FLOAT:
            write_code(self._limit_codes, 2 * slot, self._bits, encode(possible, self._bits))
            write_code(self._limit_codes, 2 * slot + 1, self._bits, encode(certain, self._bits))

    def close_slot(self, slot: int) -> None:
        """Forget a subscription whose associations are gone."""
        self._sizes[slot] = 0

    def associate(self, number: int, slot: int) -> None:
        """Note that a subscription contains a predicate."""
        self._holders[number] += 1
        if self._matrix is None:
            self._lists[number].append(slot)
        else:
            self._matrix[number, slot >> 3] |= 1 << (slot & 7)

    def dissociate(self, number: int, slot: int) -> int:
        """Note that it no longer does; return how many subscriptions still contain it."""
        self._holders[number] -= 1
        if self._matrix is None:
            self._lists[number].remove(slot)
        else:
            self._matrix[number, slot >> 3] &= 255 ^ (1 << (slot & 7))
        return self._holders[number]

    def get_rated(self) -> Rated:
        """Return the predicate vector, for the first stage to write into."""
        return self._predicates, self._predicate_codes, self._bits

    def read_possible(self, number: int) -> float:
        """Return a predicate's stored possibility, as a float or as a code: good to compare."""
        if self._bits == FLOAT:
            return float(self._predicates[number, 0])
        return float(read_code(self._predicate_codes, 2 * number, self._bits))

    def gather(self, satisfied: list[int]) -> tuple[Slots, Singles, Singles]:
        """Run the second stage; return the matching slots and their degrees."""
        bits, kind = self._bits, self._kind
        self._counts[: self._size] = 0
        self._weights[: self._size] = 0
        self._floats[: self._size] = 0
        for number in satisfied:
            p = c = np.float32(0)
            pc = cc = 0
            if bits == FLOAT:
                p, c = self._predicates[number]
            else:
                pc = read_code(self._predicate_codes, 2 * number, bits)
                cc = read_code(self._predicate_codes, 2 * number + 1, bits)
            w = np.float32(self._predicate_weights[number] if kind == _WEIGHTED else 1)
            how = (p, c, pc, cc, bits, kind, w)
            vectors = (self._floats, self._codes, self._counts, self._weights)
            if self._matrix is None:
                follow_list(np.frombuffer(self._lists[number], dtype=np.int32), how, vectors)
            else:
                follow_row(self._matrix[number], self._size, how, vectors)
        slots = list_complete(
            self._size,
            bits,
            kind,
            (self._floats, self._codes, self._counts, self._weights),
            (self._sizes, self._limits, self._limit_codes),
            self._out,
        )
        return slots, self._out[: len(slots), 0], self._out[: len(slots), 1]


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
