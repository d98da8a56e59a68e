"""JSON to syntax tree; `json_print.py` is the way back.

docs/language.md describes the keys; unknown ones are refused.

    {"when": {"and": [{"attribute": "patient_temperature", "hedges": ["very"], "is": "high"},
                      {"attribute": "heart_rate", "negated": true, "is": "normal"}]},
     "possible": 0.7, "valid_for": "2 days"}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.client.language.json_source import JsonMember, JsonValue, parse_source
from denwatch.client.language.values import (
    DURATIONS,
    LIMITS,
    SCALARS,
    read_hedge,
    read_quantity,
    read_value,
)
from denwatch.client.plugins import PluginRegistry, load_registry
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    DeadBand,
    Extension,
    Name,
    NamedTerm,
    Not,
    Operator,
    Or,
    Persistence,
    PredicateNode,
    Prefer,
    Quantity,
    Recent,
    Scalar,
    Shape,
    SubscriptionTree,
    SugenoRule,
    Text,
    Value,
)

_OPERATORS = tuple(operator.value for operator in Operator)
_CONSTRAINTS = ("is", *_OPERATORS, "between", "about", "shape", "extension")
_PREDICATE = ("attribute", "negated", "hedges", *LIMITS)
_SUBSCRIPTION = (
    *("when", "event", "name", "aggregator", "rules", "recent", "prefer", "dead_bands"),
    *("persistence", "why", *SCALARS, *DURATIONS),
)


def parse_json(text: str, registry: PluginRegistry | None = None) -> SubscriptionTree:
    """Return the subscription of a JSON text; LanguageError points at what is wrong."""
    return _JsonReader(registry or load_registry()).read(parse_source(text))


class _JsonReader:
    def __init__(self, registry: PluginRegistry) -> None:
        self.registry = registry

    def read(self, source: JsonValue) -> SubscriptionTree:
        members = _take_object(source, "a subscription")
        _check_keys(members, _SUBSCRIPTION)
        if "when" not in members:
            raise LanguageError.at_span('"when" is missing: the condition', source.span)
        fields: dict[str, Any] = {}
        for key, member in members.items():
            item = member.item
            if key in SCALARS:
                fields[key] = _take_scalar(item)
            elif key in DURATIONS:
                fields[key] = _take_quantity(item)
            elif key in ("event", "name"):
                fields[key] = _take_name(item)
            elif key != "when":
                fields[key] = getattr(self, f"read_{key}")(item)
        return SubscriptionTree(
            self.read_condition(members["when"].item), **fields, span=source.span
        )

    # Conditions ------------------------------------------------------------------------------

    def read_condition(self, item: JsonValue) -> Condition:
        members = _take_object(item, "a condition")
        joint = next((key for key in members if key in ("and", "or", "not")), None)
        if joint is None:
            return self.read_predicate(item, members)
        for key, member in members.items():
            if key != joint:
                raise LanguageError.at_span(f'"{key}" cannot stand beside "{joint}"', member.key)
        inner = members[joint].item
        if joint == "not":
            return Not(self.read_condition(inner), span=item.span)
        operands = tuple(map(self.read_condition, _take_list(inner, 2)))
        return (And if joint == "and" else Or)(operands, span=item.span)

    def read_predicate(self, item: JsonValue, members: dict[str, JsonMember]) -> PredicateNode:
        if "attribute" not in members:
            raise LanguageError.at_span(
                '"attribute" is missing', item.span, 'or "and", "or", "not" with conditions'
            )
        known = (*_CONSTRAINTS, *self.registry.predicates)
        partners = {"about": ("within",), "shape": ("points",), "extension": ("arguments",)}
        said = [key for key in members if key in known]
        if len(said) != 1:
            _check_keys(members, (*_PREDICATE, *known))
            raise LanguageError.at_span(
                f"{len(said)} constraints, one is expected: {join_choices(known)}", item.span
            )
        _check_keys(members, (*_PREDICATE, *said, *partners.get(said[0], ())))
        hedges = _take_list(members["hedges"].item) if "hedges" in members else []
        limits = {key: _take_scalar(members[key].item) for key in LIMITS if key in members}
        return PredicateNode(
            _take_name(members["attribute"].item),
            self.read_constraint(said[0], members, item),
            _take_flag(members["negated"].item) if "negated" in members else False,
            tuple(read_hedge(_take_string(hedge), hedge.span) for hedge in hedges),
            **limits,
            span=item.span,
        )

    def read_constraint(
        self, key: str, members: dict[str, JsonMember], whole: JsonValue
    ) -> Constraint:
        item = members[key].item
        if key == "is":
            return NamedTerm(_take_name(item), span=item.span)
        if key in _OPERATORS:
            return CrispComparison(Operator(key), _take_value(item), span=item.span)
        if key == "between":
            ends = _take_list(item, 2, 2)
            return CrispRange(*map(_take_value, ends), span=item.span)
        if key == "about":
            spread = _take_quantity(members["within"].item) if "within" in members else None
            return About(_take_value(item), spread, span=item.span)
        if key in ("shape", "extension"):
            partner = "points" if key == "shape" else "arguments"
            if partner not in members:
                raise LanguageError.at_span(f'"{partner}" is missing', whole.span)
            values = tuple(map(_take_value, _take_list(members[partner].item)))
            return (Shape if key == "shape" else Extension)(
                _take_string(item), values, span=item.span
            )
        return self.read_extension(key, item)

    def read_extension(self, name: str, item: JsonValue) -> Extension:
        """Read a plug-in's constraint: its arguments by the names of its parameters."""
        members = _take_object(item, f'the arguments of "{name}"')
        parameters = self.registry.predicates[name].parameters
        _check_keys(members, [parameter.name for parameter in parameters])
        arguments: list[Value] = []
        for place, parameter in enumerate(parameters):
            if parameter.name in members:
                if len(arguments) < place:
                    raise LanguageError.at_span(
                        f'"{parameters[len(arguments)].name}" is missing', item.span
                    )
                arguments.append(_take_value(members[parameter.name].item))
        return Extension(name, tuple(arguments), span=item.span)

    # Options ---------------------------------------------------------------------------------

    def read_aggregator(self, item: JsonValue) -> Aggregator:
        if isinstance(item.value, str):
            return Aggregator(item.value, span=item.span)
        members = _take_object(item, "an aggregator")
        _check_keys(members, ("name", "arguments"), required=("name",), at=item)
        listed = _take_list(members["arguments"].item) if "arguments" in members else []
        arguments = tuple(map(_take_quantity, listed))
        return Aggregator(_take_string(members["name"].item), arguments, span=item.span)

    def read_rules(self, item: JsonValue) -> tuple[SugenoRule, ...]:
        rules = []
        for entry in _take_list(item):
            members = _take_object(entry, "a rule")
            _check_keys(members, ("pair", "constant", "slopes"), ("pair", "constant"), entry)
            first, second = (_take_count(place) for place in _take_list(members["pair"].item, 2, 2))
            slopes = None
            if "slopes" in members:
                x, y = map(_take_scalar, _take_list(members["slopes"].item, 2, 2))
                slopes = x, y
            constant = _take_scalar(members["constant"].item)
            rules.append(SugenoRule(first, second, constant, slopes, span=entry.span))
        return tuple(rules)

    def read_recent(self, item: JsonValue) -> Recent:
        if isinstance(item.value, str):
            return Recent(item.value, span=item.span)
        members = _take_object(item, "a phrase or durations")
        _check_keys(members, ("within", "gone"), required=("within",), at=item)
        gone = _take_quantity(members["gone"].item) if "gone" in members else None
        return Recent(None, _take_quantity(members["within"].item), gone, span=item.span)

    def read_prefer(self, item: JsonValue) -> tuple[Prefer, ...]:
        pairs = [(entry.span, _take_list(entry, 2, 2)) for entry in _take_list(item)]
        return tuple(Prefer(*map(_take_name, pair), span=span) for span, pair in pairs)

    def read_dead_bands(self, item: JsonValue) -> tuple[DeadBand, ...]:
        bands = []
        for entry in _take_list(item):
            members = _take_object(entry, "a dead band")
            _check_keys(members, ("attribute", "width"), ("attribute", "width"), entry)
            width = _take_quantity(members["width"].item)
            bands.append(DeadBand(_take_name(members["attribute"].item), width, span=entry.span))
        return tuple(bands)

    def read_persistence(self, item: JsonValue) -> Persistence:
        return Persistence(*map(_take_scalar, _take_list(item, 2, 2)), span=item.span)

    def read_why(self, item: JsonValue) -> bool:
        return _take_flag(item)


