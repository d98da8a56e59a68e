"""The stage of a scenario: its world, with everybody in it, and who is meant by a number.

Numbers of happenings are taken modulo what there is, so that every list of them can be played. Only
this file sets up the world of a campaign.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.covering import Exact
from denwatch.watchdog.spool import NODES

from simulator.device import Sense
from simulator.hosted_node import HostSettings
from simulator.link import Radio
from simulator.scenario import Scenario
from simulator.truth import Truth
from simulator.world import World, WorldSettings

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
MAD = "mad"  # a device whose key is good and whose mind is not
_SLOW = 20_000  # bytes a second; below it an exchange needs more patience


class Setup:
    """One scenario's world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.truth = Truth()
        retry = 2_000 if scenario.bandwidth >= _SLOW else 5_000
        settings = HostSettings(
            peers=PeerSettings(strategy=scenario.strategy, retry=retry, chunk=4_096),
            subscribers=SubscriberSettings(is_announcing=False, held_limit=scenario.room),
            devices=DeviceSettings(policy=Exact(), patience=4_000, longest_patience=16_000),
        )
        self.world = world = World(
            scenario.seed,
            load_shipped("rescue"),
            WorldSettings(host=settings, radio=Radio(bandwidth=scenario.bandwidth)),
            self.truth.watch,
        )
        self.truth.world = world
        self.rng = Random(scenario.seed + 1)
        world.roster.hidden = dict(HIDDEN)
        world.roster.devices[MAD] = None
        for name in scenario.names:
            world.add_node(name)
        for number in range(scenario.people):
            role = "helper" if number == 1 else "all"
            world.add_person(f"person-{number}", self.node(number + 2), role)  # not at home
        senses = [replace(sense, period=sense.period * scenario.pace) for sense in SENSES]
        for number in range(scenario.devices):
            world.add_device(f"dog-{number}", self.node_of_devices(number), senses)

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


__all__ = ["HIDDEN", "MAD", "SENSES", "TERMS", "WISHES", "Setup"]
