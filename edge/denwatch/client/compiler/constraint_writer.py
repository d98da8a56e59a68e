"""Writes one predicate of a vector as a constraint, and numbers as people write them.

`Wording` searches for the simplest constraint that compiles to the same triple: terms first, with
the hedges that the wire names or that were fitted away; then "about"; then functions with short
numbers; at last the triple itself, which can describe everything. `shorten` finds the number with
the fewest digits that still means the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from denwatch.client import syntax
from denwatch.client.compiler.constraints import ConstraintReader, CrispSet
from denwatch.client.compiler.fit import (
    Draft,
    cut_triple,
    encode_hedges,
    fit_away,
    fit_draft,
)
from denwatch.client.compiler.settings import (
    SLOPE_SCALE,
    encode_constant,
    encode_linear,
    encode_threshold,
)
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, Fit, Triple, ValueKind, format_moment
from denwatch.client.vocabulary.fitting import find_gamma, find_width
from denwatch.protocol import vectors
from denwatch.protocol.degrees import CRISP, EXTREMELY, VERY
from denwatch.protocol.timecode import decode_duration


def round_numbers(values: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
    """Yield the numbers with more and more digits, up to all of them."""
    previous = None
    for digits in range(1, 18):
        rounded = tuple(float(f"{value:.{digits}g}") for value in values)
        if rounded != previous:
            yield rounded
        previous = rounded


def shorten(
    values: tuple[float, ...], means_the_same: Callable[[tuple[float, ...]], bool]
) -> tuple[float, ...] | None:
    """Return the numbers with the fewest digits that pass, None if none do."""
    for rounded in round_numbers(values):
        try:
            if means_the_same(rounded):
                return rounded
        except LanguageError:  # rounded out of the domain, or out of order
            continue
    return None


def write_threshold(code: int) -> syntax.Scalar:
    """Return the shortest threshold that is encoded so: rounded down, as encoding rounds up."""
    for digits in range(1, 17):
        scale = 10**digits
        value = math.floor(code * scale / 255) / scale
        if encode_threshold(syntax.Scalar(value), "threshold") == code:
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
        found = shorten(
            (coefficients[0] / 255,),
            lambda n: encode_constant(syntax.Scalar(n[0])) == coefficients[0],
        )
        assert found is not None  # the full number is encoded so
        return syntax.SugenoRule(first, second, syntax.Scalar(found[0]))
    constant = coefficients[0] / 255
    slopes = []
    for code, attribute in zip(coefficients[1:], pair, strict=True):
        slope = code / (SLOPE_SCALE * (attribute.high - attribute.low)) if code else 0.0
        constant -= slope * attribute.low
        slopes.append(slope)

    def build(numbers: tuple[float, ...]) -> syntax.SugenoRule:
        c, a, b = map(syntax.Scalar, numbers)
        return syntax.SugenoRule(first, second, c, (a, b))

    def means_the_same(numbers: tuple[float, ...]) -> bool:
        rule = build(numbers)
        return encode_linear(rule, rule.slopes, pair, []) == coefficients

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
    """Finds constraints for the predicates of one vector."""

    def __init__(self, reader: ConstraintReader, may_be_fitted: bool) -> None:
        self.reader = reader
        self.may_be_fitted = may_be_fitted  # hedges and slopes may have been fitted away

    def find(
        self, p: vectors.Predicate, attribute: Attribute, levels: Sequence[int]
    ) -> tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]:
        """Return a constraint and its hedges that give the predicate's triple at these levels."""
        target = Triple(p.low, p.high, p.left, p.right)
        crisp = p.left == p.right == CRISP
        if crisp or attribute.kind is ValueKind.TEXT:
            found = self._find_crisp(target, attribute) if crisp else None
            return found or write_literal(target, attribute), () if crisp else read_hedges(p.hedge)
        hedges = read_hedges(p.hedge)
        for constraint, extra in self._list_candidates(target, attribute, hedges):
            if self._gives(constraint, extra, target, p.hedge, attribute, levels):
                return constraint, extra
        shape = self._find_shape(target, hedges, p.hedge, attribute, levels)
        return shape or write_literal(target, attribute), hedges

    def _list_candidates(
        self, target: Triple, attribute: Attribute, hedges: tuple[syntax.Hedge, ...]
    ) -> Iterator[tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]]:
        terms = [syntax.NamedTerm(syntax.Name(name)) for name in attribute.terms]
        for term in terms:
            yield term, hedges
        if target.low == target.high and target.is_symmetric:
            yield syntax.About(write_value(attribute.to_value(target.low), attribute)), hedges
        if self.may_be_fitted and not hedges:
            for extra in _FITTED_AWAY:
                for term in terms:
                    yield term, extra

    def _gives(
        self,
        constraint: syntax.Constraint,
        hedges: tuple[syntax.Hedge, ...],
        target: Triple,
        hedge: int,
        attribute: Attribute,
        levels: Sequence[int],
    ) -> bool:
        """Return whether compiling the constraint here gives the target."""
        source = syntax.PredicateNode(syntax.Name(attribute.name), constraint, hedges=hedges)
        try:
            meaning = self.reader.read(source, attribute)
        except LanguageError:
            return False
        code, power = encode_hedges(hedges)
        draft = Draft(source, attribute, meaning, code, power)
        exact = fit_draft(draft, levels)
        if _is(exact, target, hedge):
            return True
        if not self.may_be_fitted or hedge:
            return False
        if levels:  # fitting away keeps the decisive cut: another cut, another set
            wanted = cut_triple(target, hedge, levels[0], attribute)
            if cut_triple(exact.triple, exact.hedge, levels[0], attribute) != wanted:
                return False
        for symmetric in (False, True):
            fitted = fit_away(draft, exact, levels, symmetric)
            if fitted is not None and _is(fitted, target, hedge):
                return True
        return False

    def _find_shape(
        self,
        target: Triple,
        hedges: tuple[syntax.Hedge, ...],
        hedge: int,
        attribute: Attribute,
        levels: Sequence[int],
    ) -> syntax.Constraint | None:
        """Return a function with straight sides and short numbers, if one gives the target."""
        if attribute.kind is not ValueKind.NUMBER:
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
            return self._find_about(b, b - a, target, hedges, hedge, attribute, levels)
        elif target.low == target.high:
            kind, points = "triangle", (a, b, d)
        else:
            kind, points = "trapezoid", (a, b, c, d)

        def build(numbers: tuple[float, ...]) -> syntax.Shape:
            return syntax.Shape(
                kind, tuple(syntax.Quantity(number, attribute.unit) for number in numbers)
            )

        numbers = shorten(
            points,
            lambda n: (
                _are_near(n, points, attribute)
                and self._gives(build(n), hedges, target, hedge, attribute, levels)
            ),
        )
        return None if numbers is None else build(numbers)

    def _find_about(
        self,
        centre: float,
        spread: float,
        target: Triple,
        hedges: tuple[syntax.Hedge, ...],
        hedge: int,
        attribute: Attribute,
        levels: Sequence[int],
    ) -> syntax.Constraint | None:
        def build(numbers: tuple[float, ...]) -> syntax.About:
            centre, spread = numbers
            return syntax.About(
                syntax.Quantity(centre, attribute.unit), syntax.Quantity(spread, attribute.unit)
            )

        numbers = shorten(
            (centre, spread),
            lambda n: (
                _are_near(n, (centre, spread), attribute)
                and self._gives(build(n), hedges, target, hedge, attribute, levels)
            ),
        )
        return None if numbers is None else build(numbers)

    # Crisp ----------------------------------------------------------------------------------

    def _find_crisp(self, target: Triple, attribute: Attribute) -> syntax.Constraint | None:
        """Return a comparison or range with exactly these codes."""
        text = attribute.kind is ValueKind.TEXT
        last = len(attribute.symbols) - 1 if text else attribute.last
        if target.high > last:
            return None
        low = self._list_values(target.low, attribute)
        high = self._list_values(target.high, attribute)
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

    def _list_values(self, code: int, attribute: Attribute) -> list[syntax.Value]:
        """Return ways to write the value of a code, short ones first."""
        if attribute.kind is ValueKind.TEXT:
            return [syntax.Text(attribute.symbols[code])]
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


def _are_near(numbers: tuple[float, ...], points: tuple[float, ...], attribute: Attribute) -> bool:
    """Return whether rounded numbers deserve a fit: all within a step of what they stand for."""
    pairs = zip(numbers, points, strict=True)
    return all(abs(number - point) < attribute.step for number, point in pairs)


def _is(fitted: Fit, target: Triple, hedge: int) -> bool:
    return fitted.triple == target and fitted.hedge == hedge


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
