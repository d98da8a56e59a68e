"""Covering under doubt: whatever a passive subscription wants, an active one wants too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from denwatch.node.covering import BoxedSubscription, Covering, Domains, Exact, PairWise, covers
from denwatch.node.covering.boxes import (
    CERTAINTY,
    LEVEL,
    Approximate,
    Box,
    Policy,
    box_doubtful,
    box_vector,
)
from denwatch.protocol.degrees import PRODUCT
from denwatch.protocol.vectors import OR, Predicate, Significance
from denwatch.protocol.vectors import SubscriptionVector as Vector

from tests.covering.doubt import Dice, draw_reading, draw_set, is_wanted

Boxing = Callable[[Vector], BoxedSubscription]


def judge_wanted(boxing: Boxing, policy: Policy, sets: int) -> Iterator[bool]:
    """Yield for each reading that a passive subscription wants whether an active one does too."""
    for seed in range(sets):
        dice = Dice(seed)
        vectors = draw_set(dice)
        table: Covering[int] = Covering(Domains(), policy)
        for id, vector in enumerate(vectors):
            table.subscribe(id, boxing(vector))
        if dice.chance(3):
            table.unsubscribe(dice.below(len(vectors)))
        if dice.chance(3):
            table.rebuild()
        active, passive = table.active(), table.passive()
        for _ in range(40 if passive else 0):
            reading = draw_reading(dice, vectors)
            if any(is_wanted(vectors[id], reading) for id in passive):
                yield any(is_wanted(vectors[id], reading) for id in active)


@pytest.mark.parametrize("policy", [Exact(), Approximate(), Approximate(k=3), PairWise()])
def test_nothing_wanted_is_lost(policy: Policy) -> None:
    judged = list(judge_wanted(box_doubtful, policy, 150))
    assert all(judged)
    assert len(judged) > 500


def test_covering_of_exact_readings_loses_uncertain_ones() -> None:
    assert not all(judge_wanted(box_vector, Exact(), 500))


# Without one rule the judge must notice ---------------------------------------------------------


def _drop(box: Box, *bits: int) -> Box:
    return {bit: interval for bit, interval in box.items() if bit not in bits}


def _forget_thresholds(vector: Vector) -> BoxedSubscription:
    boxed = box_doubtful(vector)
    inner = tuple(_drop(box, LEVEL) for box in boxed.boxes)
    return BoxedSubscription(boxed.mask, inner, boxed.outer, boxed.is_loner)


def _forget_certainties(vector: Vector) -> BoxedSubscription:
    boxed = box_doubtful(vector)
    inner = tuple(_drop(box, CERTAINTY) for box in boxed.boxes)
    return BoxedSubscription(boxed.mask, inner, boxed.outer, boxed.is_loner)


def _join_certain_ones(vector: Vector) -> BoxedSubscription:
    boxed = box_doubtful(vector)
    return BoxedSubscription(boxed.mask, boxed.boxes, boxed.outer)


def _let_certain_ones_cover_possible_ones(vector: Vector) -> BoxedSubscription:
    boxed = box_doubtful(vector)
    inner, outer = (
        tuple(_drop(box, CERTAINTY) for box in boxes) for boxes in (boxed.boxes, boxed.outer or ())
    )
    return BoxedSubscription(boxed.mask & ~(1 << CERTAINTY), inner, outer, boxed.is_loner)


@pytest.mark.parametrize(
    "boxing",
    [
        _forget_thresholds,
        _forget_certainties,
        _join_certain_ones,
        _let_certain_ones_cover_possible_ones,
    ],
)
def test_without_a_rule_readings_are_lost(boxing: Boxing) -> None:
    assert not all(judge_wanted(boxing, Exact(), 5000))


def test_without_the_look_at_disjoint_ranges_readings_are_lost() -> None:
    """One attribute twice in a mean: a wide reading meets ranges that share no value."""
    both = Vector(1, [Predicate(0, 10, 20), Predicate(0, 40, 50)], PRODUCT)
    reading = {0: (5, 15, 45, 55)}
    assert is_wanted(both, reading)
    assert box_doubtful(both).outer
    assert not box_vector(both).outer  # no exact reading matches


# The rules, one by one --------------------------------------------------------------------------


def cover(first: Vector, second: Vector) -> bool:
    return covers(box_doubtful(first), box_doubtful(second), Domains())


def make(low: int, threshold: int = 128, certain: int = 0, **options: Any) -> Vector:
    return Vector(1, [Predicate(0, low, 255)], 0, threshold, certain, **options)


def test_a_threshold_no_higher_covers() -> None:
    assert cover(make(90), make(100))
    assert cover(make(90, 128), make(100, 243))
    assert not cover(make(90, 243), make(100, 128))
    assert not cover(make(100), make(90))


def test_possible_ones_of_any_threshold_cover_certain_ones() -> None:
    assert cover(make(90, 255), make(100, 230, 26))
    assert not cover(make(90, 230, 230), make(100))


def test_a_certain_one_covers_certain_ones_alone() -> None:
    assert cover(make(90, 230, 200), make(100, 230, 200))
    assert cover(make(90, 230, 200), make(100, 240, 240))
    assert not cover(make(90, 230, 220), make(100, 210, 210))
    left = Vector(1, [Predicate(0, 0, 100)], 0, 128, 100)
    right = Vector(1, [Predicate(0, 101, 255)], 0, 128, 100)
    middle = Vector(1, [Predicate(0, 50, 150)], 0, 128, 100)
    table: Covering[str] = Covering(Domains(), Exact())
    for name, vector in (("left", left), ("right", right), ("middle", middle)):
        assert table.subscribe(name, box_doubtful(vector)).active
    assert table.subscribe("far right", box_doubtful(make(200, 128, 100))).by == "right"
    assert table.unsubscribe("right") == ("far right",)


def test_what_is_silent_or_certain_of_one_predicate_covers_nothing() -> None:
    for vector in (
        make(0, recent=(5, 9)),
        make(0, significance=Significance(quiet=8)),
        Vector(1, [Predicate(0, 0, 255, certain=9)]),
        Vector(1, [Predicate(0, 0, 9), Predicate(1, 0, 9)], 0, 9, 9, pattern=bytes([0, 1, OR | 2])),
    ):
        assert box_doubtful(vector).boxes == ()
    assert box_doubtful(Vector(1, [Predicate(0, 0, 9)], 0, 9, 9, pattern=b"")).boxes


def test_together_they_cover_in_spite_of_doubt() -> None:
    table: Covering[str] = Covering(Domains(), Exact())
    for name, low, high in (("left", 0, 100), ("right", 101, 255), ("middle", 50, 150)):
        vector = Vector(1, [Predicate(0, low, high)])
        assert table.subscribe(name, box_doubtful(vector)).active == (name != "middle")
