"""What people report in words: each becomes the trapezoid that it says, or is refused in place."""

from __future__ import annotations

import pytest
from denwatch.client.errors import LanguageError
from denwatch.client.language.reports import parse_reading
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"]


def read(text: str) -> dict[str, tuple[float | str, ...]]:
    """Return the four points by attribute, as values."""
    vector = parse_reading(text, RESCUE)
    event = RESCUE.find_number(vector.event)
    assert event is not None
    found = {}
    for reading in vector.readings:
        attribute = event.by_bit[reading.attribute]
        found[attribute.name] = tuple(
            (attribute.symbols and attribute.name_code(code)) or round(attribute.to_value(code), 1)
            for code in reading.points
        )
    return found


@pytest.mark.parametrize(
    ("text", "name", "points"),
    [
        ("patient: pulse 120", "heart_rate", (120, 120, 120, 120)),
        ("patient: pulse is 2 Hz", "heart_rate", (120, 120, 120, 120)),
        ("patient: pulse 120±5", "heart_rate", (115, 120, 120, 125)),
        ("patient: pulse about 120", "heart_rate", (110, 120, 120, 130)),
        ("patient: the pulse is about 120 bpm within 20", "heart_rate", (100, 120, 120, 140)),
        ("patient: pulse about 120 within 20", "heart_rate", (100, 120, 120, 140)),
        ("patient: heart rate between 110 and 130", "heart_rate", (110, 110, 130, 130)),
        ("patient: pulse 110 to 130 bpm", "heart_rate", (110, 110, 130, 130)),
        ("patient: pulse above 120", "heart_rate", (120, 120, 255, 255)),
        ("patient: pulse at most 60", "heart_rate", (0, 0, 60, 60)),
        ("patient: temperature is high", "patient_temperature", (37.5, 39.5, 50.5, 50.5)),
        ("patient: temperature is very high", "patient_temperature", (38.5, 39.5, 50.5, 50.5)),
        ("patient: temp is somewhat high", "patient_temperature", (36.5, 39.5, 50.5, 50.5)),
        ("patient: temp is not high", "patient_temperature", (25, 25, 37.5, 39.4)),
        ("patient: temperature normal", "patient_temperature", (35, 36, 37.5, 38.5)),
        ("patient: triage is red", "triage", ("red",) * 4),
        ("patient: triage yellow or red", "triage", ("yellow", "yellow", "red", "red")),
        ("patient: triage at least red", "triage", ("red", "red", "black", "black")),
    ],
)
def test_what_is_said_is_a_trapezoid(text: str, name: str, points: tuple[float | str, ...]) -> None:
    assert read(text) == {name: points}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Patient: Temperatur hoch, Puls etwa 120, Schmerz 6 bis 8",
            "patient: temperature is high, pulse about 120, pain 6 to 8",
        ),
        ("Patient hat hohes Fieber, Puls 120±5", "patient: temp is very high, pulse 120±5"),
        ("Puls über 120 und Sauerstoff niedrig", "pulse above 120, oxygen_saturation is low"),
        ("patient has a high fever, pulse around 120", "patient: temp very high, pulse about 120"),
        ("dichter Rauch", "smoke is dense"),
        ("Puls zwischen 110 und 130, Triage rot", "pulse 110 to 130, triage red"),
        ("Straße blockiert", "access closed"),
    ],
)
def test_everyday_words_say_the_same(text: str, said: str) -> None:
    assert parse_reading(text, RESCUE) == parse_reading(said, RESCUE)


def test_several_attributes_joined_as_people_do() -> None:
    said = read("patient: temperature is high, pulse about 120 and pain 6 to 8; triage red")
    assert list(said) == ["patient_temperature", "heart_rate", "triage", "pain"]
    assert said["pain"] == (6, 6, 8, 8)
    assert read("pulse about 120 and pain between 6 and 8, triage red").keys() == {
        "heart_rate",
        "pain",
        "triage",
    }


def test_a_hedged_term_has_the_curves_own_half() -> None:
    attribute = PATIENT.attributes["patient_temperature"]
    term = attribute.terms["high"]
    for hedge, power in (("very ", 2.0), ("extremely ", 3.0), ("more or less ", 0.5), ("", 1.0)):
        (reading,) = parse_reading(f"patient: temp is {hedge}high", RESCUE).readings
        a, b, _, _ = reading.points
        curve = term.membership.hedged(power).evaluate
        middle = (a + b) / 2
        assert curve(attribute.to_value(middle - 1)) < 0.5 <= curve(attribute.to_value(middle))


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("patient: pules 120", 10, 'unknown attribute "pules"'),
        ("patent: pulse 120", 1, "unknown event"),
        ("patient: pulse is hihg", 19, 'no term "hihg"'),
        ("patient: pulse", 10, "has no value"),
        ("patient:", None, "empty"),
        ("patient: ,", None, "empty"),
        ("patient: temp is not normal", 18, "two ranges"),
        ("patient: pulse 130 to 110", 16, "130 is above 110"),
        ("patient: pulse about 20 °C", 16, "heart_rate is in bpm"),
        ("patient: pulse 300", 16, "outside the domain"),
        ("patient: triage green or red", 17, "not neighbours"),
        ("patient: triage is purple", 20, "never"),
        ("patient: pulse 100, heart rate 120", 21, "has a value already"),
        ("temperature is high", 1, "unknown attribute"),
        ("pulse 120, smoke dense", 12, "belongs to event"),
        ("Puls 120 oder Temperatur hoch", 1, 'unknown attribute "Puls"'),
        ("Temperatur hoch", 1, 'unknown attribute "Temperatur"'),
        ("patient: dichter Rauch", 10, "unknown attribute"),
    ],
)
def test_mistakes_have_their_place(text: str, at: int | None, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_reading(text, RESCUE)
    assert why in str(caught.value)
    assert caught.value.at == at
