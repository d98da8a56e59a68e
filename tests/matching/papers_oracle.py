"""A-ToPSS and the break-down in plain floats, written from the formulas; no code of the engines.

Possibility and necessity are found by bisection over cuts, not by the closed forms that the engine
uses: Pi >= t iff the closed t-cuts meet; N >= t iff wherever pi exceeds 1 - t, mu reaches t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Points = tuple[float, float, float, float]


def cut_at(points: Points, t: float) -> tuple[float, float]:
    """Return the values that reach the level t."""
    a, b, c, d = points
    return a + t * (b - a), d - t * (d - c)


def bisect_level(holds: Callable[[float], bool]) -> float:
    """Return the highest level in 0..1 at which something that holds below holds."""
    low, high = 0.0, 1.0
    if holds(1.0):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def possible(mu: Points, pi: Points) -> float:
    """Return sup min(mu, pi)."""

    def holds(t: float) -> bool:
        (a, b), (c, d) = cut_at(mu, t), cut_at(pi, t)
        return a <= d and c <= b

    return bisect_level(holds)


def certain(mu: Points, pi: Points) -> float:
    """Return inf max(mu, 1 - pi)."""

    def holds(t: float) -> bool:
        # At the feet the cut of pi above 0 is open; its closure is what the infimum sees.
        (a, b), (c, d) = cut_at(mu, t), cut_at(pi, 1 - t)
        return a <= c and d <= b

    return bisect_level(holds)


def aggregate(kind: str, degrees: Sequence[float], weights: Sequence[float]) -> float:
    """Return several degrees as one."""
    if kind == "min":
        return min(degrees)
    if kind == "max":
        return max(degrees)
    if kind == "mean":
        weights = [1.0] * len(degrees)
    return sum(w * d for w, d in zip(weights, degrees, strict=True)) / sum(weights)


def rate_interest(
    interest: Any, publication: Mapping[int, Points], kind: str
) -> tuple[bool, float, float, float] | None:
    """Return (matches, possible, certain, margin), or None where an attribute is missing.

    The margin is how near a threshold came to being decided otherwise; below a few 1e-7 the single
    precision of the paper's vectors may decide either way.
    """
    rated = []
    for c in dict.fromkeys(interest.constraints):
        if c.attribute not in publication:
            return None
        pi = publication[c.attribute]
        rated.append((c, possible(c.points, pi), certain(c.points, pi)))
    weights = [c.weight for c, _, _ in rated]
    high = aggregate(kind, [p for _, p, _ in rated], weights)
    low = aggregate(kind, [n for _, _, n in rated], weights)
    gaps = [high - interest.possible, low - interest.certain]
    for c, p, n in rated:
        gaps += [p - c.possible, n - c.certain]
    matches = all(gap >= 0 for gap in gaps) and all(p > 0 for _, p, _ in rated)
    limits = [gap for gap in gaps if gap != 0] + [p for _, p, _ in rated if p]
    return matches, high, low, min((abs(gap) for gap in limits), default=1.0)


def mean_of_pairs(degrees: Sequence[float], join: Callable[[float, float], float]) -> float:
    """Return the mean of the two-dimensional degrees of all pairs."""
    pairs = [join(a, b) for a, b in combinations(degrees, 2)]
    return sum(pairs) / len(pairs)


def fuzzy_mean(
    degrees: Sequence[float], values: Sequence[float], rules: Sequence[Sequence[float]]
) -> float:
    """Return the Takagi-Sugeno answer of rules (degrees 0..255, slopes in 1/64 a step)."""
    top = bottom = 0.0
    for (i, j), rule in zip(combinations(range(len(degrees)), 2), rules, strict=True):
        share = min(degrees[i], degrees[j])
        result = rule[0]
        if len(rule) == 3:
            result += (rule[1] * values[i] + rule[2] * values[j]) / 64
        top += share * min(255.0, max(0.0, result))
        bottom += share
    return top / bottom if bottom else 0.0
