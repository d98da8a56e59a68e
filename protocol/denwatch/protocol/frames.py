"""Authenticated frames on the device link: 19 bytes around a body, 11 before and 8 after.

The tag also covers what is not sent, because both ends know it: the direction and the two names.
So a frame cannot be turned around, handed to another device, or played back under another epoch.
To refuse a repeated (epoch, sequence) is the receiver's part: this file keeps nothing.
"""

from . import cbor
from .errors import Cursor, ProtocolError
from .mac import TAG, Key, equal
from .vectors import Record, check_range

OVERHEAD = 11 + TAG
MAX_LENGTH = 4096
MIN_SECRET = 16

UP = 0  # from a device to its node
DOWN = 1

# What a body holds.
SUBSCRIPTIONS = 1  # subscription vectors, each behind its length
NOTIFICATIONS = 2  # notification vectors, each behind its length
MESSAGE = 3  # one control message
_KINDS = (SUBSCRIPTIONS, NOTIFICATIONS, MESSAGE)

_VERSION = 0x40


class Link(Record):
    """One key between a device and a node, and the names that its tags cover."""

    FIELDS = ("device", "node", "key_id")

    def __init__(self, device: str, node: str, key_id: int, secret: bytes) -> None:
        self.device = device
        self.node = node
        self.key_id = key_id
        check_range("key id", key_id, 0, 65535)
        if len(secret) < MIN_SECRET or len(set(secret)) < MIN_SECRET // 2:
            raise ProtocolError(f"a key has at least {MIN_SECRET} bytes, and they differ")
        self._key = Key(secret)
        self._starts = [self._begin(direction) for direction in (UP, DOWN)]

    def _begin(self, direction: int) -> bytes:
        """Return how what the tag covers begins: an array of six, of which two are the frame's."""
        covered = cbor.encode(["denwatch", direction, self.device, self.node, b"", b""])
        return covered[:-2]

    def tag(self, direction: int, head: bytes, body: bytes) -> bytes:
        """Return the tag of one frame."""
        return self._key.tag(
            self._starts[direction] + _measure(head) + head + _measure(body) + body
        )


class Frame(Record):
    """One frame that was authenticated."""

    FIELDS = ("kind", "epoch", "sequence", "body")

    def __init__(self, kind: int, epoch: int, sequence: int, body: bytes) -> None:
        self.kind = kind
        self.epoch = epoch
        self.sequence = sequence
        self.body = body


def _measure(data: bytes) -> bytes:
    """Return what stands before bytes in CBOR; a frame has fewer than 65,536."""
    size = len(data)
    if size < 24:
        return bytes([0x40 + size])
    return bytes([0x58, size]) if size < 256 else bytes([0x59, size >> 8, size & 255])


def seal(link: Link, direction: int, frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    if frame.kind not in _KINDS:
        raise ProtocolError(f"no frame is of kind {frame.kind}")
    if len(frame.body) > MAX_LENGTH - OVERHEAD:
        raise ProtocolError(f"a body of {len(frame.body)} bytes is too long")
    head = bytearray([_VERSION | frame.kind, link.key_id >> 8, link.key_id & 255])
    for number in (frame.epoch, frame.sequence):
        check_range("epoch or sequence", number, 0, 0xFFFFFFFF)
        for shift in (24, 16, 8, 0):
            head.append(number >> shift & 255)
    return bytes(head) + frame.body + link.tag(direction, bytes(head), frame.body)


def read_key_id(frame: bytes) -> int:
    """Return the key id of a frame, to find its link."""
    c = Cursor(frame, MAX_LENGTH)
    c.byte("kind")
    return c.pair("key id")


def open_frame(link: Link, direction: int, frame: bytes) -> Frame:
    """Return the frame if its tag is right; ProtocolError otherwise."""
    c = Cursor(frame, MAX_LENGTH)
    head = c.byte("kind")
    if head & 0xC0 != _VERSION or head & 0x3F not in _KINDS:
        raise c.error("no kind of frame of version 1")
    if c.pair("key id") != link.key_id:
        raise c.error("another key's frame")
    epoch = c.pair("epoch") * 65536 + c.pair("epoch")
    sequence = c.pair("sequence") * 65536 + c.pair("sequence")
    body = c.take(max(0, len(frame) - OVERHEAD), "body")
    tag = c.take(TAG, "tag")
    if not equal(tag, link.tag(direction, bytes(frame[: OVERHEAD - TAG]), body)):
        raise ProtocolError("the tag is wrong", len(frame) - TAG)
    return Frame(head & 0x3F, epoch, sequence, body)


def join_vectors(vectors: list[bytes]) -> bytes:
    """Return the body that carries several vectors."""
    body = b""
    for vector in vectors:
        check_range("length of a vector", len(vector), 1, 255)
        body += bytes([len(vector)]) + vector
    return body


def split_vectors(body: bytes) -> list[bytes]:
    """Return the vectors of a body."""
    c = Cursor(body, MAX_LENGTH)
    vectors = []
    while c.at < len(body):
        vectors.append(c.take(c.positive("length of a vector"), "vector"))
    return vectors
