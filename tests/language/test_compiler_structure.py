"""And, or, not: one normal form, and the wire's patterns."""

from __future__ import annotations

import itertools

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    Hedge,
    Name,
    NamedTerm,
    Not,
    Or,
    PredicateNode,
    Quantity,
    Scalar,
    SubscriptionTree,
)
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol import vectors
from denwatch.protocol.degrees import (
    ARITHMETIC,
    MAX,
    PRODUCT,
)
from denwatch.protocol.vectors import AND, NOT, OR

RESCUE = load_shipped("rescue")


def leaf(
    name: str, constraint: Constraint | str, *hedges: Hedge, negated: bool = False
) -> PredicateNode:
    """Return a predicate; a text is a term."""
    if isinstance(constraint, str):
        constraint = NamedTerm(Name(constraint))
    return PredicateNode(Name(name), constraint, negated, hedges)


HOT = leaf("patient_temperature", "high")
FAST = leaf("heart_rate", "high")
SHORT_OF_AIR = leaf("oxygen_saturation", "low")
OLD = leaf("age", "old")


def build(
    condition: Condition, compact: bool = True, **fields: object
) -> vectors.SubscriptionVector:
    """Return the vector of a condition under the rescue vocabulary."""
    tree = SubscriptionTree(condition, **fields)  # type: ignore[arg-type]
    return compile_subscription(tree, RESCUE, compact=compact).vector


@pytest.mark.parametrize("order", list(itertools.permutations([HOT, FAST, SHORT_OF_AIR])))
def test_the_order_of_operands_says_nothing(order: tuple[PredicateNode, ...]) -> None:
    wanted = compile_subscription(SubscriptionTree(And((HOT, FAST, SHORT_OF_AIR))), RESCUE).data
    assert compile_subscription(SubscriptionTree(And(order)), RESCUE).data == wanted
    nested = Or((And((order[0], order[1])), order[2]))
    turned = Or((order[2], And((order[1], order[0]))))
    one = compile_subscription(SubscriptionTree(nested), RESCUE).data
    assert compile_subscription(SubscriptionTree(turned), RESCUE).data == one


def test_the_papers_patterns_take_two_bytes() -> None:
    c1d2 = compile_subscription(SubscriptionTree(And((HOT, Or((FAST, SHORT_OF_AIR))))), RESCUE)
    assert c1d2.vector.pattern == bytes([0, 1, 2, OR | 2, AND | 2])
    assert len(c1d2.data) == 20
    d3c1 = And((Or((HOT, FAST, SHORT_OF_AIR)), OLD))
    assert build(d3c1).pattern == bytes([0, 1, 2, OR | 3, 3, AND | 2])


def test_or_alone_is_the_maximum_without_a_pattern() -> None:
    vector = build(Or((HOT, FAST)))
    assert (vector.aggregator, vector.pattern) == (MAX, b"")
    same = build(And((HOT, FAST)), aggregator=Aggregator("maximum"))
    assert same == vector


def test_negations_go_down_under_the_minimum_only() -> None:
    vector = build(Not(And((HOT, FAST))))
    assert (vector.aggregator, [p.negated for p in vector.predicates]) == (MAX, [True, True])
    product = build(Not(And((HOT, FAST))), aggregator=Aggregator("product"))
    assert product.aggregator == PRODUCT
    assert product.pattern == bytes([0, 1, AND | 2, NOT])


def test_a_negation_does_not_move_a_predicates_own_threshold() -> None:
    own = PredicateNode(HOT.attribute, HOT.constraint, possible=Scalar(0.3))
    assert build(Not(own)).pattern == bytes([0, NOT])
    assert not build(Not(own)).predicates[0].negated


def test_repeats_fall_away_where_they_say_nothing() -> None:
    assert build(And((HOT, HOT))) == build(HOT)
    assert build(Or((And((HOT, FAST)), And((FAST, HOT))))) == build(And((HOT, FAST)))
    squared = build(And((HOT, HOT)), aggregator=Aggregator("product"))
    assert len(squared.predicates) == 2


def test_a_predicate_that_occurs_twice_is_sent_once() -> None:
    vector = build(Or((And((HOT, FAST)), And((HOT, SHORT_OF_AIR)))))
    assert len(vector.predicates) == 3


def test_means_are_not_flattened() -> None:
    nested = build(And((And((HOT, FAST)), OLD)), aggregator=Aggregator("arithmetic_mean"))
    assert nested.pattern == bytes([0, 1, AND | 2, 2, AND | 2])
    assert nested.aggregator == ARITHMETIC


def test_sixteen_predicates_fit_and_deep_nestings_too() -> None:
    many = [leaf("heart_rate", About(Quantity(40.0 + 10 * i))) for i in range(16)]
    assert len(build(Or(tuple(many))).predicates) == 16
    nested: Condition = many[0]
    for i, operand in enumerate(many[1:]):
        nested = Or((operand, nested)) if i % 2 else And((operand, nested))
    assert len(build(nested, possible=Scalar(0.05)).predicates) == 16
