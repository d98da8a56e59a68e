"""Items: what nodes share. Each has a dot, a kind, an expiry, a body and its origin's signature.

The bodies are CBOR arrays, deterministic, in the order of the fields below. Only this file knows
how items and bodies look as bytes, on the disk and between nodes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import cbor2
from denwatch.protocol.errors import ProtocolError

SUBSCRIPTION = 1
NOTIFICATION = 2
DELIVERED = 3  # receipts: a subscriber has notifications
VOCABULARY = 4
REVOCATION = 5
KINDS = {
    SUBSCRIPTION: "subscription",
    NOTIFICATION: "notification",
    DELIVERED: "delivered",
    VOCABULARY: "vocabulary",
    REVOCATION: "revocation",
}
MAX_BODY = 65536
NEVER = 0


class Dot(NamedTuple):
    """Where an item was made, in which run of that node, and as which of its items there."""

    origin: str
    epoch: int
    sequence: int

    @property
    def run(self) -> tuple[str, int]:
        """Origin and epoch: what the sequence counts in."""
        return self.origin, self.epoch

    @property
    def key(self) -> bytes:
        """The dot as bytes that sort by origin, epoch, sequence."""
        return _begin_key(self.origin, self.epoch) + self.sequence.to_bytes(8, "big")

    @property
    def id(self) -> int:
        """The 64-bit number by which people and logs call the item."""
        return int.from_bytes(hashlib.blake2b(self.key, digest_size=8).digest(), "big")


@lru_cache(maxsize=1024)
def _begin_key(origin: str, epoch: int) -> bytes:
    """Return how all keys of a run begin."""
    name = origin.encode()
    return bytes([len(name)]) + name + epoch.to_bytes(4, "big")


def read_dot(key: bytes) -> Dot:
    """Return the dot of `Dot.key`."""
    end = 1 + key[0]
    return Dot(
        key[1:end].decode(),
        int.from_bytes(key[end : end + 4], "big"),
        int.from_bytes(key[end + 4 :], "big"),
    )


@dataclass(frozen=True)
class Item:
    """One thing that nodes share. `expires` is in ms, NEVER for no end."""

    dot: Dot
    kind: int
    expires: int
    body: bytes = field(repr=False)
    signature: bytes = field(default=b"", repr=False)
    said: object = field(default=None, repr=False, compare=False)  # the body, if it is at hand

    @cached_property
    def id(self) -> int:
        """The global number."""
        return self.dot.id

    @property
    def signed(self) -> bytes:
        """What the origin's signature covers."""
        return cbor2.dumps(["denwatch item", *self.dot, self.kind, self.expires, self.body])

    def encode(self) -> bytes:
        """Return the item as bytes, without its dot, which is the key it is stored under."""
        return cbor2.dumps([self.kind, self.expires, self.body, self.signature])


def decode_item(key: bytes, value: bytes) -> Item:
    """Return an item that was stored."""
    kind, expires, body, signature = cbor2.loads(value)
    return Item(read_dot(key), kind, expires, body, signature)


def read_expires(value: bytes) -> int:
    """Return when a stored item expires; a start with a million of them reads no more than that."""
    if value[0] == 0x84 and value[1] < 24 and value[2] == 0x1B:  # an array, its kind, eight bytes
        return int.from_bytes(value[3:11], "big")
    return int(cbor2.loads(value)[1])


# Bodies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscriptionBody:
    """What a subscriber asked for, and who that is; the signature covers owner and role."""

    owner: str
    role: str
    words: str  # as it was written
    created: int  # ms
    language: int  # of the matcher: fuzzy or content
    vocabulary: bytes  # 8 bytes of its hash
    vector: bytes  # a subscription vector with handle 0; CBOR for the content language
    options: dict[str, Any]  # name, score, top, prefer, format…


@dataclass(frozen=True)
class NotificationBody:
    """One reading that somebody asked for."""

    device: str
    device_epoch: int
    device_sequence: int
    at: int  # when it was read, ms
    doubt: int  # by how much `at` may be wrong, ms
    vocabulary: bytes
    vector: bytes  # a notification vector


@dataclass(frozen=True)
class DeliveredBody:
    """A subscriber has these notifications."""

    subscriber: str
    notes: list[list[Any]]  # [origin, epoch, sequence]

    @property
    def dots(self) -> list[Dot]:
        """The notifications' dots."""
        return [Dot(*note) for note in self.notes]


@dataclass(frozen=True)
class VocabularyBody:
    """A vocabulary's document, by its hash."""

    hash: bytes
    document: str  # JSON


_TYPES: dict[type, tuple[tuple[str, type], ...]] = {
    kind: tuple((name, get_origin(hint) or hint) for name, hint in get_type_hints(kind).items())
    for kind in (SubscriptionBody, NotificationBody, DeliveredBody, VocabularyBody)
}
_READERS = {kind: attrgetter(*(name for name, _ in types)) for kind, types in _TYPES.items()}
_Body = TypeVar("_Body", SubscriptionBody, NotificationBody, DeliveredBody, VocabularyBody)


def encode_body(
    body: SubscriptionBody | NotificationBody | DeliveredBody | VocabularyBody,
) -> bytes:
    """Return a body as bytes."""
    # Without maps and floats there is only one encoding, and finding it is cheaper.
    has_maps = type(body) is SubscriptionBody
    return cbor2.dumps(list(_READERS[type(body)](body)), canonical=has_maps)


def decode_body(kind: type[_Body], data: bytes) -> _Body:
    """Return a body of a kind; ProtocolError if the bytes are none."""
    try:
        values = cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError) as error:
        raise ProtocolError(f"a body that is no CBOR: {error}") from None
    types = _TYPES[kind]
    if not isinstance(values, list) or len(values) != len(types):
        raise ProtocolError(f"{kind.__name__} has {len(types)} fields")
    for (name, expected), value in zip(types, values, strict=True):
        if type(value) is not expected:
            raise ProtocolError(f"{kind.__name__}: {name} is not {expected.__name__}")
    if kind is DeliveredBody:
        _check_notes(values[1])
    return kind(*values)


def _check_notes(notes: list[Any]) -> None:
    for note in notes:
        if not (
            isinstance(note, list)
            and len(note) == 3
            and isinstance(note[0], str)
            and all(type(number) is int and number >= 0 for number in note[1:])
        ):
            raise ProtocolError("DeliveredBody: notes are [origin, epoch, sequence]")
