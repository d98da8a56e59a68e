"""A-ToPSS in all its variants against plain floats, and against the protocol's integers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

import pytest
from denwatch.protocol.degrees import ARITHMETIC, MAX, MIN, WEIGHTED
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from papers import (
    BITS,
    FLOAT,
    Aggregation,
    Association,
    ATopss,
    Constraint,
    Interest,
    Order,
    Trapezoid,
    translate_notification,
    translate_subscription,
)
from tests.matching.papers_oracle import certain, possible, rate_interest

VARIANTS = list(product(Order, Association))
NEAR = 1e-5  # closer to a threshold than this, single precision may decide either way
ATTRIBUTES = 6
CASES = {
    "crisp subscriptions, crisp publications": (1.0, 1.0),
    "approximate subscriptions, crisp publications": (0.0, 1.0),
    "crisp subscriptions, approximate publications": (1.0, 0.0),
    "approximate subscriptions, approximate publications": (0.0, 0.0),
    "mixed": (0.5, 0.5),
}


def make_points(rng: random.Random, crisp: bool) -> Trapezoid:
    """Return four points on a grid, so that they coincide often; crisp: no slopes, half a point."""
    a, b, c, d = sorted(rng.randint(0, 20) / 20 for _ in range(4))
    if crisp:
        return (b, b, b, b) if rng.random() < 0.5 else (b, b, c, c)
    return a, b, c, d


def make_interest(rng: random.Random, crisp: float) -> Interest:
    attributes = rng.sample(range(ATTRIBUTES), rng.randint(1, 3))
    constraints = [
        Constraint(
            a,
            make_points(rng, rng.random() < crisp),
            rng.choice((0.0, 0.0, 0.3, 0.8)),
            rng.choice((0.0, 0.0, 0.0, 0.3)),
            rng.choice((1.0, 2.0, 5.0)),
        )
        for a in attributes
    ]
    return Interest(tuple(constraints), rng.choice((0.0, 0.4, 0.7, 1.0)), rng.choice((0.0, 0.45)))


def make_publication(rng: random.Random, crisp: float) -> dict[int, Trapezoid]:
    attributes = rng.sample(range(ATTRIBUTES), rng.randint(2, 5))
    publication = {}
    for a in attributes:
        points = make_points(rng, rng.random() < crisp)
        point = points[1]
        publication[a] = (point,) * 4 if crisp == 1.0 else points
    return publication


def check(
    engine: ATopss, stored: Mapping[int, Interest], publication: dict[int, Trapezoid], kind: str
) -> int:
    """Compare a float engine's answer with the oracle's; return the number of matches."""
    found = {id: (p, c) for id, p, c in engine.match_degrees(publication)}
    matches = 0
    for id, interest in stored.items():
        rated = rate_interest(interest, publication, kind)
        if rated is None:
            assert id not in found
            continue
        matched, high, low, margin = rated
        if margin < NEAR:
            continue
        assert matched == (id in found)
        if matched:
            assert found[id] == pytest.approx((high, low), abs=1e-6)
            matches += 1
    return matches


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_possibility_and_necessity_are_those_of_the_definition(
    seed: int, crisp_set: bool, crisp_value: bool
) -> None:
    rng = random.Random(seed)
    mu, pi = make_points(rng, crisp_set), make_points(rng, crisp_value)
    engine = ATopss()
    engine.add(1, Interest((Constraint(0, mu),)))
    found = engine.match_degrees({0: pi})
    expected = possible(mu, pi)
    if expected > 1e-9:
        assert found[0].possible == pytest.approx(expected, abs=1e-6)
        assert found[0].certain == pytest.approx(certain(mu, pi), abs=1e-6)
        assert found[0].possible >= found[0].certain
    else:
        assert found == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("order", "association"), VARIANTS)
def test_the_five_cases_in_every_variant(case: str, order: Order, association: Association) -> None:
    crisp_subscriptions, crisp_publications = CASES[case]
    rng = random.Random(case)
    stored = {id: make_interest(rng, crisp_subscriptions) for id in range(120)}
    matches = 0
    for aggregation in Aggregation:
        engine = ATopss(order, association, FLOAT, aggregation)
        for id, interest in stored.items():
            engine.add(id, interest)
        for _ in range(5):
            publication = make_publication(rng, crisp_publications)
            matches += check(engine, stored, publication, aggregation.name.lower())
    assert matches > 10


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(list(Aggregation)))
def test_all_variants_agree(seed: int, aggregation: Aggregation) -> None:
    rng = random.Random(seed)
    stored = {id: make_interest(rng, 0.3) for id in range(30)}
    publication = make_publication(rng, 0.3)
    for bits in BITS:
        answers = []
        for order, association in VARIANTS:
            engine = ATopss(order, association, bits, aggregation)
            for id, interest in stored.items():
                engine.add(id, interest)
            answers.append(engine.match(publication))
        if bits == FLOAT or aggregation in (Aggregation.MIN, Aggregation.MAX):
            assert all(answer == answers[0] for answer in answers)
        else:  # a running mean that is rounded up may depend on the order by a cell
            ids = [{hit.id for hit in answer} for answer in answers]
            exact = {d.id for d in make_float(stored, aggregation).match_degrees(publication)}
            assert all(exact <= found for found in ids)


def make_float(stored: Mapping[int, Interest], aggregation: Aggregation) -> ATopss:
    engine = ATopss(aggregation=aggregation)
    for id, interest in stored.items():
        engine.add(id, interest)
    return engine


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_an_encoding_loses_no_match_and_adds_only_within_its_cells(
    bits: int, aggregation: Aggregation
) -> None:
    rng = random.Random(bits)
    stored = {id: make_interest(rng, 0.2) for id in range(150)}
    engine = ATopss(bits=bits, aggregation=aggregation)
    exact = make_float(stored, aggregation)
    for id, interest in stored.items():
        engine.add(id, interest)
    cell = 1 / 2**bits
    # Means round up once for each further constraint, of at most three.
    slack = cell if aggregation in (Aggregation.MIN, Aggregation.MAX) else 3 * cell
    extra = 0
    for _ in range(20):
        publication = make_publication(rng, 0.2)
        loose = {d.id: d for d in engine.match_degrees(publication)}
        strict = {d.id: d for d in exact.match_degrees(publication)}
        assert strict.keys() <= loose.keys()
        for id, degrees in loose.items():
            rated = rate_interest(stored[id], publication, aggregation.name.lower())
            assert rated is not None
            _, high, low, _ = rated
            assert abs(degrees.possible - high) <= slack + 1e-6
            assert abs(degrees.certain - low) <= slack + 1e-6
            assert high > stored[id].possible - slack - 1e-6
            assert low > stored[id].certain - slack - 1e-6
        extra += len(loose) - len(strict)
    assert extra > 0 or bits == 8


@pytest.mark.parametrize(("order", "association"), VARIANTS)
@pytest.mark.parametrize("bits", [FLOAT, 3])
def test_adding_replacing_and_removing(order: Order, association: Association, bits: int) -> None:
    rng = random.Random(17)
    pool = [make_interest(rng, 0.3) for _ in range(60)]
    engine = ATopss(order, association, bits)
    stored: dict[int, Interest] = {}
    for turn in range(900):
        id = rng.randrange(300)  # more than the first room of the vectors
        if id in stored and rng.random() < 0.4:
            del stored[id]
            engine.remove(id)
        else:
            stored[id] = rng.choice(pool)
            engine.add(id, stored[id])
        assert len(engine) == len(stored)
        if turn % 30 == 0:
            publication = make_publication(rng, 0.3)
            fresh = ATopss(Order.REGULAR, Association.LIST, bits)
            for other, interest in stored.items():
                fresh.add(other, interest)
            assert engine.match(publication) == fresh.match(publication)
            assert engine.count_predicates() == fresh.count_predicates()
    for id in list(stored):
        engine.remove(id)
    assert len(engine) == 0
    assert engine.count_predicates() == 0
    assert engine.match(make_publication(rng, 0.3)) == []
    with pytest.raises(KeyError):
        engine.remove(0)


def test_the_attribute_named_is_the_one_that_decided() -> None:
    close, far = (0.4, 0.5, 0.6, 0.7), (0.0, 0.1, 0.2, 0.5)
    interest = Interest((Constraint(3, close), Constraint(8, far)))
    for aggregation, attribute in ((Aggregation.MIN, 8), (Aggregation.MAX, 3)):
        engine = ATopss(aggregation=aggregation)
        engine.add(1, interest)
        publication = {3: (0.5,) * 4, 8: (0.4,) * 4}
        assert [hit.attribute for hit in engine.match(publication)] == [attribute]


@pytest.mark.parametrize(
    ("kind", "aggregation"),
    [
        (MIN, Aggregation.MIN),
        (MAX, Aggregation.MAX),
        (ARITHMETIC, Aggregation.MEAN),
        (WEIGHTED, Aggregation.WEIGHTED),
    ],
)
def test_vectors_translated_match_as_the_protocol_says(kind: int, aggregation: Aggregation) -> None:
    """The protocol's integers stay within 3/255 of the real trapezoids."""
    rng = random.Random(kind)
    compared = 0
    for _ in range(300):
        attributes = sorted(rng.sample(range(4), rng.randint(1, 3)))
        predicates = []
        for a in attributes:
            low = rng.randint(0, 200)
            weight = rng.randint(1, 9) if kind == WEIGHTED else 1
            gammas = rng.choice((0, 40, 90)), rng.choice((0, 40, 90))
            predicates.append(Predicate(a, low, low + 40, *gammas, weight=weight))
        s = SubscriptionVector(2, predicates, kind, 0)
        readings = []
        for a in range(4):
            p = sorted(rng.randint(0, 255) for _ in range(4))
            exact = rng.random() < 0.5
            points = (p[1],) * 4 if exact else (p[0], p[1], p[2], p[3])
            readings.append(Reading(a, points))
        n = NotificationVector(2, readings)
        engine = ATopss(aggregation=aggregation)
        engine.add(5, translate_subscription(s))
        hits = engine.match(translate_notification(n))
        expected = match(s, n)
        assert expected is not None
        if hits:
            assert abs(hits[0].possible - expected.possible) <= 3
            assert abs(hits[0].certain - expected.certain) <= 3
            compared += 1
        else:
            singles = [match(SubscriptionVector(2, [p], kind, 0), n) for p in predicates]
            assert any(m is not None and m.possible <= 3 for m in singles)
    assert compared > 100


