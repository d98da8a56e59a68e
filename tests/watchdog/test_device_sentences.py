"""`denwatch device config`: what sentences mean together, and how wrong ones are refused."""

# cpython only: it runs the PC's commands

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from denwatch.cli.common import point_at
from denwatch.cli.devices.sentences import CLAUSES, parse_lines, parse_sentence
from denwatch.client.errors import LanguageError
from denwatch.watchdog.config import read_events
from denwatch.watchdog.sources.ds18x20 import Ds18x20
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.watchdog.sentences import CHIP, DEVICE, RESCUE, build, write


def test_sources_are_shared_and_events_grouped() -> None:
    builder, _ = build(
        "air_temperature from dht22 on pin 15 every 10 s",
        "fire.smoke from dht22 on pin 15 field humidity",
        "heart_rate from ward.csv column pulse",
        "patient_temperature from ward.csv",
        "respiration_rate from ward.csv column pulse",
        "fire_temperature from ward.csv",  # another event reads the file by itself
        "suit_temperature from ds18x20 on pin 4 sensor 2 every 1 min",
        "battery from i2c clock 22 data 21 address 0x36 register 4 bytes 2 shift 8 step 1",
        "fatigue from i2c clock 22 data 21 address 0x36 register 6 bytes 1 step 1",
    )
    config = write(builder)
    assert list(config["sources"]) == ["dht22-15", "ward", "ward-2", "ds18x20-4", "i2c-0-36"]
    ward = config["sources"]["ward"]
    assert ward["columns"] == ["pulse", "patient_temperature", "pulse"]
    assert ward["scales"] == [1, 10, 100]
    assert config["sources"]["i2c-0-36"]["fields"] == [
        [4, 2, False, False, 8],
        [6, 1, False, False, 0],
    ]
    assert config["sources"]["ds18x20-4"]["count"] == 2
    periods = {event["event"]: event["period"] for event in config["events"]}
    assert periods == {3: 10_000, 2: 5000, 1: 5000, 5: 60_000}
    assert [len(event["channels"]) for event in config["events"]] == [1, 2, 3, 3]
    assert config["vocabulary"] == RESCUE.hash[:16]


class Board:
    """Makes nothing, for sources of all kinds."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: object()


def test_a_device_makes_its_parts_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("heart_rate\n71\n")
    builder, rows = build(
        f"heart_rate from {file}",
        "patient_temperature from ds18x20 on pin 4",
        "air_temperature from dht22 on pin 15",
        "suit_temperature from dht11 on pin 16",
        "air_left from adc on pin 34 with 0 at 6553 and 300 at 58982",
        "patient.east from chip field 0 step 2",
        "road.access from gpio on pin 5",
        written={
            "chip": {
                "kind": "i2c",
                "clock": 22,
                "data": 21,
                "address": 8,
                "fields": [[0, 2, False, True, 0]],
                "setup": [[1, "ff"]],
            }
        },
    )
    events = read_events(write(builder), Board())
    assert sum(len(event.channels) for event in events) == len(rows)
    (patient,) = [event for event in events if event.sample.event == 1]
    assert patient.sample.wides == 1 << RESCUE.events["patient"].attributes["east"].bit


MESSAGES = """\
heart_rat from a.csv
^^^^^^^^^ 1: unknown attribute "heart_rat"; did you mean "heart_rate", "heartbeat" or "wearer_heart_rate"?
east from a.csv
^^^^ 1: "east" is in several events (write patient.east, fire.east, gas.east, road.east or team.east)
measured_at from a.csv
^^^^^^^^^^^ 1: measured_at is a time, and sensors give numbers
pain ds18x20 on pin 4
^^^^ 1: there is no "from" (heart_rate from ward.csv column pulse)
pain from
         ^ 10: a sensor after "from" is missing at the end
pain from ds18b2 on pin 4
          ^^^^^^ 11: no sensor is called "ds18b2"; did you mean "ds18b20" or "ds18x20"? (there are csv, adc, adc_mv, gpio, dht11, dht22, ds18x20, sht3x, scd4x, bme280, pulses, i2c, w1, iio, sysfs, nmea, driver)
pain from csv column pain
          ^^^ 11: which file? ("csv file ward.csv")
air_temperature from dht22 on pin
                                 ^ 34: what follows "pin" is missing at the end
air_temperature from dht22 on pin D4
                                  ^^ 35: what follows "pin" is a whole number, "D4" is not
air_temperature from dht22
                     ^^^^^ 22: dht22 has no "pin" (such as "on pin 4")
