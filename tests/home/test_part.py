"""The part beside a node's core: what it tells Home Assistant, keeps back and takes back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from denwatch.client.publisher import parse_reading
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.device_registry import Device
from denwatch.node.core.events import Publish, Write
from denwatch.node.core.home_assistant import HomeAssistantProtocol, HomeSettings, Visibility
from denwatch.node.core.items import NOTIFICATION, Dot, Item, NotificationBody, encode_body
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.security.access import Role, RoleTable
from denwatch.protocol.notification import encode

from tests.devices.plant import Disk
from tests.home.oracle import check_discovery

RESCUE = Vocabularies(load_shipped("rescue"))
ROLES = {
    "medic": Role(("*",), ("*",)),
    "observer": Role(("gas", "fire"), ("*",), ("gas.east", "gas.north")),
}
START = 1_700_000_000_000
PATIENT, GAS = (RESCUE.own.events[name] for name in ("patient", "gas"))


def mask(event: Any, *names: str) -> int:
    return sum(1 << event.attributes[name].bit for name in names)


def make_device(name: str = "dog-1", **senses: tuple[str, ...]) -> Device:
    masks = {
        RESCUE.own.events[event].number: (mask(RESCUE.own.events[event], *names), 0)
        for event, names in senses.items()
    }
    made = Device(name, (1, 1), 1, RESCUE.own_hash, masks, 4096, (1,), "micropython 1.25.0")
    made.is_present = True
    return made


class Place:
    """The part alone, over a disk; `retained` is what a server would keep."""

    def __init__(self, roles: tuple[str, ...] = ("medic", "observer"), limit: int = 60) -> None:
        self.disk = Disk()
        self.devices: list[Device] = []
        self.retained: dict[str, bytes] = {}
        self.states: list[tuple[str, dict[str, Any]]] = []
        self.now = START
        self.start(roles, limit)

    def start(self, roles: tuple[str, ...], limit: int = 60, enabled: bool = True) -> None:
        settings = HomeSettings("homeassistant", limit, "1.0") if enabled else None
        vision = Visibility(RoleTable(ROLES), roles)
        self.part = HomeAssistantProtocol(
            "north", RESCUE.find_event, lambda: self.devices, vision, lambda _, ms: ms, settings
        )
        self.part.restore(self.disk)

    def tick(self) -> None:
        self.now += 1_000
        transaction = Transaction(self.now, self.disk)
        self.part.tick(transaction)
        self._perform(transaction)

    def read(self, words: str, device: str = "dog-1", age: int = 0, source: str = "") -> None:
        """Let a device read something."""
        vector = encode(parse_reading(words, RESCUE.own))
        at = self.now - age
        body = NotificationBody(device, 1, 1, at, 0, RESCUE.own_hash, vector)
        item = Item(Dot("north", 1, 1), NOTIFICATION, self.now + 9, encode_body(body))
        transaction = Transaction(self.now, self.disk)
        if not source:  # the node passes on its own readings only
            self.part.show_readings(transaction, [item])
        self._perform(transaction)

    def _perform(self, transaction: Transaction) -> None:
        self.disk.apply([action for action in transaction.actions if isinstance(action, Write)])
        for action in transaction.actions:
            if isinstance(action, Publish) and action.retain:
                self.retained[action.topic] = action.payload
                if not action.payload:
                    del self.retained[action.topic]
            elif isinstance(action, Publish):
                self.states.append((action.topic, json.loads(action.payload)))

    def list_states(self) -> list[str]:
        """Return the state topics that are announced, after judging every announcement."""
        configs = {t: json.loads(p) for t, p in self.retained.items() if t.endswith("/config")}
        for topic, payload in configs.items():
            check_discovery(topic, payload)
        return sorted(c["state_topic"] for t, c in configs.items() if "/sensor/" in t)


def test_what_everybody_may_see_is_announced_with_its_device_and_passed_on() -> None:
    place = Place()
    place.devices = [make_device(gas=("carbon_monoxide", "oxygen", "detector"))]
    place.tick()
    base = "dens/1/home/north/dog-1/"
    assert place.list_states() == [
        base + "gas/carbon_monoxide",
        base + "gas/detector",
        base + "gas/oxygen",
    ]
    assert place.retained[base + "available"] == b"online"
    place.read("gas carbon_monoxide=120")
    ((topic, state),) = place.states
    assert topic == base + "gas/carbon_monoxide"
    assert state == {"value": 120, "at": "2023-11-14T22:13:21.000Z"}


def test_what_somebody_may_not_see_is_not_mentioned() -> None:
    place = Place()
    place.devices = [
        make_device("bed-1", patient=("heart_rate", "patient_temperature")),
        make_device("mixed", gas=("oxygen", "east"), patient=("heart_rate",)),
    ]
    place.tick()
    place.read("patient heart_rate=160 patient_temperature=40", "bed-1")
    place.read("gas oxygen=19 east=500", "mixed")
    told = json.dumps([*place.retained, *map(bytes.decode, place.retained.values()), place.states])
    for word in ("bed-1", "heart", "patient", "gas/east"):
        assert word not in told, word
    assert place.list_states() == ["dens/1/home/north/mixed/gas/oxygen"]
    assert [topic for topic, _ in place.states] == ["dens/1/home/north/mixed/gas/oxygen"]


def test_a_role_that_was_chosen_may_see_more_and_none_sees_nothing() -> None:
    place = Place(("medic",))
    place.devices = [make_device(patient=("heart_rate",))]
    place.tick()
    assert place.list_states() == ["dens/1/home/north/dog-1/patient/heart_rate"]
    nobody = Place(())
    nobody.devices = [make_device(gas=("oxygen",))]
    nobody.tick()
    assert nobody.list_states() == []


@pytest.mark.parametrize("change", ["roles", "senses", "gone", "off"])
def test_what_no_longer_holds_is_taken_back_over_a_restart_too(change: str) -> None:
    place = Place(("medic",))
    place.devices = [make_device(patient=("heart_rate",), gas=("oxygen",))]
    place.tick()
    assert len(place.list_states()) == 2
    if change == "roles":
        place.start(("observer",))
    elif change == "senses":
        place.devices = [make_device(gas=("oxygen",))]
    elif change == "gone":
        place.devices = []
    else:
        place.start((), enabled=False)
    place.tick()
    left = ["dens/1/home/north/dog-1/gas/oxygen"] if change in ("roles", "senses") else []
    assert place.list_states() == left
    assert len(place.disk.spaces["home"]) == len(place.retained)
    if change == "off":
        assert not place.retained
        place.read("gas oxygen=20")
        assert not place.states
    if change == "gone":
        assert [topic for topic in place.retained if "dog-1" in topic] == []


def test_presence_follows_the_device_and_a_hello_tells_all_again() -> None:
    place = Place()
    dog = make_device(gas=("oxygen",))
    place.devices = [dog]
    place.tick()
    presence = "dens/1/home/north/dog-1/available"
    assert place.retained[presence] == b"online"
    dog.is_present = False
    place.tick()
    assert place.retained[presence] == b"offline"
    place.retained.clear()  # a broker forgot
    place.tick()
    assert not place.retained
    dog.hello, dog.is_present = (2, 1), True
    place.tick()
    assert place.retained[presence] == b"online"
    assert place.list_states() == ["dens/1/home/north/dog-1/gas/oxygen"]


def test_history_is_not_shown_as_the_present() -> None:
    place = Place(limit=60)
    place.devices = [make_device(gas=("oxygen",))]
    place.tick()
    place.read("gas oxygen=20", age=61_000)
    assert not place.states
    place.read("gas oxygen=20", age=10_000)
    place.read("gas oxygen=19", age=20_000)
    assert [state["value"] for _, state in place.states] == [20]
    place.read("gas oxygen=18", age=5_000)
    assert [state["value"] for _, state in place.states] == [20, 18]
    forever = Place(limit=0)
    forever.read("gas oxygen=20", age=10**9)
    assert len(forever.states) == 1


def test_readings_of_other_nodes_are_theirs_to_show() -> None:
    place = Place()
    place.read("gas oxygen=20", source="south")
    assert not place.states


def test_doubt_is_shown_beside_the_value_and_a_fault_is_unknown() -> None:
    place = Place()
    _read_doubtful(place)
    values = {topic.rpartition("/")[2]: state for topic, state in place.states}
    assert values["oxygen"]["low"] < values["oxygen"]["value"] < values["oxygen"]["high"]
    assert values["carbon_monoxide"]["value"] is None
    assert values["carbon_monoxide"]["fault"]


def _read_doubtful(place: Place) -> None:
    from denwatch.protocol.vectors import NotificationVector, Reading

    oxygen, monoxide = GAS.attributes["oxygen"].bit, GAS.attributes["carbon_monoxide"].bit
    made = NotificationVector(
        GAS.number, [Reading(oxygen, (10, 20, 20, 30))], 1, 0, None, 1 << monoxide
    )
    body = NotificationBody("dog-1", 1, 1, place.now, 0, RESCUE.own_hash, encode(made))
    transaction = Transaction(place.now, place.disk)
    item = Item(Dot("north", 1, 1), NOTIFICATION, 0, encode_body(body))
    place.part.show_readings(transaction, [item])
    place._perform(transaction)


class SeesAll(Visibility):
    """The rule left out: everything may be seen."""

    def keep_visible(self, event: Any) -> dict[int, Any]:
        return {attribute.bit: attribute for attribute in event.attributes.values()}


def test_without_the_rule_patients_would_be_seen() -> None:
    place = Place()
    place.part._visibility = SeesAll(RoleTable(ROLES), ())
    place.devices = [make_device(patient=("heart_rate",))]
    place.tick()
    assert place.list_states() == ["dens/1/home/north/dog-1/patient/heart_rate"]


def test_devices_are_looked_at_once_a_second() -> None:
    place = Place()
    looks: list[int] = []

    def look() -> Iterable[Device]:
        looks.append(place.now)
        return []

    place.part._list_devices = look
    for step in range(8):
        place.part.tick(Transaction(START + 250 * step, place.disk))
    assert len(looks) == 2
