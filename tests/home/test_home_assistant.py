"""What a node tells Home Assistant, keeps back and withdraws."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from denwatch.client.publisher import parse_reading
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.devices import Device
from denwatch.node.core.events import Listening, Message, Publish, Write
from denwatch.node.core.home_assistant import HomeAssistantProtocol, HomeSettings, Visibility
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import NOTIFICATION, Dot, Item, NotificationBody, encode_body
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.security.access import Role, RoleTable
from denwatch.protocol.notification import encode

from simulator.memory_store import MemoryStore
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


class AssistantView:
    """The protocol alone, over a store; `retained` is what a server would keep."""

    def __init__(self, roles: tuple[str, ...] = ("medic", "observer"), limit: int = 60) -> None:
        self.store = MemoryStore("north")
        self.devices: list[Device] = []
        self.retained: dict[str, bytes] = {}
        self.states: list[tuple[str, dict[str, Any]]] = []
        self.now = START
        self.start(roles, limit)

    def start(
        self,
        roles: tuple[str, ...],
        limit: int = 60,
        enabled: bool = True,
        has_listeners: bool = True,
    ) -> None:
        settings = HomeSettings("homeassistant", limit, "1.0", has_listeners) if enabled else None
        vision = Visibility(RoleTable(ROLES), roles)
        self.protocol = HomeAssistantProtocol(
            "north", RESCUE.find_event, lambda: self.devices, vision, lambda _, ms: ms, settings
        )
        self.protocol.restore(self.store)

    def tick(self) -> None:
        self.now += 1_000
        transaction = Transaction(self.now, self.store)
        self.protocol.tick(transaction)
        self._perform(transaction)

    def read(self, words: str, device: str = "dog-1", age: int = 0, source: str = "") -> None:
        """Let a device read something."""
        vector = encode(parse_reading(words, RESCUE.own))
        at = self.now - age
        body = NotificationBody(device, 1, 1, at, 0, RESCUE.own_hash, vector)
        item = Item(Dot("north", 1, 1), NOTIFICATION, self.now + 9, encode_body(body))
        transaction = Transaction(self.now, self.store)
        if not source:  # the node passes on its own readings only
            self.protocol.show_readings(transaction, [item])
        self._perform(transaction)

    def listen(self, topic: str, is_up: bool = True) -> list[Any]:
        """Let somebody begin to listen; return what is sent then."""
        self.states.clear()
        transaction = Transaction(self.now, self.store)
        self.protocol.listen(transaction, Listening(topic, is_up))
        self._perform(transaction)
        return [(topic, state["value"]) for topic, state in self.states]

    def say(self, payload: bytes) -> None:
        """Let Home Assistant say that it is there, or that it goes."""
        transaction = Transaction(self.now, self.store)
        message = Message("home", self.protocol.status_topic or "", payload)
        self.protocol.receive(transaction, message)
        self._perform(transaction)

    def wait(self, seconds: int) -> list[Any]:
        """Let time pass; return what is sent meanwhile."""
        self.states.clear()
        for _ in range(seconds):
            self.tick()
        return [state["value"] for _, state in self.states]

    def _perform(self, transaction: Transaction) -> None:
        self.store.apply([action for action in transaction.actions if isinstance(action, Write)])
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
    view = AssistantView()
    view.devices = [make_device(gas=("carbon_monoxide", "oxygen", "detector"))]
    view.tick()
    base = "dens/1/home/north/dog-1/"
    assert view.list_states() == [
        base + "gas/carbon_monoxide",
        base + "gas/detector",
        base + "gas/oxygen",
    ]
    assert view.retained[base + "available"] == b"online"
    view.read("gas carbon_monoxide=120")
    ((topic, state),) = view.states
    assert topic == base + "gas/carbon_monoxide"
    assert state == {"value": 120, "at": "2023-11-14T22:13:21.000Z"}


def test_what_somebody_may_not_see_is_not_mentioned() -> None:
    view = AssistantView()
    view.devices = [
        make_device("bed-1", patient=("heart_rate", "patient_temperature")),
        make_device("mixed", gas=("oxygen", "east"), patient=("heart_rate",)),
    ]
    view.tick()
    view.read("patient heart_rate=160 patient_temperature=40", "bed-1")
    view.read("gas oxygen=19 east=500", "mixed")
    told = json.dumps([*view.retained, *map(bytes.decode, view.retained.values()), view.states])
    for word in ("bed-1", "heart", "patient", "gas/east"):
        assert word not in told, word
    assert view.list_states() == ["dens/1/home/north/mixed/gas/oxygen"]
    assert [topic for topic, _ in view.states] == ["dens/1/home/north/mixed/gas/oxygen"]


def test_a_role_that_was_chosen_may_see_more_and_none_sees_nothing() -> None:
    view = AssistantView(("medic",))
    view.devices = [make_device(patient=("heart_rate",))]
    view.tick()
    assert view.list_states() == ["dens/1/home/north/dog-1/patient/heart_rate"]
    nobody = AssistantView(())
    nobody.devices = [make_device(gas=("oxygen",))]
    nobody.tick()
    assert nobody.list_states() == []


@pytest.mark.parametrize("change", ["roles", "senses", "gone", "off"])
def test_what_no_longer_holds_is_taken_back_over_a_restart_too(change: str) -> None:
    view = AssistantView(("medic",))
    view.devices = [make_device(patient=("heart_rate",), gas=("oxygen",))]
    view.tick()
    assert len(view.list_states()) == 2
    if change == "roles":
        view.start(("observer",))
    elif change == "senses":
        view.devices = [make_device(gas=("oxygen",))]
    elif change == "gone":
        view.devices = []
    else:
        view.start((), enabled=False)
    view.tick()
    left = ["dens/1/home/north/dog-1/gas/oxygen"] if change in ("roles", "senses") else []
    assert view.list_states() == left
    assert len(list(view.store.scan("home"))) == len(view.retained)
    if change == "off":
        assert not view.retained
        view.read("gas oxygen=20")
        assert not view.states
    if change == "gone":
        assert [topic for topic in view.retained if "dog-1" in topic] == []


def test_presence_follows_the_device_and_a_hello_tells_all_again() -> None:
    view = AssistantView()
    dog = make_device(gas=("oxygen",))
    view.devices = [dog]
    view.tick()
    presence = "dens/1/home/north/dog-1/available"
    assert view.retained[presence] == b"online"
    dog.is_present = False
    view.tick()
    assert view.retained[presence] == b"offline"
    view.retained.clear()  # a broker forgot
    view.tick()
    assert not view.retained
    dog.hello, dog.is_present = (2, 1), True
    view.tick()
    assert view.retained[presence] == b"online"
    assert view.list_states() == ["dens/1/home/north/dog-1/gas/oxygen"]


def test_history_is_not_shown_as_the_present() -> None:
    view = AssistantView(limit=60)
    view.devices = [make_device(gas=("oxygen",))]
    view.tick()
    view.read("gas oxygen=20", age=61_000)
    assert not view.states
    view.read("gas oxygen=20", age=10_000)
    view.read("gas oxygen=19", age=20_000)
    assert [state["value"] for _, state in view.states] == [20]
    view.read("gas oxygen=18", age=5_000)
    assert [state["value"] for _, state in view.states] == [20, 18]
    forever = AssistantView(limit=0)
    forever.read("gas oxygen=20", age=10**9)
    assert len(forever.states) == 1


OXYGEN = "dens/1/home/north/dog-1/gas/oxygen"


def test_who_begins_to_listen_is_sent_the_last_value_over_a_restart_too() -> None:
    view = AssistantView(limit=60)
    view.devices = [make_device(gas=("oxygen", "carbon_monoxide"))]
    view.read("gas oxygen=20", age=2_000)  # before Home Assistant can know of the sensor
    view.tick()
    view.read("gas oxygen=19 carbon_monoxide=50")
    assert view.listen(OXYGEN) == [(OXYGEN, 19)]
    assert view.listen(OXYGEN, is_up=False) == []
    assert view.listen("dens/1/home/north/dog-1/available") == []
    view.start(("medic", "observer"))  # somebody listens before the first look at the devices
    assert view.listen(OXYGEN) == [(OXYGEN, 19)]
    view.read("gas oxygen=18", age=10_000)  # of before the restart, and older than what was shown
    assert view.listen(OXYGEN) == [(OXYGEN, 19)]
    view.wait(61)
    assert view.listen(OXYGEN) == []
    assert not list(view.store.scan("home.value"))


@pytest.mark.parametrize("change", ["roles", "senses", "gone", "off"])
def test_a_value_that_may_no_longer_be_seen_is_not_sent_again(change: str) -> None:
    view = AssistantView(("medic",))
    view.devices = [make_device(patient=("heart_rate",), gas=("oxygen",))]
    view.tick()
    view.read("patient heart_rate=160")
    topic = "dens/1/home/north/dog-1/patient/heart_rate"
    assert [name for name, _ in view.listen(topic)] == [topic]
    if change == "roles":
        view.start(("observer",))
        assert view.listen(topic) == [], "before the first tick"
    elif change == "senses":
        view.devices = [make_device(gas=("oxygen",))]
    elif change == "gone":
        view.devices = []
    else:
        view.start((), enabled=False)
    view.tick()
    assert view.listen(topic) == []
    assert not list(view.store.scan("home.value"))


def test_home_assistants_birth_brings_every_value_again() -> None:
    view = AssistantView()
    view.devices = [make_device("a", gas=("oxygen",)), make_device("b", gas=("oxygen",))]
    view.tick()
    view.read("gas oxygen=20", "a")
    view.read("gas oxygen=19", "b")
    assert view.wait(20) == []
    view.say(b"offline")
    assert view.wait(20) == []
    view.say(b"online")
    assert view.wait(20) == [20, 19] * 2, "soon, and again for a slow machine"
    assert view.wait(20) == []


def test_behind_a_broker_values_follow_the_discovery() -> None:
    view = AssistantView()
    view.start(("medic", "observer"), has_listeners=False)
    view.devices = [make_device(gas=("oxygen",))]
    view.read("gas oxygen=20")
    view.tick()
    assert view.wait(20) == [20, 20]
    view.devices = [make_device(gas=("oxygen",))]
    view.devices[0].hello = (2, 1)  # announced again; nothing is new
    assert view.wait(20) == []


def test_readings_of_other_nodes_are_theirs_to_show() -> None:
    view = AssistantView()
    view.read("gas oxygen=20", source="south")
    assert not view.states


def test_doubt_is_shown_beside_the_value_and_a_fault_is_unknown() -> None:
    view = AssistantView()
    _read_doubtful(view)
    values = {topic.rpartition("/")[2]: state for topic, state in view.states}
    assert values["oxygen"]["low"] < values["oxygen"]["value"] < values["oxygen"]["high"]
    assert values["carbon_monoxide"]["value"] is None
    assert values["carbon_monoxide"]["fault"]


def _read_doubtful(view: AssistantView) -> None:
    from denwatch.protocol.vectors import NotificationVector, Reading

    oxygen, monoxide = GAS.attributes["oxygen"].bit, GAS.attributes["carbon_monoxide"].bit
    made = NotificationVector(
        GAS.number, [Reading(oxygen, (10, 20, 20, 30))], 1, 0, None, 1 << monoxide
    )
    body = NotificationBody("dog-1", 1, 1, view.now, 0, RESCUE.own_hash, encode(made))
    transaction = Transaction(view.now, view.store)
    item = Item(Dot("north", 1, 1), NOTIFICATION, 0, encode_body(body))
    view.protocol.show_readings(transaction, [item])
    view._perform(transaction)


class SeesAll(Visibility):
    """The rule left out: everything may be seen."""

    def keep_visible(self, event: Any) -> dict[int, Any]:
        return {attribute.bit: attribute for attribute in event.attributes.values()}


def test_without_the_rule_patients_would_be_seen() -> None:
    view = AssistantView()
    view.protocol._visibility = SeesAll(RoleTable(ROLES), ())
    view.devices = [make_device(patient=("heart_rate",))]
    view.tick()
    assert view.list_states() == ["dens/1/home/north/dog-1/patient/heart_rate"]


def test_devices_are_looked_at_once_a_second() -> None:
    view = AssistantView()
    looks: list[int] = []

    def look() -> Iterable[Device]:
        looks.append(view.now)
        return []

    view.protocol._list_devices = look
    for step in range(8):
        view.protocol.tick(Transaction(START + 250 * step, view.store))
    assert len(looks) == 2
