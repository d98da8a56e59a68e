"""`denwatch device config`: domains, accuracies and ranges in a sensor's own steps.

The oracle is in floats and shares only the table of units with what it checks.
"""

# cpython only: it runs the PC's commands

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from denwatch.cli.devices.config import ConfigRow
from denwatch.cli.devices.schema import SENSORS
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import SHIPPED, Attribute, ValueKind, load_shipped
from denwatch.client.vocabulary.values import convert, convert_width, find_unit, list_units
from denwatch.watchdog.sources import Channel, Source
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.watchdog.sentences import CHIP, build, find_channel, write

NUMBERS = [
    (name, attribute)
    for name in SHIPPED
    for attribute in load_shipped(name).iterate_attributes()
    if attribute.kind is ValueKind.NUMBER
]
TEMPERATURES = [pair for pair in NUMBERS if pair[1].unit == "°C"]


def understand(sentence: str, vocabulary: str) -> tuple[ConfigRow | None, str]:
    """Return what a sentence means, or why it is refused."""
    try:
        return build(sentence, vocabulary=vocabulary, written={"chip": CHIP})[1][0], ""
    except LanguageError as error:
        return None, error.message


def check_ends(
    attribute: Attribute, row: ConfigRow, size: float, zero: float, unit: str | None
) -> None:
    """See in floats that the ends are the domain's to half a step, and readings become codes."""

    def decode(number: float) -> float:
        value = (number - zero) * size
        return convert(value, unit, attribute.unit) if unit and attribute.unit else value

    ends = row.ends
    step = convert_width(size, unit, attribute.unit) if unit and attribute.unit else size
    slack = step / 2 + 1e-9 * (abs(attribute.low) + abs(attribute.high))
    assert abs(decode(ends.low) - attribute.low) <= slack
    assert abs(decode(ends.high) - attribute.high) <= slack
    channel = Channel(Source(), 0, 0, ends.low, ends.high, wide=attribute.wide)
    for number in (ends.low, (2 * ends.low + ends.high) // 3, ends.high):
        value = attribute.to_value(channel.normalise(number))
        assert abs(value - decode(number)) <= attribute.step / 2 + 2 * slack


@pytest.mark.parametrize(("vocabulary", "attribute"), TEMPERATURES)
@pytest.mark.parametrize(("kind", "size"), [("ds18x20", 1 / 16), ("dht11", 0.1), ("dht22", 0.1)])
def test_sensors_with_a_data_sheet(
    vocabulary: str, attribute: Attribute, kind: str, size: float
) -> None:
    _, (row,) = build(f"{attribute.path} from {kind} on pin 4", vocabulary=vocabulary)
    check_ends(attribute, row, size, 0, "°C")
    assert (row.ends.lowest * size, row.ends.highest * size) == {
        "ds18x20": (-55, 125),
        "dht11": (0, 50),
        "dht22": (-40, 80),
    }[kind]
    assert row.ends.typical * size >= 0.5


@given(st.sampled_from(NUMBERS), st.data())
@settings(max_examples=150)
def test_columns_in_any_unit(pair: tuple[str, Attribute], data: st.DataObject) -> None:
    vocabulary, attribute = pair
    dimension = find_unit(attribute.unit).dimension if attribute.unit else None
    unit = data.draw(st.sampled_from(list_units(dimension))) if dimension else None
    words = f"{attribute.path} from a.csv column c" + (f" in {unit}" if unit else "")
    assume(convert(attribute.high, attribute.unit, unit) < 9e8 if unit and attribute.unit else True)
    builder, (row,) = build(words, vocabulary=vocabulary)
    scale = write(builder)["sources"]["a"]["scales"][0]
    check_ends(attribute, row, 1 / scale, 0, unit)
    if unit == attribute.unit:
        assert not row.ends.notes  # in its own unit every shipped domain is exact
        assert attribute.step * scale >= 1 - 1e-9


@given(
    st.sampled_from(NUMBERS),
    st.sampled_from(["adc on pin 3", "gpio on pin 3", "chip"]),
    st.integers(-5000, 60000),
    st.integers(1, 65535),
    st.floats(0, 1),
    st.floats(0.01, 1),
)
@settings(max_examples=150)
def test_two_points(
    pair: tuple[str, Attribute], source: str, first: int, run: int, start: float, part: float
) -> None:
    vocabulary, attribute = pair
    span = attribute.high - attribute.low
    low = f"{attribute.low + start * span:.6f}"
    high = f"{attribute.low + (start + part) * span:.6f}"
    assume(float(high) > float(low))
    words = f"{attribute.path} from {source} with {low} at {first} and {high} at {first + run}"
    size = (float(high) - float(low)) / run
    row, refusal = understand(words, vocabulary)
    if row is not None:
        check_ends(attribute, row, size, first - float(low) / size, attribute.unit)
    elif "told apart" in refusal:
        assert span / size < 1.01
    else:  # the converter's or the pin's numbers are not those of the domain
        assert "is all that it measures" in refusal
        assert source != "chip"


@given(st.sampled_from(NUMBERS), st.decimals("0.0001", 1000, places=4, allow_nan=False))
@settings(max_examples=100)
def test_steps_of_registers(pair: tuple[str, Attribute], step: Any) -> None:
    vocabulary, attribute = pair
    wires = "clock 22 data 21 address 0x48 register 1 bytes 2 signed"
    row, refusal = understand(f"{attribute.path} from i2c {wires} step {step}", vocabulary)
    if row is not None:
        check_ends(attribute, row, float(step), 0, attribute.unit)
    else:
        assert "told apart" in refusal
        assert (attribute.high - attribute.low) / float(step) < 1.5


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("patient_temperature from ds18x20 on pin 4", (8, 8)),
        ("fire_temperature from ds18b20 on pin 4", (8, 32)),  # beyond 85 °C the sheet says 2 °C
        ("air_temperature from dht22 on pin 4", (5, 5)),
        ("smoke from dht22 on pin 4 field humidity", (20, 50)),
        ("air_temperature from dht11 on pin 4", (10, 20)),
        ("air_temperature from dht11 on pin 4 accuracy 0.21 worst 0.5", (3, 5)),  # rounded up
        ("air_temperature from dht11 on pin 4 accuracy 9 °F", (50, 50)),
        ("air_temperature from dht11 on pin 4 accuracy 0", (0, 0)),
        ("heart_rate from a.csv", (0, 0)),
        ("glucose from a.csv accuracy 0.25 worst 0.5", (25, 50)),  # so the scale is 100
    ],
)
def test_accuracies(sentence: str, expected: tuple[int, int]) -> None:
    builder, (row,) = build(sentence)
    assert (row.ends.typical, row.ends.worst) == expected
    channel = find_channel(write(builder))
    assert (channel.get("typical", 0), channel.get("worst", 0)) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("patient_temperature from ds18x20 on pin 4", (-880, 2000)),
        ("patient_temperature from ds18x20 on pin 4 range 10 to 45", (160, 720)),
        ("heart_rate from a.csv", (0, 255)),
        ("heart_rate from a.csv range -1 to 1 Hz", (-60, 60)),
        ("air_left from adc on pin 3 with 0 at 6553 and 300 at 58982", (1, 65534)),  # rails
        ("air_left from adc on pin 3 with 0 at 0 and 255 at 65535", (0, 65535)),
        ("people_inside from gpio on pin 3 field changes", (0, 65535)),
    ],
)
def test_numbers_that_are_no_fault(sentence: str, expected: tuple[int, int]) -> None:
    builder, (row,) = build(sentence)
    assert (row.ends.lowest, row.ends.highest) == expected
    channel = Channel(**{**find_channel(write(builder)), "source": Source()})
    assert (channel.lowest, channel.highest) == expected


