"""The data model of A-ToPSS: trapezoids in floats, constraints, interests, publications.

A set is LR with straight sides, given by its four points m1 <= m2 <= m3 <= m4: support [m1, m4],
core [m2, m3]. Crisp sets and values are trapezoids without slopes, and closed: a bound belongs to
its set. Only this file knows the closed forms of possibility and necessity; misprints in the paper
are put right (N = inf max(mu, 1 - pi); a predicate is evaluated where m4 >= n1 and m1 <= n4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import Any, NamedTuple, TypeVar, cast

from denwatch.protocol.degrees import CRISP, slope
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from numba import njit

Trapezoid = tuple[float, float, float, float]
Publication = Mapping[int, Trapezoid]  # by attribute

MAX_CONSTRAINTS = 255  # counted in a byte

F = TypeVar("F", bound=Callable[..., Any])


class Constraint(NamedTuple):
    """One predicate: "attribute is set", the least it must reach, and its weight."""

    attribute: int
    points: Trapezoid
    possible: float = 0.0  # theta of possibility
    certain: float = 0.0  # theta of necessity
    weight: float = 1.0


class Interest(NamedTuple):
    """One subscription: constraints that must all hold, and what their aggregate must reach."""

    constraints: tuple[Constraint, ...]
    possible: float = 0.0  # omega of possibility
    certain: float = 0.0  # omega of necessity


def compile_kernel(function: F) -> F:
    """Compile a function to machine code, keeping its type for the checker."""
    return cast(F, njit(cache=True)(function))


@compile_kernel
def rate_possible(
    m1: float, m2: float, m3: float, m4: float, n1: float, n2: float, n3: float, n4: float
) -> float:
    """Return sup min(mu, pi) of two trapezoids."""
    if m3 < n2:  # mu stands left of pi: its falling side meets pi's rising one
        return (m4 - n1) / ((m4 - m3) + (n2 - n1)) if m4 > n1 else 0.0
    if n3 < m2:
        return (n4 - m1) / ((n4 - n3) + (m2 - m1)) if n4 > m1 else 0.0
    return 1.0


@compile_kernel
def rate_certain(
    m1: float, m2: float, m3: float, m4: float, n1: float, n2: float, n3: float, n4: float
) -> float:
    """Return inf max(mu, 1 - pi): one minus how possible the outside of mu is, on either side."""
    right = 0.0
    if n4 > m3:
        right = 1.0 if m4 <= n3 else (n4 - m3) / ((m4 - m3) + (n4 - n3))
    left = 0.0
    if n1 < m2:
        left = 1.0 if m1 >= n2 else (m2 - n1) / ((m2 - m1) + (n2 - n1))
    return 1.0 - max(left, right)


def check_trapezoid(points: Trapezoid, what: str) -> None:
    """Raise ValueError unless the points rise: with a core, so that possible >= certain.

    A core may be unbounded, as in "at least 18"; a slope may not.
    """
    m1, m2, m3, m4 = points
    if not m1 <= m2 <= m3 <= m4:
        raise ValueError(f"{what}: {points} is not a trapezoid with a core")
    if (isinf(m1) and m1 < m2) or (isinf(m4) and m3 < m4):
        raise ValueError(f"{what}: {points} has a side without end")


def check_interest(interest: Interest) -> None:
    """Raise ValueError for an interest that no engine could hold."""
    if not 1 <= len(interest.constraints) <= MAX_CONSTRAINTS:
        count = len(interest.constraints)
        raise ValueError(f"{count} constraints: an interest has 1 to {MAX_CONSTRAINTS}")
    for c in interest.constraints:
        check_trapezoid(c.points, f"attribute {c.attribute}")
        if not c.weight > 0:
            raise ValueError(f"attribute {c.attribute}: weight {c.weight} is not positive")
    thresholds = [interest.possible, interest.certain]
    for c in interest.constraints:
        thresholds += [c.possible, c.certain]
    if not all(0 <= threshold <= 1 for threshold in thresholds):
        raise ValueError(f"a threshold is outside 0..1: {interest}")


def translate_subscription(s: SubscriptionVector) -> Interest:
    """Return a subscription vector as an interest over a domain of 0..1.

    Its aggregator is the engine's affair. ValueError for what has no straight sides or no place in
    the model: hedges, negations, patterns, freshness.
    """
    if s.pattern or s.recent or s.consequents or any(p.negated or p.hedge for p in s.predicates):
        raise ValueError("A-ToPSS has no hedge, negation, pattern, freshness or rules here")
    constraints = [
        Constraint(
            s.event << 4 | p.attribute,
            translate_predicate(p),
            p.possible / 255,
            p.certain / 255,
            float(p.weight),
        )
        for p in s.predicates
    ]
    return Interest(tuple(constraints), s.threshold / 255, s.certain / 255)


def translate_predicate(p: Predicate) -> Trapezoid:
    """Return the real trapezoid of a triple; its feet may lie outside the domain."""

    def spread(code: int) -> float:
        return 0.0 if code == CRISP else 256 / slope(code)

    low, high = p.low / p.last, p.high / p.last
    return low - spread(p.left), low, high, high + spread(p.right)


def translate_notification(n: NotificationVector) -> dict[int, Trapezoid]:
    """Return a notification vector as a publication over a domain of 0..1."""

    def scale(reading: Reading) -> Trapezoid:
        last = 65535 if reading.wide else 255
        a, b, c, d = reading.points
        return a / last, b / last, c / last, d / last

    return {n.event << 4 | reading.attribute: scale(reading) for reading in n.readings}
