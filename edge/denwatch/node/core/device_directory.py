"""Who can answer a subscription: what devices sense, here and at other nodes. Pure.

Nodes announce as items what their devices said in their hellos (`device_protocol.py`). A device
can answer a subscription if it senses all attributes that this names, and means the same by them.
It counts once, however many nodes announce it, and also while it sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from denwatch.client.vocabulary import EventType
from denwatch.node.core.items import AnnouncementBody, Dot, Item, decode_body

Agree = Callable[[bytes, bytes, int, int], bool]  # two vocabularies, event, features


class SubscriptionNeed(NamedTuple):
    """What a device must sense."""

    vocabulary: bytes
    event: int
    features: int


class DeviceDirectory:
    """The announcements that a node holds."""

    def __init__(self, own: str, agree: Agree) -> None:
        self._own = own
        self._agree = agree
        self.changed: set[str] = set()  # devices, since `DeviceFinder` looked last
        self._announced: dict[Dot, AnnouncementBody] = {}
        self._devices: dict[str, dict[Dot, AnnouncementBody]] = {}
        self._kinds: dict[str, dict[Dot, str]] = {}  # by what is sensed: devices

    def add(self, item: Item) -> AnnouncementBody:
        """Note what a device senses; ProtocolError if the item does not say it."""
        body = self._announced[item.dot] = decode_body(AnnouncementBody, item.body)
        self._devices.setdefault(body.device, {})[item.dot] = body
        self._kinds.setdefault(_name_kind(body), {})[item.dot] = body.device
        self.changed.add(body.device)
        return body

    def remove(self, dot: Dot) -> None:
        """Forget an announcement."""
        body = self._announced.pop(dot, None)
        if body is not None:
            self._devices[body.device].pop(dot)
            self._kinds[_name_kind(body)].pop(dot)
            self.changed.add(body.device)

    def forget_names(self) -> None:
        """Note that a vocabulary came: what devices sense may have names now."""
        self.changed.update(self._devices)

    def list_devices(self) -> list[str]:
        """Return the devices that nodes have announced."""
        return [device for device, announced in self._devices.items() if announced]

    def list_announced(self, device: str) -> Iterable[tuple[Dot, AnnouncementBody]]:
        """Return the announcements of a device."""
        return self._devices.get(device, {}).items()

    def can_answer(self, body: AnnouncementBody, need: SubscriptionNeed) -> bool:
        """Return whether a device senses all that is needed."""
        return not need.features & ~self._find_sensed(body, need)

    def _find_sensed(self, body: AnnouncementBody, need: SubscriptionNeed) -> int:
        """Return what a device senses of an event, where it means the same."""
        features = next((mask for event, mask in body.senses if event == need.event), 0)
        common = features & need.features
        is_same = self._agree(body.vocabulary, need.vocabulary, need.event, common)
        return features if is_same else 0

    def is_new_kind(self, body: AnnouncementBody) -> bool:
        """Return whether no other device is known that senses the same."""
        devices = self._kinds.get(_name_kind(body), {}).values()
        return all(device == body.device for device in devices)

    def has_another(self, body: AnnouncementBody, need: SubscriptionNeed) -> bool:
        """Return whether another device can answer, too."""
        others = (each for each in self._announced.values() if each.device != body.device)
        return any(self.can_answer(each, need) for each in others)

    def count_here(self, needs: Iterable[SubscriptionNeed]) -> int:
        """Return how many devices of this node can answer any of these."""
        bodies = [body for dot, body in self._announced.items() if dot.origin == self._own]
        wanted = list(dict.fromkeys(needs))
        able = {
            each.device for each in bodies if any(self.can_answer(each, need) for need in wanted)
        }
        return len(able)

    def is_sensed(self, need: SubscriptionNeed) -> bool:
        """Return whether any device can answer."""
        return any(self.can_answer(each, need) for each in self._announced.values())

    def describe(self, need: SubscriptionNeed, event: EventType) -> dict[str, Any]:
        """Return how many devices can answer, here and elsewhere, and what is missing."""
        able: dict[str, bool] = {}  # whether it is here
        lacking: dict[str, int] = {}  # by device: the attributes that it has not
        sensed = 0
        for dot, body in self._announced.items():
            has = self._find_sensed(body, need) & need.features
            sensed |= has
            if has == need.features:
                able[body.device] = able.get(body.device, False) or dot.origin == self._own
            elif has:
                lacking[body.device] = lacking.get(body.device, 0xFFFF) & need.features & ~has
        names = [(a.name, 1 << a.bit) for a in event.attributes.values()]
        gaps = {
            name: sum(bool(mask & bit) for each, mask in lacking.items() if each not in able)
            for name, bit in names
            if bit & need.features & sensed
        }
        found = {
            "here": sum(able.values()),
            "elsewhere": len(able) - sum(able.values()),
            "lacking": {name: count for name, count in gaps.items() if count},
            "nobody": [name for name, bit in names if bit & need.features & ~sensed],
        }
        return {**found, "words": "; ".join(_list_words(found))}


def _name_kind(body: AnnouncementBody) -> str:
    return f"{body.vocabulary.hex()} {body.senses}"


def _list_words(found: dict[str, Any]) -> Iterator[str]:
    count = found["here"] + found["elsewhere"]
    if count:
        where = f", {found['here']} here" if found["elsewhere"] else ""
        yield f"{_count(count)} can answer{where}"
    else:
        yield "no device can answer yet"
    for name, lacking in found["lacking"].items():
        yield f"{_count(lacking)} more would, without {name}"
    if found["nobody"]:
        yield f"nobody senses {', '.join(found['nobody'])}"


def _count(number: int) -> str:
    return f"{number} device{'' if number == 1 else 's'}"
