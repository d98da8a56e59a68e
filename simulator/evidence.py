"""What the checks go by: what people were told is in force, what devices said, who was shown what.

Answers questions about a scenario that was played; judges nothing. What a subscription means is
decided here by definitions alone: by the protocol's own matching for vectors, by plain comparisons
for typed content; by none of the engines that a node or a device runs.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import cbor2
from denwatch.client.language.reports import parse_reading
from denwatch.client.vocabulary import Attribute, EventType, ValueKind
from denwatch.node.core.notifications import REPORTED
from denwatch.protocol.cuts import trapezoid
from denwatch.protocol.matching import match
from denwatch.protocol.notification import decode as decode_notification
from denwatch.protocol.notification import encode as encode_notification
from denwatch.protocol.subscription import decode as decode_subscription
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

from simulator.calendar import START
from simulator.device import EmulatedDevice, Told
from simulator.faults import Play
from simulator.hosted_node import HostedNode
from simulator.person import BROKEN, Person, Shown
from simulator.requests import find_terms, list_alternatives
from simulator.setup import HIDDEN, load_vocabulary
from simulator.truth import Seen, iterate_subscriptions

SLACK = 4_000  # ms: ticks and links take time
SETTLED = 100_000  # ms after the trouble: even who left near its end is back
FOREVER = 1 << 60  # ms
POSSIBLE = 128  # of 255: how possible a match of typed content must be
Triple = tuple[str, str, Any]
Alternatives = tuple[tuple[Triple, ...], ...]  # one of them, all of whose constraints are met

_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def wants_few(person: Person) -> bool:
    """Return whether somebody asked for the best of all only."""
    return any("my_top" in request.body for request in person.requests.values())


@dataclass(frozen=True)
class AskedSubscription:
    """A subscription that a person was told is in force: a vector, or constraints on content."""

    person: Person
    id: str
    vector: SubscriptionVector | None
    content: Alternatives
    made: int  # ms, when it was asked for
    told: int  # ms, when it was confirmed
    node: str  # that confirmed it
    request: dict[str, Any]

    @property
    def triples(self) -> list[Triple]:
        """All constraints that it names."""
        return [triple for triples in self.content for triple in triples]

    @property
    def is_plain(self) -> bool:
        """Whether every match of it is to be shown, for as long as it is in force."""
        if wants_few(self.person):
            return False
        vector = self.vector
        is_selective = vector is not None and (vector.significance or vector.recent)
        return not is_selective and self.terms == (0, 0)

    @property
    def terms(self) -> tuple[int, int]:
        """How many are shown at a time, and for how many ms each counts; 0 for no limit."""
        return find_terms(self.request)

    @property
    def until(self) -> int:
        """When it ends by itself, in ms."""
        validity = self.vector.validity if self.vector else 0
        return self.made + 1000 * decode_duration(validity) if validity else FOREVER

    def find_degree(self, note: NotificationVector, device: str) -> int:
        """Return how well a note meets it, 0 to 255; -1: not at all."""
        if self.vector is None:
            degree = rate_content(self.content, note, device)
            return degree if degree >= POSSIBLE else -1
        found = match(self.vector, note)
        return found.possible if found is not None and found.matched else -1

    def is_met(self, note: NotificationVector, device: str) -> bool:
        """Return whether a note is what it asks for."""
        return self.find_degree(note, device) >= 0

    def list_names(self) -> set[str]:
        """Return the attributes that it asks for, as event.attribute."""
        if self.vector is None:
            (event,) = {triple[2] for triple in self.triples if triple[0] == "event"}
            return {f"{event}.{triple[0]}" for triple in self.triples}
        event = find_event(self.vector.event)
        bits = [bit for bit in range(16) if self.vector.features >> bit & 1]
        return {f"{event.name}.{find_attribute(event, bit).name}" for bit in bits}


def find_event(number: int) -> EventType:
    """Return an event of the vocabulary."""
    event = load_vocabulary(1).find_number(number)
    assert event is not None, f"there is no event {number}"
    return event


def find_attribute(event: EventType, bit: int) -> Attribute:
    """Return an attribute of an event."""
    attribute = event.find_bit(bit)
    assert attribute is not None, f"{event.name} has no attribute {bit}"
    return attribute


def rate_content(content: Alternatives, note: NotificationVector, device: str) -> int:
    """Return how possible it is that a note's values meet one of the alternatives, 0 to 255.

    A note that lacks an attribute which any of them names meets none.
    """
    event = find_event(note.event)
    names: dict[str, list[tuple[Any, int]]] = {"event": [(event.name, 255)]}
    names["device"] = [(device, 255)]
    for reading in note.readings:
        if reading.age:
            continue  # typed content is of now
        attribute = find_attribute(event, reading.attribute)
        codes = range(reading.points[0], reading.points[3] + 1)
        degrees = [(code, trapezoid(code, reading.points)) for code in codes]
        if attribute.kind is ValueKind.NUMBER:
            names[attribute.name] = [(attribute.to_value(code), pi) for code, pi in degrees]
        elif attribute.kind is ValueKind.TEXT:
            known = dict(zip(attribute.symbol_codes, attribute.symbols, strict=True))
            names[attribute.name] = [(known[code], pi) for code, pi in degrees if code in known]
    if not {name for triples in content for name, _, _ in triples} <= set(names):
        return 0
    return max(
        min(
            max((pi for value, pi in names[name] if _meets(triples, name, value)), default=0)
            for name, _, _ in triples
        )
        for triples in content
    )


def _meets(triples: Sequence[Triple], name: str, value: object) -> bool:
    return all(
        isinstance(value, str) == isinstance(limit, str) and _TESTS[test](value, limit)
        for asked, test, limit in triples
        if asked == name
    )


def list_asked(person: Person) -> list[AskedSubscription]:
    """Return the subscriptions of a person that a node confirmed."""
    subscriptions = []
    for request in person.requests.values():
        answer = request.answer
        if not answer or not answer.get("ok") or not {"understood", "id"} <= answer.keys():
            continue
        if "story" in request.body:  # `simulator.stories` judges those
            continue
        vector = answer.get("vector")
        subscriptions.append(
            AskedSubscription(
                person,
                answer["id"],
                None if vector is None else decode_subscription(bytes.fromhex(vector)),
                list_alternatives(request.body),
                request.made,
                request.answered,
                request.node,
                request.body,
            )
        )
    return subscriptions


def list_honest(play: Play) -> list[HostedNode]:
    """Return the nodes that never lied."""
    return [host for name, host in play.world.hosts.items() if name not in play.truth.liars]


def list_working(play: Play) -> list[Person]:
    """Return the people whose clients work."""
    return [person for person in play.world.people.values() if person.client != BROKEN]


def find_told(play: Play, seen: Seen) -> Told | None:
    """Return what a device said when it made a reading, or a person in a report."""
    if seen.device_epoch == REPORTED:
        return _find_reported(play, seen)
    device = play.world.devices.get(seen.device)
    if device is None:
        return None
    number = (seen.device_epoch, seen.device_sequence)
    if seen.life == device.life:
        return device.told.get(number)
    for told in device.told_before:
        if (told.epoch, told.sequence) == number and told.vector[6:] == seen.vector[6:]:
            return told
    return None


def _find_reported(play: Play, seen: Seen) -> Told | None:
    """Return what a person said, and when a node took it."""
    person = play.world.people.get(seen.device)
    for request in person.requests.values() if person else ():
        if "report" in request.body and crc32(request.number.encode()) == seen.device_sequence:
            vector = parse_reading(request.body["report"], load_vocabulary(1))
            time = play.truth.reported[seen.number]
            return Told(REPORTED, seen.device_sequence, encode_notification(vector), time)
    return None


def has_equal(host: HostedNode, asked: AskedSubscription) -> bool:
    """Return whether the same asked of the same person is there under another id."""
    owned = [body for _, body in iterate_subscriptions(host) if body.owner == asked.person.name]
    if "where" in asked.request:
        return any(body.words == asked.request["where"] for body in owned)
    if asked.vector is None:
        content = cbor2.dumps([list(triple) for triple in asked.triples])
        return any(body.vector == content for body in owned)
    return asked.vector in [decode_subscription(body.vector) for body in owned if not body.language]


def may_see(play: Play, asked: AskedSubscription) -> bool:
    """Return whether a person's role lets them see what a subscription asks for, to the end."""
    return not asked.list_names() & set(HIDDEN.get(play.world.roster.roles[asked.person.name], ()))


