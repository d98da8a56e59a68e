"""Subscriptions and notifications as objects: what the codecs encode, and the rules they must keep.

Plain classes, because MicroPython has no dataclasses. Fields are what the wire carries: codes and
normalised values, no names and no units; the vocabulary gives them meaning.
"""

from .degrees import CRISP, MAX, MIN, SUGENO, WEIGHTED, const
from .errors import ProtocolError
from .timecode import LAST_DURATION

# The operators of a postfix pattern; their lower four bits count operands.
AND = const(0x40)
OR = const(0x50)
NOT = const(0x60)

MAX_PREDICATES = 16
MAX_PATTERN = 127
MAX_RULE_PREDICATES = 8  # pairs of predicates with Takagi-Sugeno consequents: 28 at most


class Record:
    """Equality and a readable form from the constructor's fields."""

    FIELDS: tuple[str, ...] = ()

    def fields(self) -> tuple[object, ...]:
        """Return the values of FIELDS in order."""
        return tuple([getattr(self, name) for name in self.FIELDS])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        words = [f"{name}={getattr(self, name)!r}" for name in self.FIELDS]
        return "{}({})".format(type(self).__name__, ", ".join(words))


class Predicate(Record):
    """One fuzzy set over one attribute: core [low, high] and how steeply it falls on each side."""

    FIELDS = (
        "attribute",
        "low",
        "high",
        "left",
        "right",
        "negated",
        "hedge",
        "wide",
        "possible",
        "certain",
        "weight",
    )

    def __init__(
        self,
        attribute: int,
        low: int,
        high: int,
        left: int = CRISP,
        right: int = -1,
        negated: bool = False,
        hedge: int = 0,
        wide: bool = False,
        possible: int = 0,
        certain: int = 0,
        weight: int = 1,
    ) -> None:
        self.attribute = attribute
        self.low = low
        self.high = high
        self.left = left
        self.right = left if right < 0 else right
        self.negated = negated
        self.hedge = hedge
        self.wide = wide
        self.possible = possible
        self.certain = certain
        self.weight = weight
        last = 65535 if wide else 255
        check_range("attribute", attribute, 0, 15)
        check_range("low", low, 0, last)
        check_range("high", high, low, last)
        for name in ("left", "right", "possible", "certain"):
            check_range(name, getattr(self, name), 0, 255)
        check_range("weight", weight, 1, 255)
        check_range("hedge", hedge, 0, 15)
        if hedge and not hedge & 3:
            raise ProtocolError("a second hedge without a first")

    @property
    def last(self) -> int:
        """The highest value of the attribute."""
        return 65535 if self.wide else 255


class Significance(Record):
    """When a match is worth sending again; 0 everywhere means always."""

    FIELDS = ("bands", "relative", "hysteresis", "hits", "window", "heartbeat", "quiet")

    def __init__(
        self,
        bands: bytes = b"",
        relative: int = 0,
        hysteresis: int = 0,
        hits: int = 0,
        window: int = 0,
        heartbeat: int = 0,
        quiet: int = 0,
    ) -> None:
        self.bands = bytes(bands)  # dead band of each attribute, in its 8-bit steps
        self.relative = relative  # dead band as a share of the last value sent, in 1/255
        self.hysteresis = hysteresis  # degrees below the threshold at which a match ends
        self.hits = hits  # so many matches ...
        self.window = window  # ... among so many samples
        self.heartbeat = heartbeat  # duration codes
        self.quiet = quiet
        for name in ("relative", "hysteresis"):
            check_range(name, getattr(self, name), 0, 255)
        for name in ("heartbeat", "quiet"):
            check_range(name, getattr(self, name), 0, LAST_DURATION)
        check_range("window", window, 0, 15)
        check_range("hits", hits, 1 if window else 0, window)
        if bands and not any(bands):
            raise ProtocolError("dead bands of zero")
        if not any(self.fields()):
            raise ProtocolError("a significance that says nothing")