def _check_keys(
    members: dict[str, JsonMember],
    known: Iterable[str],
    required: Iterable[str] = (),
    at: JsonValue | None = None,
) -> None:
    known = list(known)
    for key, member in members.items():
        if key not in known:
            raise LanguageError.at_span(
                f'unknown key "{key}"', member.key, suggestions=suggest_names(key, known)
            )
    for key in required:
        if key not in members:
            raise LanguageError.at_span(f'"{key}" is missing', at.span if at else None)


def _refuse(item: JsonValue, wanted: str) -> LanguageError:
    return LanguageError.at_span(f"{wanted} is expected", item.span)


def _take_object(item: JsonValue, what: str) -> dict[str, JsonMember]:
    if not isinstance(item.value, dict):
        raise _refuse(item, f"an object: {what},")
    return item.value


def _take_list(item: JsonValue, least: int = 0, most: int | None = None) -> list[JsonValue]:
    if not isinstance(item.value, list):
        raise _refuse(item, "a list")
    if len(item.value) < least or (most is not None and len(item.value) > most):
        wanted = f"{least}" if most == least else f"{least} or more"
        raise LanguageError.at_span(f"a list of {wanted}, not of {len(item.value)}", item.span)
    return item.value


def _take_string(item: JsonValue) -> str:
    if not isinstance(item.value, str):
        raise _refuse(item, "a text")
    return item.value


def _take_name(item: JsonValue) -> Name:
    return Name(_take_string(item), span=item.span)


def _take_flag(item: JsonValue) -> bool:
    if not isinstance(item.value, bool):
        raise _refuse(item, "true or false")
    return item.value


def _take_number(item: JsonValue) -> float:
    if isinstance(item.value, bool) or not isinstance(item.value, float):
        raise _refuse(item, "a number")
    return item.value


def _take_scalar(item: JsonValue) -> Scalar:
    return Scalar(_take_number(item), span=item.span)


def _take_count(item: JsonValue) -> int:
    number = _take_number(item)
    if number != int(number) or number < 1:
        raise _refuse(item, "a whole number from 1")
    return int(number)


def _take_quantity(item: JsonValue) -> Quantity:
    if isinstance(item.value, str):
        return read_quantity(item.value, item.span)
    return Quantity(_take_number(item), None, span=item.span)


def _take_value(item: JsonValue) -> Value:
    if isinstance(item.value, str):
        return read_value(item.value, item.span)
    if isinstance(item.value, dict):
        _check_keys(item.value, ("text",), ("text",), item)
        return Text(_take_string(item.value["text"].item), span=item.span)
    return Quantity(_take_number(item), None, span=item.span)
