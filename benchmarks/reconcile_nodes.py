"""Two real node cores for `benchmarks.reconcile`, and what each frame between them costs.

Items of many origins are put into both, with differences; then the two meet, and every byte of
every frame that one publishes to the other is counted by kind. Signatures are stand-ins of the
same length as Ed25519's.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping

from denwatch.node.core.events import (
    PEERS,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Reader,
)
from denwatch.node.core.item_store import Transaction
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
from denwatch.node.core.peers import PeerSettings
from denwatch.node.replication.wire import FLAG, NAMES

from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys, sign_by_name

NOW = 1_700_000_000_000
_KINDS = (SUBSCRIPTION,) * 5 + (NOTIFICATION,) * 12 + (DELIVERED,) * 3


class _SevenMedics:
    """Every notification is wanted by one of seven subscribers."""

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:  # noqa: ARG002
        return {f"medic{dot.sequence % 7}": 200}

    def find_time(self, reader: Reader, dot: Dot) -> int:  # noqa: ARG002
        return 0


class Machine(HostedNode):
    """One node with the peers' protocol alone; it is always `NOW`."""

    def __init__(self, name: str, strategy: str) -> None:
        peers = PeerSettings(strategy=strategy)
        alone = HostSettings(subscribers=None, devices=None, peers=peers)
        super().__init__(name, HmacKeys(name), settings=alone)
        self.pending = _SevenMedics()
        self.start(NOW)

    def accept(self, items: list[Item]) -> None:
        """Accept items that came some other way."""

        def accept(transaction: Transaction) -> None:
            for item in items:
                self.item_store.accept(transaction, item, "another")

        self.act(accept, NOW)

    def remove(self, dots: list[Dot]) -> None:
        """Let subscriptions be removed."""

        def remove(transaction: Transaction) -> None:
            for dot in dots:
                self.item_store.remove(transaction, SUBSCRIPTION, dot, "removed")

        self.act(remove, NOW)


def meet(first: Machine, second: Machine) -> Counter[str]:
    """Let two nodes meet, exchange everything and part; return the bytes by kind of frame."""
    sizes: Counter[str] = Counter()
    queue: deque[tuple[Machine, Publish]] = deque()
    others = {first.name: second, second.name: first}
    for one in (first, second):
        queue.extend((one, each) for each in one.handle(PeerUp(others[one.name].name), NOW))
    while queue:
        sender, sent = queue.popleft()
        receiver = others[sender.name]
        sizes[NAMES[sent.payload[0] & ~FLAG]] += len(sent.payload)
        event = Message(sender.name, PEERS + receiver.name, sent.payload)
        queue.extend((receiver, each) for each in receiver.handle(event, NOW))
    for one in (first, second):
        one.handle(PeerDown(others[one.name].name), NOW)
    return sizes


def make_items(origins: int, items: int) -> list[Item]:
    """Return items of many origins, whose kinds are mixed like those of a long operation."""
    rng = random.Random(7)
    made = []
    for number in range(items):
        dot = Dot(f"node-{number % origins:03d}", 1, number // origins + 1)
        kind = _KINDS[rng.randrange(len(_KINDS))]
        body: SubscriptionBody | NotificationBody | DeliveredBody
        if kind == SUBSCRIPTION:
            words = "patient_temperature is very high"
            body = SubscriptionBody(
                f"medic{number % 7}", "medic", words, NOW, 0, bytes(8), bytes(17), {}
            )
        elif kind == NOTIFICATION:
            body = NotificationBody(f"watchdog{number % 9}", 1, number, NOW, 0, bytes(8), bytes(11))
        else:
            body = DeliveredBody(f"medic{number % 7}", [[dot.origin, 1, max(1, dot.sequence - 1)]])
        item = Item(dot, kind, 0, encode_body(body))
        made.append(Item(dot, kind, 0, item.body, sign_by_name(dot.origin, item.signed)))
    return made


def build_pair(
    origins: int, items: int, differences: int, seed: int, *, strategy: str = "epidemic"
) -> tuple[Machine, Machine]:
    """Return two nodes that met when each origin had made one or two items, and differ since.

    A difference is an item that one of the two lacks (anywhere in its origin's sequence) or, one
    in ten, a subscription of which only one of them knows that it was removed.
    """
    made = make_items(origins, items)
    one, two = Machine("alpha", strategy), Machine("bravo", strategy)
    for machine, start in ((one, 0), (two, origins)):  # so that each has named every run once
        machine.accept(made[start : start + origins])
        meet(one, two)
        meet(one, two)
    rng = random.Random(seed)
    later = made[2 * origins :]
    removed = [item for item in made if item.kind == SUBSCRIPTION]
    removed = rng.sample(removed, min(differences // 10, len(removed)))
    gone = {item.dot for item in removed}
    differing = rng.sample(
        [item for item in later if item.dot not in gone], differences - len(removed)
    )
    lacking: dict[Dot, int] = {item.dot: rng.randrange(2) for item in differing}
    for number, machine in enumerate((one, two)):
        machine.accept([item for item in later if lacking.get(item.dot) != number])
    for item in removed:
        (one, two)[rng.randrange(2)].remove([item.dot])
    return one, two


def count_known(sizes: Counter[str]) -> int:
    """Return the bytes of a contact apart from its payload."""
    return sum(size for name, size in sizes.items() if name != "items")


def list_ids(machine: Machine) -> set[int]:
    """Return the 64-bit ids of what a node has seen, for the ways that know only ids."""
    return {
        Dot(*run, sequence).id
        for run in machine.item_store.context.runs
        for sequence in range(1, 1 + machine.item_store.context.runs[run].base)
    } | {
        Dot(*run, seen.base + 1 + bit).id
        for run, seen in machine.item_store.context.runs.items()
        for bit in range(seen.bitmap.bit_length())
        if seen.bitmap >> bit & 1
    }
