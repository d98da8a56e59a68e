"""A hosted node with the devices' protocol alone, and a real watchdog's modules, joined in memory.

`DeviceNode` can crash before or after its commit. `Watchdog` is a device: uplink, manager, filter
and spool of `watchdog` over a flash that survives. Between them there is what a test puts there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cbor2
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.coverage import Sensed
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import (
    Acknowledged,
    Action,
    Event,
    Listening,
    Message,
    Publish,
    Tick,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Item,
    NotificationBody,
    SubscriptionBody,
    decode_body,
    encode_body,
)
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.subscriptions import SingleClock
from denwatch.protocol import frames
from denwatch.protocol.frames import encode_message
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.execution import Sample, write_notification
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.seal import FrameKey
from denwatch.watchdog.spool import Spool
from denwatch.watchdog.uplink import Uplink

from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys
from tests.watchdog.flash import Flash

NODE = "node-a"
DEVICE = "dog-1"
VOCABULARY = b"vocabula"
SENSES: dict[int, tuple[int, int]] = {1: (0b0111, 0), 2: (0b0011, 0b0010)}
EVERYTHING: dict[int, tuple[int, int]] = {1: (0xFF, 0), 2: (0b0111, 0b0010), 3: (1, 0)}
START = 1_700_000_000_000
TOPIC = f"dens/1/wd/{DEVICE}/"


def make_secret(number: int) -> bytes:
    return bytes((number * 31 + i * 7) & 255 for i in range(32))


class Keys(HmacKeys):
    """Good keys by device: their ids."""

    def __init__(self, **ids: list[int]) -> None:
        super().__init__(NODE)
        self.ids = {name.replace("_", "-"): keys for name, keys in ids.items()} or {DEVICE: [7]}

    def list_key_ids(self, device: str) -> list[int]:
        return self.ids.get(device, [])

    def link_for(self, device: str, key_id: int) -> frames.Link | None:
        if key_id not in self.list_key_ids(device):
            return None
        return frames.Link(device, NODE, key_id, make_secret(key_id))


class ListedVocabularies(Vocabularies):
    """Vocabularies by hash, as a test lists them."""

    def __init__(self) -> None:
        super().__init__(load_shipped("rescue"))
        self.known: dict[bytes, Sensed] = {VOCABULARY: EVERYTHING}

    def find_sensed(self, hash: bytes) -> Sensed | None:
        return self.known.get(hash)

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Those that begin alike agree on what both have."""
        masks = [self.known.get(hash, {}).get(event, (0, 0))[0] for hash in (one, other)]
        return one == other or (one[:4] == other[:4] and not features & ~(masks[0] & masks[1]))


