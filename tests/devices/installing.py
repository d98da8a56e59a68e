"""What the tests of installation share: a device that was met, and what it must have."""

from __future__ import annotations

from typing import Any

from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import Publish

from tests.devices.device_node import TOPIC, DeviceNode, Watchdog, meet


def strip(vector: bytes) -> bytes:
    return vector[:2] + b"\0\0" + vector[4:5] + b"\0" + vector[6:]


def check_installed(node: DeviceNode, watchdog: Watchdog, *vectors: bytes) -> None:
    """The device has these vectors, under the handles that the node thinks."""
    assert node.devices.is_installed(watchdog.name)
    installed = watchdog.list_installed()
    assert sorted(installed.values()) == sorted(strip(vector) for vector in vectors)
    rows = node.store.scan("device.table", watchdog.name.encode() + b"\0")
    assert {int.from_bytes(key[-2:], "big"): body for key, body in rows} == installed


def list_down(node: DeviceNode) -> list[Publish]:
    return [publish for publish in node.outbox if publish.topic == TOPIC + "sv"]


def make_met(settings: DeviceSettings | None = None, **options: Any) -> tuple[DeviceNode, Watchdog]:
    node, watchdog = DeviceNode(settings), Watchdog(**options)
    meet(node, watchdog)
    return node, watchdog
