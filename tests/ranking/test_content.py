"""Typed content: what matches, and that covering says only what is true."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from denwatch.node.ranking.content import Constraint, ContentError, ContentFilter, Op, matches
from denwatch.node.ranking.content_covering import covers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ranking import oracle

COMPARISONS = ("=", "!=", "<", ">", "<=", ">=")
TEXT_OPS = (*COMPARISONS, "substring", "prefix", "suffix")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIMES = [NOON + timedelta(minutes=m) for m in range(-1, 4)]
WORDS = ["".join(letters) for n in range(5) for letters in itertools.product("ab", repeat=n)]
NUMBERS = [n / 2 for n in range(-1, 8)]
WILD = [*WORDS, "b" * 7, "ca", "\0", "a\0", *NUMBERS, *TIMES, None]

number_parts = st.tuples(st.just("x"), st.sampled_from(COMPARISONS), st.integers(0, 3))
word_parts = st.tuples(
    st.just("x"), st.sampled_from(TEXT_OPS), st.sampled_from([w for w in WORDS if len(w) < 4])
)
time_parts = st.tuples(st.just("x"), st.sampled_from(COMPARISONS), st.sampled_from(TIMES))
other_parts = st.tuples(st.just("y"), st.sampled_from(COMPARISONS), st.integers(0, 2))


def lists_of(*parts, size=4):
    return st.lists(st.one_of(*parts), max_size=size)


any_parts = st.one_of(
    lists_of(word_parts, word_parts, other_parts),
    lists_of(number_parts, other_parts),
    lists_of(time_parts),
    lists_of(number_parts, word_parts),
)
universe = [{"x": x, "y": y} for x in WILD for y in (None, -1, 0, 1, 2, 3)]
universe = [{k: v for k, v in n.items() if v is not None} for n in universe]


@settings(max_examples=100, deadline=None)
@given(any_parts)
def test_matching_is_definition_3(parts):
    subscription = ContentFilter.of(*parts)
    for notification in universe:
        assert matches(subscription, notification) == oracle.matches(parts, notification)


@settings(max_examples=100, deadline=None)
@given(any_parts, any_parts)
def test_covering_is_sound(general, special):
    if covers(ContentFilter.of(*general), ContentFilter.of(*special)):
        assert oracle.covers(general, special, universe)


@settings(max_examples=100, deadline=None)
@given(any_parts, any_parts)
def test_an_added_constraint_is_always_covered(parts, more):
    assert covers(ContentFilter.of(*parts), ContentFilter.of(*parts, *more))


@settings(max_examples=100, deadline=None)
@given(lists_of(number_parts, other_parts), lists_of(number_parts, other_parts))
def test_covering_is_exact_on_numbers(general, special):
    # Halves stand for "between two bounds", so this small universe tells all filters apart.
    numbers = [
        {k: v for k, v in (("x", x), ("y", y)) if v is not None}
        for x in [None, *NUMBERS]
        for y in [None, *NUMBERS]
    ]
    expected = oracle.covers(general, special, numbers)
    assert covers(ContentFilter.of(*general), ContentFilter.of(*special)) == expected


@settings(max_examples=200, deadline=None)
@given(
    lists_of(word_parts, size=2),
    lists_of(word_parts, size=2),
    lists_of(word_parts, size=3),
    st.booleans(),
)
def test_covering_is_transitive(a, b, c, nested):
    # Nesting makes the premise true often enough to mean something.
    first, second = ContentFilter.of(*a), ContentFilter.of(*(a + b if nested else b))
    third = ContentFilter.of(*(b + c))
    if covers(first, second) and covers(second, third):
        assert covers(first, third)


def test_covering_is_sound_over_all_pairs_of_short_constraints():
    words = [w for w in WORDS if len(w) <= 2]
    parts = [("x", op, w) for op in TEXT_OPS for w in words]
    strings = [v for v in WILD if isinstance(v, str)]
    matched = {p: {s for s in strings if oracle.satisfies(s, p[1], p[2])} for p in parts}
    singles = {p: ContentFilter.of(p) for p in parts}
    for first, second in itertools.combinations(parts, 2):
        special = ContentFilter.of(first, second)
        both = matched[first] & matched[second]
        for part, general in singles.items():
            if covers(general, special):
                assert both <= matched[part], (str(general), str(special))


def test_transitivity_holds_over_all_pairs_of_short_constraints():
    singles = [ContentFilter.of(("x", op, w)) for op in TEXT_OPS for w in ("", "a", "b", "ab")]
    pairs = [
        ContentFilter(a.constraints + b.constraints) for a, b in itertools.combinations(singles, 2)
    ]
    filters = singles + pairs[::5]
    above = {i: {j for j, b in enumerate(filters) if covers(a, b)} for i, a in enumerate(filters)}
    assert all(above[j] <= above[i] for i in above for j in above[i])


@pytest.mark.parametrize(
    ("general", "special", "expected"),
    [
        ([("x", "=", 5)], [("x", ">=", 5), ("x", "<=", 5)], True),
        ([("x", ">", 5)], [("x", ">=", 5), ("x", "!=", 5)], True),
        ([("x", ">", 5)], [("x", ">=", 5)], False),
        ([("x", "!=", 5)], [("x", ">", 5)], True),
        ([("x", "=", "q")], [("x", "<", 1), ("x", ">", 2)], True),
        ([("x", "prefix", "ab")], [("x", "prefix", "abc")], True),
        ([("x", "prefix", "abc")], [("x", "prefix", "ab")], False),
        ([("x", ">=", "ab")], [("x", "prefix", "abc")], True),
        ([("x", "<", "ac")], [("x", "prefix", "ab")], True),
        ([("x", "prefix", "ab")], [("x", ">=", "ab"), ("x", "<", "ac")], True),
        ([("x", "substring", "b")], [("x", ">", "abc"), ("x", "<", "abd")], True),
        ([("x", "substring", "a")], [("x", ">=", "ab"), ("x", "<=", "b")], False),
        ([("x", "substring", "b")], [("x", "suffix", "abc")], True),
        ([("x", "suffix", "c")], [("x", "substring", "abc")], False),
        ([("x", "!=", "a")], [("x", "prefix", "b")], True),
        ([("x", "=", "a")], [("x", "suffix", "a"), ("x", "suffix", "b")], True),
        ([], [("x", "=", 1)], True),
        ([("x", "=", 1)], [], False),
        ([("x", "<", "5")], [("x", "<", 4)], False),
        ([("x", "prefix", "a\U0010ffff")], [("x", "prefix", "a\U0010ffffb")], True),
        ([("x", "prefix", "\U0010ffff")], [("x", ">=", "\U0010ffff")], True),
    ],
)
def test_covers(general, special, expected):
    assert covers(ContentFilter.of(*general), ContentFilter.of(*special)) is expected


def test_figure_3_of_the_paper_covers_figure_2():
    notification = {
        "title": "LOTR: The Return of the King",
        "director": "P. Jackson",
        "release_date": datetime(2003, 12, 1, tzinfo=UTC),
        "genre": "fantasy",
        "oscars": 11,
    }
    subscription = ContentFilter.of(
        ("director", "=", "P. Jackson"), ("release_date", ">", datetime(2003, 1, 1, tzinfo=UTC))
    )
    assert matches(subscription, notification)
    assert not matches(subscription, {**notification, "director": "S. Spielberg"})


def test_numbers_are_one_kind_and_compared_exactly():
    assert matches(ContentFilter.of(("x", "=", 6)), {"x": 6.0})
    assert not matches(ContentFilter.of(("x", ">", float(2**53))), {"x": 2**53})
    assert matches(ContentFilter.of(("x", ">", float(2**53))), {"x": 2**53 + 1})
    assert ContentFilter.of(("x", "!=", 1), ("x", "!=", 10)) == ContentFilter.of(
        ("x", "!=", 10.0), ("x", "!=", 1.0)
    )


def test_what_cannot_be_compared_never_matches_and_never_raises():
    for value in (math.nan, True, None, b"a", [1], datetime(2026, 1, 1), object()):
        for part in (("x", "!=", 1), ("x", "!=", "a"), ("x", "!=", NOON)):
            assert not matches(ContentFilter.of(part), {"x": value})


def test_times_are_instants_whatever_the_zone():
    there = NOON.astimezone(timezone(timedelta(hours=9)))
    assert matches(ContentFilter.of(("x", "=", NOON)), {"x": there})
    assert ContentFilter.of(("x", "=", NOON)) == ContentFilter.of(("x", "=", there))


@pytest.mark.parametrize("value", [math.nan, True, None, b"a", datetime(2026, 1, 1), 1j])
def test_a_constraint_on_such_a_value_is_refused_by_name(value):
    with pytest.raises(ContentError, match="length"):
        Constraint("length", Op.GT, value)


def test_unknown_and_misused_operators_are_refused():
    with pytest.raises(ContentError, match="unknown operator '~'"):
        ContentFilter.of(("x", "~", 1))
    with pytest.raises(ContentError, match="prefix needs a string"):
        ContentFilter.of(("x", "prefix", 1))


def test_spellings_order_and_repetition_do_not_matter():
    a = ContentFilter.of(("x", "≥", 1), ("y", "≠", 2), ("x", "≥", 1))
    b = ContentFilter.of(("y", "!=", 2), ("x", ">=", 1))
    assert a == b
    assert hash(a) == hash(b)
    assert str(a) == "x >= 1 and y != 2"


def test_filters_survive_pickle_and_copy():
    subscription = ContentFilter.of(("x", "prefix", "a"), ("t", "<", NOON))
    assert covers(subscription, subscription)
    for twin in (pickle.loads(pickle.dumps(subscription)), copy.deepcopy(subscription)):
        assert twin == subscription
        assert matches(twin, {"x": "ab", "t": NOON - timedelta(1)})
