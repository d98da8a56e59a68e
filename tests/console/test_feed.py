"""The feed: ranked, explained, muted, cut to the top k; nothing of what was ended."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.client.console.feed import (
    FeedSubscription,
    build_feed,
    build_row,
    explain,
    format_value,
    list_reasons,
    summarise,
)
from denwatch.client.console.preview import set_top
from denwatch.client.language.localisation import load_locale
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.subscriber.display import RankedNotifications
from denwatch.client.subscriber.messages import derive_name
from denwatch.client.vocabulary import load_shipped

from simulator.served_console import make_note

RESCUE = load_shipped("rescue")
FAST = FeedSubscription("fast", "heart_rate is high")
NOW = 1_794_823_260_000  # 2026-11-16T10:01:00Z


def explain_here(note: ReceivedNotification, text: str) -> dict[str, Any]:
    return explain(note, text, RESCUE)


def build_one(note: ReceivedNotification) -> dict[str, Any]:
    (entry,) = build_feed([note], [FAST], ()).entries
    return build_row(entry, explain_here, load_locale("en"))


def list_keys(
    *notes: ReceivedNotification,
    subscriptions: list[FeedSubscription] | None = None,
    ended: tuple[str, ...] = (),
) -> list[str]:
    board = RankedNotifications()
    board.add(notes, NOW)
    feed = build_feed(board.rank(NOW), subscriptions or [FAST], ended)
    return [entry.notification.key.strip('"') for entry in feed.entries]


def test_score_goes_first_then_fit_then_what_is_fresher() -> None:
    notes = [
        make_note("weak", degree=0.6, score=0.6),
        make_note("dear", degree=0.6, score=0.9),
        make_note("good", degree=0.9, score=0.6),
        make_note("older", degree=0.9, score=0.6, at="2026-11-16T09:59:00Z"),
    ]
    assert list_keys(*notes) == ["dear", "good", "older", "weak"]


def test_what_has_expired_is_gone() -> None:
    assert list_keys(make_note("gone", expires="2026-11-16T10:00:59Z"), make_note("here")) == [
        "here"
    ]


def test_mute_holds_back_and_counts_and_unmute_shows() -> None:
    notes = [make_note("a"), make_note("b", subscriptions=["fast", "loud"])]
    muted = [FeedSubscription("fast", FAST.text, True), FeedSubscription("loud", "pain is severe")]
    feed = build_feed(notes, muted, ())
    assert [entry.notification.key for entry in feed.entries] == [
        '"b"'
    ]  # another subscription wants it
    assert (feed.hidden, feed.counts) == (1, {"fast": 2, "loud": 1})
    assert len(build_feed(notes, [FAST], ()).entries) == 2


def test_top_k_is_of_each_subscription() -> None:
    notes = [make_note(f"f{i}", degree=1 - i / 10) for i in range(4)]
    notes.append(make_note("other", subscriptions=["pain"], degree=0.5))
    subscriptions = [
        FeedSubscription("fast", "heart_rate is high, top 2"),
        FeedSubscription("pain", "pain is severe"),
    ]
    assert list_keys(*notes, subscriptions=subscriptions) == ["f0", "f1", "other"]
    assert build_feed(notes, subscriptions, ()).beyond == 2


def test_what_was_ended_is_not_shown_and_what_was_asked_elsewhere_is() -> None:
    notes = [
        make_note("a"),
        make_note("b", subscriptions=["phone"]),
        make_note("c", subscriptions=[]),
    ]
    assert list_keys(
        *notes, subscriptions=[FeedSubscription("x", "pain is mild")], ended=("fast",)
    ) == [
        "b",
        "c",
    ]
    assert list_keys(*notes, ended=("fast",)) == ["a", "b", "c"]  # asked for again


def test_certain_and_possible_are_told_apart() -> None:
    values = {"heart_rate": {"value": 120.0, "low": 100.0, "high": 140.0, "unit": "bpm"}}
    note = make_note("d", values, degree=0.75, possible=0.75, certain=0.3)
    row = build_one(note)
    assert (row["certainty"], row["fit"]) == ("possible", "30–75 %")  # noqa: RUF001 - a range
    assert "in doubt" in row["summary"]
    assert "100 to 140 bpm" in row["summary"]
    row = build_one(make_note("e"))
    assert (row["certainty"], row["fit"]) == ("certain", "100 %")


# Reasons ------------------------------------------------------------------------------------


def test_every_part_is_explained_and_the_deciding_one_marked() -> None:
    values = {
        "patient_temperature": {"value": 38.7, "unit": "°C"},
        "heart_rate": {"value": 130.0, "unit": "bpm"},
    }
    why = {"attribute": "patient_temperature", "degree": 0.6, "words": "…"}
    note = make_note("n", values, degree=0.6, why=why)
    reasons = list_reasons(note, "body_temp is high and HR is not normal", RESCUE)
    assert [(r.words, r.value, r.fit, r.is_limit) for r in reasons] == [
        ("body temp is high", "38.7 °C", "60 %", True),  # rising 37.5..39.5
        ("HR is not normal", "130 bpm", "100 %", False),
    ]
    assert summarise(note, reasons) == "Body temp is high by 60 % (38.7 °C), and that decides."


def test_possibility_and_necessity_of_a_part_are_those_of_a_triangle() -> None:
    """Rising 100..140, the reading 120 ± 20: they cross at 2/3 and at 1/3."""
    values = {"heart_rate": {"value": 120.0, "low": 100.0, "high": 140.0, "unit": "bpm"}}
    (reason,) = list_reasons(make_note("n", values), "heart_rate is high", RESCUE)
    assert reason.high == pytest.approx(2 / 3, abs=0.02)
    assert reason.low == pytest.approx(1 / 3, abs=0.02)


def test_symbols_times_and_comparisons_are_explained() -> None:
    values = {"triage": {"value": "red"}, "measured_at": {"value": "14:45"}}
    text = "triage is red and measured_at after 14:30"
    reasons = list_reasons(make_note("n", values), text, RESCUE)
    assert [(r.value, r.fit) for r in reasons] == [("red", "100 %"), ("14:45", "100 %")]
    among = {"triage": {"value": None, "among": ["red", "black"]}}
    (reason,) = list_reasons(make_note("n", among), "triage is red", RESCUE)
    assert reason.value == "red or black"


@pytest.mark.parametrize("text", ["", "pulse is hgih", "smoke is dense", "pain is severe"])
def test_without_parts_the_nodes_own_words_are_said(text: str) -> None:
    why = {"attribute": "heart_rate", "degree": 1.0, "words": "heart_rate 150 bpm fits to 1"}
    note = make_note("n", why=why)
    assert summarise(note, list_reasons(note, text, RESCUE)) == "Heart rate 150 bpm fits to 1."
    bare = make_note("n")
    assert summarise(bare, list_reasons(bare, text, RESCUE)) == "It matches your subscription."


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"value": 142.0, "unit": "bpm"}, "142 bpm"),
        ({"value": 39.25, "low": 38.5, "high": 40.0, "unit": "°C"}, "38.5 to 40 °C"),
        ({"code": 7}, "7"),
        ({}, "?"),
        ("red", "red"),
    ],
)
def test_values_are_said_without_digits_that_pretend(value: object, said: str) -> None:
    assert format_value(value) == said


def test_a_subscription_without_a_name_goes_by_its_words() -> None:
    text = "heart_rate is high, top 3"
    assert FeedSubscription(derive_name(text), text).label == "heart_rate is high"
    assert (
        FeedSubscription(derive_name(text), set_top(text, 5)).label == "heart_rate is high"
    )  # it was changed
    assert FeedSubscription("fast", text).label == "fast"


def test_a_story_says_who_measured_what() -> None:
    parts = [
        {"part": 1, "device": "nose-1", "values": ["carbon_monoxide 900 ppm"], "degree": 1.0},
        {"part": 2, "device": "eye-1", "values": ["smoke 94.9 %"], "degree": 0.8, "certain": 0.8},
    ]
    text = "smoke is dense within 5 min after carbon_monoxide is high"
    told = make_note("s1", {}, event="fire", story={"kind": "sequence", "parts": parts})
    found = explain(told, text, RESCUE)
    assert found["summary"] == "nose-1: carbon monoxide 900 ppm, then eye-1: smoke 94.9 %."
    assert [one["words"] for one in found["reasons"]] == ["nose-1", "eye-1"]
    silent = make_note("s2", {}, event="fire", story={"kind": "absence", "parts": parts[1:]})
    assert explain(silent, text, RESCUE)["summary"] == (
        "Nothing like it since the last one (eye-1: smoke 94.9 %). More may be on its way."
    )
    for nonsense in ({"parts": 3}, {"parts": [4, {"values": 5, "degree": "x"}]}):
        explain(make_note("s3", {}, story=nonsense), text, RESCUE)
