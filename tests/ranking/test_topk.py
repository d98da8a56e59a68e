"""Top-k against the whole history: Definition 6 re-evaluated at every step."""

from __future__ import annotations

import math

import pytest
from denwatch.node.ranking.rank import Rank
from denwatch.node.ranking.topk import TopK
from hypothesis import example, given, settings
from hypothesis import strategies as st

from papers.prefsiena import BoundedTopK, ExpiryRule, find_period_end
from tests.ranking import oracle

# Few scores and short lives, so that ties, expiries and replacements are the rule.
lives = st.one_of(st.integers(-1, 12), st.just(math.inf))
steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), lives), max_size=40)


def make_events(steps):
    """Turn (score, pause, life) into (score, now, expires)."""
    now, events = 0, []
    for score, pause, life in steps:
        now += pause
        events.append((score, now, now + life))
    return events


def offer_all(top_k, events):
    return [
        top_k.offer(turn, Rank(-1, score), now, expires).value
        for turn, (score, now, expires) in enumerate(events, start=1)
    ]


@settings(max_examples=250, deadline=None)
@given(steps, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 8)))
def test_top_k_is_definition_6_over_the_whole_history(steps, k, window):
    events = make_events(steps)
    expected = list(oracle.replay_definition_6(events, k, window))
    assert offer_all(TopK(k, window), events) == expected


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 4), st.data())
def test_what_others_delivered_counts_as_if_it_had_been_delivered_here(steps, k, data):
    """A person's history, cut between two nodes that tell each other what they delivered."""
    events = make_events(steps)
    expected = list(oracle.replay_definition_6(events, k, None))
    nodes = [TopK(k), TopK(k)]
    for turn, ((score, now, expires), verdict) in enumerate(zip(events, expected, strict=True), 1):
        here, there = data.draw(st.permutations(nodes))
        assert here.offer(turn, Rank(-1, score), now, expires).value == verdict
        if verdict == "delivered":
            for _ in range(2):  # a receipt may come twice
                there.count_delivered(turn, Rank(-1, score), now, expires)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 8)), st.integers(0, 9))
@example([(1, 0, math.inf), (1, 0, 1), (1, 0, math.inf)], 2, None, 0)  # equals, one short-lived
def test_the_current_best_are_the_k_best_valid_ones(steps, k, window, later):
    events = make_events(steps)
    top_k = TopK(k, window)
    verdicts = offer_all(top_k, events)
    now = (events[-1][1] if events else 0) + later
    best = [entry.turn for entry in top_k.list_best(now)]
    assert best == oracle.list_best(events, verdicts, k, now, window)


@settings(max_examples=100, deadline=None)
@given(steps, steps, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 8)))
def test_a_stored_and_restored_state_decides_the_same(before, after, k, window):
    events = make_events(before + after)
    top_k = TopK(k, window)
    verdicts = offer_all(top_k, events[: len(before)])
    top_k = TopK(k, window, turn=top_k.turn, entries=top_k.list_entries())
    verdicts += [
        top_k.offer(0, Rank(-1, score), now, expires).value
        for score, now, expires in events[len(before) :]
    ]
    assert verdicts == list(oracle.replay_definition_6(events, k, window))


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 4))
def test_the_bounded_form_is_algorithm_1(steps, k):
    events = make_events(steps)
    top_k = BoundedTopK(k)
    assert offer_all(top_k, events) == list(oracle.replay_algorithm_1(events, k))
    assert len(top_k.list_best(-math.inf)) <= k


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 4))
def test_both_forms_agree_if_nothing_expires(steps, k):
    events = [(score, now, math.inf) for score, now, _ in make_events(steps)]
    assert offer_all(TopK(k), events) == offer_all(BoundedTopK(k), events)


def test_algorithm_1_forgets_what_definition_6_remembers():
    # The good one replaces the fair one, expires, and leaves nothing to hold the poor one back.
    events = [(5, 0, 100), (9, 1, 10), (3, 20, 120)]
    assert offer_all(BoundedTopK(1), events) == ["delivered", "delivered", "delivered"]
    assert offer_all(TopK(1), events) == ["delivered", "delivered", "outranked"]


