"""Plug-in: quantities that go round, such as a wind's direction, where 350° is near 10°.

Two predicate types for attributes with a `period` in their vocabulary:

- `wind_direction is near 350 ° within 30 °`: full at the direction, nothing at the spread;
- `wind_direction is from 340 ° to 20 °`: crisp, clockwise.

A device compares on a line, not on a circle. The part of a set that passes the end of the line is
the contrary of a ramp that rises at its beginning, or falls at its end, and that is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.plugins import LanguagePlugin, Parameter
from denwatch.client.vocabulary.attributes import Attribute
from denwatch.client.vocabulary.values import read_value, read_width


def find_period(attribute: Attribute, node: syntax.SyntaxNode | None) -> float:
    """Return after how much the attribute begins again, or refuse it."""
    if attribute.period is None:
        raise LanguageError.at_node(
            f"{attribute.name} is not circular", node, "its vocabulary gives it no period"
        )
    return attribute.period


def wrap(value: float, attribute: Attribute, period: float) -> float:
    """Return the same direction, next to the domain or inside it."""
    value -= math.floor((value - attribute.low) / period) * period
    return value - period if value > attribute.high + attribute.step / 2 else value


def _join(
    predicate: syntax.PredicateNode, parts: list[tuple[bool, syntax.Constraint]]
) -> syntax.Condition:
    """Return "one of the parts", each (negated, constraint), on the predicate's attribute."""
    found = tuple(
        syntax.PredicateNode(predicate.attribute, constraint, negated, span=predicate.span)
        for negated, constraint in parts
    )
    return found[0] if len(found) == 1 else syntax.Or(found, span=predicate.span)


class Near:
    """Around a direction, over the end of the scale if need be."""

    name = "near"
    words = ("near", "around")
    tag = "near"
    parameters = (Parameter("centre"), Parameter("spread", "within", optional=True))

    def lower(self, predicate: syntax.PredicateNode, attribute: Attribute) -> syntax.Condition:
        """Return a triangle, or the parts of one that passes an end."""
        constraint = predicate.constraint
        assert isinstance(constraint, syntax.Extension)
        period = find_period(attribute, constraint)
        centre, spread = self._read(constraint.arguments, attribute, period)

        def shape(kind: str, *points: float) -> syntax.Shape:
            quantities = tuple(syntax.Quantity(point, span=constraint.span) for point in points)
            return syntax.Shape(kind, quantities, span=constraint.span)

        main = shape("triangle", centre - spread, centre, centre + spread)
        parts: list[tuple[bool, syntax.Constraint]] = [(False, main)]
        if centre - spread + period < attribute.high:
            parts.append((True, shape("falling", centre - spread + period, centre + period)))
        if centre + spread - period > attribute.low:
            parts.append((True, shape("rising", centre - period, centre - period + spread)))
        return _join(predicate, parts)

    def evaluate(self, x: float, arguments: Sequence[syntax.Value], attribute: Attribute) -> float:
        """Return 1 at the direction, falling by the shorter way round."""
        period = find_period(attribute, None)
        centre, spread = self._read(arguments, attribute, period)
        distance = abs((x - centre + period / 2) % period - period / 2)
        return max(0.0, 1.0 - distance / spread)

    def recognise(
        self, pair: tuple[syntax.PredicateNode, syntax.PredicateNode], attribute: Attribute
    ) -> syntax.Extension | None:
        """Return "near" for a value and the contrary of a ramp at the other end of the scale."""
        main, ramp = pair
        if attribute.period is None or main.negated or not ramp.negated:
            return None
        match ramp.constraint, main.constraint:
            case syntax.Shape(kind="rising" | "falling"), syntax.About(value=value, spread=spread):
                return syntax.Extension(self.name, (value, spread) if spread else (value,))
        return None

    def _read(
        self, arguments: Sequence[syntax.Value], attribute: Attribute, period: float
    ) -> tuple[float, float]:
        centre = wrap(read_value(arguments[0], attribute, anywhere=True), attribute, period)
        if len(arguments) < 2:
            return centre, attribute.about
        width = arguments[1]
        if not isinstance(width, syntax.Quantity):
            raise LanguageError.at_node("the spread is a number", width)
        spread = read_width(width, attribute)
        if spread > period / 2:
            raise LanguageError.at_node(
                f"a spread is at most half the circle, {period / 2:g}", width
            )
        return centre, spread


class Sector:
    """From one direction clockwise to another, both included."""

    name = "sector"
    words = ("from", "in the sector")
    tag = "sector"
    parameters = (Parameter("from"), Parameter("to", "to"))

    def lower(self, predicate: syntax.PredicateNode, attribute: Attribute) -> syntax.Condition:
        """Return a range, or the two ranges at the ends of the scale."""
        constraint = predicate.constraint
        assert isinstance(constraint, syntax.Extension)
        start, end = self._read(constraint.arguments, attribute, constraint)
        first = syntax.Quantity(max(start, attribute.low), span=constraint.span)
        last = syntax.Quantity(min(end, attribute.high), span=constraint.span)
        if start <= end:
            return _join(predicate, [(False, syntax.CrispRange(first, last, span=constraint.span))])
        comparisons = []
        if start <= attribute.high:
            comparisons.append((syntax.Operator.AT_LEAST, first))
        if end >= attribute.low:
            comparisons.append((syntax.Operator.AT_MOST, last))
        return _join(
            predicate,
            [(False, syntax.CrispComparison(*pair, span=constraint.span)) for pair in comparisons],
        )

    def evaluate(self, x: float, arguments: Sequence[syntax.Value], attribute: Attribute) -> float:
        """Return 1 in the sector and 0 elsewhere."""
        start, end = self._read(arguments, attribute, None)
        inside = start <= x <= end if start <= end else x >= start or x <= end
        return 1.0 if inside else 0.0

    def recognise(
        self, pair: tuple[syntax.PredicateNode, syntax.PredicateNode], attribute: Attribute
    ) -> syntax.Extension | None:
        """Return the sector of "at least this or at most that"."""
        high, low = pair
        if attribute.period is None or high.negated or low.negated:
            return None
        match high.constraint, low.constraint:
            case (
                syntax.CrispComparison(operator=syntax.Operator.AT_LEAST, value=start),
                syntax.CrispComparison(operator=syntax.Operator.AT_MOST, value=end),
            ):
                return syntax.Extension(self.name, (start, end))
        return None

    def _read(
        self,
        arguments: Sequence[syntax.Value],
        attribute: Attribute,
        node: syntax.SyntaxNode | None,
    ) -> tuple[float, float]:
        period = find_period(attribute, node)
        start, end = (read_value(a, attribute, anywhere=True) for a in arguments)
        low = attribute.low
        return low + (start - low) % period, low + (end - low) % period


PLUGIN = LanguagePlugin("circular", predicates=(Near(), Sector()))
