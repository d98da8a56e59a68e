"""The worked example in the README of `node/security` shows real bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from denwatch.node import security
from denwatch.node.security.notices import make_revocation
from denwatch.node.security.registrations import (
    DeviceKey,
    derive_device_password,
    derive_device_secret,
)
from denwatch.protocol import cbor, frames
from denwatch.protocol.errors import ProtocolError

README = (Path(security.__file__).parent / "README.md").read_text(encoding="utf-8")
MASTER = DeviceKey(hashlib.sha256(b"dog-1").digest(), is_master=True)


@pytest.mark.parametrize("node", ["north", "south"])
def test_keys_and_passwords_of_the_device(node: str) -> None:
    secret = derive_device_secret(MASTER, "dog-1", node, 1)
    row = f"| {node} | `{secret.hex()[:16]}…` | `{derive_device_password(secret)}` |"
    assert row in README


def test_the_frame_is_accepted_at_its_node_only() -> None:
    (line,) = [line for line in README.splitlines() if line.strip().startswith("83 0001 ")]
    data = bytes.fromhex(line)
    north, south = (
        frames.Link("dog-1", node, 1, derive_device_secret(MASTER, "dog-1", node, 1))
        for node in ("north", "south")
    )
    frame = frames.open_frame(north, frames.UP, data)
    assert (frame.epoch, frame.sequence, frame.body) == (3, 70, b"reading")
    with pytest.raises(ProtocolError):
        frames.open_frame(south, frames.UP, data)


def test_the_notice_of_the_revocation() -> None:
    assert make_revocation("device", "dog-1") == cbor.encode([1, 1, "dog-1", None, b""])
    assert """`[1, 1, "dog-1", null, h'']`""" in README
