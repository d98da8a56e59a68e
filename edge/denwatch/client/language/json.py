"""The JSON surface: text to syntax tree and back, `parse_json(print_json(tree)) == tree`.

    {"when": {"and": [{"attribute": "patient_temperature", "hedges": ["very"], "is": "high"},
                      {"attribute": "heart_rate", "negated": true, "is": "normal"}]},
     "possible": 0.7, "valid_for": "2 days"}

docs/language.md describes the keys; unknown ones are refused. The text is parsed here and not by
the standard library, because every value must know the characters that it came from, so that an
error can point at them. Strict: duplicate keys, NaN, trailing text and deep nesting are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from denwatch.client import syntax
from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.client.language.lexicon import (
    DURATIONS,
    LIMITS,
    SCALARS,
    read_hedge,
    read_quantity,
    read_value,
    write_quantity,
    write_value,
)
from denwatch.client.plugins import PluginRegistry, load_registry

MAX_CHARACTERS = 65536
MAX_DEPTH = 64

Content: TypeAlias = "dict[str, JsonMember] | list[JsonValue] | str | float | bool | None"

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_DECODER = json.JSONDecoder()
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class JsonValue:
    """A JSON value and where it stands."""

    value: Content
    span: syntax.SourceSpan


@dataclass(frozen=True)
class JsonMember:
    """A value of an object, and where its key stands."""

    item: JsonValue
    key: syntax.SourceSpan


def parse_source(text: str) -> JsonValue:
    """Return the one value of a JSON text."""
    if len(text) > MAX_CHARACTERS:
        message = f"{len(text)} characters, {MAX_CHARACTERS} is the limit"
        raise LanguageError(message, MAX_CHARACTERS + 1)
    start = 1 if text.startswith("\ufeff") else 0
    item, end = _parse(text, _skip(text, start), 0)
    end = _skip(text, end)
    if end < len(text):
        raise LanguageError("text after the end of the JSON value", end + 1)
    return item


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _parse(text: str, at: int, depth: int) -> tuple[JsonValue, int]:
    if depth > MAX_DEPTH:
        raise LanguageError(f"nested more than {MAX_DEPTH} deep", at + 1)
    head = text[at : at + 1]
    value: Content
    if head == "{":
        value, end = _parse_object(text, at, depth)
    elif head == "[":
        value, end = _parse_array(text, at, depth)
    elif head == '"':
        value, end = _parse_string(text, at)
    else:
        value, end = _parse_plain(text, at)
    return JsonValue(value, syntax.SourceSpan(at, end)), end


def _parse_object(text: str, at: int, depth: int) -> tuple[dict[str, JsonMember], int]:
    members: dict[str, JsonMember] = {}
    place = _skip(text, at + 1)
    if text[place : place + 1] == "}":
        return members, place + 1
    while True:
        if text[place : place + 1] != '"':
            raise LanguageError("a key in double quotes is expected", place + 1)
        key, end = _parse_string(text, place)
        span = syntax.SourceSpan(place, end)
        if key in members:
            raise LanguageError.at_span(f'the key "{key}" appears twice', span)
        place = _skip(text, end)
        if text[place : place + 1] != ":":
            raise LanguageError('":" is expected after a key', place + 1)
        item, end = _parse(text, _skip(text, place + 1), depth + 1)
        members[key] = JsonMember(item, span)
        place = _skip(text, end)
        if text[place : place + 1] == "}":
            return members, place + 1
        if text[place : place + 1] != ",":
            raise LanguageError('"," or "}" is expected', place + 1)
        place = _skip(text, place + 1)


def _parse_array(text: str, at: int, depth: int) -> tuple[list[JsonValue], int]:
    items: list[JsonValue] = []
    place = _skip(text, at + 1)
    if text[place : place + 1] == "]":
        return items, place + 1
    while True:
        item, end = _parse(text, place, depth + 1)
        items.append(item)
        place = _skip(text, end)
        if text[place : place + 1] == "]":
            return items, place + 1
        if text[place : place + 1] != ",":
            raise LanguageError('"," or "]" is expected', place + 1)
        place = _skip(text, place + 1)


def _parse_string(text: str, at: int) -> tuple[str, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise LanguageError(error.msg.lower(), min(error.pos, len(text)) + 1) from None
    assert isinstance(value, str)
    return value, end


def _parse_plain(text: str, at: int) -> tuple[float | bool | None, int]:
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    match = _NUMBER.match(text, at)
    if match is None:
        raise LanguageError("a JSON value is expected", at + 1)
    number = float(match.group())
    if number in (float("inf"), float("-inf")):
        raise LanguageError.at_span("this number is too large", syntax.SourceSpan(at, match.end()))
    return number, match.end()


# JSON to syntax tree -----------------------------------------------------------------------------

_OPERATORS = tuple(operator.value for operator in syntax.Operator)
_CONSTRAINTS = ("is", *_OPERATORS, "between", "about", "shape", "extension")
_PREDICATE = ("attribute", "negated", "hedges", *LIMITS)
_SUBSCRIPTION = (
    *("when", "event", "name", "aggregator", "rules", "recent", "prefer", "dead_bands"),
    *("persistence", "why", *SCALARS, *DURATIONS),
)


def parse_json(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription of a JSON text; LanguageError points at what is wrong."""
    return _JsonReader(registry or load_registry()).read(parse_source(text))


