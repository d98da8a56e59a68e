"""The world: nodes, devices and people, the links between them, and time that goes on.

The only file that moves anything from one to another. Everything that happens is an entry of the
calendar; every random choice is the world's own generator's; whoever is asked in an order is asked
in the order of names or of entry. So one seed is one history.

Ticks: a real node ticks every second. An emulated one ticks a second after anything happened to
it, then after 2, 4, ... seconds, up to `longest_tick`: what waits for time is then late by as much
at most, and nothing else changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from edge.client.vocabulary import Vocabulary
from edge.dens.core.interface import (
    DEVICES,
    NOTES,
    PEERS,
    REPLIES,
    REQUESTS,
    Acknowledged,
    ClockSet,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Tick,
)
from edge.dens.core.turn import Turn
from edge.dens.core.vocabularies import shorten_hash
from edge.dens.store import Crashed, StoreError
from edge.field.air import FAIR, Air, Radio, Weather
from edge.field.calendar import START, Calendar
from edge.field.dog import Dog, PowerCut, Sense
from edge.field.host import Host, HostSettings, Watch
from edge.field.keys import Roster
from edge.field.person import Person
from edge.field.traces import ContactEvent

_ASK_AGAIN = 10_000  # ms
_SEND_AGAIN = 1_000  # ms; how often a device looks whether there is something to send
_RECONNECT = 1_000  # ms after a node is there again


@dataclass(frozen=True)
class WorldSettings:
    """How the world is; times in ms."""

    host: HostSettings = field(default_factory=HostSettings)
    radio: Radio = field(default_factory=Radio)
    local_delay: int = 5  # between a node and those who are with it
    longest_tick: int = 16_000
    restart_after: int = 5_000


def _say_nothing(kind: str, what: str) -> None:
    """Nobody wants to know."""


class World:
    """All of it."""

    def __init__(
        self,
        seed: int,
        vocabulary: Vocabulary,
        settings: WorldSettings | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.seed = seed
        self.settings = settings or WorldSettings()
        self.vocabulary = vocabulary
        self.vocabulary_hash = shorten_hash(vocabulary)
        self.calendar = Calendar()
        self.rng = Random(seed)
        self.roster = Roster()
        self.hosts: dict[str, Host] = {}
        self.people: dict[str, Person] = {}
        self.dogs: dict[str, Dog] = {}
        self.links: dict[tuple[str, str], Air] = {}
        self.weather: dict[tuple[str, str], Weather] = {}  # by sender and receiver
        self.blocked: set[tuple[str, str]] = set()  # partitions: pairs that cannot meet
        self.bytes = 0  # over links that are gone
        self.contacts = 0
        self.deaths = 0
        self.overhear: Callable[[Message], None] | None = None  # is shown what is on the air
        self.tell: Callable[[str, str], None] = _say_nothing  # is told what happens
        self._watch = watch
        self._near: set[tuple[str, str]] = set()  # in range, whether or not a link is up
        self._ticks: dict[str, tuple[int, int]] = {}  # number of the plan, wait
        self._starts: dict[str, int] = {}  # how often each was started: older entries are void
        self._sending: set[str] = set()

    @property
    def now(self) -> int:
        """The time."""
        return self.calendar.now

    # Who there is ---------------------------------------------------------------------------

    def add_node(self, name: str, settings: HostSettings | None = None) -> Host:
        """Put up a node."""
        self.roster.nodes[name] = None
        host = Host(name, self.roster, self.vocabulary, settings or self.settings.host, self._watch)
        self.hosts[name] = host
        self._starts[name] = 0
        self._ticks[name] = (0, 0)
        self._start(name)
        return host

    def add_person(self, name: str, node: str = "", role: str = "all") -> Person:
        """Let somebody come, to a node."""
        self.roster.roles[name] = role
        person = self.people[name] = Person(name)
        if node:
            self.move_person(name, node)
        return person

    def add_dog(
        self,
        name: str,
        node: str,
        senses: Iterable[Sense],
        drive: Callable[[Random, int, int, int], int] | None = None,
    ) -> Dog:
        """Switch a device on."""
        self.roster.devices[name] = None
        seed = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        rng = Random(int.from_bytes(seed, "big"))
        dog = Dog(name, sorted(self.hosts), self.vocabulary_hash, list(senses), rng, drive)
        self.dogs[name] = dog
        self._starts[name] = 0
        self.start_dog(name)
        self.move_dog(name, node)
        return dog

    # Nodes ----------------------------------------------------------------------------------

    def give(self, name: str, event: Event) -> None:
        """Let a node take an event, and let what it says go out."""
        host = self.hosts[name]
        if self._do(host, lambda: host.handle(event, self.now)) and not isinstance(event, Tick):
            self._plan_tick(name, 1_000)

    def act(self, name: str, change: Callable[[Turn], None]) -> None:
        """Let something of a node itself happen."""
        host = self.hosts[name]
        if self._do(host, lambda: host.act(change, self.now)):
            self._plan_tick(name, 1_000)

    def _do(self, host: Host, call: Callable[[], list[Publish]]) -> bool:
        """Let a node do something, and let what it says go out; return whether it lives."""
        if not host.is_up:
            return False
        try:
            published = call()
        except (Crashed, StoreError) as error:
            self.kill(host.name, str(error))
            return False
        for publish in published:
            self.calendar.wait(
                host.settings.disk_delay, self._route, host.name, host.store, publish
            )
        return True

    def _plan_tick(self, name: str, wait: int) -> None:
        number, current = self._ticks[name]
        if wait == 1_000 and current == 1_000:
            return
        self._ticks[name] = (number + 1, wait)
        self.calendar.wait(wait, self._tick, name, number + 1)

    def _tick(self, name: str, number: int) -> None:
        planned, wait = self._ticks[name]
        if planned != number:
            return
        self._ticks[name] = (number, 0)
        self.give(name, Tick())
        if self._ticks[name] == (number, 0) and self.hosts[name].is_up:
            self._plan_tick(name, min(2 * wait, self.settings.longest_tick))

    def kill(self, name: str, why: str = "killed", down: int | None = None) -> None:
        """Let a node die at once; it starts again after a while."""
        host = self.hosts[name]
        if not host.is_up:
            return
        self.tell("kill", f"{name}: {why}")
        self.deaths += 1
        host.die()
        for pair in [pair for pair in self.links if name in pair]:
            self._cut(pair)
        for person in self.people.values():
            if person.node == name:
                person.visits.append((self.now, ""))
        self._ticks[name] = (self._ticks[name][0] + 1, 0)  # what is planned is void
        wait = self.settings.restart_after if down is None else down
        self.calendar.wait(wait, self._start, name)

    def _start(self, name: str) -> None:
        host = self.hosts[name]
        if host.is_up:
            return
        self._starts[name] += 1
        try:
            host.start(self.now)
        except (Crashed, StoreError) as error:
            self.tell("kill", f"{name}: at its start: {error}")
            host.is_up = False
            self.deaths += 1
            self.calendar.wait(self.settings.restart_after, self._start, name)
            return
        self._plan_tick(name, 1_000)
        for pair in sorted(pair for pair in self._near if name in pair):
            self._link(pair)
        self.calendar.wait(_RECONNECT, self._reconnect, name, self._starts[name])

    def _reconnect(self, name: str, start: int) -> None:
        if self._starts[name] != start:
            return
        for person in self.people.values():
            if person.node == name:
                self._attach(person)
        for dog in self.dogs.values():
            if dog.node == name and dog.is_up:
                self._connect(dog)

    def set_clock(self, name: str, offset: int) -> None:
        """Let somebody set a machine's clock."""
        self.tell("clock", f"{name}: {offset} ms")
        host = self.hosts[name]
        host.wall_error += offset
        self.give(name, ClockSet(offset))

    # Links between nodes --------------------------------------------------------------------

    def meet(self, first: str, second: str, is_up: bool) -> None:
        """Let two nodes come into range of each other, or leave it."""
        pair = (first, second) if first < second else (second, first)
        if is_up:
            self._near.add(pair)
            self._link(pair)
        else:
            self._near.discard(pair)
            self._cut(pair)

    def partition(self, groups: Iterable[Iterable[str]]) -> None:
        """Let only nodes of one group meet; no groups at all: everybody may again."""
        group_of = {name: number for number, group in enumerate(groups) for name in group}
        names = sorted(self.hosts)
        self.blocked = {
            (first, second)
            for first in names
            for second in names
            if first < second and group_of.get(first, -1) != group_of.get(second, -1)
        }
        for pair in [pair for pair in self.links if pair in self.blocked]:
            self._cut(pair)
        for pair in sorted(self._near):
            self._link(pair)

    def _link(self, pair: tuple[str, str]) -> None:
        is_able = pair in self._near and pair not in self.blocked and pair not in self.links
        if not is_able or not all(self.hosts[name].is_up for name in pair):
            return
        air = self.links[pair] = Air(*pair, self.settings.radio)
        self.contacts += 1
        first, second = pair
        for one, other in ((first, second), (second, first)):
            air.ways[one].weather = self.weather.get((one, other), FAIR)
        for one, other in ((first, second), (second, first)):
            if self.links.get(pair) is air:  # a node may die of it
                self.give(one, PeerUp(other))

    def _cut(self, pair: tuple[str, str]) -> None:
        air = self.links.pop(pair, None)
        if air is None:
            return
        self.bytes += air.bytes
        first, second = pair
        for one, other in ((first, second), (second, first)):
            self.give(one, PeerDown(other))

    def set_weather(self, first: str, second: str, weather: Weather) -> None:
        """Set what happens to frames from one node to another."""
        self.weather[first, second] = weather
        air = self.links.get((first, second) if first < second else (second, first))
        if air is not None:
            air.ways[first].weather = weather

    def count_bytes(self) -> int:
        """Return all bytes between nodes so far."""
        return self.bytes + sum(air.bytes for air in self.links.values())

    def _route(self, name: str, store: object, publish: Publish) -> None:
        """Bring what a node said to whom it is for; what a dead node had not sent is lost."""
        if self.hosts[name].store is not store or not self.hosts[name].is_up:
            return
        topic = publish.topic
        if topic.startswith(PEERS):
            self._send(name, topic.removeprefix(PEERS), publish.payload)
        elif topic.startswith((NOTES, REPLIES)):
            owner = topic.rpartition("/")[2]
            self.calendar.wait(self.settings.local_delay, self._hand, name, owner, publish)
        elif topic.startswith(DEVICES):
            device = topic.removeprefix(DEVICES).partition("/")[0]
            self.calendar.wait(self.settings.local_delay, self._reach_dog, name, device, publish)

    def _send(self, sender: str, receiver: str, payload: bytes) -> None:
        pair = (sender, receiver) if sender < receiver else (receiver, sender)
        air = self.links.get(pair)
        if air is None:
            return
        if self.overhear is not None:
            self.overhear(Message(sender, PEERS + receiver, payload))
        for time, frame in air.ways[sender].send(payload, self.now, self.rng):
            self.calendar.enter(time, self._arrive, pair, air, sender, receiver, frame)

    def _arrive(
        self, pair: tuple[str, str], air: Air, sender: str, receiver: str, frame: bytes
    ) -> None:
        if self.links.get(pair) is air:
            self.give(receiver, Message(sender, PEERS + receiver, frame))

    # People ---------------------------------------------------------------------------------

    def move_person(self, name: str, node: str) -> None:
        """Let somebody walk to a node, or away ("")."""
        person = self.people[name]
        self._detach(person)
        person.node = node
        self._attach(person)

    def _attach(self, person: Person) -> None:
        if person.node and self.hosts[person.node].is_up:
            person.visits.append((self.now, person.node))
            for prefix in (REPLIES, NOTES):
                self.give(person.node, Listening(prefix + person.name, True))
            self._ask(person.name)

    def _detach(self, person: Person) -> None:
        if person.node:
            person.visits.append((self.now, ""))
            for prefix in (REPLIES, NOTES):
                self.give(person.node, Listening(prefix + person.name, False))

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
            self.give(person.node, Message(name, REQUESTS + name, payload))
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
        elif person.take_note(publish.payload, self.now) and publish.token:
            acknowledged = Acknowledged(publish.topic, publish.token)
            delay = self.settings.local_delay
            self.calendar.wait(delay, self._return, node, self._starts[node], acknowledged)

    def _return(self, node: str, start: int, acknowledged: Acknowledged) -> None:
        """Bring an acknowledgement back, to the run of the node that asked for it."""
        if self._starts[node] == start:
            self.give(node, acknowledged)

    # Devices --------------------------------------------------------------------------------

    def move_dog(self, name: str, node: str) -> None:
        """Connect a device to a node, or to none ("")."""
        dog = self.dogs[name]
        self._disconnect(dog)
        dog.node = node
        if dog.is_up:
            self._connect(dog)

    def _connect(self, dog: Dog) -> None:
        if dog.node and self.hosts[dog.node].is_up:
            dog.connect(dog.node)
            self.give(dog.node, Listening(f"{DEVICES}{dog.name}/sv", True))
            self._pump(dog.name, self._starts[dog.name])

    def _disconnect(self, dog: Dog) -> None:
        if dog.node:
            self.give(dog.node, Listening(f"{DEVICES}{dog.name}/sv", False))

    def start_dog(self, name: str) -> None:
        """Switch a device on, with what its flash has."""
        dog = self.dogs[name]
        self._starts[name] += 1
        dog.start(self.now, self.now // 1000)
        self.calendar.wait(0, self._sample, name, self._starts[name])
        if dog.node:
            self._connect(dog)

    def kill_dog(self, name: str, down: int = 2_000) -> None:
        """Cut a device's power for a while."""
        dog = self.dogs[name]
        if dog.is_up:
            self.tell("kill", name)
            dog.die()
            self._disconnect(dog)
            self.calendar.wait(down, self._wake_dog, name)

    def _wake_dog(self, name: str) -> None:
        if not self.dogs[name].is_up:
            self.start_dog(name)

    def _sample(self, name: str, start: int) -> None:
        dog = self.dogs[name]
        if self._starts[name] != start or not dog.is_up:
            return
        try:
            due = dog.sample(self.now)
        except PowerCut:
            self.kill_dog(name)
            return
        self.calendar.enter(max(due, self.now + 1), self._sample, name, start)
        self._pump(name, start)

    def _pump(self, name: str, start: int) -> None:
        """Send what a device has to say."""
        dog = self.dogs[name]
        if self._starts[name] != start or not dog.is_up or not dog.node:
            return
        while self.hosts[dog.node].is_up:
            message = dog.next_message(self.now)
            if message is None:
                break
            event = Message(name, *message)
            self.calendar.wait(self.settings.local_delay, self._hear_dog, name, dog.node, event)
        if name not in self._sending and dog.spool.has_waiting():
            self._sending.add(name)
            self.calendar.wait(_SEND_AGAIN, self._pump_again, name, start)

    def _pump_again(self, name: str, start: int) -> None:
        self._sending.discard(name)
        self._pump(name, start)

    def _hear_dog(self, name: str, node: str, event: Message) -> None:
        if self.overhear is not None:
            self.overhear(event)
        if self.dogs[name].node == node:
            self.give(node, event)

    def _reach_dog(self, node: str, name: str, publish: Publish) -> None:
        dog = self.dogs.get(name)
        if dog is None or dog.node != node or not dog.is_up:
            return
        try:
            dog.receive(publish.topic, publish.payload, self.now)
        except PowerCut:
            self.kill_dog(name)
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
            host.close()

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
