"""A list of messages through the field: each a reading at one node that one person elsewhere wants.

How lists made for other simulators are put on real nodes: everybody asks for the readings with
their own number, and a message is a reading with the number of its receiver. A message has no
payload of its own here; the sizes of the list count where bytes of messages are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from denwatch.node.core.events import Log
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.protocol import notification, subscription
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

from simulator.calendar import START
from simulator.hosted_node import HostedNode
from simulator.traces import Parcel
from simulator.world import World

_EVENT, _ATTRIBUTE = 2, 7  # fire, east: the first wide attribute of the rescue vocabulary


@dataclass
class Score:
    """What became of the messages; times in ms."""

    made: int = 0
    latencies: dict[str, int] = field(default_factory=dict)  # by message
    relays: int = 0  # of messages, the last hop too
    payload: int = 0  # bytes of messages that were relayed, by the list
    bytes: int = 0  # all that went over links

    @property
    def delivery(self) -> float:
        """The share that arrived."""
        return len(self.latencies) / self.made if self.made else 0.0

    @property
    def overhead(self) -> float:
        """(relayed - delivered) / delivered."""
        count = len(self.latencies)
        return (self.relays - count) / count if count else 0.0

    def find_latency(self, share: float) -> float:
        """Return the latency in seconds that this share of the delivered is within."""
        ordered = sorted(self.latencies.values())
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000 if ordered else 0.0


class Workload:
    """Puts messages on their way and counts what becomes of them.

    Give `watch` to the world as its watcher, then `open` the post once the nodes are there.
    """

    def __init__(self, parcels: Sequence[Parcel]) -> None:
        self.score = Score(len(parcels))
        self._parcels = list(parcels)
        self._by_item: dict[int, Parcel] = {}

    def watch(self, host: HostedNode, log: Log, time: int) -> None:  # noqa: ARG002 - a Watch
        """See what nodes log: which messages go from node to node."""
        if log.kind == "transfer" and not log.fields["is_out"]:
            parcel = self._by_item.get(int(str(log.fields["item"])))
            if parcel is not None:
                self.score.relays += 1
                self.score.payload += parcel.size

    def open(self, world: World, names: list[str]) -> None:
        """Let everybody ask for their messages, known everywhere, and plan all messages."""
        asked = [
            self._subscribe(world, node, number)
            for number, node in enumerate(names)
            if any(parcel.target == number for parcel in self._parcels)
        ]
        for node in names:
            known = [item for item in asked if item.dot.origin != node]
            world.act(node, _accept_all(world.hosts[node], known))
        for parcel in self._parcels:
            world.calendar.enter(START + parcel.time, self._mail, world, names, parcel)

    def _subscribe(self, world: World, node: str, number: int) -> Item:
        person = world.add_person(f"reader-{number}", node)
        wanted = SubscriptionVector(_EVENT, [Predicate(_ATTRIBUTE, number, number, wide=True)])
        host = world.hosts[node]
        body = SubscriptionBody(
            person.name,
            "all",
            f"messages for {number}",
            host.time,
            0,
            world.vocabulary_hash,
            subscription.encode(wanted),
            {},
        )
        made: list[Item] = []

        def make(transaction: Transaction) -> None:
            made.append(
                host.item_store.originate(transaction, SUBSCRIPTION, NEVER, encode_body(body))
            )

        world.act(node, make)
        return made[0]

    def _mail(self, world: World, names: list[str], parcel: Parcel) -> None:
        host = world.hosts[names[parcel.source]]
        reading = Reading(_ATTRIBUTE, (parcel.target,) * 4, wide=True)
        sequence = len(self._by_item) + 1

        def make(transaction: Transaction) -> None:
            body = NotificationBody(
                "post",
                1,
                sequence,
                transaction.now,
                0,
                world.vocabulary_hash,
                notification.encode(NotificationVector(_EVENT, [reading])),
            )
            expires = transaction.now + parcel.life
            (item,) = host.item_store.originate_many(transaction, NOTIFICATION, expires, [body])
            self._by_item[item.id] = parcel

        world.act(host.name, make)

    def finish(self, world: World) -> Score:
        """Return what became of all."""
        for person in world.people.values():
            for note in person.notes.values():
                parcel = self._by_item[int(note.id, 16)]
                self.score.latencies[parcel.name] = note.time - START - parcel.time
        self.score.bytes = world.count_bytes()
        return self.score


def _accept_all(host: HostedNode, items: Iterable[Item]) -> Callable[[Transaction], None]:
    def accept(transaction: Transaction) -> None:
        for item in items:
            host.item_store.accept(transaction, item, item.dot.origin)

    return accept
