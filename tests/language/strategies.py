"""Hypothesis strategies over the whole syntax tree, for every test of the language.

`subscriptions(vocabulary)` draws trees that are well formed; a few are empty sets, which the
compiler refuses: `compile_or_reject` discards those. Numbers are as people write them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from denwatch.client.compiler import CompiledSubscription, compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import (
    AGGREGATORS,
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    DeadBand,
    Extension,
    Hedge,
    Moment,
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
    iterate_predicates,
)
from denwatch.client.vocabulary import (
    SHIPPED,
    Attribute,
    EventType,
    ValueKind,
    Vocabulary,
    format_moment,
    load_shipped,
)
from denwatch.client.vocabulary.values import convert, find_unit, list_units
from hypothesis import assume
from hypothesis import strategies as st

T = TypeVar("T")


def quiet(function: Callable[..., T]) -> Callable[..., st.SearchStrategy[T]]:
    """Return st.composite(function) whose repr leaves its arguments out.

    Hypothesis prints strategies as it goes, and a vocabulary is long.
    """

    @functools.wraps(function)
    def outer(*args: Any, **options: Any) -> st.SearchStrategy[T]:
        @functools.wraps(function)
        def build(draw: st.DrawFn) -> T:
            return function(draw, *args, **options)

        del build.__wrapped__  # its signature is not the composite's
        return st.composite(build)()

    return outer


ALIASES = ["alpha", "bravo", "charlie", "delta"]


def compile_or_reject(
    tree: SubscriptionTree, vocabulary: Vocabulary, **options: Any
) -> CompiledSubscription:
    """Return the compiled tree; discard the example if it is an empty set."""
    try:
        return compile_subscription(tree, vocabulary, **options)
    except LanguageError as error:
        assume(not error.message.startswith(("empty set", "too many", "too deeply")))
        assume("this does not fit into a vector: a vector of" not in error.message)
        raise


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return None twice as often as a value."""
    return st.one_of(st.none(), st.none(), strategy)


def degrees(low: int = 5, high: int = 100) -> st.SearchStrategy[Scalar]:
    """Return thresholds in percent."""
    return st.integers(low, high).map(lambda percent: Scalar(percent / 100))


@quiet
def values(draw: st.DrawFn, attribute: Attribute, units: bool = True) -> Value:
    """Return a value of the attribute, numbers at a whole number of steps or nearly so."""
    if attribute.kind is ValueKind.TEXT:
        return Text(draw(st.sampled_from(attribute.symbols)))
    code = draw(st.integers(0, attribute.last))
    value = attribute.to_value(code)
    if attribute.kind is not ValueKind.NUMBER:
        return Moment(format_moment(value, attribute.kind))
    value = min(max(float(f"{value:.4g}"), attribute.low), attribute.high)
    if attribute.unit is None or not units:
        return Quantity(value)
    unit = draw(st.sampled_from([attribute.unit, *list_units(find_unit(attribute.unit).dimension)]))
    if unit == attribute.unit:
        return Quantity(value, draw(st.sampled_from([None, unit])))
    converted = float(f"{convert(value, attribute.unit, unit):.5g}")
    back = convert(converted, unit, attribute.unit)
    assume(attribute.low <= back <= attribute.high)
    return Quantity(converted, unit)


def sort_key(value: Value, attribute: Attribute) -> float:
    """Return the order of two values of one attribute."""
    match value:
        case Quantity(value=number, unit=unit):
            return convert(number, unit, attribute.unit) if unit and attribute.unit else number
        case Moment(text=text):
            return float("".join(c for c in text if c.isdigit()))
        case Text(value=text):
            return float(attribute.symbols.index(text))