def is_in_doubt(play: Play, asked: AskedSubscription) -> bool:
    """Return whether nobody can say from outside if a subscription is in force.

    It may have been replaced or taken back by its name, unless all still have it; a disk that lied
    may have lost it; and when it ends by itself is a question of clocks.
    """
    id = int(asked.id, 16)
    if id in play.truth.find_lost() or asked.until != FOREVER:
        return True
    held = (each for host in list_honest(play) for each, _ in iterate_subscriptions(host))
    return "name" in asked.request and Counter(held)[id] < len(list_honest(play))


def has_seen(person: Person, notes: dict[int, Seen], wanted: Seen) -> bool:
    """Return whether a person was shown a reading, by whichever id."""
    shown = (notes.get(int(id, 16)) for id in person.notes)
    return any(seen is not None and seen.reading == wanted.reading for seen in shown)


@lru_cache(maxsize=1 << 14)
def read_note(vector: bytes) -> NotificationVector:
    """Return a notification; two are the same but for their number and age."""
    return decode_notification(vector)


def find_degree(asked: AskedSubscription, body: Seen) -> int:
    """Return how well a note meets a subscription; -1: not at all."""
    return asked.find_degree(read_note(body.vector), body.device)


def count_rivals(play: Play, asked: AskedSubscription, told: Told, degree: int, life: int) -> int:
    """Return how many as good ones, still valid then, the person was shown."""
    count = 0
    for shown in asked.person.notes.values():
        body = play.truth.notes.get(int(shown.id, 16))
        other = find_told(play, body) if body else None
        if body is None or other is None or find_degree(asked, body) < degree:
            continue
        count += -life - 2 * SLACK < other.time - told.time < 4 * SLACK
    return count


def find_age(play: Play, shown: Shown) -> int:
    """Return how many ms after it was read a note was shown."""
    body = play.truth.notes.get(int(shown.id, 16))
    told = find_told(play, body) if body else None
    return shown.time - told.time if told else 0


def find_calm(play: Play) -> int:
    """Return when the trouble ended."""
    return START + play.scenario.trouble


def can_sense(device: EmulatedDevice, asked: AskedSubscription) -> bool:
    """Return whether a device measures all that a subscription asks for."""
    names = set()
    for sense in device.senses:
        event = find_event(sense.event)
        names |= {f"{event.name}.{find_attribute(event, bit).name}" for bit in sense.attributes}
        names |= {f"{event.name}.event", f"{event.name}.device"}
    return asked.list_names() <= names
