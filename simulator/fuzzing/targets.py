"""What is fuzzed: each target is a real node, or a codec of its, and plays one script.

A target builds its node anew for every script, on the memory model of a store, so that a script is
all there is to replay. After the script time passes, readings arrive and the node is restarted:
what was accepted must not do harm later either. An exception that leaves the node is a finding.

| target | a script is |
|---|---|
| codecs | [codec, bytes]: a vector or a message of the device link; what decodes encodes the same |
| mqtt | [[step, client, bytes], …]: what clients of the server send, and links that come and go |
| websocket | the same within WebSocket, from its first byte on |
| requests | [[subscriber, payload], …] |
| operators | [payload, …]; a list is `["items", rows]` whose items are signed |
| devices | [[what, kind, epoch, sequence, body], …], sealed with a good key |
| peers | [step, …] of a peer with good keys: [kind, flag, body] is a frame, [kind, expires,
sequence, body] an item, and a number lets so many frames of the real exchange pass |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import cbor2
from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    OPERATORS,
    PEERS,
    REPLIES,
    REQUESTS,
    Event,
    Listening,
    Message,
    PeerUp,
    Publish,
    Tick,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    KINDS,
    MAX_BODY,
    NOTIFICATION,
    Dot,
    Item,
    NotificationBody,
    encode_body,
)
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.mqtt.interface import (
    Close,
    Limits,
    LinkBlocked,
    LinkLost,
    LinkOpened,
    LinkReceived,
    Output,
    Send,
)
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.mqtt.websocket import WebSocketStream
from denwatch.node.replication.wire import ITEMS, NAMES, ItemBatch, SentItem, encode_item_batch
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.protocol import cbor, frames, notification, subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.device import seal_as_device
from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys, Ring, Roster
from simulator.open_server import OpenRules

NODE, PEER, DEVICE = "north", "south", "dog-1"
SUBSCRIBERS = ("medic7", "medic8", "helper")
START = 1_800_000_000_000  # ms
_DAY = 86_400_000
_STEPS = 64  # of a script that are played
_FRAMES = 60  # that may pass between two nodes until they have settled
_SMALL = Limits(  # so that a short script reaches them
    packet_bytes=16_384,
    connect_bytes=4_096,
    subscriptions=8,
    window=3,
    queue=6,
    queue_bytes=4_096,
    inbound=4,
    sessions=6,
    user_sessions=3,
    total_queue_bytes=16_384,
    retained=6,
    retained_bytes=4_096,
    wills=2,
    waiting=4,
    waiting_bytes=4_096,
)


class BoundError(AssertionError):
    """A node kept more than its limits allow."""


class Target(ABC):
    """One way into a node."""

    name: str

    @abstractmethod
    def play(self, script: Any) -> None:
        """Play a script; whatever is no script is ignored. What the node raises is raised."""


@cache
def load_words() -> Vocabulary:
    """Return the vocabulary of all targets."""
    return load_shipped("rescue")


@cache
def make_roster() -> Roster:
    """Return who is there: one subscriber's role hides something."""
    roster = Roster()
    roster.roles = {"helper": "helper"}
    roster.hidden = {"helper": ("patient.heart_rate",)}
    return roster


def make_node(name: str) -> HostedNode:
    """Return a node with all its protocols that has just started."""
    settings = HostSettings(follows_plan=True)
    roles = Ring(name, make_roster())
    node = HostedNode(name, HmacKeys(name), load_words(), settings, roles=roles)
    node.start(START)
    return node


def take_readings(node: HostedNode, now: int) -> None:
    """Let readings of two patients arrive, as if devices had sent them."""

    def originate(transaction: Transaction) -> None:
        for number, value in enumerate((0, 255)):
            readings = [Reading(attribute, (value,) * 4) for attribute in (0, 1)]
            vector = notification.encode(NotificationVector(1, readings))
            body = NotificationBody(
                DEVICE, 9, number + 1, node.time, 0, shorten_hash(load_words()), vector
            )
            node.item_store.originate(
                transaction, NOTIFICATION, node.time + _DAY // 2, encode_body(body), is_signed=True
            )

    node.act(originate, now)


