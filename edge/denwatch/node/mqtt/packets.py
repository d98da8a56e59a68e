"""The packets of MQTT 3.1.1 and 5 as values, and the bytes of those that a server sends.

`decoder.py` makes the packets that a server receives. What only MQTT 5 has is at its default in a
packet of 3.1.1. Nothing here keeps state.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple

# CONNACK's answers in 3.1.1; `write_connack` translates them for MQTT 5.
ACCEPTED = 0
BAD_PROTOCOL = 1
BAD_CLIENT_ID = 2
UNAVAILABLE = 3
BAD_LOGIN = 4
FORBIDDEN = 5

REFUSED = 0x80  # SUBACK's answer to a subscription

# Reasons of MQTT 5.
WITH_WILL, NO_SUBSCRIPTION = 0x04, 0x11
MALFORMED, PROTOCOL_ERROR, OWN_FAILURE, BAD_VERSION = 0x81, 0x82, 0x83, 0x84
NOT_AUTHORISED, SHUTTING_DOWN, BAD_AUTHENTICATION = 0x87, 0x8B, 0x8C
SILENT_TOO_LONG, TAKEN_OVER, BAD_FILTER, BAD_TOPIC = 0x8D, 0x8E, 0x8F, 0x90
UNKNOWN_ID, TOO_MANY_RECEIVED, BAD_ALIAS, TOO_LARGE = 0x92, 0x93, 0x94, 0x95
QUOTA_EXCEEDED, ADMINISTRATIVE, NOT_SHARED = 0x97, 0x98, 0x9E
_CONNACK_REASONS = {
    BAD_PROTOCOL: BAD_VERSION,
    BAD_CLIENT_ID: 0x85,
    UNAVAILABLE: 0x88,
    BAD_LOGIN: 0x86,
    FORBIDDEN: NOT_AUTHORISED,
}

NO_EXPIRY = -1

_pack_short = Struct(">BBH").pack


class MalformedError(Exception):
    """Bytes that are not MQTT, or break a limit: what, at which byte of the packet, the reason."""

    def __init__(self, what: str, at: int, code: int = MALFORMED) -> None:
        super().__init__(f"byte {at}: {what}")
        self.what = what
        self.at = at
        self.code = code


class Will(NamedTuple):
    """What the server publishes for a client that is lost without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay: int = 0  # seconds
    expiry: int = NO_EXPIRY  # seconds
    properties: bytes = b""  # that receivers get


class ClientTerms(NamedTuple):
    """What a client of MQTT 5 asked of us in CONNECT."""

    session_expiry: int = 0  # seconds; 2^32 - 1: never
    window: int = 65_535  # messages that it receives before it acknowledges one
    packet_bytes: int = 0  # of the longest packet that it accepts; 0: of any length
    aliases: int = 0
    wants_reasons: bool = True
    wants_response: bool = False
    has_authentication: bool = False  # it begins an enhanced authentication


class ConnectPacket(NamedTuple):
    """`level` 4 is MQTT 3.1.1, 5 is MQTT 5; of another level nothing else was read."""

    level: int
    client: str
    is_clean: bool
    keep_alive: int  # seconds
    will: Will | None
    user: str
    password: bytes | None
    terms: ClientTerms | None = None  # None: not MQTT 5


