"""A client's side of MQTT 5 in plain Python, and a world whose links speak it: for tests.

Shares no code with the server's packets: what one side writes the other side must understand.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from denwatch.node.mqtt.interface import Send

from tests.mqtt import wire
from tests.mqtt.wire import World, field, packet

# Properties: id, and how many bytes a number has; 0: text or data; -1: of a variable length.
NAMES = {
    "format": (1, 1),
    "expiry": (2, 4),
    "content": (3, 0),
    "response": (8, 0),
    "correlation": (9, 0),
    "subscription": (11, -1),
    "session": (17, 4),
    "assigned": (18, 0),
    "server_keep_alive": (19, 2),
    "method": (21, 0),
    "auth_data": (22, 0),
    "problems": (23, 1),
    "delay": (24, 4),
    "wants_response": (25, 1),
    "response_information": (26, 0),
    "reason": (31, 0),
    "receive": (33, 2),
    "aliases": (34, 2),
    "alias": (35, 2),
    "user": (38, 0),
    "largest": (39, 4),
}
IDS = {number: name for name, (number, _) in NAMES.items()}
Value = int | str | bytes | tuple[str, str]
KINDS = {**wire.KINDS, 14: "disconnect", 15: "auth"}


def variable(number: int) -> bytes:
    found = bytearray()
    while True:
        number, low = divmod(number, 128)
        found.append(low | (128 if number else 0))
        if not number:
            return bytes(found)


def prop(name: str, value: Value) -> bytes:
    number, size = NAMES[name]
    if name == "user":
        assert isinstance(value, tuple)
        return bytes([number]) + field(value[0]) + field(value[1])
    if isinstance(value, int):
        return bytes([number]) + (value.to_bytes(size, "big") if size > 0 else variable(value))
    assert isinstance(value, str | bytes)
    return bytes([number]) + field(value)


def props(*pairs: tuple[str, Value]) -> bytes:
    data = b"".join(prop(name, value) for name, value in pairs)
    return variable(len(data)) + data


def connect(
    client: str = "c",
    clean: bool = True,
    *pairs: tuple[str, Value],
    keep_alive: int = 30,
    will: tuple[str, bytes, int, bool] | None = None,
    will_props: tuple[tuple[str, Value], ...] = (),
    user: str | None = None,
    password: str | None = None,
) -> bytes:
    flags = 2 * clean
    tail = field(client)
    if will:
        flags |= 4 | will[2] << 3 | will[3] << 5
        tail += props(*will_props) + field(will[0]) + field(will[1])
    if user is not None:
        flags |= 128
        tail += field(user)
    if password is not None:
        flags |= 64
        tail += field(password)
    head = field("MQTT") + bytes([5, flags]) + keep_alive.to_bytes(2, "big")
    return packet(0x10, head + props(*pairs) + tail)


def publish(
    topic: str,
    payload: bytes = b"",
    qos: int = 0,
    number: int = 0,
    *pairs: tuple[str, Value],
    retain: bool = False,
    duplicate: bool = False,
) -> bytes:
    first = 0x30 | qos << 1 | retain | duplicate << 3
    identity = number.to_bytes(2, "big") if qos else b""
    return packet(first, field(topic) + identity + props(*pairs) + payload)


def subscribe(number: int, *filters: tuple[str, int], subscription: int = 0) -> bytes:
    own = props(("subscription", subscription)) if subscription else props()
    body = b"".join(field(name) + bytes([options]) for name, options in filters)
    return packet(0x82, number.to_bytes(2, "big") + own + body)


def unsubscribe(number: int, *filters: str) -> bytes:
    names = b"".join(field(name) for name in filters)
    return packet(0xA2, number.to_bytes(2, "big") + props() + names)


def answer(first: int, number: int, code: int = 0) -> bytes:
    return packet(first, number.to_bytes(2, "big") + bytes([code]) + props(("reason", "so")))


def disconnect(code: int = 0, *pairs: tuple[str, Value]) -> bytes:
    return packet(0xE0, bytes([code]) + props(*pairs))


class Got5(NamedTuple):
    """A packet from the server; `props` has lists, a property may come more than once."""

    kind: str
    id: int = 0
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    codes: tuple[int, ...] = ()
    is_present: bool = False
    props: Mapping[str, list[Value]] = MappingProxyType({})

    @property
    def code(self) -> int:
        return self.codes[0]

    @property
    def reason(self) -> str:
        found = self.props["reason"][0]
        assert isinstance(found, str)
        return found


class Reading:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        assert len(self.data) >= size, "half a packet"
        found, self.data = self.data[:size], self.data[size:]
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def field(self) -> bytes:
        return self.take(self.number(2))

    def variable(self) -> int:
        number = shift = 0
        while True:
            byte = self.number(1)
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def props(self) -> dict[str, list[Value]]:
        inner = Reading(self.take(self.variable()))
        found: dict[str, list[Value]] = {}
        while inner.data:
            name = IDS[inner.number(1)]
            size = NAMES[name][1]
            value: Value
            if name == "user":
                value = (inner.field().decode(), inner.field().decode())
            elif size:
                value = inner.number(size) if size > 0 else inner.variable()
            else:
                raw = inner.field()
                value = raw if name in ("correlation", "auth_data") else raw.decode()
            found.setdefault(name, []).append(value)
        return found


def parse(data: bytes) -> list[Got5]:
    """Return the server's packets; they must be whole, with nothing behind their end."""
    found = []
    stream = Reading(data)
    while stream.data:
        first = stream.number(1)
        body = Reading(stream.take(stream.variable()))
        kind = KINDS[first >> 4]
        if kind == "connack":
            is_present = bool(body.number(1))
            codes = (body.number(1),)
            got = Got5(kind, codes=codes, is_present=is_present, props=body.props())
        elif kind == "publish":
            topic, qos = body.field().decode(), first >> 1 & 3
            number = body.number(2) if qos else 0
            own = body.props()
            got = Got5(
                kind, number, topic, body.take(len(body.data)), qos, bool(first & 1),
                bool(first & 8), props=own,
            )  # fmt: skip
        elif kind in ("suback", "unsuback"):
            number, own = body.number(2), body.props()
            got = Got5(kind, number, codes=tuple(body.take(len(body.data))), props=own)
        elif kind == "pingresp":
            got = Got5(kind)
        elif kind == "disconnect":
            got = Got5(kind, codes=(body.number(1),), props=body.props())
        else:
            number = body.number(2)
            code = body.number(1) if body.data else 0
            got = Got5(kind, number, codes=(code,), props=body.props() if body.data else {})
        assert not body.data, "bytes after the end"
        found.append(got)
    return found


class World5(World):
    """A world in which the links of `join` and `knock` speak MQTT 5."""

    def __init__(self, *arguments: object, **more: object) -> None:
        self.inbox5: dict[int, list[Got5]] = {}
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def parse(self, output: Send) -> list[wire.Got]:
        if output.link in self.inbox5:
            self.inbox5[output.link] += parse(output.data)
            return []
        return super().parse(output)

    def knock(self) -> int:
        link = self.last_link + 1
        self.inbox5[link] = []
        return self.open()

    def join(
        self, client: str = "c", clean: bool = True, *pairs: tuple[str, Value], **more: object
    ) -> int:
        """Open a link and connect; the CONNACK must be positive and stays in `connack`."""
        link = self.knock()
        self.send(link, connect(client, clean, *pairs, **more))  # type: ignore[arg-type]
        self.connack = self.inbox5[link].pop(0)
        assert self.connack.kind == "connack", self.connack
        assert self.connack.code == 0, self.connack
        return link

    def get(self, link: int) -> list[Got5]:
        """Return what a link of MQTT 5 received since the last time."""
        found, self.inbox5[link] = self.inbox5[link], []
        return found
