"""Home Assistant beside a node: announces what its devices sense, and passes readings on.

Rules, each with a test that fails without it:

* An attribute that may not be seen is neither announced nor passed on; a device without any that
  may be is not mentioned at all.
* What was announced and no longer holds is withdrawn, over restarts too: another role table, a
  device that senses less, was forgotten or revoked, or discovery switched off.
* A reading that waited longer than readings are good for, or is older than the last one that was
  passed on, is history: it is not shown as the present.
* Whoever begins to listen is sent the last value, if it is not history: a sensor that was just
  discovered, or a Home Assistant that was restarted, has a value at once. Values are not retained:
  a broker would send one of yesterday to whoever connects today. So this node sends them again, to
  whoever listens to a topic of its own server, and behind a broker, which does not say who listens,
  some seconds after a sensor was announced. Home Assistant's birth message brings all of them
  again.

Devices are looked at once a second, readings as they come. On the disk: `home`, what is announced
with its device; `home.value`, the last value of each topic.

The only file that knows Home Assistant's names: its topics, the keys of a discovery payload, and
its device classes with the units that each accepts. A class is given only where the unit is one
that Home Assistant accepts for it; anything else is a plain number, which is never refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from denwatch.client.vocabulary import Attribute, EventType, ValueKind
from denwatch.node.core.devices import Device
from denwatch.node.core.events import HOME, STATUS, Listening, Message, Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import Dot, Item, NotificationBody, decode_body
from denwatch.node.core.notifications import (
    REPORTED,
    decode_notification,
    describe_reading,
    format_time,
)
from denwatch.protocol.timecode import decode_duration

ONLINE, OFFLINE = b"online", b"offline"
_MAKER = "denwatch"

# By the unit alone, or by the unit and a word of the attribute's name.
_UNITS = {
    "temperature": "°C °F K",
    "pressure": "hPa mbar bar kPa mmHg",
    "speed": "m/s km/h",
    "precipitation_intensity": "mm/h",
    "irradiance": "W/m²",
    "distance": "km m cm mm",
    "duration": "h min s",
    "illuminance": "lx",
    "voltage": "V",
}
_CLASSES = {unit: name for name, units in _UNITS.items() for unit in units.split()}
_NAMED_CLASSES: dict[tuple[str, str], str] = {
    ("%", "humidity"): "humidity",
    ("%", "battery"): "battery",
    ("ppm", "monoxide"): "carbon_monoxide",
    ("ppm", "dioxide"): "carbon_dioxide",
    ("m/s", "wind"): "wind_speed",
    ("m/s", "gust"): "wind_speed",
    ("km/h", "wind"): "wind_speed",
}
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def name_object(*parts: str) -> str:
    """Return an id of letters, digits, "_" and "-" that no other parts have."""
    readable = _UNSAFE.sub("_", "_".join(parts))
    mark = hashlib.blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()
    return f"{_MAKER}_{readable}_{mark}"


def name_presence(node: str, device: str) -> str:
    """Return the topic that says whether a device is there."""
    return f"{HOME}{node}/{device}/available"


def name_state(node: str, device: str, attribute: Attribute) -> str:
    """Return the topic of an attribute's readings."""
    return f"{HOME}{node}/{device}/{attribute.event}/{attribute.name}"


def name_config(prefix: str, component: str, unique: str) -> str:
    """Return the topic of an entity's discovery."""
    return f"{prefix}/{component}/{unique}/config"


def describe_node(node: str, version: str) -> tuple[str, dict[str, Any]]:
    """Return a node's unique id and discovery: whether it is there. Its devices are behind it."""
    unique = name_object("node", node)
    return unique, {
        "name": "Connection",
        "unique_id": unique,
        "device_class": "connectivity",
        "entity_category": "diagnostic",
        "state_topic": STATUS + node,
        "value_template": "{{ 'ON' if value else 'OFF' }}",
        "device": {
            "identifiers": [unique],
            "name": node,
            "manufacturer": _MAKER,
            "model": "DENS node",
            "sw_version": version,
        },
        "origin": {"name": _MAKER, "sw_version": version},
    }


