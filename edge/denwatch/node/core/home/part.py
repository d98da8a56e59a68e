"""Home Assistant beside a node: announces what its devices sense, and passes readings on.

Rules, each with a test that fails without it:

* An attribute that may not be seen is neither announced nor passed on; a device without any that
  may be is not mentioned at all.
* What was announced and no longer holds is taken back, over restarts too: another role table, a
  device that senses less, was forgotten or revoked, or discovery switched off.
* A reading that waited longer than readings are good for, or is older than the last one that was
  passed on, is history: it is not shown as the present.

It owns no topic that is published to; devices are looked at once a second, readings as they come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from denwatch.client.vocabulary import Attribute, EventType
from denwatch.node.core.devices.registry import Device
from denwatch.node.core.home.entities import (
    OFFLINE,
    ONLINE,
    describe_attribute,
    describe_fault,
    describe_node,
    describe_state,
    name_config,
    name_presence,
    name_state,
)
from denwatch.node.core.interface import Reader
from denwatch.node.core.items import Dot, Item, NotificationBody, decode_body
from denwatch.node.core.subscribers.notes import describe_reading, format_time
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vectors import decode_notification

SPACE = "home"
_EVERY = 1_000  # ms between two looks at the devices


@dataclass(frozen=True)
class HomeSettings:
    """`expire_after` is in seconds, 0 for never; `version` is ours."""

    prefix: str
    expire_after: int
    version: str


class Table(Protocol):
    """What is needed of the table of roles; `denwatch.node.security.access` has the real one."""

    def keep_visible(self, role: str, event: str, attributes: Iterable[str]) -> list[str]:
        """Return those attributes of an event that a role may see."""


@dataclass(frozen=True)
class Vision:
    """What may be shown: that which all of these roles may see; without any, nothing."""

    table: Table
    roles: tuple[str, ...]

    def keep_visible(self, event: EventType) -> dict[int, Attribute]:
        """Return an event's attributes that may be shown, by bit."""
        names = list(event.attributes) if self.roles else []
        for role in self.roles:
            names = self.table.keep_visible(role, event.name, names)
        return {event.attributes[name].bit: event.attributes[name] for name in names}


class Home:
    """Discovery and readings for Home Assistant; without settings, it only takes back."""

    def __init__(
        self,
        name: str,
        find_event: Callable[[bytes, int], EventType | None],
        list_devices: Callable[[], Iterable[Device]],
        vision: Vision,
        show: Callable[[Dot, int], int],
        settings: HomeSettings | None,
    ) -> None:
        """`list_devices`: those that are welcome; `show`: a time of an item, for people."""
        self._name = name
        self._find_event = find_event
        self._list_devices = list_devices
        self._vision = vision
        self._show = show
        self._settings = settings
        self._announced: dict[str, str] = {}  # retained topics, and the device of each
        self._seen: dict[str, tuple[object, ...]] = {}  # devices as they were announced
        self._latest: dict[tuple[str, int], int] = {}  # when what was passed on last was read
        self._next = 0

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run announced."""
        self._announced = {key.decode(): value.decode() for key, value in reader.scan(SPACE)}

    def tick(self, transaction: Transaction) -> None:
        """Announce what is new or changed, and take back what is gone."""
        if transaction.now < self._next:
            return
        self._next = transaction.now + _EVERY
        devices = {} if self._settings is None else {d.name: d for d in self._list_devices()}
        gone = {name for name in self._announced.values() if name and name not in devices}
        for name in gone:
            self._replace(transaction, name, {})
            self._seen.pop(name, None)
        if self._settings is None:
            self._replace(transaction, "", {})
            return
        if "" not in self._seen:
            self._seen[""] = ()
            unique, described = describe_node(self._name, self._settings.version)
            topic = name_config(self._settings.prefix, "binary_sensor", unique)
            self._replace(transaction, "", {topic: _encode(described)})
        for device in devices.values():
            facts = (device.hello, device.vocabulary, device.senses, device.is_present)
            if self._seen.get(device.name) != facts:
                self._seen[device.name] = facts
                self._replace(transaction, device.name, self._describe(device, self._settings))

    def _describe(self, device: Device, settings: HomeSettings) -> dict[str, bytes]:
        """Return the retained messages of a device by topic; none if nothing may be seen."""
        messages: dict[str, bytes] = {}
        for number, (features, _) in device.senses.items():
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
        if messages:
            presence = ONLINE if device.is_present else OFFLINE
            messages[name_presence(self._name, device.name)] = presence
        return messages

    def _find_visible(self, vocabulary: bytes, number: int) -> dict[int, Attribute]:
        event = self._find_event(vocabulary, number)
        return {} if event is None else self._vision.keep_visible(event)

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
        vector = decode_notification(body.vector)
        key = body.device, vector.event
        if body.at < self._latest.get(key, 0) or (limit and transaction.now - body.at > limit):
            return
        self._latest[key] = body.at
        visible = self._find_visible(body.vocabulary, vector.event)
        at = format_time(self._show(item.dot, body.at))
        for reading in vector.readings:
            attribute = visible.get(reading.attribute)
            if attribute is not None and attribute.wide == reading.wide:
                shown = json.loads(describe_reading(attribute, reading))
                self._send(
                    transaction, body.device, attribute, describe_state(attribute, shown, at)
                )
        for bit, attribute in visible.items():
            if vector.faults >> bit & 1:
                self._send(transaction, body.device, attribute, describe_fault(at))

    def _send(
        self, transaction: Transaction, device: str, attribute: Attribute, state: dict[str, Any]
    ) -> None:
        # Not retained: a reading of yesterday must not look fresh to whoever connects today.
        transaction.publish(name_state(self._name, device, attribute), _encode(state), qos=0)


def _encode(what: dict[str, Any]) -> bytes:
    return json.dumps(what, separators=(",", ":"), ensure_ascii=False).encode()
