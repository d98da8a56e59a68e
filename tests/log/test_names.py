"""Names of segments, and which of several to read."""

from __future__ import annotations

import pytest
from denwatch.node.log import (
    Header,
    SegmentChoice,
    SegmentSpan,
    choose_segments,
    read_name,
    write_name,
)
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable()),
    st.integers(0, 1 << 32),
    st.integers(0, 1 << 63),
    st.sampled_from([".open", ".dlog"]),
    st.integers(0, 3),
)
def test_names_there_and_back(node: str, epoch: int, first: int, ending: str, again: int) -> None:
    name = write_name(node, epoch, first, ending, again)
    assert "/" not in name
    assert read_name(name) == (node, epoch, first, ending == ".dlog")


def test_names_sort_by_run_and_number() -> None:
    numbers = [(1, 5), (1, 400), (2, 401), (10, 5000)]
    names = [write_name("north", epoch, first) for epoch, first in numbers]
    assert names == sorted(names)
    assert names[0] == "north-0000000001-00000000000000000005.open"


@pytest.mark.parametrize(
    "name", ["", "notes.txt", "north.dlog", "north-1-2.dlog", "north-0000000001-2.open", ".open"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert read_name(name) is None


def span(file: str, first: int, next_: int, epoch: int = 1, node: str = "north") -> SegmentSpan:
    return SegmentSpan(file, Header(node, epoch, first, 0), next_)


def test_segments_that_follow_each_other_are_all_read() -> None:
    spans = [span("b", 10, 20), span("a", 1, 10), span("c", 20, 25, epoch=2)]
    assert choose_segments(spans) == [
        SegmentChoice("a", 1),
        SegmentChoice("b", 10),
        SegmentChoice("c", 20),
    ]


def test_a_copy_is_left_out_and_named() -> None:
    choices = choose_segments([span("a", 1, 10), span("copy of a", 1, 10), span("b", 10, 12)])
    assert choices[1] == SegmentChoice("copy of a", 10, "all its records are in a as well")
    assert choices[2] == SegmentChoice("b", 10)


def test_of_an_open_and_a_closed_twin_the_longer_is_read() -> None:
    choices = choose_segments([span("x.open", 1, 6), span("x.dlog", 1, 10)])
    assert choices[0] == SegmentChoice("x.dlog", 1)
    assert choices[1].start == 6
    assert choices[1].reason


def test_an_overlap_is_read_once() -> None:
    choices = choose_segments([span("a", 1, 10), span("b", 5, 15)])
    assert choices == [
        SegmentChoice("a", 1),
        SegmentChoice("b", 10, "records 5 to 9 are in a as well"),
    ]


def test_nodes_and_runs_are_apart() -> None:
    spans = [span("a", 1, 10), span("b", 1, 10, node="south"), span("c", 1, 10, epoch=2)]
    assert [choice.start for choice in choose_segments(spans)] == [1, 1, 1]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=8))
def test_every_record_is_read_once(pieces: list[tuple[int, int]]) -> None:
    spans = [span(str(i), first, first + size) for i, (first, size) in enumerate(pieces)]
    ends = {entry.file: entry.next for entry in spans}
    read: list[int] = []
    for choice in choose_segments(spans):
        read += range(choice.start, ends[choice.file])
    held = {n for entry in spans for n in range(entry.header.first, entry.next)}
    assert sorted(read) == sorted(held)
