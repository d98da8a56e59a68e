"""The stage of a scenario: its world, with everybody in it, and who is meant by a number.

Numbers of happenings are taken modulo what there is, so that every list of them can be played. Only
this file sets up the world of a campaign. Its dials, each 0 in the plainest scenario:

| dial | chooses |
|---|---|
| `silent` | whether nobody asks for the usual things at the beginning |
| `sensors` | what each device measures, and how exactly: two bits each |
| `slow` | whether one of its sensors has a value every other time only: a bit each |
| `apps` | which devices are apps, whose end no server announces: a bit each |
| `clients` | what each person uses: two bits each |
| `covering` | how nodes decide what devices need not know |
| `organisation` | whose words the nodes prefer |
| `home` | whether Home Assistant is beside the nodes |
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from denwatch.client.vocabulary import Vocabulary, build_vocabulary
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.home_assistant import HomeSettings, Visibility
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.covering import Approximate, Exact, PairWise
from denwatch.watchdog.spool import NODES

from simulator.device import Sense
from simulator.hosted_node import HostSettings
from simulator.keys import Roster, find_hidden
from simulator.link import Radio
from simulator.person import BROKEN, LIBRARY, PLAIN
from simulator.registry import dial
from simulator.scenario import Scenario
from simulator.truth import Truth
from simulator.whole_scenarios import HIDDEN, MAD, make_world
from simulator.world import WorldSettings

USUAL = (
    "patient temperature is high",
    "patient temperature is very high",
    "heart rate is not normal",
    "patient temperature is high and heart rate is high",
    "patient temperature is normal",
    "fire temperature is high",
    "heart rate is high, top 2, expires after 60 s",
    "patient temperature is low, expires after 30 s",
)
# What devices measure. Accuracies are as in data sheets: tenths of a degree, and a pulse that may
# be far off while somebody moves.
SENSORS = (
    (Sense(1, (0, 1), period=12_000), Sense(2, (0,), period=20_000)),
    (
        Sense(1, (0, 1), period=12_000, accuracies={0: (2, 8), 1: (3, 20)}),
        Sense(2, (0, 1), period=20_000, accuracies={0: (1, 4)}),
    ),
    (
        Sense(1, (1, 7, 8, 12, 14), (12, 14), 15_000, lasts={7: 3, 8: 3}),
        Sense(2, (0,), period=20_000),
        Sense(4, (0,), period=20_000, graded={0: 3}),  # a road's access, a text with degrees
    ),
    (Sense(1, (1,), period=12_000, accuracies={1: (0, 20)}),),
)
POLICIES = (Exact(), Approximate(), PairWise())
ORGANISATIONS = (None, "hospital", "red_cross", "fire_brigade")
_CLIENTS = (LIBRARY, PLAIN, BROKEN, LIBRARY)
_SLOW = 20_000  # bytes a second; below it an exchange needs more patience


@dial("silent")
def draw_silent(rng: Random) -> int:
    """Let half of all begin without the usual subscriptions."""
    return int(rng.random() < 0.5)


@dial("sensors")
def draw_sensors(rng: Random) -> int:
    """Let most have other sensors than the plainest, half of all uncertain ones."""
    if rng.random() < 0.25:
        return 0
    return sum(rng.choice((0, 1, 1, 2, 3, 3)) << 2 * device for device in range(5))


@dial("slow")
def draw_slow(rng: Random) -> int:
    """Let some devices have a slow sensor, so that readings of different times join."""
    return rng.randrange(1 << 5) if rng.random() < 0.6 else 0


@dial("apps")
def draw_apps(rng: Random) -> int:
    """Let some devices be apps."""
    return rng.randrange(1 << 5) if rng.random() < 0.3 else 0


@dial("clients")
def draw_clients(rng: Random) -> int:
    """Let some people have other clients than our library."""
    return rng.randrange(1 << 12) if rng.random() < 0.5 else 0


@dial("covering")
def draw_covering(rng: Random) -> int:
    """Choose how nodes decide about covering."""
    return rng.choice((0, 0, 1, 1, 2))


@dial("organisation")
def draw_organisation(rng: Random) -> int:
    """Choose an organisation."""
    return rng.choice((0, 0, 1, 2, 3))


@dial("home")
def draw_home(rng: Random) -> int:
    """Put Home Assistant beside some."""
    return int(rng.random() < 0.2)


@cache
def load_vocabulary(version: int) -> Vocabulary:
    """Return a version of the vocabulary; the second one has more words for the same things."""
    first = load_shipped("rescue")
    if version == 1:
        return first
    document: dict[str, Any] = copy.deepcopy(dict(first.document))
    document["thesaurus"]["hospital"]["beats"] = "patient.heart_rate"
    return build_vocabulary(document)


class RosterRules:
    """The table of roles as Home Assistant's part of a node asks for it."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def keep_visible(self, role: str, event: str, attributes: Iterable[str]) -> list[str]:
        """Return those attributes of an event that a role may see."""
        hidden = self._roster.hidden
        return [name for name in attributes if find_hidden(hidden, role, event, (name,)) is None]


