"""Frames: what is written is read, and nothing else is: cut, longer, flipped or random bytes."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from denwatch.node.core.items import KINDS, Dot, Item
from denwatch.node.replication.dot_sets import (
    FrameReader,
    SeenRange,
    build_range,
    build_spans,
    decode_spans,
    differ,
    encode_spans,
    intersect,
    iterate,
    list_spans,
    subtract,
    unite,
)
from denwatch.node.replication.wire import (
    ITEMS,
    NAMES,
    Answer,
    EntryDifference,
    ItemBatch,
    SentItem,
    Summary,
    SummaryCompletion,
    SummaryEntry,
    Ways,
    decode_answer,
    decode_ask,
    decode_completion,
    decode_item_batch,
    decode_summary,
    decode_ways,
    encode_answer,
    encode_completion,
    encode_item_batch,
    encode_summary,
    encode_ways,
    read_frame,
    seal,
)
from denwatch.protocol.errors import ProtocolError
from hypothesis import given, settings
from hypothesis import strategies as st

SETS = st.sets(st.integers(1, 300), max_size=60)
SPANS = SETS.map(lambda values: build_spans(sorted(values)))
RUNS = st.tuples(st.text("abc-é", min_size=1, max_size=8), st.integers(0, 2**32 - 1))
TIMES = st.integers(0, 2**48 - 1)
LAGS = st.integers(-(2**50), 2**50)


@given(SETS, SETS)
def test_sets_agree_with_python(left: set[int], right: set[int]) -> None:
    one, two = build_spans(sorted(left)), build_spans(sorted(right))
    assert set(iterate(subtract(one, two))) == left - right
    assert set(iterate(intersect(one, two))) == left & right
    assert set(iterate(unite(one, two))) == left | right
    assert set(iterate(differ(one, two))) == left ^ right
    assert differ(differ(one, two), two) == one
    assert list_spans(build_range(one)) == one


@given(st.one_of(SPANS, st.sets(st.integers(1, 2**62), max_size=9).map(sorted).map(build_spans)))
def test_sets_come_back(spans: tuple[tuple[int, int], ...]) -> None:
    encoded = encode_spans(spans)
    cursor = FrameReader(encoded)
    assert decode_spans(cursor) == spans
    cursor.finish()
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode_spans(FrameReader(encoded[:end]))


def test_a_set_is_as_short_as_promised() -> None:
    """2,000 in a row are four bytes; each hole is about one more; a random half is a bitmap."""
    assert len(encode_spans(((1, 2_000),))) <= 4
    holes = subtract(((1, 40),), ((7, 7), (21, 21)))
    assert len(encode_spans(holes)) == 4
    half = build_spans(range(1, 400, 2))
    assert len(encode_spans(half)) <= 3 + 400 // 8 + 1


def test_absurd_sets_cost_nothing_and_are_refused_as_ranges() -> None:
    top = 2**62
    spans = decode_spans(FrameReader(encode_spans(((1, 5), (top, top)))))
    with pytest.raises(ProtocolError, match="holes"):
        build_range(spans)
    assert build_range(((1, top),)) == SeenRange(top, 0)


@settings(max_examples=30, deadline=None)
@given(
    st.binary(min_size=8, max_size=8),
    TIMES,
    st.binary(min_size=4, max_size=4),
    st.integers(0, 1000),
    st.lists(st.tuples(SPANS, SPANS), max_size=5),
    st.lists(st.tuples(RUNS, SPANS, SPANS), max_size=5),
    LAGS,
)
def test_summaries_come_back(
    salt: bytes,
    time: int,
    token: bytes,
    table: int,
    known: list[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]],
    named: list[tuple[tuple[str, int], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]],
    lag: int,
) -> None:
    entries = tuple(SummaryEntry(3 * i, seen, dead) for i, (seen, dead) in enumerate(known))
    entries += tuple(SummaryEntry(run, seen, dead) for run, seen, dead in named)
    changes = tuple(EntryDifference(seen, dead) for seen, dead in known)
    summary = Summary(salt, time, token, table, entries)
    answer = Answer(time, lag, token, changes, table, entries)
    completion = SummaryCompletion(time, lag, changes)
    for message, encode, decode in (
        (summary, encode_summary, decode_summary),
        (answer, encode_answer, decode_answer),
        (completion, encode_completion, decode_completion),
    ):
        body = encode(message)
        assert decode(body) == message
        for broken in (body + b"\0", *(body[:end] for end in range(len(body)))):
            with pytest.raises(ProtocolError):
                decode(broken)


def _make_item_batch() -> ItemBatch:
    items = [
        Item(Dot("node-1", 3, 2**40 + i), kind, 1_000 * i, b"body" * i, b"s" * 64)
        for i, kind in enumerate(KINDS)
    ]
    items_sent = tuple(SentItem(item, i, i + 1) for i, item in enumerate(items))
    return ItemBatch(((("b", 1), ((4, 9),)),), ((("node-1", 3), -5, 7),), items_sent)


def test_item_batches_come_back_and_nothing_shorter_or_longer() -> None:
    batch = _make_item_batch()
    body = encode_item_batch(batch)
    assert decode_item_batch(body) == batch
    for broken in (body + b"\0", *(body[:end] for end in range(len(body)))):
        with pytest.raises(ProtocolError):
            decode_item_batch(broken)


DECODERS = (decode_summary, decode_answer, decode_completion, decode_item_batch)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_cleanly(data: bytes) -> None:
    for decode in DECODERS:
        with suppress(ProtocolError):
            decode(data)
    with suppress(ProtocolError):
        read_frame(data, 1_000)


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_flipped_item_batches_are_refused_cleanly(at: int, bit: int) -> None:
    body = bytearray(encode_item_batch(_make_item_batch()))
    body[at % len(body)] ^= 1 << bit
    with suppress(ProtocolError):
        decode_item_batch(bytes(body))


SECRET = hashlib.sha256(b"secret").digest()


def test_every_bit_of_a_frame_is_under_its_tag() -> None:
    for kind in NAMES:
        data = seal(SECRET, "a", "b", b"salts", kind, 5, b"the body")
        assert read_frame(data, 100).is_from([SECRET], "a", "b", b"salts")
        for bit in range(8 * len(data)):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            try:
                frame = read_frame(bytes(broken), 100)
            except ProtocolError:
                continue
            assert not frame.is_from([SECRET], "a", "b", b"salts")


def test_a_frame_is_for_one_direction_one_pair_one_exchange() -> None:
    frame = read_frame(seal(SECRET, "a", "b", b"salts", ITEMS, 1, b""), 100)
    assert frame.is_from([b"an older secret", SECRET], "a", "b", b"salts")
    assert not frame.is_from([SECRET], "b", "a", b"salts")
    assert not frame.is_from([SECRET], "a", "c", b"salts")
    assert not frame.is_from([SECRET], "a", "b", b"other")
    assert not frame.is_from([b"another secret"], "a", "b", b"salts")


def test_a_frame_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(ProtocolError, match="101 bytes"):
        read_frame(bytes(101), 100)


@given(st.integers(0, 0xFFFF), st.lists(st.tuples(st.text("abé", min_size=1), st.integers(0, 255))))
def test_ways_are_read_by_who_has_the_same_nodes_alone(
    reach: int, told: list[tuple[str, int]]
) -> None:
    nodes = [node for node, _ in told]
    ways = Ways(reach, bytes(byte for _, byte in told))
    body = encode_ways(ways, nodes)
    assert decode_ways(body, nodes) == ways
    assert decode_ways(body, [*nodes, "another"]) is None
    for cut in (*(body[:at] for at in range(len(body))), body + b"\0", body + b"\0\0"):
        with suppress(ProtocolError):
            assert decode_ways(cut, nodes) is None


def test_nodes_of_the_first_version_read_ways_as_a_question() -> None:
    for nodes in (["a"], ["a", "b"]):
        decode_ask(encode_ways(Ways(7, bytes(len(nodes))), nodes))
