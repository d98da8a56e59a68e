"""Attributes, their terms and events: what a vocabulary defines for one measurable thing.

A term is an ideal `Membership` function in real numbers. An `Attribute` places it among its codes
(0..255, or 0..65535 for `wide` attributes) and fits it to the wire's triple. Only this file knows
how a value becomes a code and back: a number lies between the ends of its domain, a text is the
index of its symbol, dates and times are numbers of days or seconds. The symbols of a graded text
(ordered, with terms) are spread over the codes, so that a set has room for degrees between them.

A set is fitted once for each vocabulary object, when a sentence first needs it, and kept in
`Attribute.fits`. Fitting a whole vocabulary while it is loaded would cost `denwatch compile` all of
its terms for the two or three that a sentence names. An attribute never changes, and a vocabulary
with another content hash has other attributes, so a kept fit cannot be stale.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from denwatch.client.errors import LanguageError
from denwatch.client.plugins import MembershipFunction
from denwatch.client.vocabulary import fitting

# Points of each kind; `fuzzifier` is the wire's own triple, see `denwatch.client.compiler`.
KINDS = {"trapezoid": 4, "triangle": 3, "falling": 2, "rising": 2, "bell": 3, "gaussian": 2}
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
                raise LanguageError(f"{self.kind}: points must be in rising order")
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
        if self.kind in ("trapezoid", "triangle"):
            return points[1], points[-2]
        low = {"falling": -math.inf, "rising": points[1]}.get(self.kind, points[0])
        return low, math.inf if self.kind == "rising" else points[0]

    def hedged(self, power: float) -> Membership:
        """Return the function under hedges, as the power that they amount to."""
        if power == 1.0:
            return self
        return Membership(self.kind, self.points, self.power * power, self.function)

    @cached_property
    def evaluate(self) -> Callable[[float], float]:
        """The function itself: x to its degree (0..1)."""
        return self.build_function()

    def build_function(self, start: float = 0.0, step: float = 1.0) -> Callable[[float], float]:
        """Return the function of a code, whose value is start + code * step.

        One closure for each kind, because fitting evaluates it hundreds of times.
        """
        plain, power = self._build_plain(start, step), self.power
        return plain if power == 1.0 else lambda code: math.pow(plain(code), power)

    def _build_plain(self, start: float, step: float) -> Callable[[float], float]:
        points, function = self.points, self.function
        if function is not None:
            return lambda code: min(1.0, max(0.0, function.evaluate(start + code * step, points)))
        if self.kind == "bell":
            centre, width, slope = points
            return lambda code: _evaluate_bell(start + code * step, centre, width, slope)
        if self.kind == "gaussian":
            mean, sigma = points
            return lambda code: math.exp(-0.5 * ((start + code * step - mean) / sigma) ** 2)
        low, high = self.core
        foot, end = points[0], points[-1]

        def evaluate_straight(code: float) -> float:
            x = start + code * step
            if x < low:
                return (x - foot) / (low - foot) if foot < x else 0.0
            if x > high:
                return (end - x) / (end - high) if x < end else 0.0
            return 1.0

        return evaluate_straight


def _evaluate_bell(x: float, centre: float, width: float, slope: float) -> float:
    ratio = abs((x - centre) / width)
    exponent = 2 * slope * math.log(ratio) if ratio else -math.inf
    return 1.0 / (1.0 + math.exp(exponent)) if exponent < 700 else 0.0


_REMEMBERED = 1024  # fits of one attribute; terms are few, but "about 37.2" can be anything


def fold_name(text: str) -> str:
    """Return a name as it is compared: case, blanks and hyphens make no difference."""
    folded = unicodedata.normalize("NFC", text).casefold().strip()
    return "_".join(folded.replace("-", " ").replace("_", " ").split())


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

    @cached_property
    def path(self) -> str:
        """The name with its event, as the thesaurus writes it."""
        return f"{self.event}.{self.name}"

    @cached_property
    def suffix(self) -> str:
        """What follows a number: " °C"; "" without a unit."""
        return f" {self.unit}" if self.unit else ""

    @cached_property
    def last(self) -> int:
        """The highest code."""
        return 65535 if self.wide else 255

    @cached_property
    def is_graded(self) -> bool:
        """Whether it is a text with terms: its values are the places of its symbols, 0, 1, 2."""
        return self.kind is ValueKind.TEXT and bool(self.terms)

    @cached_property
    def step(self) -> float:
        """The difference between two codes that follow each other."""
        is_dense = self.kind is ValueKind.TEXT and not self.is_graded
        return 1.0 if is_dense else (self.high - self.low) / self.last

    @cached_property
    def symbol_codes(self) -> tuple[int, ...]:
        """The codes of a text's symbols, rising: 0, 1, 2; of a graded text from 0 to the last."""
        return tuple(self.to_code(float(place)) for place in range(len(self.symbols)))

    @cached_property
    def codes_by_word(self) -> dict[str, int]:
        """The codes of a text's symbols, by the symbols as names are compared."""
        words = map(fold_name, self.symbols)
        return dict(zip(words, self.symbol_codes, strict=True))

    def name_code(self, code: int) -> str | None:
        """Return the symbol of a code, the nearest one of a graded text; None if there is none."""
        place = math.floor(self.to_value(code) + 0.5)
        return self.symbols[place] if place < len(self.symbols) else None

    @cached_property
    def _ideals(self) -> dict[Membership, fitting.IdealSet]:
        return {}

    @cached_property
    def fits(self) -> dict[tuple[object, ...], fitting.Fit]:
        """What has been fitted so far, by everything that it depends on; see `remember_fit`."""
        return {}

    def remember_fit(
        self, key: tuple[object, ...], compute: Callable[[], fitting.Fit]
    ) -> fitting.Fit:
        """Return the fit of a key, computed when it is first asked for."""
        fit = self.fits.get(key)
        if fit is None:
            if len(self.fits) >= _REMEMBERED:
                self.fits.clear()
                self._ideals.clear()
            fit = self.fits[key] = compute()
        return fit

    def to_position(self, value: float) -> float:
        """Return where a value lies among the codes, as a real number."""
        return (value - self.low) / self.step

    def to_value(self, code: float) -> float:
        """Return the value that a code stands for."""
        return self.low + code * self.step

    def to_code(self, value: float) -> int:
        """Return the nearest code of a measured value; beyond the domain its end."""
        return min(max(math.floor(self.to_position(value) + 0.5), 0), self.last)

    def place(self, membership: Membership) -> fitting.IdealSet:
        """Return an ideal function over the codes of this attribute."""
        ideal = self._ideals.get(membership)
        if ideal is None:
            low, high = membership.core
            core = self.to_position(low), self.to_position(high)
            function = membership.build_function(self.low, self.step)
            ideal = fitting.IdealSet(function, core, self.last, membership.is_linear)
            self._ideals[membership] = ideal
        return ideal

    def fit(
        self,
        membership: Membership,
        wire_hedge: int = 0,
        demands: tuple[fitting.Demand, ...] = (),
        symmetric: bool = False,
    ) -> fitting.Fit:
        """Return the triple that follows an ideal function best; see `fit_triple`."""
        return self.remember_fit(
            (membership, wire_hedge, demands, symmetric),
            lambda: fitting.fit_triple(self.place(membership), wire_hedge, demands, symmetric),
        )

    def measure(self, membership: Membership, triple: fitting.Triple, wire_hedge: int = 0) -> float:
        """Return the highest error of a triple under a hedge, in degrees (0..1)."""
        return fitting.measure_error(self.place(membership), triple, wire_hedge)

    def fit_term(self, term: VocabularyTerm) -> fitting.Fit:
        """Return the triple of a term and its error."""
        return self.fit(term.membership)

    def find_cut(self, membership: Membership, t: float) -> tuple[int, int] | None:
        """Return the first and last code whose ideal degree is at least t."""
        return fitting.find_cut(self.place(membership), t)

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
        return f"{self.low:g} to {self.high:g}{self.suffix}"


@dataclass(frozen=True)
class EventType:
    """One kind of event: its number on the wire and its attributes by name."""

    name: str
    number: int
    attributes: Mapping[str, Attribute] = field(repr=False)
    description: str = ""

    @cached_property
    def by_bit(self) -> dict[int, Attribute]:
        """The attributes by their feature bits."""
        return {attribute.bit: attribute for attribute in self.attributes.values()}

    def find_bit(self, bit: int) -> Attribute | None:
        """Return the attribute of a feature bit."""
        return self.by_bit.get(bit)
