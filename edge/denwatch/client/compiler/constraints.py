"""Reads one constraint, in words and units, as a set over the codes of its attribute.

A crisp constraint becomes its triple here, exactly. A fuzzy one becomes an ideal function; how that
is fitted depends on the whole subscription and is decided in `fit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from denwatch.client import syntax
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.plugins import PluginRegistry, check_arguments
from denwatch.client.vocabulary import Attribute, Membership, Triple, ValueKind, Vocabulary
from denwatch.client.vocabulary.attributes import KINDS
from denwatch.client.vocabulary.fitting import find_gamma
from denwatch.client.vocabulary.values import format_value, read_value, read_width
from denwatch.protocol.degrees import CRISP

_TINY = 1e-6  # of a code: what arithmetic on units may add
_STEEP = 100.0  # a gamma from here on is crisp


@dataclass(frozen=True)
class CrispSet:
    """A triple that is meant as it is. `note` says what was rounded, if anything."""

    triple: Triple
    negated: bool = False
    note: str = ""


@dataclass(frozen=True)
class FuzzySet:
    """An ideal function that has to be fitted."""

    membership: Membership


Meaning = CrispSet | FuzzySet


@dataclass(frozen=True)
class ConstraintReader:
    """Reads constraints with one vocabulary."""

    vocabulary: Vocabulary
    registry: PluginRegistry

    def read(self, predicate: syntax.PredicateNode, attribute: Attribute) -> Meaning:
        """Return what a predicate's constraint means on its attribute, without hedges."""
        constraint = predicate.constraint
        if attribute.kind is ValueKind.TEXT:
            return self._read_text(constraint, attribute)
        match constraint:
            case syntax.CrispComparison():
                value = constraint.value
                if isinstance(value, syntax.Text):
                    _refuse_term(value, attribute)
                return _compare(constraint, read_value(value, attribute), attribute)
            case syntax.CrispRange():
                return _read_range(constraint, attribute)
            case syntax.NamedTerm():
                return FuzzySet(self._find_term(constraint, attribute))
            case syntax.About():
                return self._read_about(constraint, attribute)
            case syntax.Shape():
                return self._read_shape(constraint, attribute)
            case syntax.Extension():
                raise AssertionError("extensions are lowered before sets are read")

    def _find_term(self, constraint: syntax.NamedTerm, attribute: Attribute) -> Membership:
        term = self.vocabulary.find_term(attribute, constraint.name)
        if term is None:
            hint = f"there are {', '.join(attribute.terms) or 'none'}"
            raise self._refuse_word("term", constraint.name.text, constraint.name, attribute, hint)
        return term.membership

    def _refuse_word(
        self, kind: str, word: str, node: syntax.SyntaxNode, attribute: Attribute, hint: str
    ) -> LanguageError:
        names = suggest_names(word, self.vocabulary.list_choices(attribute))
        message = f'{attribute.name} has no {kind} "{word}"'
        return LanguageError.at_node(message, node, "" if names else hint, names)

    # Texts ----------------------------------------------------------------------------------

    def _read_text(self, constraint: syntax.Constraint, attribute: Attribute) -> Meaning:
        match constraint:
            case syntax.NamedTerm(name=name):
                term = self.vocabulary.find_term(attribute, name)
                if term is not None:
                    return FuzzySet(term.membership)
                return _point(self._find_symbol(syntax.Text(name.text, span=name.span), attribute))
            case syntax.CrispComparison(operator=operator, value=value):
                if isinstance(value, syntax.Text):
                    _refuse_term(value, attribute)
                code = self._find_symbol(value, attribute)
                if operator in (syntax.Operator.EQUAL, syntax.Operator.UNEQUAL):
                    return _point(code, operator is syntax.Operator.UNEQUAL)
                _check_order(attribute, constraint)
                return _compare_symbols(constraint, code, attribute)
            case syntax.CrispRange(low=low, high=high):
                _check_order(attribute, constraint)
                first = self._find_symbol(low, attribute)
                last = self._find_symbol(high, attribute)
                if first > last:
                    raise _refuse_empty(
                        f"{format_value(low)} is after {format_value(high)}", constraint
                    )
                return CrispSet(Triple(first, last))
            case syntax.Shape(kind="fuzzifier"):
                return _read_fuzzifier(constraint, attribute)
            case syntax.About() if attribute.is_graded:
                return self._read_about(constraint, attribute)
            case syntax.Shape() if attribute.is_graded:
                return self._read_shape(constraint, attribute)
            case _:
                raise LanguageError.at_node(
                    f"{attribute.name} is a text and has no fuzzy sets",
                    constraint,
                    f"one of {', '.join(attribute.symbols)}",
                )

    def _find_symbol(self, value: syntax.Value, attribute: Attribute) -> int:
        if not isinstance(value, syntax.Text):
            read_value(value, attribute)  # refuses the type
            raise AssertionError("a text attribute reads nothing but texts")
        code = self.vocabulary.find_symbol(attribute, value.value)
        if code is None:
            hint = f"one of {', '.join(attribute.symbols)}"
            raise self._refuse_word("symbol", value.value, value, attribute, hint)
        return code

    # Functions ------------------------------------------------------------------------------

    def _read_about(self, constraint: syntax.About, attribute: Attribute) -> FuzzySet:
        centre, spread = self._read_place(constraint.value, attribute), attribute.about
        if constraint.spread is not None:
            spread = read_width(constraint.spread, attribute)
        return FuzzySet(Membership("triangle", (centre - spread, centre, centre + spread)))

    def _read_points(self, shape: syntax.Shape, attribute: Attribute) -> tuple[float, ...]:
        """Return the points in the attribute's unit; widths and slopes are not places."""
        numbers = []
        for index, point in enumerate(shape.points):
            if shape.kind in ("bell", "gaussian") and index > 0:
                if not isinstance(point, syntax.Quantity):
                    raise LanguageError.at_node("a width is a number", point)
                is_width = index == 1
                numbers.append(read_width(point, attribute) if is_width else point.value)
            else:
                numbers.append(self._read_place(point, attribute, anywhere=True))
        return tuple(numbers)

    def _read_place(
        self, value: syntax.Value, attribute: Attribute, anywhere: bool = False
    ) -> float:
        """Return a value in the attribute's unit; of a graded text the place of a symbol.

        A number is a place of a graded text too: functions have feet between symbols and beyond.
        """
        if not attribute.is_graded:
            return read_value(value, attribute, anywhere)
        if anywhere and isinstance(value, syntax.Quantity) and value.unit is None:
            return value.value
        return float(attribute.symbol_codes.index(self._find_symbol(value, attribute)))

    def _read_shape(self, shape: syntax.Shape, attribute: Attribute) -> Meaning:
        if shape.kind == "fuzzifier":
            return _read_fuzzifier(shape, attribute)
        known = self.registry.shapes
        function = None if shape.kind in KINDS else known.get(shape.kind)
        if function is not None:
            check_arguments(function, shape.points, shape)
        elif shape.kind not in KINDS:
            names = (*KINDS, *known, "fuzzifier")
            raise LanguageError.of_unknown("unknown membership function", shape.kind, names, shape)
        points = self._read_points(shape, attribute)
        try:
            membership = Membership(shape.kind, points, function=function)
            attribute.check_overlap(membership)
        except LanguageError as error:
            raise LanguageError.at_node(error.message, shape, error.hint) from None
        return FuzzySet(membership)


