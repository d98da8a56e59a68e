"""Real nodes wired in memory, whose logs go to the disk: a run that a script decides to the ms.

Each node is the durable node that a process runs, with a store in memory and the node's own log
writer. Links, people and devices are the script's: a frame between nodes takes no time, an app
acknowledges at once while it is attached. Nothing here reads a clock or draws at random, so the
same script writes the same logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from denwatch.client.publisher import SimulatedDevice, parse_reading
from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import (
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
from denwatch.node.core.item_store import Added, Removed
from denwatch.node.core.items import NOTIFICATION, NotificationBody, decode_body
from denwatch.node.core.node import CoreSettings, build_core
from denwatch.node.core.notifications import Vocabularies, list_sensed
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.log import DiskFiles, Writer
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.durable_node import DurableNode

from simulator.keys import HmacKeys
from simulator.memory_store import MemoryStore


class Host:
    """One node: its clock is `skew` ms ahead of the script's."""

    def __init__(
        self, network: Network, name: str, folder: Path, strategy: str, skew: int, keep: int
    ) -> None:
        self.name = name
        self.skew = skew
        self.keys = HmacKeys(name)
        self.taken: list[tuple[str, int]] = []  # device and id of what was read here
        self.store = store = MemoryStore(name)
        clocks = Clocks(name, store.epoch)
        settings = CoreSettings(
            subscribers=SubscriberSettings(held_limit=network.held_limit),
            devices=DeviceSettings(keep=keep),
            peers=PeerSettings(strategy=strategy),
        )
        vocabularies = Vocabularies(network.vocabulary)
        node = build_core(
            name, store, self.keys, vocabularies, clocks, settings, has_room=lambda: True
        )
        node.watch = self._watch
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
            list_sensed(self.vocabulary),
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
        is_wanted = made.matches(reading)
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
            self._devices[device][1].receive(topic, publish.payload, self.now)
        return [(sender, Acknowledged(topic, publish.token))] if publish.token else []


# A run of three nodes with known truth: every hit, miss, cause and time was worked out by hand.
#
# Three nodes that are mostly apart, three people who come and go, two devices. The strategy is
# `spray:1`: a notification waits where it was made until its node meets one where it is wanted,
# so that some of what epidemic copying would have brought is late or missed. Times are seconds
# after the start. `TRUTH` is what an analysis of the logs must say; nothing here computes it.

START = 1_800_000_000_000
END = 1_300
LIFE = 600  # of a notification
LATE = 60  # after so long a delivery is late
STRATEGY = "spray:1"
NODES = ("middle", "north", "south")

CONTACTS = (
    ("north", "middle", 20, 30),
    ("middle", "south", 40, 50),
    ("north", "middle", 60, 70),
    ("north", "south", 100, 110),
    ("north", "middle", 130, 140),
    ("middle", "south", 150, 160),
    ("north", "middle", 210, 220),
    ("north", "south", 300, 310),
    ("north", "middle", 321, 330),
    ("north", "middle", 350, 360),
    ("middle", "south", 370, 380),
    ("middle", "south", 510, 520),
    ("north", "middle", 700, 710),
    ("north", "south", 1_140, 1_150),
    ("middle", "south", 1_200, 1_210),
)
STAYS = (
    ("medic7", "south", 10, END),
    ("chief", "north", 12, 1_262),
    ("chief", "middle", 1_265, END),
    ("medic8", "middle", 14, 200),
    ("medic8", "north", 400, 520),
    ("medic8", "south", 600, END),
)
ASKED = (
    ("medic7", "south", 10, "patient_temperature is high, at least 0.5, named fever"),
    ("chief", "north", 12, "heart_rate is high, at least 0.5, top 1, named rush"),
    ("medic8", "middle", 14, "patient_temperature is low, at least 0.5, named cold"),
    ("medic7", "south", 500, "unsubscribe fever"),
    ("medic8", "south", 610, "oxygen_saturation is low, at least 0.5, named air"),
    ("chief", "north", 1_260, "unsubscribe rush"),
)
BEDS = {"bed-1": "north", "bed-2": "middle"}
SILENT = 1_250  # from here to two seconds later no app acknowledges anything


class Reading(NamedTuple):
    """What a device reads when. `number` is None for what nobody asks for, and stays there."""

    number: int | None
    second: int
    device: str
    words: str


READINGS = (
    Reading(1, 80, "bed-1", "patient patient_temperature=40"),
    Reading(None, 90, "bed-1", "patient patient_temperature=37 heart_rate=80"),
    Reading(2, 120, "bed-1", "patient patient_temperature=40.1"),
    Reading(3, 170, "bed-2", "patient patient_temperature=33"),
    Reading(4, 180, "bed-1", "patient patient_temperature=33.2"),
    Reading(5, 230, "bed-1", "patient heart_rate=130"),
    Reading(6, 240, "bed-1", "patient heart_rate=125"),
    Reading(7, 250, "bed-1", "patient heart_rate=150"),
    Reading(8, 260, "bed-2", "patient heart_rate=160"),
    Reading(9, 340, "bed-1", "patient patient_temperature=39.9"),
    Reading(10, 480, "bed-2", "patient patient_temperature=41"),
    Reading(11, 505, "bed-2", "patient patient_temperature=41.2"),
    Reading(12, 530, "bed-1", "patient patient_temperature=34"),
    Reading(13, 1_000, "bed-2", "patient patient_temperature=33"),
    Reading(14, 1_010, "bed-1", "patient patient_temperature=33.1"),
    Reading(15, 1_220, "bed-2", "patient patient_temperature=33.5"),
    Reading(16, 1_250, "bed-1", "patient heart_rate=170"),
    Reading(17, 1_270, "bed-2", "patient heart_rate=180"),
)


