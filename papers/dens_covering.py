"""FNIFC: the flat algorithm over subscriptions grouped under covering ones (DENS paper, Fig. 5c).

Active subscriptions are those that no other covers; only they are walked. Each of the others hangs
on one that covers it (the paper's associations) and is looked at only after that one has matched.
Equal vectors share one evaluation. Answers are exact: a covered subscription gets its own degree.

When s covers t: whatever matches t matches s. The paper compares the triples (Fig. 5c, with the
roles put right): the attributes of s are among those of t, and its sets contain those of t. Here
the sets are compared where it counts: under min, the alpha-cuts at the thresholds; under the other
aggregators, at every height. Sound for exact and for uncertain readings; it may say no where a
finer argument would say yes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.cuts import cut
from denwatch.protocol.degrees import MIN, PRODUCT, SUGENO
from denwatch.protocol.vectors import NOT, NotificationVector, Predicate, SubscriptionVector

from papers.dens_flat import Entry, Readings, evaluate

Interval = tuple[int, int]


class Cut(NamedTuple):
    """What one predicate must reach under min: the two levels and where it reaches them."""

    possible: int
    certain: int
    possible_at: list[Interval]
    certain_at: list[Interval]


class Outline:
    """A subscription as covering sees it; computed once, compared often."""

    __slots__ = ("cuts", "monotone", "subscription", "vector")

    def __init__(self, subscription: SubscriptionVector) -> None:
        s = subscription
        self.subscription = s
        self.vector = describe_vector(s)
        self.monotone = s.aggregator != SUGENO and NOT not in s.pattern
        self.cuts: dict[int, list[Cut]] = {}
        if s.aggregator == MIN and not s.pattern:
            for p in s.predicates:
                possible = max(p.possible, s.threshold)
                certain = max(p.certain, s.certain)
                where = Cut(possible, certain, cut(p, possible), cut(p, certain))
                self.cuts.setdefault(p.attribute << 1 | p.wide, []).append(where)


def describe_vector(s: SubscriptionVector) -> tuple[object, ...]:
    """Return all that decides a match: equal descriptions have equal answers, always."""
    predicates = tuple([p.fields() for p in s.predicates])
    rules = tuple(s.consequents) if s.consequents is not None else None
    thresholds = (s.threshold, s.certain)
    return s.event, predicates, s.aggregator, thresholds, s.pattern, s.recent, rules


def within(inner: list[tuple[int, int]], outer: list[tuple[int, int]]) -> bool:
    """Return whether every inner interval lies in one outer interval."""
    return all(any(a <= low and high <= b for a, b in outer) for low, high in inner)


def covers(wide: Outline, narrow: Outline) -> bool:
    """Return whether every notification that matches `narrow` matches `wide`."""
    s = wide.subscription
    t = narrow.subscription
    if s.event != t.event or s.features & ~t.features:
        return False
    if wide.vector == narrow.vector:
        return True
    lower = s.threshold <= t.threshold and s.certain <= t.certain
    # Age fades the whole, not the predicates: only the thresholds of the whole then count.
    if s.recent is not None and not (s.recent == t.recent and lower):
        return False
    if wide.cuts and narrow.cuts:
        return _contain_cuts(wide, narrow)
    if not lower or s.aggregator != t.aggregator:
        return False
    if not wide.monotone or s.pattern != t.pattern:
        return False
    if s.aggregator == PRODUCT and not s.pattern:
        return _contain_factors(s, t)
    return len(s.predicates) == len(t.predicates) and all(
        contains(p, q) for p, q in zip(s.predicates, t.predicates, strict=True)
    )


def contains(p: Predicate, q: Predicate) -> bool:
    """Return whether p's degree is never below q's, and its own thresholds never above."""
    if (p.attribute, p.wide, p.hedge, p.negated) != (q.attribute, q.wide, q.hedge, q.negated):
        return False
    if p.weight != q.weight or p.possible > q.possible or p.certain > q.certain:
        return False
    outer, inner = (q, p) if p.negated else (p, q)
    return (
        outer.low <= inner.low
        and outer.high >= inner.high
        and outer.left <= inner.left
        and outer.right <= inner.right
    )


def _contain_cuts(wide: Outline, narrow: Outline) -> bool:
    """Compare two conjunctions under min: each cut of the wide one contains one of the narrow."""
    for attribute, cuts in wide.cuts.items():
        others = narrow.cuts.get(attribute, [])
        for a in cuts:
            # A lower level helps the wide one twice: its set and the reading's are both larger.
            possible = [
                within(b.possible_at, a.possible_at) for b in others if b.possible >= a.possible
            ]
            certain = [within(b.certain_at, a.certain_at) for b in others if b.certain >= a.certain]
            if not (any(possible) and any(certain)):
                return False
    return True


def _contain_factors(s: SubscriptionVector, t: SubscriptionVector) -> bool:
    """Compare two products: leaving a factor out never lowers one, with one factor an attribute."""
    if len({p.attribute for p in t.predicates}) < len(t.predicates):
        return False
    others = {q.attribute: q for q in t.predicates}
    return len({p.attribute for p in s.predicates}) == len(s.predicates) and all(
        contains(p, others[p.attribute]) for p in s.predicates
    )


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
