"""Ideal membership functions, in real numbers: what a term means before it is fitted to the wire.

The kinds of the core and their points are described at `client.syntax.Shape`; a plug-in's kind
brings its own function. Every kind is one hump: rising up to its core, falling after it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from denwatch.client.errors import LanguageError
from denwatch.client.plugins import MembershipFunction
from denwatch.client.vocabulary.fitting import (
    Demand,
    Fit,
    Ideal,
    Triple,
    find_cut,
    fit_triple,
    measure_error,
)

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


# Attributes, terms and events: what a vocabulary says about one measurable thing.
#
# The only place that knows how a value becomes a code on the wire and back. A number lies between
# the ends of its domain; a text is the index of its symbol; dates and times are numbers of days or
# seconds. Codes are 0..255, or 0..65535 for `wide` attributes.

_REMEMBERED = 1024  # functions and fits of one attribute


class ValueKind(StrEnum):
    """What the values of an attribute are."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "date"  # days
    TIME = "time"  # seconds of the day
    DATETIME = "datetime"  # seconds, UTC


_MOMENT_FORMS = {
    ValueKind.DATE: "a date such as 2026-11-16",
    ValueKind.TIME: "a time such as 14:30",
    ValueKind.DATETIME: "a date and time such as 2026-11-16T14:30",
}


def parse_moment(text: str, kind: ValueKind) -> float:
    """Return a date as days, a time of day as seconds, or both as seconds (UTC where not said)."""
    try:
        if kind is ValueKind.DATE:
            return float(datetime.date.fromisoformat(text).toordinal())
        if kind is ValueKind.TIME:
            if text in ("24:00", "24:00:00"):
                return 86400.0
            t = datetime.time.fromisoformat(text)
            return t.hour * 3600.0 + t.minute * 60.0 + t.second + t.microsecond / 1e6
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except ValueError:
        raise LanguageError(f'"{text}" is not {_MOMENT_FORMS[kind]}') from None


def format_moment(value: float, kind: ValueKind) -> str:
    """Return the ISO 8601 text of a date or time, to the second, "14:30" for whole minutes."""
    if kind is ValueKind.DATE:
        return datetime.date.fromordinal(round(value)).isoformat()
    seconds = round(value)
    if kind is ValueKind.TIME and seconds >= 86400:
        return "24:00"
    start = datetime.datetime.min if kind is ValueKind.TIME else datetime.datetime(1970, 1, 1)
    moment = start + datetime.timedelta(seconds=seconds)
    precision = "seconds" if seconds % 60 else "minutes"
    if kind is ValueKind.TIME:
        return moment.time().isoformat(precision)
    return moment.isoformat(timespec=precision)


@dataclass(frozen=True)
class VocabularyTerm:
    """A fuzzy term: its ideal function, and what it was derived from."""

    name: str
    membership: Membership
    hedges: tuple[str, ...] = ()  # outermost first, on `base`
    base: str | None = None


@dataclass(frozen=True)
class Attribute:
    """One attribute of an event."""

    name: str
    event: str
    bit: int
    kind: ValueKind
    low: float
    high: float
    unit: str | None = None
    wide: bool = False
    symbols: tuple[str, ...] = ()
    ordered: bool = False  # symbols have an order, so that > and < mean something
    about: float = 0.0  # the spread of "about" where none is given
    period: float | None = None  # circular quantities: where they begin again
    terms: Mapping[str, VocabularyTerm] = field(default_factory=dict, repr=False)
    description: str = ""

    @property
    def path(self) -> str:
        """The name with its event, as the thesaurus writes it."""
        return f"{self.event}.{self.name}"

    @property
    def last(self) -> int:
        """The highest code."""
        return 65535 if self.wide else 255

    @cached_property
    def step(self) -> float:
        """The difference between two codes that follow each other."""
        return 1.0 if self.kind is ValueKind.TEXT else (self.high - self.low) / self.last

    @cached_property
    def _places(self) -> dict[Membership, tuple[Ideal, tuple[float, float]]]:
        return {}

    @cached_property
    def _fits(self) -> dict[tuple[object, ...], Fit]:
        return {}

    def to_position(self, value: float) -> float:
        """Return where a value lies among the codes, as a real number."""
        return (value - self.low) / self.step

    def to_value(self, code: float) -> float:
        """Return the value that a code stands for."""
        return self.low + code * self.step

    def to_code(self, value: float) -> int:
        """Return the nearest code of a measured value; beyond the domain its end."""
        return min(max(math.floor(self.to_position(value) + 0.5), 0), self.last)

    def place(self, membership: Membership) -> tuple[Ideal, tuple[float, float]]:
        """Return an ideal function over codes, and its core. Degrees of whole codes are kept."""
        placed = self._places.get(membership)
        if placed is None:
            if len(self._places) >= _REMEMBERED:
                self._places.clear()
            low, high = membership.core
            core = self.to_position(low), self.to_position(high)
            known: dict[float, float] = {}
            start, step = self.low, self.step

            def ideal(code: float) -> float:
                degree = known.get(code)
                if degree is None:
                    degree = known[code] = membership.evaluate(start + code * step)
                return degree

            placed = self._places[membership] = ideal, core
        return placed

    def fit(
        self,
        membership: Membership,
        wire_hedge: int = 0,
        demands: tuple[Demand, ...] = (),
        symmetric: bool = False,
    ) -> Fit:
        """Return the triple that follows an ideal function best; see `fit_triple`."""
        key = membership, wire_hedge, demands, symmetric
        fit = self._fits.get(key)
        if fit is None:
            if len(self._fits) >= _REMEMBERED:
                self._fits.clear()
            ideal, core = self.place(membership)
            straight = membership.is_linear
            fit = fit_triple(ideal, core, self.last, wire_hedge, demands, symmetric, straight)
            self._fits[key] = fit
        return fit

    def measure(self, membership: Membership, triple: Triple, wire_hedge: int = 0) -> float:
        """Return the highest error of a triple under a hedge, in degrees (0..1)."""
        return measure_error(self.place(membership)[0], triple, self.last, wire_hedge)

    def fit_term(self, term: VocabularyTerm) -> Fit:
        """Return the triple of a term and its error; fitted when first asked for."""
        return self.fit(term.membership)

    def find_cut(self, membership: Membership, t: float) -> tuple[int, int] | None:
        """Return the first and last code whose ideal degree is at least t."""
        ideal, core = self.place(membership)
        return find_cut(ideal, core, self.last, t)

    def check_overlap(self, membership: Membership) -> None:
        """Raise LanguageError if the core has nothing in common with the domain."""
        low, high = membership.core
        if low > self.high + self.step / 2 or high < self.low - self.step / 2:
            raise LanguageError(
                f"the core of this {membership.kind} lies outside the domain of {self.name}, "
                f"{self.describe_domain()}"
            )

    def describe_domain(self) -> str:
        """Return the domain as people read it: "30 to 45 °C"."""
        if self.kind is ValueKind.TEXT:
            return ", ".join(self.symbols)
        if self.kind is not ValueKind.NUMBER:
            return f"{format_moment(self.low, self.kind)} to {format_moment(self.high, self.kind)}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.low:g} to {self.high:g}{unit}"


@dataclass(frozen=True)
class EventType:
    """One kind of event: its number on the wire and its attributes by name."""

    name: str
    number: int
    attributes: Mapping[str, Attribute] = field(repr=False)
    description: str = ""

    def find_bit(self, bit: int) -> Attribute | None:
        """Return the attribute of a feature bit."""
        return next((a for a in self.attributes.values() if a.bit == bit), None)
