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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from denwatch.client import syntax
from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.client.language import lexicon
from denwatch.client.plugins import PluginRegistry, load_registry, order_arguments
from denwatch.client.syntax import SourceSpan

MAX_CHARACTERS = 65536
MAX_DEPTH = 64

Content: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | float | bool | None"

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_DECODER = json.JSONDecoder()
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class JsonValue:
    """A JSON value and where it stands; in an object, also where its key does."""

    value: Content
    span: SourceSpan
    key: SourceSpan | None = None


def parse_source(text: str) -> JsonValue:
    """Return the one value of a JSON text."""
    lexicon.check_length(text, MAX_CHARACTERS)
    parser = _SourceParser(text)
    item, end = parser.parse(parser.skip(1 if text.startswith("\ufeff") else 0), 0)
    end = parser.skip(end)
    if end < len(text):
        raise LanguageError("text after the end of the JSON value", end + 1)
    return item


class _SourceParser:
    """Every method takes the place where something begins, and returns it and where it ends."""

    def __init__(self, text: str) -> None:
        self.text = text

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def parse(self, at: int, depth: int) -> tuple[JsonValue, int]:
        if depth > MAX_DEPTH:
            raise LanguageError(f"nested more than {MAX_DEPTH} deep", at + 1)
        head = self.text[at : at + 1]
        value: Content
        if head == "{":
            members: dict[str, JsonValue] = {}
            value = members
            end = self.parse_all(at, "}", lambda place: self.parse_member(place, depth, members))
        elif head == "[":
            items: list[JsonValue] = []
            value = items
            end = self.parse_all(at, "]", lambda place: self.parse_item(place, depth, items))
        elif head == '"':
            value, end = self.parse_string(at)
        else:
            value, end = self.parse_plain(at)
        return JsonValue(value, SourceSpan(at, end)), end

    def parse_all(self, at: int, closing: str, parse_one: Callable[[int], int]) -> int:
        """Parse what commas separate, up to the closing bracket."""
        place = self.skip(at + 1)
        if self.text[place : place + 1] == closing:
            return place + 1
        while True:
            place = self.skip(parse_one(place))
            if self.text[place : place + 1] == closing:
                return place + 1
            if self.text[place : place + 1] != ",":
                raise LanguageError(f'"," or "{closing}" is expected', place + 1)
            place = self.skip(place + 1)

    def parse_item(self, at: int, depth: int, items: list[JsonValue]) -> int:
        item, end = self.parse(at, depth + 1)
        items.append(item)
        return end

    def parse_member(self, at: int, depth: int, members: dict[str, JsonValue]) -> int:
        if self.text[at : at + 1] != '"':
            raise LanguageError("a key in double quotes is expected", at + 1)
        key, end = self.parse_string(at)
        span = SourceSpan(at, end)
        if key in members:
            raise LanguageError.at_span(f'the key "{key}" appears twice', span)
        colon = self.skip(end)
        if self.text[colon : colon + 1] != ":":
            raise LanguageError('":" is expected after a key', colon + 1)
        item, end = self.parse(self.skip(colon + 1), depth + 1)
        members[key] = replace(item, key=span)
        return end

    def parse_string(self, at: int) -> tuple[str, int]:
        try:
            value, end = _DECODER.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            place = min(error.pos, len(self.text)) + 1
            raise LanguageError(error.msg.lower(), place) from None
        assert isinstance(value, str)
        return value, end

    def parse_plain(self, at: int) -> tuple[float | bool | None, int]:
        for word, value in _WORDS.items():
            if self.text.startswith(word, at):
                return value, at + len(word)
        match = _NUMBER.match(self.text, at)
        if match is None:
            raise LanguageError("a JSON value is expected", at + 1)
        number = float(match.group())
        if number in (float("inf"), float("-inf")):
            raise LanguageError.at_span("this number is too large", SourceSpan(at, match.end()))
        return number, match.end()


# JSON to syntax tree: values, and objects by a reader for each key -------------------------------

_Read: TypeAlias = Callable[[JsonValue], Any]


def _refuse(item: JsonValue, wanted: str) -> LanguageError:
    return LanguageError.at_span(f"{wanted} is expected", item.span)


def _take_string(item: JsonValue) -> str:
    if not isinstance(item.value, str):
        raise _refuse(item, "a text")
    return item.value


