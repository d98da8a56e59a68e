"""Which entries are active and which are passive, and why; the only file that moves them.

A passive entry has one reason: a single active entry that covers it, or the negative space that
it does not meet. It is looked at again exactly when its reason goes away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from denwatch.node.covering.boxes import Domains
from denwatch.node.covering.entries import Entry, EntryIndex, find_hull, sort_widest_first
from denwatch.node.covering.layout import Rows
from denwatch.node.covering.policy import PairWise, Policy
from denwatch.node.covering.space import NegativeSpace
from denwatch.node.covering.spaces import SpaceSet


class Ledger:
    """Active and passive entries under one policy; entries are told apart by their order."""

    def __init__(self, domains: Domains, policy: Policy) -> None:
        self.actives = EntryIndex(domains)
        self.spaces: SpaceSet | None = None
        self._pairs = True
        if not isinstance(policy, PairWise):
            self.spaces = SpaceSet(domains, policy, self.actives)
            self._pairs = policy.pairs
        self._coverers: dict[int, Entry] = {}  # of passive entries that have one, by order
        self._covered: dict[int, dict[int, Entry]] = {}  # the reverse: by the coverer's order
        self._subsumed = EntryIndex(domains, outer=True)  # passive by negative space
        self._masks: dict[int, int] = {}  # how many entries have the mask

    def is_active(self, entry: Entry) -> bool:
        """Say whether the entry has to be forwarded."""
        return entry.order in self.actives.entries

    def get_coverer(self, entry: Entry) -> Entry | None:
        """Return the active entry that makes this one passive alone, if that is its reason."""
        return self._coverers.get(entry.order)

    def add(self, entry: Entry) -> None:
        """Take in a new entry, active or passive."""
        self._masks[entry.mask] = self._masks.get(entry.mask, 0) + 1
        self._place(entry)

    def remove(self, entry: Entry) -> list[Entry]:
        """Take an entry out; return the passive ones that became active for it, in order."""
        self._masks[entry.mask] -= 1
        if not self._masks[entry.mask]:
            del self._masks[entry.mask]
            if self.spaces is not None:
                self.spaces.drop(entry.mask)
        if not self.is_active(entry):
            self._displace(entry)
            return []
        self.actives.remove(entry)
        affected = self._covered.pop(entry.order, {})
        if self.spaces is not None:
            for mask, rows in self.spaces.remove(entry).items():
                affected |= {other.order: other for other in self._find_meeting(mask, rows)}
        again = sort_widest_first(affected.values())
        for other in again:
            self._displace(other)
        for other in again:
            self._place(other)
        return [other for other in again if self.is_active(other)]

    def list_rectangles(self, mask: int) -> Rows:
        """Return the negative rectangles over a mask, whether or not any entry has it."""
        if self.spaces is None:
            return np.empty((0, 2 * mask.bit_count()), np.int32)
        rows = self.spaces.get(mask).rectangles()
        if mask not in self._masks:
            self.spaces.drop(mask)
        return rows

    def explain(self, entry: Entry) -> list[Entry]:
        """Return active entries that together cover a passive one, in order of arrival."""
        coverer = self.get_coverer(entry)
        if coverer is not None:
            return [coverer]
        needed: dict[int, Entry] = {}
        for box in entry.outer:
            left = NegativeSpace(box[None])
            for cut, order in zip(*self.actives.gather(box, entry.mask), strict=True):
                if not left.count:
                    break
                if left.meets(cut[None]):
                    left.cut(cut)
                    needed[int(order)] = self.actives.entries[int(order)]
        return [needed[order] for order in sorted(needed)]

    def _place(self, entry: Entry) -> None:
        coverer = self.actives.find_coverer(entry) if self._pairs and len(entry.outer) else None
        if coverer is not None:
            self._coverers[entry.order] = coverer
            self._covered.setdefault(coverer.order, {})[entry.order] = entry
        elif self._adds_something(entry):
            self.actives.add(entry)
            if self.spaces is not None:
                self.spaces.add(entry)
        else:
            self._subsumed.add(entry)

    def _adds_something(self, entry: Entry) -> bool:
        if self.spaces is None or not len(entry.outer):
            return len(entry.outer) > 0  # what matches nothing adds nothing
        return self.spaces.get(entry.mask).meets(entry.outer)

    def _displace(self, entry: Entry) -> None:
        """Forget why an entry is passive."""
        coverer = self._coverers.pop(entry.order, None)
        if coverer is None:
            self._subsumed.remove(entry)
        elif coverer.order in self._covered:  # not if the coverer itself is going
            del self._covered[coverer.order][entry.order]

    def _find_meeting(self, mask: int, released: Rows) -> Iterator[Entry]:
        """Yield the entries of a mask that are subsumed no more, now that these rows are free."""
        table = self._subsumed.get_table(mask)
        if table is None:
            return
        space = NegativeSpace(released)
        near = table.find_overlapping(find_hull(released))
        orders = [
            int(order)
            for row, order in zip(table.rows[near], table.owners[near], strict=True)
            if space.meets(row[None])
        ]
        for order in dict.fromkeys(orders):
            yield self._subsumed.entries[order]
