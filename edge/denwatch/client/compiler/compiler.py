"""The compiler: a syntax tree and a vocabulary to a subscription vector. README.md has the theory.

`compile_subscription` reads top to bottom: resolve the event, lower the condition to predicates
with their attributes (second half of this file), bring and/or/not to a normal form (`structure`),
fit every predicate (`constraints`, `fit`), encode all else (`settings`). Only this file decides
what depends on the whole subscription: which thresholds matter to which predicate, and whether a
shorter vector is worth an approximation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from denwatch.client import plugins, syntax
from denwatch.client.compiler import fit, settings, structure
from denwatch.client.compiler.constraints import ConstraintReader
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, EventType, Fit, Vocabulary
from denwatch.protocol import degrees, vectors
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import MAX_PREDICATES

KINDS = {
    "minimum": degrees.MIN,
    "maximum": degrees.MAX,
    "product": degrees.PRODUCT,
    "arithmetic_mean": degrees.ARITHMETIC,
    "geometric_mean": degrees.GEOMETRIC,
    "harmonic_mean": degrees.HARMONIC,
    "weighted_mean": degrees.WEIGHTED,
}
# A vector of three predicates is to fit the DENS paper's 17 bytes.
COMPACT_PREDICATES = 3
COMPACT_LENGTH = 17
_WORTH_TELLING = 0.01


def compile_subscription(
    tree: syntax.SubscriptionTree,
    vocabulary: Vocabulary,
    *,
    organisation: str | None = None,
    registry: plugins.PluginRegistry | None = None,
    handle: int = 0,
    compact: bool = True,
) -> settings.CompiledSubscription:
    """Return the vector of a subscription; LanguageError says what is wrong and where.

    `organisation` is whose synonyms go first. With `compact`, hedges and second slopes are fitted
    away if that brings up to three predicates down to 17 bytes.
    """
    registry = plugins.load_registry() if registry is None else registry
    vocabulary = vocabulary.prefer(organisation)
    event = resolve_event(tree, vocabulary)
    work = _Compilation(tree, event, vocabulary, registry)
    vector, fits = work.build(handle)
    data = codec.encode(vector)
    if compact and len(data) > COMPACT_LENGTH:
        vector, fits, data = work.compact(vector, fits, data)
    work.check_emptiness(fits)
    report = work.report + work.describe_fits(fits)
    options = settings.read_options(tree)
    return settings.CompiledSubscription(
        vector, data, tuple(report), options, event, vocabulary.hash
    )


class _Compilation:
    """One compilation: what is known after lowering, and how predicates become a vector."""

    def __init__(
        self,
        source: syntax.SubscriptionTree,
        event: EventType,
        vocabulary: Vocabulary,
        registry: plugins.PluginRegistry,
    ) -> None:
        self.source = source
        self.event = event
        self.vocabulary = vocabulary
        self.report: list[settings.Approximation] = []
        plan = lower_aggregator(source, registry)
        lowerer = Lowerer(ConstraintReader(vocabulary, registry), event)
        tree = lowerer.lower(plan.condition)
        self.drafts = lowerer.drafts
        self.restrictors = lowerer.restrictors
        self.rules = plan.rules
        self.kind = self._choose_kind(plan)
        if self.kind == degrees.WEIGHTED:
            self.drafts = settings.encode_weights(self.drafts, self.report)
        if self.kind in (degrees.WEIGHTED, degrees.SUGENO):
            _check_flat(tree, self.drafts, self.kind)
        if self.kind == degrees.MAX:
            tree = structure.turn_to_or(tree)
        if not structure.has_and(tree) and self.kind not in (degrees.WEIGHTED, degrees.SUGENO):
            self.kind = degrees.MIN  # nothing is aggregated: "or" and "not" are all there is
        self.tree = structure.push_negations(
            tree, self.kind, lambda i: self.drafts[i].has_thresholds
        )
        self.possible, self.certain = settings.encode_overall(source)
        self.is_lattice = self.kind == degrees.MIN
        self.levels = structure.find_levels(
            self.tree,
            lambda i: (self.drafts[i].possible, self.drafts[i].certain),
            (self.possible, self.certain),
            self.is_lattice,
        )

    def _choose_kind(self, plan: plugins.Lowered) -> int:
        weighted = next((d.source.weight for d in self.drafts if d.source.weight), None)
        if plan.rules:
            if plan.aggregator is not None:
                raise LanguageError.at_node(
                    "rules have their own aggregator, the fuzzy mean", self.source.aggregator
                )
            kind = degrees.SUGENO
        elif plan.aggregator is None:
            kind = degrees.WEIGHTED if weighted else degrees.MIN
        else:
            kind = KINDS[plan.aggregator]
        if weighted and kind != degrees.WEIGHTED:
            raise LanguageError.at_node("weights are for the weighted mean only", weighted)
        return kind

    def wires(self, fits: Mapping[structure.Leaf, Fit]) -> dict[structure.Leaf, vectors.Predicate]:
        """Return the wire's predicate of each leaf."""
        return {
            leaf: fit.build_predicate(self.drafts[leaf.index], fitted, leaf.negated)
            for leaf, fitted in fits.items()
        }

    def build(self, handle: int) -> tuple[vectors.SubscriptionVector, dict[structure.Leaf, Fit]]:
        """Return the exact vector: hedges as hedges, sides as they are."""
        fits = {
            leaf: fit.fit_draft(self.drafts[leaf.index], self.levels[leaf]) for leaf in self.levels
        }
        return self._assemble(fits, handle, self.report), fits

    def compact(
        self, vector: vectors.SubscriptionVector, fits: dict[structure.Leaf, Fit], data: bytes
    ) -> tuple[vectors.SubscriptionVector, dict[structure.Leaf, Fit], bytes]:
        """Return a vector of 17 bytes at most, if fitting away hedges or slopes gives one."""
        if len(vector.predicates) > COMPACT_PREDICATES:
            return vector, fits, data
        for symmetric in (False, True) if self.is_lattice else (False,):
            shorter: dict[structure.Leaf, Fit] = {}
            for leaf, exact in fits.items():
                fitted = fit.fit_away(self.drafts[leaf.index], exact, self.levels[leaf], symmetric)
                shorter[leaf] = exact if fitted is None else fitted
            candidate = self._assemble(shorter, vector.handle, [])
            encoded = codec.encode(candidate)
            if len(encoded) <= COMPACT_LENGTH:
                return candidate, shorter, encoded
        return vector, fits, data

    def _assemble(
        self, fits: Mapping[structure.Leaf, Fit], handle: int, report: list[settings.Approximation]
    ) -> vectors.SubscriptionVector:
        wires = self.wires(fits)
        layout = self._lay_out(wires)
        features = {p.attribute for p in layout.predicates}
        used = [self.event.by_bit[bit] for bit in sorted(features)]
        threshold = max(self.possible, self.certain)
        consequents = None
        if self.kind == degrees.SUGENO:
            consequents = self._encode_rules(wires, layout, report)
        predicates = list(layout.predicates)
        if layout.kind != degrees.WEIGHTED:
            for p in predicates:
                p.weight = 1
        try:
            return vectors.SubscriptionVector(
                event=self.event.number,
                predicates=predicates,
                aggregator=layout.kind,
                threshold=self.possible,
                certain=self.certain,
                handle=handle,
                validity=settings.encode_time(self.source.valid_for, "valid for", report),
                pattern=layout.pattern,
                why=self.source.why,
                recent=settings.encode_recent(self.source.recent, self.vocabulary, report),
                significance=settings.encode_significance(
                    self.source, self._find_bands(features), used, threshold, report
                ),
                consequents=consequents,
                restrictors=self._encode_restrictors(used, threshold, report),
            )
        except ProtocolError as error:
            raise LanguageError.at_node(
                f"this does not fit into a vector: {error.what}", self.source
            ) from None

    def _lay_out(self, wires: Mapping[structure.Leaf, vectors.Predicate]) -> structure.Layout:
        try:
            return structure.lay_out(self.tree, wires, self.kind)
        except LanguageError as error:
            drafts = self.drafts
            extra = drafts[vectors.MAX_PREDICATES] if len(drafts) > vectors.MAX_PREDICATES else None
            raise LanguageError.at_node(
                f"too many predicates: {error.message}" if extra else error.message,
                extra.source if extra else self.source,
            ) from None

    def _encode_rules(
        self,
        wires: Mapping[structure.Leaf, vectors.Predicate],
        layout: structure.Layout,
        report: list[settings.Approximation],
    ) -> list[tuple[int, ...]]:
        order = [id(p) for p in layout.predicates]
        places = {leaf.index + 1: order.index(id(p)) for leaf, p in wires.items()}
        attributes = [self.event.by_bit[p.attribute] for p in layout.predicates]
        return settings.encode_rules(self.rules, places, attributes, report)

    def _encode_restrictors(
        self, used: Sequence[Attribute], threshold: int, report: list[settings.Approximation]
    ) -> bytes:
        """Return a duration code for each attribute; nothing if no predicate has a restrictor."""
        found = [self.restrictors.get(attribute.bit) for attribute in used]
        if not any(found):
            return b""
        return bytes(
            settings.encode_restrictor(one, self.vocabulary, threshold, report) if one else 0
            for one in found
        )

    def _find_bands(self, features: set[int]) -> dict[int, syntax.Quantity]:
        bands: dict[int, syntax.Quantity] = {}
        for band in self.source.dead_bands:
            (attribute,) = self.vocabulary.find_attributes(band.attribute, self.event)
            if attribute.bit not in features:
                raise LanguageError.at_node(
                    f"{attribute.name} has a dead band but no predicate", band.attribute
                )
            if attribute.bit in bands:
                raise LanguageError.at_node(
                    f"{attribute.name} has a dead band already", band.attribute
                )
            bands[attribute.bit] = band.width
        return bands

    def check_emptiness(self, fits: Mapping[structure.Leaf, Fit]) -> None:
        """Raise LanguageError at the predicate that lets nothing match."""
        threshold = max(self.possible, self.certain)
        leaf = structure.EmptinessSearch(self.kind, self.wires(fits)).find(self.tree, threshold)
        if leaf is not None:
            draft = self.drafts[leaf.index]
            raise LanguageError.at_node(
                f"empty set: no value of {draft.attribute.name} can satisfy this",
                draft.source,
                "the subscription can never match",
            )

    def describe_fits(self, fits: Mapping[structure.Leaf, Fit]) -> list[settings.Approximation]:
        """Return what a person should know about the fits."""
        found = {}
        for leaf, fitted in fits.items():
            if fitted.error > _WORTH_TELLING or fitted.message:
                draft = self.drafts[leaf.index]
                message = fitted.message or "rounded to the steps of the attribute"
                error = fitted.error if fitted.error > _WORTH_TELLING else None
                entry = settings.Approximation(
                    draft.attribute.name, message, error, draft.source.span
                )
                found[leaf.index, fitted] = entry
        return list(found.values())


