"""Finders without ranked lists: the interface of all finders, exact, RAND and exhaustive search.

A `Catalogue` holds a finder's items as rows of values and of bit planes; only it assigns slots. A
slot is a row number that an item keeps until it is removed; `age` orders items by when they were
added, and decides ties. Nothing here reads a clock or a random source: `rng` is an argument.

`ExactFinder` returns the exact nearest neighbour by packed bit masks and popcount. Items are stored
in buckets by how many of their attributes are not 0. That number alone bounds the distance from
below, so a search reads buckets outwards from the request's own number and stops when no unread
bucket can contain anything better. For binary attributes the first feasible item found is the
answer. Nothing is approximated: of equally near items the oldest is returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from denwatch.node.services.kernels import Slots, collect_feasible, find_nearest, measure_items
from denwatch.node.services.request import (
    FeasibilityRule,
    Masks,
    Result,
    ServiceMatch,
    ServiceRequest,
    Side,
    Values,
    compile_request,
    count_words,
    pack_planes,
    read_matrix,
)

_FIRST_CAPACITY = 64


class Catalogue:
    """Items by identity, each with a vector of `width` values of -1, 0 and 1."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise ValueError(f"a catalogue needs at least one attribute, not {width}")
        self.width = width
        words = count_words(width)
        self.values: Values = np.zeros((_FIRST_CAPACITY, width), np.int8)
        self.plus = np.zeros((_FIRST_CAPACITY, words), np.uint64)
        self.minus = np.zeros((_FIRST_CAPACITY, words), np.uint64)
        self.age = np.zeros(_FIRST_CAPACITY, np.int64)
        self.identities: list[Hashable] = []
        self._slot_of: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._next_age = 0
        self._with_negatives = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self._slot_of

    @property
    def has_negatives(self) -> bool:
        """Whether any item says "against" anything."""
        return self._with_negatives > 0

    def list_slots(self) -> Slots:
        """Return the slots in use, oldest item first."""
        return np.fromiter(self._slot_of.values(), np.int64, len(self._slot_of))

    def add_items(self, identities: Sequence[Hashable], rows: npt.ArrayLike) -> Slots:
        """Add items that are not here yet, all or none; return their slots."""
        matrix = read_matrix(rows, self.width)
        if len(matrix) != len(identities):
            raise ValueError(f"{len(identities)} identities for {len(matrix)} vectors")
        given = set(identities)
        if len(given) != len(identities):
            raise ValueError("an identity is given twice in one call")
        for identity in given:
            if identity in self._slot_of:
                raise ValueError(f"{identity!r} is already here: remove it first")
        slots = self._take_slots(len(matrix))
        self.values[slots] = matrix
        self.plus[slots], self.minus[slots] = pack_planes(matrix)
        self.age[slots] = np.arange(self._next_age, self._next_age + len(matrix))
        self._next_age += len(matrix)
        self._with_negatives += int(np.count_nonzero((matrix < 0).any(axis=1)))
        for identity, slot in zip(identities, slots.tolist(), strict=True):
            self.identities[slot] = identity
            self._slot_of[identity] = slot
        return slots

    def remove_item(self, identity: Hashable) -> int:
        """Forget an item; return the slot that it had."""
        slot = self._slot_of.pop(identity, None)
        if slot is None:
            raise KeyError(f"{identity!r} is not here")
        self._with_negatives -= int((self.values[slot] < 0).any())
        self.identities[slot] = None
        self._free.append(slot)
        return slot

    def _take_slots(self, count: int) -> Slots:
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        first = len(self.identities)
        fresh = count - len(reused)
        self.identities.extend([None] * fresh)
        self._grow(len(self.identities))
        return np.array([*reused, *range(first, first + fresh)], np.int64)

    def _grow(self, needed: int) -> None:
        have = len(self.age)
        if needed <= have:
            return
        more = max(needed, 2 * have) - have
        self.values = np.concatenate([self.values, np.zeros((more, self.width), np.int8)])
        words = self.plus.shape[1]
        self.plus = np.concatenate([self.plus, np.zeros((more, words), np.uint64)])
        self.minus = np.concatenate([self.minus, np.zeros((more, words), np.uint64)])
        self.age = np.concatenate([self.age, np.zeros(more, np.int64)])


_DRAWN_AT_ONCE = 32


