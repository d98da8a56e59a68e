"""Subscription vectors to bytes and back. README.md has the byte tables.

One object, one encoding: a section that says nothing new is refused, so that equal subscriptions
are equal bytes, and `encode(decode(frame)) == frame` for every frame that decodes.

Patterns say how predicates are joined: the DENS paper's four in two bytes, every other nesting as
postfix. The paper's names count operands after their operator, d for disjunction and c for
conjunction: c1d2 is p1 and (p2 or p3); c2d1 is (p1 and p2) or p3; c2c2 is (p1 and p2) or
(p3 and p4); d3c1 is (p1 or p2 or p3) and p4. A group of several predicates is joined to the other
group by the other operator.
"""

from .degrees import SUGENO, WEIGHTED, const
from .errors import Cursor, ProtocolError
from .timecode import LAST_DURATION
from .vectors import (
    AND,
    OR,
    Predicate,
    Significance,
    SubscriptionVector,
    check_pattern,
    count_attributes,
)

# The sections that may stand between features and triples, by their bit in the section bytes.
REPEATS = const(0x01)
NEGATIONS = const(0x02)
HEDGES = const(0x04)
ASYMMETRIC = const(0x08)
WIDE = const(0x10)
PATTERN = const(0x20)
WHY = const(0x40)
MORE = const(0x80)
CERTAIN = const(0x01)
THETAS = const(0x02)
WEIGHTS = const(0x04)
SIGNIFICANCE = const(0x08)
RECENT = const(0x10)
CONSEQUENTS = const(0x20)
RESTRICTORS = const(0x40)

MAX_LENGTH = 255
TYPE = 0x40


def encode(s: SubscriptionVector) -> bytes:
    """Return the subscription vector, 17 bytes for three plain predicates."""
    predicates = s.predicates
    negated = _mask([p.negated for p in predicates])
    sections, more = _find_sections(s, negated)
    out = bytearray([TYPE | s.event, (negated & 15) << 4 | s.aggregator])
    out += bytes([s.handle >> 8, s.handle & 255, s.threshold, s.validity])
    out += _pair(s.features)
    if sections or more:
        out[1] |= 8
        out.append(sections | (MORE if more else 0))
        if more:
            out.append(more)
        _append_shapes(out, s, sections, negated)
        _append_conditions(out, s, more)
    for p in predicates:
        out += _pair(p.low) + _pair(p.high) if p.wide else bytes([p.low, p.high])
        out += bytes([p.left] if p.left == p.right else [p.left, p.right])
    if len(out) > MAX_LENGTH:
        raise ProtocolError(f"a vector of {len(out)} bytes, {MAX_LENGTH} is the limit")
    return bytes(out)


def _find_sections(s: SubscriptionVector, negated: int) -> tuple[int, int]:
    """Return the two section bytes that the subscription needs."""
    predicates = s.predicates
    shapes = (
        (REPEATS, len(predicates) > count_attributes(s.features)),
        (NEGATIONS, negated > 15),
        (HEDGES, any(p.hedge for p in predicates)),
        (ASYMMETRIC, any(p.left != p.right for p in predicates)),
        (WIDE, any(p.wide for p in predicates)),
        (PATTERN, s.pattern),
        (WHY, s.why),
    )
    conditions = (
        (CERTAIN, s.certain),
        (THETAS, any(p.possible or p.certain for p in predicates)),
        (WEIGHTS, s.aggregator == WEIGHTED),
        (SIGNIFICANCE, s.significance),
        (RECENT, s.recent),
        (CONSEQUENTS, s.aggregator == SUGENO),
        (RESTRICTORS, s.restrictors),
    )
    sections = sum([bit for bit, is_needed in shapes if is_needed])
    return sections, sum([bit for bit, is_needed in conditions if is_needed])


def _append_shapes(out: bytearray, s: SubscriptionVector, sections: int, negated: int) -> None:
    """Append the sections of the first section byte."""
    predicates = s.predicates
    if sections & REPEATS:
        repeats = [p.attribute for p in predicates[count_attributes(s.features) :]]
        out += bytes([len(repeats)] + repeats)
    if sections & NEGATIONS:
        out += _pair(negated & 0xFFF0)
    if sections & HEDGES:
        hedges = [p.hedge for p in predicates] + [0]
        out += bytes([hedges[i] << 4 | hedges[i + 1] for i in range(0, len(predicates), 2)])
    if sections & ASYMMETRIC:
        out += _pair(_mask([p.left != p.right for p in predicates]))
    if sections & WIDE:
        wides = 0
        for p in predicates:
            wides |= 1 << p.attribute if p.wide else 0
        out += _pair(wides)
    if sections & PATTERN:
        out += pack_pattern(s.pattern)


