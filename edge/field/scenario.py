"""Scenarios of trouble: what happens when, as data. One seed is one scenario, whole.

A scenario is a small site (nodes, people, devices) and a list of happenings; whatever they are,
they can be played, so that a scenario that shows a fault can be made shorter. Only this file knows
which troubles there are; `trouble.py` lets them happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

MINUTE = 60_000
TROUBLE = 5 * MINUTE  # how long things happen
CALM = 4 * MINUTE  # how long all is well afterwards

ORDINARY = ("meet", "part", "subscribe", "subscribe", "unsubscribe", "walk", "leave", "carry")
FAULTS = (
    "kill",  # a node dies between two events
    "crash",  # ... in an operation of its store, before it has an effect
    "crash-after",  # ... right after the operation
    "disk-full",
    "disk-failed",
    "disk-slow",
    "loss",
    "one-sided",  # a link that carries frames in one direction only
    "repeat",
    "reorder",
    "corrupt",
    "partition",
    "clock-jump",
    "power-cut",  # a device dies in the middle of writing its flash
    "hang-up",  # a subscriber's connection breaks with everything that is on its way
    "mute",  # a subscriber takes notes and does not acknowledge
    "forged-item",  # a node of the site hands on what its origin never made
    "replayed-frame",  # an old frame between nodes comes again, to anybody
    "forged-frame",  # a stranger speaks as a node
    "forged-reading",  # a stranger speaks as a device
    "replayed-reading",  # an old frame of a device comes again
    "oversized",  # frames and items larger than allowed
)


class Happening(NamedTuple):
    """One thing that happens; what the numbers mean is up to its kind."""

    time: int  # ms
    kind: str
    first: int
    second: int


@dataclass(frozen=True)
class Scenario:
    """One site and its day."""

    seed: int
    nodes: int
    people: int
    dogs: int
    strategy: str
    room: int  # notifications that a node may hold
    happenings: tuple[Happening, ...]

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [f"node-{chr(97 + number)}" for number in range(self.nodes)]

    def list_faults(self) -> list[str]:
        """Return the kinds of faults in it."""
        return sorted({each.kind for each in self.happenings} & set(FAULTS))


def make_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = Random(seed)
    kinds = rng.sample(FAULTS, rng.randrange(1, 7))
    happenings = []
    for _ in range(rng.randrange(12, 31)):
        kind = rng.choice(kinds if rng.random() < 0.45 else ORDINARY)
        happenings.append(
            Happening(rng.randrange(TROUBLE), kind, rng.randrange(1 << 16), rng.randrange(1 << 16))
        )
    return Scenario(
        seed,
        rng.randrange(2, 5),
        rng.randrange(1, 4),
        rng.randrange(1, 3),
        "epidemic" if rng.random() < 0.7 else "utility:4",
        8 if rng.random() < 0.3 else 100_000,
        tuple(sorted(happenings)),
    )
