"""The flat algorithms of the DENS paper: FNIF, FNIFS, FIP, and the crisp one to compare with.

The arithmetic is the protocol's, so that an engine differs from another only in its data structure,
in what it looks at and in what order. First what they share: a notification laid out for look-up
(`Readings`), a subscription made ready (`Entry`), and its degree (`evaluate`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from enum import Enum

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.cuts import cut_set, invert_hedge, measure
from denwatch.protocol.degrees import GEOMETRIC, HARMONIC, MAX, MIN, PRODUCT, SUGENO, aggregate
from denwatch.protocol.matching import apply_rules, find_least, match, rate_age
from denwatch.protocol.vectors import NOT, OR, NotificationVector, Predicate, SubscriptionVector

_EVENT = 0x3F0000

Points = tuple[int, int, int, int]
Verdict = tuple[int, int, int]  # possible, certain, the place of the predicate that decided


class Readings:
    """A notification laid out for look-up: each attribute's trapezoid at both resolutions."""

    __slots__ = (
        *("_readings", "event", "features", "is_doubtful", "key"),
        *("narrow", "notification", "outside", "wide"),
    )

    def __init__(self, notification: NotificationVector) -> None:
        self._readings = notification.readings
        self.notification = notification
        self.is_doubtful = not all(reading.exact for reading in notification.readings)
        self.event = notification.event
        self.features = notification.features
        self.key = join_key(self.event, self.features)
        # A subscription is a candidate iff its key under this mask is the event alone.
        self.outside = _EVENT | 0xFFFF & ~self.features
        self.narrow: dict[int, Points] = {}
        self.wide: dict[int, Points] = {}
        for reading in notification.readings:
            a, b, c, d = reading.points
            if reading.wide:
                self.wide[reading.attribute] = (a, b, c, d)
                self.narrow[reading.attribute] = (a >> 8, b >> 8, c >> 8, d >> 8)
            else:
                self.narrow[reading.attribute] = (a, b, c, d)
                self.wide[reading.attribute] = (a * 257, b * 257, c * 257, d * 257)

    def admits(self, key: int) -> bool:
        """Return whether a subscription with this key has the event and no attribute too many."""
        return key & self.outside == self.event << 16

    def measure(self, predicate: Predicate) -> tuple[int, int]:
        """Return (possible, certain) of a predicate whose attribute is there."""
        points = self.wide if predicate.wide else self.narrow
        return measure(predicate, points[predicate.attribute])

    def find_centres(self) -> dict[int, int]:
        """Return the middle of each core, which Takagi-Sugeno rules of first order compute with."""
        centres = {}
        for reading in self._readings:
            middle = (reading.points[1] + reading.points[2]) // 2
            centres[reading.attribute] = middle >> 8 if reading.wide else middle
        return centres


class Entry:
    """One stored subscription vector, with what every evaluation of it would compute again."""

    __slots__ = ("certain", "id", "key", "possible", "subscription", "weights")

    def __init__(self, id: int, subscription: SubscriptionVector) -> None:
        self.id = id
        self.subscription = subscription
        self.key = join_key(subscription.event, subscription.features)
        self.weights = bytes([p.weight for p in subscription.predicates])
        # Under min without a pattern no predicate may fall below the whole's threshold.
        strict = subscription.aggregator == MIN and not subscription.pattern
        self.possible = subscription.threshold if strict else 0
        self.certain = subscription.certain if strict else 0


def join_key(event: int, features: int) -> int:
    """Return event and feature mask as one number, to compare and to sort by."""
    return event << 16 | features


def evaluate(entry: Entry, readings: Readings, age: int) -> SubscriptionMatch | None:
    """Return the hit of a candidate, or None where the degrees do not suffice."""
    s = entry.subscription
    possibles = bytearray()
    certains = bytearray()
    for p in s.predicates:
        possible, certain = readings.measure(p)
        if (
            possible < p.possible
            or certain < p.certain
            or possible < entry.possible
            or certain < entry.certain
        ):
            return None
        possibles.append(possible)
        certains.append(certain)
    return conclude(entry, possibles, certains, readings, age)


def conclude(
    entry: Entry, possibles: bytearray, certains: bytearray, readings: Readings, age: int
) -> SubscriptionMatch | None:
    """Return the hit of a candidate from its predicates' degrees, or None if they are too low."""
    s = entry.subscription
    if s.aggregator == SUGENO:
        verdict = combine_rules(s, possibles, certains, readings)
    elif readings.is_doubtful and len(s.predicates) > s.features.bit_count():
        found = match(s, readings.notification, age)  # one attribute twice: judged together
        assert found is not None
        verdict = found.possible, found.certain, found.predicate
    elif s.pattern:
        verdict = combine_pattern(s, possibles, certains)
    else:
        verdict = combine_flat(entry, possibles, certains)
    return decide(s, verdict, age)