class PublishPacket(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool
    is_duplicate: bool
    id: int
    expiry: int = NO_EXPIRY  # seconds
    properties: bytes = b""  # that receivers get
    response: str = ""  # the topic for an answer
    correlation: bytes = b""


class PubackPacket(NamedTuple):
    id: int
    code: int = 0


class PubrecPacket(NamedTuple):
    id: int
    code: int = 0


class PubrelPacket(NamedTuple):
    id: int
    code: int = 0


class PubcompPacket(NamedTuple):
    id: int
    code: int = 0


class SubscribePacket(NamedTuple):
    """Filters with their options (topics.py), and the number that their messages are to carry."""

    id: int
    filters: list[tuple[str, int]]
    number: int = 0


class UnsubscribePacket(NamedTuple):
    id: int
    filters: list[str]


class PingreqPacket(NamedTuple):
    pass


class DisconnectPacket(NamedTuple):
    code: int = 0
    session_expiry: int = NO_EXPIRY  # seconds; NO_EXPIRY: as it was


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
SUBACK = 0x90


def write_connack(code: int, is_present: bool = False, properties: bytes | None = None) -> bytes:
    """Return CONNACK; `is_present`: the session existed before. MQTT 5 has properties."""
    if properties is None:
        return bytes((0x20, 2, is_present, code))
    head = write_head(0x20, 2 + len(properties))
    return head + bytes((is_present, _CONNACK_REASONS.get(code, code))) + properties


def write_answer(kind: int, number: int) -> bytes:
    """Return PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK: a packet of nothing but an id."""
    return _pack_short(kind, 2, number)


def write_reason(kind: int, number: int, code: int, properties: bytes) -> bytes:
    """Return MQTT 5's PUBACK, PUBREC, PUBREL or PUBCOMP with a reason."""
    rest = number.to_bytes(2, "big") + bytes((code,)) + properties
    return write_head(kind, len(rest)) + rest


def write_codes(kind: int, number: int, codes: list[int], properties: bytes = b"") -> bytes:
    """Return SUBACK, or MQTT 5's UNSUBACK, with the answer to every filter."""
    rest = number.to_bytes(2, "big") + properties + bytes(codes)
    return write_head(kind, len(rest)) + rest


def write_disconnect(code: int, properties: bytes) -> bytes:
    """Return MQTT 5's DISCONNECT, by which a server says why it closes a link."""
    return write_head(0xE0, 1 + len(properties)) + bytes((code,)) + properties


def write_variable(number: int) -> bytes:
    """Return a number in as few bytes as it needs, at most four."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def write_head(first: int, size: int) -> bytes:
    """Return a fixed header: the first byte, and the size of the rest of the packet."""
    if size < 128:
        return bytes((first, size))
    return bytes((first,)) + write_variable(size)


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


# Messages on their way ----------------------------------------------------------------------


class SharedMessage:
    """A message, shared by all who receive it."""

    __slots__ = (
        "_first",
        "_start",
        "expires",
        "holders",
        "payload",
        "properties",
        "qos",
        "retain",
        "token",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        token: int = 0,
        expires: int = 0,
        properties: bytes = b"",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.token = token  # 0: the node did not ask, or somebody has acknowledged it
        self.expires = expires  # when nobody is to get it any more; 0: never
        self.properties = properties  # of MQTT 5, as its publisher wrote them
        self.retain = False  # it was published to be retained
        self.holders = 0  # sessions that have it and whose acknowledgement counts
        self._first = 0  # the first byte of `_start`
        self._start = b""  # of the packet, up to the topic: the same for most receivers

    @property
    def size(self) -> int:
        """What it counts for in a queue: about its memory."""
        return len(self.payload) + len(self.topic) + len(self.properties) + 256

    def write(self, first: int, number: int) -> bytes:
        """Return PUBLISH with this first byte and, unless it is of QoS 0, this packet id."""
        if first != self._first:
            self._start = write_publish_start(first, self.topic.encode(), len(self.payload))
            self._first = first
        if number:
            return b"".join((self._start, number.to_bytes(2, "big"), self.payload))
        return self._start + self.payload

    def write_v5(self, first: int, number: int, topic: bytes, own: bytes) -> bytes:
        """Return MQTT 5's PUBLISH; `own` are properties that only this receiver gets."""
        size = len(own) + len(self.properties)
        parts = (
            len(topic).to_bytes(2, "big"),
            topic,
            number.to_bytes(2, "big") if number else b"",
            write_variable(size),
            own,
            self.properties,
            self.payload,
        )
        return write_head(first, sum(map(len, parts))) + b"".join(parts)


class OutgoingMessage:
    """One session's copy of a message."""

    __slots__ = (
        "acknowledges",
        "group",
        "id",
        "is_directed",
        "is_released",
        "is_repeated",
        "message",
        "number",
        "own",
        "qos",
        "retain",
    )

    def __init__(
        self, message: SharedMessage, qos: int, retain: bool, is_directed: bool, acknowledges: bool
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.is_directed = is_directed
        self.acknowledges = acknowledges  # its acknowledgement is the shared message's
        self.number = 0  # in the stored queue; 0: it is not stored
        self.id = 0  # the packet id, once it was sent
        self.is_released = False  # QoS 2: PUBREC has arrived
        self.is_repeated = False  # it may have been sent before
        self.own = b""  # properties of MQTT 5 that only this receiver gets
        self.group = ""  # the shared subscription through which it came, as its client wrote it


class MqttSession:
    """The session of one client id of one user. Plain data; `Sessions` decides what goes in."""

    __slots__ = (
        "aliases",
        "away_since",
        "bytes",
        "client",
        "expiry_ms",
        "full_since",
        "in_flight",
        "inbound",
        "is_blocked",
        "is_persistent",
        "key",
        "last_id",
        "link",
        "queue",
        "resent",
        "subscriptions",
        "terms",
        "user",
        "window",
    )

    def __init__(self, user: str, client: str, is_persistent: bool) -> None:
        self.user = user
        self.client = client
        self.is_persistent = is_persistent  # it is in the store
        self.expiry_ms: int | None = None  # it stays so long without its client; None: 3.1.1
        self.terms: ClientTerms | None = None  # of its client, if that speaks MQTT 5
        self.window = 0  # messages in flight that the client and we allow
        self.aliases: dict[str, int] = {}  # topics that the client knows by a number
        self.key = f"{user}\0{client}".encode()  # in the store (records.py)
        self.link = 0  # 0: away
        self.is_blocked = False  # the client does not read
        self.away_since = 0
        self.subscriptions: dict[str, int] = {}  # grants (topics.py)
        self.in_flight: dict[int, OutgoingMessage] = {}  # in the order of sending
        # Those in flight that a client with a smaller window than before has not got again yet.
        self.resent: deque[OutgoingMessage] = deque()
        self.queue: deque[OutgoingMessage] = deque()
        self.bytes = 0  # of what is in flight and queued
        self.full_since = -1  # since when somebody waits for room in it; -1: it keeps up
        self.inbound: dict[int, None] = {}  # ids of QoS 2 messages that are not released
        self.last_id = 0

    def allocate_id(self) -> int:
        """Return the next packet id that is not in flight: 1 to 65,535, then from the start."""
        in_flight = self.in_flight
        number = self.last_id
        while True:
            number = number % 65_535 + 1
            if number not in in_flight:
                self.last_id = number
                return number
