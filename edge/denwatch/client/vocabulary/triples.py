"""The wire's triple (low, high, gamma) and its arithmetic: slopes, widths, hedges, demands on it.

Positions are codes of the attribute, 0..255 or 0..65535. Nothing here knows ideal functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from denwatch.protocol.degrees import CRISP, hedge, slope

_GAMMAS = [slope(code) / 256 for code in range(CRISP)]


@dataclass(frozen=True)
class Triple:
    """Core [low, high] and the two gamma codes, as the wire carries them."""

    low: int
    high: int
    left: int = CRISP
    right: int = CRISP

    @property
    def is_symmetric(self) -> bool:
        """Whether one gamma does for both sides."""
        return self.left == self.right


@dataclass(frozen=True)
class Demand:
    """The values whose hedged degree must be at least `level`: low..high, nothing else."""

    level: int
    low: int
    high: int


def find_gamma(width: float, wide: bool) -> int:
    """Return the gamma code whose side is nearest to a width in codes, by ratio; CRISP for none."""
    if width <= 1.0:
        return CRISP
    gamma = 255 * (257 if wide else 1) / width
    if gamma >= _GAMMAS[-1]:
        # Between the steepest slope and none: what the value next to the core gets decides.
        return CRISP - 1 if width / (257 if wide else 1) > 1.6 else CRISP
    code = round(254 * math.log(max(gamma, 0.57) / 0.57, 100))
    near = range(max(0, code - 1), min(254, code + 1) + 1)
    return min(near, key=lambda c: abs(math.log(_GAMMAS[c] / gamma)))


def find_width(code: int, wide: bool) -> float:
    """Return how many codes a side of this gamma takes from full to nothing."""
    if code == CRISP:
        return 0.0
    return 255 * (257 if wide else 1) / _GAMMAS[code]


@cache
def tabulate_hedge(code: int) -> bytes:
    """Return the wire's hedge of every degree."""
    return bytes(hedge(degree, code) for degree in range(256))


def find_power(code: int) -> float:
    """Return the power that a wire hedge code amounts to."""
    power = 1.0
    while code:
        power *= (1.0, 2.0, 3.0, 0.5)[code & 3]
        code >>= 2
    return power