def _check_flat(tree: structure.Tree, drafts: Sequence[fit.Draft], kind: int) -> None:
    """Raise LanguageError unless the condition is predicates joined by "and"."""
    operands = (
        tree.operands if isinstance(tree, structure.Connective) and not tree.is_or else (tree,)
    )
    if not all(isinstance(operand, structure.Leaf) for operand in operands):
        what = "a weighted mean" if kind == degrees.WEIGHTED else "rules"
        raise LanguageError.at_node(
            f'{what} can join predicates by "and" only',
            drafts[0].source,
            "without or, without nesting",
        )


# Names to attributes, plug-ins to core syntax: the tree before anything is fitted.
#
# After `lower` a condition holds core constraints only, and every predicate has its attribute.

MAX_DEPTH = 64


def resolve_event(tree: syntax.SubscriptionTree, vocabulary: Vocabulary) -> EventType:
    """Return the event that is named, or the one that has all attributes."""
    if tree.event is not None:
        return vocabulary.find_event(tree.event)
    names = [p.attribute for p in syntax.iterate_predicates(tree.condition)]
    if not names:
        raise LanguageError.at_node("a subscription needs a predicate", tree)
    return vocabulary.find_common_event(names, "add one of them: event")


def lower_aggregator(
    tree: syntax.SubscriptionTree, registry: plugins.PluginRegistry
) -> plugins.Lowered:
    """Return the condition with the aggregator that the core has for it."""
    aggregator = tree.aggregator
    if aggregator is None or aggregator.name in syntax.AGGREGATORS:
        if aggregator is not None and aggregator.arguments:
            raise LanguageError.at_node(f"{aggregator.name} takes no arguments", aggregator)
        return plugins.Lowered(tree.condition, aggregator.name if aggregator else None, tree.rules)
    known = registry.aggregators
    if aggregator.name not in known:
        names = (*syntax.AGGREGATORS, *known)
        raise LanguageError.of_unknown("unknown aggregator", aggregator.name, names, aggregator)
    extension = known[aggregator.name]
    plugins.check_arguments(extension, aggregator.arguments, aggregator)
    if tree.rules:
        raise LanguageError.at_node(f"{aggregator.name} takes no rules", tree.rules[0])
    condition = tree.condition
    operands = condition.operands if isinstance(condition, syntax.And) else (condition,)
    return extension.lower(operands, aggregator.arguments)


