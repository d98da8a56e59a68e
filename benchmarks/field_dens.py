"""The scenario of the DENS paper on the emulator: fifty real nodes, one publisher a group.

The paper (section 5) emulates a network of 50 nodes with up to 1,000 random subscriptions of 3 and
4 attributes, and lets a publisher measure 200 events, one a second. Here the fifty are the crew of
a disaster area; each of its groups has one publisher, a real watchdog core that filters at the
source; the subscriptions are those of twenty people, known to all nodes, as after replication.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import NEVER, SUBSCRIPTION, Item, SubscriptionBody, encode_body
from denwatch.node.core.notifications import Notification
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings, Subscriptions
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector

from benchmarks.common import median, say
from papers import BFCPAB, FNIF, AttributeValue
from papers.evaluations.dens_runs import draw_subscriptions, draw_vocabulary, load, time_each
from simulator.device import EmulatedDevice, Sense
from simulator.hosted_node import HostSettings
from simulator.mobility import find_contacts, plan_disaster
from simulator.world import World, WorldSettings

NODES, PEOPLE, EVENTS = 50, 20, 200
MINUTE = 60_000
STRATEGY = "spray:4"  # few copies: what is measured here is matching, not carrying
_FIRST = 1  # the vocabulary's events have numbers from here on
_LATER = 2 * MINUTE  # how long what was sent may travel


@dataclass
class Figures:
    """What one number of subscriptions came to; times in ms of processor time."""

    subscriptions: int
    installed: dict[int, int] = field(default_factory=dict)  # by event: vectors at its publishers
    measured: int = 0
    sent: int = 0
    delivered: int = 0
    filtering: list[float] = field(default_factory=list)  # of an event at its source
    matching: list[float] = field(default_factory=list)  # of a notification at a node
    engines: dict[str, float] = field(default_factory=dict)  # the paper's, on the same ones


class Publisher:
    """Times the filtering of a device's events, and stops after enough of them."""

    def __init__(self, device: EmulatedDevice, figures: Figures, count: int) -> None:
        self.left = count
        self._device = device
        self._figures = figures
        self._sample = device.sample
        self.is_counted = False
        device.sample = self.sample  # type: ignore[method-assign]

    def sample(self, now: int) -> int:
        """Measure, in place of the device's own."""
        start = time.thread_time()
        due = self._sample(now)
        if self.is_counted:
            self._figures.filtering.append(1e3 * (time.thread_time() - start))
            self.left -= 1
            if not self.left:
                self._device.die()
        return due


@contextlib.contextmanager
def watch_matching(figures: Figures, seen: dict[int, NotificationVector]) -> Iterator[None]:
    """Time every notification that any node matches, and keep what they were."""
    plain = Subscriptions.match_many

    def match_many(
        self: Subscriptions, notes: Sequence[Notification], now: int
    ) -> list[list[object]]:
        start = time.thread_time()
        found = plain(self, notes, now)
        spent = 1e3 * (time.thread_time() - start)
        figures.matching += [spent / len(notes)] * len(notes)
        seen.update({note.id: note.vector for note in notes})
        return found  # type: ignore[return-value]

    Subscriptions.match_many = match_many  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Subscriptions.match_many = plain  # type: ignore[method-assign]