def outlive(node: HostedNode, now: int) -> None:
    """Let everything happen to a node that may come after a script, a restart among it."""
    for name in SUBSCRIBERS:
        node.handle(Listening(REPLIES + name, True), now)
        node.handle(Listening(NOTES + name, True), now)
    take_readings(node, now + 10)
    node.handle(Tick(), now + 2_000)
    restart(node, now + 3_000)
    take_readings(node, now + 3_500)
    for name in SUBSCRIBERS:
        node.handle(Message(name, REQUESTS + name, b"list"), now + 4_000)
    for later in (5_000, 70_000, _DAY, 40 * _DAY):
        node.handle(Tick(), now + later)


def restart(node: HostedNode, now: int) -> None:
    """Start a node again from its store; it is worse if this fails, as it always will."""
    try:
        node.restart(now)
    except Exception as error:
        error.add_note("at every start from now on")
        raise


def _list_steps(script: Any) -> list[Any]:
    return script[:_STEPS] if isinstance(script, list) else []


class CodecTarget(Target):
    """The codecs of the device link: also what runs on boards."""

    name = "codecs"
    _CODECS: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes] | None], ...] = (
        (subscription.decode, subscription.encode),
        (notification.decode, notification.encode),
        (frames.decode_message, None),
        (cbor.decode, None),
    )

    def play(self, script: Any) -> None:
        """Decode; what decodes must encode to the same bytes."""
        match script:
            case [int(number), bytes(data)]:
                decode, encode = self._CODECS[number % len(self._CODECS)]
                try:
                    value = decode(data)
                except ProtocolError:
                    return
                if encode is not None and encode(value) != data:
                    raise BoundError(f"{data.hex()} decodes to {value!r}, which encodes otherwise")


class MqttTarget(Target):
    """The MQTT server in front of a whole node: bytes of several clients, in any pieces."""

    name = "mqtt"
    _CLIENTS = 4

    def play(self, script: Any) -> None:
        """Feed what links bring; after every step no limit is passed."""
        self.begin(make_node(NODE))
        for step in _list_steps(script):
            match step:
                case [int(what), int(client), bytes(data)]:
                    self._now += 10
                    self._step(what % 8, client % self._CLIENTS, data)
                    self.check_bounds()
        for later in (1_000, 30_000, 120_000):
            self.durable.tick(self._now + later)
            self.durable.commit()
        restart(self._node, self._now + 200_000)
        self._attach()

    def begin(self, node: HostedNode) -> None:
        """Put a server in front of a node."""
        self._node = node
        self._now = START
        self._links: dict[int, int] = {}
        self._last = 0
        self._attach()

    def _attach(self) -> None:
        node = self._node
        self._server = MqttServer(OpenRules(), _SMALL)
        self.durable = DurableNode(
            node.node, node.store, self._server, lambda _: None, node.clocks.stamp
        )
        self._server.restore(node.store, self._now)
        self._links.clear()

    def _step(self, what: int, client: int, data: bytes) -> None:
        durable, now = self.durable, self._now
        if what == 5:
            self._now += 1_000 * (len(data) + 1)
            durable.tick(self._now)
        elif what == 6:
            restart(self._node, now)
            self._attach()
            return
        elif what == 7:
            durable.publish(Publish(f"dens/1/note/medic{client}", data, 1, token=client), now)
        else:
            link = self._links.get(client)
            if link is None:
                self._last += 1
                link = self._links[client] = self._last
                durable.receive_input(LinkOpened(link), now)
            if what == 1:
                durable.receive_input(LinkLost(link), now)
                del self._links[client]
            elif what in (2, 3):
                durable.receive_input(LinkBlocked(link, what == 2), now)
            elif what == 4:  # byte by byte
                for at in range(min(len(data), 200)):
                    self._bring(link, data[at : at + 1])
            else:
                self._bring(link, data)
        self._send_out(durable.commit().outputs)

    def _bring(self, link: int, data: bytes) -> None:
        self.durable.receive_input(LinkReceived(link, data), self._now)

    def _send_out(self, outputs: list[Output]) -> None:
        """Do what a listener would do."""

    def check_bounds(self) -> None:
        """Require that no limit of the server is passed."""
        sessions = self._server.sessions
        kept = (len(sessions.all), sessions.bytes, sessions.retained.count)
        allowed = (_SMALL.sessions, _SMALL.total_queue_bytes, _SMALL.retained)
        if any(have > may for have, may in zip(kept, allowed, strict=True)):
            raise BoundError(f"sessions, bytes and retained messages: {kept} of {allowed}")
        if self._server.counts["failed"]:
            raise BoundError("a packet was answered by an exception instead of a refusal")


