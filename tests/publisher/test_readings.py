"""Readings in words: values, units, accuracy, symbols, and every refusal with its place."""

from __future__ import annotations

import pytest
from denwatch.client.errors import LanguageError
from denwatch.client.publisher import parse_reading
from denwatch.client.vocabulary import ValueKind, format_moment, load_shipped
from denwatch.protocol.vectors import Reading

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"]


def read(text: str) -> dict[str, tuple[float, ...]]:
    """Return the values of a reading by name, as the vocabulary has them."""
    notification = parse_reading(text, RESCUE)
    event = RESCUE.find_number(notification.event)
    assert event is not None
    found = {}
    for reading in notification.readings:
        attribute = event.find_bit(reading.attribute)
        assert attribute is not None
        assert reading.wide == attribute.wide
        points = reading.points[:1] if reading.exact else reading.points
        found[attribute.name] = tuple(round(attribute.to_value(point), 2) for point in points)
    return found


def test_values_by_their_names() -> None:
    assert read("patient heart_rate=160 patient_temperature=39.5") == {
        "patient_temperature": (39.5,),
        "heart_rate": (160,),
    }
    assert parse_reading("patient heart_rate=160", RESCUE).event == PATIENT.number


@pytest.mark.parametrize(
    "text",
    [
        "patient patient_temperature=39.5°C",
        "patient patient_temperature=39.5 °C",
        "patient patient_temperature = 39.5 °C",
        'patient patient_temperature="39.5 °C"',
        "patient_temperature=39.5",
        "patient patient_temperature=103.1 °F",
        "  patient   patient.patient_temperature=39.5  ",
    ],
)
def test_one_value_in_many_ways(text: str) -> None:
    assert read(text) == {"patient_temperature": (39.5,)}


@pytest.mark.parametrize("value", ["120±5", "120+-5", "120 +/- 5 bpm", "120±5 bpm"])
def test_an_accuracy_makes_a_trapezoid(value: str) -> None:
    assert read(f"heart_rate={value}") == {"heart_rate": (115, 120, 120, 125)}


def test_an_accuracy_of_nothing_is_an_exact_value() -> None:
    assert read("heart_rate=120±0") == {"heart_rate": (120,)}


def test_a_broken_sensor_has_no_reading() -> None:
    notification = parse_reading("patient heart_rate=broken patient_temperature=37", RESCUE)
    assert notification.faults == 1 << PATIENT.attributes["heart_rate"].bit
    assert [reading.attribute for reading in notification.readings] == [0]


def test_symbols_and_moments() -> None:
    moments = (ValueKind.DATE, ValueKind.TIME, ValueKind.DATETIME)
    found = [a for a in RESCUE.iterate_attributes() if a.kind in moments]
    assert len(found) >= 3
    for attribute in found:
        text = format_moment((attribute.low + attribute.high) / 2, attribute.kind)
        (reading,) = parse_reading(f"{attribute.event} {attribute.name}={text}", RESCUE).readings
        assert abs(reading.points[0] - attribute.last / 2) <= 1
    for event in RESCUE.events.values():
        for attribute in event.attributes.values():
            if attribute.kind is ValueKind.TEXT:
                pairs = zip(attribute.symbol_codes, attribute.symbols, strict=True)
                for code, symbol in pairs:
                    notification = parse_reading(
                        f'{event.name} {attribute.name}="{symbol}"', RESCUE
                    )
                    assert notification.readings == [
                        Reading(attribute.bit, (code,) * 4, attribute.wide)
                    ]


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("", None, "the reading is empty"),
        ("patient", None, "the reading is empty"),
        ("patient heart_rat=160", 9, "heart_rate"),
        ("pateint heart_rate=160", 1, "patient"),
        ("patient heart_rate=160 kg", 20, "bpm"),
        ("patient heart_rate=", 9, "has no value"),
        ("patient heart_rate=fast", 20, "a number"),
        ("patient heart_rate=999", 20, "outside the domain"),
        ("patient heart_rate=1 heart_rate=2", 22, "already"),
        ("patient ill heart_rate=1", 9, "not ATTRIBUTE=VALUE"),
        ("patient heart_rate==1", 20, "expected"),
        ("patient heart_rate=1=2", 20, "followed by a space"),
        ("patient triage=purple", 16, "never"),
        ("heart_rate=1 traffic_speed=3", 14, "before it belong to patient"),
    ],
)
def test_refusals_point_at_their_place(text: str, at: int | None, words: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_reading(text, RESCUE)
    assert words in str(caught.value)
    assert caught.value.at == at
