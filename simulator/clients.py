"""The client's side of MQTT 3.1.1 and 5, for those who are with a whole node: bytes and packets.

Shares no code with the server's packets: what one side writes the other side must understand. A
client has one link at a time; what it does with a packet is up to the node's host, which carries
the bytes (`whole_node.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 9, 11, 13, 14
_NUMBERS = {1: 1, 2: 4, 35: 2}  # properties of PUBLISH that are numbers, and their bytes
_EXPIRY = 86_400  # s that a session of MQTT 5 stays


class Received(NamedTuple):
    """A packet of the server."""

    kind: int
    number: int = 0  # packet id
    topic: str = ""
    payload: bytes = b""
    codes: bytes = b""


def _field(data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return len(raw).to_bytes(2, "big") + raw


def write_packet(first: int, body: bytes = b"") -> bytes:
    """Return a packet."""
    size, head = len(body), bytearray([first])
    while True:
        size, low = divmod(size, 128)
        head.append(low | (128 if size else 0))
        if not size:
            return bytes(head) + body


def _take_variable(data: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def _take_alias(data: bytes, at: int) -> tuple[int, int]:
    """Return the topic alias among the properties of PUBLISH, 0 for none, and where they end."""
    size, at = _take_variable(data, at)
    end, alias = at + size, 0
    while at < end:
        key, at = data[at], at + 1
        if key == 35:
            alias = int.from_bytes(data[at : at + 2], "big")
        if key == 11:
            _, at = _take_variable(data, at)
        elif key in _NUMBERS:
            at += _NUMBERS[key]
        else:
            for _ in range(2 if key == 38 else 1):
                at += 2 + int.from_bytes(data[at : at + 2], "big")
    assert at == end, "properties end where they say"
    return alias, end


def read_packets(data: bytes, aliases: dict[int, str] | None = None) -> Iterator[Received]:
    """Yield the packets of bytes that a server sent at once: whole ones, as it sends them.

    `aliases` are the topics that a client of MQTT 5 knows by a number; None: it speaks 3.1.1.
    """
    at = 0
    while at < len(data):
        first = data[at]
        size, at = _take_variable(data, at + 1)
        body, at = data[at : at + size], at + size
        kind = first >> 4
        if kind == PUBLISH:
            end = 2 + int.from_bytes(body[:2], "big")
            topic, number = body[2:end].decode(), 0
            if first & 6:
                number = int.from_bytes(body[end : end + 2], "big")
                end += 2
            if aliases is not None:
                alias, end = _take_alias(body, end)
                if alias:
                    topic = aliases.setdefault(alias, topic)
            yield Received(kind, number, topic, body[end:])
        elif kind == CONNACK:
            yield Received(kind, codes=body[1:2])
        elif kind == PINGRESP:
            yield Received(kind)
        else:
            yield Received(kind, int.from_bytes(body[:2], "big"), codes=body[2:])


class Client:
    """One client of a node's server; `qos` is what it publishes with."""

    def __init__(
        self, user: str, password: str, *, is_persistent: bool = False, qos: int = 1
    ) -> None:
        self.user = user
        self.password = password
        self.is_persistent = is_persistent
        self.qos = qos
        self.level = 4  # of the protocol: 4 is 3.1.1
        self.aliases: dict[int, str] | None = None  # of MQTT 5
        self.will: tuple[str, bytes] | None = None
        self.will_delay = 0  # s, of MQTT 5
        self.app = "app"
        self.is_joining = False  # it says two acknowledgements at once, where it can
        self.unsaid = b""  # the first of them
        self.filters: list[str] = []
        self.link = 0  # 0: it has none
        self.is_wanted = True  # it comes back when its link breaks
        self.is_accepted = False
        self.is_paused = False
        self.held: list[bytes] = []  # until the server reads again
        self._number = 0

    def _next(self) -> int:
        self._number = self._number % 65_535 + 1
        return self._number

    def write_connect(self, keep_alive: int = 60) -> bytes:
        """Return CONNECT."""
        flags = 0xC0 | (0 if self.is_persistent else 2)
        is_new = self.level == 5
        self.aliases = {} if is_new else None
        tail = _field(f"{self.user}-{self.app}")
        if self.will is not None:
            flags |= 4 | 1 << 3
            if is_new:
                tail += b"\x05\x18" + self.will_delay.to_bytes(4, "big")
            tail += _field(self.will[0]) + _field(self.will[1])
        tail += _field(self.user) + _field(self.password)
        terms = b""
        if is_new:  # session expiry, at most 20 messages in flight, 2 topic aliases
            expiry = _EXPIRY if self.is_persistent else 0
            terms = b"\x0b\x11" + expiry.to_bytes(4, "big") + b"\x21\0\x14\x22\0\2"
        head = _field("MQTT") + bytes([self.level, flags]) + keep_alive.to_bytes(2, "big")
        return write_packet(0x10, head + terms + tail)

    def write_subscribe(self, filters: list[str]) -> bytes:
        """Return SUBSCRIBE with QoS 1."""
        names = b"".join(_field(name) + b"\x01" for name in filters)
        properties = b"\0" if self.level == 5 else b""
        return write_packet(0x82, self._next().to_bytes(2, "big") + properties + names)

    def write_publish(self, topic: str, payload: bytes) -> bytes:
        """Return PUBLISH."""
        number = self._next().to_bytes(2, "big") if self.qos else b""
        # Of MQTT 5 with a property of the user, which is to change nothing.
        properties = b"\x07\x26\0\1k\0\1v" if self.level == 5 else b""
        return write_packet(0x30 | self.qos << 1, _field(topic) + number + properties + payload)

    @staticmethod
    def write_answer(kind: int, number: int) -> bytes:
        """Return PUBACK, PUBREC, PUBREL or PUBCOMP."""
        return write_packet(kind << 4 | (2 if kind == PUBREL else 0), number.to_bytes(2, "big"))

    PING = write_packet(0xC0)
    GOODBYE = write_packet(0xE0)
