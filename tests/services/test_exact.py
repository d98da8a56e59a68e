"""The exact search against brute force, also while items come and go, and with ties."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from denwatch.node.services import (
    ExactFinder,
    ExhaustiveFinder,
    FeasibilityRule,
    Finder,
    Result,
    ServiceRequest,
    Side,
    SumFinder,
    finder,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.services.cases import draw_case, draw_vector
from tests.services.oracle import rank_items

ASK_ALL = [(rule, side) for rule in FeasibilityRule for side in Side]


def list_matches(result: Result) -> list[tuple[object, int]]:
    return [(match.identity, match.squared) for match in result.matches]


def expect(
    items: dict[object, tuple[int, ...]], request: ServiceRequest
) -> list[tuple[object, int]]:
    pull = request.side is Side.PULL
    return rank_items(items, request.values, request.rule.value, pull)[: request.limit]


def lay_out_after(changes: int) -> mock._patch[int]:
    """Make the buckets be laid out anew after so many changes: 0 is after almost each one."""
    return mock.patch.object(finder, "_LEAST_CHANGES", changes)


@pytest.mark.parametrize("finder_type", [ExactFinder, ExhaustiveFinder])
@given(case=draw_case(), changes=st.sampled_from([0, 3, 256]))
@example(case=(2, [], ServiceRequest((0, 1))), changes=256)
@settings(max_examples=150, deadline=None)
def test_answers_are_those_of_brute_force(
    finder_type: type[Finder],
    case: tuple[int, list[tuple[int, ...]], ServiceRequest],
    changes: int,
    rng: np.random.Generator,
) -> None:
    width, vectors, request = case
    with lay_out_after(changes):
        finder = finder_type(width)
        for identity, vector in enumerate(vectors):
            finder.add(identity, vector)
    assert list_matches(finder.find(request, rng)) == expect(dict(enumerate(vectors)), request)


@given(data=st.data(), width=st.sampled_from([2, 4, 70]), changes=st.sampled_from([0, 2, 256]))
@settings(max_examples=100, deadline=None)
def test_answers_stay_exact_while_items_come_and_go(
    data: st.DataObject, width: int, changes: int, rng: np.random.Generator
) -> None:
    items: dict[object, tuple[int, ...]] = {}
    with lay_out_after(changes):
        finder = ExactFinder(width)
        for _ in range(data.draw(st.integers(1, 25))):
            name = data.draw(st.integers(0, 7))
            if name in items:
                finder.remove(name)
                del items[name]
            else:
                items[name] = data.draw(draw_vector(width, True))
                finder.add(name, items[name])
            rule, side = data.draw(st.sampled_from(ASK_ALL))
            limit = data.draw(st.sampled_from([1, 3, None]))
            request = ServiceRequest(data.draw(draw_vector(width, True)), rule, side, limit)
            assert list_matches(finder.find(request, rng)) == expect(items, request)
            assert len(finder) == len(items)


@pytest.mark.parametrize(("rule", "side"), ASK_ALL)
@pytest.mark.parametrize("ternary", [False, True])
@pytest.mark.parametrize("width", [6, 20, 90])
def test_buckets_of_many_items_are_exact(
    rule: FeasibilityRule, side: Side, ternary: bool, width: int, rng: np.random.Generator
) -> None:
    values, weights = ((-1, 0, 1), (0.1, 0.7, 0.2)) if ternary else ((0, 1), (0.8, 0.2))
    rows = rng.choice(values, (1200, width), p=weights)
    items = dict(enumerate(tuple(row) for row in rows.tolist()))
    finder = ExactFinder(width)
    finder.add_many(list(items), rows)
    for name in rng.choice(1200, 100, replace=False).tolist():
        finder.remove(name)
        del items[name]
    for _ in range(12):
        asked = tuple(rng.choice(values, width, p=weights).tolist())
        request = ServiceRequest(asked, rule, side)
        assert list_matches(finder.find(request, rng)) == expect(items, request)


def test_ties_go_to_the_oldest_even_across_buckets(rng: np.random.Generator) -> None:
    # Both differ from the request in one attribute, one with fewer and one with more of them.
    for first, second in (((1, 1, 1), (1, 0, 0)), ((1, 0, 0), (1, 1, 1))):
        with lay_out_after(0):
            finder = ExactFinder(3)
            finder.add("older", first)
            finder.add("younger", second)
        best = finder.find(ServiceRequest((1, 1, 0), FeasibilityRule.NEAREST), rng).best
        assert best == ("older", 1)


def test_an_item_added_again_is_young(rng: np.random.Generator) -> None:
    finder = ExactFinder(2)
    finder.add_many(["a", "b"], [[1, 0], [1, 0]])
    finder.remove("a")
    finder.add("a", (1, 0))
    result = finder.find(ServiceRequest((1, 0), limit=None), rng)
    assert [match.identity for match in result.matches] == ["b", "a"]


def test_the_search_stops_early_and_says_what_it_read(rng: np.random.Generator) -> None:
    # 300 items with one attribute, 5,000 with many: the request is met in the first bucket.
    rows = np.zeros((5300, 40), np.int8)
    rows[300:, :30] = 1
    rows[:300, 0] = 1
    finder = ExactFinder(40)
    finder.add_many(range(5300), rows)
    request = (1,) + (0,) * 39
    assert 1 <= finder.find(ServiceRequest(request), rng).probes <= 300
    # Nothing has the last attribute: all that could have had it must be read, once.
    impossible = (0,) * 39 + (1,)
    assert finder.find(ServiceRequest(impossible), rng).probes == 5300
    assert finder.find(ServiceRequest(impossible), rng).matches == ()


@given(vectors=st.lists(draw_vector(6, False), max_size=20), asked=draw_vector(6, False))
@settings(max_examples=100, deadline=None)
def test_sums_is_optimal_for_binary_wishes(
    vectors: list[tuple[int, ...]], asked: tuple[int, ...], rng: np.random.Generator
) -> None:
    # What a feasible binary service has too much *is* the difference of the sums.
    sums, best = SumFinder(6), ExactFinder(6)
    for identity, vector in enumerate(vectors):
        sums.add(identity, vector)
        best.add(identity, vector)
    request = ServiceRequest(asked)
    assert sums.find(request, rng).quality == best.find(request, rng).quality
