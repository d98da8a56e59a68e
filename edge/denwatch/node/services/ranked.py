"""Finders that walk sorted lists: SUMS, bSVDS and rwSVDS, after the SVDS paper, section 4.

The only file that maps a vector to one number. A list ranks all items by that number; a request
is mapped to the same line, found by binary search, and the list is walked outwards from there.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt
from denwatch.node.services.finder import Finder
from denwatch.node.services.kernels import Keys, Slots, walk_lists
from denwatch.node.services.request import FeasibilityRule, Masks, Result, ServiceRequest, Side

_REFIT_SHARE = 4  # the decomposition is renewed when a quarter of the items has changed
_LEAST_CHANGES = 64
_ONE_BY_ONE = 32  # more new items than this are ranked together with all the others
_LISTS = 3  # SVDS paper: more lists add cost without improving matches


class RankedLists:
    """Sorted lists of the same items by different keys; equal keys stay in order of arrival."""

    def __init__(self, lists: int) -> None:
        self.keys: Keys = np.empty((lists, 0), np.float64)
        self.slots: Slots = np.empty((lists, 0), np.int64)
        self.length = 0
        self._key_of: Keys = np.empty((lists, 0), np.float64)  # by slot

    def replace(self, slots: Slots, keys: Keys) -> None:
        """Rank `slots` by `keys` (one row a list), forgetting what was there."""
        order = np.argsort(keys, axis=1, kind="stable")
        self.keys = np.take_along_axis(keys, order, axis=1)
        self.slots = slots[order]
        self.length = len(slots)
        self._key_of = np.empty((len(keys), int(slots.max(initial=-1)) + 1), np.float64)
        self._key_of[:, slots] = keys

    def insert(self, slot: int, keys: Keys) -> None:
        """Put one item into each list."""
        if self.length == self.keys.shape[1]:
            room = ((0, 0), (0, max(64, self.length)))
            self.keys = np.pad(self.keys, room)
            self.slots = np.pad(self.slots, room)
        end = self.length
        for at, key in enumerate(keys):
            place = int(np.searchsorted(self.keys[at, :end], key, side="right"))
            for row, item in ((self.keys[at], key), (self.slots[at], slot)):
                row[place + 1 : end + 1] = row[place:end].copy()
                row[place] = item
        if slot >= self._key_of.shape[1]:
            self._key_of = np.pad(self._key_of, ((0, 0), (0, slot + 64)))
        self._key_of[:, slot] = keys
        self.length += 1

    def delete(self, slot: int) -> None:
        """Take one item out of each list."""
        end = self.length
        for at, key in enumerate(self._key_of[:, slot]):
            first = int(np.searchsorted(self.keys[at, :end], key, side="left"))
            last = int(np.searchsorted(self.keys[at, :end], key, side="right"))
            place = first + int(np.flatnonzero(self.slots[at, first:last] == slot)[0])
            for row in (self.keys[at], self.slots[at]):
                row[place : end - 1] = row[place + 1 : end].copy()
        self.length -= 1


class RankedFinder(Finder):
    """Walk the lists outwards; the first items that are feasible and on every list are it."""

    def __init__(self, width: int, lists: int) -> None:
        super().__init__(width)
        self._lists = RankedLists(lists)

    @abstractmethod
    def _map_values(self, matrix: npt.NDArray[np.float64]) -> Keys:
        """Return the keys of the rows of `matrix`, one row a list."""

    @abstractmethod
    def _aim(self, request: ServiceRequest) -> tuple[Keys, bool, bool]:
        """Return the request's key on each list, and whether to walk left and right of it."""

    def _index_items(self, slots: Slots) -> None:
        if len(slots) > _ONE_BY_ONE:
            self._rank_all()
            return
        keys = self._map_values(self._catalogue.values[slots].astype(np.float64))
        for slot, own in zip(slots.tolist(), keys.T, strict=True):
            self._lists.insert(slot, own)

    def _unindex_item(self, slot: int) -> None:
        self._lists.delete(slot)

    def _rank_all(self) -> None:
        slots = self._catalogue.list_slots()
        matrix = self._catalogue.values[slots].astype(np.float64)
        self._lists.replace(slots, self._map_values(matrix))

    def _search(
        self,
        request: ServiceRequest,
        masks: Masks,
        limit: int,
        rng: np.random.Generator,  # noqa: ARG002  # part of the interface
    ) -> Result:
        lists = self._lists
        target, leftwards, rightwards = self._aim(request)
        found = np.empty(limit, np.int64)
        count, probes, checks = walk_lists(
            lists.keys,
            lists.slots,
            lists.length,
            target,
            leftwards,
            rightwards,
            self._catalogue.plus,
            self._catalogue.minus,
            masks.rows,
            limit,
            found,
        )
        return self._build_result(found[:count], masks, probes, checks)