def _read_fuzzifier(shape: syntax.Shape, attribute: Attribute) -> CrispSet:
    """Return the wire's own triple: low, high, gamma, maybe a second gamma (DENS paper, Eq. 1)."""
    if len(shape.points) not in (3, 4):
        raise LanguageError.at_node(
            "fuzzifier needs low, high, gamma and optionally a second gamma", shape
        )
    ends = []
    for point in shape.points[:2]:
        if attribute.kind is ValueKind.TEXT:
            code = point.value if isinstance(point, syntax.Quantity) else -1.0
            if not 0 <= code <= attribute.last or code != int(code):
                raise LanguageError.at_node("the fuzzifier of a text needs codes", point)
            ends.append(int(code))
        else:
            ends.append(attribute.to_code(read_value(point, attribute)))
    codes = []
    for point in shape.points[2:]:
        if not isinstance(point, syntax.Quantity) or point.unit is not None or point.value < 0.5:
            raise LanguageError.at_node("gamma is a number between 0.57 and 57, or 255", point)
        scale = 255 * (257 if attribute.wide else 1)
        steep = point.value >= _STEEP
        codes.append(CRISP if steep else min(find_gamma(scale / point.value, attribute.wide), 254))
    if ends[0] > ends[1]:
        raise _refuse_empty("the core of the fuzzifier is empty", shape)
    return CrispSet(Triple(ends[0], ends[1], codes[0], codes[-1]))


