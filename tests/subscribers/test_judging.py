"""Rank and significance: against the ranking library, and in plain numbers."""

from __future__ import annotations

from denwatch.node.core import significance as node_significance
from denwatch.node.core.delivery import rank_matches
from denwatch.node.core.items import SUBSCRIPTION, Dot, Item, SubscriptionBody, encode_body
from denwatch.node.core.notifications import format_time
from denwatch.node.core.subscriptions import SubscriberState, Subscription, read_subscription
from denwatch.node.ranking.rank import PriorityCycle
from denwatch.protocol import subscription
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog import significance
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.prefsiena import Preference, Profile, RankingPolicy
from tests.subscribers.subscriber_node import SubscriberNode

PENDING = SubscriberNode().subscribers._pending
VECTOR = subscription.encode(SubscriptionVector(1, [Predicate(0, 10, 20)]))


def make_sub(owner: SubscriberState, number: int, **options: object) -> Subscription:
    body = SubscriptionBody("m", "open", "", number, 0, b"12345678", VECTOR, dict(options))
    item = Item(Dot("a", 1, number), SUBSCRIPTION, 0, encode_body(body))
    sub = Subscription(item, body, owner)
    read, vector = read_subscription(item)
    assert read == body
    assert isinstance(vector, SubscriptionVector)
    sub.adopt(vector)
    owner.enter(sub)
    return sub


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.2, 0.5, 1.0]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4),
    st.lists(st.integers(1, 255), min_size=5, max_size=5),
    st.sets(st.integers(0, 4), min_size=1),
)
def test_a_rank_is_what_a_profile_says(
    scores: list[float], pairs: list[tuple[int, int]], degrees: list[int], matched: set[int]
) -> None:
    owner = SubscriberState("m")
    profile: Profile[str] = Profile("m", RankingPolicy(), lambda a, b: a == b)
    subs = [make_sub(owner, n + 1, score=s, name=f"s{n}") for n, s in enumerate(scores)]
    for sub in subs:
        profile.add(Preference(sub.id, "m", sub.hex, sub.score))
    for better, worse in pairs:
        if better < len(subs) and worse < len(subs):
            try:
                profile.prefer(subs[better].id, subs[worse].id)
            except PriorityCycle:
                continue
            owner.asked.append((f"s{better}", f"s{worse}"))
    owner.assign_levels()
    hits = sorted(
        ((subs[n], degrees[n], degrees[n], 0) for n in matched if n < len(subs)),
        key=lambda hit: hit[0].id,
    )
    if not hits:
        return
    rank, best = rank_matches(owner, hits)
    decision = profile.decide(1, [(hit[0].id, hit[1]) for hit in hits], now=0.0)
    assert rank == decision.rank
    assert best[0].score * best[1] / 255 == rank.value


def test_a_circle_of_priorities_from_several_nodes_leaves_out_the_newest() -> None:
    owner = SubscriberState("m")
    make_sub(owner, 1, name="a", prefer=[["a", "b"]])
    make_sub(owner, 2, name="b", prefer=[["b", "a"]])
    owner.assign_levels()
    assert sorted(owner.levels.values()) == [1, 2]
    first = next(sub for sub in owner.subscriptions.values() if sub.name == "a")
    assert owner.levels[first.id] == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(1, 1 << 39))))
def test_codes_stand_for_dots(rows: list[tuple[str, int, int]]) -> None:
    for origin, epoch, sequence in rows:
        dot = Dot(origin, epoch, sequence)
        code = PENDING.encode(dot)
        assert PENDING.decode(code) == dot
        assert PENDING.make_key(code) == dot.key
        assert PENDING.encode_key(dot.key) == code


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 255))
def test_a_node_and_a_device_have_one_dead_band(
    value: int, last: int, band: int, relative: int
) -> None:
    assert node_significance._has_moved(value, last, band, relative) == significance.has_moved(
        value, last, band, relative
    )


def test_times_are_utc_with_milliseconds_whatever_the_clock_says() -> None:
    assert format_time(0) == "1970-01-01T00:00:00.000Z"
    assert format_time(1_800_000_000_007) == "2027-01-15T08:00:00.007Z"
    assert format_time(-5) == "1970-01-01T00:00:00.000Z"
    assert format_time(1 << 62) == "9999-12-31T23:59:59.999Z"
