"""The packets of MQTT 3.1.1 as values, and the bytes of those that a server sends.

`decoder.py` makes the packets that a server receives. Nothing here keeps state.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

# CONNACK's answers.
ACCEPTED = 0
BAD_PROTOCOL = 1
BAD_CLIENT_ID = 2
UNAVAILABLE = 3
BAD_LOGIN = 4
FORBIDDEN = 5

REFUSED = 0x80  # SUBACK's answer to a subscription

_pack_short = Struct(">BBH").pack


class MalformedError(Exception):
    """Bytes that are not MQTT 3.1.1, or break a limit: what, and at which byte of the packet."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"byte {at}: {what}")
        self.what = what
        self.at = at


class Will(NamedTuple):
    """What the server publishes for a client that is lost without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class ConnectPacket(NamedTuple):
    """`level` 4 is MQTT 3.1.1; of another level nothing else was read."""

    level: int
    client: str
    is_clean: bool
    keep_alive: int  # seconds
    will: Will | None
    user: str
    password: bytes | None


class PublishPacket(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool
    is_duplicate: bool
    id: int


class PubackPacket(NamedTuple):
    id: int


class PubrecPacket(NamedTuple):
    id: int


class PubrelPacket(NamedTuple):
    id: int


class PubcompPacket(NamedTuple):
    id: int


class SubscribePacket(NamedTuple):
    id: int
    filters: list[tuple[str, int]]


class UnsubscribePacket(NamedTuple):
    id: int
    filters: list[str]


class PingreqPacket(NamedTuple):
    pass


class DisconnectPacket(NamedTuple):
    pass


Packet = (
    ConnectPacket
    | PublishPacket
    | PubackPacket
    | PubrecPacket
    | PubrelPacket
    | PubcompPacket
    | SubscribePacket
    | UnsubscribePacket
    | PingreqPacket
    | DisconnectPacket
)

PINGRESP = b"\xd0\x00"
# The first bytes of packets that consist of an id.
PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK = 0x40, 0x50, 0x62, 0x70, 0xB0


def write_connack(code: int, is_present: bool = False) -> bytes:
    """Return CONNACK; `is_present`: the session existed before."""
    return bytes((0x20, 2, is_present, code))


def write_answer(kind: int, number: int) -> bytes:
    """Return PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK: a packet of nothing but an id."""
    return _pack_short(kind, 2, number)


def write_suback(number: int, codes: list[int]) -> bytes:
    """Return SUBACK with the granted QoS, or REFUSED, of every filter."""
    return write_head(0x90, 2 + len(codes)) + number.to_bytes(2, "big") + bytes(codes)


def write_head(first: int, size: int) -> bytes:
    """Return a fixed header: the first byte, and the size of the rest of the packet."""
    if size < 128:
        return bytes((first, size))
    head = bytearray((first,))
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head)


def write_publish_start(first: int, topic: bytes, size: int) -> bytes:
    """Return PUBLISH up to its topic; a packet id, if any, and a payload of `size` follow."""
    length = len(topic)
    rest = 2 + length + size
    if first & 6:
        rest += 2
    if rest < 128:
        return _pack_short(first, rest, length) + topic
    return write_head(first, rest) + length.to_bytes(2, "big") + topic


def write_publish(
    topic: str,
    payload: bytes,
    qos: int = 0,
    number: int = 0,
    retain: bool = False,
    is_duplicate: bool = False,
) -> bytes:
    """Return PUBLISH; `number` is its packet id with QoS 1 and 2."""
    first = 0x30 | is_duplicate << 3 | qos << 1 | retain
    start = write_publish_start(first, topic.encode(), len(payload))
    if qos:
        return b"".join((start, number.to_bytes(2, "big"), payload))
    return start + payload
