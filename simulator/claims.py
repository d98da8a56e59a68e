"""Claims in the emulated world: people say that they have a device, also in the midst of trouble.

Everybody claims the first device at the start, some hand it over or release it in trouble. When all
is well, one after the other has a device of their own: what a node confirmed then must be what
every node knows in the end, and what those who listen were told.

In some scenarios one person's subscription escalates to another one: what nobody has reaches that
one in the end, not before its time, and not if somebody has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from denwatch.node.core.claims import Claims
from denwatch.node.core.delivery import Delivery, DeliveryPolicy
from denwatch.node.core.subscriptions import Subscription

from simulator.evidence import (
    SETTLED,
    SLACK,
    AskedSubscription,
    find_calm,
    find_degree,
    find_told,
    has_seen,
    is_in_doubt,
    list_asked,
    list_honest,
    list_working,
)
from simulator.faults import Play
from simulator.person import Person, Request
from simulator.registry import RULES, Rule, Violation, check, dial, on_heal, on_setup

_APART = 1_000  # ms
_HEARD = 30_000  # ms: so long before the end all nodes have heard of it
_ASKER, _HEARER = "person-0", "person-1"
_AFTER = 20  # s until what nobody has goes to somebody else
_ESCALATED = "fire temperature above 1"  # which every role may see
_TICKS = 16_000  # ms between two looks of a quiet node at what is due
# A clock that was set makes a reading older or younger than it is.
_CLOCKS = {"clock-jump", "far-clock"}


@dial("claims")
def draw_claims(rng: Random) -> int:
    """Return 0, or who says what in trouble."""
    return rng.randrange(1, 1 << 16) if rng.random() < 0.15 else 0


@dial("escalation")
def draw_escalation(rng: Random) -> int:
    """Let somebody hear of what nobody has, in some scenarios."""
    return int(rng.random() < 0.15)


@on_setup.append
def escalate(play: Play) -> None:
    """Let one person's subscription escalate to another one."""
    # Who wants only the best of all is another question.
    if play.scenario.dial("escalation") and not play.scenario.dial("my-top"):
        escalation = {"to": _HEARER, "after": _AFTER}
        if _HEARER in play.world.people:
            play.world.ask(_ASKER, {"subscribe": _ESCALATED, "escalate": escalation})


@on_setup.append
def claim_at_first(play: Play) -> None:
    """Let everybody have the same device, and some hand it over."""
    seed = play.scenario.dial("claims")
    if not seed:
        return
    rng = Random(f"claims {seed}")
    for number in range(play.scenario.people):
        for _ in range(3):
            other = f"person-{rng.randrange(play.scenario.people)}"
            body: dict[str, object] = {"have": "dog-0"}
            body = rng.choice((body, {**body, "to": other}))
            if rng.random() < 0.3:
                body = {"release": "dog-0"}
            elif rng.random() < 0.5:
                body["silence"] = 60
            wait = rng.randrange(play.scenario.trouble)
            play.world.calendar.wait(wait, play.world.ask, f"person-{number}", body)


@on_heal.append
def claim_in_calm(play: Play) -> None:
    """Let one after the other have a device of their own."""
    if play.scenario.dial("claims"):
        for number in range(min(play.scenario.people, play.scenario.devices)):
            wait = SETTLED + number * _APART
            body = {"have": f"dog-{number}"}
            play.world.calendar.wait(wait, play.world.ask, f"person-{number}", body)


@check("claims")
def check_claims(play: Play) -> Iterator[Violation]:
    """All nodes know who has what: the last that was confirmed when all was well."""
    if not play.scenario.dial("claims") or play.truth.liars or play.truth.find_forgetful():
        return
    # Who gets no answer, as a client that never acknowledges may not, says it again and again.
    asked = [each for person in play.world.people.values() for each in person.requests.values()]
    still = {each.body.get("have", each.body.get("release")) for each in asked if not each.answer}
    for number, person in enumerate(play.world.people.values()):
        if f"dog-{number}" in still:
            continue
        said = [
            each for each in person.requests.values() if each.body.get("have") == f"dog-{number}"
        ]
        if person not in list_working(play) or not said:
            continue
        last = said[-1]
        is_confirmed = last.answer is not None and last.answer["ok"]
        if not is_confirmed or not 0 < last.answered < play.world.now - _HEARD:
            continue
        if "to" in last.body or last.made < play.world.now - play.scenario.calm:
            continue
        for host in list_honest(play):
            holder = host.subscribers.claims.find_holder(f"dog-{number}")
            if holder != person.name:
                text = f"{host.name} says that {holder} has dog-{number}, not {person.name}"
                yield Violation("claims", text)


