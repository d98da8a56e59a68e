"""Fits an ideal membership function to the wire's triple (low, high, gamma) and reports the error.

THEORY. The wire has straight sides, whole codes and 255 slopes. A side of a set is fitted on its
own: a straight line through the ideal at two degrees is the first guess, then every edge and gamma
code near the guess is measured at sampled codes. The triple with the least highest error wins.
`Demand`s come first: where only "is the degree at least t?" matters, a demand fixes the first and
last code for which the answer is yes, and the fit keeps it exactly if any triple can.

Positions are codes of the attribute, 0..255 or 0..65535. Everything here is a pure function of the
ideal, so that a result can be kept as long as the attribute lives (`Attribute.fits`).

EXAMPLE. "high" of a temperature (25 to 50.5 °C in steps of 0.1) rises from 37.5 to 39.5 °C, codes
125 to 145. The guess is edge 145 and a side 20 codes wide: gamma 255 / 20 = 12.75, code 171. The
triple is (145, 255, 171), at most 0.9 % off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from denwatch.protocol.cuts import invert_hedge
from denwatch.protocol.degrees import CRISP, fuzzify, hedge, reach, slope

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


@cache
def _tabulate_side(code: int) -> bytes:
    """Return the degree at every distance from the core, of a side with this gamma."""
    if code == CRISP:
        return b"\xff" + bytes(255)
    gamma = slope(code)
    return bytes([max(0, 255 - (distance * gamma + 128 >> 8)) for distance in range(256)])


def tabulate_triple(triple: Triple) -> bytes:
    """Return the degree of every code of an 8-bit attribute: `fuzzify`, both sides at once."""
    left, right = _tabulate_side(triple.left), _tabulate_side(triple.right)
    core = b"\xff" * (triple.high - triple.low)
    return left[triple.low : 0 : -1] + core + right[: 256 - triple.high]


def find_power(code: int) -> float:
    """Return the power that a wire hedge code amounts to."""
    power = 1.0
    while code:
        power *= (1.0, 2.0, 3.0, 0.5)[code & 3]
        code >>= 2
    return power


_SAMPLES = 24
_TINY = 1e-9


@dataclass(frozen=True)
class Fit:
    """A triple, its highest error against the ideal (0..1), and what was done to get it.

    `hedge` is the hedge code that the wire applies to the triple.
    """

    triple: Triple
    error: float
    hedge: int = 0
    message: str = ""


@dataclass(eq=False)
class IdealSet:
    """An ideal function over the codes of one attribute, which a triple has to follow."""

    evaluate: Callable[[float], float]  # of any position, also between codes or outside the domain
    core: tuple[float, float]
    last: int
    straight: bool  # the sides are straight, so that the first guess is nearly right

    @property
    def wide(self) -> bool:
        """Whether codes have 16 bits."""
        return self.last > 255

    @cached_property
    def degrees(self) -> list[float]:
        """The degree of every code."""
        evaluate = self.evaluate
        return [evaluate(code) for code in range(self.last + 1)]

    @property
    def look_up(self) -> Callable[[int], float]:
        """The degree of a code; tabulated where there are only 256."""
        return self.evaluate if self.wide else self.degrees.__getitem__


def find_cut(ideal: IdealSet, t: float) -> tuple[int, int] | None:
    """Return the first and last code whose ideal degree is at least t, None if there is none.

    By bisection: the ideal rises up to its core and falls after it.
    """
    look_up = ideal.look_up
    top = max(_codes_of_core(ideal.core, ideal.last), key=look_up)
    if look_up(top) < t - _TINY:
        return None
    low, high = 0, top
    while low < high:
        middle = (low + high) // 2
        if look_up(middle) >= t - _TINY:
            high = middle
        else:
            low = middle + 1
    first = low
    low, high = top, ideal.last
    while low < high:
        middle = (low + high + 1) // 2
        if look_up(middle) >= t - _TINY:
            low = middle
        else:
            high = middle - 1
    return first, low


def _codes_of_core(core: tuple[float, float], last: int) -> list[int]:
    """Return the codes that may be the highest: inside the core, or next to it."""
    low = min(max(core[0], 0.0), float(last))
    high = min(max(core[1], 0.0), float(last))
    return sorted({math.ceil(low - _TINY), math.floor(high + _TINY), round(low), round(high)})


class _Side:
    """One side of a set: where it is sampled and what each candidate would give there."""

    def __init__(self, ideal: IdealSet, rising: bool, wire_hedge: int) -> None:
        core, last = ideal.core, ideal.last
        self.ideal = ideal
        self.last = last
        self.wide = ideal.wide
        self.rising = rising
        self.hedge = wire_hedge
        self.slack = 1 if ideal.straight else 4  # how far from the first guess an edge may go
        top = core[0] if rising else core[1]
        self.top = min(max(top, 0.0), float(last))
        # Nothing of this side lies in the domain: any gamma serves.
        self.free = top <= _TINY if rising else top >= last - _TINY
        if not self.free:
            self.edge, self.code = self._guess()
            look_up = ideal.look_up
            self.points = [(x, look_up(x)) for x in self._sample(core)]

    def _guess(self) -> tuple[float, int]:
        """Return the straight line through the ideal at two degrees, as edge and gamma code."""
        upper, lower = (0.85, 0.15) if self.hedge == 0 else (0.7, 0.3)
        near = self._invert(upper)
        far = self._invert(lower)
        width = abs(near - far) / (upper - lower)
        edge = near + (1 - upper) * width * (1 if self.rising else -1)
        code = find_gamma(width, self.wide)
        if code == CRISP and self.wide:  # steeper than any slope: the middle of the side it is
            edge = self._invert(0.5)
        return edge, code

    def _invert(self, t: float) -> float:
        """Return the position, maybe outside the domain, where the side crosses a degree.

        Under a wire hedge it is the ideal before the hedge that the triple itself must follow.
        """
        evaluate, power = self.ideal.evaluate, 1.0 / find_power(self.hedge)
        sign = -1.0 if self.rising else 1.0
        near, far = 0.0, 2.0 * self.last
        for _ in range(40):
            middle = (near + far) / 2
            degree = evaluate(self.top + sign * middle)
            if (math.pow(degree, power) if self.hedge else degree) >= t:
                near = middle
            else:
                far = middle
        return self.top + sign * near

    def _sample(self, core: tuple[float, float]) -> list[int]:
        """Return codes over the whole side, closest near the edge, and a few inside the core."""
        sign = 1 if self.rising else -1  # towards the core
        edge, top = self.edge * sign, self.top * sign
        foot = self._invert(0.003) * sign
        start = math.floor(max(edge, top) + 3)
        end = min(edge - find_width(self.code, self.wide), foot) - 3
        stride = max(1, int(start - end) // _SAMPLES)
        xs = {start - k for k in range(0, int(start - end) + 1, stride)}
        xs |= {start - k for k in range(6)} | {math.floor(edge) + k for k in range(-2, 4)}
        first, last = (0.0, core[1]) if self.rising else (core[0], float(self.last))
        return [x * sign for x in xs if first <= x * sign <= last and 0 <= x * sign <= self.last]

    def measure(self, edge: int, code: int, bound: float = math.inf) -> float:
        """Return the highest error of a candidate at the samples; stop where it passes a bound."""
        worst = 0.0
        table = tabulate_hedge(self.hedge)
        gamma = 0 if code == CRISP else slope(code)
        unit = 65792 if self.wide else 256
        sign = 1 if self.rising else -1
        for x, wanted in self.points:
            distance = (edge - x) * sign
            if distance <= 0:
                degree = 255
            elif gamma:
                degree = 255 - min(255, (distance * gamma + unit // 2) // unit)
            else:
                degree = 0
            error = abs(table[degree] / 255 - wanted)
            if error > worst:
                worst = error
                if worst > bound:
                    break
        return worst

    def keeps(self, edge: int, code: int, demands: Sequence[Demand]) -> int:
        """Return how many demands a candidate keeps on this side, from the first on."""
        for count, demand in enumerate(demands):
            level = invert_hedge(self.hedge, demand.level)
            distance = reach(code, level, self.wide) if level else self.last
            if self.rising:
                if max(edge - distance, 0) != demand.low:
                    return count
            elif min(edge + distance, self.last) != demand.high:
                return count
        return len(demands)

    def list_edges(self, code: int, demands: Sequence[Demand]) -> list[int]:
        """Return the edges worth trying with a gamma code."""
        base = round(self.edge)
        step = 257 if self.wide and self.slack > 1 else 1
        edges = {base + step * k for k in range(-self.slack, self.slack + 1)}
        if demands:
            level = invert_hedge(self.hedge, demands[0].level)
            distance = reach(code, level, self.wide) if level else 0
            edges.add(demands[0].low + distance if self.rising else demands[0].high - distance)
        return [edge for edge in edges if 0 <= edge <= self.last]

    def choose(
        self, code: int, demands: Sequence[Demand], floor: int = 0, ceiling: int | None = None
    ) -> tuple[int, float, int]:
        """Return (demands not kept, error, edge) of the best edge for a gamma code."""
        best: tuple[int, float, int] | None = None
        ceiling = self.last if ceiling is None else ceiling
        for edge in self.list_edges(code, demands):
            if floor <= edge <= ceiling:
                missed = len(demands) - self.keeps(edge, code, demands)
                if best is not None and missed > best[0]:
                    continue
                bound = math.inf if best is None or missed < best[0] else best[1]
                found = (missed, self.measure(edge, code, bound), edge)
                if best is None or found < best:
                    best = found
        if best is None:
            edge = min(max(round(self.edge), floor), ceiling)
            best = len(demands) - self.keeps(edge, code, demands), self.measure(edge, code), edge
        return best


def fit_triple(
    ideal: IdealSet, wire_hedge: int = 0, demands: Sequence[Demand] = (), symmetric: bool = False
) -> Fit:
    """Return the triple that follows the ideal best, under a hedge that the wire applies.

    Demands come first, in their order; then the error. With `symmetric` both sides get one gamma
    whatever they look like; else they do if they are alike.
    """
    left = _Side(ideal, True, wire_hedge)
    right = _Side(ideal, False, wire_hedge)
    triple = Triple(0, ideal.last)
    # Most demands are met next to the first guess; only the others pay for a wide search.
    for spread in (2 if ideal.straight else 8, 40):
        missed, triple = _search_triple(left, right, demands, spread, symmetric)
        if not missed:
            break
    return Fit(triple, measure_error(ideal, triple, wire_hedge), wire_hedge)


def _search_triple(
    left: _Side, right: _Side, demands: Sequence[Demand], spread: int, symmetric: bool
) -> tuple[int, Triple]:
    """Return how many demands are missed, and the best triple with codes near the guess."""
    last = left.last
    if left.free and right.free:
        return 0, Triple(0, last)
    if left.free or right.free:
        side = right if left.free else left
        missed, edge, code = _search(side, demands, _codes_around([side], spread))
        low, high = (0, edge) if left.free else (edge, last)
        return missed, Triple(low, high, code, code)
    if symmetric or abs(left.code - right.code) <= 1:
        return _search_both(left, right, demands, _codes_around([left, right], spread))
    missed, low, code = _search(left, demands, _codes_around([left], spread))
    other, high, second = _search(right, demands, _codes_around([right], spread), low)
    return missed + other, Triple(low, high, code, second)


def measure_error(ideal: IdealSet, triple: Triple, wire_hedge: int = 0) -> float:
    """Return the highest error of a triple over all values."""
    hedged = tabulate_hedge(wire_hedge)
    if not ideal.wide:
        pairs = zip(tabulate_triple(triple), ideal.degrees, strict=True)
        return max([abs(hedged[degree] / 255 - wanted) for degree, wanted in pairs])
    worst = 0.0
    low, high, left, right = triple.low, triple.high, triple.left, triple.right
    for x in _list_steps(triple, ideal.last):
        degree = hedged[fuzzify(x, low, high, left, right, True)]
        worst = max(worst, abs(degree / 255 - ideal.evaluate(x)))
    return worst


def _list_steps(triple: Triple, last: int) -> Iterator[int]:
    """Yield the codes of a wide attribute on both sides of every step of the degree.

    Between two of them the degree stays and the ideal only rises or only falls, so that the highest
    error is at one of them, or at an end of the domain.
    """
    yield from (0, last)
    for level in range(1, 256):
        start = triple.low - reach(triple.left, level, wide=1)
        end = triple.high + reach(triple.right, level, wide=1)
        yield from (x for x in (start - 1, start, end, end + 1) if 0 <= x <= last)


def _codes_around(sides: list[_Side], spread: int) -> range:
    codes = [side.code for side in sides]
    if CRISP in codes and sides[0].wide:
        return range(CRISP, CRISP + 1)
    return range(max(0, min(codes) - spread), min(CRISP, max(codes) + spread) + 1)


def _search(
    side: _Side, demands: Sequence[Demand], codes: range, floor: int = 0
) -> tuple[int, int, int]:
    """Return (demands missed, edge, gamma code) of the best candidate for one side."""
    (missed, _, edge), code = min((side.choose(code, demands, floor), code) for code in codes)
    return missed, edge, code


def _search_both(
    left: _Side, right: _Side, demands: Sequence[Demand], codes: range
) -> tuple[int, Triple]:
    """Return the demands missed and the best triple with one gamma for both sides."""
    best: tuple[int, float, Triple] | None = None
    for code in codes:
        missed, error, low = left.choose(code, demands)
        missed_right, error_right, high = right.choose(code, demands, floor=low)
        rank = missed + missed_right, max(error, error_right)
        if best is None or rank < best[:2]:
            best = (*rank, Triple(low, high, code, code))
    assert best is not None  # there is always a code to try
    return best[0], best[2]
