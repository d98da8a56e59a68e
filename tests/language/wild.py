"""Trees that no vocabulary knows: any names, any units, any nesting, for the surfaces alone.

The compiler would refuse most of them; printing and parsing must keep every one as it is. Also the
way from a tree to the calls of the builder that make it.
"""

from __future__ import annotations

from typing import Any

from denwatch.client.language.builder import (
    ConditionBuilder,
    PredicateBuilder,
    SubscriptionBuilder,
    all_of,
    any_of,
    attribute,
    when,
)
from denwatch.client.syntax import (
    AGGREGATORS,
    About,
    Aggregator,
    And,
    Condition,
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
)
from hypothesis import strategies as st

# Words that a grammar, XML, JSON or a value's reader could take for something else.
TRAPS = (
    *("T°", "the", "is", "is not", "more or less", "at least", "over", "to", "and-or", "within"),
    *("in the last few seconds", "units", "p1", "not", "a  b", " a", "b ", "", '"', "\\", "a,b"),
    *("5", "5 bpm", "3rd", "14:30", "2026-11-16", "<", "&amp;", "]]>", "%", "percent", "°C", "1e5"),
    *(
        "near",
        "sector",
        "min",
        "harmonic mean",
        "road access",
        "semi-burning",
        "patient.heart_rate",
    ),
    *("\t", "\n", "\x00", "\ufffe", "é", "日本", "'", "top", "(", ")", "p", "by", "event", "."),
)
names = st.one_of(
    st.sampled_from(TRAPS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
scalars = numbers.map(Scalar)
quantities = st.builds(Quantity, numbers, st.one_of(st.none(), names, st.just("bpm")))
moments = st.sampled_from(
    ["2026-11-16", "14:30", "09:30:15", "2026-11-16T14:30", "2026-11-16T14:30:15.25Z", "24:00"]
).map(Moment)
values = st.one_of(quantities, moments, names.map(Text))
tuples = st.lists(values, max_size=4).map(tuple)
constraints = st.one_of(
    st.builds(CrispComparison, st.sampled_from(Operator), values),
    st.builds(CrispRange, values, values),
    st.builds(NamedTerm, names.map(Name)),
    st.builds(About, values, st.one_of(st.none(), quantities)),
    st.builds(Shape, st.sampled_from(["trapezoid", "bell", "fuzzifier", "wave form"]), tuples),
    st.builds(Extension, st.sampled_from(["near", "sector"]), tuples),
)
maybe = st.one_of(st.none(), scalars)
recents = st.one_of(
    st.builds(Recent, st.one_of(st.just("recent"), st.just("few seconds"), names)),
    st.builds(Recent, st.none(), quantities, st.one_of(st.none(), quantities)),
)
predicates = st.builds(
    PredicateNode,
    names.map(Name),
    constraints,
    st.booleans(),
    st.lists(st.sampled_from(Hedge), max_size=3).map(tuple),
    maybe,
    maybe,
    maybe,
    st.one_of(st.none(), recents),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=5,
)
places = st.integers(1, 99)
rules = st.builds(
    SugenoRule, places, places, scalars, st.one_of(st.none(), st.tuples(scalars, scalars))
)
aggregators = st.builds(Aggregator, st.one_of(st.sampled_from(AGGREGATORS), names), st.just(()))
subscriptions = st.builds(
    SubscriptionTree,
    conditions,
    event=st.one_of(st.none(), names.map(Name)),
    name=st.one_of(st.none(), names.map(Name)),
    aggregator=st.one_of(st.none(), aggregators),
    possible=maybe,
    certain=maybe,
    rules=st.lists(rules, max_size=2).map(tuple),
    recent=st.one_of(st.none(), recents),
    score=maybe,
    prefer=st.lists(st.builds(Prefer, names.map(Name), names.map(Name)), max_size=2).map(tuple),
    top=maybe,
    valid_for=st.one_of(st.none(), quantities),
    expiry=st.one_of(st.none(), quantities),
    dead_bands=st.lists(st.builds(DeadBand, names.map(Name), quantities), max_size=2).map(tuple),
    relative_band=maybe,
    hysteresis=maybe,
    persistence=st.one_of(st.none(), st.builds(Persistence, scalars, scalars)),
    heartbeat=st.one_of(st.none(), quantities),
    quiet=st.one_of(st.none(), quantities),
    why=st.booleans(),
    whole=st.booleans(),
)


def build(tree: SubscriptionTree) -> SubscriptionTree:
    """Return the tree that the builder makes when it is told everything that a tree says."""
    s = when(build_condition(tree.condition))
    s = s if tree.event is None else s.event(tree.event.text)
    s = s if tree.name is None else s.named(tree.name.text)
    return build_options(s, tree).build()


def build_condition(condition: Condition) -> ConditionBuilder:
    """Return the builder of a condition."""
    match condition:
        case And(operands=operands):
            return all_of(*map(build_condition, operands))
        case Or(operands=operands):
            return any_of(*map(build_condition, operands))
        case Not(operand=operand):
            return ~build_condition(operand)
        case PredicateNode():
            return build_predicate(condition)


def build_predicate(p: PredicateNode) -> PredicateBuilder:
    """Return the builder of a predicate."""
    start = attribute(p.attribute.text)
    match p.constraint:
        case NamedTerm(name=name):
            builder = start.is_(name.text)
        case CrispComparison(operator=operator, value=value):
            builder = start.compare(operator.value, value)
        case CrispRange(low=low, high=high):
            builder = start.between(low, high)
        case About(value=value, spread=spread):
            builder = start.about(value, within=spread)
        case Shape(kind=kind, points=points):
            builder = start.shaped(kind, *points)
        case Extension(name=name, arguments=arguments):
            builder = start.extended(name, *arguments)
    builder = builder.hedged(*p.hedges)
    builder = builder.negated() if p.negated else builder
    for key in ("possible", "certain", "weight"):
        scalar = getattr(p, key)
        builder = builder if scalar is None else getattr(builder, key)(scalar.value)
    return build_recent(builder, p.recent)


def build_recent(builder: Any, recent: Recent | None) -> Any:
    """Return the builder of a predicate or a subscription with a temporal restrictor."""
    if recent is None:
        return builder
    if recent.phrase is not None:
        return builder.recent(recent.phrase)
    assert recent.within is not None
    return builder.in_the_last(recent.within.value, recent.within.unit, recent.gone)


def build_options(s: SubscriptionBuilder, tree: SubscriptionTree) -> SubscriptionBuilder:
    """Return the builder with everything beyond the condition."""
    if tree.aggregator is not None:
        s = s.by(tree.aggregator.name, *tree.aggregator.arguments)
    plain: dict[str, Any] = {
        "at_least": tree.possible,
        "certain": tree.certain,
        "score": tree.score,
        "top": tree.top,
        "relative_band": tree.relative_band,
        "hysteresis": tree.hysteresis,
    }
    for method, scalar in plain.items():
        s = s if scalar is None else getattr(s, method)(scalar.value)
    timed: dict[str, Quantity | None] = {
        "valid_for": tree.valid_for,
        "expires_after": tree.expiry,
        "heartbeat": tree.heartbeat,
        "quiet_for": tree.quiet,
    }
    for method, quantity in timed.items():
        s = s if quantity is None else getattr(s, method)(quantity.value, quantity.unit)
    for rule in tree.rules:
        slopes = rule.slopes and (rule.slopes[0].value, rule.slopes[1].value)
        s = s.rule(rule.first, rule.second, rule.constant.value, slopes)
    s = build_recent(s, tree.recent)
    for prefer in tree.prefer:
        s = s.prefer(prefer.better.text, prefer.worse.text)
    for band in tree.dead_bands:
        s = s.dead_band(band.attribute.text, band.width.value, band.width.unit)
    if tree.persistence is not None:
        s = s.persist(tree.persistence.hits.value, tree.persistence.window.value)
    s = s.whole() if tree.whole else s
    return s.why() if tree.why else s
