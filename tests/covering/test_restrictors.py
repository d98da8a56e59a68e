"""Covering with temporal restrictors, judged by brute force over readings of different ages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from denwatch.node.covering import Approximate, Covering, Domains, Exact, PairWise, Policy
from denwatch.node.covering.boxes import (
    AGE,
    OLD,
    BoxedSubscription,
    box_doubtful,
    box_vector,
    find_outer,
    list_bits,
)
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading
from denwatch.protocol.vectors import SubscriptionVector as Vector

from tests.covering.doubt import Dice

Boxing = Callable[[Vector], BoxedSubscription]
ATTRIBUTES = 2
CODES = (0, 0, 5, 10, 20)


def draw_vector(dice: Dice) -> Vector:
    chosen = [bit for bit in range(ATTRIBUTES) if not dice.chance(4)] or [dice.below(ATTRIBUTES)]
    predicates = []
    for bit in chosen:
        low = 30 * dice.below(4)
        predicates.append(Predicate(bit, low, low + 30 * (1 + dice.below(5))))
    codes = bytes(dice.choice(CODES) for _ in chosen)
    return Vector(1, predicates, restrictors=codes if any(codes) else b"")


def draw_note(dice: Dice, is_doubtful: bool) -> NotificationVector | None:
    readings = []
    for bit in range(ATTRIBUTES):
        if dice.chance(6):
            continue
        value = dice.below(200)
        points = (value, value, value, value)
        if is_doubtful and dice.chance(2):
            points = (max(0, value - 20), value, value, min(255, value + 20))
        readings.append(Reading(bit, points, age=dice.choice((0, 0, 1, 5, 10, 11, 20))))
    if all(reading.age for reading in readings):
        return None
    return NotificationVector(1, readings)


def is_wanted(vector: Vector, note: NotificationVector) -> bool:
    found = match(vector, note)
    return found is not None and found.matched


def judge(boxing: Boxing, policy: Policy, sets: int, is_doubtful: bool) -> Iterator[bool]:
    """Yield for each notification that a passive subscription wants whether an active one does."""
    for seed in range(sets):
        dice = Dice(seed)
        vectors = [draw_vector(dice) for _ in range(3 + dice.below(12))]
        table: Covering[int] = Covering(Domains(), policy)
        for id, vector in enumerate(vectors):
            table.subscribe(id, boxing(vector))
        if dice.chance(3):
            table.unsubscribe(dice.below(len(vectors)))
        if dice.chance(3):
            table.rebuild()
        active, passive = table.active(), table.passive()
        for _ in range(60 if passive else 0):
            note = draw_note(dice, is_doubtful)
            if note and any(is_wanted(vectors[id], note) for id in passive):
                yield any(is_wanted(vectors[id], note) for id in active)


@pytest.mark.parametrize("policy", [Exact(), Approximate(), Approximate(k=3), PairWise()])
@pytest.mark.parametrize("is_doubtful", [False, True])
def test_nothing_wanted_is_lost(policy: Policy, is_doubtful: bool) -> None:
    boxing = box_doubtful if is_doubtful else box_vector
    judged = list(judge(boxing, policy, 200, is_doubtful))
    assert all(judged)
    assert len(judged) > 200


def forget_restrictors(vector: Vector) -> BoxedSubscription:
    """Box as if nothing had a restrictor."""
    return box_vector(Vector(vector.event, vector.predicates))


def forget_ages(vector: Vector) -> BoxedSubscription:
    """Box last readings without their age."""
    boxed = box_vector(vector)
    ages = {bit for bit in list_bits(boxed.mask) if bit >= AGE}

    def strip(boxes: tuple[object, ...]) -> tuple[dict[int, tuple[int, int]], ...]:
        return tuple({b: i for b, i in box.items() if b not in ages} for box in boxes)  # type: ignore[attr-defined]

    mask = boxed.mask & ~sum(1 << bit for bit in ages)
    return BoxedSubscription(mask, strip(boxed.boxes), strip(find_outer(boxed)))


def forget_the_new_one(vector: Vector) -> BoxedSubscription:
    """Let subscriptions cover that need no reading of now."""
    boxed = box_vector(vector)
    return boxed if boxed.boxes else replace(boxed, boxes=find_outer(boxed))


@pytest.mark.parametrize("boxing", [forget_restrictors, forget_ages, forget_the_new_one])
def test_without_a_rule_something_is_lost(boxing: Boxing) -> None:
    assert not all(judge(boxing, Exact(), 400, False))


def test_a_longer_restrictor_covers_a_shorter_one() -> None:
    def make(low: int, code: int) -> BoxedSubscription:
        predicates = [Predicate(0, 100, 255), Predicate(1, low, 255)]
        return box_vector(Vector(1, predicates, restrictors=bytes([0, code]) if code else b""))

    table: Covering[str] = Covering(Domains(), Exact())
    assert table.subscribe("minute", make(50, 30)).active
    assert table.subscribe("half", make(60, 20)).by == "minute"
    assert table.subscribe("two", make(60, 40)).active
    assert table.subscribe("now", make(60, 0)).active  # another attribute, as masks see it


def test_last_readings_have_their_attributes_domain() -> None:
    domains = Domains(special={16: (0, 65535)})
    assert domains.of(OLD + 16) == domains.of(16) == (0, 65535)
    assert domains.of(OLD + 17) == domains.of(AGE + 16) == (0, 255)