@check("escalated")
def check_escalated(play: Play) -> Iterator[Violation]:
    """What nobody has reaches whom it escalates to; not too early, and not if somebody has it."""
    hearer = play.world.people.get(_HEARER)
    asked = [each for each in list_asked(play.world.people[_ASKER]) if "escalate" in each.request]
    if hearer is None or play.truth.liars or play.truth.find_forgetful():
        return
    for shown in hearer.notes.values():
        if "escalated" not in shown.fields:
            continue
        seen = play.truth.notes.get(int(shown.id, 16))
        told = find_told(play, seen) if seen else None
        if seen is None or not any(find_degree(each, seen) >= 0 for each in asked):
            yield Violation("escalated", f"{_HEARER} was shown {shown.fields}, which nobody asked")
        elif told is not None and not _CLOCKS & set(play.scenario.list_faults()):
            due = told.time + 1000 * _AFTER
            if shown.time < due - seen.doubt - SLACK:
                yield Violation("escalated", f"{shown.id} {due - shown.time} ms before its time")
            for claim in _list_lasting(play, seen.device):
                if claim.answered + _HEARD < due:
                    yield Violation("escalated", f"{shown.id}, though somebody has {seen.device}")
    if hearer in list_working(play) and not play.scenario.dial("claims"):
        for each in asked:
            yield from _find_unheard(play, each, hearer)


def _list_lasting(play: Play, device: str) -> list[Request]:
    """Return who was told in calm that they have a device, if nobody released it since."""
    asked = [each for person in play.world.people.values() for each in person.requests.values()]
    about = [each for each in asked if device in (each.body.get("have"), each.body.get("release"))]
    if any("release" in each.body and not each.answer for each in about):
        return []
    return [
        each
        for each in about
        if "have" in each.body
        and each.made > find_calm(play)
        and each.answer is not None
        and each.answer["ok"]
    ]


def _find_unheard(play: Play, asked: AskedSubscription, hearer: Person) -> Iterator[Violation]:
    """Yield what nobody has and did not reach whom it escalates to."""
    truth = play.truth
    if truth.dropped or is_in_doubt(play, asked):
        return
    latest = play.world.now - 1000 * _AFTER - _TICKS - 4 * SLACK
    for id, seen in sorted(truth.notes.items()):
        told = find_told(play, seen)
        if id in truth.lies or told is None or not asked.told + SLACK < told.time < latest:
            continue
        if find_degree(asked, seen) >= 0 and not has_seen(hearer, truth.notes, seen):
            yield Violation("escalated", f"{hearer.name} never heard of {id:016x}")


def _learn_nothing(_: object) -> object:
    return lambda *_: None


def _wait_not(build: Callable[..., None]) -> Callable[..., None]:
    """Let what escalates be due at once."""

    def make(subscription: Subscription, *arguments: Any) -> None:
        build(subscription, *arguments)
        subscription.terms = subscription.terms._replace(delay=min(subscription.delay, 1))

    return make


RULES["claims"] = Rule(
    Claims, "add", _learn_nothing, "all nodes learn who has what", dials={"claims": 7}
)
RULES["had"] = Rule(
    DeliveryPolicy,
    "find_claim",
    _learn_nothing,
    "what somebody has does not escalate",
    dials={"claims": 7, "escalation": 1, "my-top": 0},
)
RULES["escalation-waits"] = Rule(
    Subscription,
    "__init__",
    _wait_not,
    "what escalates waits for somebody to have it",
    dials={"escalation": 1, "my-top": 0},
)
RULES["escalation-comes"] = Rule(
    Delivery,
    "hand_out_due",
    _learn_nothing,
    "what nobody has had for long enough is delivered",
    dials={"claims": 0, "escalation": 1, "my-top": 0},
)