class DeviceNode(HostedNode):
    """A node with the devices' protocol alone: `outbox` has what it published."""

    def __init__(self, settings: DeviceSettings | None = None, keys: Keys | None = None) -> None:
        alone = HostSettings(subscribers=None, peers=None, devices=settings or DeviceSettings())
        super().__init__(NODE, keys or Keys(), settings=alone, clock=SingleClock())
        self.vocabularies = ListedVocabularies()
        self.now = START
        self.has_room = True
        self.check_room = lambda: self.has_room
        self.outbox: list[Publish] = []
        self.start(self.now)

    def make_vocabularies(self) -> Vocabularies:
        return self.vocabularies

    def reopen(self) -> None:
        """Crash, and start again from what is on the disk."""
        self.outbox.clear()
        self.restart(self.now)

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        published = super().settle(actions)
        self.outbox += published
        return published

    def do(self, event: Event) -> list[Publish]:
        """Let the node handle an event; return what it published for it."""
        return self.handle(event, self.now)

    def run(self, change: Callable[[Transaction], object]) -> list[Publish]:
        """Change something as another protocol of the node would, in a transaction of its own."""
        return self.act(change, self.now)

    def tick(self, seconds: float = 1) -> list[Publish]:
        self.now += int(1000 * seconds)
        return self.do(Tick())

    # Subscriptions and notifications

    def subscribe(
        self, vector: bytes, life: int = 0, vocabulary: bytes = VOCABULARY, **options: Any
    ) -> Item:
        """Originate a subscription that lives for so many seconds (0: for good)."""
        fields = {"language": 0, "owner": "medic7", **options}
        body = SubscriptionBody(
            fields["owner"],
            "medic",
            "",
            self.now,
            fields["language"],
            vocabulary,
            vector,
            {name: fields[name] for name in ("score", "whole") if name in fields},
        )
        expires = self.now + 1000 * life if life else 0
        made: list[Item] = []

        def change(transaction: Transaction) -> None:
            item = self.item_store.originate(transaction, SUBSCRIPTION, expires, encode_body(body))
            made.append(item)

        self.run(change)
        return made[0]

    def unsubscribe(self, item: Item) -> None:
        self.run(
            lambda transaction: self.item_store.remove(
                transaction, SUBSCRIPTION, item.dot, "removed"
            )
        )

    def list_notes(self) -> list[NotificationBody]:
        return [
            decode_body(NotificationBody, cbor2.loads(value)[2])
            for _, value in self.store.scan("item.notification")
        ]

    def list_subscriptions(self) -> list[SubscriptionBody]:
        return [
            decode_body(SubscriptionBody, cbor2.loads(value)[2])
            for _, value in self.store.scan("item.subscription")
        ]

    def find_installed(self, device: str = DEVICE) -> list[bytes]:
        """Return the table of a device as it is on the disk."""
        prefix = device.encode() + b"\0"
        return [body for _, body in self.store.scan("device.table", prefix)]

    def count_notes(self) -> int:
        return self.item_store.count(NOTIFICATION)


