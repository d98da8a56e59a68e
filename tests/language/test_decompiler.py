"""Vectors back to trees: readable, and compiling to the same bytes."""

from __future__ import annotations

import random

import pytest
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import (
    About,
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
    Recent,
    Scalar,
    Shape,
    SubscriptionTree,
    Text,
    iterate_predicates,
)
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol import subscription as codec
from denwatch.protocol import vectors
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import AND, NOT, OR
from hypothesis import HealthCheck, Phase, given, settings

from tests.language.strategies import anything, compile_or_reject
from tests.protocol.evaluator import SCRATCH, evaluate

RESCUE = load_shipped("rescue")
WEATHER = load_shipped("weather")
QUICK = settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking such trees takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def check_fixed_point(name: str, tree: SubscriptionTree) -> None:
    vocabulary = load_shipped(name)
    compiled = compile_or_reject(tree, vocabulary)
    again = decompile(compiled.data, vocabulary, compiled.options)
    recompiled = compile_subscription(again, vocabulary)
    assert recompiled.data == compiled.data
    assert recompiled.options == compiled.options
    assert decompile(recompiled.data, vocabulary, recompiled.options) == again
    assert codec.decode(compiled.data) == compiled.vector


@QUICK
@given(anything())
def test_compile_decompile_compile_is_a_fixed_point(drawn: tuple[str, SubscriptionTree]) -> None:
    check_fixed_point(*drawn)


@pytest.mark.slow
@settings(QUICK, max_examples=3000)
@given(anything())
def test_it_is_a_fixed_point_three_thousand_times(drawn: tuple[str, SubscriptionTree]) -> None:
    check_fixed_point(*drawn)


# What people read -----------------------------------------------------------------------------


def reread(condition: Condition, **fields: object) -> SubscriptionTree:
    """Return what is read from a compiled condition."""
    compiled = compile_subscription(SubscriptionTree(condition, **fields), RESCUE)  # type: ignore[arg-type]
    return decompile(compiled.data, RESCUE, compiled.options)


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        ("temp", NamedTerm(Name("febrile")), NamedTerm(Name("high"))),
        ("HR", About(Quantity(2, "Hz")), About(Quantity(120.0, "bpm"))),
        (
            "HR",
            About(Quantity(120), Quantity(40)),
            About(Quantity(120.0, "bpm"), Quantity(40.0, "bpm")),
        ),
        (
            "temp",
            CrispComparison(Operator.GREATER, Quantity(104, "°F")),
            CrispComparison(Operator.AT_LEAST, Quantity(40.1, "°C")),
        ),
        (
            "temp",
            CrispRange(Quantity(36), Quantity(38)),
            CrispRange(Quantity(36.0, "°C"), Quantity(38.0, "°C")),
        ),
        ("category", NamedTerm(Name("immediate")), CrispComparison(Operator.EQUAL, Text("red"))),
        (
            "AVPU",
            CrispComparison(Operator.LESS, Text("alert")),
            CrispComparison(Operator.AT_MOST, Text("voice")),
        ),
        (
            "measured_at",
            CrispComparison(Operator.AT_LEAST, Moment("14:30")),
            CrispComparison(Operator.AT_LEAST, Moment("14:30")),
        ),
        (
            "born",
            CrispComparison(Operator.LESS, Moment("2000-01-01")),
            CrispComparison(Operator.AT_MOST, Moment("1999-12-31")),
        ),
        ("HR", Shape("trapezoid", tuple(map(Quantity, (40, 60, 90, 130)))), "trapezoid"),
        ("HR", Shape("rising", tuple(map(Quantity, (70, 95)))), "rising"),
    ],
)
def test_constraints_are_read_as_simply_as_they_can_be(
    name: str, written: Constraint, read: Constraint | str
) -> None:
    (leaf,) = iterate_predicates(reread(PredicateNode(Name(name), written)).condition)
    if isinstance(read, str):
        assert isinstance(leaf.constraint, Shape)
        assert leaf.constraint.kind == read
    else:
        assert leaf.constraint == read


def test_a_subscription_in_words_comes_back_in_words() -> None:
    hot = PredicateNode(Name("body_temp"), NamedTerm(Name("high")), hedges=(Hedge.VERY,))
    odd = PredicateNode(Name("pulse"), NamedTerm(Name("normal")), negated=True)
    found = reread(
        Or((And((hot, odd)), PredicateNode(Name("age"), NamedTerm(Name("infant"))))),
        possible=Scalar(0.7),
        certain=Scalar(0.2),
        recent=Recent("few minutes"),
        name=Name("fever"),
    )
    assert found == SubscriptionTree(
        Or(
            (
                And(
                    (
                        PredicateNode(
                            Name("patient_temperature"),
                            NamedTerm(Name("high")),
                            hedges=(Hedge.VERY,),
                        ),
                        PredicateNode(Name("heart_rate"), NamedTerm(Name("normal")), negated=True),
                    )
                ),
                PredicateNode(Name("age"), NamedTerm(Name("infant"))),
            )
        ),
        possible=Scalar(0.7),
        certain=Scalar(0.2),
        recent=Recent("few minutes"),
        name=Name("fever"),
    )


