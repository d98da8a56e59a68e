"""The decompiler: a subscription vector to a tree that a person can read and that compiles back.

For every vector that the compiler made, compiling the result gives the same bytes. For a vector
from elsewhere the result means the same; bytes may differ where it was not in normal form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

from denwatch.client import syntax
from denwatch.client.compiler import compiler
from denwatch.client.compiler.constraint_writer import (
    Wording,
    read_hedges,
    shorten,
    write_duration,
    write_literal,
    write_rule,
    write_threshold,
)
from denwatch.client.compiler.constraints import ConstraintReader
from denwatch.client.compiler.settings import DEFAULT_THRESHOLD, Options, encode_recent
from denwatch.client.compiler.structure import Connective, Inverse, Leaf, Tree, find_levels, has_and
from denwatch.client.errors import LanguageError
from denwatch.client.plugins import PluginRegistry, Recogniser, load_registry
from denwatch.client.vocabulary import Attribute, EventType, Triple, Vocabulary
from denwatch.protocol import subscription as codec
from denwatch.protocol import vectors
from denwatch.protocol.degrees import CRISP, MAX, MIN, SUGENO, WEIGHTED
from denwatch.protocol.vectors import AND, NOT, OR

_Worded = tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]
_NAMES = {kind: name for name, kind in compiler.KINDS.items()}


def decompile(
    vector: vectors.SubscriptionVector | bytes,
    vocabulary: Vocabulary,
    options: Options | None = None,
) -> syntax.SubscriptionTree:
    """Return the tree of a vector or of its bytes; ProtocolError if the bytes are no vector."""
    if isinstance(vector, (bytes, bytearray)):
        vector = codec.decode(bytes(vector))
    registry = load_registry()
    work = _Decompilation(vector, vocabulary, registry, options or Options())
    readable = work.build(work.word())
    condition = raise_condition(readable.condition, work.event, registry)
    raised = replace(readable, condition=condition)
    for tree in (raised, readable) if raised != readable else (readable,):
        if work.compiles_back(tree):
            return tree
    return work.build(work.spell())


class _Decompilation:
    """One decompilation."""

    def __init__(
        self,
        vector: vectors.SubscriptionVector,
        vocabulary: Vocabulary,
        registry: PluginRegistry,
        options: Options,
    ) -> None:
        event = vocabulary.find_number(vector.event)
        if event is None:
            raise LanguageError(f'vocabulary "{vocabulary.name}" has no event {vector.event}')
        self.vector = vector
        self.vocabulary = vocabulary
        self.registry = registry
        self.options = options
        self.event = event
        self.attributes = [_find_attribute(event, p.attribute) for p in vector.predicates]
        for p, attribute in zip(vector.predicates, self.attributes, strict=True):
            if p.wide != attribute.wide:
                raise LanguageError(f"{attribute.path} has another resolution in this vector")
        self.tree = _read_tree(vector)

    def word(self) -> Iterator[_Worded]:
        """Yield the predicates in terms and units, each as simple as it can be."""
        vector = self.vector
        is_lattice = vector.aggregator in (MIN, MAX) or not has_and(self.tree)
        overall = vector.threshold, vector.certain
        own = [(p.possible, p.certain) for p in vector.predicates]
        levels = find_levels(self.tree, lambda i: own[i], overall, is_lattice)
        reader = ConstraintReader(self.vocabulary, self.registry)
        may_be_fitted = len(vector.predicates) <= compiler.COMPACT_PREDICATES
        for i, (p, attribute) in enumerate(zip(vector.predicates, self.attributes, strict=True)):
            own_levels = levels[Leaf(i, p.negated)]
            yield Wording(p, attribute, own_levels, reader, may_be_fitted).find()

    def spell(self) -> Iterator[_Worded]:
        """Yield the predicates as the wire's triples."""
        for p, attribute in zip(self.vector.predicates, self.attributes, strict=True):
            is_crisp = p.left == p.right == CRISP
            literal = write_literal(Triple(p.low, p.high, p.left, p.right), attribute)
            yield literal, () if is_crisp else read_hedges(p.hedge)

    def _dress(self, place: int, worded: _Worded) -> syntax.PredicateNode:
        """Return a predicate with negation, thresholds and weight."""
        p, (constraint, hedges) = self.vector.predicates[place], worded
        possible = p.possible if p.possible >= p.certain else 0  # certain says more then
        return syntax.PredicateNode(
            attribute=syntax.Name(self.attributes[place].name),
            constraint=constraint,
            negated=p.negated,
            hedges=hedges,
            possible=_write_share(possible),
            certain=_write_share(p.certain),
            weight=syntax.Scalar(float(p.weight)) if self.vector.aggregator == WEIGHTED else None,
            recent=self._write_restrictor(p.attribute),
        )

    def _write_restrictor(self, attribute: int) -> syntax.Recent | None:
        """Return how old an attribute's reading may be."""
        names = sorted({p.attribute for p in self.vector.predicates})
        code = self.vector.restrictors[names.index(attribute)] if self.vector.restrictors else 0
        return syntax.Recent(within=write_duration(code)) if code else None

    def compiles_back(self, tree: syntax.SubscriptionTree) -> bool:
        """Return whether a tree gives this very vector."""
        try:
            again = compiler.compile_subscription(
                tree, self.vocabulary, registry=self.registry, handle=self.vector.handle
            )
        except LanguageError:
            return False
        return again.vector == self.vector

    def build(self, worded: Iterable[_Worded]) -> syntax.SubscriptionTree:
        """Return the whole tree over these predicates."""
        vector, options = self.vector, self.options
        predicates = [self._dress(place, words) for place, words in enumerate(worded)]
        condition = _write_condition(self.tree, predicates)
        kind = vector.aggregator  # Or says maximum, rules say the fuzzy mean
        is_or = kind == MAX and not vector.pattern
        possible = max(vector.threshold, vector.certain)
        default = max(DEFAULT_THRESHOLD, vector.certain)
        bare = syntax.SubscriptionTree(
            condition=condition,
            name=syntax.Name(options.name) if options.name is not None else None,
            aggregator=None if kind in (MIN, SUGENO) or is_or else syntax.Aggregator(_NAMES[kind]),
            possible=None if possible == default else write_threshold(possible),
            certain=_write_share(vector.certain),
            rules=self._write_rules(),
            recent=self._write_recent(),
            score=None if options.score is None else syntax.Scalar(options.score),
            prefer=tuple(syntax.Prefer(syntax.Name(a), syntax.Name(b)) for a, b in options.prefer),
            top=None if options.top is None else syntax.Scalar(float(options.top)),
            valid_for=_write_time(vector.validity),
            expiry=None if options.expiry is None else syntax.Quantity(options.expiry, "s"),
            why=vector.why,
            whole=options.whole,
            **self._write_significance(),
        )
        try:
            resolved = compiler.resolve_event(bare, self.vocabulary)
        except LanguageError:
            resolved = None
        if resolved is self.event:  # the attributes alone say which event it is
            return bare
        return replace(bare, event=syntax.Name(self.event.name))

    def _write_rules(self) -> tuple[syntax.SugenoRule, ...]:
        pairs = combinations(enumerate(self.attributes, 1), 2)
        return tuple(
            write_rule(i, j, consequent, (first, second))
            for consequent, ((i, first), (j, second)) in zip(
                self.vector.consequents or (), pairs, strict=False
            )
        )

    def _write_recent(self) -> syntax.Recent | None:
        codes = self.vector.recent
        if codes is None:
            return None
        for phrase in self.vocabulary.phrases:
            if encode_recent(syntax.Recent(phrase), self.vocabulary, []) == codes:
                return syntax.Recent(phrase)
        within = write_duration(codes[0]) if codes[0] else syntax.Quantity(0.0, "s")
        gone = None if codes[1] == codes[0] + 1 else write_duration(codes[1])
        return syntax.Recent(within=within, gone=gone)

    def _write_significance(self) -> dict[str, Any]:
        """Return the fields of the tree that say when a match is worth sending again."""
        found = self.vector.significance
        if found is None:
            return {}
        bits = sorted({p.attribute for p in self.vector.predicates})
        used = [_find_attribute(self.event, bit) for bit in bits]
        bands = tuple(
            syntax.DeadBand(syntax.Name(attribute.name), _write_band(code, attribute))
            for attribute, code in zip(used, found.bands, strict=False)
            if code
        )
        counts = syntax.Scalar(float(found.hits)), syntax.Scalar(float(found.window))
        return {
            "dead_bands": bands,
            "relative_band": _write_share(found.relative),
            "hysteresis": _write_share(found.hysteresis),
            "persistence": syntax.Persistence(*counts) if found.window else None,
            "heartbeat": _write_time(found.heartbeat),
            "quiet": _write_time(found.quiet),
        }


