"""FNIF, FNIFS, FNIFC and FIP answer exactly as the protocol defines a match, and as each other."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from papers import FIP, FNIF, FNIFC, FNIFS
from tests.matching.papers_samples import (
    make_notification,
    make_subscription,
    notifications,
    subscriptions,
)

ENGINES = (FNIF, FNIFS, FNIFC, FIP)
Engine = FNIF | FNIFC | FIP


def expect(
    stored: Mapping[int, SubscriptionVector], n: NotificationVector, age: int
) -> list[SubscriptionMatch]:
    """Return the hits by the definition, one subscription at a time."""
    hits = []
    for id in sorted(stored):
        s = stored[id]
        found = match(s, n, age)
        if found and found.matched:
            attribute = s.predicates[found.predicate].attribute
            hits.append(SubscriptionMatch(id, found.possible, found.certain, attribute))
    return hits


def fill(engine: Engine, stored: Mapping[int, SubscriptionVector]) -> Engine:
    for id, s in stored.items():
        engine.add(id, s)
    return engine


@pytest.mark.parametrize("make", ENGINES)
@settings(max_examples=40, deadline=None)
@given(
    stored=st.dictionaries(st.integers(-5, 2**40), subscriptions(), max_size=12),
    asked=st.lists(notifications(), min_size=1, max_size=4),
    age=st.integers(0, 20),
)
def test_answers_are_those_of_the_definition(
    make: type[Engine],
    stored: dict[int, SubscriptionVector],
    asked: list[NotificationVector],
    age: int,
) -> None:
    engine = fill(make(), stored)
    assert len(engine) == len(stored)
    for n in asked:
        assert engine.match(n, age) == expect(stored, n, age)


def test_all_engines_agree_on_a_corpus() -> None:
    rng = random.Random(4)
    stored = {id: make_subscription(rng) for id in range(500)}
    engines = [fill(make(), stored) for make in ENGINES]
    matched = 0
    for turn in range(20):
        n = make_notification(rng, uncertain=0.3)
        expected = expect(stored, n, turn % 12)
        matched += len(expected)
        for engine in engines:
            assert engine.match(n, turn % 12) == expected
    assert matched > 150  # the corpus is one in which something happens


@pytest.mark.parametrize("make", ENGINES)
def test_adding_replacing_and_removing_in_any_order(make: type[Engine]) -> None:
    rng = random.Random(11)
    pool = [make_subscription(rng) for _ in range(40)]
    engine = make()
    stored: dict[int, SubscriptionVector] = {}
    for turn in range(600):
        id = rng.randrange(60)
        if id in stored and rng.random() < 0.5:
            del stored[id]
            engine.remove(id)
        else:
            stored[id] = rng.choice(
                pool
            )  # a small pool: equal vectors and replacements are frequent
            engine.add(id, stored[id])
        assert len(engine) == len(stored)
        if turn % 5 == 0:
            n = make_notification(rng)
            assert engine.match(n) == expect(stored, n, 0)
    for id in list(stored):
        engine.remove(id)
    assert len(engine) == 0
    assert engine.match(make_notification(rng)) == []


@pytest.mark.parametrize("make", ENGINES)
def test_removing_what_is_not_there_is_a_key_error(make: type[Engine]) -> None:
    engine = make()
    with pytest.raises(KeyError):
        engine.remove(7)


@pytest.mark.parametrize("make", [FNIF, FNIFS, FNIFC])
def test_the_source_sends_one_notification_for_each_mask(make: type[FNIF | FNIFC]) -> None:
    rng = random.Random(5)
    stored = {id: make_subscription(rng) for id in range(400)}
    engine = make()
    fill(engine, stored)
    for _ in range(40):
        n = make_notification(rng, uncertain=0.2)
        sent = engine.filter(n)
        hits = {hit.id: hit for hit in expect(stored, n, 0)}
        assert all(hits[hit.id] == hit for hit in sent)
        masks = [stored[hit.id].features for hit in sent]
        assert len(set(masks)) == len(masks)
        assert set(masks) == {stored[id].features for id in hits}


def test_predicates_are_indexed_once_and_forgotten_with_their_last_subscription() -> None:
    rng = random.Random(2)
    s = make_subscription(rng)
    engine = FIP()
    for id in range(5):
        engine.add(id, s)
    assert engine.count_predicates() == len({p.fields() for p in s.predicates})
    for id in range(5):
        assert engine.count_predicates() > 0
        engine.remove(id)
    assert engine.count_predicates() == 0