class _JsonReader:
    def __init__(self, registry: PluginRegistry) -> None:
        self.registry = registry

    def read(self, source: JsonValue) -> syntax.SubscriptionTree:
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
        return syntax.SubscriptionTree(
            self.read_condition(members["when"].item), **fields, span=source.span
        )

    # Conditions ------------------------------------------------------------------------------

    def read_condition(self, item: JsonValue) -> syntax.Condition:
        members = _take_object(item, "a condition")
        joint = next((key for key in members if key in ("and", "or", "not")), None)
        if joint is None:
            return self.read_predicate(item, members)
        for key, member in members.items():
            if key != joint:
                raise LanguageError.at_span(f'"{key}" is not allowed beside "{joint}"', member.key)
        inner = members[joint].item
        if joint == "not":
            return syntax.Not(self.read_condition(inner), span=item.span)
        operands = tuple(map(self.read_condition, _take_list(inner, 2)))
        return (syntax.And if joint == "and" else syntax.Or)(operands, span=item.span)

    def read_predicate(
        self, item: JsonValue, members: dict[str, JsonMember]
    ) -> syntax.PredicateNode:
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
        return syntax.PredicateNode(
            _take_name(members["attribute"].item),
            self.read_constraint(said[0], members, item),
            _take_flag(members["negated"].item) if "negated" in members else False,
            tuple(read_hedge(_take_string(hedge), hedge.span) for hedge in hedges),
            **limits,
            span=item.span,
        )

    def read_constraint(
        self, key: str, members: dict[str, JsonMember], whole: JsonValue
    ) -> syntax.Constraint:
        item = members[key].item
        if key == "is":
            return syntax.NamedTerm(_take_name(item), span=item.span)
        if key in _OPERATORS:
            return syntax.CrispComparison(syntax.Operator(key), _take_value(item), span=item.span)
        if key == "between":
            ends = _take_list(item, 2, 2)
            return syntax.CrispRange(*map(_take_value, ends), span=item.span)
        if key == "about":
            spread = _take_quantity(members["within"].item) if "within" in members else None
            return syntax.About(_take_value(item), spread, span=item.span)
        if key in ("shape", "extension"):
            partner = "points" if key == "shape" else "arguments"
            if partner not in members:
                raise LanguageError.at_span(f'"{partner}" is missing', whole.span)
            values = tuple(map(_take_value, _take_list(members[partner].item)))
            return (syntax.Shape if key == "shape" else syntax.Extension)(
                _take_string(item), values, span=item.span
            )
        return self.read_extension(key, item)

    def read_extension(self, name: str, item: JsonValue) -> syntax.Extension:
        """Read a plug-in's constraint: its arguments by the names of its parameters."""
        members = _take_object(item, f'the arguments of "{name}"')
        parameters = self.registry.predicates[name].parameters
        _check_keys(members, [parameter.name for parameter in parameters])
        arguments: list[syntax.Value] = []
        for place, parameter in enumerate(parameters):
            if parameter.name in members:
                if len(arguments) < place:
                    raise LanguageError.at_span(
                        f'"{parameters[len(arguments)].name}" is missing', item.span
                    )
                arguments.append(_take_value(members[parameter.name].item))
        return syntax.Extension(name, tuple(arguments), span=item.span)

    # Options ---------------------------------------------------------------------------------

    def read_aggregator(self, item: JsonValue) -> syntax.Aggregator:
        if isinstance(item.value, str):
            return syntax.Aggregator(item.value, span=item.span)
        members = _take_object(item, "an aggregator")
        _check_keys(members, ("name", "arguments"), required=("name",), at=item)
        listed = _take_list(members["arguments"].item) if "arguments" in members else []
        arguments = tuple(map(_take_quantity, listed))
        return syntax.Aggregator(_take_string(members["name"].item), arguments, span=item.span)

    def read_rules(self, item: JsonValue) -> tuple[syntax.SugenoRule, ...]:
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
            rules.append(syntax.SugenoRule(first, second, constant, slopes, span=entry.span))
        return tuple(rules)

    def read_recent(self, item: JsonValue) -> syntax.Recent:
        if isinstance(item.value, str):
            return syntax.Recent(item.value, span=item.span)
        members = _take_object(item, "a phrase or durations")
        _check_keys(members, ("within", "gone"), required=("within",), at=item)
        gone = _take_quantity(members["gone"].item) if "gone" in members else None
        return syntax.Recent(None, _take_quantity(members["within"].item), gone, span=item.span)

    def read_prefer(self, item: JsonValue) -> tuple[syntax.Prefer, ...]:
        pairs = [(entry.span, _take_list(entry, 2, 2)) for entry in _take_list(item)]
        return tuple(syntax.Prefer(*map(_take_name, pair), span=span) for span, pair in pairs)

    def read_dead_bands(self, item: JsonValue) -> tuple[syntax.DeadBand, ...]:
        bands = []
        for entry in _take_list(item):
            members = _take_object(entry, "a dead band")
            _check_keys(members, ("attribute", "width"), ("attribute", "width"), entry)
            width = _take_quantity(members["width"].item)
            bands.append(
                syntax.DeadBand(_take_name(members["attribute"].item), width, span=entry.span)
            )
        return tuple(bands)

    def read_persistence(self, item: JsonValue) -> syntax.Persistence:
        return syntax.Persistence(*map(_take_scalar, _take_list(item, 2, 2)), span=item.span)

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


