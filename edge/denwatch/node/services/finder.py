"""What every finder is: items come and go, and a request finds the feasible ones.

The interface of all finders, and the two that need no index: RAND and the exhaustive search.
Nothing here reads a clock or a random source of its own: `rng` is an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from denwatch.node.services.attributes import Rule, Values
from denwatch.node.services.catalogue import Catalogue
from denwatch.node.services.kernels import Slots, collect_feasible, measure_items
from denwatch.node.services.request import (
    Masks,
    Match,
    Request,
    Result,
    Side,
    compile_request,
)

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

    def find(self, request: Request, rng: np.random.Generator) -> Result:
        """Return up to `request.limit` feasible items, and what finding them cost."""
        masks = compile_request(request, self.width, self._catalogue.has_negatives)
        size = len(self._catalogue)
        if size == 0:
            return Result((), 0, 0)
        limit = size if request.limit is None else min(request.limit, size)
        return self._search(request, masks, limit, rng)

    @abstractmethod
    def _search(
        self, request: Request, masks: Masks, limit: int, rng: np.random.Generator
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
            Match(catalogue.identities[int(slots[at])], int(squared[at])) for at in order
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
        request: Request,  # noqa: ARG002  # part of the interface
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
        request: Request,
        masks: Masks,  # noqa: ARG002  # part of the interface
        limit: int,
        rng: np.random.Generator,  # noqa: ARG002  # part of the interface
    ) -> Result:
        slots = self._catalogue.list_slots()
        feasible, squared = _judge_items(self._catalogue.values[slots], request)
        at = np.flatnonzero(feasible)
        nearest = at[np.argsort(squared[at], kind="stable")[:limit]]
        identities = self._catalogue.identities
        matches = tuple(Match(identities[int(slots[i])], int(squared[i])) for i in nearest)
        return Result(matches, len(slots), len(slots))


def _judge_items(
    items: Values, request: Request
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return which items are feasible, and the squared distance of each."""
    asked = np.array(request.values, np.int8)
    apart: npt.NDArray[np.int64] = np.square(items - asked).astype(np.int64)
    broken = np.zeros(items.shape, np.bool_)
    if request.rule is Rule.POSITIVE:
        broken = items < asked if request.side is Side.PULL else items > asked
    elif request.rule is Rule.AGREEING:
        broken = items * asked < 0
        wish = asked if request.side is Side.PULL else items
        apart = np.where(wish != 0, apart, 0)
    return np.logical_not(np.any(broken, axis=1)), np.sum(apart, axis=1)
