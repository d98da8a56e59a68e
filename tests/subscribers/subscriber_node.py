"""A hosted node with nothing but its subscribers' protocol, and tools to talk to it.

A feeder stands in for devices and peers: it only brings items in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    REPLIES,
    REQUESTS,
    Acknowledged,
    Action,
    Event,
    Listening,
    Message,
    Publish,
    Tick,
)
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    SUBSCRIPTION,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.node.core.subscriptions import SingleClock, SubscriberSettings
from denwatch.protocol import notification
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.disk import FieldMedium
from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import Ring, Roster

START = 1_800_000_000_000
DAY = 86_400_000


class Feeder:
    """Devices and peers: each message stands for an item that is waiting in `items`."""

    def __init__(self, item_store: ItemStore) -> None:
        self.item_store = item_store
        self.items: list[Any] = []
        self.made: list[Item] = []

    def receive(self, transaction: Transaction, message: Message) -> None:  # noqa: ARG002
        thing = self.items.pop(0)
        if isinstance(thing, Item):
            self.item_store.accept(transaction, thing, "peer")
        elif isinstance(thing, tuple):
            kind, dot, reason = thing
            self.item_store.remove(transaction, kind, dot, reason)
        else:
            body, expires = thing.body, thing.expires
            item = self.item_store.originate(
                transaction, NOTIFICATION, expires, encode_body(body), is_signed=False
            )
            self.made.append(item)


class Fresh:
    """A notification that a device is about to bring."""

    def __init__(self, body: NotificationBody, expires: int) -> None:
        self.body = body
        self.expires = expires


class SubscriberNode(HostedNode):
    """One node with subscribers only; `now` is moved by the test."""

    def __init__(self, medium: FieldMedium | None = None, **options: Any) -> None:
        settings = options.get("settings") or SubscriberSettings()
        name = options.get("name", "a")
        super().__init__(
            name,
            Ring(name, options.get("roster") or Roster()),
            options.get("vocabulary"),
            HostSettings(subscribers=settings, devices=None, peers=None),
            roles=options.get("roles"),
            clock=options.get("clock") or SingleClock(),
        )
        self.options = options
        self.medium = medium or self.medium
        self.now = START
        self.listening: dict[str, None] = {}
        self.sent: list[Publish] = []
        self.trace: list[list[Action]] = []
        self.start(self.now)
        self.feeder = Feeder(self.item_store)
        self.node.receivers[DEVICES] = self.feeder.receive

    def reopen(self) -> SubscriberNode:
        """Return the node as it is after a crash; the next run."""
        self.die()
        node = SubscriberNode(self.medium, **self.options)
        node.now = self.now
        return node

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        self.trace.append(list(actions))
        return super().settle(actions)

    def do(self, event: Event) -> list[Publish]:
        """Let the node handle an event; return what it published."""
        published = self.handle(event, self.now)
        self.sent += published
        return published

    # Subscribers ----------------------------------------------------------------------------

    def ask(
        self,
        owner: str,
        payload: str | bytes | dict[str, Any],
        sender: str | None = None,
        topic: str = REQUESTS,
    ) -> Any:
        """Send a request; return the reply, for which somebody listens."""
        if isinstance(payload, dict):
            payload = json.dumps(payload)
        data = payload.encode() if isinstance(payload, str) else payload
        self.listen(REPLIES + owner)
        before = len(self.sent)
        self.do(Message(owner if sender is None else sender, topic + owner, data))
        replies = [p for p in self.sent[before:] if p.topic == REPLIES + owner]
        return json.loads(replies[-1].payload) if replies else None

    def listen(self, topic: str) -> list[Publish]:
        if topic in self.listening:
            return []
        self.listening[topic] = None
        return self.do(Listening(topic, True))

    def leave(self, topic: str) -> None:
        if self.listening.pop(topic, 0) is None:
            self.do(Listening(topic, False))

    def attach(self, owner: str) -> list[Publish]:
        return self.listen(NOTES + owner)

    def detach(self, owner: str) -> None:
        self.leave(NOTES + owner)

    def ack(self, publish: Publish) -> list[Publish]:
        return self.do(Acknowledged(publish.topic, publish.token))

    def tick(self, ms: int = 1000) -> list[Publish]:
        self.now += ms
        return self.do(Tick())

    # Items ----------------------------------------------------------------------------------

    def bring(self, *things: Any) -> list[Publish]:
        published: list[Publish] = []
        for thing in things:
            self.feeder.items.append(thing)
            published += self.do(Message("x", "dens/1/wd/x/nv", b""))
        return published

    def read(
        self,
        vector: NotificationVector,
        *,
        at: int | None = None,
        life: int = DAY,
        device: str = "wd1",
        doubt: int = 0,
    ) -> tuple[Item, list[Publish]]:
        """Let a device bring a reading; return its item and what was published."""
        moment = self.now if at is None else at
        count = len(self.feeder.made) + 1
        body = NotificationBody(
            device,
            1,
            count,
            moment,
            doubt,
            self.vocabularies.own_hash,
            notification.encode(vector),
        )
        published = self.bring(Fresh(body, moment + life))
        return self.feeder.made[-1], published


def patient(
    vocabulary: Vocabulary | None = None, faults: tuple[str, ...] = (), **values: Any
) -> NotificationVector:
    """Return a patient's reading; a tuple of four values is one in doubt."""
    vocabulary = vocabulary or load_shipped("rescue")
    event = vocabulary.events["patient"]
    readings = []
    for attribute in sorted(event.attributes.values(), key=lambda a: a.bit):
        if attribute.name in values:
            value = values[attribute.name]
            if isinstance(value, str):
                codes = (attribute.symbols.index(value),) * 4
            elif isinstance(value, tuple):
                a, b, c, d = (attribute.to_code(v) for v in value)
                codes = (a, b, c, d)
            else:
                codes = (attribute.to_code(value),) * 4
            readings.append(Reading(attribute.bit, codes, attribute.wide))
    mask = sum(1 << event.attributes[name].bit for name in faults)
    return NotificationVector(event.number, readings, faults=mask)


def make_notification(
    node: SubscriberNode,
    vector: NotificationVector,
    dot: Dot,
    *,
    at: int,
    life: int = DAY,
    device: str = "wd9",
) -> Item:
    """Return a notification of another node."""
    body = NotificationBody(
        device, 1, dot.sequence, at, 0, node.vocabularies.own_hash, notification.encode(vector)
    )
    return Item(dot, NOTIFICATION, at + life, encode_body(body), b"signed")


def make_subscription(
    node: SubscriberNode,
    owner: str,
    vector: bytes,
    dot: Dot,
    *,
    created: int,
    expires: int = 0,
    role: str = "open",
    **options: Any,
) -> Item:
    """Return a subscription of another node."""
    body = SubscriptionBody(
        owner, role, "as it was said", created, 0, node.vocabularies.own_hash, vector, options
    )
    return Item(dot, SUBSCRIPTION, expires, encode_body(body), b"signed")


def make_receipts(owner: str, notes: list[Dot], dot: Dot, expires: int, proof: bytes = b"") -> Item:
    """Return the marks of another node, which proves by the same bytes that it had them all."""
    body = DeliveredBody(owner, [[*note, proof] if proof else [*note] for note in notes])
    return Item(dot, DELIVERED, expires, encode_body(body), b"signed")


def load(publish: Publish) -> Any:
    """Return a message's content."""
    return json.loads(publish.payload)


def list_ids(published: list[Publish], owner: str) -> list[str]:
    """Return the ids of the notifications that went to an owner, in order."""
    return [load(p)["id"] for p in published if p.topic == NOTES + owner]
