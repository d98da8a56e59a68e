"""What a match is, in plain Python floats: an oracle that shares no code with the engines.

It works on what the wire quantised (values, cores and gammas as bytes) and rounds every degree to
a byte, as the wire does, but computes each degree as a real number first: possibility and necessity
by trying every value of the domain, aggregates by their textbook formulas. Where an integer engine
may be off by a rounding (product, harmonic and geometric mean), the verdict says by how much.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

MIN, MAX, PRODUCT, ARITHMETIC, GEOMETRIC, HARMONIC, WEIGHTED, SUGENO = range(8)
AND, OR, NOT = 0x40, 0x50, 0x60


class Verdict(NamedTuple):
    """A match as real numbers: how far an engine may be from them, and what it must answer."""

    matched: bool | None  # None: too close to a threshold to say
    possible: float
    certain: float
    tolerance: float
    attribute: int


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


def find_possibility(x: int, points: tuple[int, ...]) -> float:
    """Return how possible it is that a reading is x."""
    a, b, c, d = points
    if b <= x <= c:
        return 255.0
    if x <= a or x >= d:
        return 0.0
    return quantise(255 * (x - a) / (b - a) if x < b else 255 * (d - x) / (d - c))


def measure_predicate(p: Predicate, points: tuple[int, ...], wide: bool) -> tuple[float, float]:
    """Return (possible, certain) of one predicate, by trying every value that matters."""
    if p.wide and not wide:
        points = tuple(257 * point for point in points)
    elif wide and not p.wide:
        points = tuple(point >> 8 for point in points)
    if points[0] == points[3]:
        possible = certain = find_degree(p, points[0])
    else:
        domain = range(65536 if p.wide else 256)
        degrees = [(find_degree(p, x), find_possibility(x, points)) for x in domain]
        possible = max(min(mu, pi) for mu, pi in degrees)
        certain = min(max(mu, 255 - pi) for mu, pi in degrees)
    return (255 - certain, 255 - possible) if p.negated else (possible, certain)


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


def judge_degrees(
    s: SubscriptionVector,
    possibles: list[float],
    certains: list[float],
    centres: dict[int, int],
    age: int,
) -> Verdict:
    """Return the verdict from the degrees of the predicates."""
    weights = [p.weight for p in s.predicates]
    who = find_decisive(s.aggregator, possibles)
    if s.aggregator == SUGENO:
        possible = run_rules(s, possibles, centres)
        certain = min(possible, run_rules(s, certains, centres))
    elif s.pattern:
        possible, certain, who = run_pattern(s, possibles, certains)
    else:
        possible = combine(s.aggregator, possibles, weights)
        certain = combine(s.aggregator, certains, weights)
    slack = max(find_tolerance(s.aggregator, possible), find_tolerance(s.aggregator, certain))
    if s.recent:
        until, gone = map(find_seconds, s.recent)
        fresh = max(0.0, min(255.0, math.floor(255 * (gone - age) / (gone - until))))
        possible, certain = min(possible, fresh), min(certain, fresh)
    allowed = all(
        possibles[i] >= p.possible and certains[i] >= p.certain for i, p in enumerate(s.predicates)
    )
    degrees = ((possible, s.threshold), (certain, s.certain))
    surely = allowed and all(not limit or degree - slack >= limit for degree, limit in degrees)
    perhaps = allowed and all(degree + slack >= limit for degree, limit in degrees)
    matched = surely if surely == perhaps else None
    return Verdict(matched, possible, certain, slack, s.predicates[who].attribute)


def judge(s: SubscriptionVector, n: NotificationVector, age: int = 0) -> Verdict | None:
    """Return the verdict on a subscription and a notification; None if an attribute is missing."""
    readings = {reading.attribute: reading for reading in n.readings}
    if s.event != n.event or any(p.attribute not in readings for p in s.predicates):
        return None
    measured = []
    for p in s.predicates:
        reading = readings[p.attribute]
        measured.append(measure_predicate(p, reading.points, reading.wide))
    centres = {}
    for attribute, reading in readings.items():
        middle = (reading.points[1] + reading.points[2]) // 2
        centres[attribute] = middle >> 8 if reading.wide else middle
    return judge_degrees(s, [m[0] for m in measured], [m[1] for m in measured], centres, age)