@dataclass
class Lowerer:
    """Collects the predicates of a condition as drafts while it rewrites the tree."""

    reader: ConstraintReader
    event: EventType
    drafts: list[fit.Draft] = field(default_factory=list)
    restrictors: dict[int, syntax.Recent] = field(default_factory=dict)  # by attribute

    def lower(self, condition: syntax.Condition, depth: int = 0) -> structure.Tree:
        """Return the tree over the numbers of drafts."""
        if depth > MAX_DEPTH:
            raise LanguageError.at_node("nested too deeply", condition)
        match condition:
            case syntax.PredicateNode():
                return self._lower_predicate(condition, depth)
            case syntax.Not(operand=operand):
                return structure.Inverse(self.lower(operand, depth + 1))
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                if not operands:
                    raise LanguageError.at_node("nothing to join", condition)
                parts = tuple(self.lower(operand, depth + 1) for operand in operands)
                return structure.Connective(isinstance(condition, syntax.Or), parts)

    def _lower_predicate(self, predicate: syntax.PredicateNode, depth: int) -> structure.Tree:
        vocabulary = self.reader.vocabulary
        (attribute,) = vocabulary.find_attributes(predicate.attribute, self.event)
        recent = predicate.recent
        if recent is not None and self.restrictors.setdefault(attribute.bit, recent) != recent:
            raise LanguageError.at_node(
                f"{attribute.name} has two temporal restrictors",
                recent,
                "an attribute has one last reading, so one restrictor is enough",
            )
        if isinstance(predicate.constraint, syntax.Extension):
            return self._lower_extension(predicate, predicate.constraint, attribute, depth)
        predicate = self._resolve_derived(predicate, attribute)
        hedge, power = fit.encode_hedges(predicate.hedges)
        possible, certain = settings.encode_thresholds(predicate.possible, predicate.certain)
        meaning = self.reader.read(predicate, attribute)
        draft = fit.Draft(predicate, attribute, meaning, hedge, power, possible, certain)
        if predicate.hedges and draft.is_crisp:
            raise LanguageError.at_node(
                f'"{predicate.hedges[0]}" needs a fuzzy set',
                predicate,
                "a crisp comparison is true or false",
            )
        if len(self.drafts) >= 4 * MAX_PREDICATES:
            raise LanguageError.at_node(
                f"too many predicates: a vector stores at most {MAX_PREDICATES}", predicate
            )
        self.drafts.append(draft)
        return structure.Leaf(len(self.drafts) - 1, draft.negated)

    def _resolve_derived(
        self, predicate: syntax.PredicateNode, attribute: Attribute
    ) -> syntax.PredicateNode:
        """Return a term that is defined by a hedge as that hedge of its base, which is exact."""
        while isinstance(predicate.constraint, syntax.NamedTerm):
            name = predicate.constraint.name
            term = self.reader.vocabulary.find_term(attribute, name)
            if term is None or term.base is None:
                break
            hedges = predicate.hedges + tuple(syntax.Hedge(word) for word in term.hedges)
            constraint = syntax.NamedTerm(
                syntax.Name(term.base, span=name.span), span=predicate.constraint.span
            )
            predicate = replace(predicate, hedges=hedges, constraint=constraint)
        return predicate

    def _lower_extension(
        self,
        predicate: syntax.PredicateNode,
        constraint: syntax.Extension,
        attribute: Attribute,
        depth: int,
    ) -> structure.Tree:
        known = self.reader.registry.predicates
        if constraint.name not in known:
            missing = "no plug-in adds the predicate"
            raise LanguageError.of_unknown(missing, constraint.name, known, constraint)
        extension = known[constraint.name]
        plugins.check_arguments(extension, constraint.arguments, constraint)
        bare = syntax.PredicateNode(predicate.attribute, constraint, span=predicate.span)
        lowered = extension.lower(bare, attribute)
        extras = {
            "hedges": predicate.hedges,
            "possible": predicate.possible,
            "certain": predicate.certain,
            "weight": predicate.weight,
        }
        if isinstance(lowered, syntax.PredicateNode) and not lowered.negated:
            lowered = replace(lowered, **{k: v for k, v in extras.items() if v})  # type: ignore[arg-type]
            return self.lower(replace(lowered, negated=predicate.negated), depth + 1)
        if any(extras.values()):
            raise LanguageError.at_node(
                f'"{constraint.name}" becomes several predicates here, so hedges, thresholds and '
                "weights are not allowed on it",
                predicate,
            )
        tree = self.lower(lowered, depth + 1)
        return structure.Inverse(tree) if predicate.negated else tree
