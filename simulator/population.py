"""Who is in the field and what they do all day, as data: one seed is one cast.

Most people stay with one node. Some are away for a while and turn up at another node; some change
their mind. So a day has every reason for which news may be late or never come.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from simulator.device import Sense

_MINUTE = 60_000
_ABSENCE = (10 * _MINUTE, 40 * _MINUTE)
AWAY = -1  # at no node


class PlannedSubscription(NamedTuple):
    """What somebody asks for. `top`, `life` (ms) and `recent` are what the words say."""

    words: str
    top: int = 0
    life: int = 0
    recent: bool = False  # old news is no news


SUBSCRIPTIONS = (
    PlannedSubscription("patient temperature is very high"),
    PlannedSubscription("heart rate is not normal"),
    PlannedSubscription("patient temperature is high and heart rate is high"),
    PlannedSubscription("fire temperature is high"),
    PlannedSubscription("patient temperature is low, in the last 900 s", recent=True),
)
STEADY = (
    PlannedSubscription("heart rate is high, top 2, expires after 1800 s", top=2, life=1_800_000),
)
SENSES = ((1, (0, 1, 2)), (2, (0, 1)))  # event and attributes: a patient, a fire


class Act(NamedTuple):
    """Something that a person does at a time (ms): `subscription` to ask for it, `end` to end one.

    Otherwise the person goes to a node, or is AWAY."""

    time: int
    node: int = AWAY
    subscription: PlannedSubscription | None = None
    end: str = ""


@dataclass(frozen=True)
class Part:
    """One person."""

    name: str
    node: int
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Population:
    """Everybody, and the nodes at which devices are."""

    people: tuple[Part, ...]
    devices: tuple[tuple[str, int, Sense], ...]


def make_cast(
    seed: int, nodes: int, duration: int, people: int, devices: int, period: int
) -> Population:
    """Return the cast of a day; people and devices are spread over the nodes."""
    rng = Random(seed)
    parts = []
    for number in range(people):
        home = number * nodes // people
        parts.append(
            Part(f"person-{home:03d}", home, _plan_acts(number, home, nodes, duration, rng))
        )
    placed = []
    for number in range(devices):
        place = (number * nodes // devices + nodes // (2 * devices)) % nodes
        event, attributes = SENSES[number % len(SENSES)]
        placed.append((f"dog-{number:03d}", place, Sense(event, attributes, period=period)))
    return Population(tuple(parts), tuple(placed))


def _plan_acts(number: int, home: int, nodes: int, duration: int, rng: Random) -> tuple[Act, ...]:
    kind = number % 4
    subscriptions = STEADY if kind == 3 else SUBSCRIPTIONS
    acts = [Act(0, subscription=rng.choice(subscriptions))]
    if kind == 1:  # away, and then somewhere else
        time = rng.randrange(duration // 4, duration // 2)
        absence = min(rng.randrange(*_ABSENCE), duration // 4)
        acts += [Act(time), Act(time + absence, (home + 1 + rng.randrange(nodes - 1)) % nodes)]
    elif kind == 2:  # takes the first subscription back, and has another
        time = rng.randrange(duration // 3, 2 * duration // 3)
        acts += [
            Act(time, end="subscription-0"),
            Act(time + _MINUTE, subscription=rng.choice(SUBSCRIPTIONS)),
        ]
    return tuple(acts)
