"""What all engines of the DENS paper share: a subscription made ready, and its degree.

The arithmetic is the protocol's, so that an engine differs from another only in its data structure,
in what it looks at and in what order. Nothing here decides which subscriptions are looked at.
"""

from __future__ import annotations

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.degrees import MAX, MIN, SUGENO, aggregate
from denwatch.protocol.evaluator import NOT, OR, find_least
from denwatch.protocol.matching import apply_rules, rate_age
from denwatch.protocol.uncertainty import measure
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

_EVENT = 0x3F0000

Points = tuple[int, int, int, int]
Verdict = tuple[int, int, int]  # possible, certain, the place of the predicate that decided


class Readings:
    """A notification laid out for look-up: each attribute's trapezoid at both resolutions."""

    __slots__ = ("_readings", "event", "features", "key", "narrow", "outside", "wide")

    def __init__(self, notification: NotificationVector) -> None:
        self._readings = notification.readings
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