def decide(s: SubscriptionVector, verdict: Verdict, age: int) -> SubscriptionMatch | None:
    """Return the hit if the degrees, faded by age, reach both thresholds of the subscription."""
    possible, certain, decisive = verdict
    if s.recent:
        fresh = rate_age(age, s.recent)
        possible = min(possible, fresh)
        certain = min(certain, fresh)
    if possible < s.threshold or certain < s.certain:
        return None
    return SubscriptionMatch(0, possible, certain, s.predicates[decisive].attribute)


def combine_flat(entry: Entry, possibles: bytearray, certains: bytearray) -> Verdict:
    """Aggregate all predicates at once: a subscription without a pattern."""
    kind = entry.subscription.aggregator
    count = len(possibles)
    possible = aggregate(kind, possibles, 0, count, entry.weights, 0)
    same = possibles == certains
    certain = possible if same else aggregate(kind, certains, 0, count, entry.weights, 0)
    return possible, certain, find_least(kind, possibles, 0, count)


def combine_pattern(s: SubscriptionVector, possibles: bytearray, certains: bytearray) -> Verdict:
    """Run the postfix pattern; a negation swaps possible and certain."""
    stack: list[Verdict] = []
    for op in s.pattern:
        if op < len(possibles):
            stack.append((possibles[op], certains[op], op))
        elif op == NOT:
            possible, certain, decisive = stack.pop()
            stack.append((255 - certain, 255 - possible, decisive))
        else:
            kind = MAX if op & 0xF0 == OR else s.aggregator
            highs = bytearray()
            lows = bytearray()
            operands = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            for possible, certain, _ in operands:
                highs.append(possible)
                lows.append(certain)
            decisive = operands[find_least(kind, highs, 0, len(highs))][2]
            possible = aggregate(kind, highs, 0, len(highs), b"", 0)
            certain = aggregate(kind, lows, 0, len(lows), b"", 0)
            stack.append((possible, certain, decisive))
    return stack[0]


def combine_rules(
    s: SubscriptionVector, possibles: bytearray, certains: bytearray, readings: Readings
) -> Verdict:
    """Apply the Takagi-Sugeno rules of a subscription: the fuzzy mean of its pairs."""
    centres = readings.find_centres()
    possible = apply_rules(s, possibles, centres)
    certain = min(possible, apply_rules(s, certains, centres))
    return possible, certain, find_least(s.aggregator, possibles, 0, len(possibles))


# FNIF and FNIFS: flat lists without predicate indexing, features first (DENS paper, Fig. 5a, 5b).
#
# Both compare feature masks before any membership function is applied. FNIF walks all subscriptions
# in the order of arrival; FNIFS keeps them sorted by features, so that the walk starts at the
# event's first mask, ends after the notification's own (a subset is never the larger number), and
# tests each distinct mask once.