def _take_flag(item: JsonValue) -> bool:
    if not isinstance(item.value, bool):
        raise _refuse(item, "true or false")
    return item.value


def _take_number(item: JsonValue) -> float:
    if isinstance(item.value, bool) or not isinstance(item.value, float):
        raise _refuse(item, "a number")
    return item.value


def _take_name(item: JsonValue) -> syntax.Name:
    return syntax.Name(_take_string(item), span=item.span)


def _take_hedge(item: JsonValue) -> syntax.Hedge:
    return lexicon.read_hedge(_take_string(item), item.span)


def _take_scalar(item: JsonValue) -> syntax.Scalar:
    return syntax.Scalar(_take_number(item), span=item.span)


def _take_count(item: JsonValue) -> int:
    number = _take_number(item)
    if number != int(number) or number < 1:
        raise _refuse(item, "a whole number from 1")
    return int(number)


def _take_quantity(item: JsonValue) -> syntax.Quantity:
    if isinstance(item.value, str):
        return lexicon.read_quantity(item.value, item.span)
    return syntax.Quantity(_take_number(item), None, span=item.span)


def _take_value(item: JsonValue) -> syntax.Value:
    if isinstance(item.value, str):
        return lexicon.read_value(item.value, item.span)
    if isinstance(item.value, dict):
        text = _take_fields(item, "a text", {"text": _take_string}, ("text",))["text"]
        return syntax.Text(text, span=item.span)
    return syntax.Quantity(_take_number(item), None, span=item.span)


def _take_all(read: _Read, least: int = 0, most: int | None = None) -> _Read:
    """Return what reads a list of so many."""

    def take(item: JsonValue) -> tuple[Any, ...]:
        if not isinstance(item.value, list):
            raise _refuse(item, "a list")
        if len(item.value) < least or (most is not None and len(item.value) > most):
            wanted = f"{least}" if most == least else f"{least} or more"
            raise LanguageError.at_span(f"a list of {wanted}, not of {len(item.value)}", item.span)
        return tuple(map(read, item.value))

    return take


def _take_pair(kind: Callable[..., syntax.SyntaxNode], read: _Read) -> _Read:
    """Return what reads a list of two as a node."""
    return lambda item: kind(*_take_all(read, 2, 2)(item), span=item.span)


def _take_object(
    item: JsonValue, what: str, known: Iterable[str] | None = None, required: Iterable[str] = ()
) -> dict[str, JsonValue]:
    """Return the values of an object by key; `known` are those that it may have, None for any."""
    if not isinstance(item.value, dict):
        raise _refuse(item, f"an object: {what},")
    for key, member in item.value.items():
        if known is not None and key not in known:
            raise LanguageError.at_span(
                f'unknown key "{key}"', member.key, suggestions=suggest_names(key, known)
            )
    for key in required:
        if key not in item.value:
            raise LanguageError.at_span(f'"{key}" is missing', item.span)
    return item.value