class SubscriptionVector(Record):
    """One subscription vector. Predicates stand by attribute; second ones on an attribute last."""

    FIELDS = (
        "event",
        "predicates",
        "aggregator",
        "threshold",
        "certain",
        "handle",
        "validity",
        "pattern",
        "why",
        "recent",
        "significance",
        "consequents",
        "restrictors",
    )

    def __init__(
        self,
        event: int,
        predicates: list[Predicate],
        aggregator: int = MIN,
        threshold: int = 128,
        certain: int = 0,
        handle: int = 0,
        validity: int = 0,
        pattern: bytes = b"",
        why: bool = False,
        recent: tuple[int, int] | None = None,
        significance: Significance | None = None,
        consequents: list[tuple[int, ...]] | None = None,
        restrictors: bytes = b"",
    ) -> None:
        self.event = event
        self.predicates = list(predicates)
        self.aggregator = aggregator
        self.threshold = threshold
        self.certain = certain
        self.handle = handle
        self.validity = validity  # a duration code, 0: until removed
        self.pattern = bytes(pattern)  # postfix, empty: one aggregation of all predicates
        self.why = why
        self.recent = recent  # duration codes: fully recent until, not recent from
        self.significance = significance
        self.consequents = consequents  # a pair of predicates each: (degree,) or (p0, p1, p2)
        # How old the reading of each attribute may be, as duration codes; 0: it must be of now.
        self.restrictors = bytes(restrictors)
        check_range("event", event, 0, 63)
        check_range("aggregator", aggregator, 0, 7)
        check_range("threshold", threshold, 0, 255)
        check_range("certain", certain, 0, 255)
        check_range("handle", handle, 0, 65535)
        check_range("validity", validity, 0, LAST_DURATION)
        self.features = self._check_predicates()
        if pattern:
            check_pattern(pattern, len(self.predicates))
            if aggregator in (MAX, WEIGHTED, SUGENO):
                raise ProtocolError(f"aggregator {aggregator} takes no pattern")
        if recent and not 0 <= recent[0] < recent[1] <= LAST_DURATION:
            raise ProtocolError(
                f"recent: {recent[0]}, {recent[1]} is not a rising pair of durations"
            )
        names = count_attributes(self.features)
        bands = len(significance.bands) if significance else 0
        if bands not in (0, names):
            raise ProtocolError(f"{bands} dead bands for other attributes")
        if restrictors and (len(restrictors) != names or not any(restrictors)):
            raise ProtocolError(f"{len(restrictors)} restrictors for other attributes, or none")
        for code in self.restrictors:
            check_range("restrictor", code, 0, LAST_DURATION)
        if aggregator != WEIGHTED and any(p.weight != 1 for p in predicates):
            raise ProtocolError("weights are for the weighted mean only")
        self._check_consequents()

    def _check_predicates(self) -> int:
        """Return the feature mask of predicates that stand in order."""
        check_range("number of predicates", len(self.predicates), 1, MAX_PREDICATES)
        attributes = [p.attribute for p in self.predicates]
        names = sorted(set(attributes))
        if attributes != names + sorted(attributes[len(names) :]):
            raise ProtocolError("predicates do not stand by attribute, second ones last")
        features = wides = narrows = 0
        for p in self.predicates:
            features |= 1 << p.attribute
            if p.wide:
                wides |= 1 << p.attribute
            else:
                narrows |= 1 << p.attribute
        if wides & narrows:
            raise ProtocolError("an attribute is both 8 and 16 bits wide")
        return features

    def _check_consequents(self) -> None:
        if (self.consequents is None) != (self.aggregator != SUGENO):
            raise ProtocolError(f"consequents and aggregator {self.aggregator} do not go together")
        if self.consequents is None:
            return
        count = len(self.predicates)
        check_range("number of predicates with consequents", count, 2, MAX_RULE_PREDICATES)
        if len(self.consequents) != count * (count - 1) // 2:
            raise ProtocolError(f"{len(self.consequents)} consequents for {count} predicates")
        length = len(self.consequents[0])
        for rule in self.consequents:
            if len(rule) != length or length not in (1, 3):
                raise ProtocolError("a consequent is one degree or three coefficients, all alike")
            if length == 1:
                check_range("consequent", rule[0], 0, 255)
            else:
                check_range("coefficient 0", rule[0], -32768, 32767)
                check_range("coefficient 1", rule[1], -128, 127)
                check_range("coefficient 2", rule[2], -128, 127)