class SumFinder(RankedFinder):
    """SUMS: rank by the sum of the attributes.

    The paper adds 1 to ternary values first; that moves items and request alike, so it is left
    out. Under POSITIVE no item on the wrong side of the request's sum can be feasible.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)

    def _map_values(self, matrix: npt.NDArray[np.float64]) -> Keys:
        sums: Keys = np.sum(matrix, axis=1, keepdims=True).T
        return sums

    def _aim(self, request: ServiceRequest) -> tuple[Keys, bool, bool]:
        target = np.array([sum(request.values)], np.float64)
        if request.rule is not FeasibilityRule.POSITIVE:
            return target, True, True
        if request.side is Side.PULL:
            return target, False, True
        return target + 0.5, True, False  # sums are whole: equal ones lie left of this


class ProjectedFinder(RankedFinder):
    """Rank by the first singular direction of the items, once for each weighting of attributes.

    The direction, the column means and the scale are those of the last fit. Items that come
    later are mapped with them, until a quarter of the items has changed and the fit is renewed.
    The first fit is made with the 64th change; so few items are walked in order of arrival.
    """

    def __init__(self, width: int, weights: npt.NDArray[np.float64]) -> None:
        super().__init__(width, len(weights))
        self._weights = weights
        self._mean = np.zeros(width)
        self._directions = np.zeros((len(weights), width))
        self._fitted = 0
        self._changes = 0

    def refit(self) -> None:
        """Decompose the items of now, and rank them anew."""
        slots = self._catalogue.list_slots()
        matrix = self._catalogue.values[slots].astype(np.float64)
        self._mean = matrix.mean(axis=0) if len(slots) else np.zeros(self.width)
        centred = matrix - self._mean
        scatter = centred.T @ centred
        for at, weights in enumerate(self._weights):
            self._directions[at] = weights * _find_direction(scatter, weights)
        self._rank_all()
        self._fitted = len(slots)
        self._changes = 0

    def _index_items(self, slots: Slots) -> None:
        if not self._count_changes(len(slots)):
            super()._index_items(slots)

    def _unindex_item(self, slot: int) -> None:
        if not self._count_changes(1):
            super()._unindex_item(slot)

    def _count_changes(self, count: int) -> bool:
        """Count changes, and refit if they are many; return whether that was done."""
        self._changes += count
        if self._changes < max(_LEAST_CHANGES, self._fitted // _REFIT_SHARE):
            return False
        self.refit()
        return True

    def _map_values(self, matrix: npt.NDArray[np.float64]) -> Keys:
        return self._directions @ (matrix - self._mean).T

    def _aim(self, request: ServiceRequest) -> tuple[Keys, bool, bool]:
        asked = np.array(request.values, np.float64)
        centred = asked - self._mean
        if request.rule is FeasibilityRule.AGREEING and request.side is Side.PULL:
            centred[asked == 0] = 0.0  # what a need does not care about must not move it
        return self._directions @ centred, True, True


class BasicSvdFinder(ProjectedFinder):
    """bSVDS: one list, all attributes weighted alike."""

    def __init__(self, width: int) -> None:
        super().__init__(width, np.ones((1, width)))


class WeightedSvdFinder(ProjectedFinder):
    """rwSVDS: three lists, each with its own random weights in (0, 1]."""

    def __init__(self, width: int, rng: np.random.Generator, lists: int = _LISTS) -> None:
        if lists < 1:
            raise ValueError(f"rwSVDS needs at least one list, not {lists}")
        super().__init__(width, 1.0 - rng.random((lists, width)))


def _find_direction(
    scatter: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the first right singular vector of the weighted items, over its singular value.

    It is the first eigenvector of the weighted scatter matrix, so n items cost O(n·m²) once for
    all weightings. Its sign is free: the largest component is made positive.
    """
    powers, vectors = np.linalg.eigh(scatter * np.outer(weights, weights))
    direction: npt.NDArray[np.float64] = vectors[:, -1]
    direction = direction * np.sign(direction[np.argmax(np.abs(direction))])
    singular = np.sqrt(max(powers[-1], 0.0))
    return direction / singular if singular > 0.0 else direction
