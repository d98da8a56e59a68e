"""What a match is, in plain Python floats: an oracle that shares no code with the engines.

It works on what the wire quantised (values, cores and gammas as bytes) and rounds every degree to
a byte, as the wire does, but computes each degree as a real number first: possibility and necessity
by halving over real degrees, aggregates by their textbook formulas. Where an integer engine may be
off by a rounding (product, harmonic and geometric mean; a step of every uncertain degree), the
verdict says by how much. Sets over one uncertain attribute that are judged together have a judge of
their own, `tests/protocol/real.py`; this one leaves them open, and rules over uncertain readings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

MIN, MAX, PRODUCT, ARITHMETIC, GEOMETRIC, HARMONIC, WEIGHTED, SUGENO = range(8)
AND, OR, NOT = 0x40, 0x50, 0x60
Reals = npt.NDArray[np.float64]


class Verdict(NamedTuple):
    """A match as real numbers: how far an engine may be from them, and what it must answer."""

    matched: bool | None  # None: too close to a threshold to say
    possible: float
    certain: float
    tolerance: float
    attribute: int | None  # None: uncertain degrees may be too close to say


def quantise(degree: float) -> float:
    """Return the byte nearest to a degree of 0..255, halves upwards."""
    return float(math.floor(degree + 0.5))


def find_slope(code: int) -> float:
    """Return by how many degrees (of 255) a set falls in one step of 1/255 of the domain."""
    if code == 255:
        return math.inf
    return round(0.57 * 100 ** (code / 254) * 256) / 256


def find_degree(p: Predicate, x: int) -> float:
    """Return the degree of a value, hedges included, negation not."""
    distance = max(p.low - x, x - p.high, 0)
    lost = distance * find_slope(p.left if x < p.low else p.right) if distance else 0.0
    degree = 255 - quantise(min(255.0, lost / 257 if p.wide else lost))
    for step in (p.hedge & 3, p.hedge >> 2):
        if step == 1:
            degree = quantise(degree**2 / 255)
        elif step == 2:
            degree = quantise(degree**3 / 255**2)
        elif step == 3:
            degree = quantise(math.sqrt(255 * degree))
    return degree


def invert_hedge(degree: Reals, powers: Reals) -> Reals:
    """Return the membership that a hedge, a power, turns into the degree."""
    return np.asarray(degree ** (1 / powers))


def find_power(hedge: int) -> float:
    """Return the power that a hedge raises a membership to."""
    return (1, 2, 3, 0.5)[hedge & 3] * (1, 2, 3, 0.5)[hedge >> 2]


def list_shape(p: Predicate) -> tuple[float, ...]:
    """Return a set as numbers: its core, what it loses a code on each side, its hedge's power."""
    part = 255 * 257 if p.wide else 255
    slopes = (find_slope(p.left) / part, find_slope(p.right) / part)
    return (p.low, p.high, *slopes, find_power(p.hedge), p.negated)


def measure_rows(shapes: Reals, points: tuple[int, ...]) -> tuple[Reals, Reals]:
    """Return how possible and how certain each of many sets is for a reading: 0..255, real.

    By definition: the highest degree to which a value may be in both; of the set and the reading,
    then of what is not in the set and the reading. A crisp side ends one code before its opposite.
    """
    low, high, left, right, power, negated = shapes.T
    a, b, c, d = points
    if a == d:
        raise ValueError("an exact reading is rounded another way")

    def reach(slope: Reals, degree: Reals) -> Reals:
        return np.where(np.isinf(slope), 0.0, (1 - invert_hedge(degree, power)) / slope)

    def halve(holds: Callable[[Reals], npt.NDArray[np.bool_]]) -> Reals:
        least, most = np.zeros(len(low)), np.ones(len(low))
        for _ in range(40):
            middle = (least + most) / 2
            right_half = holds(middle)
            least = np.where(right_half, middle, least)
            most = np.where(right_half, most, middle)
        return least

    def is_in(t: Reals) -> npt.NDArray[np.bool_]:
        first, last = a + t * (b - a), d - t * (d - c)
        return np.asarray((low - reach(left, t) <= last) & (first <= high + reach(right, t)))

    def is_out(t: Reals) -> npt.NDArray[np.bool_]:
        first, last = a + t * (b - a), d - t * (d - c)
        below = low - np.where(np.isinf(left), 1, reach(left, 1 - t))
        above = high + np.where(np.isinf(right), 1, reach(right, 1 - t))
        return np.asarray((first <= below) | (above <= last))

    possible, certain = 255 * halve(is_in), 255 * (1 - halve(is_out))
    return (
        np.where(negated, 255 - certain, possible),
        np.where(negated, 255 - possible, certain),
    )


