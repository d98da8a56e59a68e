"""A server with profiles: Algorithm 1 end to end, priorities, and the choice of a server."""

from __future__ import annotations

import doctest
import math

import pytest
from denwatch.node.ranking.content import ContentFilter
from denwatch.node.ranking.content_covering import covers
from denwatch.node.ranking.rank import PriorityCycle, UnknownPriority
from denwatch.node.ranking.topk import TopK, Verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from papers import prefsiena
from papers.prefsiena import (
    Combination,
    ExpiryRule,
    Forwarder,
    Preference,
    RankingPolicy,
    measure_degree,
)
from papers.prefsiena_graph import ServerOffer, SubscriptionGraph, choose_server, probe_server
from tests.ranking import oracle

COMEDY = ContentFilter.of(("genre", "=", "comedy"))
DRAMA = ContentFilter.of(("genre", "=", "drama"))
LONG_COMEDY = ContentFilter.of(("genre", "=", "comedy"), ("length", ">", 120))

triples = st.lists(
    st.tuples(st.just("x"), st.sampled_from(["=", "<", ">", "!="]), st.integers(0, 3)),
    min_size=1,
    max_size=2,
)
subscriptions = st.lists(
    st.tuples(st.integers(0, 2), triples, st.integers(0, 4).map(lambda n: n / 4)), max_size=9
)
publications = st.lists(
    st.tuples(st.integers(-1, 4), st.integers(0, 2), st.integers(1, 9)), max_size=25
)


def build_server(**policy):
    return Forwarder(covers, measure_degree), RankingPolicy(**policy)


@settings(max_examples=100, deadline=None)
@given(subscriptions, publications, st.integers(1, 3))
def test_a_server_delivers_what_definitions_5_and_6_say(subscribed, published, k):
    server, policy = build_server(k=k)
    for subscriber in range(3):
        server.connect(subscriber, policy)
    for number, (subscriber, parts, score) in enumerate(subscribed):
        server.subscribe(Preference(number, subscriber, ContentFilter.of(*parts), score))

    now, got, wanted = 0, {}, {0: [], 1: [], 2: []}
    for note, (x, pause, life) in enumerate(published):
        now += pause
        for decision in server.forward(note, {"x": x}, now, expires=now + life):
            got.setdefault(decision.subscriber, []).append(decision.verdict.value)
        for subscriber in range(3):
            hits = [
                score
                for owner, parts, score in subscribed
                if owner == subscriber and oracle.matches(parts, {"x": x})
            ]
            if hits:
                wanted[subscriber].append((max(hits), now, now + life))
    for subscriber in range(3):
        expected = list(oracle.replay_definition_6(wanted[subscriber], k))
        assert got.get(subscriber, []) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(triples, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5),
    publications,
    st.integers(1, 3),
)
def test_priorities_deliver_by_winnow_level_as_in_section_4(filters, conditions, published, k):
    server, policy = build_server(k=k)
    profile = server.connect("x", policy)
    for number, parts in enumerate(filters):
        server.subscribe(Preference(number, "x", ContentFilter.of(*parts)))
    conditions = [(a, b) for a, b in conditions if a < b < len(filters)]
    for better, worse in conditions:
        profile.prefer(better, worse)
    levels = {
        item: number + 1
        for number, level in enumerate(oracle.winnow(range(len(filters)), conditions))
        for item in level
    }
    now, got, events = 0, [], []
    for note, (x, pause, life) in enumerate(published):
        now += pause
        got += [d.verdict.value for d in server.forward(note, {"x": x}, now, expires=now + life)]
        hits = [levels[i] for i, parts in enumerate(filters) if oracle.matches(parts, {"x": x})]
        if hits:
            events.append((-min(hits), now, now + life))
    assert got == list(oracle.replay_definition_6(events, k))


def test_a_cycle_is_refused_and_changes_nothing():
    server, policy = build_server(k=1)
    profile = server.connect("john", policy)
    for key, subscription in (("a", COMEDY), ("b", DRAMA), ("c", LONG_COMEDY)):
        server.subscribe(Preference(key, "john", subscription))
    profile.prefer("a", "b")
    profile.prefer("b", "c")
    with pytest.raises(PriorityCycle, match="conflict"):
        profile.prefer("c", "a")
    assert dict(profile.levels) == {"a": 1, "b": 2, "c": 3}
    profile.forget_preference("a", "b")
    assert dict(profile.levels) == {"a": 1, "b": 1, "c": 2}
    with pytest.raises(UnknownPriority):
        profile.forget_preference("a", "b")
    server.unsubscribe("b")
    assert dict(profile.levels) == {"a": 1, "c": 1}


