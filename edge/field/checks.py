"""What must hold, by name: the promises of nodes and devices, checked from outside.

Each check takes a scenario that was played to its end, in calm, and raises `Violation`. They use
the protocol's own matching as the judge and nothing else of the nodes but what lies on their disks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge.dens.core.interface import Tick
from edge.dens.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION
from edge.field.dog import Told
from edge.field.host import Host
from edge.field.person import Person
from edge.field.trouble import HIDDEN, SENSES, TERMS, Play
from edge.field.truth import Seen, iterate_notes, iterate_subscriptions, list_live
from edge.watchdog.sample import Sample
from protocol.matching import match
from protocol.notification import decode as decode_notification
from protocol.subscription import decode as decode_subscription
from protocol.vectors import Notification, Reading, Subscription

_SLACK = 4_000  # ms: ticks and links take time
_GRID = 15  # step of the readings that are tried on a device


class Violation(AssertionError):
    """A promise that was not kept; `rule` is its name."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass(frozen=True)
class Wish:
    """A subscription that a person was told is in force."""

    person: Person
    id: str
    vector: Subscription
    made: int  # ms, when it was asked for
    told: int  # ms, when it was confirmed
    request: dict[str, Any]

    @property
    def is_plain(self) -> bool:
        """Whether every match of it is to be shown."""
        return self.request["subscribe"] not in TERMS

    @property
    def terms(self) -> tuple[int, int]:
        """How many are shown at a time, and for how many ms each counts; 0 for no limit."""
        return TERMS.get(self.request["subscribe"], (0, 0))


def list_wishes(person: Person) -> list[Wish]:
    """Return the subscriptions of a person that a node confirmed."""
    return [
        Wish(
            person,
            request.answer["id"],
            decode_subscription(bytes.fromhex(request.answer["vector"])),
            request.made,
            request.answered,
            request.body,
        )
        for request in person.requests.values()
        if request.answer and request.answer.get("ok") and "vector" in request.answer
    ]


def _list_honest(play: Play) -> list[Host]:
    return [host for name, host in play.world.hosts.items() if name not in play.truth.liars]


def _find_told(play: Play, seen: Seen) -> Told | None:
    dog = play.world.dogs.get(seen.device)
    return dog.told.get((seen.device_epoch, seen.device_sequence)) if dog else None


# Checks -------------------------------------------------------------------------------------


def check_acknowledged(play: Play) -> None:
    """Acknowledged is never lost: what a device may forget is on a disk."""
    there = {
        (body.device, body.device_epoch, body.device_sequence)
        for host in play.world.hosts.values()
        for _, body in iterate_notes(host)
    }
    given_up = len(play.truth.dropped)
    for dog in play.world.dogs.values():
        lost = sorted(n for n in dog.freed - dog.unsure if (dog.name, *n) not in there)
        if len(lost) > given_up:
            raise Violation("acknowledged", f"{dog.name} was told to forget {lost}, nobody has it")


def check_confirmed(play: Play) -> None:
    """Confirmed is never lost: a subscription that nobody took back is in force everywhere."""
    for person in play.world.people.values():
        for request in person.list_open():
            raise Violation("confirmed", f"{person.name}: no answer to {request.body}")
        for wish in list_wishes(person):
            if "name" in wish.request:
                continue  # may have been replaced, or taken back
            for host in _list_honest(play):
                ids = {f"{id:016x}" for id, _ in iterate_subscriptions(host)}
                if wish.id not in ids and not _has_equal(host, wish):
                    raise Violation("confirmed", f"{host.name} has lost {wish.request}")


def _has_equal(host: Host, wish: Wish) -> bool:
    """Return whether the same wish of the same person is there under another id."""
    vectors = [
        decode_subscription(body.vector)
        for _, body in iterate_subscriptions(host)
        if body.owner == wish.person.name
    ]
    return wish.vector in vectors


