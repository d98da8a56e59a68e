"""The one ranking: score, degree of match and priority."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from denwatch.node.ranking.content import ContentFilter
from denwatch.node.ranking.content_covering import covers
from denwatch.node.ranking.rank import Rank
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.prefsiena import (
    Combination,
    Preference,
    PreferenceMatch,
    Ranked,
    combine_matches,
    sort_best_first,
)

FANTASY = ContentFilter.of(("genre", "=", "fantasy"))
JACKSON = ContentFilter.of(("genre", "=", "fantasy"), ("director", "=", "P. Jackson"))
HOBBITS = ContentFilter.of(("title", "substring", "Hobbit"))

scores = st.floats(0, 1)
made = st.lists(
    st.tuples(scores, st.integers(1, 255), st.integers(1, 3), st.floats(0, 5)),
    min_size=1,
    max_size=6,
)


def make_matches(rows):
    return [
        PreferenceMatch(Preference(i, "x", i, score=score, weight=weight), degree, level)
        for i, (score, degree, level, weight) in enumerate(rows)
    ]


def never(_a, _b):
    return False


@settings(max_examples=100, deadline=None)
@given(made)
def test_each_combination_is_what_its_name_says_within_the_best_level(rows):
    best = min(level for _, _, level, _ in rows)
    values = [s * d / 255 for s, d, level, _ in rows if level == best]
    weights = [w for _, _, level, w in rows if level == best]
    expected = {
        Combination.MAX: max(values),
        Combination.MIN: min(values),
        Combination.MEAN: sum(values) / len(values),
        Combination.WEIGHTED_SUM: sum(v * w for v, w in zip(values, weights, strict=True)),
        Combination.MOST_SPECIFIC: max(values),  # nothing covers anything here
    }
    for combination in Combination:
        rank = combine_matches(make_matches(rows), combination, never)
        assert -rank.priority == best
        assert rank.value == pytest.approx(expected[combination], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(made, st.randoms(use_true_random=False))
def test_the_rank_does_not_depend_on_the_order_of_the_matches(rows, rng):
    matches = make_matches(rows)
    shuffled = list(matches)
    rng.shuffle(shuffled)
    for combination in Combination:
        assert combine_matches(matches, combination, never) == combine_matches(
            shuffled, combination, never
        )


def rank_of(*pairs, combination=Combination.MAX, degree=255):
    matches = [
        PreferenceMatch(Preference(i, "x", s, score=score), degree)
        for i, (s, score) in enumerate(pairs)
    ]
    return combine_matches(matches, combination, covers)


def test_the_most_specific_subscription_speaks_as_in_the_papers_example():
    pairs = [(FANTASY, 0.7), (JACKSON, 0.6)]
    assert rank_of(*pairs).value == 0.7
    assert rank_of(*pairs, combination=Combination.MOST_SPECIFIC).value == 0.6
    assert rank_of(*pairs, (HOBBITS, 0.65), combination=Combination.MOST_SPECIFIC).value == 0.65
    # Two that cover each other are both specific.
    twin = ContentFilter.of(*[(c.name, c.op, c.value) for c in JACKSON.constraints])
    assert rank_of(*pairs, (twin, 0.8), combination=Combination.MOST_SPECIFIC).value == 0.8


def test_crisp_matches_rank_by_score_and_equal_scores_by_degree():
    assert rank_of((FANTASY, 0.7)).value == 0.7
    by_degree = [rank_of((FANTASY, 1.0), degree=d) for d in range(1, 256)]
    assert by_degree == sorted(set(by_degree))


def test_a_priority_beats_every_score_and_degree():
    assert Rank(-1, 0.01) > Rank(-2, 1.0) > Rank(-2, 0.5)


def test_the_order_is_total_and_the_same_from_every_start():
    rng = random.Random(4)
    ranked = [
        Ranked(Rank(level, value), degree, time, note)
        for note, (level, value, degree, time) in enumerate(
            itertools.product((-1, -2), (0.5, 0.25), (255, 9), (1.0, 2.0))
        )
    ]
    once = sort_best_first(ranked)
    for _ in range(20):
        rng.shuffle(ranked)
        assert sort_best_first(ranked) == once
    better, worse = Ranked(Rank(-1, 0.5), 200, 1.0, 7), Ranked(Rank(-1, 0.5), 200, 1.0, 8)
    assert sort_best_first([worse, better]) == [better, worse]
    assert once[0] == Ranked(Rank(-1, 0.5), 255, 2.0, 1)
    assert once[-1] == Ranked(Rank(-2, 0.25), 9, 1.0, 14)


@pytest.mark.parametrize(
    "bad",
    [{"score": 1.1}, {"score": math.nan}, {"weight": -1}, {"weight": math.inf}, {"refresh": 0}],
)
def test_a_preference_out_of_range_names_its_subscription(bad):
    with pytest.raises(ValueError, match="subscription 'ps7'"):
        Preference("ps7", "x", FANTASY, **bad)


def test_a_degree_out_of_range_and_nothing_matched_are_errors():
    preference = Preference("ps7", "x", FANTASY)
    for degree in (0, 256):
        with pytest.raises(ValueError, match="'ps7': degree"):
            PreferenceMatch(preference, degree)
    with pytest.raises(ValueError, match="matches nothing"):
        combine_matches([], Combination.MAX, covers)
