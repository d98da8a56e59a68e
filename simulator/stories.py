"""Stories in the emulated world: people ask for some, and the oracle says what must be told.

Drawn from the grammar, over what devices measure. A *dial* turns them on for a scenario, so that
other seeds stay what they were. Two promises are checked from outside:

- what is told is true: its parts were read, fit their parts, and are told once;
- what is surely true is told: a reading that closes a story, whatever the clocks' doubt, closes one
  that the person was shown. Silences are not expected here: what is not heard may be on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from denwatch.client.compiler.stories import (
    ABSENCE,
    COUNT,
    KINDS,
    TOGETHER,
    Story,
    compile_story,
)
from denwatch.client.language.stories import parse_story
from denwatch.node.core.items import SubscriptionBody
from denwatch.node.core.stories import Stories
from denwatch.protocol.matching import match

from simulator.evidence import (
    SLACK,
    find_attribute,
    find_event,
    find_told,
    list_honest,
    list_working,
    read_note,
    wants_few,
)
from simulator.faults import Play
from simulator.person import Person, Request, Shown
from simulator.registry import RULES, Rule, Violation, check, dial, on_setup
from simulator.setup import HIDDEN, load_vocabulary
from simulator.story_oracle import Happened, Tale, judge
from simulator.truth import Seen, iterate_subscriptions

_PARTS = (
    "heart_rate above 80",
    "heart_rate is high",
    "heart_rate below 150",
    "patient_temperature above 36",
    "patient_temperature below 42",
    "(heart_rate above 60 and patient_temperature above 35)",
    "smoke is not light",
    "fire_temperature above 100",
)
_STORIES = 6  # of each person


def draw_story(rng: Random) -> str:
    """Return a story in words."""
    first, second = (rng.choice(_PARTS) for _ in range(2))
    amount = rng.randrange(20, 120)
    window = rng.choice((f"{amount} s", f"about {amount} s"))
    kind = rng.choice((*KINDS, "sequence", "together"))
    if kind == "sequence":
        return f"{second} within {window} after {first}"
    if kind == "together":
        return f"{first} and {second} within {window}"
    if kind == "absence":
        return f"no {first} for {window}"
    return f"2 or more devices with {first} within {window}"


@dial("stories")
def draw_stories(rng: Random) -> int:
    """Return 0, or which stories are asked for."""
    return rng.randrange(1, 1 << 16) if rng.random() < 0.12 else 0


@on_setup.append
def ask_for_stories(play: Play) -> None:
    """Let everybody ask for some."""
    seed = play.scenario.dial("stories")
    if not seed:
        return
    rng = Random(f"stories {seed}")
    for number in range(play.scenario.people):
        for _ in range(_STORIES):
            play.world.ask(f"person-{number}", {"story": draw_story(rng)})


@dataclass(frozen=True)
class AskedStory:
    """A story that a person was told is in force."""

    person: Person
    id: str
    story: Story
    told: int  # ms, when it was confirmed

    def is_there(self, play: Play) -> bool:
        """Return whether all honest nodes have it."""
        held = [dict(iterate_subscriptions(host)) for host in list_honest(play)]
        found: list[SubscriptionBody | None] = [each.get(int(self.id, 16)) for each in held]
        return all(body is not None for body in found)

    def is_hidden(self, play: Play) -> bool:
        """Return whether the person's role hides what it asks for."""
        hidden = set(HIDDEN.get(play.world.roster.roles[self.person.name], ()))
        names = set()
        for vector in self.story.vectors:
            event = find_event(vector.event)
            bits = [bit for bit in range(16) if vector.features >> bit & 1]
            names |= {f"{event.name}.{find_attribute(event, bit).name}" for bit in bits}
        return bool(names & hidden)

    @property
    def tale(self) -> Tale:
        """The story as the oracle knows it."""
        story = self.story
        windows, threshold = story.windows, story.threshold
        return Tale(KINDS[story.kind], len(story.parts), windows, None, story.count, threshold)


def list_stories(person: Person) -> list[AskedStory]:
    """Return the stories of a person that a node confirmed."""
    return [
        AskedStory(person, request.answer["id"], _compile(request), request.answered)
        for request in person.requests.values()
        if "story" in request.body and request.answer and request.answer.get("ok")
    ]


def _compile(request: Request) -> Story:
    return compile_story(parse_story(request.body["story"]), load_vocabulary(1)).story


