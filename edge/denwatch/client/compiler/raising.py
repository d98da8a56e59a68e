"""Core syntax back to plug-in predicates: the contrary of lowering, for people who read vectors.

A predicate type that lowers to two predicates may have a method `recognise`, see
`client.plugins.Recogniser`. What it proposes is a proposal: the decompiler compiles the result
and drops it if the bytes differ.
"""

from __future__ import annotations

from dataclasses import replace

from denwatch.client.errors import LanguageError
from denwatch.client.plugins import PluginRegistry, Recogniser
from denwatch.client.syntax import And, Condition, Not, Or, PredicateNode
from denwatch.client.vocabulary import EventType


def raise_condition(condition: Condition, event: EventType, registry: PluginRegistry) -> Condition:
    """Return the condition with pairs of predicates replaced by what plug-ins see in them."""
    if isinstance(condition, PredicateNode):
        return condition
    if isinstance(condition, Not):
        return Not(raise_condition(condition.operand, event, registry))
    operands = [raise_condition(operand, event, registry) for operand in condition.operands]
    raised = _raise_pairs(operands, isinstance(condition, Or), event, registry)
    if len(raised) == 1:
        return raised[0]
    return Or(tuple(raised)) if isinstance(condition, Or) else And(tuple(raised))


def _raise_pairs(
    operands: list[Condition], is_or: bool, event: EventType, registry: PluginRegistry
) -> list[Condition]:
    """Return the operands with the first pair replaced that a plug-in recognises, and so on.

    "Neither of two" is the contrary of "one of two": under "and" the pair is turned over.
    """
    for i, first in enumerate(operands):
        for j, second in enumerate(operands):
            if (
                i == j
                or not isinstance(first, PredicateNode)
                or not isinstance(second, PredicateNode)
            ):
                continue
            found = _recognise((first, second), not is_or, event, registry)
            if found is not None:
                rest = [o for k, o in enumerate(operands) if k not in (i, j)]
                return _raise_pairs([*rest, found], is_or, event, registry)
    return operands


def _recognise(
    pair: tuple[PredicateNode, PredicateNode],
    turned: bool,
    event: EventType,
    registry: PluginRegistry,
) -> PredicateNode | None:
    if pair[0].attribute != pair[1].attribute or any(map(_is_dressed, pair)):
        return None
    first, second = (replace(p, negated=p.negated != turned) for p in pair)
    attribute = event.attributes[first.attribute.text]
    for extension in registry.predicates.values():
        if isinstance(extension, Recogniser):
            try:
                constraint = extension.recognise((first, second), attribute)
            except LanguageError:
                continue
            if constraint is not None:
                return PredicateNode(first.attribute, constraint, negated=turned)
    return None


def _is_dressed(predicate: PredicateNode) -> bool:
    """Return whether a predicate has something that belongs to it alone."""
    return any((predicate.hedges, predicate.possible, predicate.certain, predicate.weight))