class WebSocketTarget(MqttTarget):
    """The same server behind WebSocket: no byte of a stranger may stop the stream."""

    name = "websocket"

    def begin(self, node: HostedNode) -> None:
        """Put a server in front of a node."""
        self._streams: dict[int, WebSocketStream] = {}
        super().begin(node)

    def _bring(self, link: int, data: bytes) -> None:
        stream = self._streams.setdefault(link, WebSocketStream(_SMALL))
        found = stream.receive(data)
        stream.take_answer()
        if found:
            super()._bring(link, found)
        fault: str = stream.fault
        if fault.startswith("not WebSocket"):
            raise BoundError(f"an exception instead of a refusal: {fault}")
        if fault:
            self.durable.receive_input(LinkLost(link), self._now)

    def _send_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            stream = self._streams.get(getattr(output, "link", 0))
            if stream is not None and isinstance(output, Send):
                stream.wrap(output.data)
            elif stream is not None and isinstance(output, Close):
                stream.close()


class RequestTarget(Target):
    """Requests of subscribers: words, XML, JSON, CBOR."""

    name = "requests"

    def play(self, script: Any) -> None:
        """Send requests; then readings come that may match."""
        node, now = make_node(NODE), START
        for step in _list_steps(script):
            match step:
                case [int(who), bytes(payload)]:
                    now += 100
                    name = SUBSCRIBERS[who % len(SUBSCRIBERS)]
                    node.handle(Message(name, REQUESTS + name, payload), now)
        outlive(node, now)


class OperatorTarget(Target):
    """What an operator sends: items that a peer signed, and plans."""

    name = "operators"

    def play(self, script: Any) -> None:
        """Send payloads; a list of rows becomes items with good signatures."""
        node, now = make_node(NODE), START
        keys = HmacKeys(PEER)
        for step in _list_steps(script):
            now += 100
            payload = step
            if isinstance(step, list):
                items = [_sign_item(keys, *row) for row in step if _is_row(row)]
                rows = [[*i.dot, i.kind, i.expires, i.body, i.signature] for i in items]
                payload = cbor2.dumps(["items", rows])
            if isinstance(payload, bytes):
                node.handle(Message("operator", OPERATORS + NODE, payload), now)
        outlive(node, now)


class DeviceTarget(Target):
    """Frames of a device whose key is good."""

    name = "devices"
    _TOPICS = ("hello", "nv", "sv", "ack", "", "want")

    def play(self, script: Any) -> None:
        """Send frames; some subscriptions are there to be installed."""
        node, now = make_node(NODE), START
        for name, words in zip(SUBSCRIBERS, (b"heart rate is high", b"gas is high"), strict=False):
            node.handle(Message(name, REQUESTS + name, words), now)
        link = HmacKeys(NODE).link_for(DEVICE, 1)
        assert link is not None
        node.handle(Listening(f"{DEVICES}{DEVICE}/sv", True), now)
        for step in _list_steps(script):
            match step:
                case [int(what), int(kind), int(epoch), int(sequence), bytes(body)]:
                    now += 100
                    payload = seal_as_device(
                        link,
                        node.find_answer(DEVICE),
                        1 + kind % 3,
                        (epoch & 0xFFFFFFFF, sequence & 0xFFFFFFFF),
                        body[: frames.MAX_LENGTH - frames.OVERHEAD],
                    )
                    topic = f"{DEVICES}{DEVICE}/{self._TOPICS[what % len(self._TOPICS)]}"
                    node.handle(Message(DEVICE, topic, payload), now)
                    node.handle(Tick(), now + 50)
        outlive(node, now)