air_temperature from dht22 on 4
                              ^ 31: "pin" is expected after "on", not "4"
air_temperature from dht22 on pin 4 column x
                                    ^^^^^^^^ 37: dht22 has no "column" (it has accuracy, every, field, pin, range)
air_temperature from dht22 on pin 4 evry 10 s
                                    ^^^^ 37: "evry" is no word of this language; did you mean "every"?
air_temperature from dht22 on pin 4 every 10 sec every 5 s
                                                 ^^^^^ 50: "every" is given twice
air_temperature from dht22 on pin 4 every 10
                                    ^^^^^^^^ 37: a time has a unit of time (such as "10 s")
air_temperature from dht22 on pin 4 every 1 s
                                    ^^^^^^^^^ 37: gas every 1 s: the sensor needs 2 s (say "every 2 s", or more)
air_temperature from dht22 on pin 4 accuracy 0.5 oC
                                                 ^^ 50: "oC" is neither a unit nor a word of this language; did you mean "C"?
air_temperature from dht22 on pin 4 accuracy 0.5 worst 0.2
                                                       ^^^ 56: the worst accuracy is not below the usual one
air_temperature from dht22 on pin 4 accuracy 5 %
                                             ^^^ 46: air_temperature is a temperature in °C, what is written here is a fraction in %
air_temperature from dht22 on pin 4 range 90 to 100
                                    ^^^^^^^^^^^^^^^ 37: 90 to 100 °C is all that it measures, and air_temperature goes from -40 to 87.5 °C
heart_rate from dht22 on pin 4
                ^^^^^ 17: heart_rate is a rate in bpm, the temperature of a dht22 is a temperature in °C
age from ds18x20 on pin 4
         ^^^^^^^ 10: age has no unit, the temperature of a ds18x20 is in °C
smoke from dht22 on pin 4
           ^^^^^ 12: smoke is in %; a dht22 has humidity in % (if that is meant, say "field humidity")
smoke from dht22 on pin 4 field humidty
                          ^^^^^^^^^^^^^ 27: a dht22 has no field "humidty"; did you mean "humidity"? (it has temperature and humidity)
triage from ds18x20 on pin 4
            ^^^^^^^ 13: triage is one of green, yellow, red, black, and the temperature of a ds18x20 is none of these
triage from a.csv accuracy 1
                  ^^^^^^^^^^ 19: triage has symbols, and no "accuracy"
pain from adc on pin 3
          ^^^ 11: pain goes from 0 to 10, the count of an adc is a bare number (say what its numbers mean: "step 0.01", or "with 0 at 0 and 100 at 4000")
oxygen from adc on pin 3 step 1 V
                              ^^^ 31: oxygen is a fraction in %, the step is a voltage in V
oxygen from adc on pin 3 step 60 %
            ^^^ 13: oxygen goes from 0 to 25.5 %, and that is 0.425 of a step: its values cannot be told apart
pain from adc on pin 3 with 10 at 0 and 0 at 65535
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^ 24: pain falls while the numbers rise, and a channel needs both to rise (turn the voltage divider round; a gpio may be inverted)
pain from adc on pin 3 with 0 at 0 or 10 at 65535
                                   ^^ 36: "and" is expected after the first point, not "or"
glucose from a.csv in mg/dL accuracy 5
                                     ^ 38: is this in mmol/L, as glucose, or in mg/dL, as the sensor? (write the unit)
glucose from a.csv in mg/dl column "blood
                                   ^ 36: this " is not closed
distance from a.csv scale 100000
              ^^^^^ 15: distance would go from 0 to 6553500000 in steps; 999999999 is the last number (choose a larger step, or a larger unit)
pain from i2c clock 1 data 2 address 0x78 register 0 bytes 1 step 1
                             ^^^^^^^^^^^^ 30: address is from 8 to 119
suit_temperature from ds18x20 on pin 4 sensor 3 of 2
                                       ^^^^^^^^^^^^^ 40: a sensor is 1 to 2 here, in the order of their addresses
