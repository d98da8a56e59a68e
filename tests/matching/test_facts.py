"""Facts about vectors: what a start looks up is what it would have worked out."""

from __future__ import annotations

import random

import numpy as np
import pytest
from denwatch.node.matching import facts
from denwatch.node.matching.columns import ColumnIndex
from denwatch.node.matching.facts import (
    FactTable,
    decode_chunk,
    encode_chunk,
    find_fact,
    pack_facts,
)
from denwatch.protocol.subscription import decode, encode
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector

from tests.matching.samples import make_notification, make_subscription


def draw(count: int) -> tuple[list[SubscriptionVector], list[bytes]]:
    rng = random.Random(4)
    subs = [make_subscription(rng) for _ in range(count)]
    return subs, [encode(s) for s in subs]


def test_an_index_of_facts_answers_like_one_of_vectors() -> None:
    subs, data = draw(300)
    whole, again = ColumnIndex(), ColumnIndex()
    for id, s in enumerate(subs):
        whole.add(id, s)
    chunk = encode_chunk(data, pack_facts([find_fact(s) for s in subs]))
    table = FactTable()
    assert table.load([chunk]) == []
    places = [table.places[each] for each in data]
    again.add_facts(range(300), table.rows[places], data)
    rng = random.Random(5)
    for _ in range(60):
        n = make_notification(rng)
        assert again.match(n, 9) == whole.match(n, 9)
    for id in range(0, 300, 2):  # and it goes on like any other
        again.remove(id)
        whole.remove(id)
    assert again.match(n) == whole.match(n)


def test_known_ids_are_replaced() -> None:
    subs, data = draw(3)
    index = ColumnIndex()
    rows = pack_facts([find_fact(s) for s in subs])
    index.add_facts([1, 2, 3], rows, data)
    index.add_facts([2, 4], rows[:2], data[:2])
    assert len(index) == 4


def test_a_chunk_that_is_not_whole_or_of_other_code_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subs, data = draw(5)
    chunk = encode_chunk(data, pack_facts([find_fact(s) for s in subs]))
    for length in range(len(chunk)):
        assert decode_chunk(chunk[:length]) is None
    for place in range(len(chunk)):
        changed = bytearray(chunk)
        changed[place] ^= 0x40
        assert decode_chunk(bytes(changed)) is None
    table = FactTable()
    assert table.load([chunk[:-1], chunk, b""]) == [0, 2]
    assert len(table.rows) == len(set(data)) == len(table.places)
    monkeypatch.setattr(facts, "make_stamp", lambda: bytes(16))
    assert decode_chunk(chunk) is None


def test_only_plain_vectors_have_words() -> None:
    plain = SubscriptionVector(0, [Predicate(0, 1, 2), Predicate(1, 3, 4, 90)])
    assert len(facts.pack_words(plain)) == 2
    assert not facts.pack_words(SubscriptionVector(0, [Predicate(0, 1, 2)], recent=(1, 2)))
    assert not facts.pack_words(SubscriptionVector(0, [Predicate(0, 1, 2)], aggregator=1))
    assert not facts.pack_words(SubscriptionVector(0, [Predicate(0, 1, 2, wide=True)]))
    assert not facts.pack_words(SubscriptionVector(0, [Predicate(0, 1, 2, possible=9)]))
    assert not facts.pack_words(
        SubscriptionVector(0, plain.predicates, pattern=bytes([0, 1, 0x42]))
    )


def test_a_field_that_nobody_foresaw_makes_a_vector_other_than_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = SubscriptionVector(0, [Predicate(0, 1, 2)], why=True)
    assert facts.pack_words(plain)
    monkeypatch.setattr(facts, "_STRANGE", ["why"])
    assert not facts.pack_words(plain)


def test_a_fact_is_what_the_vector_says() -> None:
    subs, _ = draw(400)
    rows = pack_facts([find_fact(s) for s in subs])
    assert rows["event"].tolist() == [s.event for s in subs]
    assert rows["features"].tolist() == [s.features for s in subs]
    assert rows["threshold"].tolist() == [s.threshold for s in subs]
    assert rows["certain"].tolist() == [s.certain for s in subs]
    assert np.count_nonzero(rows["count"]) > 5
    significance = Significance(bands=b"\x05")
    significant = SubscriptionVector(0, [Predicate(0, 1, 2)], significance=significance)
    assert decode(encode(significant)).significance is not None
