"""Plays a scenario in a world: each kind of event is one method here, or in `byzantine.py`.

After the trouble everything heals: links between all nodes, fair weather, people at home.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from simulator.byzantine import Byzantine
from simulator.calendar import START
from simulator.link import FAIR, Disturbance
from simulator.scenario import Happening
from simulator.setup import WISHES

_LINGER = 20_000  # ms that most troubles last


class Play(Byzantine):
    """One scenario, played."""

    # Time -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it all, trouble and calm."""
        world = self.world
        for number in range(self.scenario.people):  # somebody wants something from the start
            for wish in (WISHES[number % 3], WISHES[6 + number % 2]):
                world.ask(f"person-{number}", {"subscribe": wish})
        first, second = self.pair(0, 0)
        world.meet(first, second, True)
        for happening in self.scenario.happenings:
            world.calendar.enter(START + happening.time, self._happen, happening)
        world.run(self.scenario.trouble)
        self.heal()
        world.run(self.scenario.trouble + self.scenario.calm)

    def heal(self) -> None:
        """Let everything be well: nothing more goes wrong."""
        world = self.world
        world.weather.clear()
        for (first, second), air in world.links.items():
            air.ways[first].weather = air.ways[second].weather = FAIR
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

    def _happen(self, happening: Happening) -> None:
        method = getattr(self, "_do_" + happening.kind.replace("-", "_"))
        method(happening.first, happening.second)

    def _later(self, call: object, *arguments: object) -> None:
        self.world.calendar.wait(_LINGER, call, *arguments)  # type: ignore[arg-type]

    # What people and the world do -----------------------------------------------------------

    def _do_meet(self, first: int, second: int) -> None:
        self.world.meet(*self.pair(first, second), True)

    def _do_part(self, first: int, second: int) -> None:
        self.world.meet(*self.pair(first, second), False)

    def _do_subscribe(self, first: int, second: int) -> None:
        wish: dict[str, object] = {"subscribe": WISHES[second % len(WISHES)]}
        if first & 256:
            wish["name"] = f"wish-{second % 3}"
        self.world.ask(self.person(first), wish)

    def _do_unsubscribe(self, first: int, second: int) -> None:
        self.world.ask(self.person(first), {"unsubscribe": f"wish-{second % 3}"})

    def _do_walk(self, first: int, second: int) -> None:
        self.world.move_person(self.person(first), self.node(second))

    def _do_leave(self, first: int, second: int) -> None:
        name = self.person(first)
        self.world.move_person(name, "")
        wait = 10_000 + second % 70_000
        self.world.calendar.wait(wait, self.world.move_person, name, self.node(second))

    def _do_carry(self, first: int, second: int) -> None:
        self.world.move_device(self.device(first), self.node_of_devices(second))

    # What goes wrong with nodes and disks ---------------------------------------------------

    def _do_kill(self, first: int, second: int) -> None:
        self.world.kill(self.node(first), down=1_000 + second % 20_000)

    def _fail(self, first: int, second: int, trouble: str) -> None:
        operations = ("get", "scan", "apply", "commit", "any")
        operation = operations[second % len(operations)]
        faults = self.world.hosts[self.node(first)].faults
        number = faults.counts[operation] + 1 + second // 8 % 60
        faults.plan(operation, number, trouble)  # type: ignore[arg-type]

    def _do_crash(self, first: int, second: int) -> None:
        self._fail(first, second, "crash")

    def _do_crash_after(self, first: int, second: int) -> None:
        self._fail(first, second, "crash-after")

    def _do_disk_full(self, first: int, second: int) -> None:
        faults = self.world.hosts[self.node(first)].faults
        for number in range(1, 6):
            faults.plan("commit", faults.counts["commit"] + second % 7 + number, "full")

    def _do_disk_failed(self, first: int, second: int) -> None:
        self._fail(first, second, "failed")

    def _do_disk_slow(self, first: int, second: int) -> None:
        host = self.world.hosts[self.node(first)]
        host.settings = replace(host.settings, disk_delay=100 + second % 3_000)

    def _do_lying_disk(self, first: int, second: int) -> None:
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

    def _do_loss(self, first: int, second: int) -> None:
        self._spoil(first, second, Disturbance(loss=0.1 + second % 5 / 10))

    def _do_one_sided(self, first: int, second: int) -> None:
        self._spoil(first, second, Disturbance(loss=1.0), is_both=False)

    def _do_repeat(self, first: int, second: int) -> None:
        self._spoil(first, second, Disturbance(repeat=0.5))

    def _do_reorder(self, first: int, second: int) -> None:
        self._spoil(first, second, Disturbance(jitter=50 + second % 3_000))

    def _do_corrupt(self, first: int, second: int) -> None:
        self._spoil(first, second, Disturbance(corrupt=0.1 + second % 5 / 10))

    def _do_partition(self, first: int, _: int) -> None:
        names = self.scenario.names
        cut = 1 + first % (len(names) - 1)
        self.world.partition([names[:cut], names[cut:]])
        self._later(self.world.partition, [names])

    def _do_clock_jump(self, first: int, second: int) -> None:
        jump = (second % 2_000 - 1_000) * (60_000 if first & 16 else 100)
        self.world.set_clock(self.node(first), jump)

    # What goes wrong with devices and people ------------------------------------------------

    def _do_power_cut(self, first: int, second: int) -> None:
        device = self.world.devices[self.device(first)]
        device.flash.rng = Random(second)
        device.flash.cut_at = device.flash.changes + 1 + second % 9

    def _do_hang_up(self, first: int, _: int) -> None:
        person = self.world.people[self.person(first)]
        self.world.move_person(person.name, person.node)

    def _do_mute(self, first: int, _: int) -> None:
        person = self.world.people[self.person(first)]
        person.is_mute = True

        def speak() -> None:
            person.is_mute = False
            self.world.move_person(person.name, person.node)

        self._later(speak)


__all__ = ["Play"]
