"""The table of subscriptions that a node asks: does this one have to be forwarded?

`Covering` is what a node uses; it names subscriptions by the caller's ids. Inside, a subscription
is an entry, told apart by its order of arrival:

    CoveringState   which entries are active and which passive, and why; only it moves them
    SpaceSet        the negative space of each mask in use, kept in step with the active entries

INVARIANT  A passive entry has one reason: a single active entry that covers it, or the negative
           space of its mask, which it does not meet. It is looked at again exactly when its reason
           goes away. An active entry with mask F is cut out of the space of every mask that
           includes F, because it serves whoever subscribes there.
EXAMPLE    See README.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from denwatch.node.covering.boxes import (
    Approximate,
    BoxedSubscription,
    Domains,
    Exact,
    PairWise,
    Policy,
    Rows,
    lift_rows,
    pack_rows,
)
from denwatch.node.covering.entries import CoveringEntry, EntryIndex, find_hull, sort_widest_first
from denwatch.node.covering.space import NegativeSpace


class SpaceSet:
    """A negative space for each mask in use, under one policy; built when first asked about."""

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

    def add(self, entry: CoveringEntry) -> None:
        """Cut a newly active entry out of every space that it serves."""
        for mask in self._spaces:
            if not entry.mask & ~mask:
                self._cut(mask, entry)

    def remove(self, entry: CoveringEntry) -> dict[int, Rows]:
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

    def _cut(self, mask: int, entry: CoveringEntry) -> None:
        space = self._spaces[mask]
        boxes = lift_rows(entry.rows, entry.mask, mask, self._domains)
        if entry.is_loner:
            boxes = boxes[:0]
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

    def _find_uncovered(self, mask: int, entry: CoveringEntry) -> Rows:
        """Return the part of a former active entry that no active one covers (paper, Fig. 7)."""
        boxes = lift_rows(entry.rows, entry.mask, mask, self._domains)
        if entry.is_loner:
            boxes = boxes[:0]
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


class CoveringState:
    """Active and passive entries under one policy; entries are told apart by their order."""

    def __init__(self, domains: Domains, policy: Policy) -> None:
        self.actives = EntryIndex(domains)
        self.spaces: SpaceSet | None = None
        self._pairs = True
        if not isinstance(policy, PairWise):
            self.spaces = SpaceSet(domains, policy, self.actives)
            self._pairs = policy.pairs
        self._coverers: dict[int, CoveringEntry] = {}  # of passive entries that have one, by order
        self._covered: dict[
            int, dict[int, CoveringEntry]
        ] = {}  # the reverse: by the coverer's order
        self._subsumed = EntryIndex(domains, outer=True)  # passive by negative space
        self._masks: dict[int, int] = {}  # how many entries have the mask

    def is_active(self, entry: CoveringEntry) -> bool:
        """Say whether the entry has to be forwarded."""
        return entry.order in self.actives.entries

    def get_coverer(self, entry: CoveringEntry) -> CoveringEntry | None:
        """Return the active entry that makes this one passive alone, if that is its reason."""
        return self._coverers.get(entry.order)

    def add(self, entry: CoveringEntry) -> None:
        """Take in a new entry, active or passive."""
        self._masks[entry.mask] = self._masks.get(entry.mask, 0) + 1
        self._place(entry)

    def remove(self, entry: CoveringEntry) -> list[CoveringEntry]:
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

    def explain(self, entry: CoveringEntry) -> list[CoveringEntry]:
        """Return active entries that together cover a passive one, in order of arrival."""
        coverer = self.get_coverer(entry)
        if coverer is not None:
            return [coverer]
        needed: dict[int, CoveringEntry] = {}
        for box in entry.outer:
            left = NegativeSpace(box[None])
            for cut, order in zip(*self.actives.gather(box, entry.mask), strict=True):
                if not left.count:
                    break
                if left.meets(cut[None]):
                    left.cut(cut)
                    needed[int(order)] = self.actives.entries[int(order)]
        return [needed[order] for order in sorted(needed)]

    def _place(self, entry: CoveringEntry) -> None:
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

    def _adds_something(self, entry: CoveringEntry) -> bool:
        if self.spaces is None or not len(entry.outer):
            return len(entry.outer) > 0  # what matches nothing adds nothing
        return self.spaces.get(entry.mask).meets(entry.outer)

    def _displace(self, entry: CoveringEntry) -> None:
        """Forget why an entry is passive."""
        coverer = self._coverers.pop(entry.order, None)
        if coverer is None:
            self._subsumed.remove(entry)
        elif coverer.order in self._covered:  # not if the coverer itself is going
            del self._covered[coverer.order][entry.order]

    def _find_meeting(self, mask: int, released: Rows) -> Iterator[CoveringEntry]:
        """Yield the entries of a mask that are subsumed no more, now that these rows are free."""
        table = self._subsumed.get_table(mask)
        if table is None:
            return
        space = NegativeSpace(released)
        near = table.find_overlapping(find_hull(released))
        orders = [
            int(order)
            for row, order in zip(table.rows[near], table.orders[near], strict=True)
            if space.meets(row[None])
        ]
        for order in dict.fromkeys(orders):
            yield self._subsumed.entries[order]


Key = TypeVar("Key", bound=Hashable)  # what the caller tells subscriptions apart by


@dataclass(frozen=True, slots=True)
class Placement(Generic[Key]):
    """Where a new subscription went."""

    active: bool  # it adds something and has to be forwarded; else it is passive
    by: Key | None = None  # if passive: the one active subscription that covers it, if any


@dataclass(frozen=True, slots=True)
class CoveringChange(Generic[Key]):
    """What a rebuild moved, by id and in order of arrival."""

    activated: tuple[Key, ...]
    silenced: tuple[Key, ...]


class Covering(Generic[Key]):
    """Active subscriptions, which are forwarded, and passive ones, which those cover.

    The same calls in the same order give the same answers. A passive subscription is covered by
    the active ones at all times; under `Exact` the reverse holds when it arrives: whatever the
    active ones cover is passive.
    """

    def __init__(self, domains: Domains | None = None, policy: Policy | None = None) -> None:
        """Start empty, by default with byte-wide attributes and the approximate policy."""
        self._domains = domains or Domains()
        self._policy = policy or Approximate()
        self._ledger = CoveringState(self._domains, self._policy)
        self._entries: dict[Key, CoveringEntry] = {}
        self._ids: dict[int, Key] = {}  # by the entry's order
        self._arrivals = 0

    def subscribe(self, id: Key, subscription: BoxedSubscription) -> Placement[Key]:
        """Add a subscription under a new id and say whether it has to be forwarded."""
        if id in self._entries:
            raise ValueError(f"subscription {id!r} is in the table already")
        entry = CoveringEntry.make(self._arrivals, subscription, self._domains)
        self._arrivals += 1
        self._ledger.add(entry)
        self._entries[id] = entry
        self._ids[entry.order] = id
        coverer = self._ledger.get_coverer(entry)
        by = None if coverer is None else self._ids[coverer.order]
        return Placement(self._ledger.is_active(entry), by)

    def unsubscribe(self, id: Key) -> tuple[Key, ...]:
        """Remove a subscription; return the passive ones that must be forwarded in its place."""
        entry = self._find(id)
        back = self._ledger.remove(entry)
        del self._entries[id], self._ids[entry.order]
        return self._name(back)

    def active(self) -> tuple[Key, ...]:
        """Return the ids of the active subscriptions, in order of arrival."""
        return tuple(i for i, entry in self._entries.items() if self._ledger.is_active(entry))

    def passive(self) -> tuple[Key, ...]:
        """Return the ids of the passive subscriptions, in order of arrival."""
        return tuple(i for i, entry in self._entries.items() if not self._ledger.is_active(entry))

    def is_active(self, id: Key) -> bool:
        """Say whether the subscription is active."""
        return self._ledger.is_active(self._find(id))

    def explain(self, id: Key) -> tuple[Key, ...]:
        """Return active subscriptions that together cover a passive one; none for an active one.

        They are enough, not always the fewest. Found by exact subtraction, whatever the policy.
        """
        entry = self._find(id)
        if self._ledger.is_active(entry):
            return ()
        return self._name(self._ledger.explain(entry))

    def rebuild(self) -> CoveringChange[Key]:
        """Place all subscriptions anew, the widest first, and say which moved.

        It makes up for what arrived in an unlucky order, for approximate unsubscriptions, and for
        active subscriptions that later ones cover. It takes as long as all the subscriptions took.
        """
        ledger = CoveringState(self._domains, self._policy)
        for entry in sort_widest_first(self._entries.values()):
            ledger.add(entry)
        before, self._ledger = self._ledger, ledger
        moved = [e for e in self._entries.values() if before.is_active(e) != ledger.is_active(e)]
        return CoveringChange(
            activated=self._name(entry for entry in moved if ledger.is_active(entry)),
            silenced=self._name(entry for entry in moved if before.is_active(entry)),
        )

    def rectangles(self, mask: int) -> Rows:
        """Return the negative rectangles over a mask: lo, hi of each bit, ascending."""
        return self._ledger.list_rectangles(mask)

    def count_rectangles(self) -> int:
        """Return how many negative rectangles the table keeps, over all masks."""
        return 0 if self._ledger.spaces is None else self._ledger.spaces.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def _name(self, entries: Iterable[CoveringEntry]) -> tuple[Key, ...]:
        return tuple(self._ids[entry.order] for entry in entries)

    def _find(self, id: Key) -> CoveringEntry:
        try:
            return self._entries[id]
        except KeyError:
            raise KeyError(f"subscription {id!r} is not in the table") from None
