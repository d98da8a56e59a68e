"""Random stories in words over the rescue vocabulary, random histories, and what an oracle says."""

from __future__ import annotations

from math import hypot
from random import Random

from denwatch.client.compiler.stories import KINDS, Story
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.story_oracle import Happened, Tale

RESCUE = load_shipped("rescue")
MINUTE = 60_000
_PARTS = (
    "smoke is dense",
    "smoke is more or less dense",
    "carbon_monoxide is high",
    "heart_rate is high",
    "(heart_rate is high and pain is severe)",
    "(heart_rate is not normal or pain is severe, at least 0.3)",
    "triage = red",
)
_DRAWN = {
    "fire": {"smoke": (0, 100)},
    "gas": {"carbon_monoxide": (0, 400)},
    "patient": {"heart_rate": (40, 200), "pain": (0, 10), "triage": (0, 3)},
}


def draw_words(rng: Random) -> str:
    """Return a story in words."""

    def window() -> str:
        amount = rng.randrange(1, 20)
        return rng.choice((f"{amount} min", f"about {amount} min", "a few minutes"))

    some = [rng.choice(_PARTS) for _ in range(rng.choice((2, 2, 2, 3)))]
    kind = rng.choice(KINDS)
    if kind == "sequence":
        words = "".join(f"{part} within {window()} after " for part in some[1:]) + some[0]
    elif kind == "together":
        words = f"{' and '.join(some)} within {window()}"
    elif kind == "absence":
        words = f"no {some[0]} for {window()}"
    else:
        words = f"{rng.randrange(2, 4)} or more with {some[0]} within {window()}"
    if kind != "absence" and rng.random() < 0.4:
        words += f", within {rng.choice(('', 'about '))}{rng.randrange(50, 300)} m"
    return words + rng.choice(("", "", ", at least 0.7", ", at least 0.2"))


def draw_reading(rng: Random) -> NotificationVector:
    """Return a reading of some event, most of them with their place, some in doubt."""
    name = rng.choice(sorted(_DRAWN))
    event = RESCUE.events[name]
    values = {key: rng.uniform(*span) for key, span in _DRAWN[name].items()}
    if rng.random() < 0.9:
        values |= {"east": rng.uniform(0, 300), "north": rng.uniform(0, 300)}
    readings = []
    for attribute in sorted(event.attributes.values(), key=lambda one: one.bit):
        if attribute.name in values:
            value = values[attribute.name]
            code = attribute.to_code(value)  # of a text: the place of its symbol
            spread = rng.choice((0, 0, 5)) if not attribute.symbols else 0
            a, d = max(0, code - spread), min(attribute.last, code + spread)
            readings.append(Reading(attribute.bit, (a, code, code, d), attribute.wide))
    return NotificationVector(event.number, readings)


def describe_reading(
    vector: NotificationVector, story: Story, id: int, time: int, doubt: int, device: str
) -> Happened:
    """Return a reading as the oracle knows it."""
    fits = {}
    for number, part in enumerate(story.vectors):
        found = match(part, vector)
        if found is not None and found.matched:
            fits[number] = found.possible, found.certain
    place = None
    event = RESCUE.find_number(vector.event)
    assert event is not None
    by_bit = {reading.attribute: reading.points for reading in vector.readings}
    axes = [event.attributes[name] for name in ("east", "north")]
    if all(axis.bit in by_bit for axis in axes):
        middles, halves = [], []
        for axis in axes:
            a, b, c, d = by_bit[axis.bit]
            middles.append(axis.low + axis.step * (b + c) / 2)
            halves.append(axis.step * (d - a) / 2)
        place = middles[0], middles[1], hypot(*halves)
    return Happened(id, time, doubt, device, fits, place)


def describe_story(story: Story, since: int) -> Tale:
    """Return a story as the oracle knows it."""
    near = None if story.near is None else (story.near[0] / 1000, story.near[1] / 1000)
    return Tale(
        KINDS[story.kind],
        len(story.parts),
        story.windows,
        near,
        story.count,
        story.threshold,
        since,
    )
