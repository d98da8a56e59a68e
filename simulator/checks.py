"""What must hold, by name: the promises of nodes and devices, checked from outside.

Each check takes a scenario that was played to its end, in calm, and raises `Violation`. They use
the protocol's own matching as the judge and nothing else of the nodes but what lies on their disks.
"""

from __future__ import annotations

from typing import Any

from denwatch.node.core.events import Tick
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION
from denwatch.protocol.notification import decode as decode_notification
from denwatch.protocol.subscription import decode as decode_subscription
from denwatch.protocol.vectors import NotificationVector, Reading, SubscriptionVector
from denwatch.watchdog.execution import Sample

from simulator.calendar import START
from simulator.evidence import (
    SLACK,
    count_rivals,
    find_age,
    find_told,
    grade,
    has_equal,
    has_seen,
    list_honest,
    list_wishes,
    matches,
)
from simulator.faults import Play
from simulator.person import Person
from simulator.registry import CHECKS, Violation, check, list_checks
from simulator.setup import HIDDEN, MAD, SENSES
from simulator.truth import iterate_notes, iterate_subscriptions, list_live

_SETTLED = 100_000  # ms after the trouble: even who left near its end is back
_GRID = 15  # step of the readings that are tried on a device


# Checks -------------------------------------------------------------------------------------


@check("acknowledged")
def check_acknowledged(play: Play) -> None:
    """Acknowledged is never lost: what a device may forget is on a disk."""
    there = {
        (body.device, body.device_epoch, body.device_sequence)
        for host in play.world.hosts.values()
        for _, body in iterate_notes(host)
    }
    notes = play.truth.notes
    there |= {notes[id].number for id in play.truth.find_lost() if id in notes}
    given_up = len(play.truth.dropped)
    for device in play.world.devices.values():
        lost = sorted(n for n in device.freed - device.unsure if (device.name, *n) not in there)
        if len(lost) > given_up:
            raise Violation(
                "acknowledged", f"{device.name} was told to forget {lost}, nobody has it"
            )


@check("confirmed")
def check_confirmed(play: Play) -> None:
    """Confirmed is never lost: a subscription that nobody took back is in force everywhere."""
    lost = play.truth.find_lost()
    for person in play.world.people.values():
        for request in person.list_open():
            raise Violation("confirmed", f"{person.name}: no answer to {request.body}")
        for wish in list_wishes(person):
            if "name" in wish.request or int(wish.id, 16) in lost:
                continue  # may have been replaced, or taken back; or a disk lied
            for host in list_honest(play):
                ids = {f"{id:016x}" for id, _ in iterate_subscriptions(host)}
                if wish.id not in ids and not has_equal(host, wish):
                    raise Violation("confirmed", f"{host.name} has lost {wish.request}")


@check("once")
def check_once(play: Play) -> None:
    """Delivered once: nothing is sent again after its delivery, and nobody sees a reading twice.

    Nor does a node take it twice. Two nodes may: its device did not hear the first one's word.
    """
    forgetful = play.truth.find_forgetful()
    taken: dict[tuple[str, tuple[str, int, int]], int] = {}
    for id, read in play.truth.notes.items():
        known = taken.setdefault((read.origin, read.number), id)
        if known != id and read.origin not in forgetful:
            raise Violation("once", f"{read.origin} took {read.number} twice")
    for node, owner, note in play.truth.sent_after:
        if node not in forgetful:
            raise Violation("once", f"{node} sent {note:016x} to {owner} after it was delivered")
    notes = play.truth.notes
    for person in play.world.people.values():
        seen: dict[tuple[str, int, int], str] = {}
        for shown in person.notes.values():
            body = notes.get(int(shown.id, 16))
            if body is None:
                continue
            if body.number in seen:
                told = f"{seen[body.number]} and {shown.id}"
                raise Violation("once", f"{person.name} saw {body.number} as {told}")
            seen[body.number] = shown.id


@check("converged")
def check_converged(play: Play) -> None:
    """Subscriptions converge: once all have met, all nodes have the same ones."""
    states = {host.name: list_live(host, SUBSCRIPTION) for host in list_honest(play)}
    for name, state in states.items():
        for other, theirs in states.items():
            if state - theirs:
                raise Violation("converged", f"{other} lacks {sorted(state - theirs)} of {name}")


@check("wanted")
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
            told = find_told(play, body)
            is_said = told is not None and told.vector[6:] == body.vector[6:]
            if not is_said and body.device != MAD:  # which says whatever it likes
                raise Violation("wanted", f"{person.name} saw what {body.device} never said")
            vector = decode_notification(body.vector)
            if not any(matches(wish.vector, vector) for wish in wishes):
                raise Violation("wanted", f"{person.name} saw {shown.fields}, and never asked")


@check("arrived")
def check_arrived(play: Play) -> None:
    """Everything arrives: what was asked for before it was read is shown in the end."""
    notes = play.truth.notes
    lost = play.truth.find_lost()
    for person in play.world.people.values():
        hidden = HIDDEN.get(play.world.roster.roles[person.name], ())
        if person.node in play.truth.liars:
            continue
        for wish in list_wishes(person):
            if not wish.is_plain or "name" in wish.request or int(wish.id, 16) in lost:
                continue
            names = wish.request["subscribe"].split(" is ")[0]
            if any(each.split(".")[1].replace("_", " ") in names for each in hidden):
                continue
            for id, body in sorted(notes.items()):
                told = find_told(play, body)
                if id in play.truth.lies or told is None or body.origin in play.truth.liars:
                    continue
                if id in lost:
                    continue
                is_due = told.time > wish.told + SLACK and not play.truth.dropped
                if not is_due or told.time > play.world.now - 4 * SLACK:
                    continue
                if not matches(wish.vector, decode_notification(body.vector)):
                    continue
                if not has_seen(person, notes, body):
                    raise Violation(
                        "arrived", f"{person.name} never saw {id:016x} of {body.device}"
                    )


