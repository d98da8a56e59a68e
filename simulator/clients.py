"""The client's side of MQTT 3.1.1, for those who are with a whole node: bytes out, packets in.

Shares no code with the server's packets: what one side writes the other side must understand. A
client has one link at a time; what it does with a packet is up to the node's host, which carries
the bytes (`whole_node.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP = 9, 11, 13


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


def read_packets(data: bytes) -> Iterator[Received]:
    """Yield the packets of bytes that a server sent at once: whole ones, as it sends them."""
    at = 0
    while at < len(data):
        first, size, shift = data[at], 0, 0
        at += 1
        while True:
            size |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        body, at = data[at : at + size], at + size
        kind = first >> 4
        if kind == PUBLISH:
            end = 2 + int.from_bytes(body[:2], "big")
            topic, number = body[2:end].decode(), 0
            if first & 6:
                number = int.from_bytes(body[end : end + 2], "big")
                end += 2
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
        self.will: tuple[str, bytes] | None = None
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
        tail = _field(f"{self.user}-app")
        if self.will is not None:
            flags |= 4 | 1 << 3
            tail += _field(self.will[0]) + _field(self.will[1])
        tail += _field(self.user) + _field(self.password)
        head = _field("MQTT") + bytes([4, flags]) + keep_alive.to_bytes(2, "big")
        return write_packet(0x10, head + tail)

    def write_subscribe(self, filters: list[str]) -> bytes:
        """Return SUBSCRIBE with QoS 1."""
        names = b"".join(_field(name) + b"\x01" for name in filters)
        return write_packet(0x82, self._next().to_bytes(2, "big") + names)

    def write_publish(self, topic: str, payload: bytes) -> bytes:
        """Return PUBLISH."""
        number = self._next().to_bytes(2, "big") if self.qos else b""
        return write_packet(0x30 | self.qos << 1, _field(topic) + number + payload)

    @staticmethod
    def write_answer(kind: int, number: int) -> bytes:
        """Return PUBACK, PUBREC, PUBREL or PUBCOMP."""
        return write_packet(kind << 4 | (2 if kind == PUBREL else 0), number.to_bytes(2, "big"))

    PING = write_packet(0xC0)
    GOODBYE = write_packet(0xE0)
