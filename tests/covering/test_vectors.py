"""Boxes of subscription vectors, against the vectors' own answers for random values."""

from __future__ import annotations

from denwatch.node.covering import Covering, Domains, Exact, covers
from denwatch.node.covering.boxes import MAX_BOXES, Box, BoxedSubscription, box_vector
from denwatch.protocol.degrees import ARITHMETIC, MAX, MIN, PRODUCT, SUGENO
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import AND, NOT, OR, Predicate, Significance
from denwatch.protocol.vectors import SubscriptionVector as Vector
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.evaluator import SCRATCH, evaluate
from tests.protocol.samples import Dice, draw_subscription, draw_values

seeds = st.integers(0, 2**31 - 1)


def draw_vector(seed: int) -> Vector:
    """Return a random vector of narrow or wide attributes that is not silent at times."""
    vector: Vector = draw_subscription(Dice(seed))
    vector.recent = vector.significance = None
    vector.restrictors = b""  # test_restrictors.py
    return vector


def matches(vector: Vector, values: list[int]) -> bool:
    return evaluate(encode(vector), 0, 0xFFFF, values, bytearray(SCRATCH)) >= 0


def holds(boxes: tuple[Box, ...], vector: Vector, values: list[int]) -> bool:
    base = 16 * vector.event
    return any(
        all(low <= values[bit - base] <= high for bit, (low, high) in box.items()) for box in boxes
    )


def sides(boxed: BoxedSubscription) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    return boxed.boxes, boxed.boxes if boxed.outer is None else boxed.outer


@given(seeds, seeds)
def test_inner_boxes_match_and_matches_lie_in_outer_boxes(seed: int, more: int) -> None:
    vector = draw_vector(seed)
    inner, outer = sides(box_vector(vector))
    dice = Dice(more)
    for _ in range(40):
        values = draw_values(dice, vector)
        answer = matches(vector, values)
        assert answer or not holds(inner, vector, values)
        assert not answer or holds(outer, vector, values)
        if vector.aggregator in (MIN, MAX) and len(outer) < MAX_BOXES and outer != ({},):
            assert answer == holds(inner, vector, values)


def test_min_and_max_have_exact_boxes() -> None:
    p, q = Predicate(0, 100, 120, 200), Predicate(2, 30, 40, negated=True)
    inner, outer = sides(box_vector(Vector(3, [p, q], MIN, 128)))
    assert inner == outer
    assert [box[50] for box in inner] == [(0, 29), (41, 255)]
    inner, outer = sides(box_vector(Vector(3, [p, q], MAX, 128)))
    assert inner == outer
    assert [sorted(box) for box in inner] == [[48], [50], [50]]


def test_means_have_boxes_within_and_around() -> None:
    predicates = [Predicate(0, 100, 120, 100), Predicate(1, 130, 140, 100)]
    for kind in (PRODUCT, ARITHMETIC):
        inner, outer = sides(box_vector(Vector(1, predicates, kind, 150)))
        for bit in (16, 17):
            assert outer[0][bit][0] < inner[0][bit][0] <= inner[0][bit][1] < outer[0][bit][1]


def test_rules_and_negated_means_cover_nothing_and_can_be_covered() -> None:
    predicates = [Predicate(0, 100, 120, 100), Predicate(1, 30, 40, 100)]
    rules = Vector(1, predicates, SUGENO, consequents=[(200,)])
    negated = Vector(1, predicates, ARITHMETIC, pattern=bytes([0, 1, AND | 2, NOT]))
    anything = Vector(1, [Predicate(0, 0, 255)], MIN, 1)
    for vector in (rules, negated):
        assert sides(box_vector(vector)) == ((), ({},))
        assert covers(box_vector(anything), box_vector(vector), Domains())
        assert not covers(box_vector(vector), box_vector(vector), Domains())


def test_what_is_silent_at_times_covers_nothing() -> None:
    predicates = [Predicate(0, 100, 120)]
    for silent in (
        Vector(1, predicates, recent=(5, 9)),
        Vector(1, predicates, significance=Significance(quiet=8)),
    ):
        assert box_vector(silent).boxes == ()
        assert covers(box_vector(Vector(1, predicates)), box_vector(silent), Domains())


def test_too_many_boxes_are_given_up_soundly() -> None:
    predicates = [Predicate(i, 90, 110, negated=True) for i in range(8)]
    assert sides(box_vector(Vector(1, predicates))) == ((), ({},))


def test_thresholds_of_predicates_narrow_the_boxes() -> None:
    wide = box_vector(Vector(1, [Predicate(0, 100, 120, 60)], threshold=10))
    narrow = box_vector(Vector(1, [Predicate(0, 100, 120, 60, certain=200)], threshold=10))
    assert covers(wide, narrow, Domains())
    assert not covers(narrow, wide, Domains())


@given(st.lists(seeds, min_size=2, max_size=6), seeds)
def test_what_a_passive_vector_matches_an_active_one_matches(drawn: list[int], more: int) -> None:
    vectors = {}
    table: Covering[int] = Covering(Domains(), Exact())
    for id, seed in enumerate(drawn):
        dice = Dice(seed)
        predicates = []
        for bit in range(1 + dice.below(2)):
            low, high = sorted((dice.byte(), dice.byte()))
            predicates.append(Predicate(bit, low, high, dice.byte(), negated=dice.chance(4)))
        pattern = bytes([0, 1, OR | 2]) if len(predicates) == 2 and dice.chance(3) else b""
        vectors[id] = Vector(1, predicates, MIN, 1 + dice.below(255), pattern=pattern)
        table.subscribe(id, box_vector(vectors[id]))
    dice = Dice(more)
    for _ in range(60):
        values = draw_values(dice, vectors[dice.below(len(vectors))])
        wanted = [id for id, vector in vectors.items() if matches(vector, values)]
        assert not wanted or any(table.is_active(id) for id in wanted)
