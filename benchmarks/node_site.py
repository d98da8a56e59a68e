"""A node to be measured: its folder, its names and keys, the subscriptions on its disk, its work.

The subscriptions are written as the items that a node would have made of requests, signed and
all; the node that is started on the store finds them as after any restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.client.vocabulary.loading import load_shipped
from edge.commands.node_init import init_node
from edge.dens.config import load_config
from edge.dens.core.holdings import CONTEXT
from edge.dens.core.items import SUBSCRIPTION, Dot, Item, SubscriptionBody, encode_body
from edge.dens.core.vocabularies import shorten_hash
from edge.dens.matching.interface import FUZZY
from edge.dens.replication.context import Range
from edge.dens.runtime.build import DATABASE
from edge.dens.security import open_keyring
from edge.dens.security.registry import derive_device_password, derive_device_secret
from edge.dens.security.changes import add_device, add_subscriber
from edge.dens.security.files import KeyFile
from edge.dens.store import Store
from protocol import frames, notification
from protocol.messages import encode_message
from protocol.subscription import encode
from protocol.vectors import Notification, Predicate, Reading, Subscription

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
_BAND = 25  # of the heart rate: whose device it is

_LIMITS: Mapping[str, str] = {
    "messages_per_second = 500": "messages_per_second = 1000000",
    "burst = 2000": "burst = 1000000",
    "notifications = 1000000": "notifications = 2000000",
    "shared = []": 'shared = ["bench/#"]',
}


@dataclass(frozen=True)
class Node:
    """Where it is, and what its clients prove who they are with."""

    config: Path
    port: int
    passwords: Mapping[str, str]
    links: Mapping[str, frames.Link]


def make_node(folder: Path, port: int, devices: int, people: int) -> Node:
    """Make a node's folder with its keys, and with limits that a benchmark can pass."""
    config = init_node(folder, NAME, [f"mqtt://127.0.0.1:{port}"])
    text = config.read_text(encoding="utf-8")
    for old, new in _LIMITS.items():
        if text.count(old) != 1:
            raise SystemExit(f"{config}: {old!r} is not there once")
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    file = KeyFile(folder)
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
    return Node(config, port, passwords, links)


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
    rng = random.Random(seed)
    config = load_config(node.config)
    keyring = open_keyring(config.folder)
    hash = shorten_hash(load_shipped("rescue"))
    config.data.mkdir(parents=True, exist_ok=True)
    with Store(config.data / DATABASE, NAME, first_epoch=max(1, now // 1000)) as store:
        epoch = store.epoch
        wishes = list(_draw_wishes(rng, count, people))
        for sequence, (owner, vector) in enumerate(wishes, 1):
            body = SubscriptionBody(owner, "medic", "", now, FUZZY, hash, vector, {})
            dot = Dot(NAME, epoch, sequence)
            item = Item(dot, SUBSCRIPTION, now + _LIFE, encode_body(body))
            signed = Item(dot, SUBSCRIPTION, item.expires, item.body, keyring.sign(item.signed))
            store.apply([("item.subscription", dot.key, signed.encode())])
            if sequence % _COMMIT == 0:
                store.commit()
        seen = Range(len(wishes), 0).encode()
        store.apply([(CONTEXT, Dot(NAME, epoch, 0).key, seen)])
        store.commit()


def _draw_wishes(rng: random.Random, count: int, people: int) -> Iterator[tuple[str, bytes]]:
    for number in range(people):
        low = number * _BAND % 250
        wish = [Predicate(0, 128, 255), Predicate(1, low, low + _BAND - 1)]
        yield name_person(number), encode(Subscription(EVENT, wish))
    for number in range(count):
        attributes = sorted(rng.sample(range(_ATTRIBUTES), 3))
        wish = []
        for attribute in attributes:
            low = rng.randrange(256 - _WIDTH)
            high = low + rng.randrange(_WIDTH)
            wish.append(Predicate(attribute, low, high, rng.randrange(*_STEEP)))
        yield f"absent-{number % _OWNERS}", encode(Subscription(EVENT, wish))


# What devices send -----------------------------------------------------------------------------


def make_hello(node: Node, device: str, epoch: int) -> bytes:
    """Return a device's first frame."""
    fields: dict[str, object] = {
        "device": device,
        "epoch": epoch,
        "vocabulary": shorten_hash(load_shipped("rescue")),
        "senses": {EVENT: [sum(1 << bit for bit in SENSED), 0]},
        "capacity": 1024,
        "languages": [1],
    }
    body = encode_message("hello", fields)
    return frames.seal(node.links[device], frames.UP, frames.Frame(frames.MESSAGE, epoch, 1, body))


def make_frames(
    node: Node, device: str, person: int, count: int, batch: int, epoch: int, first: int = 1
) -> list[bytes]:
    """Return the frames of `count` notifications for one person, `batch` in each."""
    rng = random.Random(f"{device} {first}")
    low = person * _BAND % 250
    made = []
    for start in range(first, first + count, batch):
        end = min(start + batch, first + count)
        vectors = [
            notification.encode(
                Notification(
                    EVENT,
                    [
                        _read(0, rng.randrange(128, 256)),
                        _read(1, rng.randrange(low, low + _BAND)),
                        _read(2, rng.randrange(256)),
                    ],
                    sequence=sequence & 0xFFFF,
                    age=0,
                )
            )
            for sequence in range(start, end)
        ]
        frame = frames.Frame(frames.NOTIFICATIONS, epoch, end - 1, frames.join_vectors(vectors))
        made.append(frames.seal(node.links[device], frames.UP, frame))
    return made


def _read(attribute: int, value: int) -> Reading:
    return Reading(attribute, (value, value, value, value))
