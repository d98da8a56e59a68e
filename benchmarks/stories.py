"""Stories at a node: what they cost, what they remember, and whether late readings still count.

A real core with its subscribers' protocol, in memory. Readings of 50 devices arrive, one in five of
them up to ten minutes late. Speed is by processor time, of the same readings in rounds that
alternate with a node that has the parts of the stories as ordinary subscriptions, so that the ratio
is the price of joining. `late_recovered` is, of the stories that the oracle finds in the complete
history and that nobody finds who drops what is late, the share that the node told.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from denwatch.client.compiler.stories import ABSENCE, KINDS, Story, compile_story
from denwatch.client.language.stories import parse_story, print_part
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import REQUESTS, Message
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import NOTIFICATION, NotificationBody
from denwatch.node.core.subscriptions import SingleClock, SubscriberSettings
from denwatch.node.core.told_stories import TOLD, decode_told
from denwatch.protocol.matching import match
from denwatch.protocol.notification import encode
from denwatch.protocol.vectors import NotificationVector, Reading

from benchmarks.common import describe_machine, format_table, run, save_text, say
from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import Ring, Roster
from simulator.stories import draw_story
from simulator.story_oracle import Happened, Tale, judge
from simulator.truth import iterate_subscriptions

START = 1_800_000_000_000
_DAY = 86_400_000
_RESCUE = load_shipped("rescue")
_SPANS = {
    "patient": {"heart_rate": (40.0, 200.0), "patient_temperature": (34.0, 41.0)},
    "fire": {"smoke": (0.0, 100.0), "fire_temperature": (0.0, 500.0)},
}


class Arrival(NamedTuple):
    """A reading, when it was made and when it arrives."""

    vector: NotificationVector
    at: int
    arrives: int
    device: str


def draw_arrivals(rng: Random, count: int, pace: int) -> list[Arrival]:
    """Return readings in the order of their arrival, one in `pace` ms."""
    drawn = []
    for number in range(count):
        name = rng.choice(("patient", "patient", "fire"))
        event = _RESCUE.events[name]
        values = {key: rng.uniform(*span) for key, span in _SPANS[name].items()}
        readings = [
            Reading(attribute.bit, (attribute.to_code(values[attribute.name]),) * 4)
            for attribute in sorted(event.attributes.values(), key=lambda one: one.bit)
            if attribute.name in values
        ]
        at = START + 1000 + pace * number
        late = rng.randrange(600_000) if rng.random() < 0.2 else 0
        vector = NotificationVector(event.number, readings)
        drawn.append(Arrival(vector, at, at + late, f"dog-{rng.randrange(50)}"))
    return sorted(drawn, key=lambda one: one.arrives)


class MeasuredNode:
    """A node that only has subscribers; readings are brought in as items."""

    def __init__(self, limit: int = 1024) -> None:
        settings = SubscriberSettings(story_entries=limit, max_subscriptions=100_000)
        self.host = HostedNode(
            "a",
            Ring("a", Roster()),
            _RESCUE,
            HostSettings(subscribers=settings, devices=None, peers=None),
            clock=SingleClock(),
        )
        self.host.start(START)
        self._count = 0

    def ask(self, body: str) -> None:
        """Subscribe to something."""
        self.host.handle(Message("ada", REQUESTS + "ada", body.encode()), START)

    def list_names(self) -> dict[str, int]:
        """Return the ids of all subscriptions by name."""
        found = {}
        for id, body in iterate_subscriptions(self.host):
            found[body.options["name"]] = id
        return found

    def bring(self, arrival: Arrival) -> int:
        """Bring a reading in; return its id."""
        self._count += 1
        hash_ = self.host.vocabularies.own_hash
        body = NotificationBody(
            arrival.device, 1, self._count, arrival.at, 0, hash_, encode(arrival.vector)
        )
        made: list[int] = []

        def act(transaction: Transaction) -> None:
            store = self.host.item_store
            items = store.originate_many(transaction, NOTIFICATION, arrival.at + _DAY, [body])
            made.append(items[0].id)

        self.host.act(act, arrival.arrives)
        return made[0]


def draw_stories(rng: Random, count: int) -> list[str]:
    """Return so many different stories, and no silences: those wait for ticks."""
    found: dict[str, None] = {}
    while len(found) < count:
        words = draw_story(rng)
        if not words.startswith("no "):
            found[f"{words}, named s{len(found)}"] = None
    return list(found)


def draw_selective(rng: Random) -> str:
    """Return a story as people ask for them: few readings fit a part."""

    def part() -> str:
        event = rng.choice(("patient", "patient", "fire"))
        name, (low, high) = rng.choice(list(_SPANS[event].items()))
        width = (high - low) / 50
        start = rng.uniform(low, high - width)
        return f"{name} between {start:.1f} and {start + width:.1f}"

    window = f"about {rng.randrange(1, 10)} min"
    kind = rng.choice(("sequence", "together", "count"))
    if kind == "sequence":
        return f"{part()} within {window} after {part()}"
    if kind == "together":
        return f"{part()} and {part()} within {window}"
    return f"3 or more devices with {part()} within {window}"


def measure_speed(rng: Random, stories: int, readings: int) -> dict[str, float]:
    """Return readings a second at so many stories, and the price over their parts alone."""
    words = [f"{draw_selective(rng)}, named s{number}" for number in range(stories)]
    joined, plain = MeasuredNode(), MeasuredNode()
    for text in words:
        joined.ask(text)
        for number, part in enumerate(parse_story(text).parts):
            label = text.rpartition(" ")[2]
            said = print_part(part).removeprefix("(").removesuffix(")")
            plain.ask(f"{said}, named {label}-{number}")
    arrivals = draw_arrivals(rng, 2 * readings, 2_000)
    took = {id(joined): 0.0, id(plain): 0.0}
    for start in range(0, len(arrivals), 20):
        for node in (joined, plain) if start % 40 else (plain, joined):
            gc.collect()
            before = time.process_time()
            for arrival in arrivals[start : start + 20]:
                node.bring(arrival)
            if start >= readings:  # the first half fills the joins
                took[id(node)] += time.process_time() - before
    counts = joined.host.subscribers.stories.count()
    return {
        "stories": stories,
        "events_per_second": round(readings / took[id(joined)]),
        "cost_over_parts_alone": round(took[id(joined)] / took[id(plain)], 2),
        "told": sum(1 for _ in joined.host.store.scan(TOLD)),
        "entries": counts["story_entries"],
    }


def measure_bound(rng: Random, readings: int, limit: int) -> dict[str, float]:
    """Return how much a story remembers at most, and what it says it forgot."""
    node = MeasuredNode(limit)
    words = draw_stories(rng, 20)
    for text in words:
        node.ask(text)
    most = 0
    for arrival in draw_arrivals(rng, readings, 500):
        node.bring(arrival)
        most = max(most, node.host.subscribers.stories.count()["story_entries"])
    joins = node.host.subscribers.stories.list_joins()
    taken = sum_bytes([vars(join) | {"story": None} for join in joins])
    forgotten = sum(log.fields.get("what") == "story part" for log in node.host.logs)
    parts = sum(len(parse_story(text).parts) for text in words)
    return {
        "bound_of_entries": parts * limit,
        "most_entries": most,
        "bytes_an_entry": round(taken / sum(map(len, joins))),
        "bound_of_bytes_at_1024_a_part": round(1024 * taken / sum(map(len, joins))),
        "entries_forgotten": forgotten,
    }


def sum_bytes(root: object) -> int:
    """Return what a structure takes, each object in it once."""
    seen: set[int] = set()
    total, left = 0, [root]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set):
            left += one
    return total


def measure_late(rng: Random, stories: int, readings: int) -> dict[str, float]:
    """Return how many stories that need a late reading were told."""
    recovered = late = wrong = 0
    for _ in range(4):
        words = draw_stories(rng, stories)
        node = MeasuredNode()
        known: dict[int, Story] = {}
        for text in words:
            node.ask(text)
        names = node.list_names()
        for text in words:
            story = compile_story(parse_story(text), _RESCUE).story
            known[names[text.rpartition(" ")[2]]] = story
        arrivals = draw_arrivals(rng, readings, 20_000)
        ids = [node.bring(arrival) for arrival in arrivals]
        told: dict[int, dict[int, tuple[int, int]]] = {id: {} for id in known}
        for _, value in node.host.store.scan(TOLD):
            row = decode_told(value)
            told[row.subscription][row.closing] = row.possible, row.certain
        newest, ordered = 0, set()
        for id, arrival in zip(ids, arrivals, strict=True):
            if arrival.at >= newest:
                newest = arrival.at
                ordered.add(id)
        for id, story in known.items():
            whole = _judge(story, ids, arrivals)
            prompt = _judge(
                story,
                [i for i in ids if i in ordered],
                [a for i, a in zip(ids, arrivals, strict=True) if i in ordered],
            )
            wrong += told[id] != whole
            only_late = whole.keys() - prompt.keys()
            late += len(only_late)
            recovered += len(only_late & told[id].keys())
    return {
        "late_stories": late,
        "late_recovered": round(recovered / late, 4) if late else 0.0,
        "stories_unlike_the_oracle": wrong,
    }


def _judge(
    story: Story, ids: Sequence[int], arrivals: Sequence[Arrival]
) -> dict[int, tuple[int, int]]:
    assert story.kind != ABSENCE
    history = []
    for id, arrival in zip(ids, arrivals, strict=True):
        fits = {}
        for part, vector in enumerate(story.vectors):
            found = match(vector, arrival.vector)
            if found is not None and found.matched:
                fits[part] = found.possible, found.certain
        history.append(Happened(id, arrival.at, 0, arrival.device, fits))
    kind, windows = KINDS[story.kind], story.windows
    tale = Tale(kind, len(story.parts), windows, None, story.count, story.threshold)
    return judge(tale, history, 0)


def measure_stories(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything; print and save the page."""
    rng = Random(options.seed)
    is_quick = options.quick
    result: dict[str, Any] = measure_late(rng, 6 if is_quick else 25, 60 if is_quick else 120)
    say(result)
    result |= measure_bound(rng, 300 if is_quick else 2_000, 32)
    say(result)
    result |= measure_speed(rng, 100 if is_quick else 1_000, 60 if is_quick else 400)
    table = format_table(("figure", "value"), list(result.items()))
    print(table)
    if options.save:
        save_text("stories.md", f"# Stories\n\n{__doc__}\n{table}\n\n{describe_machine()}.")
    return result


if __name__ == "__main__":
    run(measure_stories, __doc__)
