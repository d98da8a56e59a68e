"""Alpha-cuts, where a degree reaches a threshold, as intervals of integers; and what they say of
uncertain readings.

THEORY     The t-cut of a fuzzy set is where its degree is at least t. Sets here rise to a core and
           fall again, so a cut is one interval; a negated set's is what that leaves, up to two.
           Cuts commute with min, max and not, so for those "degree >= t" is exactly a formula over
           intervals. For the other aggregators, the cuts at `find_level` are what every match must
           satisfy.
DOUBT      An uncertain reading is a trapezoid pi with support [a, d] and core [b, c]. Possible is
           the highest min(mu, pi) over all values, certain the lowest max(mu, 255 - pi).
             possible >= t   the t-cuts of mu and pi meet;
             certain >= t    no value of pi's (256 - t)-cut is in the (256 - t)-cut of "not mu".
           So a search over 256 degrees replaces one over all values. Values here are real numbers:
           ends of cuts are in 1/256 of an 8-bit code or 1/16 of a 16-bit one, and a cut at t takes
           in what rounds to t. A crisp side has no values between its end and the next code: what
           is not "<= 100" is ">= 101".
ONE VALUE  "and" and "or" of sets over one attribute are judged together (`measure_together`): the
           cut of the whole is a union of intervals whose ends are ends of the sets' cuts, so it
           meets the reading's cut if and only if one of those ends, or of the reading's, is in
           both.
EXAMPLE    Core 100..200, crisp; reading (190, 195, 205, 210). The cuts meet at every t up to 255
           (195..200 is in both cores): possible 255. Certain is 0: pi is 255 at 205, where mu is 0.
           "<= 100 or >= 101" of (95, 100, 100, 105) is certain to 255, though neither part is.
"""

from .degrees import (
    CRISP,
    MAX,
    MIN,
    SUGENO,
    aggregate,
    const,
    find_membership,
    fuzzify,
    hedge,
    reach,
    slope,
)
from .vectors import NOT, OR, Predicate

_FULL = const(261120)  # 255 degrees in 1/1024 of a degree


def invert_hedge(code: int, degree: int) -> int:
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


def cut_set(p: Predicate, t: int) -> tuple[int, int]:
    """Return the values whose degree is at least t (0..255), before hedge and negation."""
    if t <= 0:
        return 0, p.last
    low = p.low - reach(p.left, t, p.wide)
    high = p.high + reach(p.right, t, p.wide)
    return max(low, 0), min(high, p.last)


def cut(p: Predicate, t: int) -> list[tuple[int, int]]:
    """Return the values for which the predicate's degree is at least t: rising, apart, inclusive.

    One interval, or up to two for a negated predicate; t may be 0..256, where 256 is never reached.
    """
    if p.negated:
        return complement(_cut_hedged(p, 256 - t), p.last)
    return _cut_hedged(p, t)


def _cut_hedged(p: Predicate, t: int) -> list[tuple[int, int]]:
    if t > 255:
        return []
    return [cut_set(p, invert_hedge(p.hedge, t))]