class Finder(ABC):
    """A set of items, all of one width, that can be asked."""

    def __init__(self, width: int) -> None:
        self._catalogue = Catalogue(width)

    def __len__(self) -> int:
        return len(self._catalogue)

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self._catalogue

    @property
    def width(self) -> int:
        """How many attributes an item has."""
        return self._catalogue.width

    def add(self, identity: Hashable, values: Sequence[int]) -> None:
        """Add one item; its identity must be new."""
        self.add_many([identity], [list(values)])

    def add_many(self, identities: Sequence[Hashable], rows: npt.ArrayLike) -> None:
        """Add many items, all or none; equal to adding one after the other, but faster."""
        slots = self._catalogue.add_items(identities, rows)
        if len(slots):
            self._index_items(slots)

    def remove(self, identity: Hashable) -> None:
        """Remove one item; KeyError if it is not here."""
        self._unindex_item(self._catalogue.remove_item(identity))

    def find(self, request: ServiceRequest, rng: np.random.Generator) -> Result:
        """Return up to `request.limit` feasible items, and what finding them cost."""
        masks = compile_request(request, self.width, self._catalogue.has_negatives)
        size = len(self._catalogue)
        if size == 0:
            return Result((), 0, 0)
        limit = size if request.limit is None else min(request.limit, size)
        return self._search(request, masks, limit, rng)

    @abstractmethod
    def _search(
        self, request: ServiceRequest, masks: Masks, limit: int, rng: np.random.Generator
    ) -> Result:
        """Answer a request; there is at least one item, and `limit` is at most their number."""

    @abstractmethod
    def _index_items(self, slots: Slots) -> None:
        """Take new items, already in the catalogue, into the index."""

    @abstractmethod
    def _unindex_item(self, slot: int) -> None:
        """Take an item, already gone from the catalogue, out of the index."""

    def _build_result(self, slots: Slots, masks: Masks, probes: int, checks: int) -> Result:
        """Return the items in `slots` as matches, nearest first, as found where they tie."""
        catalogue = self._catalogue
        squared = measure_items(
            catalogue.plus, catalogue.minus, slots, masks.rows, masks.item_cares
        )
        order = np.argsort(squared, kind="stable") if len(slots) > 1 else range(len(slots))
        matches = tuple(
            ServiceMatch(catalogue.identities[int(slots[at])], int(squared[at])) for at in order
        )
        return Result(matches, probes, checks)


class RandomFinder(Finder):
    """RAND: draw items at random, none twice, until enough of them are feasible."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._slots: list[int] = []
        self._place_of: dict[int, int] = {}

    def _index_items(self, slots: Slots) -> None:
        for slot in slots.tolist():
            self._place_of[slot] = len(self._slots)
            self._slots.append(slot)

    def _unindex_item(self, slot: int) -> None:
        place = self._place_of.pop(slot)
        last = self._slots.pop()
        if last != slot:
            self._slots[place] = last
            self._place_of[last] = place

    def _search(
        self,
        request: ServiceRequest,  # noqa: ARG002  # part of the interface
        masks: Masks,
        limit: int,
        rng: np.random.Generator,
    ) -> Result:
        catalogue, slots = self._catalogue, self._slots
        size = len(slots)
        # A Fisher-Yates shuffle as far as needed: only the places that moved are stored.
        moved: dict[int, int] = {}
        found = np.empty(limit, np.int64)
        count = probes = 0
        for start in range(0, size, _DRAWN_AT_ONCE):
            stop = min(start + _DRAWN_AT_ONCE, size)
            drawn = np.empty(stop - start, np.int64)
            picks = rng.integers(np.arange(start, stop), size).tolist()
            for at, pick in zip(range(start, stop), picks, strict=True):
                drawn[at - start] = slots[moved.get(pick, pick)]
                moved[pick] = moved.get(at, at)
            more, read = collect_feasible(
                catalogue.plus, catalogue.minus, drawn, masks.rows, limit - count, found[count:]
            )
            count += more
            probes += read
            if count == limit:
                break
        return self._build_result(found[:count], masks, probes, probes)


class ExhaustiveFinder(Finder):
    """Compare every item by the definition of the rule, on plain values without bit masks."""

    def _index_items(self, slots: Slots) -> None:
        """Nothing to do: the catalogue is all that this finder reads."""

    def _unindex_item(self, slot: int) -> None:
        """Nothing to do: the catalogue is all that this finder reads."""

    def _search(
        self,
        request: ServiceRequest,
        masks: Masks,  # noqa: ARG002  # part of the interface
        limit: int,
        rng: np.random.Generator,  # noqa: ARG002  # part of the interface
    ) -> Result:
        slots = self._catalogue.list_slots()
        feasible, squared = _judge_items(self._catalogue.values[slots], request)
        at = np.flatnonzero(feasible)
        nearest = at[np.argsort(squared[at], kind="stable")[:limit]]
        identities = self._catalogue.identities
        matches = tuple(ServiceMatch(identities[int(slots[i])], int(squared[i])) for i in nearest)
        return Result(matches, len(slots), len(slots))


def _judge_items(
    items: Values, request: ServiceRequest
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return which items are feasible, and the squared distance of each."""
    asked = np.array(request.values, np.int8)
    apart: npt.NDArray[np.int64] = np.square(items - asked).astype(np.int64)
    broken = np.zeros(items.shape, np.bool_)
    if request.rule is FeasibilityRule.POSITIVE:
        broken = items < asked if request.side is Side.PULL else items > asked
    elif request.rule is FeasibilityRule.AGREEING:
        broken = items * asked < 0
        need = asked if request.side is Side.PULL else items
        apart = np.where(need != 0, apart, 0)
    return np.logical_not(np.any(broken, axis=1)), np.sum(apart, axis=1)


