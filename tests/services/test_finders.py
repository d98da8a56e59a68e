"""What holds for every finder: feasible answers, none missed, honest counts, removal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from denwatch.node.services import FeasibilityRule, RandomFinder, ServiceRequest, Side
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services.cases import FINDERS, draw_case, draw_vector
from tests.services.oracle import rank_items

every_finder = pytest.mark.parametrize("name", FINDERS)


@every_finder
@given(case=draw_case())
@settings(max_examples=60, deadline=None)
def test_answers_are_feasible_and_found_if_any_exists(
    name: str, case: tuple[int, list[tuple[int, ...]], ServiceRequest], rng: np.random.Generator
) -> None:
    width, vectors, request = case
    finder = FINDERS[name](width)
    finder.add_many(range(len(vectors)), vectors)
    result = finder.find(request, rng)
    pull = request.side is Side.PULL
    feasible = dict(rank_items(dict(enumerate(vectors)), request.values, request.rule.value, pull))
    wanted = len(feasible) if request.limit is None else min(request.limit, len(feasible))
    assert len(result.matches) == wanted
    assert len({match.identity for match in result.matches}) == wanted
    for match in result.matches:
        assert feasible[match.identity] == match.squared
    squares = [match.squared for match in result.matches]
    assert squares == sorted(squares)
    assert result.quality == (math.sqrt(squares[0]) if squares else math.inf)
    assert len(vectors) >= result.checks >= wanted
    assert result.probes >= result.checks


@every_finder
@given(
    data=st.data(),
    vectors=st.lists(draw_vector(5, True), min_size=1, max_size=90),
    rule=st.sampled_from(list(FeasibilityRule)),
)
@settings(max_examples=25, deadline=None)
def test_removed_items_are_never_found_and_others_always(
    name: str,
    data: st.DataObject,
    vectors: list[tuple[int, ...]],
    rule: FeasibilityRule,
    rng: np.random.Generator,
) -> None:
    finder = FINDERS[name](5)
    half = len(vectors) // 2
    finder.add_many(range(half), vectors[:half])
    for identity in range(half, len(vectors)):
        finder.add(identity, vectors[identity])
    items = dict(enumerate(vectors))
    for gone in data.draw(st.permutations(range(len(vectors))))[: len(vectors) * 2 // 3]:
        finder.remove(gone)
        del items[gone]
        assert gone not in finder
    request = ServiceRequest(data.draw(draw_vector(5, True)), rule, limit=None)
    found = {match.identity for match in finder.find(request, rng).matches}
    assert found == {who for who, _ in rank_items(items, request.values, rule.value, True)}


@every_finder
def test_many_items_added_at_once_are_found_like_items_added_one_by_one(
    name: str, rng: np.random.Generator
) -> None:
    rows = np.random.default_rng(2).integers(-1, 2, (500, 10))
    finder = FINDERS[name](10)
    finder.add_many(range(400), rows[:400])
    finder.add_many(range(400, 450), rows[400:450])  # too few for a new fit or layout
    for identity in range(450, 500):
        finder.add(identity, rows[identity].tolist())
    for rule in FeasibilityRule:
        request = ServiceRequest((1, 0, 0, -1, 0, 0, 0, 0, 1, 0), rule, limit=None)
        items = dict(enumerate(map(tuple, rows.tolist())))
        expected = rank_items(items, request.values, rule.value, True)
        found = finder.find(request, rng).matches
        assert sorted(found) == sorted(expected)


@every_finder
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    rows = np.random.default_rng(1).integers(-1, 2, (200, 12))
    results = []
    for _ in range(2):
        finder = FINDERS[name](12)
        finder.add_many(range(200), rows)
        finder.remove(17)
        request = ServiceRequest((1,) + (0,) * 10 + (-1,), FeasibilityRule.AGREEING, limit=3)
        results.append(finder.find(request, np.random.default_rng(9)))
    assert results[0] == results[1]


@every_finder
def test_mistakes_are_named(name: str, rng: np.random.Generator) -> None:
    finder = FINDERS[name](3)
    finder.add("a", (1, 0, -1))
    with pytest.raises(ValueError, match="'a' is already here"):
        finder.add("a", (0, 0, 0))
    with pytest.raises(ValueError, match="row 1, attribute 2: 7 is not"):
        finder.add_many(["b", "c"], [[0, 0, 0], [0, 0, 7]])
    with pytest.raises(ValueError, match="rows of 3 attributes"):
        finder.add("b", (1, 0))
    with pytest.raises(ValueError, match="given twice"):
        finder.add_many(["b", "b"], [[0, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match="1 identities for 2 vectors"):
        finder.add_many(["b"], [[0, 0, 0], [0, 0, 0]])
    with pytest.raises(KeyError, match="'b' is not here"):
        finder.remove("b")
    with pytest.raises(ValueError, match="2 values for 3 attributes"):
        finder.find(ServiceRequest((1, 0)), rng)
    with pytest.raises(ValueError, match="attribute 1: 2 is not"):
        finder.find(ServiceRequest((1, 2, 0)), rng)
    assert len(finder) == 1  # a refused call changes nothing
    assert finder.find(ServiceRequest((1, 0, -1)), rng).quality == 0.0


def test_a_request_needs_a_limit_of_one_or_more() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ServiceRequest((1,), limit=0)


def test_rand_draws_each_item_once_and_all_alike() -> None:
    rng = np.random.default_rng(30)
    finder = RandomFinder(2)
    finder.add_many(range(100), [[0, 1]] * 100)
    assert finder.find(ServiceRequest((1, 0)), rng).probes == 100
    finder.remove(40)
    finder.add("only", (1, 1))
    probes = [finder.find(ServiceRequest((1, 0)), rng).probes for _ in range(400)]
    assert min(probes) >= 1
    assert max(probes) <= 100
    # The mean place of one among 100 is 50.5, its standard error here 1.44: five of them.
    assert abs(sum(probes) / 400 - 50.5) < 7.5
    everyone = finder.find(ServiceRequest((0, 0), limit=None), rng)
    assert len({match.identity for match in everyone.matches}) == 100
