"""Scenarios of trouble: what happens when, as data. One seed is one scenario, whole.

A scenario is a small site (nodes, people, devices) and a list of happenings; whatever they are,
they can be played, so that a scenario that shows a fault can be made shorter. Which kinds of
happenings and which dials there are is in the tables of `registry.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from simulator.registry import DIALS, draw_names, list_faults, list_ordinary
from simulator.requests import TOPIC, TOPICS, draw_request

MINUTE = 60_000

ASK = "ask"  # the kind of happening that has a body
_EARLY_REQUESTS = 6  # that are drawn for the beginning: fewer
_EARLY = 30_000  # ms

_FAULTY = 0.45  # of the happenings
STRATEGIES = ("epidemic", "epidemic", "utility", "utility:4", "spray:4")


class Happening(NamedTuple):
    """One thing that happens; what the numbers mean is up to its kind."""

    time: int  # ms
    kind: str
    first: int
    second: int
    body: str = ""  # of a request, as JSON


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
    dials: tuple[tuple[str, int], ...] = ()  # choices that are not 0, by name

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
        return sorted({each.kind for each in self.happenings} & set(list_faults()))

    def dial(self, name: str) -> int:
        """Return a choice; 0 if nothing else was drawn."""
        return dict(self.dials).get(name, 0)


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


def _make_happening(time: int, kind: str, rng: Random, topic: int) -> Happening:
    first, second = rng.randrange(1 << 16), rng.randrange(1 << 16)
    body = ""
    if kind == ASK:  # two thirds of what is asked at a site are of one topic
        number = topic * TOPIC + second % TOPIC if second % 3 else second
        body = json.dumps(draw_request(number), ensure_ascii=False)
    return Happening(time, kind, first, second, body)


def make_scenario(
    seed: int, focus: Sequence[str] = (), dials: Mapping[str, int] | None = None
) -> Scenario:
    """Return the scenario of a seed, perhaps with these kinds of trouble instead of its own."""
    rng = Random(seed)
    (size,) = rng.choices(SIZES, [each.share for each in SIZES])
    trouble = rng.randrange(*size.minutes) * MINUTE
    kinds = draw_names(f"{seed} faults", list_faults(), rng.randrange(1, 7))
    kinds = list(focus) or kinds
    ordinary = list_ordinary()
    asking = Random(f"{seed} asking")
    topic = asking.randrange(TOPICS)
    happenings = []
    for number in range(rng.randrange(*size.happenings)):
        names = kinds if rng.random() < _FAULTY else ordinary
        (kind,) = draw_names(f"{seed} {number}", names, 1)
        time = rng.randrange(trouble)
        happenings.append(_make_happening(time, kind, rng, topic))
    for _ in range(asking.randrange(_EARLY_REQUESTS)):
        happenings.append(_make_happening(asking.randrange(_EARLY), ASK, asking, topic))
    drawn = {name: draw(Random(f"{seed} {name}")) for name, draw in sorted(DIALS.items())}
    drawn |= dials or {}
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
        dials=tuple((name, value) for name, value in sorted(drawn.items()) if value),
    )
