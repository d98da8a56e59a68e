"""The index of typed content finds the filters that `ranking.content.matches` accepts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from denwatch.node.matching.content_index import ContentIndex
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.ranking.content import Constraint, ContentFilter, Op, matches
from hypothesis import given, settings
from hypothesis import strategies as st

_names = st.sampled_from(["a", "b", "c"])
_texts = st.text("xyz", max_size=4)
_numbers = st.one_of(
    st.integers(-3, 3), st.sampled_from([-0.5, 0.0, 1.0, 2.5, 1e300, float("inf"), 2**60])
)
_times = st.integers(0, 3).map(lambda h: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=h))
_order = st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.GT, Op.LE, Op.GE])
_constraints = st.one_of(
    st.builds(Constraint, _names, _order, st.one_of(_numbers, _texts, _times)),
    st.builds(Constraint, _names, st.sampled_from([Op.PREFIX, Op.SUFFIX, Op.SUBSTRING]), _texts),
)
_filters = st.lists(_constraints, max_size=4).map(lambda parts: ContentFilter(tuple(parts)))
_values = st.one_of(
    _numbers,
    _texts,
    st.text("xyz", max_size=8),
    _times,
    st.just(float("nan")),
    st.booleans(),
    st.none(),
    st.just(datetime(2026, 1, 1)),  # no zone: of no kind
)
_notifications = st.dictionaries(_names, _values)


@given(st.lists(_filters, max_size=30), st.lists(_notifications, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_finds_what_matches(filters: list[ContentFilter], notes: list[dict[str, object]]) -> None:
    index = ContentIndex()
    for id, filter in enumerate(filters):
        index.add(id, filter)
    for n in notes:
        expected = [
            SubscriptionMatch(id, 255, 255, -1) for id, f in enumerate(filters) if matches(f, n)
        ]
        assert index.match(n) == expected


@given(
    st.lists(st.tuples(st.integers(0, 8), st.none() | _filters), max_size=30),
    st.lists(_notifications, min_size=1, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_adding_replacing_and_removing(
    steps: list[tuple[int, ContentFilter | None]], notes: list[dict[str, object]]
) -> None:
    index, known = ContentIndex(), dict[int, ContentFilter]()
    for id, filter in steps:
        if filter is not None:
            index.add(id, filter)
            known[id] = filter
        elif id in known:
            index.remove(id)
            del known[id]
        else:
            with pytest.raises(KeyError):
                index.remove(id)
    assert len(index) == len(known)
    for n in notes:
        assert [hit.id for hit in index.match(n)] == [
            id for id, filter in sorted(known.items()) if matches(filter, n)
        ]


def test_the_example_of_the_paper() -> None:
    index = ContentIndex()
    index.add(1, ContentFilter.of(("genre", "=", "Drama"), ("length", ">", 120)))
    index.add(2, ContentFilter.of(("title", "prefix", "The"), ("length", "<=", 90)))
    assert index.match({"genre": "Drama", "length": 121}) == [SubscriptionMatch(1, 255, 255, -1)]
    assert index.match({"title": "The Kid", "length": 68.0}) == [SubscriptionMatch(2, 255, 255, -1)]
    assert index.match({"title": "The Kid"}) == []