def size_points(p: Predicate, points: tuple[int, ...], wide: bool) -> tuple[int, ...]:
    """Return a reading's points at the resolution of a predicate."""
    if p.wide == wide:
        return points
    return tuple(257 * point if p.wide else point >> 8 for point in points)


def measure_predicate(p: Predicate, points: tuple[int, ...], wide: bool) -> tuple[float, float]:
    """Return (possible, certain) of one predicate."""
    points = size_points(p, points, wide)
    if points[0] == points[3]:
        degree = find_degree(p, points[0])
        return (255 - degree,) * 2 if p.negated else (degree,) * 2  # type: ignore[return-value]
    with np.errstate(divide="ignore", invalid="ignore"):
        possible, certain = measure_rows(np.array([list_shape(p)], float), points)
    return float(possible[0]), float(certain[0])


def combine(kind: int, degrees: list[float], weights: list[int]) -> float:
    """Return the aggregate of degrees, as a byte where the wire rounds exactly."""
    n = len(degrees)
    if kind == MIN:
        return min(degrees)
    if kind == MAX:
        return max(degrees)
    if kind == ARITHMETIC:
        return quantise(sum(degrees) / n)
    if kind == WEIGHTED:
        return quantise(sum(map(lambda w, d: w * d, weights, degrees)) / sum(weights))
    if kind == PRODUCT:
        return 255 * math.prod(degree / 255 for degree in degrees)
    if min(degrees) == 0:
        return 0.0
    if kind == GEOMETRIC:
        return math.exp(sum(map(math.log, degrees)) / n)
    return n / sum(1 / degree for degree in degrees)


def find_tolerance(kind: int, degree: float) -> float:
    """Return how far an integer aggregate may be from the real one."""
    if degree == 0:
        return 0.0
    if kind == GEOMETRIC:
        return 1.5 + 0.01 * degree
    return 1.0 if kind in (PRODUCT, HARMONIC) else 0.0


def find_decisive(kind: int, degrees: list[float]) -> int:
    """Return the first operand that decides: the highest for max, else the lowest."""
    return degrees.index(max(degrees) if kind == MAX else min(degrees))


def run_pattern(
    s: SubscriptionVector, possibles: list[float], certains: list[float]
) -> tuple[float, float, int]:
    """Return (possible, certain, who decided) of a pattern, from its tree."""
    stack: list[tuple[float, float, int]] = []
    for op in s.pattern:
        if op < len(possibles):
            stack.append((possibles[op], certains[op], op))
        elif op == NOT:
            possible, certain, who = stack.pop()
            stack.append((255 - certain, 255 - possible, who))
        else:
            n = op % 16
            parts, stack = stack[-n:], stack[:-n]
            kind = MAX if op - n == OR else s.aggregator
            highs, lows = [part[0] for part in parts], [part[1] for part in parts]
            who = parts[find_decisive(kind, highs)][2]
            stack.append((combine(kind, highs, []), combine(kind, lows, []), who))
    return stack[0]


def run_rules(s: SubscriptionVector, degrees: list[float], centres: dict[int, int]) -> float:
    """Return the fuzzy mean of the Takagi-Sugeno rules."""
    assert s.consequents is not None
    rules = iter(s.consequents)
    total = weight = 0.0
    for i, p in enumerate(s.predicates):
        for j in range(i + 1, len(s.predicates)):
            rule = next(rules)
            result = float(rule[0])
            if len(rule) == 3:
                x, y = centres[p.attribute], centres[s.predicates[j].attribute]
                result = min(255.0, max(0.0, result + quantise((rule[1] * x + rule[2] * y) / 64)))
            share = min(degrees[i], degrees[j])
            total += share * result
            weight += share
    return quantise(total / weight) if weight else 0.0