class Reading(Record):
    """One attribute's value: exact where the four points of its trapezoid are one."""

    FIELDS = ("attribute", "points", "wide", "age")

    def __init__(
        self,
        attribute: int,
        points: tuple[int, int, int, int],
        wide: bool = False,
        age: int = 0,
    ) -> None:
        self.attribute = attribute
        self.points = points
        self.wide = wide
        self.age = age  # a duration code: how much older than the notification; 0: of the same time
        check_range("attribute", attribute, 0, 15)
        check_range("age of a reading", age, 0, LAST_DURATION)
        if len(points) != 4:
            raise ProtocolError(f"a reading has 4 points, not {len(points)}")
        previous = 0
        for point in points:  # a <= b <= c <= d: a non-empty core, so possible >= certain
            check_range("point", point, previous, 65535 if wide else 255)
            previous = point

    @property
    def exact(self) -> bool:
        """Whether the value is known without doubt."""
        return self.points[0] == self.points[3]


class NotificationVector(Record):
    """One notification vector: readings by attribute, their sequence number and their age."""

    FIELDS = ("event", "readings", "sequence", "age", "why", "faults")

    def __init__(
        self,
        event: int,
        readings: list[Reading],
        sequence: int = 0,
        age: int = 0,
        why: tuple[int, int] | None = None,
        faults: int = 0,
    ) -> None:
        self.event = event
        self.readings = list(readings)
        self.sequence = sequence
        self.age = age  # an age code
        self.why = why  # the attribute that decided, and its degree
        self.faults = faults  # attributes whose sensor is broken
        check_range("event", event, 0, 63)
        check_range("sequence", sequence, 0, 65535)
        check_range("age", age, 0, 65535)
        self.features = 0
        self.olds = 0  # of the features, those that were read earlier
        previous = -1
        for reading in readings:
            check_range(f"attribute after {previous}", reading.attribute, previous + 1, 15)
            previous = reading.attribute
            self.features |= 1 << previous
            self.olds |= 1 << previous if reading.age else 0
        check_range("faults", faults, 0, 65535)
        if faults & self.features:
            raise ProtocolError("a broken sensor has no reading")
        if not faults | self.features & ~self.olds:
            raise ProtocolError("a notification without new readings or faults")
        if why:
            check_range("why", why[0], 0, 15)
            check_range("why's degree", why[1], 0, 255)


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise ProtocolError unless low <= value <= high."""
    if not low <= value <= high:
        raise ProtocolError(f"{name} {value} is not in {low}..{high}")


def count_attributes(features: int) -> int:
    """Return how many attributes a feature mask names."""
    return sum([features >> bit & 1 for bit in range(16)])


def check_pattern(pattern: bytes, predicates: int, at: int = -1) -> None:
    """Raise ProtocolError unless the postfix pattern leaves one degree and uses every predicate.

    `at` is where the pattern stands in a frame, for the error.
    """
    check_range("length of the pattern", len(pattern), 1, MAX_PATTERN)
    used = depth = 0
    for i in range(len(pattern)):
        op = pattern[i]
        where = -1 if at < 0 else at + i
        if op < predicates:
            used |= 1 << op
            depth += 1
            if depth > 16:
                raise ProtocolError("pattern deeper than 16", where)
            continue
        operands = 1 if op == NOT else op & 15
        if not (op == NOT or ((op & 0xF0) in (AND, OR) and operands >= 2)):
            raise ProtocolError(f"pattern byte 0x{op:02x} means nothing here", where)
        if depth < operands:
            raise ProtocolError(f"pattern takes {operands} operands, has {depth}", where)
        depth -= operands - 1
    if depth != 1 or used != (1 << predicates) - 1:
        raise ProtocolError(f"pattern leaves {depth} results or predicates unused", at)