_LEAST_CHANGES = 256
_CHANGED_SHARE = 8  # the buckets are laid out anew when an eighth of the items has changed


class ExactFinder(Finder):
    """Always the nearest feasible item, if there is one.

    New items wait in a short tail that every search reads, and removed ones are marked, until
    there are enough of them to lay the buckets out anew; so a change costs O(log n) on average.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._tail: dict[int, None] = {}
        self._removed = 0
        self._lay_out()

    def _index_items(self, slots: Slots) -> None:
        self._tail.update(dict.fromkeys(slots.tolist()))
        self._lay_out_if_due()

    def _unindex_item(self, slot: int) -> None:
        if slot in self._tail:
            del self._tail[slot]
            return
        self._alive[self._place_of[slot]] = False
        self._removed += 1
        self._lay_out_if_due()

    def _lay_out_if_due(self) -> None:
        due = max(_LEAST_CHANGES, len(self._catalogue) // _CHANGED_SHARE)
        if len(self._tail) + self._removed > due:
            self._lay_out()

    def _lay_out(self) -> None:
        """Copy all items into buckets, so that a search reads memory in order."""
        catalogue = self._catalogue
        slots = catalogue.list_slots()
        stated = np.count_nonzero(catalogue.values[slots], axis=1)
        order = np.argsort(stated, kind="stable")
        self._slots = slots[order]
        self._plus = np.ascontiguousarray(catalogue.plus[self._slots].T)
        self._minus = np.ascontiguousarray(catalogue.minus[self._slots].T)
        self._age = catalogue.age[self._slots]
        self._alive = np.ones(len(slots), np.bool_)
        self._starts = np.searchsorted(stated[order], np.arange(self.width + 2)).astype(np.int64)
        self._place_of = np.zeros(len(catalogue.age), np.int64)  # by slot
        self._place_of[self._slots] = np.arange(len(slots))
        self._tail.clear()
        self._removed = 0

    def _search(
        self,
        request: ServiceRequest,  # noqa: ARG002  # part of the interface
        masks: Masks,
        limit: int,
        rng: np.random.Generator,  # noqa: ARG002  # part of the interface
    ) -> Result:
        return self._find_first(masks) if limit == 1 else self._find_many(masks, limit)

    def _find_first(self, masks: Masks) -> Result:
        place, squared, read = find_nearest(
            self._plus, self._minus, self._alive, self._age, self._starts, *masks
        )
        slot = int(self._slots[place]) if place >= 0 else -1
        if self._tail:
            # The tail is younger than every bucket, so it wins only by being strictly nearer.
            waiting = np.fromiter(self._tail, np.int64, len(self._tail))
            read += len(waiting)
            found, distances = self._rank_feasible(waiting, masks)
            if len(found) and (slot < 0 or distances[0] < squared):
                slot, squared = int(found[0]), int(distances[0])
        matches = (
            () if slot < 0 else (ServiceMatch(self._catalogue.identities[slot], int(squared)),)
        )
        return Result(matches, read, read)

    def _find_many(self, masks: Masks, limit: int) -> Result:
        slots = self._catalogue.list_slots()
        found, _ = self._rank_feasible(slots, masks)
        return self._build_result(found[:limit], masks, len(slots), len(slots))

    def _rank_feasible(self, slots: Slots, masks: Masks) -> tuple[Slots, Slots]:
        """Return the feasible of `slots` (oldest first) and their distances, nearest first."""
        plus, minus = self._catalogue.plus, self._catalogue.minus
        found = np.empty(len(slots), np.int64)
        count, _ = collect_feasible(plus, minus, slots, masks.rows, len(slots), found)
        found = found[:count]
        squared = measure_items(plus, minus, found, masks.rows, masks.item_cares)
        order = np.argsort(squared, kind="stable")
        return found[order], squared[order]
