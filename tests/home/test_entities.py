"""Discovery payloads of every attribute that we ship, judged by what Home Assistant documents."""

from __future__ import annotations

import re

import pytest
from denwatch.client.vocabulary import Attribute, load_shipped
from denwatch.node.core.home_assistant import (
    describe_attribute,
    describe_node,
    describe_state,
    find_precision,
    name_config,
    name_object,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.home.oracle import check_discovery

ATTRIBUTES = [
    attribute
    for name in ("rescue", "weather")
    for attribute in load_shipped(name).iterate_attributes()
]


def find(path: str) -> Attribute:
    return next(attribute for attribute in ATTRIBUTES if attribute.path == path)


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: attribute.path)
def test_every_shipped_attribute_is_announced_as_home_assistant_wants_it(
    attribute: Attribute,
) -> None:
    unique, described = describe_attribute("north", "dog-1", "mp 1.25", attribute, "1.0", 60)
    check_discovery(name_config("homeassistant", "sensor", unique), described)
    assert described["expire_after"] == 60
    assert described["device"]["via_device"] == describe_node("north", "1.0")[0]


def test_a_node_is_a_device_with_its_connection() -> None:
    unique, described = describe_node("north", "1.0")
    check_discovery(name_config("homeassistant", "binary_sensor", unique), described)
    assert described["device"]["identifiers"] == [unique]


@pytest.mark.parametrize(
    ("path", "named", "unit"),
    [
        ("gas.carbon_monoxide", "carbon_monoxide", "ppm"),
        ("weather.wind_speed", "wind_speed", "m/s"),
        ("weather.pressure", "pressure", "hPa"),
        ("team.battery", "battery", "%"),
        ("patient.oxygen_saturation", None, "%"),
        ("patient.triage", "enum", None),
        ("patient.measured_at", None, None),
    ],
)
def test_classes_and_units(path: str, named: str | None, unit: str | None) -> None:
    _, described = describe_attribute("n", "d", "", find(path), "1.0", 0)
    assert described.get("device_class") == named
    assert described.get("unit_of_measurement") == unit
    assert "expire_after" not in described
    assert "sw_version" not in described["device"]


@pytest.mark.parametrize(
    ("path", "digits"),
    [
        ("gas.carbon_monoxide", 0),
        ("gas.oxygen", 1),
        ("patient.patient_temperature", 1),
        ("weather.wind_direction", 0),
        ("patient.triage", None),
        ("patient.measured_at", None),
    ],
)
def test_no_digits_are_shown_that_were_not_measured(path: str, digits: int | None) -> None:
    attribute = find(path)
    _, described = describe_attribute("n", "d", "", attribute, "1.0", 0)
    assert described.get("suggested_display_precision") == digits, attribute.step


@given(st.floats(1e-6, 1e6))
def test_neighbouring_codes_are_shown_apart(step: float) -> None:
    digits = find_precision(step)
    assert 10.0**-digits <= step * 1.000001 or digits == 0
    assert digits == 0 or 10.0 ** -(digits - 1) > step * 0.999999


def test_angles_have_no_mean() -> None:
    _, described = describe_attribute("n", "d", "", find("weather.wind_direction"), "1.0", 0)
    assert "state_class" not in described


def test_names_do_not_say_the_event_twice() -> None:
    assert _name("patient.patient_temperature") == "Patient temperature"
    assert _name("gas.carbon_monoxide") == "Gas carbon monoxide"


def _name(path: str) -> str:
    described = describe_attribute("n", "d", "", find(path), "1.0", 0)[1]
    return str(described["name"])


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,6}", fullmatch=True)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), unique=True, min_size=2, max_size=6))
def test_no_two_entities_have_one_id(names: list[tuple[str, str, str]]) -> None:
    ids = [name_object(*parts) for parts in names]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)


def test_ids_tell_apart_what_looks_alike() -> None:
    assert name_object("a_b", "c") != name_object("a", "b_c")
    assert name_object("a.b", "c") != name_object("a_b", "c")


def test_a_state_is_what_a_notification_shows_without_the_unit() -> None:
    shown = {"value": 21.5, "unit": "°C", "low": 21.0, "high": 22.0}
    state = describe_state(find("weather.temperature"), shown, "2026-11-16T10:00:00.000Z")
    assert state == {"value": 21.5, "low": 21.0, "high": 22.0, "at": "2026-11-16T10:00:00.000Z"}
