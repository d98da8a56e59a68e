"""The negative spaces of all feature masks, kept in step with the active subscriptions.

An active subscription with mask F is cut out of the space of every mask that includes F: whoever
subscribes there is served by it. A space is built when its mask is first asked about.
"""

from __future__ import annotations

import numpy as np
from denwatch.node.covering.boxes import Domains, lift_rows, pack_rows
from denwatch.node.covering.entries import Entry, EntryIndex, find_hull
from denwatch.node.covering.layout import Rows
from denwatch.node.covering.policy import Approximate, Exact
from denwatch.node.covering.space import NegativeSpace


class SpaceSet:
    """A negative space for each mask in use, under one policy."""

    def __init__(self, domains: Domains, policy: Exact | Approximate, actives: EntryIndex) -> None:
        """Follow `actives`; whoever changes it calls `add` or `remove` here right after."""
        self._domains = domains
        self._policy = policy
        self._actives = actives
        self._spaces: dict[int, NegativeSpace] = {}
        # By mask and order of an active entry: the sections that it, and only it, took out of the
        # space (CoveredBy in the paper). Only the approximate form needs them.
        self._sections: dict[int, dict[int, Rows]] = {}

    def get(self, mask: int) -> NegativeSpace:
        """Return the negative space of a mask, built from the active entries if it is new."""
        if mask not in self._spaces:
            whole = pack_rows([self._domains.span(mask)], mask)
            self._spaces[mask] = NegativeSpace(whole, merging=self._policy.merging)
            self._sections[mask] = {}
            for entry in self._actives.entries.values():
                if not entry.mask & ~mask:
                    self._cut(mask, entry)
        return self._spaces[mask]

    def drop(self, mask: int) -> None:
        """Forget the space of a mask that nobody asks about any more."""
        self._spaces.pop(mask, None)
        self._sections.pop(mask, None)

    def count(self) -> int:
        """Return the number of negative rectangles in all spaces."""
        return sum(space.count for space in self._spaces.values())

    def merge(self) -> None:
        """Join adjacent rectangles in every space."""
        for space in self._spaces.values():
            space.merge()

    def add(self, entry: Entry) -> None:
        """Cut a newly active entry out of every space that it serves."""
        for mask in self._spaces:
            if not entry.mask & ~mask:
                self._cut(mask, entry)

    def remove(self, entry: Entry) -> dict[int, Rows]:
        """Give back what an entry alone covered; return it by mask."""
        released = {}
        for mask, space in self._spaces.items():
            if entry.mask & ~mask:
                continue
            if isinstance(self._policy, Exact):
                rows = self._find_uncovered(mask, entry)
            else:
                rows = self._sections[mask].pop(entry.order)
                if self._policy.handover:
                    rows = self._hand_over(mask, rows, self._policy)
            if len(rows):
                space.release(rows)
                released[mask] = rows
        return released

    def _cut(self, mask: int, entry: Entry) -> None:
        space = self._spaces[mask]
        boxes = lift_rows(entry.rows, entry.mask, mask, self._domains)
        if isinstance(self._policy, Exact):
            for box in boxes:
                space.cut(box)
            return
        sections = self._sections[mask]
        budget = self._policy.k
        if self._policy.dynamic:
            budget = max(0, self._policy.k * (len(sections) + 1) - space.count)
        taken = [boxes[:0]]  # an entry without sure boxes covers nothing
        for box in boxes:  # one budget for the whole subscription
            rows, spent = space.cut_within(box, budget, self._policy.metric)
            taken.append(rows)
            budget -= spent
        sections[entry.order] = np.concatenate(taken)

    def _hand_over(self, mask: int, rows: Rows, policy: Approximate) -> Rows:
        """Give sections to active entries that cover them as well; return what is left.

        The paper releases all of them, also where others cover them, and so forgets a little at
        each unsubscription. Each heir may leave `k` pieces behind, as when it subscribed.
        """
        left = NegativeSpace(rows, merging=policy.merging)
        sections = self._sections[mask]
        heirs, orders = self._actives.gather(find_hull(rows), mask)
        for box, order in zip(heirs, orders.tolist(), strict=True):
            if not left.count:
                break
            taken, _ = left.cut_within(box, policy.k, policy.metric)
            if len(taken):
                sections[order] = np.concatenate((sections[order], taken))
        return left.rectangles()

    def _find_uncovered(self, mask: int, entry: Entry) -> Rows:
        """Return the part of a former active entry that no active one covers (paper, Fig. 7)."""
        boxes = lift_rows(entry.rows, entry.mask, mask, self._domains)
        parts = [boxes[:0]]
        for number, box in enumerate(boxes):
            left = NegativeSpace(box[None], merging=self._policy.merging)
            others, _ = self._actives.gather(box, mask)
            # Its own earlier boxes too: where two of them overlap, only the first gives back.
            for cut in np.concatenate((boxes[:number], others)):
                left.cut(cut)
                if not left.count:
                    break
            parts.append(left.rectangles())
        return np.concatenate(parts)
