"""Match one subscription with one notification, uncertain readings included.

The plain, complete definition of a match: nodes and Spark use faster engines that are tested
against it, and so is the watchdog's.
"""

from .cuts import measure, measure_together
from .degrees import MAX, MIN, SUGENO, aggregate
from .timecode import decode_duration
from .vectors import AND, NOT, OR, NotificationVector, Record, SubscriptionVector

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Possible, certain, the predicate that decided; the attribute and the pattern of what is over
    # one uncertain attribute alone.
    _Operand = tuple[int, int, int, int, bytes]

_MIXED = -1  # more than one attribute, or a mean, or an exact reading


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
    if s.event != n.event or s.features & ~n.features or not is_joined(s, n):
        return None
    points = {}
    for reading in n.readings:
        points[reading.attribute] = (reading.points, reading.wide)
    count = len(s.predicates)
    sized = {}
    possibles = bytearray(count)
    certains = bytearray(count)
    allowed = True
    for i in range(count):
        p = s.predicates[i]
        reading_points, wide = points[p.attribute]
        sized[p.attribute] = _resize(reading_points, wide, p.wide)
        possibles[i], certains[i] = measure(p, sized[p.attribute])
        allowed = allowed and possibles[i] >= p.possible and certains[i] >= p.certain
    if s.aggregator == SUGENO:
        centres = {}
        for attribute, (reading_points, wide) in points.items():
            centres[attribute] = (reading_points[1] + reading_points[2]) // 2 >> (8 if wide else 0)
        possible = apply_rules(s, possibles, centres)
        certain = min(possible, apply_rules(s, certains, centres))
        decisive = find_least(s.aggregator, possibles, 0, count)
    else:
        leaves = []
        for i in range(count):
            attribute = s.predicates[i].attribute
            if sized[attribute][0] == sized[attribute][3]:
                attribute = _MIXED  # exact: there is nothing to judge together
            leaves.append((possibles[i], certains[i], i, attribute, bytes([i])))
        if s.pattern:
            possible, certain, decisive = _run_pattern(s, leaves, sized)[:3]
        else:
            possible, certain, decisive = _join(s, s.aggregator, leaves, sized)[:3]
    if s.recent:
        fresh = rate_age(age, s.recent)
        possible = min(possible, fresh)
        certain = min(certain, fresh)
    matched = allowed and possible >= s.threshold and certain >= s.certain
    return Match(matched, possible, certain, decisive, possibles[decisive])


def is_joined(s: SubscriptionVector, n: NotificationVector) -> bool:
    """Return whether the readings that s asks for are young enough, and one of them is new."""
    if not s.features & n.olds:
        return True
    if not s.features & ~n.olds & n.features:
        return False
    names = [bit for bit in range(16) if s.features >> bit & 1]
    limits = s.restrictors or bytes(len(names))
    for reading in n.readings:
        if reading.attribute in names and reading.age > limits[names.index(reading.attribute)]:
            return False
    return True


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
    s: SubscriptionVector,
    leaves: "list[_Operand]",
    points: dict[int, tuple[int, int, int, int]],
) -> "_Operand":
    """Return the result of a postfix pattern.

    A negation swaps the two degrees: what is not possible is certainly not.
    """
    stack: list[_Operand] = []
    for op in s.pattern:
        if op < len(leaves):
            stack.append(leaves[op])
        elif op == NOT:
            possible, certain, decisive, attribute, program = stack.pop()
            program += bytes([NOT])
            stack.append((255 - certain, 255 - possible, decisive, attribute, program))
        else:
            kind = MAX if op & 0xF0 == OR else s.aggregator
            operands = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            stack.append(_join(s, kind, operands, points))
    return stack[0]


def _join(
    s: SubscriptionVector,
    kind: int,
    operands: "list[_Operand]",
    points: dict[int, tuple[int, int, int, int]],
) -> "_Operand":
    """Return operands as one; under min and max, those over one attribute are judged together."""
    parts = operands
    if kind in (MIN, MAX):
        parts = []
        known = []
        for operand in operands:
            attribute = operand[3]
            if attribute in known:
                continue
            if attribute != _MIXED:
                known.append(attribute)
                same = [other for other in operands if other[3] == attribute]
                if len(same) > 1:
                    operand = _judge_together(s, kind, same, points[attribute])
            parts.append(operand)
        if len(parts) == 1:
            return parts[0]
    highs = bytearray([part[0] for part in parts])
    lows = bytearray([part[1] for part in parts])
    weights = bytes([p.weight for p in s.predicates])
    decisive = parts[find_least(kind, highs, 0, len(highs))][2]
    possible = aggregate(kind, highs, 0, len(highs), weights, 0)
    certain = aggregate(kind, lows, 0, len(lows), weights, 0)
    return possible, certain, decisive, _MIXED, b""


def _judge_together(
    s: SubscriptionVector,
    kind: int,
    operands: "list[_Operand]",
    points: tuple[int, int, int, int],
) -> "_Operand":
    """Return operands over one attribute as one, which stands in the place of the decisive one."""
    program = operands[0][4]
    for operand in operands[1:]:
        program += operand[4] + bytes([(OR if kind == MAX else AND) | 2])
    possible, certain = measure_together(s.predicates, program, points)
    highs = bytearray([operand[0] for operand in operands])
    decisive = operands[find_least(kind, highs, 0, len(highs))]
    return possible, certain, decisive[2], decisive[3], program


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
