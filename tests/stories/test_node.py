"""Stories at a node: told once, with their parts and why; late, after a crash, and by receipts."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import NOTES, Count, Log, Publish
from denwatch.node.core.items import NOTIFICATION, Dot, name_story, prove_item
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    load,
    make_notification,
    make_receipts,
)

RESCUE = load_shipped("rescue")
MINUTE = 60_000
FIRE = (
    "smoke is dense within about 5 min after carbon_monoxide is high, within about 200 m,"
    " named gasfire"
)


def read_event(name: str, **values: float | str) -> NotificationVector:
    """Return a reading of an event."""
    event = RESCUE.events[name]
    readings = []
    for attribute in sorted(event.attributes.values(), key=lambda one: one.bit):
        if attribute.name in values:
            value = values[attribute.name]
            code = (
                attribute.codes_by_word[value]
                if isinstance(value, str)
                else attribute.to_code(value)
            )
            readings.append(Reading(attribute.bit, (code,) * 4, attribute.wide))
    return NotificationVector(event.number, readings)


GAS = read_event("gas", carbon_monoxide=900, east=100, north=100)
SMOKE = read_event("fire", smoke=95, east=150, north=100)
FAR = read_event("fire", smoke=95, east=5000, north=100)


def list_told(published: list[Publish], owner: str = "ada") -> list[Any]:
    return [load(p) for p in published if p.topic == NOTES + owner]


def test_a_sequence_is_told_with_its_parts() -> None:
    node = SubscriberNode()
    reply = node.ask("ada", FIRE)
    assert reply["ok"], reply
    assert reply["understood"] == (
        "smoke is dense within about 5 min after carbon_monoxide is high, within about 200 m"
    )
    node.attach("ada")
    gas, published = node.read(GAS, device="nose-1")
    assert list_told(published) == [], "a part is not delivered by itself"
    node.tick(2 * MINUTE)
    _, published = node.read(FAR, device="eye-2")
    assert list_told(published) == [], "too far away"
    smoke, published = node.read(SMOKE, device="eye-1")
    (told,) = list_told(published)
    assert told["subscription"] == "gasfire"
    assert told["degree"] == told["certain"] == 1
    assert told["event"] == "fire"
    assert told["device"] == "eye-1"
    assert told["story"]["kind"] == "sequence"
    assert [(p["part"], p["id"], p["device"]) for p in told["story"]["parts"]] == [
        (1, f"{gas.id:016x}", "nose-1"),
        (2, f"{smoke.id:016x}", "eye-1"),
    ]
    assert told["story"]["parts"][0]["values"] == [
        "carbon_monoxide 900.0 ppm",
        "east 100.0 m",
        "north 100.0 m",
    ] or told["story"]["parts"][0]["values"][0].startswith("carbon_monoxide 9")
    assert "sequence fits to 1" in told["why"]["words"]
    assert told["id"] == f"{name_story(int(reply['id'], 16), smoke.id).id:016x}"


def test_half_a_window_late_is_told_by_degree() -> None:
    node = SubscriberNode()
    node.ask("ada", "smoke is dense within about 4 min after carbon_monoxide is high, at least 0.2")
    node.attach("ada")
    node.read(GAS)
    node.tick(5 * MINUTE)
    _, published = node.read(SMOKE)
    (told,) = list_told(published)
    assert told["degree"] == pytest.approx(0.5, abs=0.005)
    node.tick(3 * MINUTE)
    assert list_told(node.read(SMOKE)[1]) == [], "after 8 minutes it is no story"


def test_a_late_part_tells_it_also_after_a_crash() -> None:
    node = SubscriberNode()
    node.ask("ada", FIRE)
    node.tick(10 * MINUTE)
    node.read(SMOKE)
    node = node.reopen()
    node.tick(MINUTE)
    _, published = node.read(GAS, at=node.now - 3 * MINUTE)
    assert list_told(published) == []
    node = node.reopen()
    told = list_told(node.attach("ada"))
    assert [one["subscription"] for one in told] == ["gasfire"]
    node = node.reopen()
    published = node.attach("ada")
    assert [one["id"] for one in list_told(published)] == [told[0]["id"]], "until it is settled"
    node.ack(published[-1])
    node = node.reopen()
    assert list_told(node.attach("ada")) == []


def test_what_is_delivered_elsewhere_is_not_told_again() -> None:
    for is_early in (False, True):
        node = SubscriberNode()
        reply = node.ask("ada", FIRE)
        gas = make_notification(node, GAS, Dot("b", 1, 1), at=node.now + MINUTE)
        smoke = make_notification(node, SMOKE, Dot("b", 1, 2), at=node.now + 2 * MINUTE)
        dot = name_story(int(reply["id"], 16), smoke.id)
        proof = prove_item(smoke.signature)
        receipt = make_receipts("ada", [dot], Dot("c", 1, 9), START + DAY, proof)
        forged = make_receipts("ada", [dot], Dot("c", 1, 8), START + DAY, b"8 bytes!")
        node.bring(*([forged, receipt] if is_early else [forged]), gas, smoke)
        if not is_early:
            assert len(list_told(node.attach("ada"))) == 1, "a forged receipt changes nothing"
            node.detach("ada")
            node.bring(receipt)
        assert list_told(node.attach("ada")) == []


def test_what_a_person_has_by_another_subscription_still_tells_the_story() -> None:
    node = SubscriberNode()
    node.ask("ada", FIRE)
    node.ask("ada", "smoke is dense, named smoke")
    node.attach("ada")
    node.tick(10 * MINUTE)
    _, published = node.read(SMOKE)
    assert [one["subscription"] for one in list_told(published)] == ["smoke"]
    node.ack(published[-1])
    _, published = node.read(GAS, at=node.now - MINUTE)
    assert [one["subscription"] for one in list_told(published)] == ["gasfire"]


def test_a_better_part_replaces_what_waits() -> None:
    node = SubscriberNode()
    node.ask("ada", "smoke is dense within about 4 min after carbon_monoxide is high")
    node.tick(20 * MINUTE)
    node.read(GAS, at=node.now - 5 * MINUTE)
    node.read(SMOKE)
    node.read(GAS, at=node.now - 3 * MINUTE)
    (told,) = list_told(node.attach("ada"))
    assert told["degree"] == 1


def test_together_and_counted() -> None:
    node = SubscriberNode()
    node.ask("ada", "smoke is dense and carbon_monoxide is high within 5 min, named both")
    node.ask("ada", "three or more patients with triage = red within 20 min, named many")
    node.attach("ada")
    node.read(SMOKE)
    _, published = node.read(GAS)
    assert [one["subscription"] for one in list_told(published)] == ["both"]
    red = read_event("patient", triage="red")
    told = []
    for device in ("bed-1", "bed-2", "bed-1", "bed-3"):
        node.tick(MINUTE)
        told.append([one["subscription"] for one in list_told(node.read(red, device=device)[1])])
    assert told == [[], [], [], ["many"]]


def test_silence_is_told_by_a_tick_and_taken_back_by_a_late_reading() -> None:
    node = SubscriberNode()
    node.ask("ada", "no smoke is dense for about 10 min, named silence")
    node.attach("ada")
    assert list_told(node.tick(9 * MINUTE)) == []
    (told,) = list_told(node.tick(MINUTE))
    assert told["subscription"] == "silence"
    assert told["certain"] == 0
    assert "what is still on its way is not known" in told["why"]["words"]
    assert list_told(node.tick(MINUTE)) == [], "once"
    node.read(SMOKE)
    assert list_told(node.tick(9 * MINUTE)) == []
    node.detach("ada")
    node.tick(2 * MINUTE)
    assert len(list(node.store.scan("sub.story"))) == 2
    node.read(SMOKE, at=node.now - 8 * MINUTE)
    assert len(list(node.store.scan("sub.story"))) == 1, "broken before anybody had it"
    again = list_told(node.attach("ada"))
    assert [one["id"] for one in again] == [told["id"]], "the first one is on its way still"


def test_roles_hide_a_story_and_its_values() -> None:
    class Hiding:
        hidden: tuple[str, ...] = ("carbon_monoxide",)

        def role_of(self, subscriber: str) -> str:  # noqa: ARG002
            return "open"

        def check(self, role: str, event: str, attributes: Any) -> object | None:  # noqa: ARG002
            return "hidden" if set(attributes) & set(self.hidden) else None

    roles = Hiding()
    node = SubscriberNode(roles=roles)
    assert node.ask("ada", FIRE) == {"ok": False, "error": "hidden", "at": None}
    roles.hidden = ("methane",)
    assert node.ask("ada", FIRE)["ok"]
    gas = read_event("gas", carbon_monoxide=900, methane=1, east=100, north=100)
    node.read(gas)
    node.read(SMOKE)
    (told,) = list_told(node.attach("ada"))
    assert not any("methane" in words for words in told["story"]["parts"][0]["values"])
    node.detach("ada")
    roles.hidden = ("carbon_monoxide",)
    node.subscribers.forget_roles()
    assert list_told(node.attach("ada")) == []


def test_memory_is_bounded_and_says_so() -> None:
    node = SubscriberNode(settings=SubscriberSettings(story_entries=3))
    node.ask("ada", "smoke is dense within 60 min after carbon_monoxide is high")
    for _ in range(5):
        node.tick()
        node.read(GAS)
    assert node.subscribers.stories.count() == {"stories": 1, "story_entries": 3}
    actions = [action for actions in node.trace for action in actions]
    assert sum(isinstance(a, Count) and a.name == "story_entries_forgotten" for a in actions) == 2
    assert [a.fields["what"] for a in actions if isinstance(a, Log) and a.kind == "drop"] == [
        "story part",
        "story part",
    ]


def test_removed_parts_and_removed_stories_leave_nothing() -> None:
    node = SubscriberNode()
    node.ask("ada", FIRE)
    gas, _ = node.read(GAS)
    node.read(SMOKE)
    node.bring((NOTIFICATION, gas.dot, "space"))
    assert node.subscribers.stories.count()["story_entries"] == 1
    assert node.ask("ada", "unsubscribe gasfire")["ok"]
    assert node.subscribers.stories.count()["stories"] == 0
    assert list_told(node.attach("ada")) == []
    assert not list(node.store.scan("sub.story"))


def test_what_is_told_expires() -> None:
    node = SubscriberNode(settings=SubscriberSettings(story_life=10 * MINUTE))
    node.ask("ada", FIRE)
    node.read(GAS)
    node.read(SMOKE)
    node.tick(11 * MINUTE)
    assert not list(node.store.scan("sub.story"))
    assert list_told(node.attach("ada")) == []
