"""A day in the field: a whole site of moving nodes, people and devices, and what came of it.

What `python -m simulator` runs. Everybody carries a node; some are people who ask for something,
some have a patient's or a fire's watchdog with them. The figures are counted from outside: what
nodes wrote to their logs, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.events import Log
from denwatch.node.core.items import NOTIFICATION
from denwatch.node.core.peers import PeerSettings

from simulator.calendar import START
from simulator.hosted_node import HostedNode, HostSettings
from simulator.link import Radio
from simulator.mobility import Path, find_contacts, find_place, plan_disaster, walk_randomly
from simulator.population import AWAY, STEADY, SUBSCRIPTIONS, Act, make_cast
from simulator.traces import ContactEvent
from simulator.verdict import Judge, Verdict
from simulator.witness import WatchedWorld
from simulator.world import World, WorldSettings

_SHARE = 5  # one in so many nodes has a person who asks, and one a device
_REST = 64_000  # ms: the longest time that nothing happens to a node
_CLOSE_LOOK = 200  # nodes; more are looked at every five seconds


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
    people: int = 0  # who ask for something; 0: one in five nodes
    devices: int = 0
    period: int = 180_000  # of a device's readings
    is_watched: bool = False  # keep all that is needed to judge the day


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
    """One moment, for a picture; `moved` and `served` are what happened since the one before."""

    time: int
    places: list[tuple[float, float]]
    links: list[tuple[int, int]]
    held: list[int]
    moved: list[tuple[int, int]]  # which node handed a notification to which
    served: list[int]  # nodes at which one was delivered
    made: int
    delivered: int


class Day:
    """One day."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self.snapshots: list[Snapshot] = []
        self.read_at: dict[int, int] = {}  # by notification, of a day that was judged
        settings = WorldSettings(
            host=HostSettings(peers=PeerSettings(strategy=plan.strategy), logs=plan.logs),
            radio=plan.radio,
            longest_tick=_REST,
            tick_growth=4,
        )
        kind = WatchedWorld if plan.is_watched else World
        self.world = kind(plan.seed, load_shipped("rescue"), settings, self._watch)
        self.names = [f"node-{number:03d}" for number in range(plan.nodes)]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._moved: dict[tuple[int, int], None] = {}
        self._served: dict[int, None] = {}
        self.paths: list[Path] = []
        self.contacts = list(plan.contacts) or self._move()
        self._begin()

    def _move(self) -> list[ContactEvent]:
        models = {"disaster": plan_disaster, "waypoint": walk_randomly}
        plan = self.plan
        self.paths = models[plan.mobility](plan.nodes, plan.duration, Random(plan.seed))
        step = 1_000 if plan.nodes <= _CLOSE_LOOK else 5_000
        return find_contacts(self.paths, plan.duration, plan.radio.reach, step)

    def _begin(self) -> None:
        """Put up nodes, give some of them people and devices, and plan what these do."""
        world, plan = self.world, self.plan
        share = max(1, plan.nodes // _SHARE)
        people, devices = plan.people or share, plan.devices or share
        cast = make_cast(plan.seed + 1, plan.nodes, plan.duration, people, devices, plan.period)
        for name in self.names:
            world.add_node(name)
        self.people = [part.node for part in cast.people]
        self.devices = [node for _, node, _ in cast.devices]
        for part in cast.people:
            world.add_person(part.name, self.names[part.node])
            for act in part.acts:
                world.calendar.enter(START + act.time, self._act, part.name, act)
        for name, node, sense in cast.devices:
            world.add_device(name, self.names[node], [sense])
        world.follow(self.contacts, self.names)

    def _act(self, name: str, act: Act) -> None:
        world = self.world
        if act.subscription is not None:
            number = sum("subscribe" in each.body for each in world.people[name].requests.values())
            world.ask(name, {"subscribe": act.subscription.words, "name": f"subscription-{number}"})
        elif act.end:
            world.ask(name, {"unsubscribe": act.end})
        else:
            world.move_person(name, "" if act.node == AWAY else self.names[act.node])

    def _watch(self, host: HostedNode, log: Log, time: int) -> None:  # noqa: ARG002 - a Watch
        fields, now = log.fields, self.world.now
        if log.kind == "note" and not fields["source"]:
            self.tally.made[int(str(fields["item"]))] = now
        elif log.kind == "match":
            self.tally.wanted.add((int(str(fields["note"])), str(fields["owner"])))
        elif log.kind == "deliver":
            self.tally.delivered.setdefault((int(str(fields["note"])), str(fields["owner"])), now)
            self._served[self._numbers[host.name]] = None
        elif log.kind == "transfer" and not fields["is_out"] and fields["what"] == "notification":
            self.tally.relays += 1
            self._moved[self._numbers[str(fields["peer"])], self._numbers[host.name]] = None

    def run(
        self, tell: Callable[[float], None] = lambda _: None, pictures: int = 0, steps: int = 100
    ) -> Tally:
        """Let the day pass; `tell` hears how much of it has, `pictures` moments are kept."""
        duration, steps = self.plan.duration, pictures or steps
        for step in range(1, steps + 1):
            # The last moment of a day has no contacts any more: a picture is of just before.
            self.world.run(duration * step // steps - (step == steps))
            for host in self.world.hosts.values():
                host.move_log()
            if pictures:
                self.snapshots.append(self._look())
            tell(step / steps)
        self.world.run(duration)
        self.world.close()
        return self.tally

    def judge(self, late: int) -> dict[tuple[int, str], Verdict]:
        """Return the truth about a day that was watched and is over; `late` in ms."""
        world = self.world
        if not isinstance(world, WatchedWorld):
            raise TypeError("nobody watched this day")
        world.witness.close(world.now)
        judge = Judge(
            world.witness,
            world.devices,
            world.vocabulary,
            {subscription.words: subscription for subscription in (*SUBSCRIPTIONS, *STEADY)},
            delay=world.settings.local_delay,
            end=world.now,
            late=late,
        )
        self.read_at = judge.read_at
        return judge.judge()

    def _look(self) -> Snapshot:
        time, numbers = self.world.now - START, self._numbers
        moved, served = list(self._moved), list(self._served)
        self._moved, self._served = {}, {}
        return Snapshot(
            time,
            [find_place(path, time) for path in self.paths],
            [(numbers[first], numbers[second]) for first, second in sorted(self.world.links)],
            [host.item_store.count(NOTIFICATION) for host in self.world.hosts.values()],
            moved,
            served,
            len(self.tally.made),
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
