"""Names to attributes, plug-ins to core syntax: the tree before anything is fitted.

After `lower` a condition holds core constraints only, and every predicate has its attribute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from denwatch.client.compiler.drafts import Draft, check_hedges, encode_hedges
from denwatch.client.compiler.sets import ConstraintReader
from denwatch.client.compiler.settings import encode_thresholds
from denwatch.client.compiler.structure import Connective, Inverse, Leaf, Tree
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.plugins import PluginRegistry, check_arguments, find_extension
from denwatch.client.syntax import (
    AGGREGATORS,
    And,
    Condition,
    Extension,
    Hedge,
    Name,
    NamedTerm,
    Not,
    Or,
    PredicateNode,
    SubscriptionTree,
    SugenoRule,
    iterate_predicates,
)
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary
from denwatch.protocol.vectors import MAX_PREDICATES

MAX_DEPTH = 64


@dataclass(frozen=True)
class Plan:
    """A condition in core syntax with its core aggregator and rules."""

    condition: Condition
    aggregator: str | None
    rules: tuple[SugenoRule, ...]


def resolve_event(
    tree: SubscriptionTree, vocabulary: Vocabulary, organisation: str | None
) -> EventType:
    """Return the event that is named, or the one that has all attributes."""
    if tree.event is not None:
        return vocabulary.find_event(tree.event, organisation)
    names = [p.attribute for p in iterate_predicates(tree.condition)]
    common: dict[str, None] | None = None
    for name in names:
        events = [a.event for a in vocabulary.find_attributes(name, None, organisation)]
        kept = dict.fromkeys(e for e in events if common is None or e in common)
        if not kept and common is not None:
            raise LanguageError.at_node(
                f'"{name.text}" belongs to event {" or ".join(events)}, '
                f"what stands before it to {' or '.join(common)}",
                name,
                "a subscription is about one event",
            )
        common = kept
    if not common:
        raise LanguageError.at_node("a subscription needs a predicate", tree)
    if len(common) > 1:
        raise LanguageError.at_node(
            f'"{names[0].text}" is an attribute of several events',
            names[0],
            f"say which: event {', '.join(common)}",
        )
    return vocabulary.events[next(iter(common))]


def resolve_attribute(
    name: Name, event: EventType, vocabulary: Vocabulary, organisation: str | None
) -> Attribute:
    """Return the event's attribute of a name."""
    return vocabulary.find_attributes(name, event, organisation)[0]


def lower_aggregator(tree: SubscriptionTree, registry: PluginRegistry) -> Plan:
    """Return the condition with the aggregator that the core has for it."""
    aggregator = tree.aggregator
    if aggregator is None or aggregator.name in AGGREGATORS:
        if aggregator is not None and aggregator.arguments:
            raise LanguageError.at_node(f"{aggregator.name} takes no arguments", aggregator)
        return Plan(tree.condition, aggregator.name if aggregator else None, tree.rules)
    known = registry.aggregators
    if aggregator.name not in known:
        raise LanguageError.at_node(
            f'unknown aggregator "{aggregator.name}"',
            aggregator,
            suggestions=suggest_names(aggregator.name, [*AGGREGATORS, *known]),
        )
    extension = find_extension(known, aggregator.name, "aggregator", aggregator)
    check_arguments(extension, aggregator.arguments, aggregator)
    if tree.rules:
        raise LanguageError.at_node(f"{aggregator.name} takes no rules", tree.rules[0])
    condition = tree.condition
    operands = condition.operands if isinstance(condition, And) else (condition,)
    lowered = extension.lower(operands, aggregator.arguments)
    return Plan(lowered.condition, lowered.aggregator, lowered.rules)


class Lowerer:
    """Collects the predicates of a condition as drafts while it rewrites the tree."""

    def __init__(self, reader: ConstraintReader, event: EventType) -> None:
        self.reader = reader
        self.event = event
        self.drafts: list[Draft] = []

    def lower(self, condition: Condition, depth: int = 0) -> Tree:
        """Return the tree over the numbers of drafts."""
        if depth > MAX_DEPTH:
            raise LanguageError.at_node("nested too deeply", condition)
        match condition:
            case PredicateNode():
                return self._lower_predicate(condition, depth)
            case Not(operand=operand):
                return Inverse(self.lower(operand, depth + 1))
            case And(operands=operands) | Or(operands=operands):
                if not operands:
                    raise LanguageError.at_node("nothing to join", condition)
                parts = tuple(self.lower(operand, depth + 1) for operand in operands)
                return Connective(isinstance(condition, Or), parts)

    def _lower_predicate(self, predicate: PredicateNode, depth: int) -> Tree:
        vocabulary, organisation = self.reader.vocabulary, self.reader.organisation
        attribute = resolve_attribute(predicate.attribute, self.event, vocabulary, organisation)
        if isinstance(predicate.constraint, Extension):
            return self._lower_extension(predicate, predicate.constraint, attribute, depth)
        predicate = self._resolve_derived(predicate, attribute)
        hedge, power = encode_hedges(predicate.hedges)
        possible, certain = encode_thresholds(predicate.possible, predicate.certain)
        meaning = self.reader.read(predicate, attribute)
        draft = Draft(predicate, attribute, meaning, hedge, power, possible, certain)
        check_hedges(draft)
        if len(self.drafts) >= 4 * MAX_PREDICATES:
            raise LanguageError.at_node(
                f"too many predicates: a vector holds {MAX_PREDICATES}", predicate
            )
        self.drafts.append(draft)
        return Leaf(len(self.drafts) - 1, draft.negated)

    def _resolve_derived(self, predicate: PredicateNode, attribute: Attribute) -> PredicateNode:
        """Return a term that is defined by a hedge as that hedge of its base, which is exact."""
        while isinstance(predicate.constraint, NamedTerm) and attribute.kind is not ValueKind.TEXT:
            name = predicate.constraint.name
            term = self.reader.vocabulary.find_term(attribute, name, self.reader.organisation)
            if term is None or term.base is None:
                break
            hedges = predicate.hedges + tuple(Hedge(word) for word in term.hedges)
            constraint = NamedTerm(Name(term.base, span=name.span), span=predicate.constraint.span)
            predicate = replace(predicate, hedges=hedges, constraint=constraint)
        return predicate

    def _lower_extension(
        self, predicate: PredicateNode, constraint: Extension, attribute: Attribute, depth: int
    ) -> Tree:
        known = self.reader.registry.predicates
        extension = find_extension(known, constraint.name, "predicate", constraint)
        check_arguments(extension, constraint.arguments, constraint)
        bare = PredicateNode(predicate.attribute, constraint, span=predicate.span)
        lowered = extension.lower(bare, attribute)
        extras = {
            "hedges": predicate.hedges,
            "possible": predicate.possible,
            "certain": predicate.certain,
            "weight": predicate.weight,
        }
        if isinstance(lowered, PredicateNode) and not lowered.negated:
            lowered = replace(lowered, **{k: v for k, v in extras.items() if v})  # type: ignore[arg-type]
            return self.lower(replace(lowered, negated=predicate.negated), depth + 1)
        if any(extras.values()):
            raise LanguageError.at_node(
                f'"{constraint.name}" becomes several predicates here, so hedges, thresholds and '
                "weights have no place on it",
                predicate,
            )
        tree = self.lower(lowered, depth + 1)
        return Inverse(tree) if predicate.negated else tree
