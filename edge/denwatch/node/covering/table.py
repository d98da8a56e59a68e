"""The table of subscriptions that a node asks: does this one have to be sent on?"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from denwatch.node.covering.boxes import Domains, Subscription
from denwatch.node.covering.entries import Entry, sort_widest_first
from denwatch.node.covering.layout import Rows
from denwatch.node.covering.ledger import Ledger
from denwatch.node.covering.policy import Approximate, Policy

Key = TypeVar("Key", bound=Hashable)  # what the caller tells subscriptions apart by


@dataclass(frozen=True, slots=True)
class Placement(Generic[Key]):
    """Where a new subscription went."""

    active: bool  # it adds something and has to be forwarded; else it is passive
    by: Key | None = None  # if passive: the one active subscription that covers it, if any


@dataclass(frozen=True, slots=True)
class Change(Generic[Key]):
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
        self._ledger = Ledger(self._domains, self._policy)
        self._entries: dict[Key, Entry] = {}
        self._ids: dict[int, Key] = {}  # by the entry's order
        self._arrivals = 0

    def subscribe(self, id: Key, subscription: Subscription) -> Placement[Key]:
        """Add a subscription under a new id and say whether it has to be forwarded."""
        if id in self._entries:
            raise ValueError(f"subscription {id!r} is in the table already")
        entry = Entry.make(self._arrivals, subscription, self._domains)
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

    def rebuild(self) -> Change[Key]:
        """Place all subscriptions anew, the widest first, and say which moved.

        It makes up for what arrived in an unlucky order, for approximate unsubscriptions, and for
        active subscriptions that later ones cover. It takes as long as all the subscriptions took.
        """
        ledger = Ledger(self._domains, self._policy)
        for entry in sort_widest_first(self._entries.values()):
            ledger.add(entry)
        before, self._ledger = self._ledger, ledger
        moved = [e for e in self._entries.values() if before.is_active(e) != ledger.is_active(e)]
        return Change(
            activated=self._name(entry for entry in moved if ledger.is_active(entry)),
            silenced=self._name(entry for entry in moved if before.is_active(entry)),
        )

    def merge(self) -> int:
        """Join adjacent negative rectangles until none can be joined; return how many are left.

        No answer changes by it, only the space and time that later ones take. It sorts all of
        them several times: for idle moments, where the policy's `merging` works as it goes.
        """
        if self._ledger.spaces is not None:
            self._ledger.spaces.merge()
        return self.count_rectangles()

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

    def _name(self, entries: Iterable[Entry]) -> tuple[Key, ...]:
        return tuple(self._ids[entry.order] for entry in entries)

    def _find(self, id: Key) -> Entry:
        try:
            return self._entries[id]
        except KeyError:
            raise KeyError(f"subscription {id!r} is not in the table") from None