# Crisp ---------------------------------------------------------------------------------------


def _point(code: int, negated: bool = False) -> CrispSet:
    return CrispSet(Triple(code, code), negated)


def _compare(node: syntax.CrispComparison, value: float, attribute: Attribute) -> CrispSet:
    """Return the codes whose value compares so."""
    operator = node.operator
    position = attribute.to_position(value)
    low, high = 0, attribute.last
    match operator:
        case syntax.Operator.GREATER:
            low = math.floor(position + _TINY) + 1
        case syntax.Operator.AT_LEAST:
            low = math.ceil(position - _TINY)
        case syntax.Operator.LESS:
            high = math.ceil(position - _TINY) - 1
        case syntax.Operator.AT_MOST:
            high = math.floor(position + _TINY)
        case syntax.Operator.EQUAL | syntax.Operator.UNEQUAL:
            return _point(attribute.to_code(value), operator is syntax.Operator.UNEQUAL)
    if low > high:
        raise _refuse_empty(
            f"no value of {attribute.name} is {operator.value} {format_value(node.value)}", node
        )
    return CrispSet(Triple(low, high))


def _compare_symbols(node: syntax.CrispComparison, code: int, attribute: Attribute) -> CrispSet:
    """Return the codes from or up to a symbol's, in the order of the symbols."""
    codes = attribute.symbol_codes
    chosen = {
        syntax.Operator.GREATER: [other for other in codes if other > code],
        syntax.Operator.AT_LEAST: [other for other in codes if other >= code],
        syntax.Operator.LESS: [other for other in codes if other < code],
        syntax.Operator.AT_MOST: [other for other in codes if other <= code],
    }[node.operator]
    if not chosen:
        raise _refuse_empty(
            f"no value of {attribute.name} is {node.operator.value} {format_value(node.value)}",
            node,
        )
    return CrispSet(Triple(chosen[0], chosen[-1]))


def _refuse_term(value: syntax.Text, attribute: Attribute) -> None:
    """Raise LanguageError if a comparison has a fuzzy term where a value belongs."""
    if value.value in attribute.terms:
        raise LanguageError.at_node(
            f'"{value.value}" is a fuzzy term', value, f"write: is {value.value}"
        )


def _read_range(constraint: syntax.CrispRange, attribute: Attribute) -> CrispSet:
    low = read_value(constraint.low, attribute)
    high = read_value(constraint.high, attribute)
    if low > high:
        raise _refuse_empty(
            f"{format_value(constraint.low)} is above {format_value(constraint.high)}", constraint
        )
    first = math.ceil(attribute.to_position(low) - _TINY)
    last = math.floor(attribute.to_position(high) + _TINY)
    if first > last:
        code = attribute.to_code((low + high) / 2)
        note = f"narrower than one step of {attribute.step:.3g}, rounded to that step"
        return CrispSet(Triple(code, code), note=note)
    return CrispSet(Triple(first, last))


def _check_order(attribute: Attribute, node: syntax.Constraint) -> None:
    if not attribute.ordered:
        raise LanguageError.at_node(
            f"the symbols of {attribute.name} have no order", node, "use = or !="
        )


def _refuse_empty(what: str, node: syntax.Constraint) -> LanguageError:
    return LanguageError.at_node(f"empty set: {what}", node, "it can never match")
