"""Real nodes wired in memory, whose logs go to the disk: a run that a script decides to the ms.

Each node is the durable node that a process runs, with a store in memory and the node's own log
writer. Links, people and devices are the script's: a frame between nodes takes no time, an app
acknowledges at once while it is attached. Nothing here reads a clock or draws at random, so the
same script writes the same logs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from denwatch.client.publisher import SimulatedDevice, parse_reading
from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.node.core.devices import Devices, DeviceSettings, VocabularySenses
from denwatch.node.core.devices.contracts import list_senses
from denwatch.node.core.interface import (
    DEVICES,
    NOTES,
    PEERS,
    REQUESTS,
    Acknowledged,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Publish,
)
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import NOTIFICATION, NotificationBody, decode_body
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.peers import PeerProtocol, PeerSettings
from denwatch.node.core.subscribers import Subscribers, SubscriberSettings
from denwatch.node.core.transaction import Added, Removed
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.log import DiskFiles, Writer
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.store import MemoryStore
from denwatch.protocol.frames import Link


class SmallKeys:
    """Everybody's keys in a world where all are known: made from names."""

    def __init__(self, node: str) -> None:
        self._node = node

    def sign(self, data: bytes) -> bytes:
        """Sign what this node makes."""
        return _sign(self._node, data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node signed this."""
        return hmac.compare_digest(_sign(origin, data), signature)

    def knows_node(self, node: str) -> bool:  # noqa: ARG002
        """Return that every node is known."""
        return True

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret of two nodes."""
        return hashlib.sha256("|".join(sorted((self._node, node))).encode()).digest()

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the one secret there is."""
        secret = self.peer_secret(node)
        return () if secret is None else (secret,)

    def list_key_ids(self, device: str) -> list[int]:  # noqa: ARG002
        """Return the one key that each device has."""
        return [1]

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return what a device and this node share."""
        return Link(device, self._node, key_id, hashlib.sha256(device.encode()).digest())


def _sign(node: str, data: bytes) -> bytes:
    return hmac.new(b"key of " + node.encode(), data, "sha512").digest()


class Host:
    """One node: its clock is `skew` ms ahead of the script's."""

    def __init__(
        self, network: Network, name: str, folder: Path, strategy: str, skew: int, keep: int
    ) -> None:
        self.name = name
        self.skew = skew
        self.keys = SmallKeys(name)
        self.taken: list[tuple[str, int]] = []  # device and id of what was read here
        self.store = store = MemoryStore(name)
        clocks = Clocks(name, store.epoch)
        item_store = ItemStore(name, store.epoch, self.keys.sign, clocks.localise)
        vocabularies = Vocabularies(network.vocabulary)
        subscribers = Subscribers(
            item_store,
            vocabularies,
            clock=clocks,
            settings=SubscriberSettings(held_limit=network.held_limit),
        )
        devices = Devices(
            item_store,
            self.keys,
            VocabularySenses(vocabularies.find, vocabularies.agree),
            clocks.localise,
            DeviceSettings(keep=keep),
        )
        peers = PeerProtocol(
            item_store, self.keys, subscribers, clocks, PeerSettings(strategy=strategy)
        )
        node = Node(item_store, store, Protocols(subscribers, devices, peers), self._watch)
        self.durable_node = DurableNode(node, store, None, lambda _: None, clocks.stamp)
        self.writer = Writer(store, DiskFiles(folder))

    def _watch(self, change: Added | Removed) -> None:
        """Note what devices bring."""
        if isinstance(change, Added) and not change.source:
            for item in change.items:
                if item.kind == NOTIFICATION:
                    body = decode_body(NotificationBody, item.body)
                    self.taken.append((body.device, item.id))

    def list_taken(self, device: str) -> list[int]:
        """Return the ids of a device's notifications that this node took, in order."""
        return [id for name, id in self.taken if name == device]


class Network:
    """Hosts, links, people and devices, at one moment after the other."""

    def __init__(
        self,
        folder: Path,
        nodes: Mapping[str, int],
        *,
        start: int,
        strategy: str,
        keep: int,
        held_limit: int = 1_000_000,
    ) -> None:
        """`nodes` are names and how far their clocks are ahead; `keep` is a notification's life."""
        self.now = start
        self.held_limit = held_limit
        self.vocabulary: Vocabulary = load_shipped("rescue")
        self.is_listening = True  # apps acknowledge what they get
        self._links: set[frozenset[str]] = set()
        self._places: dict[str, str] = {}
        self._devices: dict[str, tuple[str, SimulatedDevice]] = {}
        self.hosts: dict[str, Host] = {}
        for name, skew in nodes.items():
            path = folder / name
            path.mkdir(parents=True, exist_ok=True)
            self.hosts[name] = host = Host(self, name, path, strategy, skew, keep)
            host.durable_node.restore(self.now + skew)
            fields = {"software": "denwatch script", "strategy": strategy}
            host.durable_node.log("start", fields, self.now + skew)

    # Time -----------------------------------------------------------------------------------

    def wait(self, until: int) -> None:
        """Let time go on, a second at a time."""
        while self.now < until:
            self.now = min(until, self.now + 1_000)
            for host in self.hosts.values():
                host.durable_node.tick(self.now + host.skew)
                self._flush(host)

    def close(self, *, crashed: str = "") -> None:
        """End: all nodes stop in order and close their logs, but one that crashes."""
        for host in self.hosts.values():
            if host.name == crashed:
                host.store.commit()
                host.writer.move(self.now + host.skew)
            else:
                host.durable_node.log("stop", {"reason": "the end"}, self.now + host.skew)
                host.writer.close(self.now + host.skew)

    # Nodes ----------------------------------------------------------------------------------

    def link(self, one: str, other: str) -> None:
        """Let two nodes meet, and exchange what they want."""
        self._links.add(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            self._feed(self.hosts[here], PeerUp(there))

    def cut(self, one: str, other: str) -> None:
        """Part two nodes."""
        self._links.discard(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            self._feed(self.hosts[here], PeerDown(there))

    # People ---------------------------------------------------------------------------------

    def attach(self, person: str, node: str) -> None:
        """Let a subscriber come to a node."""
        self._places[person] = node
        self._feed(self.hosts[node], Listening(NOTES + person, True))

    def detach(self, person: str) -> None:
        """Let a subscriber leave."""
        self._feed(self.hosts[self._places.pop(person)], Listening(NOTES + person, False))

    def ask(self, person: str, node: str, words: str) -> None:
        """Let a subscriber ask a node for something."""
        self._feed(self.hosts[node], Message(person, REQUESTS + person, words.encode()))

    # Devices --------------------------------------------------------------------------------

    def connect(self, device: str, node: str) -> None:
        """Let a device that senses everything say hello to a node."""
        host = self.hosts[node]
        link = host.keys.link_for(device, 1)
        assert link is not None, "every device has a key here"
        made = SimulatedDevice(
            link,
            Vocabularies(self.vocabulary).own_hash,
            list_senses(self.vocabulary),
            self.now * 1_000,
            capacity=4_096,
        )
        self._devices[device] = node, made
        self._feed(host, Listening(f"{DEVICES}{device}/sv", True))
        self._send(device)

    def read(self, device: str, words: str) -> bool:
        """Let a device take a reading; return whether anybody's vector let it out."""
        reading = parse_reading(words, self.vocabulary)
        made = self._devices[device][1]
        is_wanted = made.wants(reading)
        if is_wanted:
            made.put(reading, self.now)
            self._send(device)
        return is_wanted

    def _send(self, device: str) -> None:
        node, made = self._devices[device]
        while (message := made.next_message(self.now)) is not None:
            self._feed(self.hosts[node], Message(device, *message))

    # Between --------------------------------------------------------------------------------

    def _feed(self, host: Host, event: Event) -> None:
        host.durable_node.receive_event(event, self.now + host.skew)
        self._flush(host)

    def _flush(self, host: Host) -> None:
        """Commit, and bring what goes out to where it goes, until nobody says anything more."""
        queue = deque([host])
        while queue:
            sender = queue.popleft()
            for publish in sender.durable_node.commit().outgoing:
                for receiver, event in self._route(sender, publish):
                    receiver.durable_node.receive_event(event, self.now + receiver.skew)
                    queue.append(receiver)
            sender.writer.move(self.now + sender.skew)
            sender.store.commit()

    def _route(self, sender: Host, publish: Publish) -> list[tuple[Host, Event]]:
        topic = publish.topic
        if topic.startswith(PEERS):
            name = topic.removeprefix(PEERS)
            if frozenset((sender.name, name)) in self._links:
                return [(self.hosts[name], Message(sender.name, topic, publish.payload))]
            return []
        if topic.startswith(NOTES):
            person = topic.removeprefix(NOTES)
            if not self.is_listening or self._places.get(person) != sender.name:
                return []
        elif topic.startswith(DEVICES):
            device = topic.removeprefix(DEVICES).rpartition("/")[0]
            self._devices[device][1].receive(topic, publish.payload)
        return [(sender, Acknowledged(topic, publish.token))] if publish.token else []