def _find_fits(story: Story, seen: Seen) -> dict[int, tuple[int, int]]:
    note = read_note(seen.vector)
    fits = {}
    for part, vector in enumerate(story.vectors):
        found = match(vector, note)
        if found is not None and found.matched:
            fits[part] = found.possible, found.certain
    return fits


@check("story")
def check_story(play: Play) -> Iterator[Violation]:
    """What is told is true and told once, and what is surely true is told."""
    for person in play.world.people.values():
        stories = {asked.id: asked for asked in list_stories(person)}
        told: dict[str, list[Shown]] = {id: [] for id in stories}
        for shown in person.notes.values():
            if "story" in shown.fields and shown.node not in play.truth.liars:
                asked = stories.get(shown.fields["subscription_id"])
                if asked is None:
                    yield Violation("story", f"{person.name} saw {shown.fields}, and never asked")
                    continue
                told[asked.id].append(shown)
                yield from _judge_shown(play, asked, shown.fields)
        for id, asked in stories.items():
            yield from _judge_twins(asked, told[id])
        if person in list_working(play) and person.node not in play.truth.liars:
            for id, asked in stories.items():
                yield from _judge_missing(play, asked, told[id])


def _judge_shown(play: Play, asked: AskedStory, fields: dict[str, Any]) -> Iterator[Violation]:
    story, parts = asked.story, fields["story"]["parts"]
    if asked.is_hidden(play) and asked.person.name not in play.truth.demoted:
        yield Violation("story", f"{asked.person.name} saw what is hidden: {fields}")
    if story.kind != ABSENCE:
        places = {part["part"] - 1 for part in parts}
        wanted = set(range(len(story.parts)))
        devices = {part["device"] for part in parts}
        if places != wanted or len(devices) < story.count:
            yield Violation("story", f"{asked.person.name} saw half of {fields}")
    for part in parts:
        id = int(part["id"], 16)
        seen = play.truth.notes.get(id)
        if seen is None or id in play.truth.lies:
            yield Violation("story", f"a part of {fields} was never read")
        elif part["part"] - 1 not in _find_fits(story, seen):
            yield Violation("story", f"{part} does not fit in {fields}")


def _judge_twins(asked: AskedStory, told: list[Shown]) -> Iterator[Violation]:
    """The same readings make one story, by whichever of them a node thinks that it closes."""
    if asked.story.kind not in (TOGETHER, COUNT):
        return
    seen: set[frozenset[tuple[str, int]]] = set()
    for shown in told:
        parts = frozenset((each["id"], each["part"]) for each in shown.fields["story"]["parts"])
        if parts in seen:
            yield Violation("story", f"{asked.person.name} was told twice: {shown.fields}")
        seen.add(parts)


def _judge_missing(play: Play, asked: AskedStory, told: list[Shown]) -> Iterator[Violation]:
    truth = play.truth
    story = asked.story
    if truth.dropped or story.kind == ABSENCE or asked.is_hidden(play):
        return
    if truth.find_forgetful() or truth.liars or not asked.is_there(play):
        return
    if wants_few(asked.person):  # and may hear of others instead
        return
    history, readings = [], {}
    for id, seen in truth.notes.items():
        said = find_told(play, seen)
        if said is None or id in truth.lies:
            continue
        if asked.told + SLACK < said.time <= play.world.now - 6 * SLACK:
            doubt = SLACK + seen.doubt  # of the way to the node, and of the device's age
            fits = _find_fits(story, seen)
            history.append(Happened(id, said.time, doubt, seen.device, fits))
            readings[id] = seen.reading
    sure = judge(asked.tale, history, play.world.now)
    parts = [[int(part["id"], 16) for part in shown.fields["story"]["parts"]] for shown in told]
    shown_readings = {truth.notes[id].reading for ids in parts for id in ids if id in truth.notes}
    for id, (_, certain) in sorted(sure.items()):
        if certain >= story.threshold and readings[id] not in shown_readings:
            text = f"{asked.person.name} was never told what {id:016x} closes of {asked.id}"
            yield Violation("story", text)


def _tell_nothing(_: object) -> object:
    return lambda *_: iter(())


RULES["join"] = Rule(
    Stories, "add", _tell_nothing, "parts that nodes hold are joined", dials={"stories": 7}
)
