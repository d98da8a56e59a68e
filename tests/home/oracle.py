"""What Home Assistant accepts, written down from its documentation; no code of ours.

Sources: Home Assistant's pages "MQTT", "MQTT Sensor", "MQTT Binary sensor" and "Sensor", and the
device classes with their units in its developers' documentation.
"""

from __future__ import annotations

import re
from typing import Any

TOPIC = re.compile(r"[^/+#]+/(sensor|binary_sensor)/([A-Za-z0-9_-]+)/config")
SENSOR_KEYS = {
    "availability",
    "availability_mode",
    "availability_template",
    "availability_topic",
    "default_entity_id",
    "device",
    "device_class",
    "enabled_by_default",
    "encoding",
    "entity_category",
    "entity_picture",
    "expire_after",
    "force_update",
    "icon",
    "json_attributes_template",
    "json_attributes_topic",
    "last_reset_value_template",
    "name",
    "options",
    "origin",
    "payload_available",
    "payload_not_available",
    "platform",
    "qos",
    "state_class",
    "state_topic",
    "suggested_display_precision",
    "unique_id",
    "unit_of_measurement",
    "value_template",
}
BINARY_KEYS = SENSOR_KEYS - {
    "last_reset_value_template",
    "options",
    "state_class",
    "suggested_display_precision",
    "unit_of_measurement",
} | {"off_delay", "payload_off", "payload_on"}
DEVICE_KEYS = {
    "configuration_url",
    "connections",
    "hw_version",
    "identifiers",
    "manufacturer",
    "model",
    "model_id",
    "name",
    "serial_number",
    "suggested_area",
    "sw_version",
    "via_device",
}
_LENGTHS = {"mm", "cm", "m", "km", "in", "ft", "yd", "mi", "nmi"}
_PRESSURES = {"Pa", "hPa", "kPa", "bar", "cbar", "mbar", "mmHg", "inHg", "psi"}
_SPEEDS = {"mm/s", "m/s", "km/h", "ft/s", "in/s", "mph", "kn", "Beaufort"}
_RAIN = {"mm/h", "mm/d", "in/h", "in/d"}
UNITS: dict[str, set[str | None]] = {
    "battery": {"%"},
    "carbon_dioxide": {"ppm"},
    "carbon_monoxide": {"ppm"},
    "date": {None},
    "distance": {*_LENGTHS},
    "duration": {"d", "h", "min", "s", "ms"},
    "enum": {None},
    "humidity": {"%"},
    "illuminance": {"lx"},
    "irradiance": {"W/m²", "BTU/(h⋅ft²)"},
    "precipitation_intensity": {*_RAIN},
    "pressure": {*_PRESSURES},
    "speed": {*_SPEEDS, *_RAIN},
    "temperature": {"°C", "°F", "K"},
    "timestamp": {None},
    "voltage": {"V", "mV", "µV", "kV", "MV"},
    "wind_speed": {*_SPEEDS},
}
_NOT_NUMBERS = {"date", "enum", "timestamp"}


def check_discovery(topic: str, payload: dict[str, Any]) -> None:
    """Fail where Home Assistant would refuse or warn."""
    found = TOPIC.fullmatch(topic)
    assert found, topic
    assert found[2] == payload["unique_id"], "best practice: the object id is the unique id"
    known = SENSOR_KEYS if found[1] == "sensor" else BINARY_KEYS
    assert set(payload) <= known, set(payload) - known
    assert payload["state_topic"]
    assert set(payload["device"]) <= DEVICE_KEYS
    assert payload["device"]["identifiers"]
    assert set(payload["origin"]) <= {"name", "sw_version", "support_url"}
    assert payload["origin"]["name"], "an origin has a name"
    for entry in payload.get("availability", []):
        assert set(entry) <= {"topic", "payload_available", "payload_not_available"} | {
            "value_template"
        }
    if found[1] == "sensor":
        _check_class(payload)


def _check_class(payload: dict[str, Any]) -> None:
    named, unit = payload.get("device_class"), payload.get("unit_of_measurement")
    if named is not None:
        assert unit in UNITS[named], (named, unit)
    if named in _NOT_NUMBERS:
        assert "state_class" not in payload, "only numbers have statistics"
    assert ("options" in payload) == (named == "enum")
    if named == "enum":
        assert payload["options"]
    assert payload.get("state_class", "measurement") == "measurement"
    assert payload.get("expire_after", 1) > 0
