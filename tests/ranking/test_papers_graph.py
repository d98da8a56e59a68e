"""The subscription graph against brute force, under any sequence of inserts and deletes."""

from __future__ import annotations

import pytest
from denwatch.node.ranking.content import ContentFilter
from denwatch.node.ranking.content_covering import covers
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.prefsiena import measure_degree
from papers.prefsiena_graph import SubscriptionGraph
from tests.ranking import oracle

# Boxes of one dimension under a second predicate pair: the graph must not know typed content.
intervals = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda p: (min(p), max(p)))
parts = st.lists(
    st.one_of(
        st.tuples(
            st.just("x"), st.sampled_from(["=", "!=", "<", ">", "<=", ">="]), st.integers(0, 2)
        ),
        st.tuples(st.just("y"), st.sampled_from(["=", "prefix"]), st.sampled_from(["", "a", "ab"])),
    ),
    max_size=3,
)
# A step inserts something, or deletes one of the keys there by its position.
filter_steps = st.lists(st.one_of(parts, st.integers(0, 30)), max_size=25)
interval_steps = st.lists(st.one_of(intervals, st.integers(0, 30)), max_size=40)
NOTIFICATIONS = [{"x": x, "y": y} for x in (-1, 0, 0.5, 1, 2, 3) for y in ("", "a", "abc", "b")]


def covers_interval(a, b):
    return a[0] <= b[0] and b[1] <= a[1]


def degree_in_interval(interval, x):
    return 255 - 10 * (x - interval[0]) if interval[0] <= x <= interval[1] else 0


def check_against_brute_force(graph, held, covers_pair):
    distinct = list(dict.fromkeys(held.values()))
    classes = {
        frozenset(b for b in distinct if covers_pair(a, b) and covers_pair(b, a)) for a in distinct
    }
    assert {frozenset(group) for group in graph.list_classes()} == classes
    assert len(graph) == len(classes)
    by_member = {member: group for group in classes for member in group}
    edges = [(by_member[a], by_member[b]) for a, b in graph.list_edges()]
    expected = oracle.reduce_edges(classes, lambda a, b: covers_pair(next(iter(a)), next(iter(b))))
    assert len(edges) == len(set(edges))
    assert set(edges) == expected
    roots = classes - {b for _, b in expected}
    assert {by_member[root] for root in graph.list_roots()} == roots


def play(graph, steps, make, check):
    held = {}
    for number, step in enumerate(steps):
        if not isinstance(step, int):
            subscription = make(step)
            already = any(covers_both(graph, s, subscription) for s in held.values())
            is_root = graph.insert(number, subscription)
            held[number] = subscription
            covered = any(graph.covers(s, subscription) for key, s in held.items() if key != number)
            assert is_root == (not covered and not already)
        elif held:
            key = sorted(held)[step % len(held)]
            assert graph.delete(key) == held.pop(key)
        check(held)
    return held


def covers_both(graph, a, b):
    return graph.covers(a, b) and graph.covers(b, a)


@settings(max_examples=60, deadline=None)
@given(filter_steps)
def test_covering_edges_equal_brute_force_for_typed_content(steps):
    graph = SubscriptionGraph(covers, measure_degree)
    play(
        graph,
        steps,
        lambda triples: ContentFilter.of(*triples),
        lambda held: check_against_brute_force(graph, held, covers),
    )


@settings(max_examples=60, deadline=None)
@given(interval_steps)
def test_covering_edges_equal_brute_force_for_injected_predicates(steps):
    graph = SubscriptionGraph(covers_interval, degree_in_interval)
    play(
        graph,
        steps,
        lambda interval: interval,
        lambda held: check_against_brute_force(graph, held, covers_interval),
    )


# All intervals of a small domain: full of diamonds, where a cut edge may or may not be rejoined.
LATTICE = [(lo, hi) for lo in range(5) for hi in range(lo, 5)]


@settings(max_examples=40, deadline=None)
@given(st.permutations(LATTICE), st.integers(6, len(LATTICE)), st.randoms(use_true_random=False))
def test_edges_stay_right_while_a_dense_graph_is_built_and_taken_down(order, size, rng):
    graph = SubscriptionGraph(covers_interval, degree_in_interval)
    held = {}
    for interval in order[:size]:
        graph.insert(interval, interval)
        held[interval] = interval
        check_against_brute_force(graph, held, covers_interval)
    for interval in rng.sample(sorted(held), size):
        graph.delete(interval)
        del held[interval]
        check_against_brute_force(graph, held, covers_interval)


