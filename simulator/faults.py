"""Plays a scenario in a world, and what may happen in one: other files add to it, see `registry`.

After the trouble everything heals: links between all nodes, fair weather, people at home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from simulator.byzantine import Byzantine
from simulator.calendar import START
from simulator.life import probe
from simulator.link import FAIR, Disturbance
from simulator.registry import KINDS, fault, load_tables, on_heal, on_setup, ordinary
from simulator.scenario import Happening, Scenario
from simulator.setup import USUAL
from simulator.whole_scenarios import NOT_WHOLE, WHOLE
from simulator.world import CLEAN, CLOSED, SILENT

_RECENT = "fire temperature above 1, in the last 20 s"
# The first covers the second for exact values, and not for uncertain ones.
SURE = ("heart rate above 70, certain 0.9", "heart rate above 72")
_LINGER = 20_000  # ms that most troubles last


class Play(Byzantine):
    """One scenario, played."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.returns: dict[str, Callable[[], None]] = {}  # by device: gives its rights back

    # Time -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it all, trouble and calm."""
        load_tables()
        world = self.world
        for prepare in on_setup:
            prepare(self)
        is_silent = self.scenario.dial("silent")
        for number in range(0 if is_silent else self.scenario.people):  # somebody wants something
            for asked in (USUAL[number % 3], USUAL[6 + number % 2]):
                world.ask(f"person-{number}", {"subscribe": asked})
            if self.scenario.dial("recent"):
                world.ask(f"person-{number}", {"subscribe": _RECENT})
        for asked in SURE if self.scenario.dial("sure") else ():
            world.ask("person-0", {"subscribe": asked})
        first, second = self.pair(0, 0)
        world.meet(first, second, True)
        for happening in self.scenario.happenings:
            world.calendar.enter(START + happening.time, self._happen, happening)
        probe(self)
        world.run(self.scenario.trouble)
        self.heal()
        world.run(self.scenario.trouble + self.scenario.calm)

    def heal(self) -> None:
        """Let everything be well: nothing more goes wrong."""
        world = self.world
        world.weather.clear()
        for first, second in world.links:
            world.set_weather(first, second, FAIR)
            world.set_weather(second, first, FAIR)
        world.partition([self.scenario.names])
        for host in world.hosts.values():
            host.faults.clear()
            host.medium.sync()
            host.medium.syncs = True
            host.settings = replace(host.settings, disk_delay=2)
        for name in self.scenario.names:
            for other in self.scenario.names:
                if name < other:
                    world.meet(name, other, True)
        for number in range(self.scenario.people):
            person = world.people[f"person-{number}"]
            person.is_mute = False
            world.move_person(person.name, self.home(number))
        for number in range(self.scenario.devices):
            world.devices[f"dog-{number}"].flash.cut_at = 0
            world.move_device(f"dog-{number}", self.node_of_devices(number))
        for mend in on_heal:
            mend(self)

    def _happen(self, happening: Happening) -> None:
        if self.scenario.dial(WHOLE) and happening.kind in NOT_WHOLE:
            return
        body = (happening.body,) if happening.body else ()
        KINDS[happening.kind].act(self, happening.first, happening.second, *body)

    def later(self, call: object, *arguments: object) -> None:
        self.world.calendar.wait(_LINGER, call, *arguments)  # type: ignore[arg-type]

    # What people and the world do -----------------------------------------------------------

    @ordinary("meet")
    def meet(self, first: int, second: int) -> None:
        """Let two nodes come into range."""
        self.world.meet(*self.pair(first, second), True)

    @ordinary("part")
    def part(self, first: int, second: int) -> None:
        """Let two nodes leave each other's range."""
        self.world.meet(*self.pair(first, second), False)

    @ordinary("subscribe", weight=2)
    def subscribe(self, first: int, second: int) -> None:
        """Let somebody ask for something."""
        asked: dict[str, object] = {"subscribe": USUAL[second % len(USUAL)]}
        if first & 256:
            asked["name"] = f"asked-{second % 3}"
        self.world.ask(self.person(first), asked)

    @ordinary("unsubscribe")
    def unsubscribe(self, first: int, second: int) -> None:
        """Let somebody unsubscribe."""
        self.world.ask(self.person(first), {"unsubscribe": f"asked-{second % 3}"})

    @ordinary("walk")
    def walk(self, first: int, second: int) -> None:
        """Let somebody walk to another node."""
        self.world.move_person(self.person(first), self.node(second))

    @ordinary("leave")
    def leave(self, first: int, second: int) -> None:
        """Let somebody go away, and come back."""
        name = self.person(first)
        self.world.move_person(name, "")
        wait = 10_000 + second % 70_000
        self.world.calendar.wait(wait, self.world.move_person, name, self.node(second))

    @ordinary("carry")
    def carry(self, first: int, second: int) -> None:
        """Carry a device to another node."""
        way = (CLOSED, CLEAN, SILENT)[second // 16 % 3]
        self.world.move_device(self.device(first), self.node_of_devices(second), way)

    # What goes wrong with nodes and disks ---------------------------------------------------

    @fault("kill")
    def kill(self, first: int, second: int) -> None:
        """Let a node die between two events."""
        self.world.kill(self.node(first), down=1_000 + second % 20_000)

    def _fail(self, first: int, second: int, trouble: str) -> None:
        operations = ("get", "scan", "apply", "commit", "any")
        operation = operations[second % len(operations)]
        faults = self.world.hosts[self.node(first)].faults
        number = faults.counts[operation] + 1 + second // 8 % 60
        faults.plan(operation, number, trouble)  # type: ignore[arg-type]

    @fault("crash")
    def crash(self, first: int, second: int) -> None:
        """Let a node die in an operation of its store, before it has an effect."""
        self._fail(first, second, "crash")

    @fault("crash-after")
    def crash_after(self, first: int, second: int) -> None:
        """Let a node die right after an operation of its store."""
        self._fail(first, second, "crash-after")

    @fault("disk-full")
    def disk_full(self, first: int, second: int) -> None:
        """Let a disk be full for a few commits."""
        faults = self.world.hosts[self.node(first)].faults
        for number in range(1, 6):
            faults.plan("commit", faults.counts["commit"] + second % 7 + number, "full")

    @fault("disk-failed")
    def disk_failed(self, first: int, second: int) -> None:
        """Let an operation of a store fail."""
        self._fail(first, second, "failed")

    @fault("disk-slow")
    def disk_slow(self, first: int, second: int) -> None:
        """Let a disk take its time."""
        host = self.world.hosts[self.node(first)]
        host.settings = replace(host.settings, disk_delay=100 + second % 3_000)

    @fault("lying-disk")
    def lying_disk(self, first: int, second: int) -> None:
        """Let a disk say that things are written, and forget the last of them at a crash."""
        host = self.world.hosts[self.node(first)]
        host.medium.syncs = False
        self.world.calendar.wait(500 + second % 8_000, self.world.kill, host.name, "lying disk")

    # What goes wrong between nodes ----------------------------------------------------------

    def _spoil(
        self, first: int, second: int, weather: Disturbance, *, is_both: bool = True
    ) -> None:
        one, other = self.pair(first, second)
        self.world.set_weather(one, other, weather)
        if is_both:
            self.world.set_weather(other, one, weather)

    @fault("loss")
    def loss(self, first: int, second: int) -> None:
        """Lose frames."""
        self._spoil(first, second, Disturbance(loss=0.1 + second % 5 / 10))

    @fault("one-sided")
    def one_sided(self, first: int, second: int) -> None:
        """Carry frames in one direction only."""
        self._spoil(first, second, Disturbance(loss=1.0), is_both=False)

    @fault("repeat")
    def repeat(self, first: int, second: int) -> None:
        """Repeat frames."""
        self._spoil(first, second, Disturbance(repeat=0.5))

    @fault("reorder")
    def reorder(self, first: int, second: int) -> None:
        """Let frames overtake each other."""
        self._spoil(first, second, Disturbance(jitter=50 + second % 3_000))

    @fault("corrupt")
    def corrupt(self, first: int, second: int) -> None:
        """Spoil bytes of frames."""
        self._spoil(first, second, Disturbance(corrupt=0.1 + second % 5 / 10))

    @fault("partition")
    def partition(self, first: int, _: int) -> None:
        """Divide the nodes for a while."""
        names = self.scenario.names
        cut = 1 + first % (len(names) - 1)
        self.world.partition([names[:cut], names[cut:]])
        self.later(self.world.partition, [names])

    @fault("clock-jump")
    def clock_jump(self, first: int, second: int) -> None:
        """Set a node's clock."""
        jump = (second % 2_000 - 1_000) * (60_000 if first & 16 else 100)
        self.world.set_clock(self.node(first), jump)

    # What goes wrong with devices and people ------------------------------------------------

    @fault("power-cut")
    def power_cut(self, first: int, second: int) -> None:
        """Let a device die in the middle of writing its flash."""
        device = self.world.devices[self.device(first)]
        device.flash.rng = Random(second)
        device.flash.cut_at = device.flash.changes + 1 + second % 9

    @fault("hang-up")
    def hang_up(self, first: int, _: int) -> None:
        """Break a subscriber's connection, with everything that is on its way."""
        person = self.world.people[self.person(first)]
        self.world.move_person(person.name, person.node)

    @fault("mute")
    def mute(self, first: int, _: int) -> None:
        """Let a subscriber receive notes and not acknowledge them, for a while."""
        person = self.world.people[self.person(first)]
        person.is_mute = True

        def speak() -> None:
            person.is_mute = False
            self.world.move_person(person.name, person.node)

        self.later(speak)


__all__ = ["Play"]