def _find_attribute(event: EventType, bit: int) -> Attribute:
    attribute = event.find_bit(bit)
    if attribute is None:
        raise LanguageError(f"event {event.name} has no attribute {bit}")
    return attribute


def _read_tree(vector: vectors.SubscriptionVector) -> Tree:
    """Return the pattern as a tree over the predicates' places."""
    leaves: list[Tree] = [Leaf(i, p.negated) for i, p in enumerate(vector.predicates)]
    if not vector.pattern:
        if len(leaves) == 1:
            return leaves[0]
        return Connective(vector.aggregator == MAX, tuple(leaves))
    stack: list[Tree] = []
    for op in vector.pattern:
        if op < len(leaves):
            stack.append(leaves[op])
        elif op == NOT:
            stack.append(Inverse(stack.pop()))
        else:
            assert op & 0xF0 in (AND, OR)
            operands = tuple(stack[-(op & 15) :])
            del stack[-(op & 15) :]
            stack.append(Connective(op & 0xF0 == OR, operands))
    return stack[0]


def _write_condition(tree: Tree, predicates: Sequence[syntax.PredicateNode]) -> syntax.Condition:
    if isinstance(tree, Leaf):
        return predicates[tree.index]
    if isinstance(tree, Inverse):
        return syntax.Not(_write_condition(tree.operand, predicates))
    operands = tuple(_write_condition(operand, predicates) for operand in tree.operands)
    return syntax.Or(operands) if tree.is_or else syntax.And(operands)