def find_seconds(code: int) -> int:
    """Return the seconds of a duration code: three bits of mantissa."""
    return code if code < 8 else (8 + code % 8) * 2 ** (code // 8 - 1)


def join_degrees(
    s: SubscriptionVector, possibles: list[float], certains: list[float], centres: dict[int, int]
) -> tuple[float, float, int]:
    """Return (possible, certain, who decided) of the whole from the degrees of the predicates."""
    if s.aggregator == SUGENO:
        possible = run_rules(s, possibles, centres)
        who = find_decisive(s.aggregator, possibles)
        return possible, min(possible, run_rules(s, certains, centres)), who
    if s.pattern:
        return run_pattern(s, possibles, certains)
    weights = [p.weight for p in s.predicates]
    return (
        combine(s.aggregator, possibles, weights),
        combine(s.aggregator, certains, weights),
        find_decisive(s.aggregator, possibles),
    )


def judge_degrees(
    s: SubscriptionVector,
    possibles: list[float],
    certains: list[float],
    centres: dict[int, int],
    age: int,
    doubtful: list[bool] | None = None,
) -> Verdict:
    """Return the verdict from the degrees of the predicates; `doubtful` ones are a step off."""
    off = [1.0 * each for each in doubtful or [False] * len(possibles)]
    possible, certain, who = join_degrees(s, possibles, certains, centres)
    slack = max(find_tolerance(s.aggregator, possible), find_tolerance(s.aggregator, certain))
    names = [p.attribute for p, each in zip(s.predicates, off, strict=True) if each]
    is_joined = len(set(names)) < len(names) and (s.pattern or s.aggregator in (MIN, MAX))
    is_open = bool(names) and (s.aggregator == SUGENO or bool(is_joined))
    if names and s.aggregator != SUGENO:
        for sign in (1, -1):
            more = [min(255.0, max(0.0, d + sign * o)) for d, o in zip(possibles, off, strict=True)]
            less = [min(255.0, max(0.0, d - sign * o)) for d, o in zip(certains, off, strict=True)]
            same = [min(255.0, max(0.0, d + sign * o)) for d, o in zip(certains, off, strict=True)]
            for lows in (less, same):
                moved = join_degrees(s, more, lows, centres)
                slack = max(slack, abs(moved[0] - possible), abs(moved[1] - certain))
        slack += find_tolerance(s.aggregator, 255.0) + 0.5
    if is_joined:
        certain = possible  # together, they are at most as possible, and at most so certain
    if s.aggregator == SUGENO and names:
        slack = 255.0
    if s.recent:
        until, gone = map(find_seconds, s.recent)
        fresh = max(0.0, min(255.0, math.floor(255 * (gone - age) / (gone - until))))
        possible, certain = min(possible, fresh), min(certain, fresh)
    surely = perhaps = True
    for i, p in enumerate(s.predicates):
        for degree, limit in ((possibles[i], p.possible), (certains[i], p.certain)):
            surely = surely and (not limit or degree - off[i] >= limit)
            perhaps = perhaps and degree + off[i] >= limit
    degrees = ((possible, s.threshold), (certain, s.certain))
    surely = surely and all(not limit or degree - slack >= limit for degree, limit in degrees)
    perhaps = perhaps and all(degree + slack >= limit for degree, limit in degrees)
    matched = None if perhaps and (is_open or not surely) else perhaps
    attribute = None if names else s.predicates[who].attribute
    return Verdict(matched, possible, certain, 255.0 if is_open else slack, attribute)


def judge(s: SubscriptionVector, n: NotificationVector, age: int = 0) -> Verdict | None:
    """Return the verdict on a subscription and a notification; None if an attribute is missing."""
    readings = {reading.attribute: reading for reading in n.readings}
    if s.event != n.event or any(p.attribute not in readings for p in s.predicates):
        return None
    measured = []
    doubtful = []
    for p in s.predicates:
        reading = readings[p.attribute]
        measured.append(measure_predicate(p, reading.points, reading.wide))
        points = size_points(p, reading.points, reading.wide)
        doubtful.append(points[0] < points[3])
    centres = {}
    for attribute, reading in readings.items():
        middle = (reading.points[1] + reading.points[2]) // 2
        centres[attribute] = middle >> 8 if reading.wide else middle
    highs, lows = [m[0] for m in measured], [m[1] for m in measured]
    return judge_degrees(s, highs, lows, centres, age, doubtful)
