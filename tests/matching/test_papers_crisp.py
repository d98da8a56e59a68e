"""The crisp attribute-value algorithm: the fuzzy definition without degrees."""

from __future__ import annotations

import random

import pytest
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.degrees import ARITHMETIC, MIN, VERY
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import (
    NOT,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from papers import AttributeValue, Reach
from tests.matching.papers_samples import make_crisp_subscription, make_notification


def test_crisp_subscriptions_and_exact_readings_match_as_defined() -> None:
    rng = random.Random(8)
    engine = AttributeValue()
    stored: dict[int, SubscriptionVector] = {}
    found = 0
    for turn in range(1500):
        id = rng.randrange(300)
        if id in stored and rng.random() < 0.4:
            del stored[id]
            engine.remove(id)
        else:
            stored[id] = make_crisp_subscription(rng)
            engine.add(id, stored[id])
        if turn % 10:
            continue
        n = make_notification(rng, uncertain=0)
        expected = []
        for other in sorted(stored):
            s = stored[other]
            answer = match(s, n)
            if answer and answer.matched:
                expected.append(
                    SubscriptionMatch(other, 255, 255, s.predicates[answer.predicate].attribute)
                )
        found += len(expected)
        assert engine.match(n) == expected
        assert len(engine) == len(stored)
    assert found > 200


def test_the_three_intervals_of_a_fuzzy_set() -> None:
    s = SubscriptionVector(0, [Predicate(0, 100, 150, 61)], MIN, 128)  # about 1.7 degrees a step
    inside = {}
    for reach in Reach:
        engine = AttributeValue(reach)
        engine.add(1, s)
        inside[reach] = [
            x for x in range(256) if engine.match(NotificationVector(0, [Reading(0, (x,) * 4)]))
        ]
    assert inside[Reach.OPTIMISTIC] == list(range(100, 151))
    assert set(inside[Reach.OPTIMISTIC]) < set(inside[Reach.MIDDLE])
    assert set(inside[Reach.MIDDLE]) < set(inside[Reach.PESSIMISTIC])
    for level, reach in ((1, Reach.PESSIMISTIC), (128, Reach.MIDDLE), (255, Reach.OPTIMISTIC)):
        degrees = [match(s, NotificationVector(0, [Reading(0, (x,) * 4)])) for x in range(256)]
        assert inside[reach] == [x for x, m in enumerate(degrees) if m and m.possible >= level]


def test_an_uncertain_reading_is_the_middle_of_its_core() -> None:
    engine = AttributeValue()
    engine.add(1, SubscriptionVector(0, [Predicate(0, 50, 60)]))
    assert engine.match(NotificationVector(0, [Reading(0, (0, 40, 70, 255))]))
    assert not engine.match(NotificationVector(0, [Reading(0, (50, 60, 70, 80))]))


def test_a_hedge_narrows_the_interval() -> None:
    plain, very = AttributeValue(), AttributeValue()
    plain.add(1, SubscriptionVector(0, [Predicate(0, 100, 150, 61)]))
    very.add(1, SubscriptionVector(0, [Predicate(0, 100, 150, 61, hedge=VERY)]))
    edge = [
        x
        for x in range(100)
        if plain.match(NotificationVector(0, [Reading(0, (x,) * 4)]))
        and not very.match(NotificationVector(0, [Reading(0, (x,) * 4)]))
    ]
    assert edge


@pytest.mark.parametrize(
    "s",
    [
        SubscriptionVector(0, [Predicate(0, 1, 2)], ARITHMETIC),
        SubscriptionVector(0, [Predicate(0, 1, 2, negated=True)]),
        SubscriptionVector(0, [Predicate(0, 1, 2)], pattern=bytes([0, NOT])),
        SubscriptionVector(0, [Predicate(0, 1, 2)], recent=(1, 2)),
    ],
)
def test_what_is_no_conjunction_of_intervals_is_refused_and_changes_nothing(
    s: SubscriptionVector,
) -> None:
    engine = AttributeValue()
    engine.add(1, SubscriptionVector(0, [Predicate(0, 5, 5)]))
    with pytest.raises(ValueError, match=r"conjunctions|negation"):
        engine.add(1, s)
    assert [hit.id for hit in engine.match(NotificationVector(0, [Reading(0, (5,) * 4)]))] == [1]