def _write_share(code: int) -> syntax.Scalar | None:
    return write_threshold(code) if code else None


def _write_time(code: int) -> syntax.Quantity | None:
    return write_duration(code) if code else None


def _write_band(code: int, attribute: Attribute) -> syntax.Quantity:
    """Return the width of a dead band in the attribute's unit; days or seconds of dates."""
    span = attribute.high - attribute.low
    found = shorten((code * span / 255,), lambda n: int(n[0] / span * 255 + 0.5) == code)
    return syntax.Quantity((found or (code * span / 255,))[0], attribute.unit)


# Core syntax back to plug-in predicates: the contrary of lowering, for people who read vectors.
#
# A predicate type that lowers to two predicates may have a method `recognise`, see
# `client.plugins.Recogniser`. What it proposes is a proposal: the decompiler compiles the result
# and drops it if the bytes differ.


def raise_condition(
    condition: syntax.Condition, event: EventType, registry: PluginRegistry
) -> syntax.Condition:
    """Return the condition with pairs of predicates replaced by what plug-ins see in them."""
    if isinstance(condition, syntax.PredicateNode):
        return condition
    if isinstance(condition, syntax.Not):
        return syntax.Not(raise_condition(condition.operand, event, registry))
    operands = [raise_condition(operand, event, registry) for operand in condition.operands]
    raised = _raise_pairs(operands, isinstance(condition, syntax.Or), event, registry)
    if len(raised) == 1:
        return raised[0]
    return type(condition)(tuple(raised))


def _raise_pairs(
    operands: list[syntax.Condition], is_or: bool, event: EventType, registry: PluginRegistry
) -> list[syntax.Condition]:
    """Return the operands with the first pair replaced that a plug-in recognises, and so on.

    "Neither of two" is the contrary of "one of two": under "and" the pair is turned over.
    """
    recognisers = [each for each in registry.predicates.values() if isinstance(each, Recogniser)]
    predicates = [
        (p, replace(p, negated=p.negated != (not is_or)))
        for p in operands
        if isinstance(p, syntax.PredicateNode)
        and not (p.hedges or p.possible or p.certain or p.weight or p.recent)
    ]
    for (first, one), (second, other) in permutations(predicates, 2):
        if first.attribute != second.attribute:
            continue
        constraint = _recognise((one, other), event, recognisers)
        if constraint is not None:
            found = syntax.PredicateNode(first.attribute, constraint, negated=not is_or)
            rest = [o for o in operands if o is not first and o is not second]
            return _raise_pairs([*rest, found], is_or, event, registry)
    return operands


def _recognise(
    pair: tuple[syntax.PredicateNode, syntax.PredicateNode],
    event: EventType,
    recognisers: Sequence[Recogniser],
) -> syntax.Extension | None:
    attribute = event.attributes[pair[0].attribute.text]
    for each in recognisers:
        with suppress(LanguageError):
            constraint = each.recognise(pair, attribute)
            if constraint is not None:
                return constraint
    return None