class Setup:
    """One scenario's world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.truth = Truth()
        retry = 2_000 if scenario.bandwidth >= _SLOW else 5_000
        is_changing = any(each.kind == "upgrade" for each in scenario.happenings)
        settings = HostSettings(
            peers=PeerSettings(strategy=scenario.strategy, retry=retry, chunk=4_096),
            subscribers=SubscriberSettings(
                # All have one vocabulary from the start: none has to tell it to the others.
                is_announcing=is_changing,
                held_limit=scenario.room,
                organisation=ORGANISATIONS[scenario.dial("organisation")],
            ),
            devices=DeviceSettings(
                policy=POLICIES[scenario.dial("covering")],
                patience=4_000,
                longest_patience=16_000,
                is_whole=bool(scenario.dial("home")),
            ),
            home=HomeSettings("homeassistant", 0, "1") if scenario.dial("home") else None,
        )
        self.world = world = make_world(
            scenario,
            load_vocabulary(1),
            WorldSettings(host=settings, radio=Radio(bandwidth=scenario.bandwidth)),
            self.truth.watch,
        )
        world.keeps_readings = world.has_wills = True
        self.truth.world = world
        self.rng = Random(scenario.seed + 1)
        world.roster.hidden = dict(HIDDEN)
        world.roster.devices[MAD] = None
        for name in scenario.names:
            host = world.add_node(name)
            if scenario.dial("home"):
                host.visibility = Visibility(RosterRules(world.roster), ("helper",))
                host.restart(world.now)
        for number in range(scenario.people):
            role = "helper" if number == 1 else "all"
            client = _CLIENTS[scenario.dial("clients") >> 2 * number & 3]
            world.add_person(f"person-{number}", self.node(number + 2), role, client)  # not at home
        for number in range(scenario.devices):
            name = f"dog-{number}"
            device = world.add_device(
                name, self.node_of_devices(number), self.list_senses(number, 0)
            )
            device.has_will = not scenario.dial("apps") >> number & 1

    def list_senses(self, device: int, change: int) -> list[Sense]:
        """Return what a device measures, by its number and how often its sensors were changed."""
        sensors = SENSORS[((self.scenario.dial("sensors") >> 2 * device) + change) & 3]
        is_slow = self.scenario.dial("slow") >> device & 1
        return [
            replace(
                sense,
                period=sense.period * self.scenario.pace,
                slow=sense.attributes[1:2] if is_slow else (),
            )
            for sense in sensors
        ]

    def home(self, number: int) -> str:
        """Return where a person is in the end."""
        return self.node(number + 1)

    def node(self, number: int) -> str:
        """Return a node by any number."""
        return self.scenario.names[number % self.scenario.nodes]

    def node_of_devices(self, number: int) -> str:
        """Return a node that devices know, by any number: a device has keys for a few only."""
        known = self.scenario.names[:NODES]
        return known[number % len(known)]

    def pair(self, first: int, second: int) -> tuple[str, str]:
        """Return two different nodes by any numbers."""
        one = first % self.scenario.nodes
        other = (one + 1 + second % (self.scenario.nodes - 1)) % self.scenario.nodes
        return self.node(one), self.node(other)

    def person(self, number: int) -> str:
        """Return a person by any number."""
        return f"person-{number % self.scenario.people}"

    def device(self, number: int) -> str:
        """Return a device by any number."""
        return f"dog-{number % self.scenario.devices}"


__all__ = ["HIDDEN", "MAD", "SENSORS", "USUAL", "Setup", "load_vocabulary"]
