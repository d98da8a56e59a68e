"""Nodes and the links between them, in simulated time; nothing of those who are with a node.

Everything that happens is an entry of the calendar; every random choice is the network's own
generator's; whoever is asked in an order is asked in the order of names or of entry. So one seed is
one history.

Ticks: a real node ticks every second. An emulated one ticks a second after anything happened to
it, then after 2, 4, ... seconds (`tick_growth`), up to `longest_tick`: what waits for time is then
late by as much at most, and nothing else changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core.events import (
    PEERS,
    ClockSet,
    Event,
    Log,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Tick,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.store import StoreError

from simulator.calendar import Calendar
from simulator.hosted_node import HostedNode, HostSettings, Watch, describe_defect
from simulator.keys import Ring, Roster
from simulator.link import FAIR, Air, Disturbance, Radio
from simulator.memory_store import Crashed

_RECONNECT = 1_000  # ms after a node is there again


@dataclass(frozen=True)
class WorldSettings:
    """How the world is; times in ms."""

    host: HostSettings = field(default_factory=HostSettings)
    radio: Radio = field(default_factory=Radio)
    local_delay: int = 5  # between a node and those who are with it
    longest_tick: int = 16_000
    tick_growth: int = 2  # how much longer than the last wait the next one is
    restart_after: int = 5_000
    # Whether a node that raises is started again, and its host remembers the defect; otherwise the
    # error is the simulation's.
    survives_defects: bool = False


def _say_nothing(kind: str, what: str) -> None:
    """Nobody wants to know."""


class Network(ABC):
    """Nodes that come into each other's range and leave it, live and die."""

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
        self.hosts: dict[str, HostedNode] = {}
        self.links: dict[tuple[str, str], Air] = {}
        self.weather: dict[tuple[str, str], Disturbance] = {}  # by sender and receiver
        self.blocked: set[tuple[str, str]] = set()  # partitions: pairs that cannot meet
        self.bytes = 0  # over links that are gone
        self.contacts = 0
        self.deaths = 0
        self.held_up: dict[str, int] = {}  # devices whose frames somebody holds back, until when
        self.overhear: Callable[[Message], None] | None = None  # is shown what is on the air
        self.tell: Callable[[str, str], None] = _say_nothing  # is told what happens
        self._watch = watch or _ignore
        self._near: set[tuple[str, str]] = set()  # in range, whether or not a link is up
        self._ticks: dict[str, tuple[int, int]] = {}  # number of the plan, wait
        self._starts: dict[str, int] = {}  # how often each was started: older entries are void

    @property
    def now(self) -> int:
        """The time."""
        return self.calendar.now

    # Nodes ----------------------------------------------------------------------------------

    def add_node(self, name: str, settings: HostSettings | None = None) -> HostedNode:
        """Put up a node."""
        self.roster.nodes[name] = None
        ring = Ring(name, self.roster)
        settings = settings or self.settings.host
        host = HostedNode(name, ring, self.vocabulary, settings, self._watch, roles=ring)
        self.hosts[name] = host
        self._starts[name] = 0
        self._ticks[name] = (0, 0)
        self._start(name)
        return host

    def give(self, name: str, event: Event) -> None:
        """Let a node take an event, and let what it says go out."""
        host = self.hosts[name]
        if self._do(host, lambda: host.handle(event, self.now)) and not isinstance(event, Tick):
            self._plan_tick(name, 1_000)

    def act(self, name: str, change: Callable[[Transaction], None]) -> None:
        """Let something of a node itself happen."""
        host = self.hosts[name]
        if self._do(host, lambda: host.act(change, self.now)):
            self._plan_tick(name, 1_000)

    def _do(self, host: HostedNode, call: Callable[[], list[Publish]]) -> bool:
        """Let a node do something, and let what it says go out; return whether it lives."""
        if not host.is_up:
            return False
        try:
            published = call()
        except (Crashed, StoreError) as error:
            self.kill(host.name, str(error))
            return False
        except Exception as error:
            if not self.settings.survives_defects:
                raise
            host.defects.append(describe_defect(error))
            self.kill(host.name, host.defects[-1])
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
            self._plan_tick(name, min(self.settings.tick_growth * wait, self.settings.longest_tick))

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
        except Exception as error:
            if not self.settings.survives_defects:
                raise
            host.defects.append(f"at its start: {describe_defect(error)}")
            host.is_up = False
            self.deaths += 1
            self.calendar.wait(self.settings.restart_after, self._start, name)
            return
        self._plan_tick(name, 1_000)
        for pair in sorted(pair for pair in self._near if name in pair):
            self._link(pair)
        self.calendar.wait(_RECONNECT, self._greet, name, self._starts[name])

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

    def set_weather(self, first: str, second: str, weather: Disturbance) -> None:
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
        if publish.topic.startswith(PEERS):
            self._send(name, publish.topic.removeprefix(PEERS), publish.payload)
        else:
            self._bring(name, publish)

    @abstractmethod
    def _greet(self, name: str, start: int) -> None:
        """Let those who are with a node connect again, after its start with this number."""

    @abstractmethod
    def _bring(self, name: str, publish: Publish) -> None:
        """Bring what a node said to those who are with it."""

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


def _ignore(host: HostedNode, log: Log, time: int) -> None:
    """Watch nothing: a long run would not have room for all records."""