@quiet
def crisp_constraints(draw: st.DrawFn, attribute: Attribute) -> Constraint:
    """Return a comparison or range that the attribute's kind allows."""
    operators = list(Operator)
    ordered = attribute.kind is not ValueKind.TEXT or attribute.ordered
    if not ordered:
        operators = [Operator.EQUAL, Operator.UNEQUAL]
    if ordered and draw(st.booleans()):
        pair = draw(st.lists(values(attribute), min_size=2, max_size=2))
        low, high = sorted(pair, key=lambda v: sort_key(v, attribute))
        return CrispRange(low, high)
    return CrispComparison(draw(st.sampled_from(operators)), draw(values(attribute)))


@quiet
def fuzzy_constraints(draw: st.DrawFn, attribute: Attribute) -> Constraint:
    """Return a term, an about-value or an explicit function."""
    choices = ["about"] + ["term"] * 3 * bool(attribute.terms)
    if attribute.kind is ValueKind.NUMBER:
        choices += ["trapezoid", "triangle", "rising", "falling", "bell", "gaussian", "fuzzifier"]
    kind = draw(st.sampled_from(choices))
    if kind == "term":
        return NamedTerm(Name(draw(st.sampled_from(sorted(attribute.terms)))))
    step = attribute.step
    width = float(f"{draw(st.integers(8, 120)) * attribute.last / 255 * step:.3g}")
    if kind == "about":
        spread = draw(optional(st.just(Quantity(width))))
        return About(draw(values(attribute)), spread)
    if kind == "fuzzifier":
        low, high = sorted(draw(st.tuples(*[st.integers(0, attribute.last)] * 2)))
        ends = [attribute.to_value(low), attribute.to_value(high)]
        gammas = draw(
            st.lists(st.sampled_from([0.6, 1.0, 3.5, 20.0, 255.0]), min_size=1, max_size=2)
        )
        return Shape(kind, tuple(map(Quantity, [*ends, *gammas])))
    centre = draw(values(attribute, units=False))
    assert isinstance(centre, Quantity)
    b = centre.value
    if kind in ("bell", "gaussian"):
        extra = [Quantity(float(draw(st.integers(1, 4))))] if kind == "bell" else []
        return Shape(kind, (Quantity(b), Quantity(width / 2), *extra))
    other = float(f"{draw(st.integers(8, 120)) * attribute.last / 255 * step:.3g}")
    core = float(f"{draw(st.integers(0, 60)) * attribute.last / 255 * step:.3g}")
    points = {
        "trapezoid": (b - width, b, b + core, b + core + other),
        "triangle": (b - width, b, b + other),
        "rising": (b - width, b),
        "falling": (b, b + width),
    }[kind]
    return Shape(kind, tuple(Quantity(float(f"{point:.6g}"), attribute.unit) for point in points))


@quiet
def predicates(draw: st.DrawFn, attribute: Attribute, vocabulary: Vocabulary) -> PredicateNode:
    """Return one predicate, under any of the attribute's names."""
    synonyms = [entry.word for entry in vocabulary.thesaurus.list_synonyms(attribute.path)]
    unique = [s for s in synonyms if len(vocabulary.thesaurus.look_up(s)) == 1]
    name = Name(draw(st.sampled_from([attribute.name, *unique])))
    if (attribute.kind is not ValueKind.TEXT or attribute.is_graded) and draw(st.integers(0, 2)):
        constraint = draw(fuzzy_constraints(attribute))
        hedges = tuple(draw(st.lists(st.sampled_from(list(Hedge)), max_size=3)))
        is_literal = isinstance(constraint, Shape) and constraint.kind == "fuzzifier"
        hedges = () if is_literal else hedges
    else:
        constraint, hedges = draw(crisp_constraints(attribute)), ()
    possible = draw(optional(degrees(10, 60)))
    certain = draw(optional(degrees(5, 10 if possible else 60)))
    return PredicateNode(name, constraint, draw(st.booleans()), hedges, possible, certain)


