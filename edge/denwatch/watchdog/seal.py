"""Frames and control messages of `protocol`, in the little that a device needs of them.

`protocol.frames` and `cbor` together are 12 KB of code; this is 1.4 KB. The tests hold
every byte against them. A frame that is refused is a RefusedError that names the reason under which
it is counted. What a CBOR decoder must check for strangers (one encoding only) is left out: a tag
has been checked before anything is decoded, and every length is checked all the same. Whoever seals
must not use a kind, epoch and sequence twice: they are the nonce.
"""

from hashlib import sha256

from ..protocol.ccm import decrypt, encrypt
from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUBSCRIPTIONS = const(1)
MESSAGE = const(3)
ACKNOWLEDGE = const(3)  # types of messages
REMOVE = const(4)
HEARD = const(8)
_HEAD = const(11)
_TAG = const(8)
_DEPTH = const(6)
_COVERED = b"\x83\x68Encrypt0\x43\xa1\x01\x0a"  # COSE's Enc_structure, but for its last part


class FrameError(ValueError):
    """A frame that changes nothing, and why: version, frame, key, tag, replay or message."""


class FrameKey:
    """One key between a device and a node."""

    def __init__(self, device: str, node: str, number: int, secret: bytes) -> None:
        if len(secret) < 16 or len(set(secret)) < 8:
            raise ValueError("key of " + node)  # at least 16 bytes, and they differ
        self.node = node
        self._id = number.to_bytes(2, "big")
        named = pack(["denwatch", device, node, secret])
        self._key = sha256(named).digest()[:16]

    def seal(
        self,
        kind: int,
        epoch: int,
        sequence: int,
        body: bytes,
        answer: bytes = b"",
    ) -> bytes:
        """Return a frame to the node.

        `answer`: what a batch belongs to, its number and the time since it, which is sent instead
        of the epoch.
        """
        start = bytes([0x80 | kind]) + self._id
        shown = epoch.to_bytes(4, "big")
        count = sequence.to_bytes(4, "big")
        nonce = b"\0" + start + shown + count + b"\0"
        if answer:
            shown = answer[8:]
        return start + shown + count + encrypt(self._key, nonce, body, _COVERED + pack(answer))

    def open(self, frame: bytes) -> "tuple[int, int, int, bytes]":
        """Return kind, epoch, sequence and body of a frame from the node."""
        if frame and frame[0] & 0xC0 != 0x80:
            raise FrameError("version")
        if len(frame) < _HEAD + _TAG or not 1 <= frame[0] & 63 <= 3:
            raise FrameError("frame")
        if frame[1:3] != self._id:
            raise FrameError("key")
        nonce = b"\1" + frame[:_HEAD] + b"\0"
        body = decrypt(self._key, nonce, frame[_HEAD:], _COVERED + b"\x40")
        if body is None:
            raise FrameError("tag")
        epoch = int.from_bytes(frame[3:7], "big")
        return frame[0] & 63, epoch, int.from_bytes(frame[7:11], "big"), body


def _head(major: int, value: int) -> bytes:
    """Return CBOR's head: a major type and its argument, as short as can be."""
    if value < 24:
        return bytes([major | value])
    size = 0 if value < 256 else 1 if value < 65536 else 2
    return bytes([major | 24 + size]) + value.to_bytes(1 << size, "big")


def pack(value: "Any") -> bytes:
    """Return the CBOR of an integer, bytes, text, a list, or a dictionary by integers."""
    if isinstance(value, int):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(0x40, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(0x60, len(text)) + text
    if isinstance(value, dict):
        data = _head(0xA0, len(value))
        for key in sorted(value):
            data += pack(key) + pack(value[key])
        return data
    data = _head(0x80, len(value))
    for item in value:
        data += pack(item)
    return data


def unpack(data: bytes) -> object:
    """Return what a message holds; text comes as bytes."""
    value, stop = _take(data, 0, _DEPTH)
    if stop != len(data):
        raise FrameError("message")
    return value


def _take(data: bytes, at: int, depth: int) -> "tuple[object, int]":
    size = 0
    if at < len(data):
        short = data[at] & 31
        size = 0 if short < 24 else 1 << (short - 24)
    if at >= len(data) or size > 4 or at + size >= len(data) or not depth:
        raise FrameError("message")
    major = data[at] & 0xE0
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else short
    at += 1 + size
    if major < 0x40:
        return (-1 - value if major else value), at
    if major < 0x80 and at + value <= len(data):
        return data[at : at + value], at + value
    if major == 0x80:
        items = []
        for _ in range(value):
            item, at = _take(data, at, depth - 1)
            items.append(item)
        return items, at
    if major == 0xA0:
        entries = {}
        for _ in range(value):
            key, at = _take(data, at, depth - 1)
            entries[check_number(key)], at = _take(data, at, depth - 1)
        return entries, at
    raise FrameError("message")


def check_number(value: object) -> int:
    """Return an unsigned integer."""
    if not isinstance(value, int) or value < 0:
        raise FrameError("message")
    return value


def split(body: bytes) -> list[bytes]:
    """Return the vectors of a body, each behind its length."""
    vectors = []
    at = 0
    while at < len(body):
        stop = at + 1 + body[at]
        if stop > len(body) or not body[at]:
            raise FrameError("frame")
        vectors.append(body[at + 1 : stop])
        at = stop
    return vectors


def join(vectors: list[bytes], today: int, epoch: int, last: int) -> "tuple[int, bytes]":
    """Return kind and body of a batch up to (epoch, last), in the epoch of today."""
    kind = 8 if epoch != today else 4 if last >> 16 else 2
    number = epoch.to_bytes(4, "big") + (last >> 16).to_bytes(2, "big")
    parts = [bytes([len(vector)]) + vector for vector in vectors]
    return kind, number[8 - kind :] + b"".join(parts)
