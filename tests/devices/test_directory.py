"""Who can answer: announced by nodes as items, said in replies, pushed when the first one comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.device_directory import DeviceDirectory, SubscriptionNeed
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    AnnouncementBody,
    Dot,
    Item,
    decode_body,
    encode_body,
)
from denwatch.protocol.errors import ProtocolError

from simulator.device import Sense
from tests.simulator.test_life import build_world

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"]
BITS = {name: attribute.bit for name, attribute in PATIENT.attributes.items()}
HASH = b"8" * 8


def make_item(number: int, device: str, *names: str, origin: str = "a") -> Item:
    mask = sum(1 << BITS[name] for name in names)
    body = AnnouncementBody(device, HASH, [[PATIENT.number, mask]])
    return Item(Dot(origin, 1, number), ANNOUNCEMENT, 0, encode_body(body))


def make_directory(*items: Item) -> DeviceDirectory:
    directory = DeviceDirectory("a", lambda one, other, *_: one == other)
    for item in items:
        directory.add(item)
    return directory


def need(*names: str) -> SubscriptionNeed:
    return SubscriptionNeed(HASH, PATIENT.number, sum(1 << BITS[name] for name in names))


def test_what_is_missing_is_said() -> None:
    directory = make_directory(
        make_item(1, "bed-1", "heart_rate", "oxygen_saturation"),
        make_item(1, "bed-1", "heart_rate", "oxygen_saturation", origin="b"),
        make_item(2, "bed-2", "heart_rate", "oxygen_saturation", origin="b"),
        make_item(3, "bed-3", "heart_rate"),
        make_item(4, "bed-4", "triage"),
    )
    found = directory.describe(need("heart_rate", "oxygen_saturation"), PATIENT)
    assert (found["here"], found["elsewhere"]) == (1, 1)
    assert found["lacking"] == {"oxygen_saturation": 1}
    assert found["words"] == (
        "2 devices can answer, 1 here; 1 device more would, without oxygen_saturation"
    )
    found = directory.describe(need("heart_rate", "glucose"), PATIENT)
    assert found["nobody"] == ["glucose"]
    assert found["words"] == "no device can answer yet; nobody senses glucose"
    directory.remove(Dot("a", 1, 3))
    assert not directory.describe(need("heart_rate", "oxygen_saturation"), PATIENT)["lacking"]


def test_another_vocabulary_does_not_count() -> None:
    directory = make_directory(make_item(1, "bed-1", "heart_rate"))
    other = SubscriptionNeed(b"9" * 8, PATIENT.number, 1 << BITS["heart_rate"])
    assert directory.describe(other, PATIENT)["words"].startswith("no device")


@pytest.mark.parametrize("senses", [7, [[1]], [[64, 1]], [[1, 0]], [[1, 1 << 16]], [[1, 1]] * 65])
def test_what_is_no_announcement_is_refused(senses: Any) -> None:
    body = AnnouncementBody("bed-1", HASH, senses)
    with pytest.raises(ProtocolError):
        decode_body(AnnouncementBody, encode_body(body))


def test_the_first_device_that_can_answer_is_told_once_and_everywhere() -> None:
    world = build_world("a", "b")
    world.add_person("medic", "a")
    world.meet("a", "b", True)
    asked = world.people["medic"]
    world.ask("medic", {"subscribe": "heart_rate above 100"})
    world.run(5_000)
    (request,) = asked.requests.values()
    assert request.answer is not None
    assert request.answer["devices"]["words"].startswith("no device can answer yet")
    told: list[dict[str, Any]] = []
    take = asked.take_reply

    def note_reply(payload: bytes, now: int) -> None:
        told.append(json.loads(payload))
        take(payload, now)

    asked.take_reply = note_reply  # type: ignore[method-assign]
    for number in (1, 2):
        world.add_device(f"dog-{number}", "b", [Sense(1, (BITS["heart_rate"],), period=5_000)])
        world.run(number * 30_000)
    pushed = [each for each in told if "answerable" in each]
    assert [(each["device"], each["at"]) for each in pushed] == [("dog-1", "b")]
    assert pushed[0]["answerable"] == request.answer["id"]
    world.ask("medic", {"subscribe": "heart_rate above 110"})
    world.run(90_000)
    last = list(asked.requests.values())[-1].answer
    assert last is not None
    assert (last["devices"]["here"], last["devices"]["elsewhere"]) == (0, 2)


def test_why_a_subscription_is_not_on_the_sensor_is_said() -> None:
    world = build_world("a")
    world.add_person("medic", "a")
    sensed = [Sense(PATIENT.number, (BITS["heart_rate"],), period=5_000)]
    for number in (1, 2):
        world.add_device(f"dog-{number}", "a", sensed)
    asked = world.people["medic"]
    requests = (
        {"subscribe": "heart_rate above 100", "name": "wide"},
        {"subscribe": "heart_rate above 120", "name": "narrow"},
        {"subscribe": "pain is severe", "name": "pain"},
        {"explain": "wide"},
        {"explain": "narrow"},
        {"explain": "pain"},
        {"explain": "nothing"},
    )
    for number, request in enumerate(requests, start=1):
        world.ask("medic", request)
        world.run(number * 10_000)
    answers = [each.answer for each in asked.requests.values()]
    wide, narrow, pain, nothing = answers[3:]
    assert wide is not None
    assert narrow is not None
    assert pain is not None
    assert nothing is not None
    assert (wide["active"], wide["passive"], wide["words"]) == (2, 0, "on 2 devices")
    assert (narrow["active"], narrow["passive"]) == (0, 2)
    assert narrow["covered_by"] == [answers[0]["id"]]  # type: ignore[index]
    assert narrow["words"] == "not on 2: wide covers it there"
    assert pain["words"] == "no device here senses all that it names"
    assert not nothing["ok"]


def test_a_probe_says_what_is_covered_what_waits_and_who_can_answer() -> None:
    world = build_world("a")
    for name in ("medic", "other"):
        world.add_person(name, "a")
    world.add_device("dog-1", "a", [Sense(PATIENT.number, (BITS["heart_rate"],), period=5_000)])
    world.ask("other", {"subscribe": "heart_rate above 100"})
    world.run(10_000)
    texts = ["heart_rate above 120", "heart_rate above 60", "pain is severe"]
    world.ask("medic", {"probe": texts})
    world.run(20_000)
    answer = list(world.people["medic"].requests.values())[-1].answer
    assert answer is not None
    assert (answer["new_roots"], answer["nodes"]) == (2, 1)
    assert (answer["waiting"], answer["devices"]) == (0, 1)