def _take_name(item: JsonValue) -> syntax.Name:
    return syntax.Name(_take_string(item), span=item.span)


def _take_flag(item: JsonValue) -> bool:
    if not isinstance(item.value, bool):
        raise _refuse(item, "true or false")
    return item.value


def _take_number(item: JsonValue) -> float:
    if isinstance(item.value, bool) or not isinstance(item.value, float):
        raise _refuse(item, "a number")
    return item.value


def _take_scalar(item: JsonValue) -> syntax.Scalar:
    return syntax.Scalar(_take_number(item), span=item.span)


def _take_count(item: JsonValue) -> int:
    number = _take_number(item)
    if number != int(number) or number < 1:
        raise _refuse(item, "a whole number from 1")
    return int(number)


def _take_quantity(item: JsonValue) -> syntax.Quantity:
    if isinstance(item.value, str):
        return read_quantity(item.value, item.span)
    return syntax.Quantity(_take_number(item), None, span=item.span)


def _take_value(item: JsonValue) -> syntax.Value:
    if isinstance(item.value, str):
        return read_value(item.value, item.span)
    if isinstance(item.value, dict):
        _check_keys(item.value, ("text",), ("text",), item)
        return syntax.Text(_take_string(item.value["text"].item), span=item.span)
    return syntax.Quantity(_take_number(item), None, span=item.span)


# Syntax tree to JSON -----------------------------------------------------------------------------


def print_json(
    subscription: syntax.SubscriptionTree,
    registry: PluginRegistry | None = None,
    indent: int | None = None,
) -> str:
    """Return the subscription as JSON: `parse_json(print_json(tree)) == tree`."""
    document = to_document(subscription, registry)
    return json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)


