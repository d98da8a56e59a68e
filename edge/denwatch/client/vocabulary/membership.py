"""Ideal membership functions, in real numbers: what a term means before it is fitted to the wire.

The kinds of the core and their points are described at `client.syntax.Shape`; a plug-in's kind
brings its own function. Every kind is one hump: rising up to its core, falling after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from denwatch.client.errors import LanguageError
from denwatch.client.plugins import MembershipFunction

# Points of each kind; `fuzzifier` is the wire's own triple, see `denwatch.client.compiler`.
KINDS = {
    "trapezoid": 4,
    "triangle": 3,
    "falling": 2,
    "rising": 2,
    "bell": 3,
    "gaussian": 2,
}
LINEAR = ("trapezoid", "triangle", "falling", "rising")


@dataclass(frozen=True)
class Membership:
    """A function of the core or of a plug-in, raised to a power by hedges."""

    kind: str
    points: tuple[float, ...]
    power: float = 1.0
    function: MembershipFunction | None = None

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.points)):
            raise LanguageError(f"{self.kind}: points must be finite numbers")
        if self.function is not None:
            self.function.find_core(self.points)
            return
        wanted = KINDS.get(self.kind)
        if wanted is None:
            raise LanguageError(f'unknown membership function "{self.kind}"')
        if len(self.points) != wanted:
            raise LanguageError(f"{self.kind} takes {wanted} points, not {len(self.points)}")
        if self.kind in LINEAR:
            if any(a > b for a, b in zip(self.points, self.points[1:], strict=False)):
                raise LanguageError(f"{self.kind}: points must not fall")
        elif not all(point > 0 for point in self.points[1:]):
            raise LanguageError(f"{self.kind}: the parameters after the centre must be above 0")

    @property
    def is_linear(self) -> bool:
        """Whether its sides are straight, as the wire's are."""
        return self.function is None and self.kind in LINEAR and self.power == 1.0

    @property
    def core(self) -> tuple[float, float]:
        """Where the degree is highest."""
        points = self.points
        if self.function is not None:
            return self.function.find_core(points)
        if self.kind == "trapezoid":
            return points[1], points[2]
        if self.kind == "triangle":
            return points[1], points[1]
        if self.kind == "falling":
            return -math.inf, points[0]
        if self.kind == "rising":
            return points[1], math.inf
        return points[0], points[0]

    def hedged(self, power: float) -> Membership:
        """Return the function under hedges, as the power that they amount to."""
        return Membership(self.kind, self.points, self.power * power, self.function)

    def evaluate(self, x: float) -> float:
        """Return the degree (0..1) of x."""
        degree = self._evaluate_plain(x)
        if self.power == 1.0:
            return degree
        return math.pow(degree, self.power)

    def _evaluate_plain(self, x: float) -> float:
        points = self.points
        if self.function is not None:
            return min(1.0, max(0.0, self.function.evaluate(x, points)))
        if self.kind == "bell":
            centre, width, slope = points
            ratio = abs((x - centre) / width)
            exponent = 2 * slope * math.log(ratio) if ratio else -math.inf
            return 1.0 / (1.0 + math.exp(exponent)) if exponent < 700 else 0.0
        if self.kind == "gaussian":
            return math.exp(-0.5 * ((x - points[0]) / points[1]) ** 2)
        low, high = self.core
        if low <= x <= high:
            return 1.0
        if x < low:
            return _ramp(x, points[0], low)
        return _ramp(-x, -points[-1], -high)


def _ramp(x: float, foot: float, top: float) -> float:
    return (x - foot) / (top - foot) if foot < x else 0.0