def test_a_refresh_time_is_the_subscribers_own_expiry():
    server, policy = build_server(k=1)
    for name, refresh in (("patient", 100.0), ("eager", 5.0)):
        server.connect(name, policy)
        server.subscribe(Preference((name, 1), name, COMEDY, 0.9, refresh))
        server.subscribe(Preference((name, 2), name, DRAMA, 0.8))
    first = server.forward(1, {"genre": "comedy"}, 0.0)
    assert {d.subscriber: d.expires for d in first} == {"patient": 100.0, "eager": 5.0}
    second = server.forward(2, {"genre": "drama"}, 6.0)
    assert {d.subscriber: d.verdict for d in second} == {
        "patient": Verdict.OUTRANKED,
        "eager": Verdict.DELIVERED,
    }


def test_windows_over_time_and_over_matches():
    by_time, time_policy = build_server(k=1, expiry=ExpiryRule(span=10.0))
    by_count, count_policy = build_server(k=1, window=2)
    for server, policy in ((by_time, time_policy), (by_count, count_policy)):
        server.connect("x", policy)
        server.subscribe(Preference(1, "x", COMEDY, 0.9))
        server.subscribe(Preference(2, "x", DRAMA, 0.8))
    genres = ["comedy", "drama", "drama", "drama"]
    timed = [by_time.forward(i, {"genre": g}, 4.0 * i)[0] for i, g in enumerate(genres)]
    counted = [by_count.forward(i, {"genre": g}, 0.0)[0] for i, g in enumerate(genres)]
    assert [d.is_delivered for d in timed] == [True, False, False, True]
    assert [d.is_delivered for d in counted] == [True, False, True, True]


def test_without_k_everything_valid_is_delivered_with_its_rank():
    server, policy = build_server(combination=Combination.MEAN)
    server.connect("x", policy)
    server.subscribe(Preference(1, "x", COMEDY, 0.5))
    server.subscribe(Preference(2, "x", LONG_COMEDY, 1.0))
    (decision,) = server.forward(1, {"genre": "comedy", "length": 150}, 0.0, published=-3.0)
    assert (decision.verdict, decision.rank.value, decision.matched) == ("delivered", 0.75, (1, 2))
    assert decision.ranked == (decision.rank, 255, -3.0, 1)
    (late,) = server.forward(2, {"genre": "comedy"}, 9.0, expires=9.0)
    assert late.verdict is Verdict.EXPIRED
    assert server.profiles["x"].list_best(9.0) == []


def test_a_degree_of_match_outranks_a_score_where_the_product_says_so():
    server = Forwarder(lambda a, b: a == b, lambda s, n: n.get(s, 0))
    server.connect("x", RankingPolicy(k=1))
    server.subscribe(Preference(1, "x", "fever", 1.0))
    server.subscribe(Preference(2, "x", "pulse", 0.5))
    server.forward(1, {"fever": 120}, 0.0)  # 1.0 * 120 < 0.5 * 255
    (decision,) = server.forward(2, {"pulse": 255}, 1.0)
    assert decision.is_delivered
    (decision,) = server.forward(3, {"fever": 127}, 2.0)
    assert decision.verdict is Verdict.OUTRANKED
    assert [entry.note_id for entry in server.profiles["x"].list_best(3.0)] == [2]


def test_figure_8_of_the_paper_the_new_subscriber_joins_server_a():
    graphs = {}
    for name, held in {
        "A": [COMEDY, ContentFilter.of(("genre", "=", "comedy"), ("year", ">", 2000))],
        "B": [DRAMA],
    }.items():
        graphs[name] = SubscriptionGraph(covers, measure_degree)
        for number, subscription in enumerate(held):
            graphs[name].insert(number, subscription)
    offers = [probe_server(name, graph, [LONG_COMEDY]) for name, graph in graphs.items()]
    assert offers == [ServerOffer(0, 2, "A"), ServerOffer(1, 1, "B")]
    assert choose_server(offers).server == "A"
    # Criterion 2 decides a tie, the name the last one.
    assert choose_server([ServerOffer(1, 9, "A"), ServerOffer(1, 2, "B")]).server == "B"
    assert choose_server([ServerOffer(1, 2, "B"), ServerOffer(1, 2, "A")]).server == "A"
    with pytest.raises(ValueError, match="no server was probed"):
        choose_server([])


