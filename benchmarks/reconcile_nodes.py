"""Two real node cores for `benchmarks.reconcile`, and what each frame between them costs.

Items of many origins are put into both, with differences; then the two meet, and every byte of
every frame that one publishes to the other is counted by kind. Signatures are stand-ins of the
same length as Ed25519's.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping

from denwatch.node.core.events import (
    PEERS,
    Action,
    Event,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Reader,
    Write,
)
from denwatch.node.core.item_store import ItemStore
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
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.peers import PeerProtocol, PeerSettings
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.wire import FLAG, NAMES

NOW = 1_700_000_000_000
_SECRET = hashlib.sha256(b"the secret of two nodes").digest()
_KINDS = (SUBSCRIPTION,) * 5 + (NOTIFICATION,) * 12 + (DELIVERED,) * 3


def sign(name: str, data: bytes) -> bytes:
    """Return 64 bytes that stand for a signature."""
    return hmac.new(name.encode(), data, "sha512").digest()


class _Disk:
    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes]] = {}

    def get(self, space: str, key: bytes) -> bytes | None:
        return self.spaces.get(space, {}).get(key)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(
            sorted(p for p in self.spaces.get(space, {}).items() if p[0].startswith(prefix))
        )

    def apply(self, actions: list[Action]) -> list[Publish]:
        for action in actions:
            if isinstance(action, Write):
                space = self.spaces.setdefault(action.space, {})
                if action.value is None:
                    space.pop(action.key, None)
                else:
                    space[action.key] = action.value
        return [action for action in actions if isinstance(action, Publish)]


class _Keys:
    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(sign(origin, data), signature)

    def knows_node(self, node: str) -> bool:
        return bool(node)

    def peer_secret(self, node: str) -> bytes | None:
        return _SECRET if node else None

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        return (_SECRET,) if node else ()

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:  # noqa: ARG002
        return {f"medic{dot.sequence % 7}": 200}


class Machine:
    """One node on a dictionary."""

    def __init__(self, name: str, strategy: str) -> None:
        self.name = name
        self.disk = _Disk()
        keys = _Keys()
        clocks = Clocks(name, 1)
        self.item_store = ItemStore(name, 1, lambda data: sign(name, data), clocks.localise)
        settings = PeerSettings(strategy=strategy)
        self.part = PeerProtocol(self.item_store, keys, keys, clocks, settings)
        self.node = Node(self.item_store, self.disk, Protocols(peers=self.part))

    def handle(self, event: Event) -> list[Publish]:
        """Do one transaction."""
        return self.disk.apply(self.node.handle(event, NOW))

    def accept(self, items: list[Item]) -> None:
        """Take items that came some other way."""

        def accept(transaction: Transaction) -> None:
            for item in items:
                self.item_store.accept(transaction, item, "another")

        self.disk.apply(self.node.perform(accept, NOW))

    def remove(self, dots: list[Dot]) -> None:
        """Let subscriptions be removed."""

        def remove(transaction: Transaction) -> None:
            for dot in dots:
                self.item_store.remove(transaction, SUBSCRIPTION, dot, "removed")

        self.disk.apply(self.node.perform(remove, NOW))


def meet(first: Machine, second: Machine) -> Counter[str]:
    """Let two nodes meet, exchange everything and part; return the bytes by kind of frame."""
    sizes: Counter[str] = Counter()
    queue: deque[tuple[Machine, Publish]] = deque()
    others = {first.name: second, second.name: first}
    for one in (first, second):
        queue.extend((one, each) for each in one.handle(PeerUp(others[one.name].name)))
    while queue:
        sender, sent = queue.popleft()
        receiver = others[sender.name]
        sizes[NAMES[sent.payload[0] & ~FLAG]] += len(sent.payload)
        event = Message(sender.name, PEERS + receiver.name, sent.payload)
        queue.extend((receiver, each) for each in receiver.handle(event))
    for one in (first, second):
        one.handle(PeerDown(others[one.name].name))
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
        made.append(Item(dot, kind, 0, item.body, sign(dot.origin, item.signed)))
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
