"""Lets a scenario happen in a world: each kind of happening is one method here.

Numbers of happenings are taken modulo what there is, so that every list of them can be played.
After the trouble everything heals: links between all nodes, fair weather, people at home.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from edge.client.vocabulary.loading import load_shipped
from edge.dens.core.devices import DeviceSettings
from edge.dens.core.interface import DEVICES, PEERS, Message
from edge.dens.core.items import (
    MAX_BODY,
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from edge.dens.core.peers import PeerSettings
from edge.dens.core.subscribers import SubscriberSettings
from edge.dens.core.turn import Turn
from edge.dens.covering import Exact
from edge.field.air import FAIR, Weather
from edge.field.calendar import START
from edge.field.dog import Sense
from edge.field.host import HostSettings
from edge.field.scenario import CALM, TROUBLE, Happening, Scenario
from edge.field.truth import Truth
from edge.field.world import World, WorldSettings
from protocol import notification
from protocol.vectors import Notification, Reading

HIDDEN = {"helper": ("patient.heart_rate",)}  # what the role may not see
WISHES = (
    "patient temperature is high",
    "patient temperature is very high",
    "heart rate is not normal",
    "patient temperature is high and heart rate is high",
    "patient temperature is normal",
    "fire temperature is high",
    "heart rate is high, top 2, expires after 60 s",
    "patient temperature is low, expires after 30 s",
)
TERMS = {WISHES[6]: (2, 60_000), WISHES[7]: (0, 30_000)}  # how many at a time, and ms of a life
SENSES = (Sense(1, (0, 1), period=12_000), Sense(2, (0,), period=20_000))
_LINGER = 20_000  # ms that most troubles last
_KEPT = 40  # frames that a listener in the middle remembers


class Play:
    """One scenario in its world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.truth = Truth()
        settings = HostSettings(
            peers=PeerSettings(strategy=scenario.strategy, retry=2_000, chunk=4_096),
            subscribers=SubscriberSettings(is_announcing=False, held_limit=scenario.room),
            # A device that was with another node has that node's handles: tell it everything.
            devices=DeviceSettings(
                policy=Exact(), patience=4_000, longest_patience=16_000, has_listeners=False
            ),
        )
        self.world = world = World(
            scenario.seed,
            load_shipped("rescue"),
            WorldSettings(host=settings),
            self.truth.watch,
        )
        self.truth.world = world
        self._rng = Random(scenario.seed + 1)
        self._heard: list[Message] = []  # by somebody in the middle, to be played back
        self._count = 0  # lies told so far
        world.roster.hidden = dict(HIDDEN)
        world.overhear = self._hear
        for name in scenario.names:
            world.add_node(name)
        for number in range(scenario.people):
            role = "helper" if number == 1 else "all"
            world.add_person(f"person-{number}", self._node(number + 2), role)  # not at home
        for number in range(scenario.dogs):
            world.add_dog(f"dog-{number}", self._node(number), SENSES)

    def _home(self, number: int) -> str:
        return self._node(number + 1)

    def _node(self, number: int) -> str:
        return self.scenario.names[number % self.scenario.nodes]

    def _pair(self, first: int, second: int) -> tuple[str, str]:
        one = first % self.scenario.nodes
        other = (one + 1 + second % (self.scenario.nodes - 1)) % self.scenario.nodes
        return self._node(one), self._node(other)

    def _person(self, number: int) -> str:
        return f"person-{number % self.scenario.people}"

    def _dog(self, number: int) -> str:
        return f"dog-{number % self.scenario.dogs}"

    # Time -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it all, trouble and calm."""
        world = self.world
        for number in range(self.scenario.people):  # somebody wants something from the start
            for wish in (WISHES[number % 3], WISHES[6 + number % 2]):
                world.ask(f"person-{number}", {"subscribe": wish})
        first, second = self._pair(0, 0)
        world.meet(first, second, True)
        for happening in self.scenario.happenings:
            world.calendar.enter(START + happening.time, self._happen, happening)
        world.run(TROUBLE)
        self.heal()
        world.run(TROUBLE + CALM)

    def heal(self) -> None:
        """Let everything be well: nothing more goes wrong."""
        world = self.world
        world.weather.clear()
        for (first, second), air in world.links.items():
            air.ways[first].weather = air.ways[second].weather = FAIR
        world.partition([self.scenario.names])
        for host in world.hosts.values():
            host.faults.clear()
            host.settings = replace(host.settings, disk_delay=2)
        for name in self.scenario.names:
            for other in self.scenario.names:
                if name < other:
                    world.meet(name, other, True)
        for number in range(self.scenario.people):
            person = world.people[f"person-{number}"]
            person.is_mute = False
            world.move_person(person.name, self._home(number))
        for number in range(self.scenario.dogs):
            world.dogs[f"dog-{number}"].flash.cut_at = 0
            world.move_dog(f"dog-{number}", self._node(number))

    def _happen(self, happening: Happening) -> None:
        method = getattr(self, "_do_" + happening.kind.replace("-", "_"))
        method(happening.first, happening.second)

    def _later(self, call: object, *arguments: object) -> None:
        self.world.calendar.wait(_LINGER, call, *arguments)  # type: ignore[arg-type]

    # What people and the world do -----------------------------------------------------------

    def _do_meet(self, first: int, second: int) -> None:
        self.world.meet(*self._pair(first, second), True)

    def _do_part(self, first: int, second: int) -> None:
        self.world.meet(*self._pair(first, second), False)

    def _do_subscribe(self, first: int, second: int) -> None:
        wish: dict[str, object] = {"subscribe": WISHES[second % len(WISHES)]}
        if first & 256:
            wish["name"] = f"wish-{second % 3}"
        self.world.ask(self._person(first), wish)

    def _do_unsubscribe(self, first: int, second: int) -> None:
        self.world.ask(self._person(first), {"unsubscribe": f"wish-{second % 3}"})

    def _do_walk(self, first: int, second: int) -> None:
        self.world.move_person(self._person(first), self._node(second))

    def _do_leave(self, first: int, second: int) -> None:
        name = self._person(first)
        self.world.move_person(name, "")
        wait = 10_000 + second % 70_000
        self.world.calendar.wait(wait, self.world.move_person, name, self._node(second))

    def _do_carry(self, first: int, second: int) -> None:
        self.world.move_dog(self._dog(first), self._node(second))

    # What goes wrong with nodes and disks ---------------------------------------------------

    def _do_kill(self, first: int, second: int) -> None:
        self.world.kill(self._node(first), down=1_000 + second % 20_000)

    def _fail(self, first: int, second: int, trouble: str) -> None:
        operations = ("get", "scan", "apply", "commit", "any")
        operation = operations[second % len(operations)]
        faults = self.world.hosts[self._node(first)].faults
        number = faults.counts[operation] + 1 + second // 8 % 60
        faults.plan(operation, number, trouble)  # type: ignore[arg-type]

    def _do_crash(self, first: int, second: int) -> None:
        self._fail(first, second, "crash")

    def _do_crash_after(self, first: int, second: int) -> None:
        self._fail(first, second, "crash-after")

    def _do_disk_full(self, first: int, second: int) -> None:
        faults = self.world.hosts[self._node(first)].faults
        for number in range(1, 6):
            faults.plan("commit", faults.counts["commit"] + second % 7 + number, "full")

    def _do_disk_failed(self, first: int, second: int) -> None:
        self._fail(first, second, "failed")

    def _do_disk_slow(self, first: int, second: int) -> None:
        host = self.world.hosts[self._node(first)]
        host.settings = replace(host.settings, disk_delay=100 + second % 3_000)

    # What goes wrong between nodes ----------------------------------------------------------

    def _spoil(self, first: int, second: int, weather: Weather, *, is_both: bool = True) -> None:
        one, other = self._pair(first, second)
        self.world.set_weather(one, other, weather)
        if is_both:
            self.world.set_weather(other, one, weather)

    def _do_loss(self, first: int, second: int) -> None:
        self._spoil(first, second, Weather(loss=0.1 + second % 5 / 10))

    def _do_one_sided(self, first: int, second: int) -> None:
        self._spoil(first, second, Weather(loss=1.0), is_both=False)

    def _do_repeat(self, first: int, second: int) -> None:
        self._spoil(first, second, Weather(repeat=0.5))

    def _do_reorder(self, first: int, second: int) -> None:
        self._spoil(first, second, Weather(jitter=50 + second % 3_000))

    def _do_corrupt(self, first: int, second: int) -> None:
        self._spoil(first, second, Weather(corrupt=0.1 + second % 5 / 10))

    def _do_partition(self, first: int, _: int) -> None:
        names = self.scenario.names
        cut = 1 + first % (len(names) - 1)
        self.world.partition([names[:cut], names[cut:]])
        self._later(self.world.partition, [names])

    def _do_clock_jump(self, first: int, second: int) -> None:
        jump = (second % 2_000 - 1_000) * (60_000 if first & 16 else 100)
        self.world.set_clock(self._node(first), jump)

    # What goes wrong with devices and people ------------------------------------------------

    def _do_power_cut(self, first: int, second: int) -> None:
        dog = self.world.dogs[self._dog(first)]
        dog.flash.rng = Random(second)
        dog.flash.cut_at = dog.flash.changes + 1 + second % 9

    def _do_hang_up(self, first: int, _: int) -> None:
        person = self.world.people[self._person(first)]
        self.world.move_person(person.name, person.node)

    def _do_mute(self, first: int, _: int) -> None:
        person = self.world.people[self._person(first)]
        person.is_mute = True

        def speak() -> None:
            person.is_mute = False
            self.world.move_person(person.name, person.node)

        self._later(speak)

    # Who lies -------------------------------------------------------------------------------

    def _lie(self, item: Item) -> None:
        """Let a node of the site have an item that nobody made, and hand it on."""
        self.truth.lies.add(item.dot.id)
        host = self.world.hosts[self.scenario.names[-1]]  # one liar is enough

        def accept(turn: Turn) -> None:
            if not host.holdings.context.holds(*item.dot):
                host.holdings.accept(turn, item, "nobody")

        self.truth.liars.add(host.name)  # who believes its own lies; nobody else may
        self.world.act(host.name, accept)

    def _make_lie(self, first: int, second: int, size: int = 0) -> Item:
        self._count += 1
        victim = self._node(first % (self.scenario.nodes - 1))  # not the liar itself
        host = self.world.hosts[victim]
        epoch = host.medium.epoch + (second % 3 == 0)
        dot = Dot(victim, epoch, (900, 500_000)[second >> 4 & 1] + self._count)
        if size or second & 1:
            values = [Reading(0, (255,) * 4), Reading(1, (255,) * 4)]
            vector = notification.encode(Notification(1, values)) + bytes(size)
            body = encode_body(
                NotificationBody(
                    "dog-0",
                    1,
                    60_000 + self._count,
                    host.time,
                    0,
                    self.world.vocabulary_hash,
                    vector,
                )
            )
            kind = NOTIFICATION
        else:
            owner = self._person(second)
            fields = (owner, "all", "lie", host.time, 0, self.world.vocabulary_hash)
            body = encode_body(
                SubscriptionBody(*fields, bytes.fromhex("410000008000000191ffab"), {})
            )
            kind = SUBSCRIPTION
        return Item(dot, kind, NEVER, body, bytes(64))

    def _do_forged_item(self, first: int, second: int) -> None:
        self._lie(self._make_lie(first, second))

    def _do_oversized(self, first: int, second: int) -> None:
        one, other = self._pair(first, second)
        if second & 1:
            self._lie(self._make_lie(first, second, MAX_BODY))
        else:
            payload = bytes([0x41]) + bytes(300_000)
            self.world.give(other, Message(one, PEERS + other, payload))

    def _do_forged_frame(self, first: int, second: int) -> None:
        one, other = self._pair(first, second)
        payload = Random(second).randbytes(1 + second % 400)
        self.world.give(other, Message(one, PEERS + other, payload))

    def _do_forged_reading(self, first: int, second: int) -> None:
        dog = self.world.dogs[self._dog(first)]
        if dog.node:
            kind = ("nv", "hello")[second & 1]
            payload = bytes([0x42]) + Random(second).randbytes(second % 300)
            self.world.give(dog.node, Message(dog.name, f"{DEVICES}{dog.name}/{kind}", payload))

    def _hear(self, message: Message) -> None:
        """Remember what goes over the air, as anybody near could."""
        self._heard.append(message)
        del self._heard[:-_KEPT]

    def _play_back(self, first: int, second: int, prefix: str) -> None:
        heard = [message for message in self._heard if message.topic.startswith(prefix)]
        if heard:
            self.world.give(self._node(first), heard[second % len(heard)])

    def _do_replayed_frame(self, first: int, second: int) -> None:
        self._play_back(first, second, PEERS)

    def _do_replayed_reading(self, first: int, second: int) -> None:
        self._play_back(first, second, DEVICES)


__all__ = ["HIDDEN", "SENSES", "TERMS", "WISHES", "Play"]
