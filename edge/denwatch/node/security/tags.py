"""The tag of a frame between two nodes: HMAC-SHA256 cut to 16 bytes.

It covers the names and the direction, which are not sent, because both ends know them: a frame
cannot be turned around or handed to a third node. `tag_peer` is the primitive; whoever owns the
frame's head decides what stands in it. `seal_peer` and `open_peer` are the plain form: head, body,
tag. That a frame is fresh is not this file's matter: heads carry a salt or a count for it.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

import cbor2
from denwatch.node.security.errors import SecurityError

PEER_TAG = 16


def tag_peer(secret: bytes, sender: str, receiver: str, head: bytes, body: bytes) -> bytes:
    """Return the tag of a frame from one node to another."""
    # Names and bytes have one encoding in CBOR, so that the plain encoder gives the canonical one.
    covered = cbor2.dumps(["denwatch peer", sender, receiver, head])
    # The body is behind a part that says its own length, so no byte can change sides.
    return hmac.digest(secret, covered + body, "sha256")[:PEER_TAG]


def check_peer(
    secrets: Iterable[bytes], sender: str, receiver: str, head: bytes, body: bytes, tag: bytes
) -> bool:
    """Return whether a tag is right under one of the secrets of two nodes."""
    right = False
    for secret in secrets:
        right |= hmac.compare_digest(tag_peer(secret, sender, receiver, head, body), tag)
    return right


def seal_peer(secret: bytes, sender: str, receiver: str, head: bytes, body: bytes) -> bytes:
    """Return head, body and tag as one frame."""
    return head + body + tag_peer(secret, sender, receiver, head, body)


def open_peer(
    secrets: Iterable[bytes], sender: str, receiver: str, head_length: int, frame: bytes
) -> tuple[bytes, bytes]:
    """Return head and body of a frame; SecurityError if it is short or its tag is wrong."""
    end = len(frame) - PEER_TAG
    if end < head_length:
        raise SecurityError(f"a frame of {len(frame)} bytes from {sender} is too short")
    head, body = frame[:head_length], frame[head_length:end]
    if not check_peer(secrets, sender, receiver, head, body, frame[end:]):
        raise SecurityError(f"the tag of a frame from {sender} is wrong")
    return head, body
