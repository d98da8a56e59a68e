"""Writes one predicate of a vector as a constraint, and numbers as people write them.

`Wording` searches for the simplest constraint that compiles to the same triple: terms first, with
the hedges that the wire names or that were fitted away; then "about"; then functions with short
numbers; at last the triple itself, which can describe everything. `shorten` finds the number with
the fewest digits that still means the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from denwatch.client import syntax
from denwatch.client.compiler import fit, settings
from denwatch.client.compiler.constraints import ConstraintReader, CrispSet
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, Fit, Triple, ValueKind, format_moment
from denwatch.client.vocabulary.fitting import find_gamma, find_width
from denwatch.client.vocabulary.values import write_place
from denwatch.protocol import vectors
from denwatch.protocol.degrees import CRISP, EXTREMELY, VERY
from denwatch.protocol.timecode import decode_duration


def shorten(
    values: tuple[float, ...], means_the_same: Callable[[tuple[float, ...]], bool]
) -> tuple[float, ...] | None:
    """Return the numbers with the fewest digits that pass, None if none do."""
    previous = None
    for digits in range(1, 18):
        rounded = tuple(float(f"{value:.{digits}g}") for value in values)
        with suppress(LanguageError):  # rounded out of the domain, or out of order
            if rounded != previous and means_the_same(rounded):
                return rounded
        previous = rounded
    return None


def write_threshold(code: int) -> syntax.Scalar:
    """Return the shortest threshold that is encoded so: rounded down, as encoding rounds up."""
    for digits in range(1, 17):
        scale = 10**digits
        value = math.floor(code * scale / 255) / scale
        if settings.encode_threshold(syntax.Scalar(value), "threshold") == code:
            return syntax.Scalar(value)
    return syntax.Scalar(code / 255)


def write_duration(code: int) -> syntax.Quantity:
    """Return the duration of a code in the largest unit that divides it."""
    seconds = decode_duration(code)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return syntax.Quantity(float(seconds // size), unit)
    return syntax.Quantity(float(seconds), "s")


def write_rule(
    first: int, second: int, coefficients: tuple[int, ...], pair: tuple[Attribute, Attribute]
) -> syntax.SugenoRule:
    """Return the rule of a consequent, with the shortest numbers that are encoded so."""
    if len(coefficients) == 1:
        found = shorten((coefficients[0] / 255,), lambda n: round(255 * n[0]) == coefficients[0])
        assert found is not None  # the full number is encoded so
        return syntax.SugenoRule(first, second, syntax.Scalar(found[0]))
    constant = coefficients[0] / 255
    slopes = []
    for code, attribute in zip(coefficients[1:], pair, strict=True):
        slope = code / (settings.SLOPE_SCALE * (attribute.high - attribute.low)) if code else 0.0
        constant -= slope * attribute.low
        slopes.append(slope)

    def build(numbers: tuple[float, ...]) -> syntax.SugenoRule:
        c, a, b = map(syntax.Scalar, numbers)
        return syntax.SugenoRule(first, second, c, (a, b))

    def means_the_same(numbers: tuple[float, ...]) -> bool:
        rule = build(numbers)
        return settings.encode_linear(rule, rule.slopes, pair, []) == coefficients

    numbers = (constant, slopes[0], slopes[1])
    return build(shorten(numbers, means_the_same) or numbers)


# One predicate of a vector back to a constraint: the simplest that compiles to the same triple.
#
# Terms first, with the hedges that the wire names or that were fitted away; then "about", plain
# functions with short numbers, and at last the triple itself, which can say everything.

_HEDGES = {VERY: syntax.Hedge.VERY, EXTREMELY: syntax.Hedge.EXTREMELY, 3: syntax.Hedge.MORE_OR_LESS}
_FITTED_AWAY: tuple[tuple[syntax.Hedge, ...], ...] = (
    (syntax.Hedge.VERY,),
    (syntax.Hedge.EXTREMELY,),
    (syntax.Hedge.MORE_OR_LESS,),
    (syntax.Hedge.VERY, syntax.Hedge.VERY),
)


class Wording:
    """Finds a constraint for one predicate of a vector: one that gives its triple at the levels."""

    def __init__(
        self,
        p: vectors.Predicate,
        attribute: Attribute,
        levels: Sequence[int],
        reader: ConstraintReader,
        may_be_fitted: bool,
    ) -> None:
        self.target = Triple(p.low, p.high, p.left, p.right)
        self.hedge = p.hedge
        self.hedges = read_hedges(p.hedge)
        self.attribute = attribute
        self.levels = levels
        self.reader = reader
        self.may_be_fitted = may_be_fitted  # hedges and slopes may have been fitted away

    def find(self) -> tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]:
        """Return the constraint and its hedges."""
        target, attribute = self.target, self.attribute
        if target.left == target.right == CRISP:
            return self._find_crisp() or write_literal(target, attribute), ()
        if attribute.kind is ValueKind.TEXT and not attribute.is_graded:
            return write_literal(target, attribute), self.hedges
        for constraint, hedges in self._list_candidates():
            if self._gives(constraint, hedges):
                return constraint, hedges
        return self._find_shape() or write_literal(target, attribute), self.hedges

    def _list_candidates(self) -> Iterator[tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]]:
        target, attribute = self.target, self.attribute
        terms = [syntax.NamedTerm(syntax.Name(name)) for name in attribute.terms]
        for term in terms:
            yield term, self.hedges
        if target.low == target.high and target.is_symmetric:
            for value in self._list_centres():
                yield syntax.About(value), self.hedges
        if self.may_be_fitted and not self.hedges:
            yield from ((term, extra) for extra in _FITTED_AWAY for term in terms)

    def _list_centres(self) -> Iterator[syntax.Value]:
        """Yield what "about" may be said of: a symbol of a graded text, or the value itself."""
        attribute, code = self.attribute, self.target.low
        if attribute.kind is not ValueKind.TEXT:
            yield write_value(attribute.to_value(code), attribute)
        elif code in attribute.symbol_codes:
            yield syntax.Text(attribute.symbols[attribute.symbol_codes.index(code)])

    def _gives(self, constraint: syntax.Constraint, hedges: tuple[syntax.Hedge, ...]) -> bool:
        """Return whether compiling the constraint here gives the target."""
        attribute, levels = self.attribute, self.levels
        source = syntax.PredicateNode(syntax.Name(attribute.name), constraint, hedges=hedges)
        try:
            meaning = self.reader.read(source, attribute)
        except LanguageError:
            return False
        draft = fit.Draft(source, attribute, meaning, *fit.encode_hedges(hedges))
        exact = fit.fit_draft(draft, levels)
        if self._is(exact):
            return True
        if not self.may_be_fitted or self.hedge:
            return False
        if levels:  # fitting away keeps the decisive cut: another cut, another set
            wanted = fit.cut_triple(self.target, self.hedge, levels[0], attribute)
            if fit.cut_triple(exact.triple, exact.hedge, levels[0], attribute) != wanted:
                return False
        fitted = (fit.fit_away(draft, exact, levels, symmetric) for symmetric in (False, True))
        return any(found is not None and self._is(found) for found in fitted)

    def _is(self, fitted: Fit) -> bool:
        return fitted.triple == self.target and fitted.hedge == self.hedge

    def _find_shape(self) -> syntax.Constraint | None:
        """Return a function with straight sides and short numbers, if one gives the target."""
        target, attribute = self.target, self.attribute
        if attribute.kind is not ValueKind.NUMBER and not attribute.is_graded:
            return None
        left = find_width(target.left, attribute.wide)
        right = find_width(target.right, attribute.wide)
        corners = [target.low - left, target.low, target.high, target.high + right]
        a, b, c, d = (attribute.to_value(position) for position in corners)
        kind: str
        points: tuple[float, ...]
        if target.low == 0 and target.is_symmetric:
            kind, points = "falling", (c, d)
        elif target.high == attribute.last and target.is_symmetric:
            kind, points = "rising", (a, b)
        elif target.low == target.high and target.is_symmetric:
            kind, points = "about", (b, b - a)
        elif target.low == target.high:
            kind, points = "triangle", (a, b, d)
        else:
            kind, points = "trapezoid", (a, b, c, d)

        def build(numbers: tuple[float, ...]) -> syntax.Constraint:
            values: list[syntax.Value] = [syntax.Quantity(n, attribute.unit) for n in numbers]
            if attribute.is_graded:  # what stands at a symbol is called so
                last = 1 if kind == "about" else len(numbers)
                words = [write_place(n, attribute) for n in numbers[:last]]
                values = [*words, *values[last:]]
            if kind == "about":
                centre, spread = values
                assert isinstance(spread, syntax.Quantity)
                return syntax.About(centre, spread)
            return syntax.Shape(kind, tuple(values))

        def means_the_same(numbers: tuple[float, ...]) -> bool:
            # Only numbers within a step of what they stand for deserve a fit.
            pairs = zip(numbers, points, strict=True)
            near = all(abs(number - point) < attribute.step for number, point in pairs)
            return near and self._gives(build(numbers), self.hedges)

        numbers = shorten(points, means_the_same)
        return None if numbers is None else build(numbers)

    # Crisp ----------------------------------------------------------------------------------

    def _find_crisp(self) -> syntax.Constraint | None:
        """Return a comparison or range with exactly these codes."""
        target, attribute = self.target, self.attribute
        text = attribute.kind is ValueKind.TEXT
        last = attribute.symbol_codes[-1] if text else attribute.last
        if target.high > last:
            return None
        low, high = self._list_values(target.low), self._list_values(target.high)
        candidates: list[syntax.Constraint] = []
        if target.low == target.high:
            candidates = [syntax.CrispComparison(syntax.Operator.EQUAL, value) for value in low]
        elif text and not attribute.ordered:
            return None
        elif target.low == 0 and target.high < last:
            candidates = [syntax.CrispComparison(syntax.Operator.AT_MOST, value) for value in high]
        elif target.high == last and target.low > 0:
            candidates = [syntax.CrispComparison(syntax.Operator.AT_LEAST, value) for value in low]
        candidates += [syntax.CrispRange(first, second) for first in low for second in high]
        for constraint in candidates:
            try:
                meaning = self.reader.read(
                    syntax.PredicateNode(syntax.Name(attribute.name), constraint), attribute
                )
            except LanguageError:
                continue
            if isinstance(meaning, CrispSet) and meaning.triple == target:
                return constraint
        return None

    def _list_values(self, code: int) -> list[syntax.Value]:
        """Return ways to write the value of a code, short ones first."""
        attribute = self.attribute
        if attribute.kind is ValueKind.TEXT:
            codes = attribute.symbol_codes
            return [syntax.Text(attribute.symbols[codes.index(code)])] if code in codes else []
        value = attribute.to_value(code)
        if attribute.kind is not ValueKind.NUMBER:
            units = (1,) if attribute.kind is ValueKind.DATE else (3600, 60, 1)
            near = [
                f(value / unit) * unit for unit in units for f in (round, math.floor, math.ceil)
            ]
            return [syntax.Moment(format_moment(number, attribute.kind)) for number in near]
        numbers = shorten((value,), lambda n: attribute.to_code(n[0]) == code) or (value,)
        exact = shorten((value,), lambda n: abs(attribute.to_position(n[0]) - code) < 1e-7)
        return [
            syntax.Quantity(n, attribute.unit)
            for n in dict.fromkeys((*(exact or ()), *numbers, value))
        ]


def read_hedges(code: int) -> tuple[syntax.Hedge, ...]:
    """Return the hedges of a wire code as they are written: the one that acts first stands last."""
    hedges: tuple[syntax.Hedge, ...] = ()
    while code:
        hedges = (_HEDGES[code & 3], *hedges)
        code >>= 2
    return hedges


def write_value(value: float, attribute: Attribute) -> syntax.Value:
    """Return a value with its unit and no more digits than its code needs."""
    if attribute.kind is not ValueKind.NUMBER:
        return syntax.Moment(format_moment(value, attribute.kind))
    position = attribute.to_position(value)
    found = shorten((value,), lambda n: abs(attribute.to_position(n[0]) - position) < 1e-7)
    return syntax.Quantity(found[0] if found else value, attribute.unit)


def write_literal(triple: Triple, attribute: Attribute) -> syntax.Shape:
    """Return the triple itself, as the universal fuzzifier of the DENS paper."""
    ends: list[syntax.Value] = []
    for code in (triple.low, triple.high):
        if attribute.kind is ValueKind.TEXT:
            ends.append(syntax.Quantity(float(code)))
        elif attribute.kind is not ValueKind.NUMBER:
            ends.append(syntax.Moment(format_moment(attribute.to_value(code), attribute.kind)))
        else:
            ends.append(_write_end(code, attribute))
    codes = (triple.left,) if triple.is_symmetric else (triple.left, triple.right)
    return syntax.Shape(
        "fuzzifier", (*ends, *(_write_gamma(code, attribute.wide) for code in codes))
    )


def _write_end(code: int, attribute: Attribute) -> syntax.Quantity:
    slack = 1e-9 * (attribute.high - attribute.low)

    def fits(numbers: tuple[float, ...]) -> bool:
        inside = attribute.low - slack <= numbers[0] <= attribute.high + slack
        return inside and attribute.to_code(numbers[0]) == code

    value = attribute.to_value(code)
    return syntax.Quantity((shorten((value,), fits) or (value,))[0], attribute.unit)


def _write_gamma(code: int, wide: bool) -> syntax.Quantity:
    if code == CRISP:
        return syntax.Quantity(255.0)
    scale = 255 * (257 if wide else 1)
    gamma = scale / find_width(code, wide)
    found = shorten((gamma,), lambda n: min(find_gamma(scale / n[0], wide), 254) == code)
    return syntax.Quantity((found or (gamma,))[0])
