"""Frames and control messages of `protocol`, in the little that a device needs of them.

`protocol.frames`, `messages` and `cbor` together are 12 KB of code; this is 2 KB. The tests hold
every byte against them. A frame that is refused is a RefusedError with the counter that it belongs
to. What a CBOR decoder must check for strangers (one encoding only) is left out: a tag has been
checked before anything is decoded, and every length is checked all the same.
"""

from protocol.mac import Key as _Mac
from protocol.mac import equal

SUBSCRIPTIONS = 1
NOTIFICATIONS = 2
MESSAGE = 3
ACKNOWLEDGE = 3  # types of messages
REMOVE = 4
_HEAD = 11
_TAG = 8
_DEPTH = 6


class RefusedError(ValueError):
    """A frame that changes nothing: its counter, and why."""

    def __init__(self, counter: str, why: str) -> None:
        super().__init__(why)
        self.counter = counter


class Key:
    """One key between a device and a node."""

    def __init__(self, device: str, node: str, number: int, secret: bytes) -> None:
        if len(secret) < 16 or len(set(secret)) < 8:
            raise ValueError(node + ": a key has at least 16 bytes, and they differ")
        self.node = node
        self._id = bytes([number >> 8, number & 255])
        self._names = pack(device) + pack(node)
        self._mac = _Mac(secret)

    def tag(self, direction: int, head: bytes, body: bytes) -> bytes:
        """Return the tag of a frame."""
        start = b"\x86\x68denwatch" + bytes([direction]) + self._names
        return self._mac.tag(start + pack(head) + pack(body))

    def seal(self, kind: int, epoch: int, sequence: int, body: bytes) -> bytes:
        """Return a frame to the node."""
        head = bytes([0x40 | kind]) + self._id + _word(epoch) + _word(sequence)
        return head + body + self.tag(0, head, body)

    def open(self, frame: bytes) -> "tuple[int, int, int, bytes]":
        """Return kind, epoch, sequence and body of a frame from the node."""
        stop = len(frame) - _TAG
        if frame and frame[0] & 0xC0 != 0x40:
            raise RefusedError("refused_version", "another version")
        if stop < _HEAD or not 1 <= frame[0] & 63 <= 3:
            raise RefusedError("refused_frame", "no frame")
        if frame[1:3] != self._id:
            raise RefusedError("refused_key", "another key")
        body = frame[_HEAD:stop]
        if not equal(frame[stop:], self.tag(1, frame[:_HEAD], body)):
            raise RefusedError("refused_tag", "the tag is wrong")
        return frame[0] & 63, _number(frame[3:7]), _number(frame[7:11]), body


def _word(value: int) -> bytes:
    return bytes([value >> 24 & 255, value >> 16 & 255, value >> 8 & 255, value & 255])


def _number(data: bytes) -> int:
    value = 0
    for byte in data:
        value = value << 8 | byte
    return value


def _head(major: int, value: int) -> bytes:
    """Return CBOR's head: a major type and its argument, as short as can be."""
    if value < 24:
        return bytes([major | value])
    if value < 256:
        return bytes([major | 24, value])
    if value < 65536:
        return bytes([major | 25, value >> 8, value & 255])
    return bytes([major | 26]) + _word(value)


def pack(value: object) -> bytes:
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
    data = _head(0x80, len(value))  # type: ignore[arg-type]
    for item in value:  # type: ignore[attr-defined]
        data += pack(item)
    return data


def unpack(data: bytes) -> object:
    """Return what a message holds; text comes as bytes."""
    value, stop = _take(data, 0, _DEPTH)
    if stop != len(data):
        raise RefusedError("refused_message", "bytes that follow the end")
    return value


def _take(data: bytes, at: int, depth: int) -> "tuple[object, int]":
    size = 0
    if at < len(data):
        short = data[at] & 31
        size = 0 if short < 24 else 1 << (short - 24)
    if at >= len(data) or size > 4 or at + size >= len(data) or not depth:
        raise RefusedError("refused_message", "no message")
    major = data[at] & 0xE0
    value = _number(data[at + 1 : at + 1 + size]) if size else short
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
            if not isinstance(key, int):
                raise RefusedError("refused_message", "no number for a key")
            entries[key], at = _take(data, at, depth - 1)
        return entries, at
    raise RefusedError("refused_message", "no message")


def split(body: bytes) -> list[bytes]:
    """Return the vectors of a body, each behind its length."""
    vectors = []
    at = 0
    while at < len(body):
        stop = at + 1 + body[at]
        if stop > len(body) or not body[at]:
            raise RefusedError("refused_frame", "no vectors")
        vectors.append(body[at + 1 : stop])
        at = stop
    return vectors


def join(vectors: list[bytes]) -> bytes:
    """Return the body that carries several vectors."""
    return b"".join([bytes([len(vector)]) + vector for vector in vectors])