@settings(max_examples=60, deadline=None)
@given(st.lists(triples, max_size=6), st.lists(triples, max_size=5))
def test_a_probe_foretells_the_new_roots(held, wanted):
    graph = SubscriptionGraph(covers, measure_degree)
    for number, parts in enumerate(held):
        graph.insert(number, ContentFilter.of(*parts))
    before = len(graph)
    offer = probe_server("s", graph, [ContentFilter.of(*parts) for parts in wanted])
    assert (offer.nodes, len(graph)) == (before, before)
    for number, parts in enumerate(wanted):
        graph.insert(("new", number), ContentFilter.of(*parts))
    new_classes = [group for group in graph.list_classes() if all(_is_new(graph, s) for s in group)]
    roots = graph.list_roots()
    assert offer.new_roots == sum(any(s in roots for s in group) for group in new_classes)


def _is_new(graph, subscription):
    return all(isinstance(key, tuple) for key in graph.find_keys(subscription))


def test_misuse_is_named():
    server, policy = build_server(k=1)
    server.connect("x", policy)
    server.subscribe(Preference(1, "x", COMEDY))
    with pytest.raises(ValueError, match="'x' is already connected"):
        server.connect("x", policy)
    with pytest.raises(ValueError, match="subscription 1 already exists"):
        server.subscribe(Preference(1, "x", DRAMA))
    with pytest.raises(KeyError, match="'y' is not connected"):
        server.subscribe(Preference(2, "y", DRAMA))
    with pytest.raises(KeyError, match="no subscription 9"):
        server.unsubscribe(9)
    profile = server.profiles["x"]
    with pytest.raises(KeyError, match="'x' has no subscription 9"):
        profile.decide(1, [(9, 255)], 0.0)
    with pytest.raises(KeyError, match="'x' has no subscription 9"):
        profile.remove(9)
    with pytest.raises(ValueError, match="already has subscription 1"):
        profile.add(Preference(1, "x", DRAMA))
    with pytest.raises(ValueError, match="belongs to 'y', not to 'x'"):
        profile.add(Preference(3, "y", DRAMA))
    with pytest.raises(ValueError, match="no window"):
        server.connect("z", RankingPolicy(k=1, window=3, is_bounded=True))
    assert list(server.profiles) == ["x"]


def test_a_bounded_policy_takes_algorithm_1():
    verdicts = {}
    for is_bounded in (False, True):
        server, policy = build_server(k=1, is_bounded=is_bounded)
        server.connect("x", policy)
        for number, (value, score) in enumerate([(5, 0.5), (9, 0.9), (3, 0.3)]):
            server.subscribe(Preference(number, "x", ContentFilter.of(("x", "=", value)), score))
        steps = [(5, 0.0, 100.0), (9, 1.0, 10.0), (3, 20.0, math.inf)]
        verdicts[is_bounded] = [
            server.forward(i, {"x": x}, now, expires=expires)[0].verdict.value
            for i, (x, now, expires) in enumerate(steps)
        ]
    assert verdicts[False] == ["delivered", "delivered", "outranked"]
    assert verdicts[True] == ["delivered", "delivered", "delivered"]


def test_a_restarted_server_still_holds_back_what_it_held_back():
    first, policy = build_server(k=1)
    profile = first.connect("x", policy)
    second = Forwarder(covers, measure_degree)
    for number, (subscription, score) in enumerate([(COMEDY, 0.9), (DRAMA, 0.8)]):
        first.subscribe(Preference(number, "x", subscription, score))
    first.forward(1, {"genre": "comedy"}, 0.0, expires=10.0)
    top_k = TopK(1, turn=profile.top_k.turn, entries=profile.top_k.list_entries())
    second.connect("x", policy, top_k)
    second.subscribe(Preference(1, "x", DRAMA, 0.8))
    assert not second.forward(2, {"genre": "drama"}, 5.0)[0].is_delivered
    assert second.forward(3, {"genre": "drama"}, 10.0)[0].is_delivered


def test_who_disconnects_leaves_nothing():
    server, policy = build_server(k=1)
    for name in "xy":
        server.connect(name, policy)
        server.subscribe(Preference(name, name, COMEDY))
    server.disconnect("x")
    assert [d.subscriber for d in server.forward(1, {"genre": "comedy"}, 0.0)] == ["y"]
    server.disconnect("y")
    assert len(server.graph) == 0
    assert server.forward(2, {"genre": "comedy"}, 0.0) == []
    with pytest.raises(KeyError, match="'x' is not connected"):
        server.disconnect("x")


def test_the_example_in_the_package_runs():
    result = doctest.testmod(prefsiena)
    assert result.attempted > 0
    assert result.failed == 0
