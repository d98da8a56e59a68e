"""A client's side of MQTT 3.1.1 in plain Python, and a world of one server: for tests.

Shares no code with the server's packets: what one side writes the other side must understand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from denwatch.node.core.events import Acknowledged, Listening, Message, Publish, Write
from denwatch.node.mqtt.interface import Close, Limits, Output, Pace, Rules, Send, ServerRefusal
from denwatch.node.mqtt.server import MqttServer

from simulator.open_server import OpenRules

KINDS = {
    2: "connack",
    3: "publish",
    4: "puback",
    5: "pubrec",
    6: "pubrel",
    7: "pubcomp",
    9: "suback",
    11: "unsuback",
    13: "pingresp",
}


def field(data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return len(raw).to_bytes(2, "big") + raw


def packet(first: int, body: bytes = b"") -> bytes:
    size, head = len(body), bytearray([first])
    while True:
        size, low = divmod(size, 128)
        head.append(low | (128 if size else 0))
        if not size:
            return bytes(head) + body


def connect(
    client: str = "c",
    clean: bool = True,
    keep_alive: int = 0,
    will: tuple[str, bytes, int, bool] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> bytes:
    flags = 2 * clean
    tail = field(client)
    if will:
        flags |= 4 | will[2] << 3 | will[3] << 5
        tail += field(will[0]) + field(will[1])
    if user is not None:
        flags |= 128
        tail += field(user)
    if password is not None:
        flags |= 64
        tail += field(password)
    return packet(0x10, field("MQTT") + bytes([4, flags]) + keep_alive.to_bytes(2, "big") + tail)


def publish(
    topic: str,
    payload: bytes = b"",
    qos: int = 0,
    number: int = 0,
    retain: bool = False,
    duplicate: bool = False,
) -> bytes:
    first = 0x30 | qos << 1 | retain | duplicate << 3
    return packet(first, field(topic) + (number.to_bytes(2, "big") if qos else b"") + payload)


def subscribe(number: int, *filters: tuple[str, int]) -> bytes:
    body = b"".join(field(name) + bytes([qos]) for name, qos in filters)
    return packet(0x82, number.to_bytes(2, "big") + body)


def unsubscribe(number: int, *filters: str) -> bytes:
    return packet(0xA2, number.to_bytes(2, "big") + b"".join(field(name) for name in filters))


def short(first: int, number: int) -> bytes:
    return packet(first, number.to_bytes(2, "big"))


def puback(number: int) -> bytes:
    return short(0x40, number)


def pubrec(number: int) -> bytes:
    return short(0x50, number)


def pubrel(number: int) -> bytes:
    return short(0x62, number)


def pubcomp(number: int) -> bytes:
    return short(0x70, number)


PINGREQ = packet(0xC0)
DISCONNECT = packet(0xE0)


class TokenBucket:
    """A pace for every user: so many messages a second, and a burst of so many at once."""

    def __init__(self, per_second: int, burst: int) -> None:
        if per_second < 1 or burst < 1:
            raise ValueError("a pace below one message")
        self._per_second = per_second
        self._full = burst * 1000  # thousandths of a message
        self._buckets: dict[str, tuple[int, int]] = {}  # user: (level, when)

    def delay(self, user: str, size: int, now: int) -> int:  # noqa: ARG002
        """Take one message from the user's bucket, or return when there will be one."""
        level, when = self._buckets.get(user, (self._full, now))
        level = min(self._full, level + (now - when) * self._per_second)
        if level < 1000:
            self._buckets[user] = (level, now)
            return -((level - 1000) // self._per_second)
        self._buckets[user] = (level - 1000, now)
        return 0


class Got(NamedTuple):
    """A packet from the server."""

    kind: str
    id: int = 0
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    duplicate: bool = False


def parse(data: bytes) -> Iterator[Got]:
    """Yield the server's packets; they must be whole."""
    while data:
        size, shift, at = 0, 0, 1
        while True:
            size |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        body, first = data[at : at + size], data[0]
        assert len(body) == size, "half a packet"
        data = data[at + size :]
        kind = KINDS[first >> 4]
        if kind == "publish":
            stop = 2 + int.from_bytes(body[:2], "big")
            qos = first >> 1 & 3
            number = int.from_bytes(body[stop : stop + 2], "big") if qos else 0
            yield Got(
                kind,
                number,
                body[2:stop].decode(),
                body[stop + 2 * (qos > 0) :],
                qos,
                bool(first & 1),
                bool(first & 8),
            )
        elif kind in ("connack", "pingresp"):
            yield Got(kind, payload=body)
        else:
            assert first & 15 == (2 if kind == "pubrel" else 0)
            yield Got(kind, int.from_bytes(body[:2], "big"), payload=body[2:])


class Store:
    """A dictionary that does what a Reader must."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes]] = {}

    def write(self, change: Write) -> None:
        space = self.spaces.setdefault(change.space, {})
        if change.value is None:
            assert change.key in space, f"deletes what is not there: {change}"
            del space[change.key]
        else:
            space[change.key] = change.value

    def get(self, space: str, key: bytes) -> bytes | None:
        return self.spaces.get(space, {}).get(key)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self.spaces.get(space, {}).items()):
            if key.startswith(prefix):
                yield key, value

    def count(self) -> int:
        return sum(len(space) for space in self.spaces.values())


class World:
    """A server, its store, and everything that came out, by link."""

    def __init__(
        self,
        rules: Rules | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
        store: Store | None = None,
    ) -> None:
        self.rules = rules or OpenRules()
        self.limits = limits or Limits()
        self.pace = pace
        self.store = store or Store()
        self.now = 1_000
        self.last_link = 0
        self.inbox: dict[int, list[Got]] = {}
        self.closed: dict[int, str] = {}
        self.events: list[Output] = []
        self.server = self._start()

    def _start(self) -> MqttServer:
        server = MqttServer(self.rules, self.limits, self.pace)
        server.restore(self.store, self.now)
        return server

    def restart(self) -> None:
        """Kill the node and start it again; the links are gone."""
        self.server = self._start()
        self.inbox.clear()

    def perform(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            if isinstance(output, Write):
                self.store.write(output)
        for output in outputs:
            if isinstance(output, Send):
                assert output.link not in self.closed, "sends on a closed link"
                self.inbox.setdefault(output.link, []).extend(self.parse(output))
            elif isinstance(output, Close):
                self.closed[output.link] = output.reason
            elif not isinstance(output, Write):
                self.events.append(output)
        return outputs

    def parse(self, output: Send) -> list[Got]:
        return list(parse(output.data))

    def open(self) -> int:
        self.last_link += 1
        self.perform(self.server.open(self.last_link, self.now))
        return self.last_link

    def connect(self, client: str = "c", clean: bool = True, **more: object) -> int:
        """Open a link and connect; the CONNACK must be positive and is taken away."""
        link = self.open()
        self.send(link, connect(client, clean, **more))  # type: ignore[arg-type]
        answer = self.inbox[link].pop(0)
        assert answer.kind == "connack", answer
        assert answer.payload[1] == 0, answer
        return link

    def send(self, link: int, *data: bytes) -> None:
        self.perform(self.server.receive(link, b"".join(data), self.now))

    def lose(self, link: int) -> None:
        self.perform(self.server.lost(link, self.now))

    def tick(self, later_ms: int = 0) -> None:
        self.now += later_ms
        self.perform(self.server.tick(self.now))

    def publish(self, topic: str, payload: bytes = b"", qos: int = 1, **more: object) -> None:
        """Publish as the node."""
        message = Publish(topic, payload, qos, **more)  # type: ignore[arg-type]
        self.perform(self.server.publish(message, self.now))

    def take(self, link: int) -> list[Got]:
        """Return what a link received since the last time."""
        return self.inbox.pop(link, [])

    def take_messages(self, link: int) -> list[tuple[str, bytes, int]]:
        """Return topic, payload and QoS of the messages among it."""
        return [(g.topic, g.payload, g.qos) for g in self.take(link) if g.kind == "publish"]

    def take_events(self, *kinds: type) -> list[Output]:
        """Return the events of some kinds, and forget all."""
        found = [event for event in self.events if isinstance(event, kinds)]
        self.events.clear()
        return found

    def take_node_events(self) -> list[Output]:
        return self.take_events(Message, Listening, Acknowledged)

    def take_refusals(self) -> list[ServerRefusal]:
        return [
            event for event in self.take_events(ServerRefusal) if isinstance(event, ServerRefusal)
        ]