@settings(max_examples=60, deadline=None)
@given(filter_steps)
def test_the_pruned_walk_finds_what_a_full_scan_finds(steps):
    graph = SubscriptionGraph(covers, measure_degree)
    held = play(graph, steps, lambda triples: ContentFilter.of(*triples), lambda _: None)
    for notification in NOTIFICATIONS:
        walk = graph.find_matching(notification)
        expected = {
            key
            for key, subscription in held.items()
            if oracle.matches(
                [(c.name, str(c.op), c.value) for c in subscription.constraints], notification
            )
        }
        assert sorted(walk.matches) == sorted((key, 255) for key in expected)
        assert walk.tested <= len(set(held.values()))
        assert graph.has_match(notification) == bool(expected)


@settings(max_examples=40, deadline=None)
@given(interval_steps)
def test_the_walk_reports_each_subscriptions_own_degree(steps):
    graph = SubscriptionGraph(covers_interval, degree_in_interval)
    held = play(graph, steps, lambda interval: interval, lambda _: None)
    for x in range(7):
        expected = [(key, 255 - 10 * (x - lo)) for key, (lo, hi) in held.items() if lo <= x <= hi]
        assert sorted(graph.find_matching(x).matches) == sorted(expected)


def test_equivalent_subscriptions_share_a_node_and_keep_their_own_degrees():
    # Same cut, other degree: as with two fuzzy subscriptions of equal alpha-cut.
    graph = SubscriptionGraph(lambda a, b: a[0] == b[0], lambda s, n: s[1] if s[0] == n else 0)
    graph.insert("one", ("cut", 200))
    graph.insert("two", ("cut", 100))
    assert len(graph) == 1
    assert sorted(graph.find_matching("cut").matches) == [("one", 200), ("two", 100)]
    graph.delete("one")
    assert graph.find_matching("cut").matches == (("two", 100),)


def test_a_branch_whose_top_does_not_match_is_never_tested():
    graph = SubscriptionGraph(covers_interval, degree_in_interval)
    for number, interval in enumerate([(0, 9), (1, 8), (2, 7), (20, 29), (21, 28), (22, 27)]):
        graph.insert(number, interval)
    walk = graph.find_matching(5)
    assert [key for key, _ in walk.matches] == [0, 1, 2]
    assert walk.tested == 4  # three that match, and the other branch's top


def test_a_node_is_tested_only_if_all_above_it_match():
    graph = SubscriptionGraph(covers_interval, degree_in_interval)
    for number, interval in enumerate([(0, 5), (3, 9), (3, 5)]):
        graph.insert(number, interval)
    assert graph.find_matching(1).tested == 2
    assert graph.find_matching(4).tested == 3


def test_figure_7_of_the_paper():
    s1 = ContentFilter.of(("cinema", "=", "ster"), ("genre", "=", "drama"), ("time", ">", 21))
    s2 = ContentFilter.of(("genre", "=", "drama"), ("time", ">", 21))
    s3 = ContentFilter.of(("cinema", "=", "ster"))
    graph = SubscriptionGraph(covers, measure_degree)
    for key, subscription in [("john1", s1), ("john2", s2), ("john3", s3), ("anna1", s1)]:
        graph.insert(key, subscription)
    assert set(graph.list_edges()) == {(s2, s1), (s3, s1)}
    assert graph.find_keys(s1) == ["john1", "anna1"]
    assert graph.list_roots() == [s2, s3]


def test_misuse_is_named():
    graph = SubscriptionGraph(covers_interval)
    graph.insert("a", (1, 2))
    with pytest.raises(ValueError, match="'a' is already"):
        graph.insert("a", (1, 3))
    with pytest.raises(KeyError, match="'b' is not in the graph"):
        graph.delete("b")
    with pytest.raises(TypeError, match="without a degree"):
        graph.find_matching(1)
    assert "a" in graph
    assert graph.find_keys((7, 7)) == []
