"""A day in the field: a whole site of moving nodes, people and devices, and what came of it.

What `denwatch field` runs. Everybody carries a node; some are people who ask for something, some
have a patient's or a fire's watchdog with them. The figures are counted from outside: what nodes
wrote to their logs, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from edge.client.vocabulary.loading import load_shipped
from edge.dens.core.interface import Log
from edge.dens.core.items import NOTIFICATION
from edge.dens.core.peers import PeerSettings
from edge.field.air import Radio
from edge.field.calendar import START
from edge.field.dog import Sense
from edge.field.host import Host, HostSettings
from edge.field.mobility import Path, find_contacts, find_place, plan_disaster, walk_randomly
from edge.field.traces import ContactEvent
from edge.field.world import World, WorldSettings

WISHES = (
    "patient temperature is very high",
    "heart rate is not normal",
    "patient temperature is high and heart rate is high",
    "fire temperature is high",
)
SENSES = ((Sense(1, (0, 1, 2), period=60_000),), (Sense(2, (0, 1), period=60_000),))
_SHARE = 5  # one in so many nodes has a person who asks, and one a device


@dataclass(frozen=True)
class Plan:
    """What a day is like; times in ms."""

    seed: int
    nodes: int
    duration: int
    strategy: str = "utility"
    mobility: str = "disaster"  # or "waypoint"
    radio: Radio = field(default_factory=lambda: Radio(reach=60.0))
    logs: str | None = None
    contacts: tuple[ContactEvent, ...] = ()  # of a trace, in the place of mobility


@dataclass
class Tally:
    """What came of it."""

    made: dict[int, int] = field(default_factory=dict)  # note: when it was taken
    wanted: set[tuple[int, str]] = field(default_factory=set)
    delivered: dict[tuple[int, str], int] = field(default_factory=dict)
    relays: int = 0

    def list_latencies(self) -> list[float]:
        """Return the seconds from node to subscriber, sorted."""
        return sorted((time - self.made[pair[0]]) / 1000 for pair, time in self.delivered.items())


@dataclass(frozen=True)
class Snapshot:
    """One moment, for a picture."""

    time: int
    places: list[tuple[float, float]]
    links: list[tuple[int, int]]
    held: list[int]
    delivered: int


class Day:
    """One day."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self.snapshots: list[Snapshot] = []
        settings = HostSettings(peers=PeerSettings(strategy=plan.strategy), logs=plan.logs)
        self.world = World(
            plan.seed,
            load_shipped("rescue"),
            WorldSettings(host=settings, radio=plan.radio),
            self._watch,
        )
        self.names = [f"node-{number:03d}" for number in range(plan.nodes)]
        self.paths: list[Path] = []
        self.contacts = list(plan.contacts) or self._move()
        self._people()

    def _move(self) -> list[ContactEvent]:
        models = {"disaster": plan_disaster, "waypoint": walk_randomly}
        plan = self.plan
        self.paths = models[plan.mobility](plan.nodes, plan.duration, Random(plan.seed))
        step = 1_000 if plan.nodes <= 200 else 5_000
        return find_contacts(self.paths, plan.duration, plan.radio.reach, step)

    def _people(self) -> None:
        """Put up nodes, and give some of them people who ask, and devices."""
        world, rng = self.world, Random(self.plan.seed + 1)
        for name in self.names:
            world.add_node(name)
        for number, name in enumerate(self.names):
            if number % _SHARE == 0:
                person = world.add_person(f"person-{number:03d}", name)
                world.ask(person.name, {"subscribe": rng.choice(WISHES)})
            elif number % _SHARE == _SHARE // 2:
                world.add_dog(f"dog-{number:03d}", name, SENSES[number // _SHARE % 2])
        world.follow(self.contacts, self.names)

    def _watch(self, host: Host, log: Log, time: int) -> None:  # noqa: ARG002 - a Watch
        fields, now = log.fields, self.world.now
        if log.kind == "note" and not fields["source"]:
            self.tally.made[int(str(fields["item"]))] = now
        elif log.kind == "match":
            self.tally.wanted.add((int(str(fields["note"])), str(fields["owner"])))
        elif log.kind == "deliver":
            self.tally.delivered.setdefault((int(str(fields["note"])), str(fields["owner"])), now)
        elif log.kind == "transfer" and not fields["is_out"] and fields["what"] == "notification":
            self.tally.relays += 1

    def run(
        self, tell: Callable[[float], None] = lambda _: None, pictures: int = 0, steps: int = 100
    ) -> Tally:
        """Let the day pass; `tell` hears how much of it has, `pictures` moments are kept."""
        duration = self.plan.duration
        moments = {steps * (number + 1) // pictures for number in range(pictures)}
        for step in range(1, steps + 1):
            self.world.run(duration * step // steps)
            for host in self.world.hosts.values():
                host.move_log()
            if step in moments:
                self.snapshots.append(self._look())
            tell(step / steps)
        self.world.close()
        return self.tally

    def _look(self) -> Snapshot:
        time = self.world.now - START
        numbers = {name: number for number, name in enumerate(self.names)}
        return Snapshot(
            time,
            [find_place(path, time) for path in self.paths],
            [(numbers[first], numbers[second]) for first, second in sorted(self.world.links)],
            [host.holdings.count(NOTIFICATION) for host in self.world.hosts.values()],
            len(self.tally.delivered),
        )

    def describe(self) -> dict[str, float]:
        """Return the figures of the day."""
        tally = self.tally
        latencies = tally.list_latencies()
        count = len(latencies)
        return {
            "nodes": self.plan.nodes,
            "hours": self.plan.duration / 3_600_000,
            "contacts": self.world.contacts,
            "notifications": len(tally.made),
            "wanted": len(tally.wanted),
            "delivered": count,
            "delivery": round(count / len(tally.wanted), 4) if tally.wanted else 0.0,
            "latency_median_s": round(_find(latencies, 0.5), 1),
            "latency_p95_s": round(_find(latencies, 0.95), 1),
            "relays_a_notification": round(tally.relays / len(tally.made), 2)
            if tally.made
            else 0.0,
            "megabytes": round(self.world.count_bytes() / 1e6, 3),
            "events": self.world.calendar.count,
        }


def _find(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
