"""The degree of any subscription vector, read where it lies: sections, means, patterns, rules.

THEORY     `locate` walks a vector once and notes where its sections stand (a *place*); the walk is
           that of `protocol.subscription.decode`, without objects. `Rater.rate` then
           gives every predicate two degrees, a possible and a certain one, in two *lanes*: the
           predicates' degrees, and behind them a stack on which the pattern runs as postfix. Both
           lanes go through the same joins; the predicate that decided is kept beside each degree.
INVARIANT  Without an uncertain reading the two lanes are one array, so possible = certain, and
           nothing is allocated. With one, certain <= possible at every place of the stack.
TRUST      The buffer is not checked again: `check.py` came first.
EXAMPLE    (p0 and p1) or p2 is 00 01 42 02 52. With degrees 200, 90, 120: push 200, push 90; 42
           joins two by min to 90, blamed on p1; push 120; 52 joins by max to 120, blamed on p2.

Of `protocol` only the arithmetic of degrees is used: not importing the codec, and constants that
are private to their file (`_NAME = const(...)`, for which MicroPython keeps no name) save a
device 4 KB of heap. The tests compare this file with `denwatch.protocol.matching`.
"""

from array import array

from ..protocol.degrees import aggregate, const, find_membership, fuzzify, hedge, slope

TYPE_CHECKING = False
if TYPE_CHECKING:
    Shape = tuple[int, int, int, int, int, int]  # low, high, left, right, wide, hedge

# The sections, by their bit in the two section bytes: protocol/README.md.
_REPEATS = const(0x01)
_NEGATIONS = const(0x02)
_HEDGES = const(0x04)
_ASYMMETRIC = const(0x08)
_WIDE = const(0x10)
_PATTERN = const(0x20)
_MORE = const(0x80)
_CERTAIN = const(0x01)
_THETAS = const(0x02)
_WEIGHTS = const(0x04)
_SIGNIFICANCE = const(0x08)
_RECENT = const(0x10)
_CONSEQUENTS = const(0x20)
_RESTRICTORS = const(0x40)

# A place: masks and counts, and the positions of sections, 0 where there is none. `check.py` and
# `fuzzy.py` name its fields with the same numbers, because an underscored constant cannot be
# imported on MicroPython.
_FEATURES = const(0)
_COUNT = const(1)  # of predicates
_NEGATED = const(2)
_DENIED = const(14)  # where the negations of later predicates stand
_REPEATED = const(3)
_HEDGED = const(4)
_LOPSIDED = const(5)  # mask of the asymmetric predicates
_WIDES = const(6)
_PATTERNED = const(7)
_CERTAINLY = const(8)
_LEAST = const(9)  # thresholds of predicates
_EXTRA = const(10)  # weights or consequents
_SIGNIFICANT = const(11)
_RECENTLY = const(12)
_TRIPLES = const(13)
_RESTRICTED = const(15)
_PLACES = const(16)

# The DENS paper's patterns: code, counts of the two groups, and what they mean in postfix.
CODES = (
    (0x2C, 0x12, b"\x00\x01\x02\x52\x42"),
    (0x26, 0x21, b"\x00\x01\x42\x02\x52"),
    (0x2A, 0x22, b"\x00\x01\x42\x02\x03\x42\x52"),
    (0x23, 0x31, b"\x00\x01\x02\x53\x03\x42"),
)

# Numbers of the protocol: protocol/README.md.
_MAX = const(1)
_SUGENO = const(7)
_OR = const(0x50)
_NOT = const(0x60)
_CRISP = const(255)
_FULL = const(261120)  # 255 degrees in 1/1024 of a degree

# A lane: the predicates' degrees, a stack of degrees, and the predicate that decided each.
_STACK = const(16)
_BLAME = const(16)  # from a degree to its predicate
_LANE = const(48)


