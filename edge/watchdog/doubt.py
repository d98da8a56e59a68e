"""Uncertain readings against subscription vectors as bytes: what `protocol.matching` says.

Works on the buffer instead of objects, because the classes behind `protocol.matching` would take
13 KB of a device's flash. Every predicate gets a possible and a certain degree; both lanes go
through the same aggregations.
"""

from array import array

from protocol.degrees import MAX, SUGENO, aggregate, const, fuzzify, hedge, reach
from protocol.evaluator import NOT, OR, find_least, narrow, run_consequents

from .sections import CODES, locate, name_attribute

# Fields of a place: sections.py.
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


class Doubt:
    """Rates the records of one filter. `certain` is the lower degree of the last one."""

    def __init__(self, scratch: bytearray) -> None:
        self.place = [0] * _PLACES
        self.certain = 0
        self.scratch = scratch
        self._certains = bytearray(len(scratch))

    def rate(
        self, buf: bytearray, at: int, values: "array[int]", points: "array[int]", doubt: int
    ) -> int:
        """Return the possible degree of the record at buf[at:], ~degree if it does not match.

        `values` and `points` are those of a sample, `doubt` says which attributes have points.
        """
        place = self.place
        locate(buf, at, place)
        allowed = self._measure_all(buf, values, points, doubt)
        possible, certain = self._combine(buf, buf[at + 1] & 7, values)
        self.certain = certain
        least = buf[place[_CERTAINLY]] if place[_CERTAINLY] else 0
        return possible if allowed and possible >= buf[at + 4] and certain >= least else ~possible

    def _measure_all(
        self, buf: bytearray, values: "array[int]", points: "array[int]", doubt: int
    ) -> bool:
        """Put the predicates' degrees into scratch; return whether all reach their thresholds."""
        place = self.place
        allowed = True
        p = place[_TRIPLES]
        for i in range(place[_COUNT]):
            attribute = name_attribute(buf, place, i)
            wide = place[_WIDES] >> attribute & 1
            low = buf[p] << 8 | buf[p + 1] if wide else buf[p]
            high = buf[p + 2] << 8 | buf[p + 3] if wide else buf[p + 1]
            p += 4 if wide else 2
            left = right = buf[p]
            if place[_LOPSIDED] >> i & 1:
                p += 1
                right = buf[p]
            p += 1
            code = place[_HEDGED]
            if code:
                code = buf[code + (i >> 1)] >> (0 if i & 1 else 4) & 15
            if doubt >> attribute & 1:
                shape = low, high, left, right, wide, code
                four = 4 * attribute
                reading = points[four], points[four + 1], points[four + 2], points[four + 3]
                possible = _search(shape, reading, False)
                certain = _search(shape, reading, True)
            else:
                x = values[attribute]
                possible = certain = hedge(fuzzify(x, low, high, left, right, wide), code)
            if place[_NEGATED] >> i & 1:
                possible, certain = 255 - certain, 255 - possible
            self.scratch[i] = possible
            self._certains[i] = certain
            least = place[_LEAST]
            if least and (possible < buf[least + 2 * i] or certain < buf[least + 2 * i + 1]):
                allowed = False
        return allowed

    def _combine(self, buf: bytearray, kind: int, values: "array[int]") -> tuple[int, int]:
        """Return the two degrees of the whole; scratch[32] names the predicate that decided."""
        place = self.place
        count = place[_COUNT]
        extra = place[_EXTRA]
        whole: bytes = buf  # type: ignore[assignment]  # only read
        highs = self.scratch
        lows = self._certains
        if place[_PATTERNED]:
            return self._run_pattern(buf, kind)
        highs[32] = find_least(kind, highs, 0, count)
        if kind == SUGENO:
            names = bytes([name_attribute(buf, place, i) for i in range(count)])
            bytewise = narrow(list(values), place[_WIDES])
            possible = run_consequents(whole, extra, count, bytewise, names, highs)
            certain = run_consequents(whole, extra, count, bytewise, names, lows)
            return possible, min(possible, certain)
        possible = aggregate(kind, highs, 0, count, whole, extra)
        return possible, aggregate(kind, lows, 0, count, whole, extra)

    def _run_pattern(self, buf: bytearray, kind: int) -> tuple[int, int]:
        """Return the two degrees of a pattern: a negation swaps them."""
        p = self.place[_PATTERNED]
        program = bytes(buf[p + 1 : p + 1 + (buf[p] & 0x7F)])
        for code, counts, postfix in CODES:
            if buf[p] == code and buf[p + 1] == counts:
                program = postfix
        stack: list[tuple[int, int, int]] = []
        for op in program:
            if op < 16:
                stack.append((self.scratch[op], self._certains[op], op))
            elif op == NOT:
                possible, certain, decisive = stack.pop()
                stack.append((255 - certain, 255 - possible, decisive))
            else:
                how = MAX if op & 0xF0 == OR else kind
                taken = stack[-(op & 15) :]
                del stack[-(op & 15) :]
                highs = bytearray([operand[0] for operand in taken])
                lows = bytearray([operand[1] for operand in taken])
                decisive = taken[find_least(how, highs, 0, len(highs))][2]
                possible = aggregate(how, highs, 0, len(highs), b"", 0)
                stack.append((possible, aggregate(how, lows, 0, len(lows), b"", 0), decisive))
        self.scratch[32] = stack[0][2]
        return stack[0][0], stack[0][1]


def _search(
    shape: tuple[int, int, int, int, int, int], reading: tuple[int, int, int, int], certain: bool
) -> int:
    """Return the highest degree to which the reading is possibly, or certainly, in the set."""
    low, high, left, right, wide, code = shape
    least = 0
    most = 255
    while least < most:
        t = (least + most + 1) >> 1
        level = _invert_hedge(code, t)
        floor = low - reach(left, level, wide)
        ceiling = high + reach(right, level, wide)
        first, last = _cut(reading, 256 - t if certain else t)
        if certain:
            holds = floor <= first and last <= ceiling
        else:
            holds = floor <= last and first <= ceiling
        if holds:
            least = t
        else:
            most = t - 1
    return least


def _cut(reading: tuple[int, int, int, int], t: int) -> tuple[int, int]:
    """Return the values whose possibility is at least t (1..255)."""
    a, b, c, d = reading
    rise = b - a
    fall = d - c
    first = max(a - (rise // 2 - t * rise) // 255, a + 1) if rise else b
    last = min(d + (fall // 2 - t * fall) // 255, d - 1) if fall else c
    return first, last


def _invert_hedge(code: int, degree: int) -> int:
    """Return the lowest degree that the hedge lifts to at least `degree`."""
    if not code:
        return degree
    low = 0
    high = 255
    while low < high:
        middle = (low + high) >> 1
        if hedge(middle, code) >= degree:
            high = middle
        else:
            low = middle + 1
    return low
