"""The body of a packet, read piece by piece, and MQTT 5's properties, both ways. Keeps no state.

A property is an id and a value. Those of a PUBLISH that go on to the receivers are validated, and
kept as the bytes that they arrived in (`Properties.forwarded`): nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from denwatch.node.mqtt.packets import (
    BAD_ALIAS,
    BAD_TOPIC,
    PROTOCOL_ERROR,
    MalformedError,
    write_variable,
)

PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE = 1, 2, 3
RESPONSE_TOPIC, CORRELATION, SUBSCRIPTION_ID = 8, 9, 11
SESSION_EXPIRY, ASSIGNED_CLIENT, SERVER_KEEP_ALIVE = 17, 18, 19
AUTH_METHOD, AUTH_DATA, PROBLEM_INFORMATION, WILL_DELAY = 21, 22, 23, 24
RESPONSE_WANTED, RESPONSE_INFORMATION, REASON = 25, 26, 31
RECEIVE_MAXIMUM, ALIAS_MAXIMUM, TOPIC_ALIAS = 33, 34, 35
USER_PROPERTY, PACKET_MAXIMUM = 38, 39

_SIZES = {  # bytes of the numbers; 0: of a variable length
    PAYLOAD_FORMAT: 1,
    MESSAGE_EXPIRY: 4,
    SUBSCRIPTION_ID: 0,
    SESSION_EXPIRY: 4,
    SERVER_KEEP_ALIVE: 2,
    PROBLEM_INFORMATION: 1,
    WILL_DELAY: 4,
    RESPONSE_WANTED: 1,
    RECEIVE_MAXIMUM: 2,
    ALIAS_MAXIMUM: 2,
    TOPIC_ALIAS: 2,
    PACKET_MAXIMUM: 4,
}
_DATA = {CORRELATION, AUTH_DATA}  # bytes; all others that are no numbers are texts
_YES_OR_NO = {PAYLOAD_FORMAT, PROBLEM_INFORMATION, RESPONSE_WANTED}
_NOT_ZERO = {SUBSCRIPTION_ID, RECEIVE_MAXIMUM, PACKET_MAXIMUM, TOPIC_ALIAS}
_FORWARDED = {PAYLOAD_FORMAT, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION, USER_PROPERTY}

# What each packet of a client may have.
OF_WILL = frozenset({*_FORWARDED, MESSAGE_EXPIRY, WILL_DELAY})
OF_PUBLISH = frozenset({*_FORWARDED, MESSAGE_EXPIRY, TOPIC_ALIAS})
OF_SUBSCRIBE = frozenset({SUBSCRIPTION_ID, USER_PROPERTY})
OF_UNSUBSCRIBE = frozenset({USER_PROPERTY})
OF_ANSWER = frozenset({REASON, USER_PROPERTY})
OF_DISCONNECT = frozenset({SESSION_EXPIRY, REASON, USER_PROPERTY})
OF_CONNECT = frozenset(
    {
        SESSION_EXPIRY,
        RECEIVE_MAXIMUM,
        PACKET_MAXIMUM,
        ALIAS_MAXIMUM,
        RESPONSE_WANTED,
        PROBLEM_INFORMATION,
        USER_PROPERTY,
        AUTH_METHOD,
        AUTH_DATA,
    }
)


class Properties(NamedTuple):
    """What a packet had: numbers, texts and data by id, and what goes on to receivers."""

    numbers: dict[int, int]
    fields: dict[int, bytes]
    forwarded: bytes


NO_PROPERTIES = Properties({}, {}, b"")


class PacketBody:
    """The rest of a packet after its fixed header."""

    __slots__ = ("at", "data", "end", "start")

    def __init__(self, data: bytes, start: int, at: int, end: int) -> None:
        self.data = data
        self.start = start
        self.at = at
        self.end = end

    @property
    def place(self) -> int:
        """The offset of the next byte from the start of the packet."""
        return self.at - self.start

    def take_byte(self, what: str) -> int:
        """Return the next byte."""
        if self.at >= self.end:
            raise MalformedError(f"ends before {what}", self.place)
        self.at += 1
        return self.data[self.at - 1]

    def take_number(self, what: str, size: int = 2) -> int:
        """Return a number of so many bytes."""
        number = 0
        for _ in range(size):
            number = number << 8 | self.take_byte(what)
        return number

    def take_variable(self, what: str) -> int:
        """Return a number of one to four bytes."""
        number, at = 0, self.place
        for shift in (0, 7, 14, 21):
            byte = self.take_byte(what)
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise MalformedError(f"{what} has more than four bytes", at)

    def take_id(self) -> int:
        """Return a packet id."""
        at = self.place
        number = self.take_number("the packet id")
        if not number:
            raise MalformedError("a packet id of zero", at)
        return number

    def take_field(self, what: str) -> bytes:
        """Return bytes that come after their length."""
        at = self.place
        stop = self.take_number(what) + self.at
        if stop > self.end:
            raise MalformedError(f"{what} goes beyond the end", at)
        field = self.data[self.at : stop]
        self.at = stop
        return field


def read_text(raw: bytes, at: int) -> str:
    """Return UTF-8 text as MQTT allows it: no surrogates, no U+0000."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError("not UTF-8", at + error.start) from None
    if "\0" in text:
        raise MalformedError("U+0000 in a text", at + raw.index(0))
    return text


