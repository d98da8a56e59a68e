"""Which scenarios are played with whole nodes: two dials, and the world that follows from them.

`whole` 0: cores alone, which is quick; 1: whole nodes on the model of a store; 2: on both stores at
once. `limits` 1: a configuration with small limits.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from simulator.registry import dial
from simulator.world import World

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary

    from simulator.hosted_node import Watch
    from simulator.network import WorldSettings
    from simulator.scenario import Scenario

MAD = "mad"  # a device whose key is good and whose mind is not
POST = "post"  # a device that stays at the first node, and speaks through no other
MALLORY = "mallory"  # a subscriber who has a password and no good intentions
OLGA = "olga"  # an operator, as bad
WHOLE = "whole"
BOTH_STORES = 2  # of the dial: SQLite beside the model, compared at every operation
# What is done to the one roster that all nodes share, which whole nodes do not have: there rights
# change at one node, and the others hear of it later.
NOT_WHOLE = frozenset({"demoted", "revoked-device"})
LIMITS = "limits"
HIDDEN = {"helper": ("patient.heart_rate",)}  # what the role may not see


@dial(WHOLE)
def draw_whole(rng: Random) -> int:
    """One scenario in twelve has whole nodes, one in 36 both stores."""
    return rng.choice((1, 1, 2)) if rng.random() < 1 / 12 else 0


@dial(LIMITS)
def draw_limits(rng: Random) -> int:
    """A third of the configurations are narrow."""
    return int(rng.random() < 1 / 3)


def make_world(
    scenario: Scenario, vocabulary: Vocabulary, settings: WorldSettings, watch: Watch
) -> World:
    """Return the world of a scenario, with nobody in it."""
    settings = replace(settings, survives_defects=True)
    if not scenario.dial(WHOLE):
        return World(scenario.seed, vocabulary, settings, watch)
    from simulator.whole_world import DEFAULT, SMALL, WholeWorld

    world = WholeWorld(
        scenario.seed,
        vocabulary,
        settings,
        watch,
        limits=(DEFAULT, SMALL)[scenario.dial(LIMITS)],
        room=scenario.room,
        has_twins=scenario.dial(WHOLE) == BOTH_STORES,
        hidden=HIDDEN,
    )
    people = {f"person-{n}": "helper" if n == 1 else "all" for n in range(scenario.people)}
    devices = [f"dog-{n}" for n in range(scenario.devices)]
    world.found_site(scenario.names, {**people, MALLORY: "all", OLGA: "operator"}, [*devices, MAD])
    return world
