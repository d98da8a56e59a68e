"""Winnow levels against Definition 10, and cycles named."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from denwatch.node.ranking.rank import PriorityCycle, UnknownPriority, assign_levels, keep_acyclic
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ranking import oracle

pairs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14)


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_levels_equal_their_definition_or_a_true_cycle_is_named(conditions):
    items = range(8)
    expected = oracle.winnow(items, conditions)
    if expected is not None:
        levels = assign_levels(items, conditions)
        assert [{i for i in items if levels[i] == n + 1} for n in range(len(expected))] == expected
        return
    with pytest.raises(PriorityCycle) as caught:
        assign_levels(items, conditions)
    cycle = caught.value.cycle
    assert cycle[0] == cycle[-1]
    assert len(set(cycle[:-1])) == len(cycle) - 1
    assert all(pair in conditions for pair in itertools.pairwise(cycle))


@settings(max_examples=100, deadline=None)
@given(pairs.map(lambda ps: [(a, b) for a, b in ps if a < b]))
def test_conditions_without_cycles_always_give_levels(conditions):
    levels = assign_levels(range(8), conditions)
    assert all(levels[a] < levels[b] for a, b in conditions)


def test_the_error_reads_as_a_sentence():
    with pytest.raises(
        PriorityCycle, match=r"priorities conflict: (a over b over a|b over a over b)"
    ):
        assign_levels("abc", [("a", "b"), ("b", "a"), ("a", "c")])
    with pytest.raises(PriorityCycle, match="a over a"):
        assign_levels("a", [("a", "a")])


def test_a_long_chain_needs_no_recursion():
    levels = assign_levels(range(5000), [(i, i + 1) for i in range(4999)])
    assert levels[4999] == 5000


def test_a_condition_on_nothing_is_refused():
    with pytest.raises(UnknownPriority, match="'z', which is not among"):
        assign_levels("ab", [("a", "z")])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_conditions_that_close_a_circle_with_earlier_ones_are_left_out(conditions):
    kept: list[tuple[int, int]] = []
    for pair in conditions:
        with suppress(PriorityCycle):
            assign_levels(range(7), [*kept, pair])
            kept.append(pair)
    assert keep_acyclic(conditions) == list(dict.fromkeys(kept))