def describe_attribute(
    node: str,
    device: str,
    firmware: str,
    attribute: Attribute,
    version: str,
    expire_after: int,
) -> tuple[str, dict[str, Any]]:
    """Return an attribute's unique id and discovery; the id stays when a device changes nodes."""
    unique = name_object(device, attribute.event, attribute.name)
    topic = name_state(node, device, attribute)
    described: dict[str, Any] = {
        "name": _write_name(attribute),
        "unique_id": unique,
        "state_topic": topic,
        "value_template": "{{ value_json.value }}",
        "json_attributes_topic": topic,
        **_describe_kind(attribute),
        "availability": [
            # A node's status is empty when it is gone, by its will where there is a broker.
            {"topic": STATUS + node, "value_template": "{{ 'online' if value else 'offline' }}"},
            {"topic": name_presence(node, device)},
        ],
        "availability_mode": "all",
        "device": {
            "identifiers": [name_object(device)],
            "name": device,
            "manufacturer": _MAKER,
            "model": "Watchdog",
            "via_device": name_object("node", node),
        },
        "origin": {"name": _MAKER, "sw_version": version},
    }
    if firmware:
        described["device"]["sw_version"] = firmware
    if expire_after:
        described["expire_after"] = expire_after
    return unique, described


def describe_state(attribute: Attribute, shown: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return a reading: `shown` is as notifications show it, `at` when it was read."""
    state = {name: value for name, value in shown.items() if name != "unit"}
    if attribute.kind is ValueKind.DATETIME and isinstance(state.get("value"), str):
        state["value"] += "+00:00"  # of a moment Home Assistant wants to know the zone
    return {**state, "at": at}


def describe_fault(at: str) -> dict[str, Any]:
    """Return what stands for a reading of a sensor that is broken: unknown."""
    return {"value": None, "fault": True, "at": at}


def _describe_kind(attribute: Attribute) -> dict[str, Any]:
    """Return class, unit and state class. Only numbers have the latter two."""
    if attribute.kind is ValueKind.TEXT:
        return {"device_class": "enum", "options": list(attribute.symbols)}
    if attribute.kind is ValueKind.DATE:
        return {"device_class": "date"}
    if attribute.kind is ValueKind.DATETIME:
        return {"device_class": "timestamp"}
    if attribute.kind is ValueKind.TIME:
        return {}
    described: dict[str, Any] = {}
    if attribute.unit:
        described["unit_of_measurement"] = attribute.unit
    found = _find_class(attribute)
    if found:
        described["device_class"] = found
    described["suggested_display_precision"] = find_precision(attribute.step)
    if attribute.period is None:  # the mean of angles is not what statistics would make of it
        described["state_class"] = "measurement"
    return described


def find_precision(step: float) -> int:
    """Return how many digits after the point tell two neighbouring values apart, and no more."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _find_class(attribute: Attribute) -> str | None:
    unit = attribute.unit or ""
    words = attribute.name.lower().split("_")
    for (wanted, word), named in _NAMED_CLASSES.items():
        if wanted == unit and word in words:
            return named
    return _CLASSES.get(unit)


def _write_name(attribute: Attribute) -> str:
    """Return what people read: "Gas carbon monoxide", but not "Patient patient temperature"."""
    words = attribute.name
    if not words.startswith(f"{attribute.event}_"):
        words = f"{attribute.event}_{words}"
    return words.replace("_", " ").capitalize()


# The node's side -------------------------------------------------------------------------------

SPACE = "home"
VALUES = "home.value"
_EVERY = 1_000  # ms between two looks at the devices
# ms after which values are sent again to listeners that cannot be seen. Home Assistant subscribes
# to a sensor's topic a second or two after its discovery, on a slow machine later.
_REPEATS = (2_000, 15_000)


@dataclass(frozen=True)
class HomeSettings:
    """`expire_after` is in seconds, 0 for never; `version` is ours. `has_listeners`: whether it is
    known who listens, which a broker does not say."""

    prefix: str
    expire_after: int
    version: str
    has_listeners: bool = True


class VisibilityRules(Protocol):
    """What is needed of the table of roles; `denwatch.node.security.access` has the real one."""

    def keep_visible(self, role: str, event: str, attributes: Iterable[str]) -> list[str]:
        """Return those attributes of an event that a role may see."""


@dataclass(frozen=True)
class Visibility:
    """What may be shown: that which all of these roles may see; without any, nothing."""

    table: VisibilityRules
    roles: tuple[str, ...]

    def keep_visible(self, event: EventType) -> dict[int, Attribute]:
        """Return an event's attributes that may be shown, by bit."""
        names = list(event.attributes) if self.roles else []
        for role in self.roles:
            names = self.table.keep_visible(role, event.name, names)
        return {event.attributes[name].bit: event.attributes[name] for name in names}


class _LastValue(NamedTuple):
    """The last reading that was passed on of an attribute."""

    at: int  # when it was read
    payload: bytes


class HomeAssistantProtocol:
    """Discovery and readings for Home Assistant; without settings, it only withdraws."""

    def __init__(
        self,
        name: str,
        find_event: Callable[[bytes, int], EventType | None],
        list_devices: Callable[[], Iterable[Device]],
        visibility: Visibility,
        show: Callable[[Dot, int], int],
        settings: HomeSettings | None,
    ) -> None:
        """`list_devices`: those that are welcome; `show`: a time of an item, for people."""
        self._name = name
        self._find_event = find_event
        self._list_devices = list_devices
        self._visibility = visibility
        self._show = show
        self._settings = settings
        self._announced: dict[str, str] = {}  # retained topics, and the device of each
        self._seen: dict[str, tuple[object, ...]] = {}  # devices as they were announced
        self._states: dict[str, set[str]] = {}  # by device: the topics of what may be seen now
        self._values: dict[str, dict[str, _LastValue]] = {}  # by device and topic
        self._repeats: list[tuple[int, str]] = []  # when to send a device's values again
        self._next = 0

    @property
    def status_topic(self) -> str | None:
        """Where Home Assistant says that it is there; None if discovery is off."""
        return f"{self._settings.prefix}/status" if self._settings else None

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run announced, and the last values."""
        self._announced = {key.decode(): value.decode() for key, value in reader.scan(SPACE)}
        for key, row in reader.scan(VALUES):
            topic = key.decode()
            device = topic.removeprefix(HOME).split("/")[1]
            value = _LastValue(int.from_bytes(row[:8], "big"), row[8:])
            self._values.setdefault(device, {})[topic] = value

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Send the last value to whoever begins to listen."""
        device = event.topic.removeprefix(HOME).split("/")[1:2]
        if event.is_up and device:
            if not self._next:  # before the first look it is not known what may be seen
                self.tick(transaction)
            self._repeat(transaction, device[0], event.topic)

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Send all values again, soon, when Home Assistant says that it is there."""
        if message.payload == ONLINE:
            self._repeats += [(transaction.now + ms, d) for ms in _REPEATS for d in self._values]

    def _repeat(self, transaction: Transaction, device: str, only: str = "") -> None:
        """Send a device's last values again, or one of them; those that are history are removed."""
        limit = 1000 * self._settings.expire_after if self._settings else 0
        for topic, value in list(self._values.get(device, {}).items()):
            if limit and transaction.now - value.at > limit:
                self._forget(transaction, device, topic)
            elif topic in self._states.get(device, ()) and only in ("", topic):
                transaction.publish(topic, value.payload, qos=0)

    def _forget(self, transaction: Transaction, device: str, topic: str) -> None:
        del self._values[device][topic]
        transaction.write(VALUES, topic.encode(), None)

    def tick(self, transaction: Transaction) -> None:
        """Announce what is new or changed, and withdraw what is gone; repeat values."""
        if transaction.now < self._next:
            return
        self._next = transaction.now + _EVERY
        devices = {} if self._settings is None else {d.name: d for d in self._list_devices()}
        gone = {name for name in self._announced.values() if name and name not in devices}
        for name in gone:
            self._replace(transaction, name, {})
            self._seen.pop(name, None)
        for name in [name for name in self._values if name not in devices]:
            self._limit_values(transaction, name, set())
        if self._settings is None:
            self._replace(transaction, "", {})
            return
        if "" not in self._seen:
            self._seen[""] = ()
            unique, described = describe_node(self._name, self._settings.version)
            topic = name_config(self._settings.prefix, "binary_sensor", unique)
            self._replace(transaction, "", {topic: _encode(described)})
        for device in devices.values():
            facts = (device.hello, device.vocabulary, device.sensed, device.is_present)
            if self._seen.get(device.name) != facts:
                self._seen[device.name] = facts
                messages, states = self._describe(device, self._settings)
                self._replace(transaction, device.name, messages)
                self._limit_values(transaction, device.name, states)
        due = [device for at, device in self._repeats if at <= transaction.now]
        if due:
            self._repeats = [each for each in self._repeats if each[0] > transaction.now]
            for name in due:
                self._repeat(transaction, name)

    def _limit_values(self, transaction: Transaction, device: str, states: set[str]) -> None:
        """Let these be all topics of a device whose values may be seen."""
        new = states - self._states.get(device, set())
        self._states[device] = states
        for topic in self._values.get(device, {}).keys() - states:
            self._forget(transaction, device, topic)
        if not states:
            del self._states[device]
            self._values.pop(device, None)
        elif new and self._settings is not None and not self._settings.has_listeners:
            self._repeats += [(transaction.now + ms, device) for ms in _REPEATS]

    def _describe(
        self, device: Device, settings: HomeSettings
    ) -> tuple[dict[str, bytes], set[str]]:
        """Return the retained messages of a device by topic, and the topics of its values; none if
        nothing may be seen."""
        messages: dict[str, bytes] = {}
        states: set[str] = set()
        for number, (features, _) in device.sensed.items():
            for bit, attribute in self._find_visible(device.vocabulary, number).items():
                if not features >> bit & 1:
                    continue
                unique, described = describe_attribute(
                    self._name,
                    device.name,
                    device.firmware,
                    attribute,
                    settings.version,
                    settings.expire_after,
                )
                messages[name_config(settings.prefix, "sensor", unique)] = _encode(described)
                states.add(described["state_topic"])
        if messages:
            presence = ONLINE if device.is_present else OFFLINE
            messages[name_presence(self._name, device.name)] = presence
        return messages, states

    def _find_visible(self, vocabulary: bytes, number: int) -> dict[int, Attribute]:
        event = self._find_event(vocabulary, number)
        return {} if event is None else self._visibility.keep_visible(event)

    def _replace(self, transaction: Transaction, device: str, messages: dict[str, bytes]) -> None:
        """Let these be all retained messages of a device; "" is the node itself."""
        for topic in [t for t, name in self._announced.items() if name == device]:
            if topic not in messages:
                del self._announced[topic]
                transaction.write(SPACE, topic.encode(), None)
                transaction.publish(topic, b"", retain=True)
        for topic, payload in messages.items():
            if topic not in self._announced:
                self._announced[topic] = device
                transaction.write(SPACE, topic.encode(), device.encode())
            transaction.publish(topic, payload, retain=True)

    def show_readings(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Pass on what may be seen of readings that devices of this node made."""
        if self._settings is not None:
            for item in items:
                self._show_reading(transaction, item, self._settings.expire_after * 1000)

    def _show_reading(self, transaction: Transaction, item: Item, limit: int) -> None:
        body = item.said
        if not isinstance(body, NotificationBody):
            body = decode_body(NotificationBody, item.body)
        if body.device_epoch == REPORTED:
            return  # a person is no device
        vector = decode_notification(body.vector)
        if limit and transaction.now - body.at > limit:
            return
        visible = self._find_visible(body.vocabulary, vector.event)
        at = format_time(self._show(item.dot, body.at))
        for reading in vector.readings:
            attribute = visible.get(reading.attribute)
            if attribute is not None and attribute.wide == reading.wide:
                shown = json.loads(describe_reading(attribute, reading))
                read = body.at - 1000 * decode_duration(reading.age)
                state = describe_state(attribute, shown, format_time(self._show(item.dot, read)))
                self._send(transaction, body, attribute, state)
        for bit, attribute in visible.items():
            if vector.faults >> bit & 1:
                self._send(transaction, body, attribute, describe_fault(at))

    def _send(
        self,
        transaction: Transaction,
        body: NotificationBody,
        attribute: Attribute,
        state: dict[str, Any],
    ) -> None:
        topic = name_state(self._name, body.device, attribute)
        values = self._values.setdefault(body.device, {})
        if topic in values and body.at < values[topic].at:
            return
        value = values[topic] = _LastValue(body.at, _encode(state))
        transaction.write(VALUES, topic.encode(), value.at.to_bytes(8, "big") + value.payload)
        transaction.publish(topic, value.payload, qos=0)


def _encode(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":"), ensure_ascii=False).encode()
