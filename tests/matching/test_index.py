"""The index answers what the definition answers, however its subscriptions came and went."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.match_columns import (
    build_notification_batch,
    build_predicates,
    build_subscription_batch,
)
from papers.baselines import PlainMatcher, TripleScan
from tests.matching.samples import (
    make_notification,
    make_subscription,
    notifications,
    subscriptions,
)


def assert_same(
    index: FuzzyIndex, plain: PlainMatcher, n: NotificationVector, age: int = 0
) -> None:
    assert len(index) == len(plain)
    assert index.match(n, age) == plain.match(n, age)


@given(
    st.lists(subscriptions(), min_size=1, max_size=12),
    st.lists(notifications(), min_size=1, max_size=4),
    st.integers(0, 9000),
    st.sampled_from([16, 64, 256]),
)
@settings(max_examples=200, deadline=None)
def test_any_subscription_and_any_notification(
    subs: list[SubscriptionVector], notes: list[NotificationVector], age: int, buckets: int
) -> None:
    index, plain = FuzzyIndex(buckets=buckets), PlainMatcher()
    index.add_batch(pack_subscriptions(enumerate(subs)))
    for id, s in enumerate(subs):
        plain.add(id, s)
    for n in notes:
        assert_same(index, plain, n, age)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_adding_replacing_and_removing_in_any_order(data: st.DataObject) -> None:
    index, plain = FuzzyIndex(), PlainMatcher()
    known: set[int] = set()
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["add", "add", "bulk", "remove", "compact"]))
        if step == "remove" and known:
            id = data.draw(st.sampled_from(sorted(known)))
            known.remove(id)
            index.remove(id)
            plain.remove(id)
        elif step == "compact":
            index.compact()
        else:
            count = 1 if step == "add" else data.draw(st.integers(2, 5))
            pairs = [
                (data.draw(st.integers(0, 9)), data.draw(subscriptions(attributes=3)))
                for _ in range(count)
            ]
            index.add_batch(pack_subscriptions(pairs))
            for id, s in pairs:
                plain.add(id, s)
                known.add(id)
    assert_same(index, plain, data.draw(notifications(attributes=3)))


@pytest.mark.parametrize("buckets", [16, 256])
def test_large_groups_that_grow_and_shrink(buckets: int) -> None:
    """Few masks, so that groups pass through packed boxes, blocks, merges and reused slots."""
    rng = random.Random(7)
    index, plain = FuzzyIndex(buckets=buckets), PlainMatcher()
    notes = [make_notification(rng, 1, 2, wide=False) for _ in range(12)]
    ids: list[int] = []
    for round in range(4):
        for _ in range(500):
            s = make_subscription(rng, 1, 2, wide=False)
            id = rng.randint(0, 3000)
            index.add(id, s)
            plain.add(id, s)
            ids.append(id)
        pairs = [
            (rng.randint(0, 3000), make_subscription(rng, 1, 2, wide=False)) for _ in range(300)
        ]
        index.add_batch(pack_subscriptions(pairs))
        for id, s in pairs:
            plain.add(id, s)
        for id in sorted(set(ids))[round::3]:
            if id in index:
                index.remove(id)
                plain.remove(id)
        for n in notes[round * 3 : round * 3 + 3]:
            assert_same(index, plain, n, 30)
    before = index.nbytes
    index.compact()
    assert index.nbytes < before
    assert_same(index, plain, notes[0])


def test_many_masks_and_wide_notifications_find_the_same_groups() -> None:
    """Both ways from a notification to its groups: walking the trie and listing all masks."""
    rng = random.Random(3)
    index, plain = FuzzyIndex(), PlainMatcher()
    pairs = [(id, make_subscription(rng, 2, 14)) for id in range(3000)]
    index.add_batch(pack_subscriptions(pairs))
    for id, s in pairs:
        plain.add(id, s)
    for carried in (2, 4, 14):
        for _ in range(3):
            names = sorted(rng.sample(range(14), carried))
            n = NotificationVector(0, [Reading(a, (rng.randint(0, 255),) * 4) for a in names])
            assert_same(index, plain, n)


def test_a_batch_of_notifications_answers_like_each_alone() -> None:
    rng = random.Random(5)
    index = FuzzyIndex()
    index.add_batch(pack_subscriptions((id, make_subscription(rng)) for id in range(2000)))
    notes = [make_notification(rng) for _ in range(50)]
    ages = [rng.randint(0, 500) for _ in notes]
    hits = index.match_batch(pack_notifications(notes, ages))
    for i, (n, age) in enumerate(zip(notes, ages, strict=True)):
        rows = slice(hits.starts[i], hits.starts[i + 1])
        alone = index.match(n, age)
        assert sorted(hits.ids[rows].tolist()) == [hit.id for hit in alone]
        assert int(hits.possible[rows].sum()) == sum(hit.possible for hit in alone)
        assert int(hits.certain[rows].sum()) == sum(hit.certain for hit in alone)


def test_threads_that_match_at_once_do_not_disturb_each_other() -> None:
    rng = random.Random(11)
    index = FuzzyIndex()
    index.add_batch(pack_subscriptions((id, make_subscription(rng)) for id in range(1500)))
    notes = [make_notification(rng) for _ in range(60)]
    alone = [index.match(n) for n in notes]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(index.match, notes * 5)) == alone * 5


def test_more_attributes_than_one_word_of_a_mask() -> None:
    """Columns may use all 1,024 attributes, and masks any of them together."""
    rng = np.random.default_rng(2)
    n, wide = 4000, 122
    counts = rng.integers(1, 9, n)
    attributes = np.concatenate([rng.choice(wide, k, replace=False) for k in counts])
    low = rng.integers(0, 256, len(attributes))
    high = np.minimum(255, low + rng.integers(0, 120, len(attributes)))
    preds = build_predicates(attributes, low, high, left=rng.integers(0, 256, len(attributes)))
    batch = build_subscription_batch(np.arange(n), counts, preds, threshold=rng.integers(1, 200, n))
    index = FuzzyIndex(attributes=wide)
    index.add_batch(batch)
    scan = TripleScan(batch, wide)
    for carried in (1, 20, 80, 122):
        names = rng.choice(wide, carried, replace=False)
        values = rng.integers(0, 256, carried)
        hits = index.match_batch(build_notification_batch([0, carried], names, values))
        order = np.argsort(hits.ids)
        table = scan.spread(names, values)
        for ids, degrees, blames in (scan.scan(table), scan.scan_numpy(table)):
            assert ids.tolist() == hits.ids[order].tolist()
            assert degrees.tolist() == hits.possible[order].tolist()
            assert degrees.tolist() == hits.certain[order].tolist()
            assert blames.tolist() == hits.attributes[order].tolist()


def test_an_empty_index_and_an_unknown_attribute() -> None:
    index = FuzzyIndex(attributes=16)
    n = NotificationVector(9, [Reading(0, (1, 1, 1, 1))])
    assert index.match(n) == []
    index.add(1, SubscriptionVector(0, [Predicate(0, 0, 255)]))
    assert index.match(n) == []
    with pytest.raises(ValueError, match="attribute 16 is not below 16"):
        index.add(2, SubscriptionVector(1, [Predicate(0, 0, 255)]))
    assert len(index) == 1


def test_ids_are_64_bits_without_sign() -> None:
    index = FuzzyIndex()
    s = SubscriptionVector(0, [Predicate(0, 0, 255)])
    for id in (2**64 - 1, 0, 2**63):
        index.add(id, s)
    hits = index.match(NotificationVector(0, [Reading(0, (1, 1, 1, 1))]))
    assert [hit.id for hit in hits] == [0, 2**63, 2**64 - 1]
    index.remove(2**64 - 1)
    assert 2**64 - 1 not in index
    with pytest.raises(KeyError):
        index.remove(2**64 - 1)
    with pytest.raises(ValueError, match="is not in"):
        index.add(-1, s)


def test_batches_that_break_a_rule_name_it() -> None:
    good = build_predicates([0, 1], [0, 0], [9, 9])
    with pytest.raises(ProtocolError, match="low above high"):
        build_subscription_batch([1], [2], build_predicates([0, 1], [0, 10], [9, 9]))
    with pytest.raises(ProtocolError, match="beyond the domain"):
        build_subscription_batch([1], [2], build_predicates([0, 1], [0, 0], [9, 256]))
    with pytest.raises(ProtocolError, match="2 predicates, not 3"):
        build_subscription_batch([1], [3], good)
    with pytest.raises(ProtocolError, match="subscription 1 of the batch: no predicate"):
        build_subscription_batch([1, 2], [2, 0], good)
    with pytest.raises(ProtocolError, match="without"):
        build_subscription_batch([1], [2], good, aggregator=7)
    with pytest.raises(ValueError, match="no column 'age'"):
        build_subscription_batch([1], [2], good, age=1)
    with pytest.raises(ValueError, match="rising points"):
        build_notification_batch([0, 1], [0], [[4, 3, 5, 6]])


def test_memory_shrinks_with_fewer_buckets() -> None:
    rng = random.Random(1)
    pairs = [(id, make_subscription(rng, 1, 2, wide=False)) for id in range(1500)]
    sizes = []
    for buckets in (256, 64, 16):
        index = FuzzyIndex(buckets=buckets)
        index.add_batch(pack_subscriptions(pairs))
        sizes.append(index.columns["bits"].nbytes)
    assert sizes[0] == 4 * sizes[1] == 16 * sizes[2] > 0
