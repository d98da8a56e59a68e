"""FNIFC: the flat algorithm over subscriptions grouped under covering ones (DENS paper, Fig. 5c).

Active subscriptions are those that no other covers; only they are walked. The others hang on one
that covers them (the paper's associations) and are looked at only after it has matched. Equal
vectors share one evaluation. Answers are exact: a covered subscription gets its own degree.
"""

from __future__ import annotations

from collections.abc import Iterator

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

from papers.evaluation import Entry, Readings, evaluate
from papers.relations import Outline, covers


class Family:
    """All subscriptions with one vector, and if they are active, the families that they cover."""

    __slots__ = ("covered", "entry", "ids", "outline", "parent")

    def __init__(self, entry: Entry, outline: Outline) -> None:
        self.entry = entry
        self.outline = outline
        self.ids: dict[int, None] = {}
        self.parent: Family | None = None
        self.covered: dict[Family, None] = {}


class FNIFC:
    """The flat algorithm with covering: many subscriptions answered by one evaluation."""

    def __init__(self) -> None:
        self._places: dict[int, Family] = {}
        self._families: dict[tuple[object, ...], Family] = {}
        self._active: dict[int, dict[Family, None]] = {}  # by event and features

    def __len__(self) -> int:
        return len(self._places)

    def count_active(self) -> int:
        """Return how many vectors are walked: what covering leaves of the subscriptions."""
        return sum(len(families) for families in self._active.values())

    def list_associations(self) -> Iterator[tuple[int, int]]:
        """Yield (covered id, covering id) for every subscription that is not walked itself."""
        for id, family in self._places.items():
            head = next(iter((family.parent or family).ids))
            if head != id:
                yield id, head

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if id in self._places:
            self.remove(id)
        outline = Outline(subscription)
        family = self._families.get(outline.vector)
        if family is None:
            family = Family(Entry(id, subscription), outline)
            self._families[outline.vector] = family
            self._place(family)
        family.ids[id] = None
        self._places[id] = family

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        family = self._places.pop(id)
        del family.ids[id]
        if family.ids:
            return
        del self._families[family.outline.vector]
        if family.parent:
            del family.parent.covered[family]
            return
        self._retire(family)
        for orphan in family.covered:
            orphan.parent = None
            self._place(orphan)

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id."""
        readings = Readings(notification)
        hits: list[SubscriptionMatch] = []
        for family in self._find_candidates(readings):
            if not self._report(family, readings, age, hits):
                continue
            for covered in family.covered:
                if readings.admits(covered.entry.key):
                    self._report(covered, readings, age, hits)
        hits.sort()
        return hits

    def filter(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return one hit for each distinct mask, as FNIF does at the source.

        A covered family is looked at only if its mask differs from that of the one above it.
        """
        readings = Readings(notification)
        found: dict[int, SubscriptionMatch] = {}
        for family in self._find_candidates(readings):
            sent = family.entry.key in found
            masks = {covered.entry.key for covered in family.covered}
            if sent and masks <= found.keys():
                continue
            head = evaluate(family.entry, readings, age)
            if not head:
                continue
            for other in (family, *family.covered):
                key = other.entry.key
                if key in found or not readings.admits(key):
                    continue
                hit = head if other is family else evaluate(other.entry, readings, age)
                if hit:
                    found[key] = hit._replace(id=next(iter(other.ids)))
        return list(found.values())

    def _report(
        self, family: Family, readings: Readings, age: int, hits: list[SubscriptionMatch]
    ) -> bool:
        hit = evaluate(family.entry, readings, age)
        if hit:
            _, possible, certain, attribute = hit
            hits.extend([SubscriptionMatch(id, possible, certain, attribute) for id in family.ids])
        return hit is not None

    def _find_candidates(self, readings: Readings) -> Iterator[Family]:
        for key, families in self._active.items():
            if readings.admits(key):
                yield from families

    def _place(self, family: Family) -> None:
        """Hang a family without a parent on an active one that covers it, or make it active."""
        key = family.entry.key
        for other_key, families in self._active.items():
            if other_key & ~key or other_key >> 16 != key >> 16:
                continue
            for other in families:
                if covers(other.outline, family.outline):
                    self._adopt(other, family)
                    return
        narrower = [
            other
            for other_key, families in self._active.items()
            if not key & ~other_key and other_key >> 16 == key >> 16
            for other in families
            if covers(family.outline, other.outline)
        ]
        for other in narrower:
            self._retire(other)
            self._adopt(family, other)
        self._active.setdefault(key, {})[family] = None

    def _adopt(self, head: Family, family: Family) -> None:
        """Hang a family and, as covering is transitive, all that it covers on the head."""
        for one in (family, *family.covered):
            one.parent = head
            head.covered[one] = None
        family.covered = {}

    def _retire(self, family: Family) -> None:
        key = family.entry.key
        del self._active[key][family]
        if not self._active[key]:
            del self._active[key]