class Truth(NamedTuple):
    """What became of one notification for one person. Times in seconds after the reading."""

    number: int
    subscriber: str
    outcome: str
    cause: str | None
    latency: int | None  # until it was delivered
    best: int | None  # until it could have been delivered at the earliest


TRUTH = (
    # North meets south 20 s later, where medic7 is.
    Truth(1, "medic7", "hit", None, 20, 20),
    # Middle could have carried it (130, 150); it waited for north to meet south at 300.
    Truth(2, "medic7", "late", "replication", 180, 30),
    Truth(3, "medic8", "hit", None, 0, 0),
    # Medic8 left middle before it came there, and came to north at 400.
    Truth(4, "medic8", "late", "away", 220, 220),
    Truth(5, "chief", "hit", None, 0, 0),
    # 125 is a worse match than 130, which still counts.
    Truth(6, "chief", "withheld", "top-k", None, 0),
    Truth(7, "chief", "hit", None, 0, 0),
    # As good as 150, and fresher; middle meets north at 321.
    Truth(8, "chief", "late", "partition", 61, 61),
    # Middle could have carried it (350, 370); north meets south only after it has expired.
    Truth(9, "medic7", "missed", "replication", None, 30),
    # Middle meets south at 510, ten seconds after medic7 has unsubscribed.
    Truth(10, "medic7", "withheld", "withdrawn", None, None),
    # 11 was read after that: nobody wants it, though middle does not know.
    # Expired at 1130; north meets south, where medic8 is, at 1140.
    Truth(12, "medic8", "missed", "expired", None, None),
    # That medic8 is at south is told in the contact itself; the next second takes it into account.
    Truth(13, "medic8", "late", "partition", 201, 200),
    Truth(14, "medic8", "late", "partition", 131, 130),
    # Middle meets nobody any more.
    Truth(15, "medic8", "missed", "partition", None, None),
    Truth(16, "chief", "missed", "unacknowledged", None, 0),
    # Chief has unsubscribed at north, which middle does not know.
    Truth(17, "chief", "wrong", "ended", 0, None),
)
# How many notifications each node ever held: ten were read at north, seven at middle; north gave 1,
# 2 and 14 to south, 4 and 12 to middle, where medic8 had been; middle gave 8 to north, 13 to south.
HELD = {"north": 10 + 1, "middle": 7 + 2, "south": 4}
RELAYS = {
    ("north", "south"): 3,
    ("north", "middle"): 2,
    ("middle", "north"): 1,
    ("middle", "south"): 1,
}


def run_script(folder: Path, skews: dict[str, int] | None = None) -> dict[int, int]:
    """Let it happen; the logs are then below `folder`. Return the ids of readings, by number.

    `skews` says by how many ms nodes' clocks are ahead. South does not stop in order: its last
    segment stays open.
    """
    nodes = {name: (skews or {}).get(name, 0) for name in NODES}
    network = Network(folder, nodes, start=START, strategy=STRATEGY, keep=1_000 * LIFE)
    events = _list_events(network)
    sent: list[int] = []
    for second, number, act in events:
        network.wait(START + 1_000 * second)
        act()
        if number is not None:
            sent.append(number)
    network.wait(START + 1_000 * END)
    network.close(crashed="south")
    return _find_ids(network, sent)


def _list_events(network: Network) -> list[tuple[int, int | None, Callable[[], object]]]:
    events: list[tuple[int, int | None, Callable[[], object]]] = []
    for device, node in BEDS.items():
        events.append((1, None, partial(network.connect, device, node)))
    for person, node, second, words in ASKED:
        events.append((second, None, partial(network.ask, person, node, words)))
    for person, node, begin, end in STAYS:
        events.append((begin, None, partial(network.attach, person, node)))
        if end < END:
            events.append((end, None, partial(network.detach, person)))
    for one, other, begin, end in CONTACTS:
        events.append((begin, None, partial(network.link, one, other)))
        events.append((end, None, partial(network.cut, one, other)))
    events.append((SILENT, None, partial(_set_listening, network, False)))
    events.append((SILENT + 2, None, partial(_set_listening, network, True)))
    for reading in READINGS:
        events.append((reading.second, reading.number, partial(_read, network, reading)))
    return sorted(events, key=lambda event: event[0])


def _set_listening(network: Network, is_listening: bool) -> None:
    network.is_listening = is_listening


def _read(network: Network, reading: Reading) -> None:
    is_sent = network.read(reading.device, reading.words)
    assert is_sent == (reading.number is not None), f"{reading}: sent is {is_sent}"


def _find_ids(network: Network, sent: list[int]) -> dict[int, int]:
    """Return the ids of notifications: each device's came in the order of their readings."""
    ids: dict[int, int] = {}
    for device, node in BEDS.items():
        numbers = [r.number for r in READINGS if r.device == device and r.number in sent]
        found = network.hosts[node].list_taken(device)
        assert len(found) == len(numbers), f"{device}: {len(numbers)} sent, {len(found)} taken"
        ids |= {n: id for n, id in zip(numbers, found, strict=True) if n is not None}
    return ids