def check_once(play: Play) -> None:
    """Delivered once: nothing is sent again after its delivery, and nobody sees a reading twice.

    A reading that two nodes took, because its device lost the word of the first, is two notes.
    """
    for node, owner, note in play.truth.sent_after:
        raise Violation("once", f"{node} sent {note:016x} to {owner} after it was delivered")
    notes = play.truth.notes
    for person in play.world.people.values():
        seen: dict[tuple[str, ...], str] = {}
        for shown in person.notes.values():
            body = notes.get(int(shown.id, 16))
            if body is None:
                continue
            taken = (body.origin, *map(str, body.number))
            if taken in seen:
                told = f"{seen[taken]} and {shown.id}"
                raise Violation("once", f"{person.name} saw {body.number} as {told}")
            seen[taken] = shown.id


def check_converged(play: Play) -> None:
    """Subscriptions converge: once all have met, all nodes have the same ones."""
    states = {host.name: list_live(host, SUBSCRIPTION) for host in _list_honest(play)}
    for name, state in states.items():
        for other, theirs in states.items():
            if state - theirs:
                raise Violation("converged", f"{other} lacks {sorted(state - theirs)} of {name}")


def check_wanted(play: Play) -> None:
    """Nobody receives what they did not ask for, or may not see, or what was never read."""
    notes = play.truth.notes
    for person in play.world.people.values():
        wishes = list_wishes(person)
        role = play.world.roster.roles[person.name]
        for shown in person.notes.values():
            if shown.node in play.truth.liars:
                continue  # who is with a liar is lied to
            for name in shown.fields["values"]:
                if f"{shown.fields['event']}.{name}" in HIDDEN.get(role, ()):
                    raise Violation("wanted", f"{person.name} ({role}) saw {name}")
            body = notes.get(int(shown.id, 16))
            if body is None or int(shown.id, 16) in play.truth.lies:
                raise Violation("wanted", f"{person.name} saw {shown.id}, which nobody has")
            told = _find_told(play, body)
            if told is None or told.vector[6:] != body.vector[6:]:
                raise Violation("wanted", f"{person.name} saw what {body.device} never said")
            vector = decode_notification(body.vector)
            if not any(_matches(wish.vector, vector) for wish in wishes):
                raise Violation("wanted", f"{person.name} saw {shown.fields}, and never asked")


def _matches(wish: Subscription, note: Notification) -> bool:
    found = match(wish, note)
    return found is not None and bool(found.matched)


def check_arrived(play: Play) -> None:
    """Everything arrives: what was asked for before it was read is shown in the end."""
    notes = play.truth.notes
    for person in play.world.people.values():
        hidden = HIDDEN.get(play.world.roster.roles[person.name], ())
        if person.node in play.truth.liars:
            continue
        for wish in list_wishes(person):
            if not wish.is_plain or "name" in wish.request:
                continue
            names = wish.request["subscribe"].split(" is ")[0]
            if any(each.split(".")[1].replace("_", " ") in names for each in hidden):
                continue
            for id, body in sorted(notes.items()):
                told = _find_told(play, body)
                if id in play.truth.lies or told is None or body.origin in play.truth.liars:
                    continue
                is_due = told.time > wish.told + _SLACK and not play.truth.dropped
                if not is_due or told.time > play.world.now - 4 * _SLACK:
                    continue
                if not _matches(wish.vector, decode_notification(body.vector)):
                    continue
                if not _has_seen(person, notes, body):
                    raise Violation(
                        "arrived", f"{person.name} never saw {id:016x} of {body.device}"
                    )


def _has_seen(person: Person, notes: dict[int, Seen], wanted: Seen) -> bool:
    shown = (notes.get(int(id, 16)) for id in person.notes)
    return any(seen is not None and seen.number == wanted.number for seen in shown)


def check_top_k(play: Play) -> None:
    """Top k as defined: nothing is delivered that k better ones, still valid, came before."""
    for person in play.world.people.values():
        for wish in list_wishes(person):
            top, life = wish.terms
            if not top:
                continue
            shown = [
                note
                for note in person.notes.values()
                if note.fields["subscription_id"] == wish.id
                and len(note.fields["subscriptions"]) == 1
            ]
            for place, note in enumerate(shown):
                better = [
                    other
                    for other in shown[:place]
                    if other.node == note.node
                    and other.fields["score"] > note.fields["score"]
                    and note.time - other.time < life - 2 * _SLACK - _age(play, other)
                ]
                if len(better) >= top:
                    raise Violation("top-k", f"{person.name}: {note.id} after {len(better)} better")


