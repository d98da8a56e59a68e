"""Nodes wired in memory: real cores, dictionaries for disks, links that a test cuts and loses.

Nothing here checks anything; `checks.py` does. Time is a number that the test moves.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from denwatch.node.core.events import (
    PEERS,
    Action,
    ClockSet,
    Count,
    Event,
    Log,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Reader,
    Tick,
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
    decode_body,
    encode_body,
)
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.peers import PeerProtocol, PeerSettings
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.clock import Clocks

START = 1_700_000_000_000


class Disk:
    """A store: spaces of keys, in the order of keys."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes]] = {}

    def get(self, space: str, key: bytes) -> bytes | None:
        return self.spaces.get(space, {}).get(key)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self.spaces.get(space, {})):
            if key.startswith(prefix):
                yield key, self.spaces[space][key]

    def apply(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Write):
                if action.value is None:
                    self.spaces.get(action.space, {}).pop(action.key, None)
                else:
                    self.spaces.setdefault(action.space, {})[action.key] = action.value


class Ring:
    """Keys of a small world: signatures are HMACs, which is enough to tell true from forged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.unknown: set[str] = set()

    def sign(self, data: bytes) -> bytes:
        return _sign(self.name, data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        return origin not in self.unknown and hmac.compare_digest(_sign(origin, data), signature)

    def knows_node(self, node: str) -> bool:
        return node not in self.unknown

    def peer_secret(self, node: str) -> bytes | None:
        if node in self.unknown:
            return None
        return hashlib.sha256("|".join(sorted((self.name, node))).encode()).digest()

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        secret = self.peer_secret(node)
        return () if secret is None else (secret,)


def _sign(name: str, data: bytes) -> bytes:
    return hmac.new(b"key of " + name.encode(), data, "sha512").digest()


class Wants:
    """Who waits for what: a subscriber wants what a test says, until a mark says that it has it."""

    def __init__(self) -> None:
        self.by_dot: dict[Dot, dict[str, int]] = {}

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:  # noqa: ARG002
        return self.by_dot.get(dot, {})


@dataclass
class Host:
    """A node with its disk. `restart` builds the node anew from the disk alone."""

    name: str
    settings: PeerSettings
    disk: Disk = field(default_factory=Disk)
    epoch: int = 0
    node_type: type[Node] = Node
    part_type: type[PeerProtocol] = PeerProtocol
    logs: list[Log] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ring = Ring(self.name)
        self.wants = Wants()
        self.restart(START)

    def restart(self, now: int) -> None:
        self.epoch += 1
        self.clocks = Clocks(self.name, self.epoch)
        self.clocks.restore(self.disk, now)
        self.item_store = ItemStore(self.name, self.epoch, self.ring.sign, self.clocks.localise)
        self.part = self.part_type(
            self.item_store, self.ring, self.wants, self.clocks, self.settings
        )
        self.node = self.node_type(self.item_store, self.disk, Protocols(peers=self.part))
        self.node.restore()

    def handle(self, event: Event, now: int) -> list[Publish]:
        return self.settle(self.node.handle(event, now))

    def act(self, now: int, act: Callable[[Transaction], object]) -> list[Publish]:
        """Do something of another part's, in a transaction of its own."""
        return self.settle(self.node.perform(act, now))

    def settle(self, actions: list[Action]) -> list[Publish]:
        """Commit, then publish."""
        self.disk.apply(actions)
        self.logs += [action for action in actions if isinstance(action, Log)]
        self.counts += [action for action in actions if isinstance(action, Count)]
        return [action for action in actions if isinstance(action, Publish)]

    # What other parts do ----------------------------------------------------------------------

    def subscribe(self, now: int, owner: str, life: int = 0) -> tuple[Item, list[Publish]]:
        body = SubscriptionBody(owner, "", "words", now, 0, b"12345678", b"vector", {})
        return self._originate(now, SUBSCRIPTION, life, encode_body(body))

    def notify(self, now: int, number: int, life: int = 0) -> tuple[Item, list[Publish]]:
        body = NotificationBody("device", 1, number, now, 0, b"12345678", b"vector")
        return self._originate(now, NOTIFICATION, life, encode_body(body))

    def mark(self, now: int, owner: str, dot: Dot, life: int = 0) -> tuple[Item, list[Publish]]:
        body = DeliveredBody(owner, [list(dot)])
        return self._originate(now, DELIVERED, life, encode_body(body))

    def remove(self, now: int, dot: Dot, kind: int = SUBSCRIPTION) -> list[Publish]:
        return self.act(
            now, lambda transaction: self.item_store.remove(transaction, kind, dot, "removed")
        )

    def _originate(self, now: int, kind: int, life: int, body: bytes) -> tuple[Item, list[Publish]]:
        made: list[Item] = []
        expires = now + life if life else 0
        published = self.act(
            now,
            lambda transaction: made.append(
                self.item_store.originate(transaction, kind, expires, body)
            ),
        )
        return made[0], published

    def list_dots(self, kind: int) -> set[Dot]:
        return {
            Dot(*run, sequence)
            for run, held in self.item_store.live[kind].items()
            for sequence in held
        }


class Network:
    """Hosts, and the frames between them. `pass_on(sender, frame)` may lose or change one."""

    def __init__(
        self,
        names: str,
        settings: PeerSettings | None = None,
        node_type: type[Node] = Node,
        part_type: type[PeerProtocol] = PeerProtocol,
    ) -> None:
        self.now = START
        settings = settings or PeerSettings(strategy="epidemic", chunk=1_024, retry=1_000)
        self.hosts = {
            name: Host(name, settings, node_type=node_type, part_type=part_type) for name in names
        }
        self.links: set[frozenset[str]] = set()
        self.queues: dict[tuple[str, str], deque[bytes]] = {}
        self.sent: list[tuple[str, str, bytes]] = []

    def link(self, first: str, second: str) -> None:
        if frozenset((first, second)) in self.links:
            return
        self.links.add(frozenset((first, second)))
        for one, other in ((first, second), (second, first)):
            self.queues[one, other] = deque()
        for one, other in ((first, second), (second, first)):
            self.post(one, self.hosts[one].handle(PeerUp(other), self.now))

    def cut(self, first: str, second: str) -> None:
        if frozenset((first, second)) not in self.links:
            return
        self.links.discard(frozenset((first, second)))
        for one, other in ((first, second), (second, first)):
            self.queues[one, other].clear()
            self.hosts[one].handle(PeerDown(other), self.now)

    def restart(self, name: str) -> None:
        """Kill a host and start it again from its disk: its links are gone."""
        for link in [link for link in self.links if name in link]:
            self.links.discard(link)
            (other,) = link - {name}
            self.queues[name, other].clear()
            self.queues[other, name].clear()
            self.hosts[other].handle(PeerDown(name), self.now)
        self.hosts[name].restart(self.now)

    def post(self, sender: str, published: list[Publish]) -> None:
        for each in published:
            receiver = each.topic.removeprefix(PEERS)
            if frozenset((sender, receiver)) in self.links:
                self.sent.append((sender, receiver, each.payload))
                self.queues[sender, receiver].append(each.payload)

    def deliver(self, sender: str, receiver: str) -> bool:
        """Bring one frame over; return whether there was one."""
        queue = self.queues.get((sender, receiver))
        if not queue:
            return False
        self.hand(sender, receiver, queue.popleft())
        return True

    def hand(self, sender: str, receiver: str, payload: bytes) -> None:
        event = Message(sender, PEERS + receiver, payload)
        self.post(receiver, self.hosts[receiver].handle(event, self.now))

    def tick(self, milliseconds: int = 1_000) -> None:
        self.now += milliseconds
        for name in sorted(self.hosts):
            self.post(name, self.hosts[name].handle(Tick(), self.now))

    def set_clock(self, name: str, offset: int) -> None:
        self.post(name, self.hosts[name].handle(ClockSet(offset), self.now))

    def run(self, limit: int = 20_000) -> int:
        """Bring all frames over, until nobody says anything more; return how many."""
        count = 0
        while count < limit:
            moved = [self.deliver(*way) for way in sorted(self.queues)]
            if not any(moved):
                return count
            count += sum(moved)
        raise AssertionError("the nodes never come to rest")

    def heal(self) -> None:
        """Link everybody with everybody, and wait until all is said."""
        for first in sorted(self.hosts):
            for second in sorted(self.hosts):
                if first < second:
                    self.link(first, second)
        for _ in range(3):
            self.run()
            self.tick(70_000)
            self.run()


__all__ = ["START", "Disk", "Host", "Network", "Ring", "decode_body"]