def test_a_hedge_that_was_fitted_away_is_read_as_a_hedge() -> None:
    leaves = (
        PredicateNode(Name("heart_rate"), NamedTerm(Name("low")), hedges=(Hedge.VERY,)),
        PredicateNode(Name("patient_temperature"), NamedTerm(Name("high"))),
        PredicateNode(Name("age"), NamedTerm(Name("old"))),
    )
    found = list(iterate_predicates(reread(And(leaves)).condition))
    assert found[1] == leaves[0]


def test_the_event_is_named_where_attributes_leave_it_open() -> None:
    near = PredicateNode(Name("team.east"), CrispComparison(Operator.LESS, Quantity(5, "km")))
    assert reread(near).event == Name("team")
    assert reread(PredicateNode(Name("age"), NamedTerm(Name("old")))).event is None


# Vectors from elsewhere -----------------------------------------------------------------------


def draw_vector(rng: random.Random) -> vectors.SubscriptionVector:
    """Return a vector that no compiler of ours made: any triples, any pattern."""
    event = rng.choice(list(RESCUE.events.values()))
    count = rng.randint(1, 4)
    attributes = rng.sample(sorted(event.attributes.values(), key=lambda a: a.bit), count)
    predicates = []
    for attribute in sorted(attributes, key=lambda a: a.bit):
        low, high = sorted(rng.choices(range(attribute.last + 1), k=2))
        if attribute.symbols and not attribute.is_graded:
            low, high = sorted(rng.choices(range(len(attribute.symbols) + 2), k=2))
        left, right = rng.choices([*range(0, 255, 7), 255], k=2)
        predicates.append(
            vectors.Predicate(
                attribute.bit,
                low,
                high,
                left,
                rng.choice([left, right]),
                rng.random() < 0.3,
                rng.choice([0, 0, 1, 2, 3, 5, 14]),
                attribute.wide,
                rng.choice([0, 0, 0, 60]),
            )
        )
    kind = rng.choice([0, 0, 1, 2, 3, 4, 5])
    pattern = b""
    if count > 1 and kind != 1 and rng.random() < 0.6:
        stack = [bytes([i]) for i in range(count)]
        while len(stack) > 1:
            a, b = stack.pop(), stack.pop()
            joined = a + b + bytes([rng.choice([AND, OR]) | 2])
            stack.insert(0, joined + bytes([NOT]) if rng.random() < 0.3 else joined)
        pattern = stack[0]
    return vectors.SubscriptionVector(
        event.number, predicates, kind, rng.randint(20, 220), pattern=pattern
    )


def test_foreign_vectors_are_read_with_their_meaning() -> None:
    rng = random.Random(5)
    compared = 0
    for _ in range(70):
        vector = draw_vector(rng)
        data = codec.encode(vector)
        tree = decompile(data, RESCUE)
        try:
            again = compile_subscription(tree, RESCUE, compact=False)
        except LanguageError as error:
            if error.message.startswith("empty set"):  # nothing matched it before either
                continue
            raise
        present = vector.features
        scratch = bytearray(SCRATCH)
        for _ in range(60):
            values = [0] * 16
            for p in vector.predicates:
                values[p.attribute] = rng.randint(0, p.last)
            wanted = evaluate(data, 0, present, values, scratch) >= 0
            assert (evaluate(again.data, 0, present, values, scratch) >= 0) == wanted, vector
            compared += 1
    assert compared > 2500


def test_what_is_not_in_the_vocabulary_is_refused() -> None:
    vector = vectors.SubscriptionVector(1, [vectors.Predicate(0, 1, 2)])
    with pytest.raises(LanguageError, match='vocabulary "weather" has no event 1'):
        decompile(vector, WEATHER)
    with pytest.raises(LanguageError, match="event weather has no attribute 15"):
        decompile(vectors.SubscriptionVector(10, [vectors.Predicate(15, 1, 2)]), WEATHER)
    with pytest.raises(LanguageError, match="has another resolution"):
        decompile(vectors.SubscriptionVector(10, [vectors.Predicate(0, 1, 2, wide=True)]), WEATHER)
    with pytest.raises(ProtocolError):
        decompile(b"\x00", RESCUE)


def test_a_negated_whole_is_read_as_it_stands() -> None:
    inner = And(
        (
            PredicateNode(Name("heart_rate"), NamedTerm(Name("high"))),
            PredicateNode(Name("age"), NamedTerm(Name("old")), possible=Scalar(0.3)),
        )
    )
    again = compile_subscription(reread(Not(inner)), RESCUE)
    assert again.data == compile_subscription(SubscriptionTree(Not(inner)), RESCUE).data
