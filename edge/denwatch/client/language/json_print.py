"""Syntax tree to JSON: `parse_json(print_json(tree)) == tree`."""

from __future__ import annotations

import json
from typing import Any

from denwatch.client.language.values import (
    DURATIONS,
    LIMITS,
    SCALARS,
    write_quantity,
    write_value,
)
from denwatch.client.plugins import PluginRegistry, load_registry
from denwatch.client.syntax import (
    About,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    Extension,
    Moment,
    NamedTerm,
    Not,
    Or,
    PredicateNode,
    Recent,
    Shape,
    SubscriptionTree,
    SugenoRule,
    Text,
    Value,
)


def print_json(
    subscription: SubscriptionTree,
    registry: PluginRegistry | None = None,
    indent: int | None = None,
) -> str:
    """Return the subscription as JSON: `parse_json(print_json(tree)) == tree`."""
    document = to_document(subscription, registry)
    return json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)


def to_document(
    subscription: SubscriptionTree, registry: PluginRegistry | None = None
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


def _write_condition(condition: Condition, registry: PluginRegistry) -> dict[str, Any]:
    match condition:
        case And(operands=operands):
            return {"and": [_write_condition(operand, registry) for operand in operands]}
        case Or(operands=operands):
            return {"or": [_write_condition(operand, registry) for operand in operands]}
        case Not(operand=operand):
            return {"not": _write_condition(operand, registry)}
        case PredicateNode():
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


def _write_constraint(constraint: Constraint, registry: PluginRegistry) -> dict[str, Any]:
    match constraint:
        case NamedTerm(name=name):
            return {"is": name.text}
        case CrispComparison(operator=operator, value=value):
            return {operator.value: _write_value(value)}
        case CrispRange(low=low, high=high):
            return {"between": [_write_value(low), _write_value(high)]}
        case About(value=value, spread=spread):
            within = {} if spread is None else {"within": _write_value(spread)}
            return {"about": _write_value(value)} | within
        case Shape(kind=kind, points=points):
            return {"shape": kind, "points": list(map(_write_value, points))}
        case Extension(name=name, arguments=arguments):
            values = list(map(_write_value, arguments))
            plugin = registry.predicates.get(name)
            if plugin is None or len(values) > len(plugin.parameters):
                return {"extension": name, "arguments": values}
            names = [parameter.name for parameter in plugin.parameters]
            return {name: dict(zip(names, values, strict=False))}


def _write_rule(rule: SugenoRule) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pair": [rule.first, rule.second],
        "constant": _write_number(rule.constant.value),
    }
    if rule.slopes is not None:
        document["slopes"] = [_write_number(slope.value) for slope in rule.slopes]
    return document


def _write_recent(recent: Recent) -> str | dict[str, Any]:
    if recent.phrase is not None:
        return recent.phrase
    durations = (("within", recent.within), ("gone", recent.gone))
    return {key: _write_value(value) for key, value in durations if value is not None}


def _write_value(value: Value) -> Any:
    if isinstance(value, Text):
        text = write_value(value)
        return text if text == value.value else {"text": value.value}
    if isinstance(value, Moment):
        return write_value(value)
    return _write_number(value.value) if value.unit is None else write_quantity(value)


def _write_number(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < 1e15 else value
