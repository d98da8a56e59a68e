"""The world: a network with people and devices at its nodes, and time that goes on.

The only file that moves anything between a node and those who are with it. A message to or from
them takes `local_delay`; it is lost if either is gone by then, as with a connection that breaks.

A connection ends in one of three ways: `CLEAN`, with a goodbye; `CLOSED`, which the node's server
sees at once; `SILENT`, which it sees when keep-alives have been missing for a while, or when the
same client connects again. After the last two it publishes the will of the client, if it has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from random import Random

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core.events import (
    DEVICES,
    HOME,
    NOTES,
    REPLIES,
    REPORTS,
    REQUESTS,
    Acknowledged,
    Listening,
    Message,
    Publish,
)

from simulator.calendar import START
from simulator.device import EmulatedDevice, PowerCut, Sense
from simulator.hosted_node import Watch
from simulator.keys import make_device_secret
from simulator.link import FAIR, Disturbance
from simulator.network import Network, WorldSettings
from simulator.person import LIBRARY, Person
from simulator.radio import RadioAir
from simulator.traces import ContactEvent

_ASK_AGAIN = 10_000  # ms
_RESTART = 500  # ms that a device takes to start again by itself
_SEND_AGAIN = 1_000  # ms; how often a device looks whether there is something to send
CLEAN, CLOSED, SILENT = "clean", "closed", "silent"
KEPT_ALIVE = 90_000  # ms without a word before a server gives a client up


class World(Network):
    """All of it."""

    def __init__(
        self,
        seed: int,
        vocabulary: Vocabulary,
        settings: WorldSettings | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(seed, vocabulary, settings, watch)
        self.people: dict[str, Person] = {}
        self.devices: dict[str, EmulatedDevice] = {}
        self.keeps_readings = False  # whether devices remember what they did not tell
        self.has_wills = False  # whether servers announce the end of devices
        self.left: dict[tuple[str, str], int] = {}  # by node and device: when it went away
        self.goodbyes: set[tuple[str, str]] = set()  # those of them who went with a word
        self.retained: dict[str, bytes] = {}  # by topic, of whatever node
        self.home_topics: set[str] = set()  # that anything was published under, for Home Assistant
        self.air: RadioAir | None = None  # between devices and nodes, if they have no wires
        self._sending: set[str] = set()
        # By node and client: the number of the connection that the server believes in, and of the
        # node's start.
        self._connections: dict[tuple[str, str], tuple[int, int]] = {}
        self._numbers = 0
        self._linked: dict[tuple[str, str], int] = {}  # since when

    # Who there is ---------------------------------------------------------------------------

    def add_person(
        self, name: str, node: str = "", role: str = "all", client: str = LIBRARY
    ) -> Person:
        """Let somebody come, to a node."""
        self.roster.roles[name] = role
        person = self.people[name] = Person(name, client)
        if node:
            self.move_person(name, node)
        return person

    def add_device(
        self,
        name: str,
        node: str,
        senses: Iterable[Sense],
        drive: Callable[[Random, int, int, int], int] | None = None,
    ) -> EmulatedDevice:
        """Switch a device on."""
        self.roster.devices[name] = None
        seed = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        rng = Random(int.from_bytes(seed, "big"))
        device = self.devices[name] = self.make_device(name, list(senses), rng, drive)
        if self.air is not None:
            self.air.prepare(device)
        self._starts[name] = 0
        self.start_device(name)
        self.move_device(name, node)
        return device

    def make_device(
        self,
        name: str,
        senses: list[Sense],
        rng: Random,
        drive: Callable[[Random, int, int, int], int] | None,
    ) -> EmulatedDevice:
        """Return a device that knows all nodes."""
        return EmulatedDevice(
            name,
            sorted(self.hosts),
            self.vocabulary_hash,
            senses,
            rng,
            drive,
            keeps_readings=self.keeps_readings,
        )

    def find_secret(self, device: str, node: str) -> bytes:  # noqa: ARG002 - one for all
        """Return what a device and a node share."""
        return make_device_secret(device)

    def _greet(self, name: str, start: int) -> None:
        """Let those who are with a node connect again, after its start with this number."""
        if self._starts[name] != start:
            return
        for person in self.people.values():
            if person.node == name:
                self._attach(person)
        for device in self.devices.values():
            if device.node == name and device.is_up:
                self._connect(device)

    def _bring(self, name: str, publish: Publish) -> None:
        """Bring what a node said to those who are with it."""
        topic, delay = publish.topic, self.settings.local_delay
        if publish.retain:
            self.retained[topic] = publish.payload
        if topic.startswith(HOME):
            self.home_topics.add(topic)
        if topic.startswith((NOTES, REPLIES)):
            self.calendar.wait(delay, self._hand, name, topic.rpartition("/")[2], publish)
        elif topic.startswith(DEVICES):
            device = topic.removeprefix(DEVICES).partition("/")[0]
            self.calendar.wait(delay, self._reach_device, name, device, publish)

    # Connections ----------------------------------------------------------------------------

    def _open(self, node: str, client: str, topics: Iterable[str]) -> None:
        """Let the server of a node see a client that listens; an older connection ends."""
        self._close(node, client, topics)
        self._numbers += 1
        self._connections[node, client] = (self._numbers, self._starts[node])
        for topic in topics:
            self.give(node, Listening(topic, True))

    def _close(self, node: str, client: str, topics: Iterable[str], way: str = CLOSED) -> None:
        """Let a connection end, if there is one."""
        current = self._connections.get((node, client))
        if current is None or current[1] != self._starts[node]:
            return
        if way == SILENT:
            self.calendar.wait(KEPT_ALIVE, self._give_up, node, client, list(topics), current)
            return
        del self._connections[node, client]
        for topic in topics:
            self.give(node, Listening(topic, False))
        device = self.devices.get(client)
        will = device.uplink.will if device is not None and device.has_will else None
        if way == CLOSED and self.has_wills and will is not None:
            self.give(node, Message(client, *will))

    def _give_up(
        self, node: str, client: str, topics: list[str], connection: tuple[int, int]
    ) -> None:
        if self._connections.get((node, client)) == connection:
            self._close(node, client, topics)

    def _link(self, pair: tuple[str, str]) -> None:
        super()._link(pair)
        if pair in self.links:
            self._linked.setdefault(pair, self.now)

    def _cut(self, pair: tuple[str, str]) -> None:
        self._linked.pop(pair, None)
        super()._cut(pair)

    def set_weather(self, first: str, second: str, weather: Disturbance) -> None:
        """Set what happens to frames from one node to another: a link that is good anew."""
        super().set_weather(first, second, weather)
        pair = (first, second) if first < second else (second, first)
        if pair in self._linked:
            self._linked[pair] = self.now

    def _list_linked(self, node: str) -> dict[str, int]:
        """Return the nodes that a node has a good link with, and since when."""
        return {
            first if second == node else second: since
            for (first, second), since in self._linked.items()
            if node in (first, second)
            and self.weather.get((first, second), FAIR) is FAIR
            and self.weather.get((second, first), FAIR) is FAIR
        }

    # People ---------------------------------------------------------------------------------

    def move_person(self, name: str, node: str, way: str = CLOSED) -> None:
        """Let somebody walk to a node, or away ("")."""
        person = self.people[name]
        if person.node:
            self._close(person.node, name, _list_topics(name), way)
        person.node = node
        self._attach(person)

    def _attach(self, person: Person) -> None:
        if person.node and self.hosts[person.node].is_up:
            self._open(person.node, person.name, _list_topics(person.name))
            person.renew(self.now)
            report = person.report()
            if report:
                self.give(person.node, Message(person.name, REQUESTS + person.name, report))
            self._ask(person.name)

    def ask(self, name: str, body: dict[str, object]) -> None:
        """Let somebody ask something of the node they are at, until there is an answer."""
        self.people[name].ask(body, self.now)
        self._ask(name)

    def _ask(self, name: str) -> None:
        person = self.people[name]
        if not person.node:
            return
        for request in person.list_open():
            payload = json.dumps(request.body).encode()
            topic = REPORTS if "report" in request.body else REQUESTS
            self.give(person.node, Message(name, topic + name, payload))
        if person.list_open() and name not in self._sending:
            self._sending.add(name)
            self.calendar.wait(_ASK_AGAIN, self._ask_again, name)

    def _ask_again(self, name: str) -> None:
        self._sending.discard(name)
        self._ask(name)

    def _hand(self, node: str, owner: str, publish: Publish) -> None:
        person = self.people.get(owner)
        if person is None or person.node != node or not self.hosts[node].is_up:
            return
        if publish.topic.startswith(REPLIES):
            person.take_reply(publish.payload, self.now)
        elif person.take_note(publish.payload, self.now, self._list_linked(node)) and publish.token:
            acknowledged = Acknowledged(publish.topic, publish.token)
            delay = self.settings.local_delay
            self.calendar.wait(delay, self._return, node, self._starts[node], acknowledged)

    def _return(self, node: str, start: int, acknowledged: Acknowledged) -> None:
        """Bring an acknowledgement back, to the run of the node that asked for it."""
        if self._starts[node] == start:
            self.give(node, acknowledged)

    # Devices --------------------------------------------------------------------------------

    def move_device(self, name: str, node: str, way: str = CLOSED) -> None:
        """Connect a device to a node, or to none ("")."""
        device = self.devices[name]
        self._disconnect(device, way)
        device.node = node
        if device.is_up:
            self._connect(device)

    def _connect(self, device: EmulatedDevice) -> None:
        if device.node and self.hosts[device.node].is_up:
            self.left.pop((device.node, device.name), None)
            self.goodbyes.discard((device.node, device.name))
            if self.air is None:
                device.connect(device.node, self.now)
            self._open(device.node, device.name, [f"{DEVICES}{device.name}/sv"])
            if self.air is not None:
                self.air.connect(device.name, self._starts[device.name])
            self._pump(device.name, self._starts[device.name])

    def _disconnect(self, device: EmulatedDevice, way: str = CLOSED) -> None:
        if device.node:
            self.left.setdefault((device.node, device.name), self.now)
            if way == CLEAN:
                self.goodbyes.add((device.node, device.name))
            self._close(device.node, device.name, [f"{DEVICES}{device.name}/sv"], way)

    def start_device(self, name: str, kept: bytes = b"") -> None:
        """Switch a device on, with what its flash has, and what a sleep kept."""
        device = self.devices[name]
        self._starts[name] += 1
        try:
            device.start(self.now, self.now // 1000, kept)
        except PowerCut:  # while it counts that it tries new code
            device.is_up = True
            self.kill_device(name)
            return
        if device.board is not None and device.board.is_crashed:
            self.kill_device(name)
            return
        self.calendar.wait(0, self._sample, name, self._starts[name])
        if device.node:
            self._connect(device)

    def kill_device(self, name: str, down: int = 2_000, way: str = CLOSED) -> None:
        """Cut a device's power for a while."""
        device = self.devices[name]
        if device.is_up:
            self.tell("kill", name)
            device.die()
            self._disconnect(device, way)
            self.calendar.wait(down, self._wake_device, name)

    def put_to_sleep(self, name: str, duration: int) -> None:
        """Let a device sleep deeply for a while, as `watchdog.duty` does."""
        device = self.devices[name]
        if not device.is_up:
            return
        self.tell("sleep", name)
        try:
            kept = device.sleep(self.now)
        except PowerCut:
            self.kill_device(name)
            return
        self._disconnect(device, SILENT)
        self.calendar.wait(duration, self._wake_device, name, kept)

    def _wake_device(self, name: str, kept: bytes = b"") -> None:
        if not self.devices[name].is_up:
            self.start_device(name, kept)

    def _sample(self, name: str, start: int) -> None:
        device = self.devices[name]
        if self._starts[name] != start or not device.is_up:
            return
        try:
            due = device.sample(self.now)
        except PowerCut:
            self.kill_device(name)
            return
        self.calendar.enter(max(due, self.now + 1), self._sample, name, start)
        self._pump(name, start)

    def _pump(self, name: str, start: int) -> None:
        """Send what a device has to say."""
        device = self.devices[name]
        if self._starts[name] != start or not device.is_up or not device.node:
            return
        if self.air is not None:
            return  # which asks by itself
        while self.hosts[device.node].is_up:
            try:
                message = device.next_message(self.now)
            except PowerCut:
                self.kill_device(name)
                return
            if message is None:
                break
            self.hear_device(name, device.node, *message)
        board = device.board
        if board is not None and board.wants_restart:
            self.kill_device(name, _RESTART)
            return
        is_busy = device.spool.has_waiting() or (board is not None and board.is_updating)
        if name not in self._sending and is_busy:
            self._sending.add(name)
            self.calendar.wait(_SEND_AGAIN, self._pump_again, name, start)

    def _pump_again(self, name: str, start: int) -> None:
        self._sending.discard(name)
        self._pump(name, start)

    def hear_device(self, name: str, node: str, topic: str, payload: bytes) -> None:
        """Bring what a device said to a node."""
        event = Message(name, topic, payload)
        self.calendar.wait(self.settings.local_delay, self._hear_device, name, node, event)

    def _hear_device(self, name: str, node: str, event: Message) -> None:
        if self.overhear is not None:
            self.overhear(event)
        until = self.held_up.get(name, 0)
        if self.now < until:  # by somebody in between; what is held up keeps its order
            self.calendar.enter(until, self._release, name, node, event)
        else:
            self._release(name, node, event)

    def tell_device(self, name: str, topic: str, payload: bytes) -> bool:
        """Let a device hear its node; False: the power went."""
        try:
            self.devices[name].receive(topic, payload, self.now)
        except PowerCut:
            self.kill_device(name)
            return False
        return True

    def _release(self, name: str, node: str, event: Message) -> None:
        if self.devices[name].node == node:
            self.give(node, event)

    def _reach_device(self, node: str, name: str, publish: Publish) -> None:
        device = self.devices.get(name)
        if device is None or device.node != node or not device.is_up:
            return
        if self.air is not None:
            self.air.send(node, name, publish.topic, publish.payload)
        elif not self.tell_device(name, publish.topic, publish.payload):
            return
        if publish.token:
            acknowledged = Acknowledged(publish.topic, publish.token)
            delay = self.settings.local_delay
            self.calendar.wait(delay, self._return, node, self._starts[node], acknowledged)
        self._pump(name, self._starts[name])

    # Time -----------------------------------------------------------------------------------

    def follow(self, contacts: Iterable[ContactEvent], names: list[str]) -> None:
        """Let contacts of a trace happen; `names` has the node of each number."""
        for event in contacts:
            first, second = names[event.first], names[event.second]
            self.calendar.enter(START + event.time, self.meet, first, second, event.is_up)

    def run(self, until: int) -> None:
        """Let time go on to so many ms after the beginning."""
        self.calendar.run(START + until)

    def close(self) -> None:
        """Stop all nodes in order."""
        for host in self.hosts.values():
            host.close(self.now)

    def digest(self) -> str:
        """Return a hash of all disks and of all that people were shown: of this history."""
        hash = hashlib.sha256()
        for name, host in sorted(self.hosts.items()):
            hash.update(name.encode())
            for space in sorted(host.medium.spaces):
                hash.update(space.encode())
                for key, value in sorted(host.medium.spaces[space].items()):
                    hash.update(len(key).to_bytes(4, "big") + key)
                    hash.update(len(value).to_bytes(4, "big") + value)
        for name, person in sorted(self.people.items()):
            hash.update(
                f"{name} {sorted((n.time, n.id, n.node) for n in person.notes.values())}".encode()
            )
        hash.update(f"{self.count_bytes()} {self.contacts} {self.deaths}".encode())
        return hash.hexdigest()


def _list_topics(person: str) -> list[str]:
    return [REPLIES + person, NOTES + person]


__all__ = ["CLEAN", "CLOSED", "SILENT", "START", "World", "WorldSettings"]