def test_a_direction_just_before_north_is_no_fault() -> None:
    _, (row,) = build("wind_direction from a.csv", vocabulary="weather")
    assert row.ends.high < row.ends.highest == 360 * row.ends.high / 358.59375


def test_a_number_may_be_a_symbol() -> None:
    builder, _ = build("triage from a.csv", "gas.detector from gpio on pin 3 inverted")
    config = write(builder)
    text, level = (event["channels"][0] for event in config["events"])
    assert (text["low"], text["high"], text["lowest"], text["highest"]) == (0, 255, 0, 3)
    assert (level["lowest"], level["highest"]) == (0, 1)
    channel = Channel(**{**text, "source": Source()})
    assert [channel.normalise(number) for number in range(4)] == [0, 1, 2, 3]
    assert config["sources"]["gpio-3"] == {"kind": "gpio", "pin": 3, "inverted": True}


@pytest.mark.parametrize("kind", ["ds18x20", "dht11", "dht22"])
def test_the_page_has_the_figures_of_the_data_sheets(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "watchdog.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")]
    for field in SENSORS[kind].fields:
        for accuracy in field.accuracies:
            assert f"±{float(accuracy.typical):g} {field.unit}" in line
            assert accuracy.typical == accuracy.worst or f"{float(accuracy.worst):g})" in line
        assert field.name != "temperature" or f"{field.low} to {field.high} °C" in (
            line.replace("\N{MINUS SIGN}", "-")
        )
