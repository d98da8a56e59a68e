"""Match one subscription with one notification, uncertain readings included.

The plain, complete definition of a match: nodes and Spark use faster engines that are tested
against it, and so is the watchdog's.
"""

from .cuts import measure
from .degrees import MAX, SUGENO, aggregate
from .timecode import decode_duration
from .vectors import NOT, OR, NotificationVector, Record, SubscriptionVector


class Match(Record):
    """How well a notification satisfies a subscription, and the predicate that decided."""

    FIELDS = ("matched", "possible", "certain", "predicate", "degree")

    def __init__(
        self, matched: bool, possible: int, certain: int, predicate: int, degree: int
    ) -> None:
        self.matched = matched
        self.possible = possible
        self.certain = certain
        self.predicate = predicate  # its place in the subscription
        self.degree = degree  # its own degree of possibility


def match(s: SubscriptionVector, n: NotificationVector, age: int = 0) -> Match | None:
    """Return how s and n match, or None where n lacks an attribute that s asks for.

    `age` is how old the notification is now, in seconds: only "recent" asks for it.
    """
    if s.event != n.event or s.features & ~n.features:
        return None
    points = {}
    for reading in n.readings:
        points[reading.attribute] = (reading.points, reading.wide)
    count = len(s.predicates)
    possibles = bytearray(count)
    certains = bytearray(count)
    allowed = True
    for i in range(count):
        p = s.predicates[i]
        reading_points, wide = points[p.attribute]
        possibles[i], certains[i] = measure(p, _resize(reading_points, wide, p.wide))
        allowed = allowed and possibles[i] >= p.possible and certains[i] >= p.certain
    if s.aggregator == SUGENO:
        centres = {}
        for attribute, (reading_points, wide) in points.items():
            centres[attribute] = (reading_points[1] + reading_points[2]) // 2 >> (8 if wide else 0)
        possible = apply_rules(s, possibles, centres)
        certain = min(possible, apply_rules(s, certains, centres))
        decisive = find_least(s.aggregator, possibles, 0, count)
    elif s.pattern:
        possible, certain, decisive = _run_pattern(s, possibles, certains)
    else:
        weights = bytes([p.weight for p in s.predicates])
        possible = aggregate(s.aggregator, possibles, 0, count, weights, 0)
        certain = aggregate(s.aggregator, certains, 0, count, weights, 0)
        decisive = find_least(s.aggregator, possibles, 0, count)
    if s.recent:
        fresh = rate_age(age, s.recent)
        possible = min(possible, fresh)
        certain = min(certain, fresh)
    matched = allowed and possible >= s.threshold and certain >= s.certain
    return Match(matched, possible, certain, decisive, possibles[decisive])


def find_least(kind: int, degrees: bytearray, start: int, stop: int) -> int:
    """Return the position of the degree that decides: the highest for max, else the lowest."""
    best = start
    for i in range(start + 1, stop):
        if degrees[i] > degrees[best] if kind == MAX else degrees[i] < degrees[best]:
            best = i
    return best


def _resize(
    points: tuple[int, int, int, int], wide: bool, wanted: bool
) -> tuple[int, int, int, int]:
    """Return the points at the predicate's resolution: 8-bit value v is 16-bit value 257 v."""
    if wide == wanted:
        return points
    a, b, c, d = points
    if wanted:
        return a * 257, b * 257, c * 257, d * 257
    return a >> 8, b >> 8, c >> 8, d >> 8


def _run_pattern(
    s: SubscriptionVector, possibles: bytearray, certains: bytearray
) -> tuple[int, int, int]:
    """Return (possible, certain, decisive predicate) of a postfix pattern.

    A negation swaps the two: what is not possible is certainly not.
    """
    stack: list[tuple[int, int, int]] = []
    for op in s.pattern:
        if op < len(possibles):
            stack.append((possibles[op], certains[op], op))
        elif op == NOT:
            possible, certain, decisive = stack.pop()
            stack.append((255 - certain, 255 - possible, decisive))
        else:
            kind = MAX if op & 0xF0 == OR else s.aggregator
            operands = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            highs = bytearray([operand[0] for operand in operands])
            lows = bytearray([operand[1] for operand in operands])
            decisive = operands[find_least(kind, highs, 0, len(highs))][2]
            possible = aggregate(kind, highs, 0, len(highs), b"", 0)
            stack.append((possible, aggregate(kind, lows, 0, len(lows), b"", 0), decisive))
    return stack[0]


def apply_rules(s: SubscriptionVector, degrees: bytearray, values: dict[int, int]) -> int:
    """Return the fuzzy mean of the Takagi-Sugeno rules: each weighs as much as its pair holds."""
    assert s.consequents is not None  # the constructor saw to it
    rules = iter(s.consequents)
    total = weight = 0
    for i in range(len(degrees)):
        for j in range(i + 1, len(degrees)):
            rule = next(rules)
            result = rule[0]
            if len(rule) == 3:
                x = values[s.predicates[i].attribute]
                y = values[s.predicates[j].attribute]
                result = min(255, max(0, result + ((rule[1] * x + rule[2] * y + 32) >> 6)))
            share = min(degrees[i], degrees[j])
            total += share * result
            weight += share
    return (total + weight // 2) // weight if weight else 0


def rate_age(age: int, recent: tuple[int, int]) -> int:
    """Return the degree to which an age in seconds is recent."""
    until = decode_duration(recent[0])
    gone = decode_duration(recent[1])
    if age <= until:
        return 255
    return 255 * (gone - age) // (gone - until) if age < gone else 0
