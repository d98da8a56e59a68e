"""The walks over sorted lists: what is found, what is counted, and how a vector becomes a key."""

from __future__ import annotations

import numpy as np
import pytest
from denwatch.node.services import (
    BasicSvdFinder,
    FeasibilityRule,
    ProjectedFinder,
    ServiceRequest,
    Side,
    SumFinder,
    WeightedSvdFinder,
)
from denwatch.node.services.kernels import walk_lists
from denwatch.node.services.ranked import RankedLists
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services import oracle


@given(data=st.data(), size=st.integers(1, 40), lists=st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_walks_find_and_count_as_the_definition_says(
    data: st.DataObject, size: int, lists: int
) -> None:
    # Keys are multiples of 4 and targets one more, so no two entries are equally close.
    ranks = [data.draw(st.permutations(range(size))) for _ in range(lists)]
    keys = np.array(ranks, np.float64) * 4
    targets = np.array([4 * data.draw(st.integers(-1, size)) + 1 for _ in range(lists)], float)
    feasible = data.draw(st.sets(st.integers(0, size - 1)))
    limit = data.draw(st.integers(1, size))
    ranked = RankedLists(lists)
    ranked.replace(np.arange(size), keys)
    plus = np.array([[item in feasible] for item in range(size)], np.uint64)
    masks = np.zeros((7, 1), np.uint64)
    masks[0] = 1  # an item must have the one attribute
    found = np.empty(limit, np.int64)
    count, probes, checks = walk_lists(
        ranked.keys,
        ranked.slots,
        size,
        targets,
        True,
        True,
        plus,
        np.zeros_like(plus),
        masks,
        limit,
        found,
    )
    by_item = [dict(enumerate(row)) for row in keys.tolist()]
    expected, entries, checked = oracle.walk_lists(by_item, targets.tolist(), feasible, limit)
    steps = sum(map(oracle.count_search_steps, keys.tolist(), targets.tolist()))
    assert found[:count].tolist() == expected
    assert (probes, checks) == (steps + entries, checked)


@given(data=st.data(), lists=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_lists_stay_sorted_while_items_come_and_go(data: st.DataObject, lists: int) -> None:
    ranked = RankedLists(lists)
    keys: dict[int, list[float]] = {}
    for _ in range(data.draw(st.integers(0, 30))):
        slot = data.draw(st.integers(0, 9))
        if slot in keys:
            ranked.delete(slot)
            del keys[slot]
        else:
            keys[slot] = [float(data.draw(st.integers(0, 3))) for _ in range(lists)]
            ranked.insert(slot, np.array(keys[slot]))
        for at in range(lists):
            by_key = sorted(keys, key=lambda slot, at=at: keys[slot][at])
            assert ranked.slots[at, : ranked.length].tolist() == by_key
            assert ranked.keys[at, : ranked.length].tolist() == [keys[s][at] for s in by_key]


def test_sums_counts_the_search_and_the_walk_on_the_feasible_side(
    rng: np.random.Generator,
) -> None:
    finder = SumFinder(4)
    rows = [[0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]]
    finder.add_many("abcde", rows)
    # Sums 1 2 2 3 4. The request's sum is 2: steps over 5 keys, then b, c (not feasible), d.
    steps = oracle.count_search_steps([1, 2, 2, 3, 4], 2)
    result = finder.find(ServiceRequest((1, 0, 0, 1)), rng)
    assert result.best == ("d", 1)
    assert (result.probes, result.checks) == (steps + 3, 3)
    # A service with sum 2 looks for requests: c, equal, then b, then a; never those above it.
    steps = oracle.count_search_steps([1, 2, 2, 3, 4], 2.5)
    pushed = finder.find(ServiceRequest((0, 1, 0, 1), FeasibilityRule.POSITIVE, Side.PUSH), rng)
    assert pushed.best == ("a", 1)
    assert (pushed.probes, pushed.checks) == (steps + 3, 3)


def test_bsvds_ranks_by_the_first_singular_direction() -> None:
    rows = np.random.default_rng(4).integers(0, 2, (120, 7))
    finder = BasicSvdFinder(7)
    finder.add_many(range(120), rows)
    first = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[0][:, 0]
    ranked = finder._lists
    by_item = np.empty(120)
    by_item[ranked.slots[0, :120]] = ranked.keys[0, :120]
    sign = np.sign(by_item @ first)
    assert np.allclose(by_item, sign * first)


def test_rwsvds_weights_are_in_range_and_its_lists_those_of_the_weighted_items() -> None:
    rows = np.random.default_rng(4).integers(-1, 2, (90, 6))
    finder = WeightedSvdFinder(6, np.random.default_rng(8))
    weights = finder._weights
    assert weights.shape == (3, 6)
    assert ((weights > 0) & (weights <= 1)).all()
    finder.add_many(range(90), rows)
    centred = rows - rows.mean(axis=0)
    for at in range(3):
        first = np.linalg.svd(centred * weights[at], full_matrices=False)[0][:, 0]
        by_item = np.empty(90)
        by_item[finder._lists.slots[at]] = finder._lists.keys[at]
        assert np.allclose(by_item, np.sign(by_item @ first) * first)


@pytest.mark.parametrize("lists", [1, 3])
def test_a_refit_after_changes_equals_a_new_finder(lists: int, rng: np.random.Generator) -> None:
    rows = np.random.default_rng(5).integers(0, 2, (150, 9))

    def make() -> ProjectedFinder:
        return WeightedSvdFinder(9, np.random.default_rng(2), lists)

    changed, fresh = make(), make()
    changed.add_many(range(150), rows)
    for identity in range(0, 150, 3):
        changed.remove(identity)
    kept = [identity for identity in range(150) if identity % 3]
    fresh.add_many(kept, rows[kept])
    changed.refit()
    for values in np.eye(9, dtype=int).tolist():
        request = ServiceRequest(tuple(values), limit=4)
        assert changed.find(request, rng) == fresh.find(request, rng)


def test_the_fit_is_renewed_when_enough_has_changed() -> None:
    finder = BasicSvdFinder(3)
    for identity in range(63):
        finder.add(identity, (identity % 2, 0, 1))
    assert not finder._directions.any()  # too few for a first fit: all keys are alike
    finder.add(63, (1, 0, 1))
    assert np.allclose(np.sign(finder._directions), [[1, 0, 0]])


def test_items_that_are_all_alike_are_found(rng: np.random.Generator) -> None:
    finder = BasicSvdFinder(2)
    finder.add_many(range(100), [[1, 0]] * 100)  # no variation: the singular value is 0
    assert finder.find(ServiceRequest((1, 0)), rng).quality == 0.0


def test_what_a_wish_does_not_care_about_does_not_move_it() -> None:
    finder = BasicSvdFinder(3)
    rows = np.random.default_rng(6).integers(-1, 2, (100, 3))
    finder.add_many(range(100), rows)
    target, _, _ = finder._aim(ServiceRequest((0, 0, 0), FeasibilityRule.AGREEING))
    assert target.tolist() == [0.0]  # the middle of the list, whatever the column means are
    target, _, _ = finder._aim(ServiceRequest((0, 0, 0), FeasibilityRule.NEAREST))
    assert target.tolist() != [0.0]


def test_rwsvds_needs_a_list() -> None:
    with pytest.raises(ValueError, match="at least one list"):
        WeightedSvdFinder(3, np.random.default_rng(1), 0)