def count_bits(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def locate(buf: bytes | bytearray, at: int, place: list[int]) -> None:
    """Fill in the place of the vector at buf[at:]."""
    for i in range(_PLACES):
        place[i] = 0
    features = buf[at + 6] << 8 | buf[at + 7]
    count = names = count_bits(features)
    place[_FEATURES] = features
    place[_NEGATED] = buf[at + 1] >> 4
    sections = more = 0
    p = at + 8
    if buf[at + 1] & 8:
        sections = buf[p]
        p += 1
        if sections & _MORE:
            more = buf[p]
            p += 1
    if sections & _REPEATS:
        place[_REPEATED] = p + 1
        count += buf[p]
        p += 1 + buf[p]
    if sections & _NEGATIONS:
        place[_DENIED] = p
        place[_NEGATED] |= buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _HEDGES:
        place[_HEDGED] = p
        p += (count + 1) >> 1
    if sections & _ASYMMETRIC:
        place[_LOPSIDED] = buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _WIDE:
        place[_WIDES] = buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _PATTERN:
        place[_PATTERNED] = p
        p += 1 + (buf[p] & 0x7F) if buf[p] & 0x80 else 2
    if more & _CERTAIN:
        place[_CERTAINLY] = p
        p += 1
    if more & _THETAS:
        place[_LEAST] = p
        p += 2 * count
    if more & _WEIGHTS:
        place[_EXTRA] = p
        p += count
    if more & _SIGNIFICANCE:
        place[_SIGNIFICANT] = p
        p += 1 + (names if buf[p] & 1 else 0) + count_bits(buf[p] >> 1)
    if more & _RECENT:
        place[_RECENTLY] = p
        p += 2
    if more & _CONSEQUENTS:
        place[_EXTRA] = p
        p += 1 + count * (count - 1) // 2 * (4 if buf[p] else 1)
    if more & _RESTRICTORS:
        place[_RESTRICTED] = p
        p += names
    place[_COUNT] = count
    place[_TRIPLES] = p


def name_attribute(buf: bytes | bytearray, place: list[int], predicate: int) -> int:
    """Return the attribute of a predicate, by its number in the vector."""
    features = place[_FEATURES]
    for attribute in range(16):
        if features >> attribute & 1:
            if not predicate:
                return attribute
            predicate -= 1
    return buf[place[_REPEATED] + predicate]


def search(shape: "Shape", reading: "array[int]", is_certain: bool) -> int:
    """Return to which degree an uncertain reading is possibly, or certainly, in a fuzzy set.

    `shape` is (low, high, left, right, wide, hedge). By cuts, as `protocol.cuts` says of objects:
    possible to t is where the t-cuts of set and reading meet, certain to t where the cut of the
    reading meets none of the opposite's.
    """
    if is_certain:
        if shape[0] <= reading[0] and reading[3] <= shape[1]:
            return 255
    elif shape[0] <= reading[2] and reading[1] <= shape[1]:
        return 255
    least = 0
    most = 255
    while least < most:
        t = (least + most + 1) >> 1
        low, high, below, above = cut_set(shape, t)
        first, last = cut_reading(reading, 256 - t if is_certain else t, shape[4])
        if is_certain:  # beyond its cut lies the opposite's
            low = below + 1
            high = above - 1
            first, last = last, first
        if low <= last and first <= high:
            least = t
        else:
            most = t - 1
    return least


def cut_set(shape: "Shape", t: int) -> tuple[int, int, int, int]:
    """Return between which values a set reaches t, and from which on it does not any more.

    In 1/256 of a code, or 1/16 of a wide one. A crisp side does not until the next code.
    """
    low, high, left, right, wide, code = shape
    unit = 16 if wide else 256
    spare = (_FULL - find_membership(code, t)) * (1028 if wide else 64) - 1
    low *= unit
    high *= unit
    if left == _CRISP:
        below = low - unit
    else:
        low -= spare // slope(left)
        below = low - 1
    if right == _CRISP:
        above = high + unit
    else:
        high += spare // slope(right)
        above = high + 1
    return low, high, below, above


def cut_reading(reading: "array[int]", t: int, wide: int) -> tuple[int, int]:
    """Return the values whose possibility rounds to at least t (1..255), in the same fractions."""
    a, b, c, d = reading
    unit = 16 if wide else 256
    t = (2 * t - 1) * unit
    return a * unit + (t * (b - a) + 509) // 510, d * unit - (t * (d - c) + 509) // 510


class Rater:
    """Rates one record after the other; its fields speak of the last one."""

    def __init__(self) -> None:
        self.place = [0] * _PLACES
        self.names = bytearray(16)  # the attribute of each predicate
        self.degrees = bytearray(_LANE)
        self.certain = 0
        self.decisive = 0  # the predicate that decided
        self.lows = self.degrees  # the certain degrees: the same, without doubt
        self.shapes: list[tuple[Shape, int]] | None = None  # what `together` judges, and negations
        self._certains = bytearray(_LANE)

    def rate(
        self, buf: bytearray, at: int, values: "array[int]", points: "array[int]", doubt: int
    ) -> int:
        """Return the possible degree of the record at buf[at:], ~degree if it does not match.

        `values` and `points` are those of a sample, `doubt` says which attributes have points.
        """
        place = self.place
        locate(buf, at, place)
        doubt &= place[_FEATURES]
        self.lows = self._certains if doubt else self.degrees
        self.shapes = None
        if doubt and place[_REPEATED] and (place[_PATTERNED] or buf[at + 1] & 7 <= _MAX):
            self.shapes = []  # one attribute several times: see together.py
        allowed = self._measure_all(buf, values, points, doubt)
        self._run(buf, buf[at + 1] & 7, values)
        if self.shapes is not None:
            self._run_together(buf, buf[at + 1] & 7, points, doubt)
        self.decisive = self.degrees[_STACK + _BLAME]
        self.certain = certain = self.lows[_STACK]
        degree = self.degrees[_STACK]
        least = place[_CERTAINLY]
        if not allowed or degree < buf[at + 4] or (least and certain < buf[least]):
            return ~degree
        return degree

    def _measure_all(
        self, buf: bytearray, values: "array[int]", points: "array[int]", doubt: int
    ) -> bool:
        """Rate the predicates; return whether all reach their thresholds."""
        place = self.place
        least = place[_LEAST]
        allowed = True
        p = place[_TRIPLES]
        for i in range(place[_COUNT]):
            attribute = name_attribute(buf, place, i)
            wide = place[_WIDES] >> attribute & 1
            low = buf[p]
            high = buf[p + 1]
            if wide:
                low = low << 8 | high
                high = buf[p + 2] << 8 | buf[p + 3]
                p += 2
            left = right = buf[p + 2]
            if place[_LOPSIDED] >> i & 1:
                right = buf[p + 3]
                p += 1
            p += 3
            code = place[_HEDGED]
            if code:
                code = buf[code + (i >> 1)] >> (0 if i & 1 else 4) & 15
            if doubt >> attribute & 1:
                shape = low, high, left, right, wide, code
                reading = points[4 * attribute : 4 * attribute + 4]
                possible = search(shape, reading, False)
                certain = search(shape, reading, True)
            else:
                possible = fuzzify(values[attribute], low, high, left, right, wide)
                possible = certain = hedge(possible, code)
            if self.shapes is not None:
                shape = low, high, left, right, wide, code
                self.shapes.append((shape, place[_NEGATED] >> i & 1))
            if place[_NEGATED] >> i & 1:
                code = possible
                possible = 255 - certain
                certain = 255 - code
            self.names[i] = attribute
            self.lows[i] = certain
            self.degrees[i] = possible
            if least:
                if possible < buf[least] or certain < buf[least + 1]:
                    allowed = False
                least += 2
        return allowed

    def _run(self, buf: bytearray, kind: int, values: "array[int]") -> None:
        """Run the pattern, or join all predicates; the result is at the bottom of the stack."""
        highs = self.degrees
        lows = self.lows
        p = self.place[_PATTERNED]
        program: bytes | bytearray = b"\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
        at = 0
        stop = self.place[_COUNT]
        if p and buf[p] & 0x80:
            program = buf
            at = p + 1
            stop = at + (buf[p] & 0x7F)
        elif p:
            for code, _, postfix in CODES:
                if code == buf[p]:
                    program = postfix
                    stop = len(postfix)
        top = _STACK
        while at < stop:
            op = program[at]
            at += 1
            if op < 16:
                highs[top] = highs[op]
                lows[top] = lows[op]
                highs[top + _BLAME] = op
                top += 1
            elif op == _NOT:  # what is possibly not, is not certain
                op = 255 - highs[top - 1]
                highs[top - 1] = 255 - lows[top - 1]
                lows[top - 1] = op
            else:
                top -= op & 15
                self._join(buf, kind if op < _OR else _MAX, top, top + (op & 15), values)
                top += 1
        if not p:
            self._join(buf, kind, _STACK, top, values)

    def _run_together(self, buf: bytearray, kind: int, points: "array[int]", doubt: int) -> None:
        """Judge together what is asked of one attribute; without that part, send too much."""
        try:
            from .together import run
        except ImportError:
            self.lows[_STACK] = self.degrees[_STACK]
        else:
            run(self, buf, self.place[_PATTERNED], kind, points, doubt)

    def _join(self, buf: bytearray, kind: int, first: int, top: int, values: "array[int]") -> None:
        """Put one degree in the place of several, in both lanes."""
        highs = self.degrees
        best = first
        for i in range(first, top):
            if highs[i] > highs[best] if kind == _MAX else highs[i] < highs[best]:
                best = i
        highs[first + _BLAME] = highs[best + _BLAME]
        lane = self.lows
        while True:
            if kind == _SUGENO:
                degree = self._apply_rules(buf, lane, values)
            else:
                degree = aggregate(kind, lane, first, top, buf, self.place[_EXTRA])
            lane[first] = degree
            if lane is highs:
                break
            lane = highs
        if self.lows[first] > degree:  # of rules only: their mean may fall as degrees rise
            self.lows[first] = degree

    def _apply_rules(self, buf: bytearray, lane: bytearray, values: "array[int]") -> int:
        """Return the fuzzy mean of Takagi-Sugeno rules, one for each pair of predicates."""
        count = self.place[_COUNT]
        p = self.place[_EXTRA]
        is_linear = buf[p]
        total = weight = 0
        for i in range(count):
            for j in range(i + 1, count):
                p += 1
                result = buf[p]
                if is_linear:
                    result = ((result << 8 | buf[p + 1]) ^ 0x8000) - 0x8000
                    slopes = self._slope(buf[p + 2], i, values) + self._slope(buf[p + 3], j, values)
                    result = min(255, max(0, result + ((slopes + 32) >> 6)))
                    p += 3
                share = min(lane[i], lane[j])
                total += share * result
                weight += share
        return (total + weight // 2) // weight if weight else 0

    def _slope(self, code: int, predicate: int, values: "array[int]") -> int:
        """Return a signed coefficient times the 8-bit value of a predicate's attribute."""
        attribute = self.names[predicate]
        wide = self.place[_WIDES] >> attribute & 1
        return ((code ^ 128) - 128) * (values[attribute] >> 8 * wide)
