"""The degree of any subscription vector, read where it lies: sections, means, patterns, rules.

Every predicate gets two degrees, a possible and a certain one, which differ where a reading is
uncertain (`doubt.py`); both go through the same joins. Exact readings allocate nothing. The buffer
is trusted: `check.py` came first. Of `protocol` only the arithmetic of degrees is used; what it
says of vectors as objects (`denwatch.protocol.matching`) is what the tests compare this file with.
"""

from array import array

from ..protocol.degrees import aggregate, const, fuzzify, hedge
from .sections import CODES, locate, name_attribute

# Numbers of the protocol: protocol/README.md.
_MAX = const(1)
_SUGENO = const(7)
_OR = const(0x50)
_NOT = const(0x60)

# Fields of a place: sections.py.
_FEATURES = const(0)
_COUNT = const(1)
_NEGATED = const(2)
_HEDGED = const(4)
_LOPSIDED = const(5)
_WIDES = const(6)
_PATTERNED = const(7)
_CERTAINLY = const(8)
_LEAST = const(9)
_EXTRA = const(10)
_TRIPLES = const(13)
_PLACES = const(15)

# A lane: the predicates' degrees, a stack of degrees, and the predicate that decided each.
_STACK = const(16)
_BLAME = const(16)  # from a degree to its predicate
_LANE = const(48)


class Rater:
    """Rates one record after the other; its fields speak of the last one."""

    def __init__(self) -> None:
        self.place = [0] * _PLACES
        self.names = bytearray(16)  # the attribute of each predicate
        self.degrees = bytearray(_LANE)
        self.certain = 0
        self.decisive = 0  # the predicate that decided
        self.search: object = None  # `doubt.search`, where readings may be uncertain
        self._certains = bytearray(_LANE)
        self._lows = self.degrees  # the certain degrees: the same, without doubt

    def rate(
        self, buf: bytearray, at: int, values: "array[int]", points: "array[int]", doubt: int
    ) -> int:
        """Return the possible degree of the record at buf[at:], ~degree if it does not match.

        `values` and `points` are those of a sample, `doubt` says which attributes have points.
        """
        place = self.place
        locate(buf, at, place)
        doubt &= place[_FEATURES]
        self._lows = self._certains if doubt else self.degrees
        allowed = self._measure_all(buf, values, points, doubt)
        self._run(buf, buf[at + 1] & 7, values)
        self.decisive = self.degrees[_STACK + _BLAME]
        self.certain = certain = self._lows[_STACK]
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
                possible = self.search(shape, reading, False)  # type: ignore[operator]
                certain = self.search(shape, reading, True)  # type: ignore[operator]
            else:
                possible = fuzzify(values[attribute], low, high, left, right, wide)
                possible = certain = hedge(possible, code)
            if place[_NEGATED] >> i & 1:
                code = possible
                possible = 255 - certain
                certain = 255 - code
            self.names[i] = attribute
            self._lows[i] = certain
            self.degrees[i] = possible
            if least:
                if possible < buf[least] or certain < buf[least + 1]:
                    allowed = False
                least += 2
        return allowed

    def _run(self, buf: bytearray, kind: int, values: "array[int]") -> None:
        """Run the pattern, or join all predicates; the result is at the bottom of the stack."""
        highs = self.degrees
        lows = self._lows
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

    def _join(self, buf: bytearray, kind: int, first: int, top: int, values: "array[int]") -> None:
        """Put one degree in the place of several, in both lanes."""
        highs = self.degrees
        best = first
        for i in range(first, top):
            if highs[i] > highs[best] if kind == _MAX else highs[i] < highs[best]:
                best = i
        highs[first + _BLAME] = highs[best + _BLAME]
        lane = self._lows
        while True:
            if kind == _SUGENO:
                degree = self._apply_rules(buf, lane, values)
            else:
                degree = aggregate(kind, lane, first, top, buf, self.place[_EXTRA])  # type: ignore[arg-type]
            lane[first] = degree
            if lane is highs:
                break
            lane = highs
        if self._lows[first] > degree:  # of rules only: their mean may fall as degrees rise
            self._lows[first] = degree

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
