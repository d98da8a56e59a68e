"""BFCPAB, BFCPA1 and BFCPA2 against the protocol where they agree and against floats where not."""

from __future__ import annotations

import random

import pytest
from denwatch.protocol.degrees import ARITHMETIC, GEOMETRIC, MAX, MIN, PRODUCT, SUGENO, WEIGHTED
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from papers import BFCPA1, BFCPA2, BFCPAB, approximate, size_breakdown
from tests.matching.papers_oracle import fuzzy_mean, mean_of_pairs
from tests.matching.papers_samples import (
    FOUR,
    make_notification,
    make_predicate,
    make_subscription,
)

PLAIN = (MIN, PRODUCT, ARITHMETIC, GEOMETRIC)


def read(values: list[int]) -> NotificationVector:
    return NotificationVector(0, [Reading(a, (x,) * 4) for a, x in enumerate(values)])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_rules_score_as_the_protocol_says(seed: int) -> None:
    rng = random.Random(seed)
    s = make_subscription(rng, (SUGENO,))
    assert s.consequents is not None
    engine = BFCPA1() if len(s.consequents[0]) == 3 else BFCPA2()
    engine.add(1, s)
    for _ in range(5):
        n = make_notification(rng)
        expected = match(s, n, 4)
        hits = engine.match(n, 4)
        assert bool(hits) == bool(expected and expected.matched)
        if hits and expected:
            assert hits[0][1:3] == (expected.possible, expected.certain)
            assert hits[0].attribute == s.predicates[expected.predicate].attribute


@pytest.mark.parametrize("order", [0, 1])
def test_rules_score_as_floats_do(order: int) -> None:
    rng = random.Random(order)
    for _ in range(100):
        count = rng.randint(2, 4)
        sets = [Predicate(a, 80, 120, rng.choice((20, 60, 100))) for a in range(count)]
        pairs = count * (count - 1) // 2
        rules: list[tuple[int, ...]] = [(rng.randint(0, 255),) for _ in range(pairs)]
        if order:
            rules = [(c[0], rng.randint(-60, 60), rng.randint(-60, 60)) for c in rules]
        s = SubscriptionVector(0, sets, SUGENO, 0, consequents=rules)
        engine = BFCPA1() if order else BFCPA2()
        engine.add(1, s)
        values = [rng.randint(40, 160) for _ in range(count)]
        singles = [match(SubscriptionVector(0, [p], MIN, 0), read(values)) for p in sets]
        degrees = [m.possible for m in singles if m]
        expected = fuzzy_mean(degrees, values, rules)
        assert engine.match(read(values))[0].possible == pytest.approx(expected, abs=1.01)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["c1d2", "c2d1", "c2c2"]), st.sampled_from(PLAIN))
def test_patterns_with_groups_of_two_score_as_the_protocol_says(
    seed: int, name: str, kind: int
) -> None:
    rng = random.Random(seed)
    pattern = FOUR[name]
    count = 1 + max(op for op in pattern if op < 16)
    predicates = [make_predicate(rng, a) for a in range(count)]
    s = SubscriptionVector(0, predicates, kind, 60, pattern=pattern)
    engine = BFCPAB()
    engine.add(9, s)
    for _ in range(4):
        n = make_notification(rng)
        expected = match(s, n)
        hits = engine.match(n)
        assert bool(hits) == bool(expected and expected.matched)
        if hits and expected:
            assert hits[0][1:3] == (expected.possible, expected.certain)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=3, max_size=6))
def test_larger_groups_are_means_of_pairs_between_min_and_max(values: list[int]) -> None:
    # A slope of one degree a step from 0 makes the value its own degree.
    gamma = next(code for code in range(255) if 0.57 * 100 ** (code / 254) >= 1.0)
    sets = [Predicate(a, 255, 255, gamma - 1) for a in range(len(values))]
    singles = [match(SubscriptionVector(0, [p], MIN, 0), read(values)) for p in sets]
    degrees = [m.possible for m in singles if m]
    scores = {}
    for kind in (MIN, MAX):
        engine = BFCPAB()
        engine.add(1, SubscriptionVector(0, sets, kind, 0))
        scores[kind] = engine.match(read(values))[0].possible
    assert scores[MIN] == pytest.approx(mean_of_pairs(degrees, min), abs=0.51)
    assert scores[MAX] == pytest.approx(mean_of_pairs(degrees, max), abs=0.51)
    assert min(degrees) <= scores[MIN] <= scores[MAX] <= max(degrees)


