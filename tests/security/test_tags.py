"""Tags between nodes: nothing changed, turned around or handed on is opened."""

from __future__ import annotations

import hashlib
import hmac

from denwatch.node.replication.wire import (
    ITEMS,
    PEER_TAG,
    PeerFrame,
    read_frame,
    seal,
    tag_peer,
)
from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

SECRET = hashlib.sha256(b"one").digest()
OTHER = hashlib.sha256(b"two").digest()


def test_the_tag_is_hmac_over_names_head_and_body() -> None:
    covered = cbor.encode(["denwatch peer", "a", "b", b"h"]) + b"body"
    expected = hmac.new(SECRET, covered, hashlib.sha256).digest()[:16]
    assert tag_peer(SECRET, "a", "b", b"h", b"body") == expected
    assert PEER_TAG == 16


def is_opened(secrets: list[bytes], salts: bytes, frame: bytes) -> bool:
    """Return whether a frame of a is accepted by b."""
    try:
        return read_frame(frame, 1000).is_from(secrets, "a", "b", salts)
    except ProtocolError:
        return False


@given(st.binary(max_size=20), st.binary(max_size=100))
def test_a_frame_comes_back(salts: bytes, body: bytes) -> None:
    frame = seal(SECRET, "a", "b", salts, ITEMS, 7, body)
    found = read_frame(frame, 1000)
    assert len(frame) == len(found.head) + len(body) + 16
    assert (found.kind, found.number, found.body) == (ITEMS, 7, body)
    assert is_opened([SECRET], salts, frame)
    assert is_opened([OTHER, SECRET], salts, frame)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_every_changed_bit_and_every_prefix_is_refused(body: bytes, data: st.DataObject) -> None:
    frame = seal(SECRET, "a", "b", b"salts", ITEMS, 1, body)
    at = data.draw(st.integers(0, len(frame) * 8 - 1))
    spoiled = bytearray(frame)
    spoiled[at // 8] ^= 1 << at % 8
    assert not is_opened([SECRET], b"salts", bytes(spoiled))
    for end in range(len(frame)):
        assert not is_opened([SECRET], b"salts", frame[:end])
    assert not is_opened([SECRET], b"salts", frame + b"\0")


def check_peer(
    secrets: list[bytes], sender: str, receiver: str, head: bytes, body: bytes, tag: bytes
) -> bool:
    frame = PeerFrame(ITEMS, False, b"", 1, head, body, tag)
    return frame.is_from(secrets, sender, receiver, b"")


def test_another_direction_name_or_key_is_refused() -> None:
    tag = tag_peer(SECRET, "a", "b", b"hh", b"body")
    assert check_peer([SECRET], "a", "b", b"hh", b"body", tag)
    assert not check_peer([SECRET], "b", "a", b"hh", b"body", tag)
    assert not check_peer([SECRET], "a", "c", b"hh", b"body", tag)
    assert not check_peer([SECRET], "c", "b", b"hh", b"body", tag)
    assert not check_peer([OTHER], "a", "b", b"hh", b"body", tag)
    assert not check_peer([], "a", "b", b"hh", b"body", tag)
    assert not check_peer([SECRET], "a", "b", b"h", b"hbody", tag)  # a byte moved from head to body


def test_a_cut_tag_is_refused() -> None:
    """How long a tag is depends on the kind of frame, not on what arrived."""
    frame = seal(SECRET, "a", "b", b"salts", ITEMS, 1, b"body")
    assert is_opened([SECRET], b"salts", frame)
    assert not is_opened([SECRET], b"salts", frame[:-8])
