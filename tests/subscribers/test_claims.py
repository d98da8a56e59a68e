"""Who has what: claims, hand-over, silence, escalation; and a person's subscriptions changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from denwatch.node.core.events import NOTES, REPLIES, REQUESTS, Log, Message, PeerUp, Publish
from denwatch.node.core.items import CLAIM, SUBSCRIPTION, Dot, Item

from simulator.keys import Roster
from tests.subscribers.subscriber_node import SubscriberNode, list_ids, load, patient

MINUTE = 60_000
RED = "triage = red, named red"


class FewRoles:
    """Three people, who may see everything."""

    def role_of(self, subscriber: str) -> str:
        return "open" if subscriber in ("ada", "bob", "chief") else ""

    def check(self, role: str, event: str, attributes: object) -> str | None:  # noqa: ARG002
        return None if role else "nobody"


def ask(node: SubscriberNode, who: str, request: Any) -> Any:
    """Return the answer to a request; what others are told is not it."""
    payload = request if isinstance(request, str) else json.dumps(request)
    node.listen(REPLIES + who)
    before = len(node.sent)
    node.do(Message(who, REQUESTS + who, payload.encode()))
    replies = [load(each) for each in node.sent[before:] if each.topic == REPLIES + who]
    return next(each for each in replies if "had" not in each or "release" in each)


def list_told(published: list[Publish], who: str) -> list[Any]:
    """Return who has what, as somebody was told."""
    return [
        load(each)["had"]
        for each in published
        if each.topic == REPLIES + who and "had" in load(each) and "release" not in load(each)
    ]


def make_two() -> tuple[SubscriberNode, SubscriberNode]:
    roster = Roster()
    roster.nodes = {"a": None, "b": None}
    return tuple(SubscriberNode(name=name, roster=roster, roles=FewRoles()) for name in "ab")  # type: ignore[return-value]


def tell(one: SubscriberNode, other: SubscriberNode) -> list[Publish]:
    """Let a node give another one the claims and subscriptions that it lacks."""
    one.do(PeerUp(other.name))
    other.now = one.now
    published = []
    for kind in (CLAIM, SUBSCRIPTION):
        for item in list(one.item_store.iterate(one.store, kind)):
            if not other.item_store.context.holds(*item.dot):
                published += other.bring(item)
    return published


def see(node: SubscriberNode, device: str = "ada") -> tuple[Item, list[Publish]]:
    return node.read(patient(triage="red"), device=device)


def show(published: list[Publish], who: str) -> list[Any]:
    return [load(each) for each in published if each.topic == NOTES + who]


def test_everybody_learns_who_has_it_at_every_node_and_after_a_kill() -> None:
    a, b = make_two()
    for node in (a, b):
        ask(node, "bob", RED)
        node.attach("bob")
    reply = ask(a, "ada", "I have ada, silent for 10 min")
    assert (reply["have"], reply["by"]) == ("ada", "ada")
    (told,) = list_told(tell(a, b), "bob")
    assert told["by"] == "ada"
    assert told["silent_until"] > told["since"]
    assert told["words"].startswith("ada has ada since 20")
    b = b.reopen()
    b.attach("bob")
    assert ask(b, "bob", "who has what")["have"] == [told]
    _, published = see(b)
    (note,) = show(published, "bob")
    assert note["had"] == told, "the notification comes, and says who has it"
    b.now += 11 * MINUTE
    _, published = see(b)
    assert show(published, "bob")[0]["had"]["silent_until"] is None


def test_handing_over_and_releasing() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "bob", RED)
    ask(node, "chief", RED)
    ask(node, "ada", {"have": "bob"})
    since = ask(node, "ada", {"have": True})["have"][0]["since"]
    node.now += MINUTE
    ask(node, "ada", {"have": "bob"})
    assert ask(node, "ada", {"have": True})["have"][0]["since"] == since, "said again"
    before = len(node.sent)
    assert ask(node, "ada", "hand bob to chief")["by"] == "chief"
    (told,) = list_told(node.sent[before:], "bob")
    assert (told["by"], told["since"] > since) == ("chief", True)
    assert told["words"].endswith(", says ada")
    assert node.item_store.count(CLAIM) == 1
    before = len(node.sent)
    assert ask(node, "bob", "release bob")["had"]["by"] == "chief"
    assert not list_told(node.sent[before:], "bob"), "whoever asked has the answer"
    assert list_told(node.sent[before:], "chief")[0]["by"] is None
    assert node.item_store.count(CLAIM) == 0
    assert ask(node, "bob", {"release": "bob"})["known"] is False


def test_one_notification_can_be_had_alone() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "bob", RED)
    item, _ = see(node)
    ask(node, "ada", {"have": f"{item.id:016x}"})
    see(node)
    notes = {note["id"]: note for note in show(node.attach("bob"), "bob")}
    assert [("had" in note) for note in notes.values()].count(True) == 1
    had = notes[f"{item.id:016x}"]["had"]
    assert (had["subject"], had["is_notification"], had["by"]) == (f"{item.id:016x}", True, "ada")


def test_of_two_claims_made_apart_the_latest_holds_everywhere() -> None:
    a, b = make_two()
    ask(a, "ada", {"have": "bob"})
    b.now = a.now + 5
    ask(b, "chief", {"have": "bob"})
    tell(b, a)
    tell(a, b)
    for node in (a, b):
        assert [each["by"] for each in ask(node, "bob", {"have": True})["have"]] == ["chief"]
        assert node.item_store.count(CLAIM) == 1


def test_a_claim_ends_by_itself() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", {"have": "bob"})
    node.tick(13 * 60 * MINUTE)
    assert ask(node, "ada", {"have": True})["have"] == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"have": "bed-7"}, 'no device "bed-7"'),
        ({"have": "bob", "to": "eve"}, 'nobody named "eve"'),
        ({"have": 7}, "a device, or the id"),
        ({"have": "bob", "silence": "long"}, "long"),
        ({"have": "bob", "silence": 1e6}, "24 h at most"),
        ({"have": "bob", "by": "ada"}, "unknown key"),
        ({"release": True}, "a device, or the id"),
        ("pain is severe, escalate to eve after 5 min", "nobody else"),
        ("pain is severe, escalate to ada after 5 min", "nobody else"),
        ({"subscribe": "pain is severe", "escalate": "bob"}, "escalate"),
        ({"subscribe": "pain is severe", "escalate": {"to": "bob", "after": -1}}, "after"),
        ({"change": "nothing", "score": 0.5}, "no subscription"),
        ({"change": "red", "score": 7}, "score is between"),
        ({"change": "red"}, "change what?"),
        ({"change": "red", "colour": 1}, "unknown key"),
        ({"change": "red", "escalate": {"to": "eve", "after": 5}}, "nobody else"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(request_: Any, error: str) -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", RED)
    reply = ask(node, "ada", request_)
    assert not reply["ok"]
    assert error in reply["error"]
    assert node.item_store.count(CLAIM) == 0
    assert node.item_store.count(SUBSCRIPTION) == 1


# Escalation ------------------------------------------------------------------------------------

ESCALATING = (
    RED + ", escalate to chief after 5 min",
    {"subscribe": RED, "escalate": {"to": "chief", "after": "5 min"}},
    {"when": {"attribute": "triage", "is": "red"}, "name": "red"}
    | {"escalate": {"to": "chief", "after": 300}},
)


@pytest.mark.parametrize("request_", ESCALATING)
def test_what_nobody_has_is_escalated(request_: Any) -> None:
    node = SubscriberNode(roles=FewRoles())
    reply = ask(node, "ada", request_)
    assert reply["ok"], reply
    (row,) = ask(node, "chief", "list")["subscriptions"]
    assert row["name"] == "red of ada"
    node.attach("ada")
    node.attach("chief")
    item, published = see(node, "wd1")
    assert list_ids(published, "ada")
    assert not list_ids(published, "chief")
    assert not list_ids(node.tick(4 * MINUTE), "chief")
    (note,) = show(node.tick(MINUTE), "chief")
    assert (note["id"], note["escalated"]) == (f"{item.id:016x}", "ada")
    assert not list_ids(node.tick(MINUTE), "chief"), "once"


@pytest.mark.parametrize("subject", ["device", "notification"])
def test_what_somebody_has_is_not(subject: str) -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", ESCALATING[0])
    node.attach("chief")
    item, _ = see(node, "bob")
    ask(node, "bob", {"have": "bob" if subject == "device" else f"{item.id:016x}"})
    published = node.tick(6 * MINUTE)
    assert not list_ids(published, "chief")
    reasons = [
        action.fields["reason"]
        for actions in node.trace
        for action in actions
        if isinstance(action, Log) and action.kind == "suppress"
    ]
    assert reasons == ["had"]


def test_who_comes_late_or_after_a_kill_hears_of_what_nobody_has() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", ESCALATING[0])
    item, _ = see(node, "wd1")
    node = node.reopen()
    assert not list_ids(node.attach("chief"), "chief"), "it is early"
    node = node.reopen()
    node.now += 6 * MINUTE
    assert list_ids(node.attach("chief"), "chief") == [f"{item.id:016x}"]


def test_whoever_asked_for_it_themselves_does_not_wait() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", ESCALATING[0])
    ask(node, "chief", RED)
    node.attach("chief")
    _, published = see(node, "wd1")
    (note,) = show(published, "chief")
    assert "escalated" not in note
    assert note["subscriptions"] == ["red"]
    node.ack(next(each for each in published if each.topic == NOTES + "chief"))
    assert not list_ids(node.tick(6 * MINUTE), "chief")


def test_ending_or_changing_it_ends_the_escalation() -> None:
    a, b = make_two()
    ask(a, "ada", ESCALATING[0])
    tell(a, b)
    assert ask(b, "ada", {"change": "red", "escalate": {"to": "bob", "after": "1 min"}})["ok"]
    assert ask(b, "chief", "list")["subscriptions"] == []
    (row,) = ask(b, "bob", "list")["subscriptions"]
    assert row["options"]["after"] == 60
    assert ask(b, "ada", "unsubscribe red")["ok"]
    assert ask(b, "bob", "list")["subscriptions"] == []
    assert b.item_store.count(SUBSCRIPTION) == 0


# A person's subscriptions, whichever client made them ---------------------------------------------


def test_one_of_several_is_muted_and_scored_by_another_client() -> None:
    node = SubscriberNode(roles=FewRoles())
    ask(node, "ada", RED)
    ask(node, "ada", "heart_rate is high, named fast")
    reply = ask(node, "ada", {"change": "red", "score": 0.5, "top": 3})
    assert reply["options"] == {"name": "red", "score": 0.5, "top": 3}
    node.now += 1000
    node.attach("ada")
    _, published = see(node)
    assert show(published, "ada")[0]["score"] == 0.5
    assert ask(node, "ada", "mute red")["options"]["muted"] is True
    node = node.reopen()
    node.now += 1000
    node.attach("ada")
    _, published = see(node)
    assert not list_ids(published, "ada")
    _, published = node.read(patient(triage="red", heart_rate=170))
    assert show(published, "ada")[0]["subscriptions"] == ["fast"]
    assert "muted" not in ask(node, "ada", "unmute red")["options"]
    node.now += 1000
    _, published = see(node)
    assert list_ids(published, "ada")
    assert ask(node, "ada", {"change": "red", "top": None, "name": "rot"})["options"] == {
        "name": "rot",
        "score": 0.5,
    }
    assert not ask(node, "ada", {"change": "rot", "name": "fast"})["ok"]


def test_a_claim_of_bytes_that_are_none_is_refused() -> None:
    node = SubscriberNode(roles=FewRoles())
    node.bring(Item(Dot("b", 1, 1), CLAIM, 0, b"\x86aaaaaa", b"signed"))
    assert ask(node, "ada", {"have": True})["have"] == []
