"""Ranges of numbers behave as sets of numbers do."""

from __future__ import annotations

from denwatch.spark.source.listing import (
    Range,
    count_numbers,
    join_ranges,
    read_ranges,
    subtract_ranges,
    take_first,
    write_ranges,
)
from hypothesis import given
from hypothesis import strategies as st

pairs = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)).map(lambda p: (p[0], sum(p))))


def expand(ranges: list[Range]) -> set[int]:
    return {number for start, stop in ranges for number in range(start, stop)}


@given(pairs, pairs, st.integers(0, 50))
def test_ranges_are_sets(one: list[Range], other: list[Range], count: int) -> None:
    mine, theirs = join_ranges(one), join_ranges(other)
    assert expand(mine) == expand(one)
    assert count_numbers(mine) == len(expand(one))
    assert expand(subtract_ranges(mine, theirs)) == expand(one) - expand(other)
    assert expand(take_first(mine, count)) == set(sorted(expand(one))[:count])
    assert read_ranges(write_ranges(mine)) == mine


def test_ranges_that_touch_become_one() -> None:
    assert write_ranges(join_ranges([(5, 9), (1, 5), (20, 21)])) == "1-8,20-20"
