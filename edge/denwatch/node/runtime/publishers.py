"""Who publishes what, as a node's status says it: devices by what they sense. Pure.

The status is retained and sent again and again, so what it may cost is bounded: devices that sense
the same are named together, and beyond a number of names only counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from denwatch.node.core.devices.registry import Device
from denwatch.node.core.vocabularies import Vocabularies

MOST_NAMES = 100


def list_publishers(
    devices: Iterable[Device], vocabularies: Vocabularies, limit: int = MOST_NAMES
) -> list[dict[str, Any]]:
    """Return groups of devices: an event, its attributes, who is there, who is away, how many more.

    Those that are there are named first. An event or attribute that no vocabulary knows here goes
    by its number.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Device]] = {}
    for device in devices:
        for number, (features, _) in device.senses.items():
            event = vocabularies.find_event(device.vocabulary, number)
            names = []
            for bit in range(16):
                if features >> bit & 1:
                    attribute = event.find_bit(bit) if event is not None else None
                    names.append(attribute.name if attribute else f"attribute_{bit}")
            name = event.name if event is not None else f"event_{number}"
            groups.setdefault((name, tuple(names)), []).append(device)
    listed: list[dict[str, Any]] = []
    for (event_name, attributes), members in sorted(groups.items()):
        members.sort(key=lambda device: (not device.is_present, device.name))
        named = members[: max(0, limit)]
        limit -= len(named)
        listed.append(
            {
                "event": event_name,
                "attributes": list(attributes),
                "present": [device.name for device in named if device.is_present],
                "away": [device.name for device in named if not device.is_present],
                "more": len(members) - len(named),
            }
        )
    return listed
