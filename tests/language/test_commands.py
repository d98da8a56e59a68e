"""The commands on vectors, pictures and vocabularies: layout, explain, plot, vocabulary."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from denwatch.cli.vocabulary import write_toml
from denwatch.client.vector_dump import describe_bytes
from denwatch.client.vocabulary import load_shipped, parse_vocabulary
from denwatch.protocol import notification
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.language.console import EVERYTHING, FEVER, VECTOR, Capture, pipe, run

# Byte by byte ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "vocabulary"),
    [
        (FEVER, "rescue"),
        (EVERYTHING, "rescue"),
        ("pain is severe and age is old, rule 1 with 2 gives 0.3 slopes 0.05 and 0.002", "rescue"),
        ("pain is severe weight 2 and age is old weight 5, dead band 1 of age", "rescue"),
        ("pain is severe and age is old, rule 1 with 2 gives 0.3", "rescue"),
        ("wind_direction is near 350 °", "weather"),
    ],
)
def test_the_table_of_bytes_tells_every_byte_once(
    words: str, vocabulary: str, capfd: Capture
) -> None:
    status, out, _ = run(capfd, "compile", "--exact", "--vocabulary", vocabulary, words)
    assert status == 0
    data = bytes.fromhex(out.splitlines()[0])
    rows = describe_bytes(data, load_shipped(vocabulary))
    assert b"".join(row.data for row in rows) == data
    assert [row.at for row in rows] == [
        sum(len(r.data) for r in rows[:i]) for i in range(len(rows))
    ]
    assert all(row.data and row.field and row.meaning for row in rows)


def test_the_table_says_values_with_units(capfd: Capture) -> None:
    out = " ".join(run(capfd, "compile", "--verbose", EVERYTHING)[1].split())
    for text in (
        "flags product; not: ",
        "validity 2",
        "hedges very patient_temperature",
        "16-bit attributes east",
        "thresholds of patient_temperature possible 0.600, certain 0.000",
        "dead band of patient_temperature 0.5 °C",
        "persistence 3 of 5",
        "heartbeat 10",
        "recent fully until 30 s, not from 2 min",
        "east from 100 m",
        "triage from red",
    ):
        assert text in out, text


# explain -----------------------------------------------------------------------------------------


def test_explain_tells_a_subscription(capfd: Capture) -> None:
    assert run(capfd, "explain", VECTOR) == (0, FEVER + "\n", "")
    spaced = " ".join(VECTOR[i : i + 2] for i in range(0, len(VECTOR), 2))
    assert run(capfd, "explain", "0x" + spaced.replace(" ", ":"))[1] == FEVER + "\n"
    out = run(capfd, "explain", "--verbose", VECTOR)[1]
    assert "patient_temperature from   39.5 °C" in out
    answer = json.loads(run(capfd, "explain", "--json", VECTOR)[1])
    assert answer == {"kind": "subscription", "length": 16, "event": "patient", "words": FEVER}


def test_compile_and_explain_make_a_pipe(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, run(capfd, "compile", FEVER)[1].splitlines()[0].encode())
    assert run(capfd, "explain")[1] == FEVER + "\n"


def test_explain_tells_a_notification(capfd: Capture) -> None:
    readings = [
        Reading(0, (145, 150, 152, 160)),
        Reading(1, (140,) * 4),
        Reading(8, (2,) * 4),
        Reading(12, (1000,) * 4, wide=True),
    ]
    vector = NotificationVector(1, readings, sequence=7, age=32, why=(1, 204), faults=1 << 3)
    data = notification.encode(vector).hex()
    assert run(capfd, "explain", data)[1].splitlines() == [
        "patient 7, 2 s old",
        "patient_temperature between 39.5 °C and 41 °C, most likely 40 °C to 40.2 °C",
        "heart_rate = 140 bpm",
        "triage = red",
        "east = 1000 m",
        "because of heart_rate, to 0.80",
        "broken sensors: oxygen_saturation",
    ]
    answer = json.loads(run(capfd, "explain", "--json", data)[1])
    assert answer["values"] == {
        "patient_temperature": {"trapezoid": [39.5, 40.0, 40.2, 41.0], "unit": "°C"},
        "heart_rate": {"value": 140.0, "unit": "bpm"},
        "triage": {"value": "red"},
        "east": {"value": 1000.0, "unit": "m"},
    }
    assert answer["why"] == {"attribute": "heart_rate", "degree": 0.8}
    assert answer["faults"] == ["oxygen_saturation"]
    table = run(capfd, "explain", "--verbose", data)[1]
    assert "23  cc           why's degree         0.800\n" in table


def test_a_reading_of_another_resolution_keeps_its_value(capfd: Capture) -> None:
    narrow = NotificationVector(1, [Reading(12, (128,) * 4)])
    out = run(capfd, "explain", notification.encode(narrow).hex())[1]
    assert "east = 32896 m" in out


def test_explain_points_at_the_byte(capfd: Capture) -> None:
    status, out, err = run(capfd, "explain", VECTOR[:-4])
    assert (status, out) == (1, "")
    message, digits, caret = err.splitlines()
    assert message == "byte 14: ends inside high"
    assert caret.index("^") == len(digits)


# plot --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "vocabulary", "labels"),
    [
        ("patient_temperature", "rescue", ["very_high, quantised", "patient_temperature [°C]"]),
        (f"{FEVER} and triage is red", "rescue", ["heart_rate is not normal, ideal", "quantised"]),
        ("wind_direction is near 350 °", "weather", ["wind_direction [°]"]),
        ("measured_at", "rescue", ["night, quantised"]),
    ],
)
def test_plot_draws_ideal_and_quantised(
    what: str, vocabulary: str, labels: list[str], tmp_path: Path, capfd: Capture
) -> None:
    picture = tmp_path / "picture.svg"
    arguments = ("plot", "--vocabulary", vocabulary, what, "-o", str(picture))
    assert run(capfd, *arguments)[:2] == (0, f"{picture}\n")
    text = picture.read_text(encoding="utf-8")
    for label in labels:
        assert f"<!-- {label} -->" in text, label
    run(capfd, *arguments)
    assert picture.read_text(encoding="utf-8") == text


def test_plot_writes_png(tmp_path: Path, capfd: Capture) -> None:
    picture = tmp_path / "picture.PNG"
    assert run(capfd, "plot", "heart_rate", "-o", str(picture))[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_plot_says_what_to_install(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = run(capfd, "plot", "heart_rate", "-o", "x.png")
    assert status == 3
    assert "pip install 'denwatch[plot]'" in err


# vocabulary --------------------------------------------------------------------------------------


def test_vocabulary_list_show_and_search(capfd: Capture) -> None:
    out = run(capfd, "vocabulary", "list")[1]
    assert [line.split()[0] for line in out.splitlines()] == ["rescue", "weather"]
    assert "heart_rate" in run(capfd, "vocabulary", "show")[1]
    assert "normal: trapezoid 45 60 100 115" in run(capfd, "vocabulary", "show", "pulse")[1]
    shown = run(capfd, "vocabulary", "show", "--vocabulary", "weather", "weather")[1]
    assert "wind_direction" in shown
    out = run(capfd, "vocabulary", "search", "Tachy")[1]
    assert out == 'rescue  patient.heart_rate.high (hospital)  "tachycardic"\n'


def test_vocabulary_check_and_merge(capfd: Capture, tmp_path: Path) -> None:
    both = tmp_path / "both.toml"
    assert run(capfd, "vocabulary", "merge", "rescue", "weather", "-o", str(both))[0] == 0
    status, out, _ = run(capfd, "vocabulary", "check", str(both), "--tolerance", "1")
    assert status == 0
    assert out.startswith(f"{both}: rescue+weather ")
    assert (
        "off its definition" in run(capfd, "vocabulary", "check", "rescue", "--tolerance", "0")[1]
    )
    assert run(capfd, "compile", "--vocabulary", str(both), FEVER)[1].splitlines()[0] == VECTOR
    other = tmp_path / "other.toml"
    other.write_text(
        write_toml(load_shipped("rescue").document).replace("number = 1\n", "number = 40\n"),
        encoding="utf-8",
    )
    status, _, err = run(capfd, "vocabulary", "merge", "rescue", str(other))
    assert status == 1
    assert "conflict at event.patient.number" in err
    other.write_text("name = 5", encoding="utf-8")
    status, _, err = run(capfd, "vocabulary", "check", str(other))
    assert (status, str(other) in err) == (1, True)


@pytest.mark.parametrize("name", ["rescue", "weather"])
def test_a_vocabulary_written_as_toml_is_the_same(name: str) -> None:
    vocabulary = load_shipped(name)
    text = write_toml(vocabulary.document)
    assert tomllib.loads(text) == vocabulary.document
    assert parse_vocabulary(text).hash == vocabulary.hash


def test_toml_keeps_odd_keys_and_texts() -> None:
    document = {
        "a b": 'x"\\\n\x7f°',
        "t": {"é": [1, 2.5, True, {"k": "v"}], "empty": {}},
        "f": 1e-9,
    }
    assert tomllib.loads(write_toml(document)) == document


def test_vocabulary_imports_fll(capfd: Capture, tmp_path: Path) -> None:
    source = tmp_path / "terms.fll"
    source.write_text("Engine: x\nInputVariable: pulse\n  term: racing Ramp 150 180\n", "utf-8")
    ours = tmp_path / "ours.toml"
    assert run(capfd, "vocabulary", "import-fll", str(source), "-o", str(ours))[0] == 0
    assert run(capfd, "compile", "--vocabulary", str(ours), "heart_rate is racing")[0] == 0
    assert (
        "racing = { rising = [150, 180] }" in run(capfd, "vocabulary", "import-fll", str(source))[1]
    )
    source.write_text("Engine: x\nInputVariable: pulse\n  term: racing Spike 1 2\n", "utf-8")
    status, _, err = run(capfd, "vocabulary", "import-fll", str(source))
    assert status == 1
    assert f"{source}, line 3, column 3" in err