class PeerTarget(Target):
    """Frames and items of another node of the site, whose keys are good."""

    name = "peers"

    def play(self, script: Any) -> None:
        """Let two nodes meet, and one of them say what it never would, at any moment."""
        self._now = START
        self._nodes = {name: make_node(name) for name in (NODE, PEER)}
        self._air: deque[tuple[str, str, bytes]] = deque()
        for name, words in ((NODE, b"heart rate is high"), (PEER, b"gas is high")):
            self._give(name, Message("medic7", REQUESTS + "medic7", words))
            take_readings(self._nodes[name], self._now)
        for name, other in ((NODE, PEER), (PEER, NODE)):
            self._give(name, PeerUp(other))
        for step in _list_steps(script):
            self._play_step(step)
        self._pass_frames(_FRAMES)
        for name in (NODE, PEER):
            self._give(name, Tick())
        self._pass_frames(_FRAMES)
        outlive(self._nodes[NODE], self._now)

    def _play_step(self, step: Any) -> None:
        match step:
            case int(count) if not isinstance(count, bool):
                self._pass_frames(count % 16)
            case [int(kind), flag, bytes(body)] if len(body) <= MAX_BODY:
                names = sorted(NAMES)
                self._slip(names[kind % len(names)], body, bool(flag))
            case [int(_), int(_), int(_), *_] if _is_row(step):
                item = _sign_item(HmacKeys(PEER), *step)
                copies = step[4] if len(step) > 4 and type(step[4]) is int else 0
                batch = ItemBatch((), (), (SentItem(item, abs(copies) & 0xFFFF, 1),))
                self._slip(ITEMS, encode_item_batch(batch), False)

    def _slip(self, kind: int, body: bytes, is_flagged: bool) -> None:
        """Send a frame of the peer that its node never made, with the right tag and number."""
        peer = self._nodes[PEER]
        session = peer.peers.sessions.get(NODE)
        if session is None:
            return

        def send(transaction: Transaction) -> None:
            session.channel.send(transaction, kind, body, is_flagged=is_flagged)

        self._send(PEER, peer.act(send, self._now))
        self._pass_frames(2)

    def _give(self, name: str, event: Event) -> None:
        self._now += 5
        self._send(name, self._nodes[name].handle(event, self._now))

    def _send(self, name: str, published: list[Publish]) -> None:
        for publish in published:
            if publish.topic.startswith(PEERS):
                self._air.append((name, publish.topic, publish.payload))

    def _pass_frames(self, count: int) -> None:
        for _ in range(count):
            if not self._air:
                return
            sender, topic, payload = self._air.popleft()
            self._give(topic.removeprefix(PEERS), Message(sender, topic, payload))


def _is_row(row: Any) -> bool:
    """Return whether a row can be an item: kind, expires, sequence, body as a list or bytes."""
    if not isinstance(row, list) or len(row) < 4:
        return False
    kind, expires, sequence, body = row[:4]
    numbers = all(type(value) is int and value >= 0 for value in (kind, expires, sequence))
    return numbers and expires < 1 << 63 and sequence < 1 << 40 and isinstance(body, bytes | list)


def _sign_item(keys: HmacKeys, kind: int, expires: int, sequence: int, body: Any, *_: Any) -> Item:
    """Return an item of a node's own making, well signed."""
    if isinstance(body, list):
        body = cbor2.dumps(body, canonical=True)
    kinds = sorted(KINDS)
    item = Item(Dot(PEER, 1, 100 + sequence), kinds[kind % len(kinds)], expires, body[:MAX_BODY])
    return replace(item, signature=keys.sign(item.signed))


def list_targets() -> Iterator[Target]:
    """Yield a new one of each."""
    yield CodecTarget()
    yield MqttTarget()
    yield WebSocketTarget()
    yield RequestTarget()
    yield OperatorTarget()
    yield DeviceTarget()
    yield PeerTarget()