def read_properties(body: PacketBody, allowed: frozenset[int]) -> Properties:
    """Return the properties that come next in a packet, those that it may have."""
    size = body.take_variable("the length of the properties")
    if not size:
        return NO_PROPERTIES
    stop = body.at + size
    if stop > body.end:
        raise MalformedError("properties go beyond the end", body.place)
    inner = PacketBody(body.data, body.start, body.at, stop)
    found = Properties({}, {}, b"")
    forwarded: list[bytes] = []
    while inner.at < stop:
        begin, place = inner.at, inner.place
        key = inner.take_byte("a property")
        if key not in allowed:
            raise MalformedError(f"property {key} does not belong here", place, PROTOCOL_ERROR)
        if key in found.numbers or key in found.fields:
            raise MalformedError(f"property {key} comes twice", place, PROTOCOL_ERROR)
        _read_property(inner, key, found)
        if key in _FORWARDED:
            forwarded.append(body.data[begin : inner.at])
    body.at = stop
    return found._replace(forwarded=b"".join(forwarded))


def _read_property(body: PacketBody, key: int, found: Properties) -> None:
    what, at = f"property {key}", body.place
    size = _SIZES.get(key)
    if size is None:
        raw = body.take_field(what)
        if key not in _DATA:
            text = read_text(raw, at + 2)
            if key == RESPONSE_TOPIC and (not text or "+" in text or "#" in text):
                raise MalformedError("a response topic that is none", at, BAD_TOPIC)
        if key == USER_PROPERTY:  # a name and a value, any number of them
            at = body.place
            read_text(body.take_field(what), at + 2)
        else:
            found.fields[key] = raw
        return
    number = body.take_number(what, size) if size else body.take_variable(what)
    if (key in _YES_OR_NO and number > 1) or (key in _NOT_ZERO and not number):
        code = BAD_ALIAS if key == TOPIC_ALIAS else PROTOCOL_ERROR
        raise MalformedError(f"property {key} is {number}", at, code)
    found.numbers[key] = number


def write_properties(properties: Iterable[tuple[int, int | str]]) -> bytes:
    """Return properties with their length before them; empty texts are left out."""
    parts: list[bytes] = []
    for key, value in properties:
        if isinstance(value, int):
            parts.append(write_number(key, value))
        elif value:
            raw = value.encode()
            parts.append(bytes((key,)) + len(raw).to_bytes(2, "big") + raw)
    joined = b"".join(parts)
    return write_variable(len(joined)) + joined


def write_number(key: int, value: int) -> bytes:
    """Return a property that is a number."""
    size = _SIZES[key]
    return bytes((key,)) + (value.to_bytes(size, "big") if size else write_variable(value))


def write_correlation(data: bytes) -> bytes:
    """Return the property that a response has of its request."""
    return bytes((CORRELATION,)) + len(data).to_bytes(2, "big") + data if data else b""
