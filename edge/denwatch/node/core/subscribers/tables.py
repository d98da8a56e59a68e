"""What serving subscribers keeps on the disk: one space each, and how their rows look.

The only file of this folder that names spaces and encodes rows.

    sub.want    dot of a notification: who wants it, who was offered it, who is done with it
    sub.done    dot of a notification that is not here, subscriber: has it already
    sub.mark    subscriber, dot: has it, which other nodes are not told yet
    sub.ended   id of an expired or replaced subscription: its item, for matches that wait
    sub.late    id of a subscription that held notifications are still to be matched with
    sub.gate    id of a subscription: the state of its top-k
    sub.last    id of a subscription, device: what was sent last
    sub.prefer  subscriber: priorities that were asked for by themselves
    sub.mute    subscriber: wants nothing now
    sub.place   subscriber: the node where they were last known to be
    sub.reply   subscriber, number: a reply that nobody listened for
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from denwatch.node.core.interface import Reader
from denwatch.node.core.transaction import Transaction

Hit = tuple[int, int, int, int]  # subscription's id, possible, certain, attribute
Verdict = tuple[int, float, int, int]  # minus the winnow level, value, counts until, attempts


class Want(msgspec.Struct, array_like=True):
    """What is known about the subscribers of one notification that is held."""

    at: int  # in its origin's timeline, as `expires`
    doubt: int
    expires: int
    latest: int  # in our timeline, when it was read at the latest
    hits: list[Hit]
    settled: list[str] = []  # subscribers who have it
    offered: dict[str, Verdict] = {}  # subscribers it was sent to, unacknowledged
    refused: list[int] = []  # subscriptions for which it was decided against


class Mark(msgspec.Struct, array_like=True):
    """Somebody has a notification that expires then, in our timeline."""

    expires: int


class Last(msgspec.Struct, array_like=True):
    """What was sent last for one subscription from one device."""

    at: int  # when it was read, in our timeline
    values: dict[int, int]  # by attribute, as 16-bit codes


class GateState(msgspec.Struct, array_like=True):
    """A top-k: its count of matches and its entries (note, level, value, expiry, turn)."""

    turn: int
    entries: list[tuple[int, int, float, float, int]]


class Ended(msgspec.Struct, array_like=True):
    """A subscription that is no longer held, as its item was stored, and when it ended."""

    key: bytes
    value: bytes
    at: int


class Priorities(msgspec.Struct, array_like=True):
    """Pairs of names, better and worse."""

    pairs: list[tuple[str, str]]


_encoder = msgspec.msgpack.Encoder()
_want_decoder = msgspec.msgpack.Decoder(Want)


def encode_row(row: msgspec.Struct) -> bytes:
    """Return a row as bytes."""
    return _encoder.encode(row)


def decode_want(data: bytes) -> Want:
    """Return the row of `sub.want`."""
    return _want_decoder.decode(data)


def join_name(name: str, rest: bytes = b"") -> bytes:
    """Return a key that begins with a name, so that no name is the beginning of another's keys."""
    data = name.encode()
    return len(data).to_bytes(2, "big") + data + rest


def split_name(key: bytes) -> tuple[str, bytes]:
    """Return name and rest of such a key."""
    end = 2 + int.from_bytes(key[:2], "big")
    return key[2:end].decode(), key[end:]


class Table:
    """One space. What is read through a transaction has the transaction's own writes in it."""

    def __init__(self, space: str) -> None:
        self.space = space

    def get(self, reader: Reader, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return reader.get(self.space, key)

    def put(self, transaction: Transaction, key: bytes, value: bytes | None) -> None:
        """Change a key; None deletes it."""
        transaction.write(self.space, key, value)

    def scan(self, reader: Reader, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of keys."""
        return reader.scan(self.space, prefix)


class Tables:
    """All of them."""

    def __init__(self) -> None:
        self.want = Table("sub.want")
        self.done = Table("sub.done")
        self.mark = Table("sub.mark")
        self.ended = Table("sub.ended")
        self.late = Table("sub.late")
        self.gate = Table("sub.gate")
        self.last = Table("sub.last")
        self.prefer = Table("sub.prefer")
        self.mute = Table("sub.mute")
        self.place = Table("sub.place")
        self.reply = Table("sub.reply")