@quiet
def circular_predicates(draw: st.DrawFn, attribute: Attribute) -> PredicateNode:
    """Return a predicate of the shipped plug-in."""
    first, second = draw(st.tuples(st.integers(0, 359), st.integers(0, 359)))
    if draw(st.booleans()):
        spread = draw(st.sampled_from([(), (Quantity(float(draw(st.integers(10, 90)))),)]))
        constraint = Extension("near", (Quantity(float(first), "°"), *spread))
    else:
        constraint = Extension("sector", (Quantity(float(first)), Quantity(float(second))))
    return PredicateNode(Name(attribute.name), constraint, draw(st.booleans()))


@quiet
def leaves(draw: st.DrawFn, event: EventType, vocabulary: Vocabulary) -> PredicateNode:
    """Return a predicate on any attribute of an event."""
    attribute = draw(st.sampled_from(list(event.attributes.values())))
    if attribute.period is not None and draw(st.booleans()):
        return draw(circular_predicates(attribute))
    return draw(predicates(attribute, vocabulary))


def join(operands: list[Condition], is_or: bool) -> Condition:
    """Return the operands joined."""
    return Or(tuple(operands)) if is_or else And(tuple(operands))


def conditions(
    event: EventType, vocabulary: Vocabulary, max_leaves: int = 6
) -> st.SearchStrategy[Condition]:
    """Return any nesting of and, or, not."""
    return st.recursive(
        leaves(event, vocabulary),
        lambda inner: st.one_of(
            st.builds(join, st.lists(inner, min_size=2, max_size=3), st.booleans()),
            inner.map(Not),
        ),
        max_leaves=max_leaves,
    )


@quiet
def flat_conditions(
    draw: st.DrawFn, event: EventType, vocabulary: Vocabulary, weighted: bool
) -> Condition:
    """Return predicates joined by "and", as means of weights and rules need them."""
    found = draw(st.lists(st.sampled_from(sorted(event.attributes)), min_size=2, max_size=4))
    operands = []
    for name in found:
        predicate = draw(predicates(event.attributes[name], vocabulary))
        weight = (
            Scalar(draw(st.sampled_from([1.0, 2.0, 3.0, 0.5, 0.25, 7.0]))) if weighted else None
        )
        operands.append(
            PredicateNode(
                predicate.attribute,
                predicate.constraint,
                predicate.negated,
                predicate.hedges,
                predicate.possible,
                predicate.certain,
                weight,
            )
        )
    return And(tuple(operands))


@quiet
def rule_sets(
    draw: st.DrawFn, condition: Condition, event: EventType, vocabulary: Vocabulary
) -> Any:
    """Return a rule for every pair of a condition's predicates."""
    found = list(iterate_predicates(condition))
    linear = draw(st.booleans())
    rules = []
    for i in range(len(found)):
        for j in range(i + 1, len(found)):
            pair = [vocabulary.find_attributes(found[k].attribute, event)[0] for k in (i, j)]
            constant = Scalar(draw(st.integers(0, 20)) / 20)
            slopes = []
            for attribute in pair:
                most = 0 if attribute.kind is ValueKind.TEXT else 3
                slope = draw(st.integers(-most, most)) / 4
                slopes.append(Scalar(float(f"{slope / (attribute.high - attribute.low or 1):.3g}")))
            rules.append(
                SugenoRule(i + 1, j + 1, constant, (slopes[0], slopes[1]) if linear else None)
            )
    return tuple(draw(st.permutations(rules)))


def durations() -> st.SearchStrategy[Quantity]:
    """Return times from seconds to days."""
    units = st.sampled_from([None, "s", "min", "h", "d", "seconds", "minutes"])
    return st.builds(Quantity, st.integers(1, 90).map(float), units)


@quiet
def recents(draw: st.DrawFn) -> Recent:
    """Return a temporal restrictor, by phrase or by durations."""
    if draw(st.booleans()):
        return Recent(draw(st.sampled_from(["recent", "few seconds", "few minutes", "few hours"])))
    within = draw(st.integers(1, 3600))
    gone = draw(optional(st.integers(within * 2, within * 9)))
    return Recent(None, Quantity(float(within), "s"), gone and Quantity(float(gone), "s"))


