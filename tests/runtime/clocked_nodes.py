"""Nodes with clocks of their own: real cores, durable nodes and stores, in memory.

`World.real` is the true time. What each machine shows is off by its `error`, and what a machine
without a battery shows falls at each start. Frames between nodes take their time.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    PEERS,
    REPLIES,
    REQUESTS,
    Acknowledged,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
)
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NOTIFICATION, NotificationBody, encode_body
from denwatch.node.core.node import CoreSettings, build_core
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.runtime.process import SteadyClock, find_plausible
from denwatch.protocol import notification

from simulator.keys import HmacKeys
from simulator.memory_store import EmulatedDisk, MemoryStore
from tests.subscribers.subscriber_node import patient

FLIGHT = 200  # ms of a frame between two nodes


class Sensor:
    """Makes a notification of every message, as the devices' protocol does."""

    def __init__(self, item_store: ItemStore, vocabulary: bytes) -> None:
        self._item_store = item_store
        self._vocabulary = vocabulary

    def receive(self, transaction: Transaction, message: Message) -> None:
        rate, life = json.loads(message.payload)
        vector = notification.encode(patient(heart_rate=rate))
        count = self._item_store.count(NOTIFICATION) + 1
        body = NotificationBody("wd", 1, count, transaction.now, 0, self._vocabulary, vector)
        self._item_store.originate(
            transaction, NOTIFICATION, transaction.now + life, encode_body(body)
        )


class ClockedNode:
    """One machine with its node; `error` is by how much its clock is wrong."""

    def __init__(self, world: World, name: str, error: int, strategy: str) -> None:
        self.world = world
        self.name = name
        self.strategy = strategy
        self.error = error
        self.medium = EmulatedDisk()
        self.keys = HmacKeys(name)
        self.notes: list[Any] = []  # what its subscriber got
        self.reply: Any = None
        self.start()

    def start(self) -> None:
        """Start, or start again from the disk."""
        self.store = store = MemoryStore(self.name, self.medium)
        self.clocks = Clocks(self.name, store.epoch)
        lead = self.clocks.restore(store, find_plausible(self.read_wall()))
        self.clock = SteadyClock(
            lead, lambda: self.read_wall() / 1000, lambda: self.world.real / 1000
        )
        vocabularies = Vocabularies(load_shipped("rescue"))
        settings = CoreSettings(
            subscribers=SubscriberSettings(is_announcing=False),
            devices=None,
            peers=PeerSettings(strategy=self.strategy),
        )
        node = build_core(self.name, store, self.keys, vocabularies, self.clocks, settings)
        assert node.protocols.peers is not None
        self.item_store, self.peers = node.item_store, node.protocols.peers
        sensor = Sensor(self.item_store, vocabularies.own_hash)
        node.receivers[DEVICES] = sensor.receive
        self.durable_node = DurableNode(node, store, None, lambda _: None, self.clocks.stamp)
        self.durable_node.restore(self.clock.read())

    def stop(self) -> None:
        """Die: what was not committed is gone."""
        for other in list(self.world.nodes.values()):
            self.world.cut(self.name, other.name)
        self.store.crash()

    def read_wall(self) -> int:
        """Return what the machine's clock shows."""
        return self.world.real + self.error

    @property
    def now(self) -> int:
        """The node's own time."""
        return self.clock.read()

    def do(self, event: Event) -> None:
        """Let something happen here."""
        self.durable_node.receive_event(event, self.now)
        self._commit()

    def tick(self) -> None:
        """Do what a process does several times a second."""
        jump = self.clock.find_jump()
        if jump:
            self.durable_node.set_clock(jump, self.now)
        self.durable_node.tick(self.now)
        self._commit()

    def _commit(self) -> None:
        for publish in self.durable_node.commit().outgoing:
            topic, payload = publish.topic, publish.payload
            if topic.startswith(PEERS):
                self.world.post(self.name, topic.removeprefix(PEERS), payload)
            elif topic.startswith(NOTES):
                self.notes.append(json.loads(payload))
                self.do(Acknowledged(topic, publish.token))
            elif topic.startswith(REPLIES):
                self.reply = json.loads(payload)

    # Subscribers and devices ---------------------------------------------------------------

    def ask(self, words: str) -> Any:
        """Let the subscriber of this node, who listens, say something; return the reply."""
        person = f"medic-{self.name}"
        for topic in (REPLIES, NOTES):
            self.do(Listening(topic + person, True))
        self.do(Message(person, REQUESTS + person, words.encode()))
        return self.reply

    def read(self, life: int, rate: int = 180) -> None:
        """Let a device bring a reading."""
        self.do(Message("wd", DEVICES + "wd/nv", json.dumps([rate, life]).encode()))

    def count(self, kind: int) -> int:
        """Return how many items of a kind are held."""
        return self.item_store.count(kind)


class World:
    """All nodes, and the true time."""

    def __init__(self, real: int, strategy: str = "epidemic", **errors: int) -> None:
        self.real = real
        self._links: set[frozenset[str]] = set()
        self._frames: deque[tuple[int, str, str, bytes]] = deque()
        self.nodes: dict[str, ClockedNode] = {}
        for name, error in errors.items():
            self.nodes[name] = ClockedNode(self, name, error, strategy)

    def link(self, one: str, other: str) -> None:
        """Bring two nodes together."""
        self._links.add(frozenset((one, other)))
        self.nodes[one].do(PeerUp(other))
        self.nodes[other].do(PeerUp(one))

    def cut(self, one: str, other: str) -> None:
        """Part two nodes."""
        pair = frozenset((one, other))
        if pair in self._links:
            self._links.remove(pair)
            self._frames = deque(f for f in self._frames if {f[1], f[2]} != pair)
            self.nodes[one].do(PeerDown(other))
            self.nodes[other].do(PeerDown(one))

    def post(self, sender: str, receiver: str, payload: bytes) -> None:
        """Send a frame to another node."""
        if frozenset((sender, receiver)) in self._links:
            self._frames.append((self.real + FLIGHT, sender, receiver, payload))

    def wait(self, ms: int, step: int = 1_000) -> None:
        """Let time go by: frames arrive, and every node ticks at each step."""
        end = self.real + ms
        while self.real < end:
            until = min(end, self.real + step)
            while self._frames and self._frames[0][0] <= until:
                due, sender, receiver, payload = self._frames.popleft()
                self.real = max(self.real, due)
                self.nodes[receiver].do(Message(sender, PEERS + receiver, payload))
            self.real = until
            for node in list(self.nodes.values()):
                node.tick()