def test_one_of_three_alternatives_is_two_thirds() -> None:
    sets = [Predicate(a, 200, 255, 255) for a in range(4)]
    s = SubscriptionVector(0, sets, MIN, 0, pattern=FOUR["d3c1"])
    engine = BFCPAB()
    engine.add(1, s)
    n = read([250, 0, 0, 250])
    exact = match(s, n)
    assert exact is not None
    assert exact.possible == 255
    assert engine.match(n)[0].possible == 170


def test_weights_are_those_of_the_pair() -> None:
    sets = [Predicate(0, 200, 255, weight=3), Predicate(1, 200, 255, weight=1)]
    engine = BFCPAB()
    s = SubscriptionVector(0, sets, WEIGHTED, 0)
    engine.add(1, s)
    exact = match(s, read([250, 0]))
    assert exact is not None
    assert engine.match(read([250, 0]))[0].possible == exact.possible == 191


def test_fuzzifier_bytes_are_those_of_the_paper() -> None:
    sets = [Predicate(a, 1, 2) for a in range(4)]
    sizes = {}
    for name, pattern in FOUR.items():
        count = 1 + max(op for op in pattern if op < 16)
        sizes[name] = size_breakdown(SubscriptionVector(0, sets[:count], pattern=pattern))
    assert sizes == {"c1d2": 9, "c2d1": 9, "c2c2": 12, "d3c1": 21}
    assert size_breakdown(SubscriptionVector(0, sets[:3])) == 18
    assert size_breakdown(SubscriptionVector(0, sets[:1])) == 3


@pytest.mark.parametrize("make", [BFCPA1, BFCPA2])
def test_rules_refuse_patterns_and_rules_of_the_other_order(make: type[BFCPA1 | BFCPA2]) -> None:
    sets = [Predicate(0, 1, 2), Predicate(1, 1, 2), Predicate(2, 1, 2)]
    engine = make()
    with pytest.raises(ValueError, match="pattern"):
        engine.add(1, SubscriptionVector(0, sets, pattern=FOUR["c1d2"]))
    wrong: list[tuple[int, ...]] = [(1,)] if make is BFCPA1 else [(1, 2, 3)]
    with pytest.raises(ValueError, match="order"):
        engine.add(1, SubscriptionVector(0, sets[:2], SUGENO, consequents=wrong))
    with pytest.raises(ValueError, match="rules"):
        BFCPAB().add(1, SubscriptionVector(0, sets[:2], SUGENO, consequents=[(1,)]))
    assert len(engine) == 0


def test_approximated_aggregators_come_near_and_first_order_nearer() -> None:
    rng = random.Random(3)
    errors = {0: 0.0, 1: 0.0}
    count = 0
    for kind in (GEOMETRIC, PRODUCT, ARITHMETIC):
        sets = [Predicate(0, 255, 255, 32), Predicate(1, 255, 255, 32)]
        s = SubscriptionVector(0, sets, kind, 0)
        fitted = {order: approximate(s, order) for order in errors}
        for _ in range(60):
            n = read([rng.randint(20, 255), rng.randint(20, 255)])
            exact = match(s, n)
            assert exact is not None
            for order, rules in fitted.items():
                near = match(rules, n)
                assert near is not None
                errors[order] += abs(near.possible - exact.possible)
            count += 1
    assert errors[1] / count < 10  # of 255
    assert errors[1] < 0.3 * errors[0]


def test_one_predicate_has_no_pair_and_keeps_its_degree() -> None:
    s = SubscriptionVector(0, [Predicate(0, 100, 110, 60)], MIN, 0)
    expected = match(s, read([90]))
    assert expected is not None
    for engine in (BFCPAB(), BFCPA1(), BFCPA2()):
        engine.add(1, s)
        assert engine.match(read([90]))[0].possible == expected.possible
        engine.remove(1)
        assert engine.match(read([90])) == []