def test_algorithm_1_forgets_even_if_all_live_equally_long():
    events = [(9, 0, 10), (5, 1, 11), (6, 2, 12), (4, 10.5, 20.5)]
    assert offer_all(BoundedTopK(2), events)[-1] == "delivered"
    assert offer_all(TopK(2), events)[-1] == "outranked"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 4))
def test_without_expiry_no_more_than_k_entries_are_kept(scores, k):
    top_k = TopK(k)
    for turn, score in enumerate(scores):
        top_k.offer(turn, Rank(-1, score), 0, math.inf)
        assert len(top_k.list_entries()) <= k


def test_the_fresher_of_two_equals_is_delivered_and_takes_the_place():
    top_k = TopK(1)
    assert offer_all(top_k, [(5, 0, 9), (5, 1, 9)]) == ["delivered", "delivered"]
    assert [entry.note_id for entry in top_k.list_best(2)] == [2]


# PrefSIENA, Figures 5 and 6: comedies 0.9, dramas 0.8, top 2; times in hours.
SHOWS = [(0.9, 19, 20), (0.8, 20, 21), (0.9, 21, 22), (0.8, 22, 23), (0.8, 22, 23), (0.8, 22, 23)]


def test_figure_5_old_notifications_block_new_ones():
    events = [(score, now, math.inf) for score, now, _ in SHOWS]
    delivered = [verdict == "delivered" for verdict in offer_all(TopK(2), events)]
    assert delivered == [True, True, True, False, False, False]


def test_figure_6_expiry_lets_them_through():
    top_k = TopK(2)
    assert offer_all(top_k, SHOWS) == ["delivered"] * 6
    assert [entry.note_id for entry in top_k.list_best(22.5)] == [6, 5]


def test_time_never_runs_backwards():
    top_k = TopK(1)
    assert offer_all(top_k, [(5, 0, 10), (1, 11, 20)]) == ["delivered", "delivered"]
    # The first has expired at 11; a clock set back does not make it valid again.
    assert top_k.offer(3, Rank(-1, 1), 5, 30).value == "delivered"
    assert top_k.offer(4, Rank(-1, 9), 5, 10.5).value == "expired"


@pytest.mark.parametrize("build", [lambda: TopK(0), lambda: TopK(1, 0), lambda: BoundedTopK(-1)])
def test_sizes_below_one_are_refused(build):
    with pytest.raises(ValueError, match="must be at least 1"):
        build()


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0.001, 1e5), st.floats(-1e3, 1e3))
def test_a_period_ends_after_now_and_began_before(now, period, origin):
    end = find_period_end(now, period, origin)
    number = round((end - origin) / period)
    assert origin + (number - 1) * period <= now < end == origin + number * period


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 4), st.integers(1, 10))
def test_the_periodic_form_starts_anew_in_each_period(steps, k, period):
    events = [(score, now, math.inf) for score, now, _ in make_events(steps)]
    rule = ExpiryRule(period=period)
    top_k = TopK(k)
    verdicts = offer_all(top_k, [(s, now, rule.find_expiry(now)) for s, now, _ in events])
    expected = []
    for number in sorted({now // period for _, now, _ in events}):
        inside = [event for event in events if event[1] // period == number]
        expected += oracle.replay_definition_6(inside, k)
    assert verdicts == expected


def test_the_earliest_expiry_in_force_holds():
    assert ExpiryRule().find_expiry(10) == math.inf
    assert ExpiryRule().find_expiry(10, 50, [None, 20, 30]) == 30
    assert ExpiryRule(span=5).find_expiry(10, 50, [20]) == 15
    assert ExpiryRule(period=4).find_expiry(10, 50) == 12
    assert ExpiryRule(period=4, origin=1).find_expiry(13, 50) == 17
    for bad in ({"period": 0}, {"span": -1}, {"span": math.inf}, {"period": math.nan}):
        with pytest.raises(ValueError, match="above 0"):
            ExpiryRule(**bad)