def test_what_the_model_cannot_hold_is_refused() -> None:
    engine = ATopss()
    good = (0.0, 0.1, 0.2, 0.3)
    with pytest.raises(ValueError, match="trapezoid"):
        engine.add(1, Interest((Constraint(0, (0.5, 0.1, 0.2, 0.3)),)))
    with pytest.raises(ValueError, match="trapezoid"):
        engine.match({0: (0.5, 0.1, 0.2, 0.3)})
    with pytest.raises(ValueError, match="0 constraints"):
        engine.add(1, Interest(()))
    with pytest.raises(ValueError, match="256 constraints"):
        engine.add(1, Interest((Constraint(0, good),) * 256))
    with pytest.raises(ValueError, match="without end"):
        engine.add(1, Interest((Constraint(0, (float("-inf"), 0.1, 0.2, 0.3)),)))
    with pytest.raises(ValueError, match="weight"):
        engine.add(1, Interest((Constraint(0, good, weight=0.0),)))
    with pytest.raises(ValueError, match="threshold"):
        engine.add(1, Interest((Constraint(0, good),), possible=1.5))
    with pytest.raises(ValueError, match="bits"):
        ATopss(bits=5)
    with pytest.raises(ValueError, match="negation"):
        translate_subscription(SubscriptionVector(0, [Predicate(0, 1, 2, negated=True)]))
    assert len(engine) == 0