class Watchdog:
    """One device; `flash` is what a power cut leaves."""

    def __init__(
        self,
        senses: dict[int, tuple[int, int]] | None = None,
        capacity: int = 1024,
        name: str = DEVICE,
        key_id: int = 7,
        vocabulary: bytes = VOCABULARY,
        hello: dict[int, object] | None = None,
    ) -> None:
        """`hello`: further fields of it; by default all readings are exact."""
        self.name = name
        self.hello = {24: {}} if hello is None else hello
        self.senses = senses or SENSES
        self.capacity = capacity
        self.key_id = key_id
        self.vocabulary = vocabulary
        self.image: bytes | None = None
        self.now = 0
        self.put: dict[tuple[int, int], bytes] = {}  # all that it ever wanted to tell
        self.start()

    def start(self) -> None:
        """Start, or start again after a power cut."""
        self.flash = Flash(8, image=self.image)
        self.spool = Spool(self.flash, self.now, self.now // 1000)
        self.language = Fuzzy(self.capacity, self.senses)
        self.samples: dict[int, Sample] = {}  # by event, with the last reading of each attribute
        self.manager = Manager([self.language], self.senses)
        key = FrameKey(self.name, NODE, self.key_id, make_secret(self.key_id))
        self.uplink = Uplink(
            self.name,
            {NODE: key},
            self.spool,
            self.manager,
            self.vocabulary,
            lambda: {7: "dog 1", **self.hello},
        )

    def restart(self) -> None:
        self.image = self.flash.take_image()
        self.start()

    def connect(self) -> None:
        self.uplink.connect(NODE)

    def next_message(self) -> Message | None:
        found = self.uplink.next_message(self.now)
        return None if found is None else Message(self.name, *found)

    def receive(self, message: Publish) -> bool:
        return self.uplink.receive(message.topic, message.payload, self.now)

    def say_hello(self) -> Message:
        """Connect, and return the hello."""
        self.connect()
        message = self.next_message()
        assert message is not None
        assert message.topic.endswith("hello")
        return message

    def tell(self, event: int, values: dict[int, int], doubt: int = 0, faults: int = 0) -> None:
        """Put a notification into the spool, wanted or not."""
        self.keep(write_notification(self._sample(event, values, doubt, faults)), 200)

    def keep(self, vector: bytes, degree: int) -> None:
        sequence = self.spool.put(vector, degree, self.now)
        self.spool.flush(self.now)
        self.put[self.spool.epoch, sequence] = vector

    def read(self, event: int, values: dict[int, int], width: int = 0) -> bool:
        """Take a reading; it is told if a subscription wants it. Return whether one does."""
        sample = self.samples.setdefault(event, self._sample(event, {}))
        sample.clear()
        for attribute, value in values.items():
            sample.set_doubtful(attribute, value - width, value, value, value + width)
        degree = self.language.judge(sample, self.now)
        if degree >= 0:
            assert self.language.interest is not None
            self.keep(self.language.interest.write(sample, -1), degree)
        return degree >= 0

    def _sample(
        self, event: int, values: dict[int, int], doubt: int = 0, faults: int = 0
    ) -> Sample:
        sample = Sample(event)
        sample.wides = self.senses[event][1]
        sample.faults = faults
        for attribute, value in values.items():
            if doubt >> attribute & 1:
                sample.set_doubtful(attribute, value - 2, value, value, value + 2)
            else:
                sample.set(attribute, value)
        return sample

    def list_installed(self) -> dict[int, bytes]:
        """Return the vectors in the filter by handle, without handle and validity."""
        found = {}
        filter = self.language.filter
        at = filter.follow(0)
        while at >= 0:
            length = filter.buffer[at]
            event = filter.read_event(at)
            vector = bytes([0x40 | event]) + bytes(filter.buffer[at + 1 : at + length])
            handle = int.from_bytes(vector[2:4], "big")
            found[handle] = vector[:2] + b"\0\0" + vector[4:5] + b"\0" + vector[6:]
            at = filter.follow(at)
        return found


def make_vector(low: int, high: int, event: int = 1, attribute: int = 0, **options: Any) -> bytes:
    """Return a vector with one crisp range."""
    wide = bool(EVERYTHING[event][1] >> attribute & 1)
    predicate = Predicate(attribute, low, high, wide=wide)
    return encode(SubscriptionVector(event, [predicate], **options))


def settle(node: DeviceNode, watchdog: Watchdog, rounds: int = 200) -> None:
    """Carry everything both ways, in order and once, until there is silence."""
    for _ in range(rounds):
        moved = False
        message = watchdog.next_message()
        if message is not None:
            node.do(message)
            moved = True
        while node.outbox:
            publish = node.outbox.pop(0)
            if not publish.topic.startswith(f"dens/1/wd/{watchdog.name}/"):
                continue
            watchdog.receive(publish)
            moved = True
            if publish.token:
                node.do(Acknowledged(publish.topic, publish.token))
        if not moved:
            return
    raise AssertionError("they never fall silent")


def meet(node: DeviceNode, watchdog: Watchdog) -> None:
    """Let a device connect and say all that there is to say."""
    watchdog.connect()
    node.do(Listening(f"dens/1/wd/{watchdog.name}/sv", True))
    settle(node, watchdog)


def seal_up(
    kind: int, epoch: int, sequence: int, body: bytes, key_id: int = 7, device: str = DEVICE
) -> bytes:
    """Return a frame of a device."""
    link = frames.Link(device, NODE, key_id, make_secret(key_id))
    return frames.seal(link, frames.UP, frames.Frame(kind, epoch, sequence, body))


def seal_batch(
    epoch: int,
    last: int,
    *vectors: bytes,
    today: int = 3,
    answer: tuple[int, int] = (1, 1),
    elapsed: int = 0,
) -> bytes:
    """Return a batch of a device in the epoch of `today`; `answer` is a node's first to it."""
    link = frames.Link(DEVICE, NODE, 7, make_secret(7))
    batch = frames.DeviceBatch(epoch, last, list(vectors))
    frame = frames.pack_batch(batch, today, 1, elapsed)
    return frames.seal(link, frames.UP, frame, frames.HelloAnswer(today, *answer))


def make_hello(epoch: int = 1, count: int = 1, device: str = DEVICE, **fields: Any) -> bytes:
    """Return a hello frame; `inner` fields may contradict it."""
    message = {
        "device": device,
        "epoch": epoch,
        "vocabulary": VOCABULARY,
        "senses": {event: list(masks) for event, masks in SENSES.items()},
        "capacity": 1024,
        "languages": [0],
        **fields,
    }
    return seal_up(frames.MESSAGE, epoch, count, encode_message("hello", message), device=device)
