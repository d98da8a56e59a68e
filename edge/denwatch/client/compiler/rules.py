"""Takagi-Sugeno rules: consequents in units, to the wire's coefficients over codes and back.

The wire computes c0 + (c1 x + c2 y) / 64 with x and y as 8-bit codes and 255 as a full degree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from denwatch.client.compiler.results import Approximation
from denwatch.client.compiler.shortening import shorten
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Scalar, SugenoRule
from denwatch.client.vocabulary import Attribute, ValueKind
from denwatch.protocol.vectors import MAX_RULE_PREDICATES

_SCALE = 64


def encode_rules(
    rules: Sequence[SugenoRule],
    places: Mapping[int, int],
    attributes: Sequence[Attribute],
    report: list[Approximation],
) -> list[tuple[int, ...]]:
    """Return one consequent for each pair of predicates, in the wire's order.

    `places` maps a predicate's number as written to its place on the wire, `attributes` are the
    predicates' attributes in the wire's order.
    """
    count = len(attributes)
    if not 2 <= count <= MAX_RULE_PREDICATES:
        raise LanguageError.at_node(
            f"rules need 2 to {MAX_RULE_PREDICATES} predicates, not {count}", rules[0]
        )
    is_linear = any(rule.slopes is not None for rule in rules)
    table: dict[tuple[int, int], tuple[int, ...]] = {}
    for rule in rules:
        for number in (rule.first, rule.second):
            if number not in places:
                raise LanguageError.at_node(f"there is no predicate {number}", rule)
        first, second = places[rule.first], places[rule.second]
        if first == second:
            raise LanguageError.at_node("a rule is about two predicates", rule)
        slopes = rule.slopes
        if first > second:
            first, second = second, first
            slopes = (slopes[1], slopes[0]) if slopes else None
        if (first, second) in table:
            raise LanguageError.at_node(
                f"predicates {rule.first} and {rule.second} have a rule already", rule
            )
        pair = attributes[first], attributes[second]
        if is_linear:
            table[first, second] = _encode_linear(rule, slopes, pair, report)
        else:
            table[first, second] = (_encode_constant(rule.constant),)
    found = []
    for i in range(count):
        for j in range(i + 1, count):
            if (i, j) not in table:
                names = f"{attributes[i].name} and {attributes[j].name}"
                raise LanguageError.at_node(f"the rule of {names} is missing", rules[-1])
            found.append(table[i, j])
    return found


def _encode_constant(constant: Scalar) -> int:
    if not 0.0 <= constant.value <= 1.0:
        raise LanguageError.at_node(
            f"consequent {constant.value:g} is not between 0 and 1", constant
        )
    return round(255 * constant.value)


def _encode_linear(
    rule: SugenoRule,
    slopes: tuple[Scalar, Scalar] | None,
    pair: tuple[Attribute, Attribute],
    report: list[Approximation],
) -> tuple[int, ...]:
    constant = rule.constant.value
    coefficients = []
    error = 0.0
    for slope, attribute in zip(slopes or (), pair, strict=False):
        if attribute.kind is ValueKind.TEXT and slope.value:
            raise LanguageError.at_node(f"{attribute.name} is a text and has no slope", slope)
        scaled = _SCALE * slope.value * (attribute.high - attribute.low)
        code = round(scaled)
        if not -128 <= code <= 127:
            raise LanguageError.at_node(
                f"slope {slope.value:g} is too steep for {attribute.name}",
                slope,
                "over the whole domain a consequent may change by 2 at most",
            )
        constant += slope.value * attribute.low
        coefficients.append(code)
        error += abs(scaled - code) / _SCALE
    first = round(255 * constant)
    if not -32768 <= first <= 32767:
        raise LanguageError.at_node(f"consequent {constant:g} is too large", rule.constant)
    error += abs(255 * constant - first) / 255
    if error > 0.005:
        names = f"rule of {pair[0].name} and {pair[1].name}"
        report.append(Approximation(names, "coefficients rounded", error, rule.span))
    return (first, *(coefficients or (0, 0)))


def write_rule(
    first: int, second: int, coefficients: tuple[int, ...], pair: tuple[Attribute, Attribute]
) -> SugenoRule:
    """Return the rule of a consequent, with the shortest numbers that are encoded so."""
    if len(coefficients) == 1:
        found = shorten(
            (coefficients[0] / 255,), lambda n: _encode_constant(Scalar(n[0])) == coefficients[0]
        )
        assert found is not None  # the full number is encoded so
        return SugenoRule(first, second, Scalar(found[0]))
    constant = coefficients[0] / 255
    slopes = []
    for code, attribute in zip(coefficients[1:], pair, strict=True):
        slope = code / (_SCALE * (attribute.high - attribute.low)) if code else 0.0
        constant -= slope * attribute.low
        slopes.append(slope)

    def build(numbers: tuple[float, ...]) -> SugenoRule:
        c, a, b = map(Scalar, numbers)
        return SugenoRule(first, second, c, (a, b))

    def means_the_same(numbers: tuple[float, ...]) -> bool:
        rule = build(numbers)
        return _encode_linear(rule, rule.slopes, pair, []) == coefficients

    numbers = (constant, slopes[0], slopes[1])
    return build(shorten(numbers, means_the_same) or numbers)