""".splitlines()  # noqa: E501 - messages are as long as they are


@pytest.mark.parametrize(
    ("sentence", "expected"), [*zip(MESSAGES[::2], MESSAGES[1::2], strict=True)]
)
def test_every_refusal_says_what_and_where(sentence: str, expected: str) -> None:
    with pytest.raises(LanguageError) as caught:
        build(sentence)
    words, source, carets = point_at(caught.value, sentence, "").split("\n")
    assert source == f"  {sentence}"
    assert f"{carets[2:]} {words.removeprefix('column ')}" == expected


@pytest.mark.parametrize(
    ("sentences", "words"),
    [
        (
            ["pain from a.csv", "pain from b.csv"],
            "patient.pain comes from a.csv, column pain already",
        ),
        (
            ["patient_temperature from ds18x20 on pin 4", "pain from adc on pin 4 step 1"],
            "pin 4 has ds18x20-4 already",
        ),
        (
            [
                "fatigue from i2c clock 4 data 5 address 9 register 0 bytes 1 step 1",
                "pain from adc on pin 5 step 1",
            ],
            "pin 5 has i2c-0-09 already",
        ),
        (
            ["pain from a.csv every 5 s", "age from a.csv every 6 s"],
            "patient is sampled every 5 s, and all its attributes at once",
        ),
        (
            ["patient_temperature from ds18x20 on pin 4", "fire_temperature from ds18x20 on pin 4"],
            "ds18x20 on pin 4 serves patient, and a reading of it cannot serve fire, too "
            "(give that event a sensor of its own)",
        ),
        (
            [
                "suit_temperature from ds18x20 on pin 4 sensor 1 of 3",
                "speed from ds18x20 on pin 4 sensor 1 of 2",
            ],
            "another sentence says 3 sensors",
        ),
        (
            ["bleeding from gpio on pin 4", "gas.detector from gpio on pin 4 inverted"],
            "pin 4 is inverted in one sentence and not in the other",
        ),
        (
            ["pain from a.csv every 500 ms", "patient_temperature from ds18x20 on pin 4"],
            'patient every 500 ms: the sensor needs 750 ms (say "every 750 ms", or more)',
        ),
    ],
)
def test_sentences_that_do_not_go_together(sentences: list[str], words: str) -> None:
    builder, _ = build(*sentences[:-1])
    before = builder.build(DEVICE, {})
    with pytest.raises(LanguageError) as caught:
        builder.add(parse_sentence(sentences[-1]))
    assert caught.value.describe() == words
    assert builder.build(DEVICE, {}) == before


def test_a_source_of_the_file_is_called_by_its_name() -> None:
    written = {"adc-4": {"kind": "adc", "pin": 4}}
    builder, _ = build("pain from adc-4 step 1", written=written)
    with pytest.raises(LanguageError, match="adc-4 is a source of the file; say its name"):
        builder.add(parse_sentence("people_inside from adc on pin 4 step 1"))
    assert write(builder)["sources"] == written


class Bus:
    """One DS18B20 at 20 °C, in the place of MicroPython's driver."""

    def scan(self) -> list[bytes]:
        return [b"28"]

    def convert_temp(self) -> None:
        pass

    def read_scratch(self, _: bytes) -> bytes:
        return (20 * 16).to_bytes(2, "little")


def test_why_a_one_wire_bus_serves_one_event() -> None:
    """A round takes the conversion that the round before it started: the second event gets none."""
    source = Ds18x20(Bus(), 1)
    source.start_round(0)
    source.start_round(5000)
    assert source.read(0) == 320
    source.start_round(5000)  # another event, at the same moment
    assert source.is_waiting


WORDS = [
    *CLAUSES,
    *("from", "on", "to", "at", "and", "worst", "of", "°C", "%", "s", '"a b"', "0", "-1", "4"),
    *("0x48", "1.5", "pain", "patient_temperature", "triage", "oxygen", "a.csv", "chip", "adc"),
    *("gpio", "dht22", "ds18x20", "i2c", "csv"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=9), st.text(max_size=5), st.sampled_from(WORDS))
@settings(max_examples=200)
def test_any_words_are_understood_or_refused(words: list[str], noise: str, sensor: str) -> None:
    builder, _ = build("pain from adc on pin 9 step 1", written={"chip": CHIP})
    before = builder.build(DEVICE, {})
    for sentence in (" ".join(words), f"oxygen from {sensor} {' '.join(words)} {noise}"):
        refused = None
        try:
            builder.add(parse_sentence(sentence))
        except LanguageError as error:
            refused = error
        if refused is None:
            before = write(builder) | {"spool": {}}
        else:
            assert refused.at is None or refused.at <= len(sentence) + 1
        assert builder.build(DEVICE, {}) == before


def test_lines_of_a_file() -> None:
    text = "# a ward\n\nheart_rate from a.csv\n  pain from b.csv  # no comment\n"
    lines = parse_lines(text)
    assert next(lines).attribute.text == "heart_rate"
    with pytest.raises(LanguageError) as caught:
        next(lines)
    assert caught.value.locate(text) == (4, 20)
