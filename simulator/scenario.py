"""Scenarios of trouble: what happens when, as data. One seed is one scenario, whole.

A scenario is a small site (nodes, people, devices) and a list of happenings; whatever they are,
they can be played, so that a scenario that shows a fault can be made shorter. Only this file knows
which troubles there are; `faults.py` carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

MINUTE = 60_000

ORDINARY = ("meet", "part", "subscribe", "subscribe", "unsubscribe", "walk", "leave", "carry")
FAULTS = (
    "kill",  # a node dies between two events
    "crash",  # ... in an operation of its store, before it has an effect
    "crash-after",  # ... right after the operation
    "disk-full",
    "disk-failed",
    "disk-slow",
    "lying-disk",  # says that things are written, and has forgotten the last of them at a crash
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
    "mad-device",  # a device with a good key says what makes no sense
    "mad-node",  # so does a node, and signs it
)
STRATEGIES = ("epidemic", "epidemic", "utility", "utility:4", "spray:4")


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
    devices: int
    strategy: str
    room: int  # notifications that a node may hold
    happenings: tuple[Happening, ...]
    trouble: int = 5 * MINUTE  # ms; how long things happen
    calm: int = 3 * MINUTE  # ms; how long all is well afterwards
    pace: int = 1  # devices measure so many times more seldom
    bandwidth: int = 250_000  # bytes a second between nodes

    @property
    def hours(self) -> float:
        """How long it lasts."""
        return (self.trouble + self.calm) / (60 * MINUTE)

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [f"node-{chr(97 + number)}" for number in range(self.nodes)]

    def list_faults(self) -> list[str]:
        """Return the kinds of faults in it."""
        return sorted({each.kind for each in self.happenings} & set(FAULTS))


class Size(NamedTuple):
    """How large scenarios of a sort are: from and below."""

    share: int  # of all scenarios, in 100
    nodes: tuple[int, int]
    people: tuple[int, int]
    devices: tuple[int, int]
    minutes: tuple[int, int]  # of trouble
    happenings: tuple[int, int]
    paces: tuple[int, ...]


# Most are small: a mistake that needs three things to happen is found sooner in a hundred small
# sites than in ten large ones. A few are large, for what only comes with numbers.
SIZES = (
    Size(77, (2, 5), (1, 3), (1, 2), (2, 7), (4, 15), (1, 2, 3, 4)),
    Size(17, (2, 5), (1, 4), (1, 3), (5, 12), (12, 31), (1, 2, 3)),
    Size(5, (3, 6), (2, 4), (1, 3), (12, 21), (20, 51), (2, 3, 4)),
    Size(1, (6, 10), (3, 6), (2, 5), (10, 16), (30, 61), (2, 3)),
)


def make_scenario(seed: int, focus: Sequence[str] = ()) -> Scenario:
    """Return the scenario of a seed, perhaps with these kinds of trouble instead of its own."""
    rng = Random(seed)
    (size,) = rng.choices(SIZES, [each.share for each in SIZES])
    trouble = rng.randrange(*size.minutes) * MINUTE
    kinds = rng.sample(FAULTS, rng.randrange(1, 7))
    kinds = list(focus) or kinds
    happenings = []
    for _ in range(rng.randrange(*size.happenings)):
        kind = rng.choice(kinds if rng.random() < 0.45 else ORDINARY)
        happenings.append(
            Happening(rng.randrange(trouble), kind, rng.randrange(1 << 16), rng.randrange(1 << 16))
        )
    return Scenario(
        seed,
        rng.randrange(*size.nodes),
        rng.randrange(*size.people),
        rng.randrange(*size.devices),
        rng.choice(STRATEGIES),
        8 if rng.random() < 0.3 else 100_000,
        tuple(sorted(happenings)),
        trouble,
        pace=rng.choice(size.paces),
        bandwidth=rng.choice((250_000, 250_000, 20_000, 5_000)),
    )
