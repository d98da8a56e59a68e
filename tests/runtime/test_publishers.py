"""What a node's status says about its devices: who senses what, within bounds."""

from __future__ import annotations

from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.devices import Device
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.runtime.metrics import list_publishers

RESCUE = Vocabularies(load_shipped("rescue"))
PATIENT, FIRE = (RESCUE.own.events[name].number for name in ("patient", "fire"))


def make_device(name: str, senses: dict[int, int], is_present: bool = True) -> Device:
    masks = {event: (features, 0) for event, features in senses.items()}
    device = Device(name, (1, 1), 0, RESCUE.own_hash, masks, 4096, (1,))
    device.is_present = is_present
    return device


def test_devices_are_grouped_by_what_they_sense() -> None:
    devices = [
        make_device("bed-2", {PATIENT: 0b11}),
        make_device("bed-1", {PATIENT: 0b11}, is_present=False),
        make_device("pole", {PATIENT: 0b10, FIRE: 0b1}),
    ]
    assert list_publishers(devices, RESCUE) == [
        _group("fire", ["fire_temperature"], ["pole"]),
        _group("patient", ["heart_rate"], ["pole"]),
        _group("patient", ["patient_temperature", "heart_rate"], ["bed-2"], ["bed-1"]),
    ]


def test_what_no_vocabulary_knows_goes_by_its_number() -> None:
    strange = make_device("x", {PATIENT: 0b1, 63: 0b100})
    strange.vocabulary = bytes(8)
    assert list_publishers([strange], RESCUE) == [
        _group(f"event_{PATIENT}", ["attribute_0"], ["x"]),
        _group("event_63", ["attribute_2"], ["x"]),
    ]


def test_beyond_the_limit_devices_are_counted_and_those_that_are_there_go_first() -> None:
    devices = [make_device(f"bed-{i:03}", {PATIENT: 1}, i >= 50) for i in range(150)]
    (group,) = list_publishers(devices, RESCUE, 120)
    assert group["present"] == [f"bed-{i:03}" for i in range(50, 150)]
    assert group["away"] == [f"bed-{i:03}" for i in range(20)]
    assert group["more"] == 30
    fire = [make_device(f"pole-{i}", {FIRE: 1}) for i in range(3)]
    first, second = list_publishers([*devices, *fire], RESCUE, 2)
    assert (first["event"], len(first["present"]), first["more"]) == ("fire", 2, 1)
    assert (second["present"], second["away"], second["more"]) == ([], [], 150)


def _group(
    event: str, attributes: list[str], present: list[str], away: list[str] | None = None
) -> dict[str, object]:
    named = {"present": present, "away": away or [], "more": 0}
    return {"event": event, "attributes": attributes, **named}
