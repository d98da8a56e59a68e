"""An attribute of a device, as Home Assistant's MQTT discovery wants to hear of it. Pure.

The only file that knows Home Assistant's names: its topics, the keys of a discovery payload, and
its device classes with the units that each takes. A class is given only where the unit is one that
Home Assistant accepts for it; anything else is a plain number, which is never refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from denwatch.client.vocabulary import Attribute, ValueKind
from denwatch.node.core.interface import HOME, STATUS

ONLINE, OFFLINE = b"online", b"offline"
_MAKER = "denwatch"

# By the unit alone, or by the unit and a word of the attribute's name.
_CLASSES: dict[str, str] = {
    "°C": "temperature",
    "°F": "temperature",
    "K": "temperature",
    "hPa": "pressure",
    "mbar": "pressure",
    "bar": "pressure",
    "kPa": "pressure",
    "mmHg": "pressure",
    "m/s": "speed",
    "km/h": "speed",
    "mm/h": "precipitation_intensity",
    "W/m²": "irradiance",
    "km": "distance",
    "m": "distance",
    "cm": "distance",
    "mm": "distance",
    "h": "duration",
    "min": "duration",
    "s": "duration",
    "lx": "illuminance",
    "V": "voltage",
}
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
    if attribute.period is None:  # the mean of angles is not what statistics would make of it
        described["state_class"] = "measurement"
    return described


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