def _append_conditions(out: bytearray, s: SubscriptionVector, more: int) -> None:
    """Append the sections of the second section byte."""
    if more & CERTAIN:
        out.append(s.certain)
    if more & THETAS:
        for p in s.predicates:
            out += bytes([p.possible, p.certain])
    if more & WEIGHTS:
        out += bytes([p.weight for p in s.predicates])
    if s.significance:
        out += _pack_significance(s.significance)
    if s.recent:
        out += bytes(s.recent)
    if s.consequents:
        out.append(1 if len(s.consequents[0]) == 3 else 0)
        for rule in s.consequents:
            if len(rule) == 1:
                out.append(rule[0])
            else:
                out += _pair(rule[0] & 0xFFFF) + bytes([rule[1] & 255, rule[2] & 255])
    out += s.restrictors


def _pack_significance(s: Significance) -> bytes:
    flags = 1 if s.bands else 0
    tail = []
    values = (s.relative, s.hysteresis, s.hits << 4 | s.window, s.heartbeat, s.quiet)
    for i in range(5):
        if values[i]:
            flags |= 2 << i
            tail.append(values[i])
    return bytes([flags]) + s.bands + bytes(tail)


def decode(frame: bytes) -> SubscriptionVector:
    """Return the subscription of a whole vector; ProtocolError names the byte that is wrong."""
    c = Cursor(frame, MAX_LENGTH)
    try:
        return _take_subscription(c)
    except ProtocolError as error:
        raise c.locate(error) from None


def _take_subscription(c: Cursor) -> SubscriptionVector:
    head = c.byte("type and event")
    if head & 0xC0 != TYPE:
        raise c.error("not a subscription vector of version 1")
    flags = c.byte("flags")
    handle = c.pair("handle")
    threshold = c.byte("threshold")
    validity = c.limited("validity", LAST_DURATION)
    features = c.pair("features")
    if not features:
        raise c.error("no features")
    sections = more = 0
    if flags & 8:
        sections = c.byte("sections")
        if sections & MORE:
            more = c.byte("more sections")
            if not more or more & 0x80:
                raise c.error("reserved or empty section bits")
        if not sections:
            raise c.error("no section")
    attributes = [bit for bit in range(16) if features >> bit & 1]
    count = len(attributes)
    if sections & REPEATS:
        extra = c.byte("number of repeats")
        if not 0 < extra <= 16 - count:
            raise c.error(f"{extra} repeats")
        for _ in range(extra):
            attribute = c.limited("repeated attribute", 15)
            if not features >> attribute & 1 or (
                len(attributes) > count and attribute < attributes[-1]
            ):
                raise c.error("repeated attribute out of order")
            attributes.append(attribute)
        count += extra
    negated = flags >> 4
    if sections & NEGATIONS:
        negated |= c.mask("negations", 0xFFF0 & ((1 << count) - 1))
    if negated >> count:
        raise ProtocolError("negation of a predicate that is not there", 1)
    hedges = _unpack_hedges(c, count) if sections & HEDGES else [0] * count
    asymmetric = c.mask("asymmetric", (1 << count) - 1) if sections & ASYMMETRIC else 0
    wides = c.mask("wide", features) if sections & WIDE else 0
    pattern = unpack_pattern(c, count) if sections & PATTERN else b""
    certain = c.positive("certain") if more & CERTAIN else 0
    thetas = bytes(2 * count)
    if more & THETAS:
        thetas = c.take(2 * count, "thresholds of predicates")
        if not any(thetas):
            raise c.error("thresholds of zero")
    weights = c.take(count, "weights") if more & WEIGHTS else b"\x01" * count
    significance = _unpack_significance(c, features) if more & SIGNIFICANCE else None
    recent = None
    if more & RECENT:
        until = c.limited("recent until", LAST_DURATION)
        recent = (until, c.limited("recent from", LAST_DURATION))
    consequents = _unpack_consequents(c, count) if more & CONSEQUENTS else None
    restrictors = b""
    if more & RESTRICTORS:
        restrictors = c.take(count_attributes(features), "restrictors")
        if not any(restrictors):
            raise c.error("restrictors of zero")
    predicates = []
    for i in range(count):
        wide = bool(wides >> attributes[i] & 1)
        low = c.pair("low") if wide else c.byte("low")
        high = c.pair("high") if wide else c.byte("high")
        if low > high:
            raise c.error(f"low {low} above high {high}")
        left = right = c.byte("gamma")
        if asymmetric >> i & 1:
            right = c.byte("second gamma")
            if left == right:
                raise c.error("two gammas that are equal")
        predicates.append(
            Predicate(
                attributes[i],
                low,
                high,
                left,
                right,
                bool(negated >> i & 1),
                hedges[i],
                wide,
                thetas[2 * i],
                thetas[2 * i + 1],
                weights[i],
            )
        )
    c.end()
    subscription = SubscriptionVector(
        head & 63,
        predicates,
        flags & 7,
        threshold,
        certain,
        handle,
        validity,
        pattern,
        bool(sections & WHY),
        recent,
        significance,
        consequents,
        restrictors,
    )
    if bool(more & WEIGHTS) != (subscription.aggregator == WEIGHTED):
        raise ProtocolError("weights and aggregator do not go together", 1)
    return subscription


