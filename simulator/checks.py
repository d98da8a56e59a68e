"""What must hold, by name: the promises of nodes and devices, checked from outside.

Each check takes a scenario that was played to its end, in calm, and raises `Violation`. They use
the protocol's own matching as the judge and nothing else of the nodes but what lies on their disks.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from denwatch.node.core.events import Tick
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import REPORTED
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import decode as decode_subscription
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import NotificationVector, Reading, SubscriptionVector
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.fuzzy import Fuzzy

from simulator.device import EmulatedDevice, Sense, Taken
from simulator.evidence import (
    FOREVER,
    SETTLED,
    SLACK,
    AskedSubscription,
    count_rivals,
    find_age,
    find_calm,
    find_degree,
    find_told,
    has_equal,
    has_seen,
    is_in_doubt,
    list_asked,
    list_honest,
    list_working,
    may_see,
    read_note,
    wants_few,
)
from simulator.faults import Play
from simulator.hosted_node import HostedNode
from simulator.person import BROKEN, LIBRARY, Person, Shown
from simulator.registry import CHECKS, FINAL, Violation, check, list_checks
from simulator.setup import HIDDEN, MAD
from simulator.truth import iterate_notes, iterate_subscriptions, list_live
from simulator.whole_scenarios import LIMITS

_INSTALLED = 30_000  # ms after which a device has what its node wants it to have
_HEARD = 20_000  # ms after which a node has heard what another one over a good link has shown
_TRIES = 60  # made-up readings of each event that a device is asked about
_LAST = {False: 255, True: 65_535}


# Checks -------------------------------------------------------------------------------------


@check("acknowledged")
def check_acknowledged(play: Play) -> None:
    """Acknowledged is never lost: what a device may forget is on a disk."""
    notes = play.truth.notes
    ids = {id for host in play.world.hosts.values() for id, _ in iterate_notes(host)}
    there = {notes[id].reading for id in ids | play.truth.find_lost() if id in notes}
    given_up = len(play.truth.dropped)
    for device in play.world.devices.values():
        freed = {(device.name, *number, device.life) for number in device.freed - device.unsure}
        lost = sorted(freed - there)
        if len(lost) > given_up:
            text = f"{device.name} was told to forget {lost}"
            raise Violation(
                "acknowledged", text, *_list_facts(play, device, device.node, device.life)
            )


def _list_facts(play: Play, device: EmulatedDevice, node: str, life: int) -> list[str]:
    """Return what is odd about a device at a node, in one of its lives."""
    return ["passes for its old self"] if (node, device.name, life) in play.truth.mistaken else []


@check("confirmed")
def check_confirmed(play: Play) -> None:
    """Confirmed is never lost: a subscription that nobody took back is in force everywhere."""
    for person in play.world.people.values():
        # Who never acknowledges has soon filled a narrow window, and can get nothing more.
        is_deaf = person.client == BROKEN and play.scenario.dial(LIMITS)
        for request in () if is_deaf else person.list_open():
            raise Violation("confirmed", f"{person.name}: no answer to {request.body}")
        for asked in list_asked(person):
            if is_in_doubt(play, asked):
                continue
            for host in list_honest(play):
                ids = {f"{id:016x}" for id, _ in iterate_subscriptions(host)}
                if asked.id not in ids and not has_equal(host, asked):
                    raise Violation("confirmed", f"{host.name} has lost {asked.request}")


@check("once")
def check_once(play: Play) -> None:
    """Delivered once: nothing is sent again after its delivery, and nobody sees a reading twice.

    Nor does a node take it twice. Two nodes may: its device did not hear the first one's word.
    """
    forgetful = play.truth.find_forgetful()
    taken: dict[tuple[str, tuple[str, int, int, int]], int] = {}
    for id, read in play.truth.notes.items():
        known = taken.setdefault((read.origin, read.reading), id)
        if known != id and read.origin not in forgetful:
            raise Violation("once", f"{read.origin} took {read.number} twice")
    for node, owner, note in play.truth.sent_after:
        if node not in forgetful:
            raise Violation("once", f"{node} sent {note:016x} to {owner} after it was delivered")
    notes = play.truth.notes
    for person in play.world.people.values():
        seen: dict[tuple[str, int, int, int], str] = {}
        for shown in person.notes.values():
            body = notes.get(int(shown.id, 16))
            if body is None or person.client != LIBRARY:  # others do not compare readings
                continue
            if body.reading in seen:
                told = f"{seen[body.reading]} and {shown.id}"
                raise Violation("once", f"{person.name} saw {body.reading} as {told}")
            seen[body.reading] = shown.id


@check("converged")
def check_converged(play: Play) -> None:
    """Subscriptions converge: once all have met, all nodes have the same ones.

    Of a liar's that ended, who does not know the clock of a run that it made up may still keep one.
    """
    states = {
        host.name: {dot for dot in list_live(host, SUBSCRIPTION) if not _is_over(play, host, dot)}
        for host in list_honest(play)
    }
    for name, state in states.items():
        for other, theirs in states.items():
            if state - theirs:
                raise Violation("converged", f"{other} lacks {sorted(state - theirs)} of {name}")


def _is_over(play: Play, host: HostedNode, dot: tuple[str, int, int]) -> bool:
    origin, epoch, sequence = dot
    ends = host.item_store.live[SUBSCRIPTION][origin, epoch][sequence]
    return origin in play.truth.liars and 0 < ends < play.world.now


@check("wanted")
def check_wanted(play: Play) -> None:
    """Nobody receives what they did not ask for, or what was never read."""
    notes = play.truth.notes
    for person in play.world.people.values():
        subscriptions = list_asked(person)
        for shown in person.notes.values():
            if shown.node in play.truth.liars:
                continue  # who is with a liar is lied to
            if shown.fields.keys() & {"story", "escalated"}:
                continue  # the checks of these names are about those
            body = notes.get(int(shown.id, 16))
            if body is None or int(shown.id, 16) in play.truth.lies:
                raise Violation("wanted", f"{person.name} saw {shown.id}, which nobody has")
            told = find_told(play, body)
            is_said = told is not None and told.vector[6:] == body.vector[6:]
            if not is_said and body.device != MAD:  # which says whatever it likes
                raise Violation("wanted", f"{person.name} saw what {body.device} never said")
            if not any(find_degree(asked, body) >= 0 for asked in subscriptions):
                raise Violation("wanted", f"{person.name} saw {shown.fields}, and never asked")


@check("hidden")
def check_hidden(play: Play) -> None:
    """What a role hides stays hidden: from people, and from Home Assistant."""
    truth = play.truth
    for person in play.world.people.values():
        role = play.world.roster.roles[person.name]
        since = truth.demoted.get(person.name, 0) + SLACK
        for shown in person.notes.values():
            if shown.node in truth.liars or shown.time < since:
                continue
            fields = shown.fields
            for path in HIDDEN.get(role, ()):
                event, _, name = path.partition(".")
                said = [*fields["values"], *fields.get("faults", ()), str(fields.get("why") or "")]
                if fields["event"] == event and any(name in each for each in said):
                    raise Violation("hidden", f"{person.name} ({role}) saw {path}: {fields}")
    for topic in sorted(play.world.home_topics):
        if topic.endswith(tuple("/" + path.replace(".", "/") for path in HIDDEN["helper"])):
            raise Violation("hidden", f"Home Assistant was shown {topic}")


@check("revoked")
def check_revoked(play: Play) -> None:
    """Who has no rights is not heard: no node takes a reading under a revoked key."""
    for node, device in play.truth.stolen:
        raise Violation("revoked", f"{node} took a reading of {device}, which has no rights")


@check("dated")
def check_dated(play: Play) -> None:
    """Nothing is dated younger than it is, whoever keeps it on its way to the node."""
    for node, device, true, age in play.truth.younger:
        raise Violation("dated", f"{node} takes a reading of {device} for {age} ms old, not {true}")


@check("present")
def check_present(play: Play) -> Iterator[Violation]:
    """Presence is true within its time: of who is said to be there, and of who is not."""
    for absence in play.truth.absences:
        facts = [
            *(["goodbye"] if absence.was_clean else []),
            *([] if absence.has_will else ["no will"]),
            *(["there"] if absence.is_there else []),
        ]
        what = "is there, and is not listed" if absence.is_there else "is gone, and still listed"
        text = f"{absence.device} {what} by {absence.said} of {absence.node}"
        yield Violation("present", f"{text} after {absence.seconds} s", *facts)


@check("held-back")
def check_held_back(play: Play) -> Iterator[Violation]:
    """Nothing wanted is held back: a device tells every reading that a subscription in force wants.

    Of all readings that it took, told or not, each held against the definition of a match. A
    subscription is in force where a node has it, and that node had the time to tell its devices.
    """
    subscriptions = [
        asked
        for person in play.world.people.values()
        for asked in list_asked(person)
        if not is_in_doubt(play, asked)
    ]
    for device in play.world.devices.values():
        for asked in subscriptions:
            due = [taken for taken in device.taken if _is_due(play, asked, device, taken)]
            vector = asked.vector
            if vector is None or not vector.significance:
                for taken in due:
                    if taken.told is None and asked.is_met(read_note(taken.vector), device.name):
                        yield _describe_held_back(play, asked, device, taken)
                        break
            elif not vector.significance.window:
                yield from _find_never_told(play, asked, device, due)


@check("tailored")
def check_tailored(play: Play) -> Iterator[Violation]:
    """What is sent of a reading is enough: whoever wants the reading wants what was sent of it.

    A device leaves out what nobody names. A subscription in force that others cover is not on the
    device, and yet its attributes are among what is sent, and the old readings that it asks for.
    """
    for device in play.world.devices.values():
        told = [taken for taken in device.taken if taken.told is not None]
        for person in play.world.people.values():
            for asked in list_asked(person):
                if is_in_doubt(play, asked):
                    continue
                for taken in told:
                    assert taken.told is not None
                    if not _is_due(play, asked, device, taken):
                        continue
                    whole, sent = read_note(taken.vector), read_note(taken.told.vector)
                    if asked.is_met(whole, device.name) and not asked.is_met(sent, device.name):
                        text = f"{device.name} at {taken.node} sent {sent} of {whole}, and"
                        words = asked.request.get("subscribe") or asked.content
                        facts = _list_facts(play, device, taken.node, taken.life)
                        yield Violation(
                            "tailored", f"{text} {person.name} asked for {words}", *facts
                        )
                        break


def _is_due(play: Play, asked: AskedSubscription, device: EmulatedDevice, taken: Taken) -> bool:
    """Return whether a device must have known of a subscription when it took a reading."""
    truth = play.truth
    if asked.vector is None and {name for name, _, _ in asked.triples} <= {"event", "device"}:
        return False  # its answer says that sensors do not send for it
    if not taken.node or taken.node in truth.liars | truth.find_forgetful() | truth.omitting:
        return False
    latest = taken.time - _INSTALLED
    if truth.added.get((taken.node, int(asked.id, 16)), FOREVER) > latest:
        return False
    welcomes = truth.welcomes.get((taken.node, device.name), ())
    return any(taken.since <= welcome <= latest for welcome in welcomes)


def _find_never_told(
    play: Play, asked: AskedSubscription, device: EmulatedDevice, due: list[Taken]
) -> Iterator[Violation]:
    """Of a subscription to what is significant, the first match in a run of the device is: say if
    none was told."""
    told = {
        taken.epoch
        for taken in device.taken
        if taken.told is not None and asked.is_met(read_note(taken.vector), device.name)
    }
    for taken in due:
        if taken.epoch not in told and asked.is_met(read_note(taken.vector), device.name):
            yield _describe_held_back(play, asked, device, taken)
            return


def _describe_held_back(
    play: Play, asked: AskedSubscription, device: EmulatedDevice, taken: Taken
) -> Violation:
    note = read_note(taken.vector)
    facts = _list_facts(play, device, taken.node, taken.life)
    if asked.vector is None:
        facts.append("content")
    if not all(reading.exact for reading in note.readings):
        facts.append("uncertain")
    points = [(reading.attribute, reading.points) for reading in note.readings]
    words = asked.request.get("subscribe") or asked.content
    text = f"{device.name} at {taken.node} did not tell {points}, and {asked.person.name} asked"
    return Violation("held-back", f"{text} for {words}", *facts)


@check("arrived")
def check_arrived(play: Play) -> Iterator[Violation]:
    """Everything arrives: what was asked for before it was read is shown in the end."""
    notes = play.truth.notes
    lost = play.truth.find_lost()
    if play.truth.dropped:
        return
    for person in list_working(play):
        if person.node in play.truth.liars:
            continue
        for asked in list_asked(person):
            if not asked.is_plain or is_in_doubt(play, asked) or not may_see(play, asked):
                continue
            for id, body in sorted(notes.items()):
                told = find_told(play, body)
                if id in play.truth.lies or told is None or body.origin in play.truth.liars:
                    continue
                is_due = asked.told + SLACK < told.time <= play.world.now - 4 * SLACK
                if id in lost or not is_due or find_degree(asked, body) < 0:
                    continue
                if not has_seen(person, notes, body):
                    text = f"{person.name} never saw {id:016x} of {body.device}"
                    has_come = any(again[0] == f"{id:016x}" for again in person.again)
                    facts = ["taken for another"] if has_come else []
                    yield Violation("arrived", text, *facts)


@check("reported")
def check_reported(play: Play) -> None:
    """An answered report was stored, and whoever has our library sees it once, from its author."""
    for person in play.world.people.values():
        for request in person.requests.values():
            answer = request.answer
            if "report" not in request.body or answer is None or not answer["ok"]:
                continue
            if request.node in play.truth.liars:
                continue
            seen = play.truth.notes.get(int(answer["id"], 16))
            if seen is None or seen.device != person.name:
                raise Violation("reported", f"{person.name}: nobody has {request.body}")
        if person.client != LIBRARY:
            continue
        reports = [
            (seen.device, seen.vector[6:])
            for id in person.notes
            if (seen := play.truth.notes.get(int(id, 16))) and seen.device_epoch == REPORTED
        ]
        if len(set(reports)) < len(reports):
            raise Violation("reported", f"{person.name} saw a report twice")


def _list_shown(play: Play, asked: AskedSubscription) -> list[Shown]:
    """Return what a person was shown for one asked alone."""
    forgetful = play.truth.find_forgetful()
    return [
        note
        for note in asked.person.notes.values()
        if note.fields["subscription_id"] == asked.id
        and len(note.fields["subscriptions"]) == 1
        and note.node not in forgetful
    ]


def _list_better(
    play: Play, asked: AskedSubscription, before: list[Shown], note: Shown
) -> list[Shown]:
    """Return what was shown before, ranks above a note and was still valid."""
    life = asked.terms[1] or FOREVER
    return [
        other
        for other in before
        if other.fields["score"] > note.fields["score"]
        and note.time - other.time < life - 2 * SLACK - find_age(play, other)
    ]


@check("top-k")
def check_top_k(play: Play) -> None:
    """Top-k holds: nobody sees more than k at a node while k better ones are valid."""
    for person in play.world.people.values():
        for asked in list_asked(person):
            top = asked.terms[0]
            shown = _list_shown(play, asked) if top else []
            for place, note in enumerate(shown):
                here = [other for other in shown[:place] if other.node == note.node]
                better = _list_better(play, asked, here, note)
                if len(better) >= top:
                    raise Violation("top-k", f"{person.name}: {note.id} after {len(better)} better")


@check("top-k-anywhere")
def check_top_k_anywhere(play: Play) -> None:
    """Top-k holds for a person wherever they are, of all that the nodes could tell each other."""
    for person in list_working(play):
        for asked in list_asked(person):
            top = asked.terms[0]
            shown = _list_shown(play, asked) if top else []
            for place, note in enumerate(shown):
                before = [each for each in shown[:place] if _could_know(note, each)]
                better = _list_better(play, asked, before, note)
                if len(better) >= top and play.truth.liars.isdisjoint({*note.linked, note.node}):
                    has_walked = any(other.node != note.node for other in better)
                    raise Violation(
                        "top-k-anywhere",
                        f"{person.name}: {note.id} after {len(better)} better ones",
                        *(["walked"] if has_walked else []),
                    )


def _could_know(note: Shown, other: Shown) -> bool:
    """Return whether the node that showed a note had had the time to hear of another one."""
    if note.node == other.node:
        return True
    since = max(note.linked.get(other.node, FOREVER), other.time)
    return since + _HEARD < note.time


@check("my-top-anywhere")
def check_my_top(play: Play) -> None:
    """The top-k of a person holds over all subscriptions, wherever they are.

    Of what they were shown since they wanted it, and of all that the nodes could tell each other.
    """
    forgetful = play.truth.find_forgetful() | play.truth.liars
    for person in list_working(play):
        chosen = [each for each in person.requests.values() if "my_top" in each.body]
        if not chosen or not chosen[-1].answer or not chosen[-1].answer["ok"]:
            continue
        wanted = chosen[-1]
        life = min([each.terms[1] for each in list_asked(person) if each.terms[1]] or [FOREVER])
        shown = [
            note
            for note in person.notes.values()
            if note.time > wanted.answered and forgetful.isdisjoint({*note.linked, note.node})
        ]
        for place, note in enumerate(shown):
            since = note.linked.get(wanted.node, FOREVER) if note.node != wanted.node else 0
            is_known = max(since, wanted.answered) + _HEARD < note.time
            if not is_known or (person.name, int(note.id, 16)) in play.truth.sent:
                continue  # it was decided before
            better = [
                other
                for other in shown[:place]
                if other.fields["score"] > note.fields["score"]
                and _could_know(note, other)
                and note.time - other.time < life - 2 * SLACK - find_age(play, other)
            ]
            if len(better) >= wanted.body["my_top"]:
                has_walked = any(other.node != note.node for other in better)
                raise Violation(
                    "my-top-anywhere",
                    f"{person.name}: {note.id} after {len(better)} better ones of all",
                    *(["walked"] if has_walked else []),
                )


@check("best")
def check_best(play: Play) -> None:
    """The k best are shown: what nobody saw of a subscription to k had k as good ones beside it.

    Of what was read when all had been well for a while, so that nothing else kept it.
    """
    truth = play.truth
    settled = find_calm(play) + SETTLED
    for person in list_working(play):
        if person.node in truth.liars | truth.find_forgetful() or truth.dropped:
            continue
        if wants_few(person):
            continue
        for asked in list_asked(person):
            top, life = asked.terms
            vector = asked.vector
            is_selective = vector is not None and (vector.significance or vector.recent)
            if not top or is_selective or is_in_doubt(play, asked) or not may_see(play, asked):
                continue
            for id, body in sorted(truth.notes.items()):
                told = find_told(play, body)
                if told is None or not settled < told.time < play.world.now - 4 * SLACK:
                    continue
                degree = find_degree(asked, body)
                if degree < 0 or body.origin in truth.liars or has_seen(person, truth.notes, body):
                    continue
                if count_rivals(play, asked, told, degree, life or FOREVER) < top:
                    raise Violation("best", f"{person.name} never saw {id:016x}, of the {top} best")


@check("expired")
def check_expired(play: Play) -> None:
    """What is old is not news: nothing is delivered that is less recent than was asked for.

    By the clock of the node that read it.
    """
    notes = play.truth.notes
    for person in play.world.people.values():
        for asked in list_asked(person):
            recent = asked.vector.recent if asked.vector is not None else None
            life = 1000 * decode_duration(max(recent)) if recent else 0
            for shown in person.notes.values():
                if not life or len(shown.fields["subscriptions"]) > 1:
                    continue
                body = notes.get(int(shown.id, 16))
                told = find_told(play, body) if body else None
                is_here = body is not None and body.origin == shown.node
                if shown.fields["subscription_id"] != asked.id or told is None or not is_here:
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
    """A passive subscription is covered: a device tells whatever any live subscription wants.

    Of exact readings, made up for the purpose; `held-back` is about those that were taken.
    """
    for device in play.world.devices.values():
        host = play.world.hosts[device.node]
        if not device.is_up or not host.is_up or host.name in play.truth.omitting:
            continue
        if not host.devices.is_installed(device.name):
            text = f"{host.name} is not sure of {device.name}"
            raise Violation("covered", text, *_list_facts(play, device, host.name, device.life))
        held = [body for id, body in iterate_subscriptions(host) if id not in play.truth.lies]
        bodies = [part for body in held for part in load_languages().split(body)]
        vectors = {body.vector for body in bodies if body.language == FUZZY}
        wanted = [decode_subscription(vector) for vector in sorted(vectors)]
        lasting = [each for each in wanted if not each.significance and not each.validity]
        rng = Random(play.scenario.seed)
        for sense in device.senses:
            for _ in range(_TRIES):
                note = _draw_note(sense, rng)
                if not _is_told(device, sense, note, lasting):
                    text = f"{device.name} keeps {note} to itself"
                    raise Violation(
                        "covered", text, *_list_facts(play, device, host.name, device.life)
                    )


def _draw_note(sense: Sense, rng: Random) -> NotificationVector:
    readings = []
    for attribute in sense.attributes:
        is_wide = attribute in sense.wides
        last = sense.graded.get(attribute, _LAST[is_wide])
        value = rng.randrange(sense.lasts.get(attribute, last) + 1) * _LAST[is_wide] // last
        readings.append(Reading(attribute, (value,) * 4, is_wide))
    return NotificationVector(sense.event, readings)


def _is_told(
    device: EmulatedDevice,
    sense: Sense,
    note: NotificationVector,
    wanted: list[SubscriptionVector],
) -> bool:
    """Return whether a device would tell a note, or nobody wants it."""
    if not any(found.matched for asked in wanted if (found := match(asked, note)) is not None):
        return True
    sample = Sample(sense.event)
    for reading in note.readings:
        sample.set(reading.attribute, reading.points[0])
        sample.wides |= reading.wide << reading.attribute
    return Fuzzy.judge(device.language, sample, 1 << 28) >= 0


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
    found: list[Violation] = []
    for name in list_checks():
        try:
            found += CHECKS[name][1](play) or ()
        except Violation as violation:
            found.append(violation)
        if found and name in FINAL and found[-1].rule == name:  # nobody can be asked who is down
            break
    return found
