"""Subscriptions as the table stores them, and their boxes in arrays by feature mask, for searching.

A `CoveringEntry` is a subscription clipped to the domains, with its place in the order of arrival.
An `EntryIndex` has one `RowTable` for each mask: the boxes of all entries with that mask side by
side. A question about mask G looks at the tables of G's subsets only; it answers which entries meet
a box, and which single entry covers another one. Loners, which cover others only alone, have tables
of their own, which the first question passes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from denwatch.node.covering.boxes import (
    BoxedSubscription,
    Domains,
    Rows,
    cover_rows,
    find_columns,
    lift_rows,
    list_rows,
    pack_rows,
)
from denwatch.node.covering.space import get_kernels

Orders = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CoveringEntry:
    """One subscription: its place in the order of arrival, and its boxes over its own mask."""

    order: int
    mask: int
    rows: Rows  # where it surely matches: it covers others with these
    outer: Rows  # where it can match: it is covered with these; the same array if boxes are exact
    share: float  # of all values that its features can take, at most
    is_loner: bool = False  # it covers others only alone

    @classmethod
    def make(cls, order: int, subscription: BoxedSubscription, domains: Domains) -> CoveringEntry:
        """Clip a subscription to the domains and measure it."""
        mask = subscription.mask
        rows = outer = pack_rows(list_rows(subscription.boxes, mask, domains), mask)
        if subscription.outer is not None:
            outer = pack_rows(list_rows(subscription.outer, mask, domains), mask)
        whole = measure_rows(pack_rows([domains.span(mask)], mask))[0]
        share = float(measure_rows(rows).sum() / whole)
        return cls(order, mask, rows, outer, share, subscription.is_loner)


def sort_widest_first(entries: Iterable[CoveringEntry]) -> list[CoveringEntry]:
    """Order entries so that those that can cover others come first; equals by arrival."""
    return sorted(entries, key=lambda entry: (entry.mask.bit_count(), -entry.share, entry.order))


def measure_rows(rows: Rows) -> npt.NDArray[np.float64]:
    """Return the volume of each box: how many points it holds."""
    sides = rows[:, 1::2].astype(np.float64) - rows[:, ::2] + 1.0
    return np.asarray(sides.prod(axis=1), dtype=np.float64)


def find_hull(rows: Rows) -> npt.NDArray[np.int32]:
    """Return the smallest box around some boxes; without any, one that nothing meets."""
    hull = np.empty(rows.shape[1], np.int32)
    hull[::2] = rows[:, ::2].min(axis=0, initial=np.iinfo(np.int32).max)
    hull[1::2] = rows[:, 1::2].max(axis=0, initial=np.iinfo(np.int32).min)
    return hull


class RowTable:
    """The boxes of many entries of one mask, side by side, each with its entry's order."""

    def __init__(self, width: int) -> None:
        self._rows: Rows = np.empty((16, width), np.int32)
        self._orders: Orders = np.empty(16, np.int64)
        self._size = 0

    @property
    def rows(self) -> Rows:
        """A view of the boxes, valid until the next change."""
        return self._rows[: self._size]

    @property
    def orders(self) -> Orders:
        """A view of the boxes' orders, valid until the next change."""
        return self._orders[: self._size]

    def add(self, rows: Rows, order: int) -> None:
        """Append an entry's boxes."""
        size = self._size + len(rows)
        if size > len(self._orders):
            capacity = max(size, 2 * len(self._orders))
            self._rows.resize((capacity, self._rows.shape[1]), refcheck=False)
            self._orders.resize(capacity, refcheck=False)
        self._rows[self._size : size] = rows
        self._orders[self._size : size] = order
        self._size = size

    def remove(self, order: int) -> None:
        """Take an entry's boxes out, keeping the order of the others."""
        kept = self.orders != order
        size = int(kept.sum())
        self._rows[:size] = self.rows[kept]
        self._orders[:size] = self.orders[kept]
        self._size = size

    def find_overlapping(self, box: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Say of each box whether it has a point in common with this one."""
        rows = self.rows
        return np.asarray(((rows[:, ::2] <= box[1::2]) & (rows[:, 1::2] >= box[::2])).all(axis=1))


class EntryIndex:
    """Entries by mask, for questions across masks; by their sure boxes or by their outer ones."""

    def __init__(self, domains: Domains, *, outer: bool = False) -> None:
        self._domains = domains
        self._outer = outer
        self._tables: dict[int, RowTable] = {}
        self._loners: dict[int, RowTable] = {}
        self._several: dict[int, CoveringEntry] = {}  # those with more than one box, by order
        self.entries: dict[int, CoveringEntry] = {}  # by order

    def add(self, entry: CoveringEntry) -> None:
        """Take an entry in."""
        self.entries[entry.order] = entry
        rows = self._get_rows(entry)
        if not len(rows):
            return  # nothing to find
        tables = self._choose(entry)
        if entry.mask not in tables:
            tables[entry.mask] = RowTable(rows.shape[1])
        tables[entry.mask].add(rows, entry.order)
        if len(rows) > 1:
            self._several[entry.order] = entry

    def remove(self, entry: CoveringEntry) -> None:
        """Take an entry out."""
        del self.entries[entry.order]
        self._several.pop(entry.order, None)
        if not len(self._get_rows(entry)):
            return
        tables = self._choose(entry)
        tables[entry.mask].remove(entry.order)
        if not len(tables[entry.mask].orders):
            del tables[entry.mask]

    def get_table(self, mask: int) -> RowTable | None:
        """Return the boxes over exactly this mask."""
        return self._tables.get(mask)

    def gather(self, box: npt.NDArray[np.int32], mask: int) -> tuple[Rows, Orders]:
        """Return, as boxes over `mask`, those of entries with no other features that meet `box`.

        Without loners, which cover nothing together. The largest overlap comes first, so that who
        subtracts them is done soon.
        """
        rows, orders_of = [np.empty((0, len(box)), np.int32)], [np.empty(0, np.int64)]
        for inner, table in _list_tables(self._tables, mask):
            near = table.find_overlapping(box[find_columns(inner, mask)])
            rows.append(lift_rows(table.rows[near], inner, mask, self._domains))
            orders_of.append(table.orders[near])
        found, orders = np.concatenate(rows), np.concatenate(orders_of)
        overlaps = np.empty_like(found)
        overlaps[:, ::2] = np.maximum(found[:, ::2], box[::2])
        overlaps[:, 1::2] = np.minimum(found[:, 1::2], box[1::2])
        by_size = np.lexsort((orders, -measure_rows(overlaps)))
        return found[by_size], orders[by_size]

    def find_coverer(self, entry: CoveringEntry) -> CoveringEntry | None:
        """Return the earliest entry that covers another, not empty one alone, if there is any."""
        best: int | None = None
        find_containing = get_kernels().find_containing
        tables = (
            *_list_tables(self._tables, entry.mask),
            *_list_tables(self._loners, entry.mask),
        )
        for inner, table in tables:
            seen = np.ascontiguousarray(entry.outer[:, find_columns(inner, entry.mask)])
            common: set[int] | None = None
            for box in seen:
                coverers = set(table.orders[find_containing(table.rows, box)].tolist())
                common = coverers if common is None else common & coverers
                if not common:
                    break
            if common:
                best = min(common) if best is None else min(best, *common)
        for order, other in self._several.items():
            if (best is None or order < best) and self._covers(other, entry):
                best = order
        return None if best is None else self.entries[best]

    def _covers(self, other: CoveringEntry, entry: CoveringEntry) -> bool:
        """Say whether an entry's boxes cover another's, also where no single box of it does."""
        if other.mask & ~entry.mask:
            return False
        lifted = lift_rows(other.rows, other.mask, entry.mask, self._domains)
        return cover_rows(map(tuple, entry.outer.tolist()), map(tuple, lifted.tolist()))

    def _get_rows(self, entry: CoveringEntry) -> Rows:
        return entry.outer if self._outer else entry.rows

    def _choose(self, entry: CoveringEntry) -> dict[int, RowTable]:
        return self._loners if entry.is_loner and not self._outer else self._tables


def _list_tables(tables: dict[int, RowTable], mask: int) -> Iterator[tuple[int, RowTable]]:
    """Yield the boxes of every mask that this one includes, in a fixed order."""
    if len(tables) < 1 << mask.bit_count():
        yield from ((i, table) for i, table in tables.items() if not i & ~mask)
        return
    inner = mask  # fewer masks to try than tables to look at
    while True:
        if inner in tables:
            yield inner, tables[inner]
        if not inner:
            return
        inner = (inner - 1) & mask