@check("top-k")
def check_top_k(play: Play) -> None:
    """Top k as defined: nothing is delivered that k better ones, still valid, came before."""
    forgetful = play.truth.find_forgetful()
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
                and note.node not in forgetful
            ]
            for place, note in enumerate(shown):
                better = [
                    other
                    for other in shown[:place]
                    if other.node == note.node
                    and other.fields["score"] > note.fields["score"]
                    and note.time - other.time < life - 2 * SLACK - find_age(play, other)
                ]
                if len(better) >= top:
                    raise Violation("top-k", f"{person.name}: {note.id} after {len(better)} better")


@check("best")
def check_best(play: Play) -> None:
    """The k best are shown: what nobody saw of a wish for k had k as good ones beside it.

    Of what was read when all had been well for a while, so that nothing else kept it.
    """
    truth = play.truth
    settled = START + play.scenario.trouble + _SETTLED
    for person in play.world.people.values():
        if person.node in truth.liars | truth.find_forgetful() or truth.dropped:
            continue
        for wish in list_wishes(person):
            top, life = wish.terms
            if not top or "name" in wish.request or int(wish.id, 16) in truth.find_lost():
                continue
            for id, body in sorted(truth.notes.items()):
                told = find_told(play, body)
                if told is None or not settled < told.time < play.world.now - 4 * SLACK:
                    continue
                degree = grade(wish.vector, body)
                if degree < 0 or body.origin in truth.liars or has_seen(person, truth.notes, body):
                    continue
                if count_rivals(play, wish, told, degree, life) < top:
                    raise Violation("best", f"{person.name} never saw {id:016x}, of the {top} best")


@check("expired")
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
                told = find_told(play, body) if body else None
                is_here = body is not None and body.origin == shown.node
                if shown.fields["subscription_id"] != wish.id or told is None or not is_here:
                    continue
                assert body is not None
                late = shown.time - told.time - life - 2 * body.doubt - SLACK
                if late > 0 and not _was_sent_in_time(play, person, shown.id):
                    raise Violation("expired", f"{person.name}: {shown.id} {late} ms too late")


def _was_sent_in_time(play: Play, person: Person, note: str) -> bool:
    """Return whether it had been offered before: what was decided once stays decided."""
    return (person.name, int(note, 16)) in play.truth.sent


@check("covered")
def check_covered(play: Play) -> None:
    """A passive subscription is covered: a device tells whatever any live subscription wants."""
    for device in play.world.devices.values():
        host = play.world.hosts[device.node]
        if not device.is_up or not host.is_up:
            continue
        if not host.devices.is_installed(device.name):
            raise Violation("covered", f"{host.name} is not sure of {device.name}")
        held = iterate_subscriptions(host)
        vectors = {body.vector for id, body in held if id not in play.truth.lies}
        wanted = [decode_subscription(vector) for vector in sorted(vectors)]
        for sense in SENSES:
            for value in range(0, 256, _GRID):
                for second in range(0, 256, 3 * _GRID) if len(sense.attributes) > 1 else (0,):
                    values = (value, second)[: len(sense.attributes)]
                    _check_told(device, sense.event, values, wanted)


def _check_told(
    device: Any, event: int, values: tuple[int, ...], wanted: list[SubscriptionVector]
) -> None:
    readings = [Reading(attribute, (v,) * 4) for attribute, v in enumerate(values)]
    note = NotificationVector(event, readings)
    sample = Sample(event)
    for attribute, v in enumerate(values):
        sample.set(attribute, v)
    is_told = device.language.judge(sample, 1 << 28) >= 0
    if any(matches(wish, note) for wish in wanted) and not is_told:
        raise Violation("covered", f"{device.name} keeps {values} of event {event} to itself")


@check("bounded")
def check_bounded(play: Play) -> None:
    """Memory is bounded: a node holds what it may, and a little more for a moment."""
    room = play.scenario.room
    for host in play.world.hosts.values():
        held = host.item_store.count(NOTIFICATION)
        if held > room + 8:
            raise Violation("bounded", f"{host.name} holds {held}, {room} are allowed")
        if len(host.peers.sessions) >= play.scenario.nodes:
            raise Violation("bounded", f"{host.name} has contacts with {list(host.peers.sessions)}")


@check("alive", order=0)
def check_alive(play: Play) -> None:
    """Nobody stays down: whatever happened, a node starts again and goes on."""
    for host in play.world.hosts.values():
        if not host.is_up:
            raise Violation("alive", f"{host.name} does not start again")


@check("disks", order=90)
def check_disks(play: Play) -> None:
    """What a node has in memory is what it finds on its disk. The last check: it restarts all."""
    for name, host in play.world.hosts.items():
        before = [list_live(host, kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        seen = dict(host.item_store.context.runs)
        host.die()
        host.start(play.world.now)
        after = [list_live(host, kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        if before != after or seen != host.item_store.context.runs:
            raise Violation("disks", f"{name} remembers something else")
        host.handle(Tick(), play.world.now)


def find_violations(play: Play) -> list[Violation]:
    """Return what is broken."""
    found = []
    for name in list_checks():
        try:
            found += CHECKS[name][1](play) or ()
        except Violation as violation:
            found.append(violation)
            if violation.rule == "alive":  # nobody can be asked who is down
                break
    return found
