"""Those who besiege a node in `benchmarks.siege`: a user, strangers, and a member with its keys.

Each is a process of its own, so that its work is not the measuring process's. It begins, sets
`is_under_way`, and goes on until it is ended.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from denwatch.node.core.events import PEERS, Message, PeerUp, Publish, Tick
from denwatch.node.core.items import DELIVERED, DeliveredBody, Dot, Item, encode_body
from denwatch.node.security import open_keyring
from paho.mqtt.enums import CallbackAPIVersion

from simulator.client_packets import write_connect, write_publish, write_subscribe
from simulator.hosted_node import HostedNode, HostSettings

STRANGERS = 2_000
_PACKETS = 64  # in one write of the user
_LONG = 16  # texts of a probe, as many as a node compiles
_WAITING = 500  # frames of the member that its library may hold
_LIES = 50  # receipts in one transaction of the member


@dataclass(frozen=True)
class Target:
    """What attackers know: ports, a user's name and password, a member's folder."""

    plain: int
    tls: int
    user: str
    password: str
    stolen: Path


def flood(target: Target, is_under_way: Event) -> None:
    """Be a user who sends requests of all kinds, long ones mostly, as fast as they are read."""
    topic = f"dens/1/sub/{target.user}"
    rng = random.Random(1)

    def make_request() -> bytes:
        texts = [f"heart_rate above {rng.randrange(60, 200)}" for _ in range(_LONG)]
        return rng.choice((json.dumps({"probe": texts}), "list", " or ".join(texts))).encode()

    with socket.create_connection(("127.0.0.1", target.plain)) as link:
        hello = write_connect("flood", target.user, target.password)
        link.sendall(hello + write_subscribe(1, f"dens/1/reply/{target.user}", qos=0))
        threading.Thread(target=_drain, args=(link,), daemon=True).start()
        is_under_way.set()
        while True:
            requests = [make_request() for _ in range(_PACKETS)]
            link.sendall(
                b"".join(write_publish(topic, each, 1, n + 1) for n, each in enumerate(requests))
            )


def _drain(link: socket.socket) -> None:
    while link.recv(1 << 18):
        pass


def hold(target: Target, is_under_way: Event) -> None:
    """Be strangers who hold connections, silent or in the middle of a first packet, and return."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    links: dict[int, socket.socket] = {}
    poll = select.poll()
    for number in range(STRANGERS):
        _open(target, number, links, poll)
    is_under_way.set()
    rng, returning = random.Random(1), list[float]()
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        for number, _ in poll.poll(0):
            poll.unregister(number)
            links.pop(number).close()
            returning.append(now + 2 * rng.random())  # each after a second or so
        for number in range(sum(at <= now for at in returning)):
            _open(target, number, links, poll)
        returning = [at for at in returning if at > now]


def _open(target: Target, number: int, links: dict[int, socket.socket], poll: select.poll) -> None:
    link = socket.socket()
    link.settimeout(5)
    with suppress(OSError):
        link.connect(("127.0.0.1", target.tls if number % 2 else target.plain))
        if number % 4 > 1:
            link.sendall(b"\x16\x03\x01" if number % 2 else b"\x10\x20")
    links[link.fileno()] = link
    poll.register(link, select.POLLIN | select.POLLHUP)


class Liar:
    """A member's keys in the wrong hands: runs the protocol, and signs what is not true."""

    def __init__(self, target: Target) -> None:
        keyring = open_keyring(target.stolen)
        settings = HostSettings(subscribers=None, devices=None)
        self.host = HostedNode(keyring.name, keyring, settings=settings)
        self.host.pending = _NobodyWaits()
        self.host.start(_read_clock())
        self.topic = PEERS + keyring.name
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "stolen")
        self.client.username_pw_set(*(keyring.make_credentials("north") or ("", "")))
        self.client.max_inflight_messages_set(_WAITING)
        self.client.on_connect = self._begin
        self.client.on_message = self._receive
        self.last = b""
        self.client.connect("127.0.0.1", target.plain, 20)

    def _begin(self, *_: Any) -> None:
        self.client.subscribe(self.topic, 1)
        self.send(self.host.handle(PeerUp("north"), _read_clock()))

    def _receive(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        event = Message("north", self.topic, bytes(message.payload))
        self.send(self.host.handle(event, _read_clock()))

    def send(self, published: list[Publish]) -> None:
        """Send what its node would send."""
        for publish in published:
            self.last = publish.payload
            self.client.publish(publish.topic, publish.payload, 1)

    def lie(self, rng: random.Random) -> None:
        """Sign receipts of notifications that do not exist."""
        store = self.host.item_store
        for _ in range(_LIES):
            store._sequence += 1
            dot = Dot(store.name, store.epoch, store._sequence)
            body = encode_body(DeliveredBody("medic7", [["north", 1, rng.randrange(1, 1 << 40)]]))
            item = store.sign(Item(dot, DELIVERED, _read_clock() + 3_600_000, body))
            self.host.act(lambda t, item=item: store.accept(t, item, ""), _read_clock())
        self.send(self.host.handle(Tick(), _read_clock()))

    def repeat(self, rng: random.Random) -> None:
        """Send its last frame again, or bytes that are none."""
        payload = self.last if rng.random() < 0.5 else rng.randbytes(16_384)
        self.client.publish(PEERS + "north", payload, 1)


def lie(target: Target, is_under_way: Event) -> None:
    """Be a member who lies at the rate of its line."""
    liar, rng = Liar(target), random.Random(1)
    while True:
        liar.client.loop(0.001)
        if len(liar.client._out_messages) >= _WAITING or not liar.last:
            continue
        (liar.lie if rng.random() < 0.1 else liar.repeat)(rng)
        is_under_way.set()


class _NobodyWaits:
    def wanted(self, *_: object) -> dict[str, int]:
        """Return who waits for something."""
        return {}

    def find_time(self, *_: object) -> int:
        """Return since when."""
        return 0


def _read_clock() -> int:
    return int(time.time() * 1000)


ATTACKS = {"flood": flood, "strangers": hold, "lies": lie}


def attack(name: str, target: Target, is_under_way: Event) -> None:
    """Attack, without taking the processor away from the node: that is another machine's."""
    os.nice(19)
    ATTACKS[name](target, is_under_way)
