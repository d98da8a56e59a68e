"""What the tests of installation share: a device that was met, and what it must have."""

from __future__ import annotations

from typing import Any

from denwatch.node.core.device_registry import DeviceSettings
from denwatch.node.core.events import Publish

from tests.devices.plant import TOPIC, Dog, Site, meet


def strip(vector: bytes) -> bytes:
    return vector[:2] + b"\0\0" + vector[4:5] + b"\0" + vector[6:]


def check_installed(site: Site, dog: Dog, *vectors: bytes) -> None:
    """The device has these vectors, under the handles that the node thinks."""
    assert site.part.is_installed(dog.name)
    installed = dog.list_installed()
    assert sorted(installed.values()) == sorted(strip(vector) for vector in vectors)
    rows = site.disk.scan("device.table", dog.name.encode() + b"\0")
    assert {int.from_bytes(key[-2:], "big"): body for key, body in rows} == installed


def list_down(site: Site) -> list[Publish]:
    return [publish for publish in site.outbox if publish.topic == TOPIC + "sv"]


def make_met(settings: DeviceSettings | None = None, **options: Any) -> tuple[Site, Dog]:
    site, dog = Site(settings), Dog(**options)
    meet(site, dog)
    return site, dog