def complement(intervals: list[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """Return what the intervals leave of 0..last."""
    gaps = []
    start = 0
    for low, high in intervals:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= last:
        gaps.append((start, last))
    return gaps


def find_level(kind: int, count: int, t: int, weights: bytes, i: int) -> int:
    """Return the degree that predicate i of `count` must reach for the aggregate to reach t.

    The lowest degree that reaches t while all others are full: exact for min, necessary for the
    others. Max and Takagi-Sugeno rules ask nothing of one predicate alone (0).
    """
    if kind in (MAX, SUGENO):
        return 0
    if kind == MIN:
        return t
    degrees = bytearray(b"\xff" * count)
    low = 0
    high = 256
    while low < high:
        middle = (low + high) >> 1
        degrees[i] = min(middle, 255)
        if middle > 255 or aggregate(kind, degrees, 0, count, weights, 0) >= t:
            high = middle
        else:
            low = middle + 1
    return low


def trapezoid(x: int, points: tuple[int, int, int, int]) -> int:
    """Return the possibility (0..255) that the reading is x."""
    a, b, c, d = points
    if x < b:
        return (255 * (x - a) + (b - a) // 2) // (b - a) if x > a else 0
    if x > c:
        return (255 * (d - x) + (d - c) // 2) // (d - c) if x < d else 0
    return 255


def cut_finely(p: Predicate, t: int) -> tuple[int, int]:
    """Return where the hedged degree rounds to at least t (1..255), in fractions of a code.

    Before negation, and not cut off at the ends of the domain.
    """
    unit = 16 if p.wide else 256
    spare = _FULL - find_membership(p.hedge, t)
    spare = spare * (1028 if p.wide else 64) - 1  # a slope is in 1/256 degree a code
    low = p.low * unit
    high = p.high * unit
    if p.left != CRISP:
        low -= spare // slope(p.left)
    if p.right != CRISP:
        high += spare // slope(p.right)
    return low, high


def cut_reading(points: tuple[int, int, int, int], t: int, unit: int) -> tuple[int, int]:
    """Return where the possibility rounds to at least t (1..255), in 1/unit of a code."""
    a, b, c, d = points
    share = (2 * t - 1) * unit
    return a * unit + (share * (b - a) + 509) // 510, d * unit - (share * (d - c) + 509) // 510


def measure(p: Predicate, points: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return (possible, certain) of the predicate, hedge and negation included."""
    if points[0] == points[3]:
        degree = hedge(fuzzify(points[0], p.low, p.high, p.left, p.right, p.wide), p.hedge)
        degree = 255 - degree if p.negated else degree
        return degree, degree
    unit = 16 if p.wide else 256
    possible = 255 if p.low <= points[2] and points[1] <= p.high else 0
    certain = 255 if p.low <= points[0] and points[3] <= p.high else 0
    high = 255
    while possible < high:  # the cuts of the set and the reading meet
        t = (possible + high + 1) >> 1
        start, stop = cut_finely(p, t)
        first, last = cut_reading(points, t, unit)
        if start <= last and first <= stop:
            possible = t
        else:
            high = t - 1
    high = 255
    while certain < high:  # the cuts of its opposite and the reading do not
        t = (certain + high + 1) >> 1
        start, stop = cut_finely(p, t)
        first, last = cut_reading(points, 256 - t, unit)
        start -= unit if p.left == CRISP else 1
        stop += unit if p.right == CRISP else 1
        if start < first and last < stop:
            certain = t
        else:
            high = t - 1
    return (255 - certain, 255 - possible) if p.negated else (possible, certain)


def measure_together(
    sets: list[Predicate], program: bytes, points: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Return (possible, certain) of a postfix pattern of min, max and not over one attribute."""
    return _search(sets, program, points, 0), 255 - _search(sets, program, points, 1)


def _search(
    sets: list[Predicate], program: bytes, points: tuple[int, int, int, int], side: int
) -> int:
    """Return how possible the pattern is (side 0), or its opposite (1)."""
    low = 0
    high = 255
    while low < high:
        middle = (low + high + 1) >> 1
        if _meets(sets, program, points, side, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _meets(
    sets: list[Predicate], program: bytes, points: tuple[int, int, int, int], side: int, t: int
) -> bool:
    """Return whether a value that the reading may have, to t, fits the pattern, or not, to t."""
    unit = 16 if sets[program[0]].wide else 256
    first, last = cut_reading(points, t, unit)
    cuts = []
    places = [first, last]
    for i in range(len(sets)):
        p = sets[i]
        if i not in program:  # a set over another attribute
            cuts.append((False, 0, 0, 0, 0))
            continue
        low, high = cut_finely(p, t)
        below, above = cut_finely(p, 256 - t)
        below -= unit if p.left == CRISP else 1
        above += unit if p.right == CRISP else 1
        cuts.append((p.negated, low, high, below, above))
        places += [low, high, below, above]
    return any(_judge(cuts, program, x)[side] for x in places if first <= x <= last)


def _judge(
    cuts: list[tuple[bool, int, int, int, int]], program: bytes, x: int
) -> tuple[bool, bool]:
    """Return whether a value is in the cut of the pattern, and in that of its opposite."""
    stack: list[tuple[bool, bool]] = []
    for op in program:
        if op < len(cuts):
            negated, low, high, below, above = cuts[op]
            fits = low <= x <= high
            fails = x <= below or x >= above
            stack.append((fails, fits) if negated else (fits, fails))
        elif op == NOT:
            fits, fails = stack.pop()
            stack.append((fails, fits))
        else:
            operands = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            fit = [operand[0] for operand in operands]
            fail = [operand[1] for operand in operands]
            is_or = op & 0xF0 == OR
            stack.append((any(fit), all(fail)) if is_or else (all(fit), any(fail)))
    return stack[0]
