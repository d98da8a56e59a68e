"""Who publishes what: devices, what they sense and where they are, from the nodes' statuses. Pure.

The place of a device is the node that it is at, and the position of its last notification that
this person was told of: nobody else's notifications are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from denwatch.client.console.reasons import say_value
from denwatch.client.errors import LanguageError
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.vocabulary import PublisherDirectory, Vocabulary


@dataclass(frozen=True)
class Announcement:
    """That a device at a node senses attributes of an event."""

    node: str
    device: str
    event: str
    attributes: tuple[str, ...]
    is_present: bool


def read_announcements(
    statuses: Mapping[str, Mapping[str, Any]],
) -> tuple[list[Announcement], int]:
    """Return what the nodes say of their devices, and how many devices they only count."""
    found: list[Announcement] = []
    more = 0
    for node, fields in sorted(statuses.items()):
        for group in _list(fields.get("publishers")):
            if not isinstance(group, Mapping):
                continue
            event = str(group.get("event", ""))
            attributes = tuple(str(name) for name in _list(group.get("attributes")))
            for key in ("present", "away"):
                for device in _list(group.get(key)):
                    found.append(
                        Announcement(node, str(device), event, attributes, key == "present")
                    )
            left = group.get("more")
            more += left if isinstance(left, int) else 0
    return found, more


def build_directory(
    vocabulary: Vocabulary, announcements: Iterable[Announcement]
) -> PublisherDirectory:
    """Return the devices that are there by what they sense, for looking up who can answer."""
    directory = PublisherDirectory(vocabulary)
    for one in announcements:
        event = vocabulary.events.get(one.event)
        if event is None or not one.is_present:
            continue
        bits = [event.attributes[name].bit for name in one.attributes if name in event.attributes]
        if bits:
            try:
                directory.announce(one.device, event.number, sum(1 << bit for bit in bits))
            except LanguageError:
                continue
    return directory


def build_sources(
    announcements: Iterable[Announcement],
    vocabulary: Vocabulary,
    notes: Iterable[ReceivedNotification],
) -> list[dict[str, Any]]:
    """Return devices as the page shows them: those that are there first, by name."""
    last: dict[str, ReceivedNotification] = {}
    for note in notes:
        device = str(note.fields.get("device") or "")
        if device and (device not in last or (note.at or 0) > (last[device].at or 0)):
            last[device] = note
    devices: dict[str, dict[str, Any]] = {}
    for one in announcements:
        entry = devices.setdefault(
            one.device,
            {"name": one.device, "nodes": [], "is_present": False, "senses": [], "place": ""},
        )
        if one.is_present:  # it may have said hello at another node before
            entry["is_present"] = True
        if one.node not in entry["nodes"]:
            entry["nodes"].insert(0 if one.is_present else len(entry["nodes"]), one.node)
        _add_senses(entry["senses"], one, vocabulary)
    for name, entry in devices.items():
        found = last.get(name)
        entry["place"] = describe_place(found) if found else ""
        entry["at"] = found.at if found else None
    return sorted(devices.values(), key=lambda entry: (not entry["is_present"], entry["name"]))


def _add_senses(senses: list[dict[str, Any]], one: Announcement, vocabulary: Vocabulary) -> None:
    event = vocabulary.events.get(one.event)
    listed = []
    for name in one.attributes:
        attribute = event.attributes.get(name) if event is not None else None
        listed.append(
            {
                "name": name,
                "label": name.replace("_", " "),
                "domain": attribute.describe_domain() if attribute else "not in this vocabulary",
            }
        )
    entry = {"event": one.event, "attributes": listed}
    if entry not in senses:
        senses.append(entry)


def describe_place(note: ReceivedNotification) -> str:
    """Return the position that a notification has; "" if it has none."""
    parts = []
    for name in ("east", "north"):
        if name in note.values:
            parts.append(f"{say_value(note.values[name])} {name}")
    return ", ".join(parts)


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []
