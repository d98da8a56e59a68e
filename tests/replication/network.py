"""Hosted nodes that are peers only, and the links between them, which a test cuts and loses.

Nothing here checks anything; `checks.py` does. Time is a number that the test moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from denwatch.node.core.events import (
    PEERS,
    Action,
    ClockSet,
    Count,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Reader,
    Tick,
)
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
from denwatch.node.core.trust import Proofs, find_key

from simulator.disk import FieldMedium
from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys

START = 1_700_000_000_000


class StatedPending:
    """Who waits for what: a test says so."""

    def __init__(self) -> None:
        self.by_dot: dict[Dot, dict[str, int]] = {}

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:  # noqa: ARG002
        return self.by_dot.get(dot, {})

    def find_time(self, reader: Reader, dot: Dot) -> int:  # noqa: ARG002
        return 0


class PeerNode(HostedNode):
    """A node with the peers' protocol alone, which has run since `START`."""

    keys: HmacKeys
    pending: StatedPending

    def __init__(self, name: str, settings: PeerSettings) -> None:
        alone = HostSettings(subscribers=None, devices=None, peers=settings)
        super().__init__(name, HmacKeys(name), settings=alone)
        self.pending = StatedPending()
        self.counted: list[Count] = []
        self.start(START)

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        self.counted += [action for action in actions if isinstance(action, Count)]
        return super().settle(actions)

    def lose_disk(self) -> None:
        """Let the next start find an empty disk, in a later epoch."""
        epoch, self.medium = self.medium.epoch, FieldMedium()
        self.medium.epoch = epoch
        self.logs.clear()

    # What other protocols do ------------------------------------------------------------------

    def subscribe(self, now: int, owner: str, life: int = 0) -> tuple[Item, list[Publish]]:
        body = SubscriptionBody(owner, "", "words", now, 0, b"12345678", b"vector", {})
        body = self.proofs.sign(body, owner)  # with a key if its owner logged in here
        return self._originate(now, SUBSCRIPTION, life, encode_body(body))

    def notify(self, now: int, number: int, life: int = 0) -> tuple[Item, list[Publish]]:
        body = NotificationBody("device", 1, number, now, 0, b"12345678", b"vector")
        return self._originate(now, NOTIFICATION, life, encode_body(body))

    def deliver(self, now: int, owner: str, dot: Dot, life: int = 0) -> tuple[Item, list[Publish]]:
        body = DeliveredBody(owner, [list(dot)])
        return self._originate(now, DELIVERED, life, encode_body(body))

    def remove(self, now: int, dot: Dot, kind: int = SUBSCRIPTION) -> list[Publish]:
        return self.act(
            lambda transaction: self.item_store.remove(transaction, kind, dot, "removed"), now
        )

    @property
    def proofs(self) -> Proofs:
        found = self.node.protocols.proofs
        assert found is not None
        return found

    def unsubscribe(self, now: int, person: str, dot: Dot) -> bool:
        """Remove a subscription as a person asks; return whether others believe it."""
        item = self.item_store.get(self.store, SUBSCRIPTION, dot)
        assert item is not None
        believed: list[bool] = []
        self.act(
            lambda transaction: believed.append(
                self.proofs.end(transaction, dot, find_key(item), person, "removed")
            ),
            now,
        )
        return believed[0]

    def judge(self, now: int, item: Item) -> tuple[str, str]:
        """Return what is decided about an item of another node, and why."""
        found: list[tuple[str, str]] = []
        judge = self.peers.validator.judge
        self.act(lambda transaction: found.append(judge(transaction, item)), now)
        return found[0]

    def accept(self, now: int, item: Item) -> None:
        """Take an item of another node that is valid."""
        assert self.judge(now, item)[0] == "new"
        self.act(lambda transaction: self.item_store.accept(transaction, item, "peer"), now)

    def originate(self, now: int, kind: int, body: bytes) -> Item:
        return self._originate(now, kind, 0, body)[0]

    def _originate(self, now: int, kind: int, life: int, body: bytes) -> tuple[Item, list[Publish]]:
        made: list[Item] = []
        expires = now + life if life else 0
        published = self.act(
            lambda transaction: made.append(
                self.item_store.originate(transaction, kind, expires, body)
            ),
            now,
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

    def __init__(self, names: str, settings: PeerSettings | None = None) -> None:
        self.now = START
        settings = settings or PeerSettings(strategy="epidemic", chunk=1_024, retry=1_000)
        self.settings = settings
        self.hosts = {name: PeerNode(name, settings) for name in names}
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

    def isolate(self) -> None:
        """Cut all links."""
        for one, other in [sorted(link) for link in self.links]:
            self.cut(one, other)

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