def _unpack_hedges(c: Cursor, count: int) -> list[int]:
    hedges = []
    for pair in c.take((count + 1) >> 1, "hedges"):
        hedges += [pair >> 4, pair & 15]
    if not any(hedges) or any(hedges[count:]):
        raise c.error("hedges of nothing")
    return hedges


def _unpack_significance(c: Cursor, features: int) -> Significance:
    flags = c.byte("significance")
    if not flags or flags & 0xC0:
        raise c.error("reserved or empty significance bits")
    bands = c.take(count_attributes(features), "dead bands") if flags & 1 else b""
    values = [c.positive("significance") if flags >> i & 1 else 0 for i in range(1, 6)]
    return Significance(
        bands, values[0], values[1], values[2] >> 4, values[2] & 15, values[3], values[4]
    )


def _unpack_consequents(c: Cursor, count: int) -> list[tuple[int, ...]]:
    order = c.limited("order of the consequents", 1)
    rules: list[tuple[int, ...]] = []
    for _ in range(count * (count - 1) // 2):
        first = _sign(c.pair("coefficient"), 16) if order else c.byte("consequent")
        if order:
            second = _sign(c.byte("coefficient"), 8)
            rules.append((first, second, _sign(c.byte("coefficient"), 8)))
        else:
            rules.append((first,))
    return rules


def _sign(value: int, bits: int) -> int:
    """Return an unsigned field as the signed number that it codes."""
    return value - (1 << bits) if value >> (bits - 1) else value


def _mask(flags: list[bool]) -> int:
    mask = 0
    for i in range(len(flags)):
        if flags[i]:
            mask |= 1 << i
    return mask


def _pair(value: int) -> bytes:
    return bytes([value >> 8, value & 255])


# The paper's patterns in postfix, by their two bytes. First byte: bit 0 the operator of group 1
# (0 and, 1 or), bit 1 whether it has several operands, bits 2 and 3 the same of group 2, bits 4 and
# 5 how many such pairs of bits the pattern uses. Second byte: how many predicates each group has.
_CODES = {
    (0x2C, 0x12): bytes([0, 1, 2, OR | 2, AND | 2]),
    (0x26, 0x21): bytes([0, 1, AND | 2, 2, OR | 2]),
    (0x2A, 0x22): bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]),
    (0x23, 0x31): bytes([0, 1, 2, OR | 3, 3, AND | 2]),
}


def pack_pattern(pattern: bytes) -> bytes:
    """Return the section of a postfix pattern."""
    for code in _CODES:
        if _CODES[code] == pattern:
            return bytes(code)
    return bytes([0x80 | len(pattern)]) + pattern


def unpack_pattern(c: Cursor, predicates: int) -> bytes:
    """Return the postfix pattern of the section at the cursor."""
    start = c.at
    head = c.byte("pattern")
    if not head & 0x80:
        code = (head, c.byte("counts of the pattern"))
        if code not in _CODES:
            raise ProtocolError("no pattern has the code 0x{:02x}{:02x}".format(*code), start)
        if (code[1] >> 4) + (code[1] & 15) != predicates:
            raise c.error(f"pattern of other than {predicates} predicates")
        return _CODES[code]
    pattern = c.take(head & 0x7F, "pattern")
    check_pattern(pattern, predicates, start + 1)
    if pack_pattern(pattern)[0] != head:
        raise ProtocolError("this pattern has a two-byte code", start)
    return pattern
