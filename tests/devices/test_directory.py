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
