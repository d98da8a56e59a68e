"""Cards: one for each device, the worst first; severity by the vocabulary's terms; trends."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.client.console.cards import (
    CardBuilder,
    MeasuredHistory,
    find_trend,
    judge_value,
    list_places,
)
from denwatch.client.console.feed import FeedEntry, explain
from denwatch.client.language.localisation import load_locale, load_severities
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.vocabulary import load_shipped

from simulator.served_console import make_note

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"].attributes
TEXT = "heart_rate is high"
EN, DE = load_locale("en"), load_locale("de")


def build(notes: list[ReceivedNotification], locale: Any = EN) -> list[dict[str, Any]]:
    history = MeasuredHistory()
    for note in notes:
        history.add(note)
    builder = CardBuilder(RESCUE, history, lambda note, text: explain(note, text, RESCUE))
    return builder.build([FeedEntry(note, ("fast",), TEXT) for note in notes], locale)


@pytest.mark.parametrize(
    ("name", "value", "level", "is_certain"),
    [
        ("patient_temperature", {"value": 36.8}, 0, True),
        ("patient_temperature", {"value": 37.9}, 1, True),
        ("patient_temperature", {"value": 38.4}, 2, True),
        ("patient_temperature", {"value": 41.0}, 3, True),
        ("patient_temperature", {"value": 31.0}, 3, True),
        ("patient_temperature", {"value": 38.5, "low": 36.0, "high": 41.0}, 3, False),
        ("oxygen_saturation", {"value": 79.0}, 3, True),
        ("oxygen_saturation", {"value": 90.0}, 2, True),
        ("heart_rate", {"value": 20.0}, 2, True),  # not normal, but no term calls it critical
        ("consciousness", {"value": "unresponsive"}, 3, True),
        ("consciousness", {"value": "alert"}, 0, True),
        ("consciousness", {"value": "voice"}, 1, True),
        ("triage", {"value": None, "among": ["red", "yellow"]}, 3, False),
    ],
)
def test_severity_is_what_the_vocabularys_terms_say(
    name: str, value: dict[str, Any], level: int, is_certain: bool
) -> None:
    found = judge_value(PATIENT[name], value)
    assert found is not None
    assert (found.level, found.is_certain) == (level, is_certain)


def test_what_nobody_can_judge_has_no_severity_and_is_never_calm() -> None:
    assert judge_value(PATIENT["east"], {"value": 12.0}) is None
    assert judge_value(PATIENT["heart_rate"], {"code": "x"}) is None
    (card,) = build([make_note("n", {"age": {"value": 80.0}})])
    assert card["severity"] == 1


def test_danger_and_well_are_not_the_same_and_stand_in_the_vocabularies() -> None:
    danger, well = load_severities()
    assert not danger & well
    known: set[str] = set()
    for name in ("rescue", "weather"):
        for attribute in load_shipped(name).iterate_attributes():
            known |= {*attribute.symbols, *attribute.terms}
    assert danger | well <= known


def test_forty_readings_of_one_patient_are_one_card() -> None:
    notes = [
        make_note(f"{i}", {"heart_rate": {"value": 100.0 + i, "unit": "bpm"}}, at=1_000 * i)
        for i in range(40)
    ]
    notes.append(make_note("x", {"patient_temperature": {"value": 41.0, "unit": "°C"}}, at=500))
    (card,) = build(notes)
    assert card["count"] == 41
    assert [one["value"] for one in card["values"]] == ["139 bpm", "41 °C"]  # the latest of each
    assert card["values"][0]["trend"] == "rising"
    assert card["severity"] == 3
    assert len(card["rows"]) == 8
    assert card["line_of"] == "heart rate"


def test_the_worst_goes_first_and_what_is_certain_before_what_is_possible() -> None:
    low = {"heart_rate": {"value": 80.0}}
    doubt = {"patient_temperature": {"value": 39.0, "low": 36.5, "high": 41.5}}
    cards = build(
        [
            make_note("a", low, device="calm"),
            make_note("b", doubt, device="doubtful", certain=0.1),
            make_note("c", {"heart_rate": {"value": 112.0}}, device="serious"),
            make_note("d", {"patient_temperature": {"value": 41.0}}, device="critical"),
        ]
    )
    assert [card["key"] for card in cards] == ["critical", "doubtful", "serious", "calm"]
    assert [card["certainty"] for card in cards[:2]] == ["certain", "possible"]


def test_a_card_is_built_again_only_when_its_notifications_change() -> None:
    asked: list[str] = []

    def count(note: ReceivedNotification, text: str) -> dict[str, Any]:
        asked.append(note.key)
        return explain(note, text, RESCUE)

    builder = CardBuilder(RESCUE, MeasuredHistory(), count)
    entries = [FeedEntry(make_note(str(i), device=f"bed-{i}"), (), TEXT) for i in range(5)]
    first = builder.build(entries, EN)
    asked.clear()
    again = builder.build(entries, EN)
    assert [id(card) for card in again] == [id(card) for card in first]
    assert asked == []
    builder.build([*entries, FeedEntry(make_note("new", device="bed-3"), (), TEXT)], EN)
    assert set(asked) == {'"3"', '"new"'}


def test_a_card_speaks_german() -> None:
    (card,) = build([make_note("n", {"patient_temperature": {"value": 41.0, "unit": "°C"}})], DE)
    label = card["values"][0]["name"]
    assert label != "patient temperature"
    assert card["because"] == f"{label}: sehr hoch"


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([37.0, 37.1], ""),
        ([37.0, 37.1, 37.0, 37.2], "steady"),
        ([37.0, 37.5, 38.2, 39.0], "rising"),
        ([39.0, 38.2, 37.5], "falling"),
    ],
)
def test_a_trend_is_more_than_what_counts_as_about_the_same(
    values: list[float], trend: str
) -> None:
    line = [(1_000 * at, value, value, value) for at, value in enumerate(values)]
    assert find_trend(line, 0.5) == trend
    assert find_trend([(5, v, v, v) for v in values], 0.5) == ""


def test_history_is_in_order_and_has_each_moment_once() -> None:
    history = MeasuredHistory()
    for at in (3_000, 1_000, 2_000, 2_000):
        history.add(make_note(str(at), at=at))
    assert [point[0] for point in history.find_line("bed-1", "heart_rate")] == [1_000, 2_000, 3_000]
    (line,) = history.list_lines("bed-1")
    assert (line["unit"], len(line["points"])) == ("bpm", 3)
    history.add(make_note("odd", {"heart_rate": "fast", "triage": {"value": "red"}}))
    assert len(history.list_lines("bed-1")) == 1


def test_the_plan_has_the_last_position() -> None:
    def note(key: str, at: int, east: float) -> ReceivedNotification:
        return make_note(key, {"east": {"value": east}, "north": {"value": 5.0}}, at=at)

    notes = [note("a", 2, 20.0), note("b", 1, 10.0), make_note("c", {"east": {"value": 1.0}}, at=3)]
    assert list_places(notes) == [{"name": "bed-1", "east": 20.0, "north": 5.0, "at": 2}]