def _take_fields(
    item: JsonValue, what: str, readers: Mapping[str, _Read], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of an object, each read by the reader of its key."""
    members = _take_object(item, what, readers, required)
    return {key: readers[key](member) for key, member in members.items()}


def _read_aggregator(item: JsonValue) -> syntax.Aggregator:
    if isinstance(item.value, str):
        return syntax.Aggregator(item.value, span=item.span)
    readers = {"name": _take_string, "arguments": _take_all(_take_quantity)}
    return syntax.Aggregator(
        **_take_fields(item, "an aggregator", readers, ("name",)), span=item.span
    )


def _read_rule(item: JsonValue) -> syntax.SugenoRule:
    pair, slopes = _take_all(_take_count, 2, 2), _take_all(_take_scalar, 2, 2)
    readers = {"pair": pair, "constant": _take_scalar, "slopes": slopes}
    fields = _take_fields(item, "a rule", readers, ("pair", "constant"))
    return syntax.SugenoRule(*fields.pop("pair"), **fields, span=item.span)


def _read_recent(item: JsonValue) -> syntax.Recent:
    if isinstance(item.value, str):
        return syntax.Recent(item.value, span=item.span)
    readers = {"within": _take_quantity, "gone": _take_quantity}
    fields = _take_fields(item, "a phrase or durations", readers, ("within",))
    return syntax.Recent(**fields, span=item.span)


def _read_dead_band(item: JsonValue) -> syntax.DeadBand:
    readers = {"attribute": _take_name, "width": _take_quantity}
    return syntax.DeadBand(**_take_fields(item, "a dead band", readers, readers), span=item.span)


# The fields of a subscription besides its condition, in the order in which they are written.
_OPTIONS: dict[str, _Read] = {
    "event": _take_name,
    "name": _take_name,
    "aggregator": _read_aggregator,
    **dict.fromkeys(lexicon.SCALARS, _take_scalar),
    **dict.fromkeys(lexicon.DURATIONS, _take_quantity),
    "rules": _take_all(_read_rule),
    "recent": _read_recent,
    "prefer": _take_all(_take_pair(syntax.Prefer, _take_name)),
    "dead_bands": _take_all(_read_dead_band),
    "persistence": _take_pair(syntax.Persistence, _take_scalar),
    "why": _take_flag,
    "whole": _take_flag,
}
_OPERATORS = tuple(operator.value for operator in syntax.Operator)
_CONSTRAINTS = ("is", *_OPERATORS, "between", "about", "shape", "extension")
# What stands beside the key of a constraint.
_PARTNERS = {"about": "within", "shape": "points", "extension": "arguments"}
_PREDICATE: dict[str, _Read] = {
    "attribute": _take_name,
    "negated": _take_flag,
    "hedges": _take_all(_take_hedge),
    **dict.fromkeys(lexicon.LIMITS, _take_scalar),
    "recent": _read_recent,
}


def parse_json(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription of a JSON text; LanguageError points at what is wrong."""
    source = parse_source(text)
    reader = _ConditionReader(registry or load_registry())
    readers: dict[str, _Read] = {"when": reader.read, **_OPTIONS}
    if "when" not in _take_object(source, "a subscription", readers):
        raise LanguageError.at_span('"when" is missing: the condition', source.span)
    fields = _take_fields(source, "a subscription", readers)
    return syntax.SubscriptionTree(fields.pop("when"), **fields, span=source.span)


class _ConditionReader:
    def __init__(self, registry: PluginRegistry) -> None:
        self.registry = registry

    def read(self, item: JsonValue) -> syntax.Condition:
        members = _take_object(item, "a condition")
        joint = next((key for key in members if key in ("and", "or", "not")), None)
        if joint is None:
            return self.read_predicate(item, members)
        for key, member in members.items():
            if key != joint:
                raise LanguageError.at_span(f'"{key}" is not allowed beside "{joint}"', member.key)
        if joint == "not":
            return syntax.Not(self.read(members[joint]), span=item.span)
        operands = _take_all(self.read, 2)(members[joint])
        return (syntax.And if joint == "and" else syntax.Or)(operands, span=item.span)

    def read_predicate(
        self, item: JsonValue, members: dict[str, JsonValue]
    ) -> syntax.PredicateNode:
        if "attribute" not in members:
            raise LanguageError.at_span(
                '"attribute" is missing', item.span, 'or "and", "or", "not" with conditions'
            )
        known = (*_CONSTRAINTS, *self.registry.predicates)
        said = [key for key in members if key in known]
        if len(said) != 1:
            _take_object(item, "a predicate", (*_PREDICATE, *known))
            raise LanguageError.at_span(
                f"{len(said)} constraints, one is expected: {join_choices(known)}", item.span
            )
        key, partner = said[0], _PARTNERS.get(said[0], said[0])
        required = () if key == "about" else (partner,)
        _take_object(item, "a predicate", (*_PREDICATE, key, partner), required)
        constraint = self.read_constraint(key, members[key], members.get(partner))
        fields = {name: read(members[name]) for name, read in _PREDICATE.items() if name in members}
        return syntax.PredicateNode(constraint=constraint, **fields, span=item.span)

    def read_constraint(
        self, key: str, item: JsonValue, partner: JsonValue | None
    ) -> syntax.Constraint:
        if key == "is":
            return syntax.NamedTerm(_take_name(item), span=item.span)
        if key in _OPERATORS:
            return syntax.CrispComparison(syntax.Operator(key), _take_value(item), span=item.span)
        if key == "between":
            found: syntax.CrispRange = _take_pair(syntax.CrispRange, _take_value)(item)
            return found
        if key == "about":
            spread = None if partner is None else _take_quantity(partner)
            return syntax.About(_take_value(item), spread, span=item.span)
        if partner is not None and key in _PARTNERS:
            kind = syntax.Shape if key == "shape" else syntax.Extension
            return kind(_take_string(item), _take_all(_take_value)(partner), span=item.span)
        return self.read_extension(key, item)

    def read_extension(self, name: str, item: JsonValue) -> syntax.Extension:
        """Read a plug-in's constraint: its arguments by the names of its parameters."""
        plugin = self.registry.predicates[name]
        known = [parameter.name for parameter in plugin.parameters]
        members = _take_object(item, f'the arguments of "{name}"', known)
        given = order_arguments(plugin, members, item.span)
        arguments = tuple(_take_value(members[key]) for key in given)
        return syntax.Extension(name, arguments, span=item.span)


# Syntax tree to JSON -----------------------------------------------------------------------------


def print_json(
    subscription: syntax.SubscriptionTree, registry: PluginRegistry | None = None
) -> str:
    """Return the subscription as JSON: `parse_json(print_json(tree)) == tree`."""
    return json.dumps(to_document(subscription, registry), ensure_ascii=False, allow_nan=False)


def to_document(
    subscription: syntax.SubscriptionTree, registry: PluginRegistry | None = None
) -> dict[str, Any]:
    """Return the subscription as plain dictionaries and lists, as JSON has them."""
    condition = _write_condition(subscription.condition, registry or load_registry())
    return {"when": condition} | _write_fields(subscription, _OPTIONS)


def _write_fields(node: syntax.SyntaxNode, fields: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a node that say something."""
    found = ((field, getattr(node, field)) for field in fields)
    return {field: _write(value) for field, value in found if value not in (None, (), False)}


def _write(node: Any) -> Any:
    """Return a field of a subscription or a predicate as JSON has it."""
    match node:
        case tuple():
            return list(map(_write, node))
        case syntax.Name(text=text) | syntax.Recent(phrase=str(text)):
            return text
        case syntax.Scalar(value=number) | syntax.Quantity(value=number, unit=None):
            return int(number) if number == int(number) and abs(number) < 1e15 else number
        case syntax.Text(value=text):
            return text if lexicon.write_value(node) == text else {"text": text}
        case syntax.Quantity() | syntax.Moment():
            return lexicon.write_value(node)
        case syntax.Aggregator(arguments=()):
            return node.name
        case syntax.Aggregator():
            return _write_fields(node, ("name", "arguments"))
        case syntax.SugenoRule():
            rest = _write_fields(node, ("constant", "slopes"))
            return {"pair": [node.first, node.second]} | rest
        case syntax.Recent():
            return _write_fields(node, ("within", "gone"))
        case syntax.Prefer():
            return [node.better.text, node.worse.text]
        case syntax.DeadBand():
            return _write_fields(node, ("attribute", "width"))
        case syntax.Persistence():
            return [_write(node.hits), _write(node.window)]
    return node  # texts, hedges and flags


def _write_condition(condition: syntax.Condition, registry: PluginRegistry) -> dict[str, Any]:
    match condition:
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            joint = "and" if isinstance(condition, syntax.And) else "or"
            return {joint: [_write_condition(operand, registry) for operand in operands]}
        case syntax.Not(operand=operand):
            return {"not": _write_condition(operand, registry)}
        case syntax.PredicateNode():
            return (
                _write_fields(condition, ("attribute", "negated", "hedges"))
                | _write_constraint(condition.constraint, registry)
                | _write_fields(condition, (*lexicon.LIMITS, "recent"))
            )


def _write_constraint(constraint: syntax.Constraint, registry: PluginRegistry) -> dict[str, Any]:
    match constraint:
        case syntax.NamedTerm(name=name):
            return {"is": name.text}
        case syntax.CrispComparison(operator=operator, value=value):
            return {operator.value: _write(value)}
        case syntax.CrispRange(low=low, high=high):
            return {"between": [_write(low), _write(high)]}
        case syntax.About(value=value, spread=spread):
            within = {} if spread is None else {"within": _write(spread)}
            return {"about": _write(value)} | within
        case syntax.Shape(kind=kind, points=points):
            return {"shape": kind, "points": _write(points)}
        case syntax.Extension(name=called, arguments=arguments):
            plugin = registry.predicates.get(called)
            if plugin is None or len(arguments) > len(plugin.parameters):
                return {"extension": called, "arguments": _write(arguments)}
            names = [parameter.name for parameter in plugin.parameters]
            return {called: dict(zip(names, _write(arguments), strict=False))}