def run_scenario(count: int, seed: int, events: int = EVENTS) -> Figures:
    """Let it happen with so many subscriptions."""
    figures = Figures(count)
    rng = np.random.default_rng(seed)
    drawn = [move_event(s) for s in draw_subscriptions(rng, draw_vocabulary(rng), count)]
    settings = HostSettings(
        peers=PeerSettings(strategy=STRATEGY),
        subscribers=SubscriberSettings(is_announcing=False, purge_after=0),
    )
    world = World(seed, load_shipped("rescue"), WorldSettings(host=settings))
    duration = 2 * MINUTE + 1_000 * events + _LATER
    paths = plan_disaster(NODES, duration, Random(seed))
    names = [f"node-{number:02d}" for number in range(NODES)]
    for name in names:
        world.add_node(name)
    ask_all(world, names, drawn)
    world.follow(find_contacts(paths, duration, 60.0), names)
    publishers: list[Publisher] = []
    device_event: dict[str, int] = {}
    for place, group in enumerate(dict.fromkeys(path.group for path in paths)):
        node = next(number for number, path in enumerate(paths) if path.group == group)
        sense = Sense(_FIRST + place % 3, (0, 1, 2, 3), period=1_000)
        device = world.add_device(f"{group}s-dog", names[node], [sense], _read_anything)
        publishers.append(Publisher(device, figures, events))
        device_event[device.name] = sense.event
    seen: dict[int, NotificationVector] = {}
    with watch_matching(figures, seen):
        world.run(MINUTE)  # vectors go to the devices
        figures.matching.clear()
        seen.clear()
        for device, publisher in zip(world.devices.values(), publishers, strict=True):
            if not world.hosts[device.node].devices.is_installed(device.name):
                raise AssertionError(f"{device.name} has not all vectors after a minute")
            figures.installed[device_event[device.name]] = device.language.filter.count
            publisher.is_counted = True
        told = sum(len(device.told) for device in world.devices.values())
        world.run(duration)
    figures.measured = events * len(publishers)
    figures.sent = sum(len(device.told) for device in world.devices.values()) - told
    figures.delivered = sum(len(person.notes) for person in world.people.values())
    figures.engines = time_engines(drawn, list(seen.values())[:60])
    return figures


def move_event(s: SubscriptionVector) -> SubscriptionVector:
    """Return a subscription with the vocabulary's number of its event."""
    predicates: list[Predicate] = list(s.predicates)
    return SubscriptionVector(s.event + _FIRST, predicates, s.aggregator, s.threshold)


def ask_all(world: World, names: Sequence[str], drawn: Sequence[SubscriptionVector]) -> None:
    """Let people ask at their nodes, and let all nodes know of it."""
    homes = [names[number * len(names) // PEOPLE] for number in range(PEOPLE)]
    for number, home in enumerate(homes):
        world.add_person(f"person-{number:02d}", home)
    items: list[Item] = []
    for number, vector in enumerate(drawn):
        owner = number % PEOPLE
        items.append(_originate(world, homes[owner], f"person-{owner:02d}", number, vector))
    for name in names:
        host = world.hosts[name]

        def accept(transaction: Transaction, name: str = name) -> None:
            for item in items:
                if item.dot.origin != name:
                    world.hosts[name].item_store.accept(transaction, item, item.dot.origin)

        world.act(host.name, accept)


def _originate(
    world: World, node: str, owner: str, number: int, vector: SubscriptionVector
) -> Item:
    host = world.hosts[node]
    words = f"situation {number}"
    body = SubscriptionBody(
        owner, "all", words, host.time, 0, world.vocabulary_hash, encode(vector), {}
    )
    made: list[Item] = []

    def make(transaction: Transaction) -> None:
        made.append(host.item_store.originate(transaction, SUBSCRIPTION, NEVER, encode_body(body)))

    world.act(node, make)
    return made[0]


def _read_anything(rng: Random, event: int, level: int, last: int) -> int:  # noqa: ARG001
    """Return a reading that has nothing to do with the last one."""
    return rng.randrange(last + 1)


def time_engines(
    subscriptions: Sequence[SubscriptionVector], notifications: Sequence[NotificationVector]
) -> dict[str, float]:
    """Return the ms of one notification with the paper's algorithms, on what the nodes matched."""
    makers = {"FNIF": FNIF, "break-down": BFCPAB, "crisp": AttributeValue}
    spent = {}
    for name, make in makers.items():
        engine, _ = load(make, subscriptions)
        spent[name] = time_each(engine.match, notifications) if notifications else 0.0
    return spent


def measure_scenario(sizes: Sequence[int], seed: int, events: int) -> list[Figures]:
    """Return the figures of all sizes."""
    found = []
    for size in sizes:
        began = time.perf_counter()
        figures = run_scenario(size, seed, events)
        found.append(figures)
        say(
            f"{size} subscriptions: {median(figures.filtering):.3f} ms an event,"
            f" {median(figures.matching):.3f} ms a notification,"
            f" {time.perf_counter() - began:.0f} s"
        )
    return found
