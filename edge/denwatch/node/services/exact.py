"""The exact (positive) nearest neighbour by packed bit masks and popcount.

Items lie in buckets by how many of their attributes are not 0. That number alone bounds the
distance from below, so a search reads buckets outwards from the request's own number and stops
when no unread bucket can hold anything better. For binary attributes the first feasible item
met is the answer. Nothing is approximated: ties go to the item that was added first.
"""

from __future__ import annotations

import numpy as np
from denwatch.node.services.finder import Finder
from denwatch.node.services.kernels import Slots, collect_feasible, find_nearest, measure_items
from denwatch.node.services.request import Masks, Match, Request, Result

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
        request: Request,  # noqa: ARG002  # part of the interface
        masks: Masks,
        limit: int,
        rng: np.random.Generator,  # noqa: ARG002  # part of the interface
    ) -> Result:
        return self._find_first(masks) if limit == 1 else self._find_many(masks, limit)

    def _find_first(self, masks: Masks) -> Result:
        place, squared, read = find_nearest(
            self._plus,
            self._minus,
            self._alive,
            self._age,
            self._starts,
            masks.rows,
            masks.item_cares,
            masks.centre,
            masks.up,
            masks.down,
            masks.low,
            masks.high,
        )
        slot = int(self._slots[place]) if place >= 0 else -1
        if self._tail:
            # The tail is younger than every bucket, so it wins only by being strictly nearer.
            waiting = np.fromiter(self._tail, np.int64, len(self._tail))
            read += len(waiting)
            found, distances = self._rank_feasible(waiting, masks)
            if len(found) and (slot < 0 or distances[0] < squared):
                slot, squared = int(found[0]), int(distances[0])
        matches = () if slot < 0 else (Match(self._catalogue.identities[slot], int(squared)),)
        return Result(matches, read, read)

    def _find_many(self, masks: Masks, limit: int) -> Result:
        slots = self._catalogue.list_slots()
        found, distances = self._rank_feasible(slots, masks)
        identities = self._catalogue.identities
        matches = tuple(
            Match(identities[slot], squared)
            for slot, squared in zip(
                found[:limit].tolist(), distances[:limit].tolist(), strict=True
            )
        )
        return Result(matches, len(slots), len(slots))

    def _rank_feasible(self, slots: Slots, masks: Masks) -> tuple[Slots, Slots]:
        """Return the feasible of `slots` (oldest first) and their distances, nearest first."""
        plus, minus = self._catalogue.plus, self._catalogue.minus
        found = np.empty(len(slots), np.int64)
        count, _ = collect_feasible(plus, minus, slots, masks.rows, len(slots), found)
        found = found[:count]
        squared = measure_items(plus, minus, found, masks.rows, masks.item_cares)
        order = np.argsort(squared, kind="stable")
        return found[order], squared[order]
