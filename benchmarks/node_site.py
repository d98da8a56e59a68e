"""A node to be measured: its folder, its names and keys, what is on its disk, what devices send.

Subscriptions and notifications are written as a node would have written them, with its own
encoders; the node that is started on the store finds them as after any restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.config import load_config
from denwatch.node.core.item_store import CONTEXT
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
    read_dot,
)
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.core.pending import PendingRow, encode_row
from denwatch.node.replication.dot_sets import SeenRange
from denwatch.node.runtime.process import DATABASE
from denwatch.node.security import open_keyring
from denwatch.node.security.registrations import derive_device_password, derive_device_secret
from denwatch.node.security.site import KeyFile, add_device, add_subscriber
from denwatch.node.store import Change, Store
from denwatch.protocol import frames, notification
from denwatch.protocol.frames import FUZZY, decode_message, encode_message
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

from simulator.site import Site

NAME = "middle"
KEY_ID = 1
EVENT = 1  # "patient" of the rescue vocabulary
SENSED = (0, 1, 2)  # temperature, heart rate, respiration rate
_ATTRIBUTES = 7  # that subscriptions ask for: those with one byte
_WIDTH = 8  # the widest core of a predicate, of 255
_STEEP = (170, 255)  # gamma codes
_OWNERS = 1_000
_LIFE = 7 * 86_400_000  # ms
_COMMIT = 5_000
_DOUBT = 62_000  # ms
_BAND = 25  # of the heart rate: whose device it is

_LIMITS: Mapping[str, str] = {
    "messages_per_second = 500": "messages_per_second = 1000000",
    "cpu_ms_per_second = 200": "cpu_ms_per_second = 1000000",
    "\npacket_bytes = 262144": "\npacket_bytes = 16777216",
    "\nlinks = 2000": "\nlinks = 4000",
    "links_per_name = 100": "links_per_name = 100000",
    "burst = 2000": "burst = 1000000",
    "notifications = 1000000": "notifications = 2000000",
    "\nshared = []": '\nshared = ["bench/#"]',
    "\nwindow = 32\n": "\nwindow = 100\n",
    "queue = 1000\n": "queue = 1000000\n",
    "queue_bytes = 4194304": "queue_bytes = 1073741824",
    "total_queue_bytes = 268435456": "total_queue_bytes = 4294967296",
}


@dataclass(frozen=True)
class Node:
    """Where it is, and what its clients prove who they are with."""

    config: Path
    port: int
    passwords: Mapping[str, str]
    links: Mapping[str, frames.Link]


def make_node(folder: Path, devices: int, people: int) -> Node:
    """Make a node's folder with its keys, and with limits that a benchmark can pass."""
    node = Site(folder).add_node(NAME, interval=10)
    node.configure(*_LIMITS.items())
    file = KeyFile(node.folder)
    registry = file.load()
    passwords: dict[str, str] = {}
    links: dict[str, frames.Link] = {}
    for number in range(devices):
        name = name_device(number)
        registry = add_device(registry, name)
        secret = derive_device_secret(registry.devices[name].keys[KEY_ID], name, NAME, KEY_ID)
        passwords[name] = derive_device_password(secret)
        links[name] = frames.Link(name, NAME, KEY_ID, secret)
    for number in range(people):
        name = name_person(number)
        registry, passwords[name] = add_subscriber(registry, name, "medic")
    file.save(registry)
    return Node(node.config, node.port, passwords, links)


def name_device(number: int) -> str:
    """Return the name of a device."""
    return f"dog-{number}"


def name_person(number: int) -> str:
    """Return the name of somebody who is there."""
    return f"medic-{number}"


def fill_store(node: Node, count: int, people: int, seed: int, now: int) -> None:
    """Put subscriptions into the store of a node that never ran.

    `count` are of people who are not there, and each of the `people` who are has one more.
    """
    store_subscriptions(node, list(_draw_subscriptions(random.Random(seed), count, people)), now)


