"""Tags between nodes: nothing changed, turned around or handed on is opened."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from denwatch.node.security import (
    PEER_TAG,
    SecurityError,
    check_peer,
    open_peer,
    seal_peer,
    tag_peer,
)
from denwatch.protocol import cbor
from hypothesis import given
from hypothesis import strategies as st

SECRET = hashlib.sha256(b"one").digest()
OTHER = hashlib.sha256(b"two").digest()


def test_the_tag_is_hmac_over_names_head_and_body() -> None:
    covered = cbor.encode(["denwatch peer", "a", "b", b"h"]) + b"body"
    expected = hmac.new(SECRET, covered, hashlib.sha256).digest()[:16]
    assert tag_peer(SECRET, "a", "b", b"h", b"body") == expected
    assert PEER_TAG == 16


@given(st.binary(max_size=20), st.binary(max_size=100))
def test_a_frame_comes_back(head: bytes, body: bytes) -> None:
    frame = seal_peer(SECRET, "a", "b", head, body)
    assert len(frame) == len(head) + len(body) + 16
    assert open_peer([SECRET], "a", "b", len(head), frame) == (head, body)
    assert open_peer([OTHER, SECRET], "a", "b", len(head), frame) == (head, body)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_every_changed_bit_and_every_prefix_is_refused(body: bytes, data: st.DataObject) -> None:
    frame = seal_peer(SECRET, "a", "b", b"\x01\x02", body)
    at = data.draw(st.integers(0, len(frame) * 8 - 1))
    spoiled = bytearray(frame)
    spoiled[at // 8] ^= 1 << at % 8
    with pytest.raises(SecurityError, match="tag"):
        open_peer([SECRET], "a", "b", 2, bytes(spoiled))
    for end in range(len(frame)):
        with pytest.raises(SecurityError):
            open_peer([SECRET], "a", "b", 2, frame[:end])
    with pytest.raises(SecurityError):
        open_peer([SECRET], "a", "b", 2, frame + b"\0")


def test_another_direction_name_key_or_cut_is_refused() -> None:
    tag = tag_peer(SECRET, "a", "b", b"hh", b"body")
    assert check_peer([SECRET], "a", "b", b"hh", b"body", tag)
    assert not check_peer([SECRET], "b", "a", b"hh", b"body", tag)
    assert not check_peer([SECRET], "a", "c", b"hh", b"body", tag)
    assert not check_peer([SECRET], "c", "b", b"hh", b"body", tag)
    assert not check_peer([OTHER], "a", "b", b"hh", b"body", tag)
    assert not check_peer([], "a", "b", b"hh", b"body", tag)
    assert not check_peer([SECRET], "a", "b", b"h", b"hbody", tag)  # a byte moved from head to body
    assert not check_peer([SECRET], "a", "b", b"hh", b"body", tag[:8])
