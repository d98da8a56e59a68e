"""Who lies in a scenario: nodes, devices and strangers that forge, repeat and exaggerate.

A liar among the nodes has good keys of its own and nobody else's; so has a mad device; a stranger
has none and hears everything. Nothing that they do may reach anybody who is not with them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import cbor2
from denwatch.node.core.events import DEVICES, PEERS, Message
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    DELIVERED,
    KINDS,
    MAX_BODY,
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    VocabularyBody,
    encode_body,
)
from denwatch.node.replication.wire import ITEMS, ItemBatch, SentItem, encode_item_batch
from denwatch.protocol import frames, notification
from denwatch.protocol.frames import encode_message
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.device import seal_as_device
from simulator.hosted_node import HostedNode
from simulator.keys import KEY_ID
from simulator.registry import fault
from simulator.scenario import Scenario
from simulator.setup import MAD, Setup

_KEPT = 40  # frames that a listener in the middle remembers
_LARGEST = frames.MAX_LENGTH - frames.OVERHEAD  # of a body in a device's frame
_LAST_EPOCH = 0xFFFFFFFF


class Byzantine(Setup):
    """A stage with liars on it."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._heard: list[Message] = []  # by somebody in the middle, to be played back
        self._count = 0  # lies told so far
        self.world.overhear = self._hear

    # A node among the others ----------------------------------------------------------------

    def _lie(self, item: Item) -> None:
        """Let a node of the site have an item that nobody made, and hand it on."""
        self.truth.lies.add(item.dot.id)
        host = self.world.hosts[self.scenario.names[-1]]  # one liar is enough

        def accept(transaction: Transaction) -> None:
            if not host.item_store.context.holds(*item.dot):
                host.item_store.accept(transaction, item, "nobody")

        self.truth.liars.add(host.name)  # who believes its own lies; nobody else may
        self.world.act(host.name, accept)

    def _make_lie(self, first: int, second: int, size: int = 0) -> Item:
        self._count += 1
        victim = self.node(first % (self.scenario.nodes - 1))  # not the liar itself
        host = self.world.hosts[victim]
        epoch = host.medium.epoch + (second % 3 == 0)
        dot = Dot(victim, epoch, (900, 500_000)[second >> 4 & 1] + self._count)
        if size or second & 1:
            vector = _encode_readings((255, 255)) + bytes(size)
            number = 60_000 + self._count
            known = self.world.vocabulary_hash
            body = encode_body(NotificationBody("dog-0", 1, number, host.time, 0, known, vector))
            kind = NOTIFICATION
        else:
            owner = self.person(second)
            fields = (owner, "all", "lie", host.time, 0, self.world.vocabulary_hash)
            body = encode_body(
                SubscriptionBody(*fields, bytes.fromhex("410000008000000191ffab"), {})
            )
            kind = SUBSCRIPTION
        return Item(dot, kind, NEVER, body, bytes(64))

    @fault("forged-item")
    def forged_item(self, first: int, second: int) -> None:
        """Let a node of the site hand on what its origin never made."""
        self._lie(self._make_lie(first, second))

    @fault("oversized")
    def oversized(self, first: int, second: int) -> None:
        """Send frames and items larger than allowed."""
        one, other = self.pair(first, second)
        if second & 1:
            self._lie(self._make_lie(first, second, MAX_BODY))
        elif second & 2:
            payload = bytes([0x41]) + bytes(300_000)
            self.world.give(other, Message(one, PEERS + other, payload))
        else:
            device = self.device(first)
            payload = bytes([0x82, 0, KEY_ID]) + bytes(2 * frames.MAX_LENGTH)
            self.world.give(other, Message(device, f"{DEVICES}{device}/nv", payload))

    @fault("mad-node")
    def mad_node(self, first: int, second: int) -> None:
        """Hand on an item of one's own, well signed and senseless, in whatever exchange is open."""
        host = self.world.hosts[self.scenario.names[-1]]
        item = self._make_nonsense(Random(first << 16 | second), host)
        self.truth.lies.add(item.dot.id)
        self.truth.liars.add(host.name)
        body = encode_item_batch(ItemBatch((), (), (SentItem(item, 0, 1),)))

        def slip(transaction: Transaction) -> None:
            for contact in host.peers.sessions.values():
                contact.channel.send(transaction, ITEMS, body)

        self.world.act(host.name, slip)

    def _make_nonsense(self, rng: Random, host: HostedNode) -> Item:
        self._count += 1
        known = self.world.vocabulary_hash
        kind = rng.choice(list(KINDS))
        noise = rng.randbytes(rng.randrange(60))
        body = {
            SUBSCRIPTION: encode_body(
                SubscriptionBody("ghost", "all", "?", host.time, 0, known, noise, {"top": "many"})
            ),
            NOTIFICATION: encode_body(NotificationBody("ghost", 1, 1, host.time, 0, known, noise)),
            DELIVERED: encode_body(DeliveredBody("ghost", [["nobody", 1, self._count]])),
            VOCABULARY: encode_body(VocabularyBody(known, "{}")),
        }.get(kind, noise)
        if rng.random() < 0.5:
            body = rng.choice((noise, body[:-1], body + b"\0", cbor2.dumps([noise] * 7)))
        expires = rng.choice((NEVER, 1, host.time + 60_000, 1 << 62))
        dot = Dot(host.name, host.medium.epoch, 5_000 + self._count)
        item = Item(dot, kind, expires, body)
        return replace(item, signature=host.keys.sign(item.signed))

    # A device with a good key ---------------------------------------------------------------

    @fault("mad-device")
    def mad_device(self, first: int, second: int) -> None:
        """Say something under a good tag: a hello or readings, possible and impossible."""
        rng = Random(second)
        node = self.node(first)
        for _ in range(1 + second % 3):
            what, kind, epoch, sequence, body = self._rave(rng)
            link = frames.Link(MAD, node, KEY_ID, self.world.find_secret(MAD, node))
            answer = self.world.hosts[node].find_answer(MAD)
            payload = seal_as_device(link, answer, kind, (epoch, sequence), body)
            self.world.give(node, Message(MAD, f"{DEVICES}{MAD}/{what}", payload))

    def _rave(self, rng: Random) -> tuple[str, int, int, int, bytes]:
        """Return a topic, and kind, epoch, number and body of a frame."""
        epoch = rng.choice((1, 2, 3, _LAST_EPOCH))
        sequence = rng.choice((1, 7, 0xFFFF, 0x10000, 0xFFFFFFFF))
        thought = rng.randrange(6)
        if thought == 0:
            return "nv", frames.NOTIFICATIONS, epoch, sequence, rng.randbytes(rng.randrange(80))
        if thought == 1:
            return "nv", frames.NOTIFICATIONS, epoch, sequence, bytes([255]) * _LARGEST
        if thought == 2:
            return "hello", frames.MESSAGE, epoch, sequence, rng.randbytes(rng.randrange(80))
        if thought == 3:
            sane = {1: [3, 0], 2: [1, 0]}
            fields: dict[str, object] = {
                "device": rng.choice((MAD, "dog-0")),
                "epoch": epoch,
                "vocabulary": self.world.vocabulary_hash,
                "senses": rng.choice((sane, {1: [0xFFFF, 0xFFFF]}, {})),
                "capacity": rng.choice((0, 1, 1024, 0xFFFF)),
                "languages": [0],
                "firmware": "x" * rng.choice((1, 3_000)),
            }
            return "hello", frames.MESSAGE, epoch, sequence, encode_message("hello", fields)
        values = (rng.randrange(256), rng.randrange(256))
        vector = bytearray(_encode_readings(values))
        vector[2:4] = (sequence & 0xFFFF).to_bytes(2, "big")
        if thought == 4:  # older than anything
            vector[4] = vector[5] = 255
        body = frames.join_vectors([bytes(vector)])
        return "nv", frames.NOTIFICATIONS, epoch, sequence, body

    # A stranger -----------------------------------------------------------------------------

    @fault("forged-frame")
    def forged_frame(self, first: int, second: int) -> None:
        """Let a stranger speak as a node."""
        one, other = self.pair(first, second)
        payload = Random(second).randbytes(1 + second % 400)
        self.world.give(other, Message(one, PEERS + other, payload))

    @fault("forged-reading")
    def forged_reading(self, first: int, second: int) -> None:
        """Let a stranger speak as a device."""
        device = self.world.devices[self.device(first)]
        if device.node:
            kind = ("nv", "hello")[second & 1]
            payload = bytes([0x82]) + Random(second).randbytes(second % 300)
            self.world.give(
                device.node, Message(device.name, f"{DEVICES}{device.name}/{kind}", payload)
            )

    def _hear(self, message: Message) -> None:
        """Remember what goes over the air, as anybody near could."""
        self._heard.append(message)
        del self._heard[:-_KEPT]

    def forget_heard(self, device: str) -> None:
        """Forget what was overheard of a device."""
        self._heard = [message for message in self._heard if message.sender != device]

    def _play_back(self, first: int, second: int, prefix: str) -> None:
        heard = [message for message in self._heard if message.topic.startswith(prefix)]
        if heard:
            self.world.give(self.node(first), heard[second % len(heard)])

    @fault("replayed-frame")
    def replayed_frame(self, first: int, second: int) -> None:
        """Let an old frame between nodes come again, to anybody."""
        self._play_back(first, second, PEERS)

    @fault("replayed-reading")
    def replayed_reading(self, first: int, second: int) -> None:
        """Let an old frame of a device come again."""
        self._play_back(first, second, DEVICES)


@fault("held-up")
def hold_up(play: Byzantine, first: int, second: int) -> None:
    """Let somebody between a device and its node keep all its frames for a while, in order."""
    play.world.held_up[play.device(first)] = play.world.now + 5_000 + second


def _encode_readings(values: tuple[int, int]) -> bytes:
    readings = [Reading(attribute, (value,) * 4) for attribute, value in enumerate(values)]
    return notification.encode(NotificationVector(1, readings))


__all__ = ["Byzantine"]