def test_fewer_bits_take_less_memory_and_lists_less_than_a_matrix() -> None:
    rng = random.Random(1)
    stored = [make_interest(rng, 0.0) for _ in range(2000)]
    sizes = []
    for bits in BITS:
        engine = ATopss(bits=bits)
        for id, interest in enumerate(stored):
            engine.add(id, interest)
        sizes.append(engine.count_bytes()["degrees"])
    assert sizes == sorted(sizes, reverse=True)
    matrix = ATopss(association=Association.MATRIX)
    for id, interest in enumerate(stored):
        matrix.add(id, interest)
    assert matrix.count_bytes()["association"] > engine.count_bytes()["association"]


def test_nan_is_no_trapezoid() -> None:
    nan = float("nan")
    with pytest.raises(ValueError, match="trapezoid"):
        ATopss().add(1, Interest((Constraint(0, (0.0, nan, 0.5, 1.0)),)))


def test_half_open_sets_and_the_apartment_of_the_paper() -> None:
    """Section 3.1: size medium and price at most 450, against 60 square metres and cheap rent."""
    size, price = 0, 1
    inf = float("inf")
    student = Interest(
        (Constraint(size, (40.0, 50.0, 70.0, 80.0)), Constraint(price, (-inf, -inf, 450.0, 450.0)))
    )
    for order, association in VARIANTS:
        engine = ATopss(order, association)
        engine.add(1, student)
        cheap = (-inf, -inf, 1200.0, 1500.0)
        assert engine.match_degrees({size: (60.0,) * 4, price: cheap}) == [(1, 1.0, 0.0)]
        assert engine.match_degrees({size: (45.0,) * 4, price: (450.0,) * 4}) == [(1, 0.5, 0.5)]
        assert engine.match_degrees({size: (60.0,) * 4, price: (451.0,) * 4}) == []
        assert engine.match_degrees({size: (60.0,) * 4}) == []