def to_document(
    subscription: syntax.SubscriptionTree, registry: PluginRegistry | None = None
) -> dict[str, Any]:
    """Return the subscription as plain dictionaries and lists, as JSON has them."""
    s = subscription
    document: dict[str, Any] = {"when": _write_condition(s.condition, registry or load_registry())}
    for key in ("event", "name"):
        if getattr(s, key) is not None:
            document[key] = getattr(s, key).text
    if s.aggregator is not None:
        document["aggregator"] = s.aggregator.name
        if s.aggregator.arguments:
            arguments = [_write_value(argument) for argument in s.aggregator.arguments]
            document["aggregator"] = {"name": s.aggregator.name, "arguments": arguments}
    for key in (*SCALARS, *DURATIONS):
        value = getattr(s, key)
        if value is not None:
            document[key] = _write_value(value) if key in DURATIONS else _write_number(value.value)
    if s.rules:
        document["rules"] = [_write_rule(rule) for rule in s.rules]
    if s.recent is not None:
        document["recent"] = _write_recent(s.recent)
    if s.prefer:
        document["prefer"] = [[prefer.better.text, prefer.worse.text] for prefer in s.prefer]
    if s.dead_bands:
        document["dead_bands"] = [
            {"attribute": band.attribute.text, "width": _write_value(band.width)}
            for band in s.dead_bands
        ]
    if s.persistence is not None:
        pair = s.persistence.hits, s.persistence.window
        document["persistence"] = [_write_number(scalar.value) for scalar in pair]
    if s.why:
        document["why"] = True
    return document


def _write_condition(condition: syntax.Condition, registry: PluginRegistry) -> dict[str, Any]:
    match condition:
        case syntax.And(operands=operands):
            return {"and": [_write_condition(operand, registry) for operand in operands]}
        case syntax.Or(operands=operands):
            return {"or": [_write_condition(operand, registry) for operand in operands]}
        case syntax.Not(operand=operand):
            return {"not": _write_condition(operand, registry)}
        case syntax.PredicateNode():
            document: dict[str, Any] = {"attribute": condition.attribute.text}
            if condition.negated:
                document["negated"] = True
            if condition.hedges:
                document["hedges"] = [hedge.value for hedge in condition.hedges]
            document |= _write_constraint(condition.constraint, registry)
            for key in LIMITS:
                scalar = getattr(condition, key)
                if scalar is not None:
                    document[key] = _write_number(scalar.value)
            return document


def _write_constraint(constraint: syntax.Constraint, registry: PluginRegistry) -> dict[str, Any]:
    match constraint:
        case syntax.NamedTerm(name=name):
            return {"is": name.text}
        case syntax.CrispComparison(operator=operator, value=value):
            return {operator.value: _write_value(value)}
        case syntax.CrispRange(low=low, high=high):
            return {"between": [_write_value(low), _write_value(high)]}
        case syntax.About(value=value, spread=spread):
            within = {} if spread is None else {"within": _write_value(spread)}
            return {"about": _write_value(value)} | within
        case syntax.Shape(kind=kind, points=points):
            return {"shape": kind, "points": list(map(_write_value, points))}
        case syntax.Extension(name=name, arguments=arguments):
            values = list(map(_write_value, arguments))
            plugin = registry.predicates.get(name)
            if plugin is None or len(values) > len(plugin.parameters):
                return {"extension": name, "arguments": values}
            names = [parameter.name for parameter in plugin.parameters]
            return {name: dict(zip(names, values, strict=False))}


def _write_rule(rule: syntax.SugenoRule) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pair": [rule.first, rule.second],
        "constant": _write_number(rule.constant.value),
    }
    if rule.slopes is not None:
        document["slopes"] = [_write_number(slope.value) for slope in rule.slopes]
    return document


def _write_recent(recent: syntax.Recent) -> str | dict[str, Any]:
    if recent.phrase is not None:
        return recent.phrase
    durations = (("within", recent.within), ("gone", recent.gone))
    return {key: _write_value(value) for key, value in durations if value is not None}


def _write_value(value: syntax.Value) -> Any:
    if isinstance(value, syntax.Text):
        text = write_value(value)
        return text if text == value.value else {"text": value.value}
    if isinstance(value, syntax.Moment):
        return write_value(value)
    return _write_number(value.value) if value.unit is None else write_quantity(value)


def _write_number(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < 1e15 else value