def _age(play: Play, shown: Any) -> int:
    body = play.truth.notes.get(int(shown.id, 16))
    told = _find_told(play, body) if body else None
    return shown.time - told.time if told else 0


def check_expired(play: Play) -> None:
    """Expiry is respected: nothing is delivered after it, by the clock of the node that read it."""
    notes = play.truth.notes
    for person in play.world.people.values():
        for wish in list_wishes(person):
            life = wish.terms[1]
            for shown in person.notes.values():
                if not life or len(shown.fields["subscriptions"]) > 1:
                    continue
                body = notes.get(int(shown.id, 16))
                told = _find_told(play, body) if body else None
                is_here = body is not None and body.origin == shown.node
                if shown.fields["subscription_id"] != wish.id or told is None or not is_here:
                    continue
                assert body is not None
                late = shown.time - told.time - life - 2 * body.doubt - _SLACK
                if late > 0 and not _was_sent_in_time(play, person, shown.id):
                    raise Violation("expired", f"{person.name}: {shown.id} {late} ms too late")


def _was_sent_in_time(play: Play, person: Person, note: str) -> bool:
    """Return whether it had been offered before: what was decided once stays decided."""
    return (person.name, int(note, 16)) in play.truth.sent


def check_covered(play: Play) -> None:
    """A passive subscription is covered: a device tells whatever any live subscription wants."""
    for dog in play.world.dogs.values():
        host = play.world.hosts[dog.node]
        if not dog.is_up or not host.is_up:
            continue
        if not host.devices.is_installed(dog.name):
            raise Violation("covered", f"{host.name} is not sure of {dog.name}")
        wanted = [decode_subscription(body.vector) for _, body in iterate_subscriptions(host)]
        for sense in SENSES:
            for value in range(0, 256, _GRID):
                for second in range(0, 256, 3 * _GRID) if len(sense.attributes) > 1 else (0,):
                    values = (value, second)[: len(sense.attributes)]
                    _check_told(dog, sense.event, values, wanted)


def _check_told(dog: Any, event: int, values: tuple[int, ...], wanted: list[Subscription]) -> None:
    readings = [Reading(attribute, (v,) * 4) for attribute, v in enumerate(values)]
    note = Notification(event, readings)
    sample = Sample(event)
    for attribute, v in enumerate(values):
        sample.set(attribute, v)
    is_told = dog.language.judge(sample, 1 << 28) >= 0
    if any(_matches(wish, note) for wish in wanted) and not is_told:
        raise Violation("covered", f"{dog.name} keeps {values} of event {event} to itself")


def check_bounded(play: Play) -> None:
    """Memory is bounded: a node holds what it may, and a little more for a moment."""
    room = play.scenario.room
    for host in play.world.hosts.values():
        held = host.holdings.count(NOTIFICATION)
        if held > room + 8:
            raise Violation("bounded", f"{host.name} holds {held}, {room} are allowed")
        if len(host.peers.contacts) >= play.scenario.nodes:
            raise Violation("bounded", f"{host.name} has contacts with {list(host.peers.contacts)}")


def check_disks(play: Play) -> None:
    """What a node has in memory is what it finds on its disk."""
    for name, host in play.world.hosts.items():
        before = [list_live(host, kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        seen = dict(host.holdings.context.runs)
        host.die()
        host.start(play.world.now)
        after = [list_live(host, kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        if before != after or seen != host.holdings.context.runs:
            raise Violation("disks", f"{name} remembers something else")
        host.handle(Tick(), play.world.now)


CHECKS: tuple[Callable[[Play], None], ...] = (
    check_acknowledged,
    check_confirmed,
    check_once,
    check_converged,
    check_wanted,
    check_arrived,
    check_top_k,
    check_expired,
    check_covered,
    check_bounded,
    check_disks,  # the last: it restarts everybody
)


def check_all(play: Play) -> None:
    """All of them."""
    for check in CHECKS:
        check(play)
