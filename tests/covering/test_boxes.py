"""Boxes, domains and covering between two subscriptions."""

from __future__ import annotations

import pytest
from denwatch.node.covering import Approximate, BoxedSubscription, Covering, Domains, Exact, covers
from denwatch.node.covering.boxes import subtract_row
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.covering.strategies import WORLDS, make_subscription, plains


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_covers_equals_its_definition(data: st.DataObject) -> None:
    world = data.draw(st.sampled_from(WORLDS))
    first, second = (data.draw(plains(world, full=False)) for _ in range(2))
    domains = Domains(special=dict(enumerate(world.domains)))
    expected = not world.match(second, outer=True) & ~world.match(first)
    assert covers(make_subscription(first), make_subscription(second), domains) == expected


def test_two_boxes_of_one_subscription_cover_together() -> None:
    halves = BoxedSubscription(1, ({0: (0, 9)}, {0: (10, 20)}))
    whole = BoxedSubscription(1, ({0: (5, 15)},))
    assert covers(halves, whole, Domains())
    table = Covering[str](Domains(), Exact())
    table.subscribe("halves", halves)
    assert table.subscribe("whole", whole).by == "halves"


def test_the_papers_example_of_a_subsumed_subscription() -> None:
    """Subsumption paper, Fig. 2, 3 and 5: four negative rectangles, then seven, then no change."""
    table = Covering[int](Domains((0, 1000)), Exact())
    s1 = BoxedSubscription(3, ({0: (175, 510), 1: (180, 680)},))
    s2 = BoxedSubscription(3, ({0: (405, 840), 1: (110, 540)},))
    s3 = BoxedSubscription(3, ({0: (380, 720), 1: (230, 495)},))
    assert table.subscribe(1, s1).active
    assert table.count_rectangles() == 4
    assert table.subscribe(2, s2).active
    assert table.count_rectangles() == 7
    assert not covers(s1, s3, Domains((0, 1000)))
    assert not covers(s2, s3, Domains((0, 1000)))
    placement = table.subscribe(3, s3)
    assert not placement.active
    assert placement.by is None
    assert table.explain(3) == (1, 2)
    assert table.count_rectangles() == 7
    assert table.unsubscribe(1) == (3,)


def test_the_rest_of_a_box_stays_inside_it() -> None:
    """Where the paper's Fig. 4, line 10, has s(i), the rest must be s(i) and r(i)."""
    assert subtract_row((0, 5, 0, 5), (3, 9, 2, 9)) == [(0, 2, 0, 5), (3, 5, 0, 1)]
    assert subtract_row((0, 5, 0, 5), (6, 9, 0, 5)) == [(0, 5, 0, 5)]
    assert subtract_row((0, 5, 0, 5), (-1, 9, 0, 5)) == []


@pytest.mark.parametrize("policy", [Exact(), Approximate()])
@pytest.mark.parametrize(
    "domain", [(0, 255), (0, 65535), (0, 1000), (-(2**31), 2**31 - 1), (-5, -5)]
)
def test_any_integer_domain_works_to_its_ends(domain: tuple[int, int], policy: Exact) -> None:
    low, high = domain
    middle = (low + high) // 2
    table = Covering[str](Domains(domain), policy)
    assert table.subscribe("lower", BoxedSubscription(3, ({0: (low, middle)},))).active
    upper = table.subscribe("upper", BoxedSubscription(3, ({0: (min(middle + 1, high), high)},)))
    assert upper.active == (low < high)
    assert table.count_rectangles() == 0
    assert not table.subscribe("all", BoxedSubscription(3, ({},))).active
    assert table.unsubscribe("upper") == (("all",) if low < high else ())


def test_what_lies_outside_the_domain_matches_nothing() -> None:
    table = Covering[str](Domains((0, 9)), Exact())
    assert not table.subscribe("outside", BoxedSubscription(1, ({0: (10, 20)},))).active
    assert not table.subscribe("nothing", BoxedSubscription(1, ())).active
    assert table.explain("outside") == ()
    assert table.subscribe("clipped", BoxedSubscription(1, ({0: (-4, 20)},))).active
    assert table.rectangles(1).tolist() == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoxedSubscription(-1, ()), "mask must not be negative"),
        (lambda: BoxedSubscription(1, ({}, {1: (0, 1)})), "box 1: bit 1 is not in mask 0x1"),
        (lambda: BoxedSubscription(1, ({-1: (0, 1)},)), "bit -1 is not in mask"),
        (lambda: BoxedSubscription(2, ({1: (5, 4)},)), "box 0, bit 1: 5 > 4"),
        (lambda: Domains((3, 2)), "domain of default"),
        (lambda: Domains(special={4: (0, 2**31)}), "domain of bit 4"),
        (lambda: Approximate(k=-1), "k must not be negative"),
    ],
)
def test_malformed_input_is_refused_by_name(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
