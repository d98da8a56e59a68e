"""Items as bytes: every body survives, damage is refused, ids do not depend on anything else."""

from __future__ import annotations

import cbor2
import pytest
from denwatch.node.core.items import (
    NOTIFICATION,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    VocabularyBody,
    decode_body,
    decode_item,
    encode_body,
    read_dot,
    read_expires,
)
from denwatch.protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

BODIES = [
    SubscriptionBody("medic7", "medic", "heart_rate above 150", 5, 0, b"h" * 8, b"v", {"top": 3}),
    NotificationBody("dog-1", 2, 77, 1_700_000_000_000, 250, b"h" * 8, b"n"),
    DeliveredBody("medic7", [["a", 1, 2], ["b", 1, 9]]),
    VocabularyBody(b"h" * 8, '{"name":"rescue"}'),
]
DOTS = st.builds(
    Dot,
    st.text("abcdefghijklmnopqrstuvwxyz-ä", min_size=1, max_size=20),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)


@given(DOTS)
def test_a_dot_survives_its_key(dot: Dot) -> None:
    assert read_dot(dot.key) == dot
    assert 0 <= dot.id < 2**64


@given(st.lists(DOTS, min_size=2, max_size=20))
def test_keys_of_one_run_sort_by_sequence(dots: list[Dot]) -> None:
    run = [dot._replace(origin="a", epoch=1) for dot in dots]
    assert sorted(run, key=lambda dot: dot.key) == sorted(run)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_body_survives(body: SubscriptionBody) -> None:
    assert decode_body(type(body), encode_body(body)) == body


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_truncated_body_is_refused(body: SubscriptionBody) -> None:
    data = encode_body(body)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_body(type(body), data[:length])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_field_of_another_type_is_refused(body: SubscriptionBody) -> None:
    values = cbor2.loads(encode_body(body))
    for place in range(len(values)):
        wrong = [*values[:place], None, *values[place + 1 :]]
        with pytest.raises(ProtocolError, match="is not"):
            decode_body(type(body), cbor2.dumps(wrong))
    with pytest.raises(ProtocolError, match="fields"):
        decode_body(type(body), cbor2.dumps([*values, 0]))


def test_a_mark_of_something_else_than_dots_is_refused() -> None:
    for note in (["a", 1], ["a", -1, 1], [1, 1, 1], "a"):
        with pytest.raises(ProtocolError, match="origin, epoch, sequence"):
            decode_body(DeliveredBody, cbor2.dumps(["medic7", [note]]))


def test_an_item_survives_and_its_signature_covers_all_but_itself() -> None:
    item = Item(Dot("a", 1, 2), NOTIFICATION, 99, b"body", b"signature")
    assert decode_item(item.dot.key, item.encode()) == item
    others = [
        Item(Dot("b", 1, 2), NOTIFICATION, 99, b"body"),
        Item(Dot("a", 2, 2), NOTIFICATION, 99, b"body"),
        Item(Dot("a", 1, 3), NOTIFICATION, 99, b"body"),
        Item(Dot("a", 1, 2), 1, 99, b"body"),
        Item(Dot("a", 1, 2), NOTIFICATION, 98, b"body"),
        Item(Dot("a", 1, 2), NOTIFICATION, 99, b"Body"),
    ]
    assert len({other.signed for other in [item, *others]}) == 7


@given(st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_the_end_of_a_stored_item_is_read_without_the_rest(expires: int, body: bytes) -> None:
    stored = Item(Dot("a", 1, 1), NOTIFICATION, expires, body).encode()
    assert read_expires(stored) == expires


@pytest.mark.parametrize("number", [0, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32])
def test_the_short_way_of_encoding_a_notification_is_that_of_cbor(number: int) -> None:
    epoch = min(number, (1 << 32) - 1)
    body = NotificationBody("dög", epoch, number, number, number, bytes(8), bytes(number % 300))
    fields = [body.device, epoch, number, number, number, body.vocabulary, body.vector]
    assert encode_body(body) == cbor2.dumps(fields)


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256])
@pytest.mark.parametrize("signature", [b"", bytes(23), bytes(range(64)), bytes(128)])
@pytest.mark.parametrize("expires", [0, 1 << 32])
def test_stored_items_of_every_size_are_read_back(
    size: int, signature: bytes, expires: int
) -> None:
    item = Item(Dot("middle", 3, 7), NOTIFICATION, expires, bytes(size), signature)
    assert decode_item(item.dot.key, item.encode()) == item