class FNIF:
    """The flat algorithm without indexing: one pass over all subscriptions."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        self._entries[id] = self._prepare(id, subscription)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        del self._entries[id]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id."""
        readings = Readings(notification)
        hits = []
        for entry in self._find_candidates(readings):
            hit = self._evaluate(entry, readings, age)
            if hit:
                hits.append(hit._replace(id=entry.id))
        hits.sort()
        return hits

    def filter(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return one hit for each distinct mask: what a publisher sends at the source.

        Once a mask has a hit, its notification goes out, and only other masks are still of
        interest. The hits stand in the order in which they were found.
        """
        readings = Readings(notification)
        sent: set[int] = set()
        hits = []
        for entry in self._find_candidates(readings):
            if entry.key in sent:
                continue
            hit = self._evaluate(entry, readings, age)
            if hit:
                sent.add(entry.key)
                hits.append(hit._replace(id=entry.id))
        return hits

    def _prepare(self, id: int, subscription: SubscriptionVector) -> Entry:
        return Entry(id, subscription)

    def _evaluate(self, entry: Entry, readings: Readings, age: int) -> SubscriptionMatch | None:
        return evaluate(entry, readings, age)

    def _find_candidates(self, readings: Readings) -> Iterator[Entry]:
        outside = readings.outside
        event = readings.event << 16
        for entry in self._entries.values():
            if entry.key & outside == event:
                yield entry


class FNIFS(FNIF):
    """The flat algorithm over subscriptions sorted by their features."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[int] = []
        self._runs: dict[int, dict[int, Entry]] = {}

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if id in self._entries:
            self.remove(id)
        super().add(id, subscription)
        entry = self._entries[id]
        if entry.key not in self._runs:
            self._runs[entry.key] = {}
            insort(self._keys, entry.key)
        self._runs[entry.key][id] = entry

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        key = self._entries[id].key
        super().remove(id)
        del self._runs[key][id]
        if not self._runs[key]:
            del self._runs[key]
            del self._keys[bisect_left(self._keys, key)]

    def _find_candidates(self, readings: Readings) -> Iterator[Entry]:
        first = bisect_left(self._keys, join_key(readings.event, 0))
        stop = bisect_right(self._keys, readings.key)
        for at in range(first, stop):
            key = self._keys[at]
            if readings.admits(key):
                yield from self._runs[key].values()


# FIP: the flat algorithm with indexed predicates (DENS paper, Fig. 4b).
#
# A hash table leads from an attribute to its distinct predicates; each is evaluated once for a
# notification, whoever asks for it. Its association list leads on to the subscriptions that contain
# it, which collect their predicates' degrees; those that have all are scored.

_ZERO_IS_FATAL = (MIN, PRODUCT, GEOMETRIC, HARMONIC)
_OPERATOR = 0xF0


class Indexed:
    """One distinct predicate and the subscriptions that contain it.

    There is one association list for each degree that subscriptions ask of it: a list whose level
    is not reached need not be followed.
    """

    __slots__ = ("lists", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.lists: dict[int, dict[int, Slot]] = {}


class Slot:
    """A subscription's line in the subscription list: where its degrees are collected."""

    __slots__ = ("certains", "count", "entry", "possibles", "size", "turn", "wanted")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.wanted: dict[tuple[object, ...], list[int]] = {}  # predicate -> its places
        self.size = len(entry.subscription.predicates)
        self.possibles = bytearray(self.size)
        self.certains = bytearray(self.size)
        self.turn = 0
        self.count = 0


class FIP:
    """The flat algorithm with a predicate hash table and association lists."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._table: dict[int, dict[tuple[object, ...], Indexed]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._slots)

    def count_predicates(self) -> int:
        """Return the number of distinct predicates in the table."""
        return sum(len(predicates) for predicates in self._table.values())

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if id in self._slots:
            self.remove(id)
        slot = Slot(Entry(id, subscription))
        level = find_level(subscription)
        for place, p in enumerate(subscription.predicates):
            name = p.fields()
            table = self._table.setdefault(subscription.event << 4 | p.attribute, {})
            indexed = table.get(name)
            if indexed is None:
                indexed = table[name] = Indexed(p)
            indexed.lists.setdefault(level, {})[id] = slot
            slot.wanted.setdefault(name, []).append(place)
        self._slots[id] = slot

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        slot = self._slots.pop(id)
        s = slot.entry.subscription
        level = find_level(s)
        for p in {p.fields(): p for p in s.predicates}.values():
            attribute = s.event << 4 | p.attribute
            indexed = self._table[attribute][p.fields()]
            del indexed.lists[level][id]
            if not indexed.lists[level]:
                del indexed.lists[level]
            if not indexed.lists:
                del self._table[attribute][p.fields()]
                if not self._table[attribute]:
                    del self._table[attribute]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the hits by rising id."""
        readings = Readings(notification)
        self._turn += 1
        complete: list[Slot] = []
        for attribute in readings.narrow:
            for name, indexed in self._table.get(readings.event << 4 | attribute, {}).items():
                p = indexed.predicate
                possible, certain = readings.measure(p)
                if possible < p.possible or certain < p.certain:
                    continue
                for level, slots in indexed.lists.items():
                    if possible >= level:
                        self._spread(name, possible, certain, slots, complete)
        hits = []
        for slot in complete:
            hit = conclude(slot.entry, slot.possibles, slot.certains, readings, age)
            if hit:
                hits.append(hit._replace(id=slot.entry.id))
        hits.sort()
        return hits

    def _spread(
        self,
        name: tuple[object, ...],
        possible: int,
        certain: int,
        slots: dict[int, Slot],
        complete: list[Slot],
    ) -> None:
        """Write a predicate's degrees into the lines of its subscriptions."""
        turn = self._turn
        for slot in slots.values():
            if slot.turn != turn:
                slot.turn = turn
                slot.count = 0
            for place in slot.wanted[name]:
                slot.possibles[place] = possible
                slot.certains[place] = certain
                slot.count += 1
            if slot.count == slot.size:
                complete.append(slot)


def find_level(s: SubscriptionVector) -> int:
    """Return the degree below which any one predicate rules the subscription out; 0: none does."""
    if s.threshold == 0 or s.aggregator not in _ZERO_IS_FATAL:
        return 0
    if any(op & _OPERATOR >= OR for op in s.pattern):  # alternatives and negations
        return 0
    return s.threshold if s.aggregator == MIN else 1


# The crisp attribute-value algorithm that both papers compare with: count what holds.
#
# A hash table leads from an attribute to its distinct predicates: points by their value, intervals
# by their lower bound. A predicate that holds adds one to each of its subscriptions; those whose
# count is complete match. There are no degrees. A fuzzy predicate is taken as one of the three
# intervals of the A-ToPSS paper (its Table 1), an uncertain reading as the middle of its core
# ("point" there); for crisp predicates and exact readings the answer is the fuzzy definition's.

Bounds = tuple[int, int]  # lowest and highest value that hold


class Reach(Enum):
    """How much of a fuzzy set its crisp interval takes: the degree at which it is cut."""

    PESSIMISTIC = 1  # the whole support
    MIDDLE = 128
    OPTIMISTIC = 255  # the core alone


class Table:
    """The distinct predicates of one attribute and the subscriptions that contain each."""

    __slots__ = ("holders", "points", "ranges", "wide")

    def __init__(self, wide: bool) -> None:
        self.wide = wide
        self.holders: dict[Bounds, dict[int, None]] = {}
        self.points: dict[int, Bounds] = {}
        self.ranges: list[Bounds] = []

    def find(self, value: int) -> list[Bounds]:
        """Return the predicates that hold for a value."""
        found = [self.points[value]] if value in self.points else []
        stop = bisect_right(self.ranges, (value, 1 << 16))
        found.extend([bounds for bounds in self.ranges[:stop] if bounds[1] >= value])
        return found

    def insert(self, bounds: Bounds, id: int) -> None:
        """Add a subscription to a predicate, and the predicate if it is new."""
        if bounds not in self.holders:
            self.holders[bounds] = {}
            if bounds[0] == bounds[1]:
                self.points[bounds[0]] = bounds
            else:
                insort(self.ranges, bounds)
        self.holders[bounds][id] = None

    def discard(self, bounds: Bounds, id: int) -> None:
        """Take a subscription from a predicate, and the predicate away if it was the last."""
        del self.holders[bounds][id]
        if self.holders[bounds]:
            return
        del self.holders[bounds]
        if bounds[0] == bounds[1]:
            del self.points[bounds[0]]
        else:
            del self.ranges[bisect_left(self.ranges, bounds)]


class AttributeValue:
    """The crisp counting algorithm over conjunctions of intervals."""

    def __init__(self, reach: Reach = Reach.MIDDLE) -> None:
        self._reach = reach
        self._tables: dict[int, Table] = {}
        self._wanted: dict[int, set[tuple[int, Bounds]]] = {}
        self._blame: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a conjunction, or replace the one with this id; ValueError for anything else."""
        s = subscription
        if s.aggregator != MIN or s.pattern or s.recent:
            raise ValueError("the crisp algorithm knows plain conjunctions (min) only")
        wanted = set()
        for p in s.predicates:
            if p.negated:
                raise ValueError(f"attribute {p.attribute}: no crisp interval is a negation")
            # The low bit keeps 8-bit and 16-bit predicates on one attribute apart.
            wanted.add((s.event << 5 | p.attribute << 1 | p.wide, cut_predicate(p, self._reach)))
        if id in self._wanted:
            self.remove(id)
        for attribute, bounds in wanted:
            table = self._tables.setdefault(attribute, Table(bool(attribute & 1)))
            table.insert(bounds, id)
        self._wanted[id] = wanted
        self._blame[id] = s.predicates[0].attribute

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        for attribute, bounds in self._wanted.pop(id):
            self._tables[attribute].discard(bounds, id)
            if not self._tables[attribute].holders:
                del self._tables[attribute]
        del self._blame[id]

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002 - ageless
        """Return the hits by rising id, all of full degree."""
        readings = Readings(notification)
        counts: dict[int, int] = {}
        for wide, points in ((0, readings.narrow), (1, readings.wide)):
            for attribute, trapezoid in points.items():
                table = self._tables.get(readings.event << 5 | attribute << 1 | wide)
                if table is None:
                    continue
                value = (trapezoid[1] + trapezoid[2]) // 2
                for bounds in table.find(value):
                    for id in table.holders[bounds]:
                        counts[id] = counts.get(id, 0) + 1
        full = [id for id, count in counts.items() if count == len(self._wanted[id])]
        return [SubscriptionMatch(id, 255, 255, self._blame[id]) for id in sorted(full)]


def cut_predicate(p: Predicate, reach: Reach) -> Bounds:
    """Return the crisp interval of a fuzzy predicate."""
    return cut_set(p, invert_hedge(p.hedge, reach.value))