def store_subscriptions(node: Node, subscriptions: Sequence[tuple[str, bytes]], now: int) -> None:
    """Put subscriptions, each with its owner, into the store of a node that never ran."""
    config = load_config(node.config)
    keyring = open_keyring(config.folder)
    hash = shorten_hash(load_shipped("rescue"))
    config.data.mkdir(parents=True, exist_ok=True)
    with Store(config.data / DATABASE, NAME, first_epoch=max(1, now // 1000)) as store:
        epoch = store.epoch
        for sequence, (owner, vector) in enumerate(subscriptions, 1):
            body = SubscriptionBody(owner, "medic", "", now, FUZZY, hash, vector, {})
            dot = Dot(NAME, epoch, sequence)
            item = Item(dot, SUBSCRIPTION, now + _LIFE, encode_body(body))
            signed = Item(dot, SUBSCRIPTION, item.expires, item.body, keyring.sign(item.signed))
            store.apply([("item.subscription", dot.key, signed.encode())])
            if sequence % _COMMIT == 0:
                store.commit()
        seen = SeenRange(len(subscriptions), 0).encode()
        store.apply([(CONTEXT, Dot(NAME, epoch, 0).key, seen)])
        store.commit()


def fill_notes(node: Node, count: int, seed: int, now: int) -> None:
    """Put notifications for one absent person into the store, with the rows that go with them."""
    rng = random.Random(seed)
    config = load_config(node.config)
    hash = shorten_hash(load_shipped("rescue"))
    with Store(config.data / DATABASE, NAME) as store:
        first = next(key for key, _ in store.scan("item.subscription"))
        hit = (read_dot(first).id, 255, 255, 0)
        readings = draw_readings(rng, 0, count)
        for sequence, values in enumerate(readings, 1):
            dot = Dot(NAME, store.epoch, sequence)
            vector = encode_reading(values, sequence)
            body = NotificationBody(name_device(0), 1, sequence, now, _DOUBT, hash, vector)
            item = Item(dot, NOTIFICATION, now + _LIFE, encode_body(body))
            want = PendingRow(now, _DOUBT, item.expires, now + _DOUBT, [hit])
            rows: list[Change] = [
                ("item.notification", dot.key, item.encode()),
                ("sub.want", dot.key, encode_row(want)),
            ]
            store.apply(rows)
            if sequence % _COMMIT == 0:
                store.commit()
        seen = SeenRange(count, 0).encode()
        store.apply([(CONTEXT, Dot(NAME, store.epoch, 0).key, seen)])
        store.commit()


def _draw_subscriptions(rng: random.Random, count: int, people: int) -> Iterator[tuple[str, bytes]]:
    for number in range(people):
        low = number * _BAND % 250
        predicates = [Predicate(0, 128, 255), Predicate(1, low, low + _BAND - 1)]
        yield name_person(number), encode(SubscriptionVector(EVENT, predicates))
    for number in range(count):
        attributes = sorted(rng.sample(range(_ATTRIBUTES), 3))
        predicates = []
        for attribute in attributes:
            low = rng.randrange(256 - _WIDTH)
            high = low + rng.randrange(_WIDTH)
            predicates.append(Predicate(attribute, low, high, rng.randrange(*_STEEP)))
        yield f"absent-{number % _OWNERS}", encode(SubscriptionVector(EVENT, predicates))


# What devices send -----------------------------------------------------------------------------


def draw_readings(rng: random.Random, person: int, count: int) -> list[tuple[int, ...]]:
    """Return values of what a device senses that one person wants to know."""
    low = person * _BAND % 250
    return [
        (rng.randrange(128, 256), rng.randrange(low, low + _BAND), rng.randrange(256))
        for _ in range(count)
    ]


def encode_reading(values: Sequence[int], sequence: int) -> bytes:
    """Return a notification vector of 11 bytes."""
    readings = [Reading(a, (v, v, v, v)) for a, v in zip(SENSED, values, strict=True)]
    return notification.encode(NotificationVector(EVENT, readings, sequence=sequence & 0xFFFF))


class Device:
    """A device's numbers, which go on from frame to frame."""

    def __init__(self, node: Node, number: int, epoch: int) -> None:
        self.name = name_device(number)
        self.topic = f"dens/1/wd/{self.name}/"
        self._link = node.links[self.name]
        self._epoch = epoch
        self._next = 1
        self._frames = 0
        self._answer = frames.HelloAnswer(epoch, 0, 0)
        self.is_greeted = False

    def hear(self, payload: bytes) -> None:
        """Take a frame of the node: batches belong to its answer to the hello."""
        frame = frames.open_frame(self._link, frames.DOWN, payload)
        if frame.kind == frames.MESSAGE and "hello" in decode_message(frame.body)[1]:
            self._answer = frames.HelloAnswer(self._epoch, frame.epoch, frame.sequence)
            self.is_greeted = True

    def make_hello(self) -> bytes:
        """Return the first frame."""
        fields: dict[str, object] = {
            "device": self.name,
            "epoch": self._epoch,
            "vocabulary": shorten_hash(load_shipped("rescue")),
            "senses": {EVENT: [sum(1 << bit for bit in SENSED), 0]},
            "capacity": 1024,
            "languages": [0],
        }
        body = encode_message("hello", fields)
        frame = frames.Frame(frames.MESSAGE, self._epoch, 1, body)
        return frames.seal(self._link, frames.UP, frame)

    def make_frames(self, readings: Sequence[Sequence[int]], batch: int) -> list[bytes]:
        """Return the frames of notifications, `batch` in each."""
        made = []
        for start in range(0, len(readings), batch):
            part = readings[start : start + batch]
            vectors = [encode_reading(values, self._next + i) for i, values in enumerate(part)]
            self._next += len(part)
            self._frames += 1
            whole = frames.DeviceBatch(self._epoch, self._next - 1, vectors)
            frame = frames.pack_batch(whole, self._epoch, self._frames)
            made.append(frames.seal(self._link, frames.UP, frame, self._answer))
        return made
