"""Random subscriptions by the thousand, faster than hypothesis draws them, and inputs for them.

Seeded: a failure names its number, and the same number gives the same subscription.
"""

from __future__ import annotations

import random

from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    Hedge,
    Moment,
    Name,
    NamedTerm,
    Not,
    Operator,
    Or,
    PredicateNode,
    Quantity,
    Scalar,
    Shape,
    SubscriptionTree,
    SugenoRule,
    Text,
    iterate_predicates,
)
from denwatch.client.vocabulary import (
    Attribute,
    EventType,
    ValueKind,
    Vocabulary,
    format_moment,
)
from denwatch.protocol import vectors
from denwatch.protocol.degrees import reach

LATTICE = ("minimum", "maximum")
OTHERS = ("product", "arithmetic_mean", "geometric_mean", "harmonic_mean")


def write_value(rng: random.Random, attribute: Attribute) -> Quantity | Moment | Text:
    """Return a value on one of the attribute's steps."""
    if attribute.kind is ValueKind.TEXT:
        return Text(rng.choice(attribute.symbols))
    value = attribute.to_value(rng.randint(1, attribute.last - 1))
    if attribute.kind is not ValueKind.NUMBER:
        return Moment(format_moment(value, attribute.kind))
    return Quantity(float(f"{value:.10g}"))


def draw_constraint(rng: random.Random, attribute: Attribute) -> tuple[Constraint, bool]:
    """Return a constraint, and whether it is fuzzy."""
    is_crisp = attribute.kind is ValueKind.TEXT and not attribute.is_graded
    if is_crisp or rng.random() < 0.2:
        operators = (
            list(Operator)
            if attribute.kind is not ValueKind.TEXT
            else [Operator.EQUAL, Operator.UNEQUAL]
        )
        return CrispComparison(rng.choice(operators), write_value(rng, attribute)), False
    has_shapes = attribute.kind is ValueKind.NUMBER
    if not (has_shapes or attribute.is_graded) or not attribute.terms or rng.random() < 0.25:
        centre = write_value(rng, attribute)
        if isinstance(centre, Quantity) and rng.random() < 0.5:
            width = rng.randint(6, 90) * (attribute.high - attribute.low) / 255
            return About(centre, Quantity(width)), True
        return About(centre), True
    if has_shapes and rng.random() < 0.2:
        return draw_shape(rng, attribute), True
    return NamedTerm(Name(rng.choice(sorted(attribute.terms)))), True


def draw_shape(rng: random.Random, attribute: Attribute) -> Constraint:
    """Return an explicit function, its corners on steps of the attribute."""
    unit = (attribute.high - attribute.low) / 255
    b = attribute.low + unit * rng.randint(10, 245)
    left, core, right = (unit * rng.randint(*span) for span in ((6, 90), (0, 60), (6, 90)))
    kind = rng.choice(["trapezoid", "triangle", "rising", "falling", "bell", "gaussian", "range"])
    if kind == "range":
        return CrispRange(Quantity(b), Quantity(min(b + core, attribute.high)))
    points = {
        "trapezoid": (b - left, b, b + core, b + core + right),
        "triangle": (b - left, b, b + right),
        "rising": (b - left, b),
        "falling": (b, b + right),
        "bell": (b, left, float(rng.randint(1, 4))),
        "gaussian": (b, left / 2),
    }[kind]
    return Shape(kind, tuple(map(Quantity, points)))


def draw_predicate(rng: random.Random, attribute: Attribute, hedging: float = 0.3) -> PredicateNode:
    """Return a predicate, maybe hedged, negated, with thresholds of its own."""
    constraint, fuzzy = draw_constraint(rng, attribute)
    hedges: tuple[Hedge, ...] = ()
    if fuzzy and not isinstance(constraint, CrispRange) and rng.random() < hedging:
        hedges = tuple(rng.choices(list(Hedge), k=rng.choice([1, 1, 2])))
    own = Scalar(rng.randint(10, 60) / 100) if rng.random() < 0.1 else None
    return PredicateNode(Name(attribute.name), constraint, rng.random() < 0.25, hedges, own)


def nest(rng: random.Random, operands: list[Condition]) -> Condition:
    """Return the operands in some nesting of and, or, not."""
    if len(operands) == 1:
        return operands[0] if rng.random() < 0.9 else Not(operands[0])
    cut = rng.randint(1, len(operands) - 1)
    parts = (nest(rng, operands[:cut]), nest(rng, operands[cut:]))
    joined: Condition = And(parts) if rng.random() < 0.5 else Or(parts)
    return joined if rng.random() < 0.9 else Not(joined)


def draw_subscription(
    rng: random.Random, vocabulary: Vocabulary, kind: str, hedging: float = 0.3
) -> SubscriptionTree:
    """Return a subscription; `kind` is an aggregator, "nested", "weighted" or "rules"."""
    event = rng.choice(list(vocabulary.events.values()))
    attributes = list(event.attributes.values())
    count = rng.randint(2 if kind in ("weighted", "rules") else 1, 4)
    leaves: list[Condition] = [
        draw_predicate(rng, rng.choice(attributes), hedging) for _ in range(count)
    ]
    threshold = Scalar(rng.randint(5, 98) / 100)
    name = Name(event.name)
    condition: Condition = leaves[0] if count == 1 else And(tuple(leaves))
    if kind == "nested":
        return SubscriptionTree(nest(rng, leaves), name, possible=threshold)
    if kind == "weighted":
        weighted = tuple(
            PredicateNode(
                p.attribute,
                p.constraint,
                p.negated,
                p.hedges,
                p.possible,
                weight=Scalar(float(rng.randint(1, 9))),
            )
            for p in iterate_predicates(condition)
        )
        return SubscriptionTree(And(weighted), name, possible=threshold)
    if kind == "rules":
        rules = tuple(
            SugenoRule(i + 1, j + 1, Scalar(rng.randint(0, 51) / 51))
            for i in range(count)
            for j in range(i + 1, count)
        )
        return SubscriptionTree(condition, name, possible=threshold, rules=rules)
    return SubscriptionTree(condition, name, aggregator=Aggregator(kind), possible=threshold)


def draw_codes(
    rng: random.Random, event: EventType, vector: vectors.SubscriptionVector, count: int
) -> list[dict[str, int]]:
    """Return inputs, by attribute: some anywhere, most on a side of one of the predicates."""
    names = {a.bit: a for a in event.attributes.values()}
    inputs = []
    for _ in range(count):
        codes = {}
        for p in vector.predicates:
            attribute = names[p.attribute]
            if attribute.symbols:
                codes[attribute.name] = rng.choice(attribute.symbol_codes)
                continue
            last = attribute.last
            code = rng.randint(0, last)
            if rng.random() < 0.6:
                width = max(reach(p.left, 1, p.wide), 3)
                edge = rng.choice(
                    [p.low - rng.randint(-3, width + 3), p.high + rng.randint(-3, width + 3)]
                )
                code = min(max(edge, 0), last)
            codes[attribute.name] = code
        inputs.append(codes)
    return inputs