def restrict(
    condition: Condition, event: EventType, vocabulary: Vocabulary, recents: list[Recent]
) -> Condition:
    """Return a condition in which attributes have restrictors, each always the same."""
    match condition:
        case PredicateNode():
            (attribute,) = vocabulary.find_attributes(condition.attribute, event)
            place = attribute.bit % (len(recents) + 1)
            return replace(condition, recent=recents[place] if place < len(recents) else None)
        case Not(operand=operand):
            return Not(restrict(operand, event, vocabulary, recents))
        case And(operands=operands) | Or(operands=operands):
            parts = [restrict(operand, event, vocabulary, recents) for operand in operands]
            return join(parts, isinstance(condition, Or))


@quiet
def subscriptions(draw: st.DrawFn, vocabulary: Vocabulary, max_leaves: int = 6) -> SubscriptionTree:
    """Return a whole subscription; every field of the tree occurs."""
    event = draw(st.sampled_from(list(vocabulary.events.values())))
    flavour = draw(st.sampled_from(["any", "any", "any", "weighted", "rules"]))
    rules: tuple[SugenoRule, ...] = ()
    aggregator = None
    if flavour == "any":
        condition = draw(conditions(event, vocabulary, max_leaves))
        names = [name for name in AGGREGATORS if name != "weighted_mean"]
        aggregator = draw(optional(st.sampled_from(names).map(Aggregator)))
    else:
        condition = draw(flat_conditions(event, vocabulary, flavour == "weighted"))
        if flavour == "rules":
            rules = draw(rule_sets(condition, event, vocabulary))
    possible = draw(optional(degrees(10)))
    certain = draw(optional(degrees(5, 10 if possible else 90)))
    if draw(st.integers(0, 3)) == 0:
        condition = restrict(condition, event, vocabulary, draw(st.lists(recents(), min_size=3)))
    names = {
        vocabulary.find_attributes(p.attribute, event)[0].name: p.attribute
        for p in iterate_predicates(condition)
    }
    banded = [n for n in names if event.attributes[n].kind is ValueKind.NUMBER]
    bands = []
    for name in draw(st.lists(st.sampled_from(banded), unique=True)) if banded else []:
        attribute = event.attributes[name]
        width = float(f"{draw(st.integers(1, 50)) * (attribute.high - attribute.low) / 255:.3g}")
        bands.append(
            DeadBand(Name(name), Quantity(width, draw(st.sampled_from([None, attribute.unit]))))
        )
    window = draw(st.integers(1, 15))
    persistence = Persistence(Scalar(float(draw(st.integers(1, window)))), Scalar(float(window)))
    timing = draw(st.sampled_from(["heartbeat", "quiet", "none"]))
    length = draw(durations())
    return SubscriptionTree(
        condition=condition,
        event=Name(event.name),
        name=draw(optional(st.sampled_from(ALIASES).map(Name))),
        aggregator=aggregator,
        possible=possible,
        certain=certain,
        rules=rules,
        recent=draw(optional(recents())),
        score=draw(optional(degrees(0, 100))),
        prefer=draw(st.sampled_from([(), (Prefer(Name("alpha"), Name("bravo")),)])),
        top=draw(optional(st.integers(1, 50).map(lambda k: Scalar(float(k))))),
        valid_for=draw(optional(durations())),
        expiry=draw(optional(durations())),
        dead_bands=tuple(bands),
        relative_band=draw(optional(degrees(1, 50))),
        hysteresis=draw(optional(degrees(1, 9))),
        persistence=draw(optional(st.just(persistence))),
        heartbeat=length if timing == "heartbeat" else None,
        quiet=length if timing == "quiet" else None,
        why=draw(st.booleans()),
        whole=draw(st.booleans()),
    )


@quiet
def anything(draw: st.DrawFn) -> tuple[str, SubscriptionTree]:
    """Return the name of a shipped vocabulary and a subscription in it."""
    name = draw(st.sampled_from(SHIPPED))
    return name, draw(subscriptions(load_shipped(name)))
