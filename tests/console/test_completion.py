"""What completion proposes: words, synonyms, units; never what the parser would refuse."""

from __future__ import annotations

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.console.completion import MOST, complete, find_context
from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
TEXTS = (
    "patient_temperature is very high and heart_rate is not normal, top 5, expires after 10 min",
    "pulse is tachycardic or very low, named fast, score 0.8, 3 of 5",
    "not (heart_rate is normal or oxygen_saturation is normal), by harmonic mean",
    "heart_rate between 40 and 50 bpm and triage = red, in the last few minutes",
    "smoke is more or less dense, dead band 5 % of smoke, prefer fire over smoke, event fire",
    "measured_at after 14:30, valid for 2 days, quiet for 1 min",
)


def propose(text: str) -> list[str]:
    return [one.word for one in complete(text, len(text), RESCUE, ["fever"])]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("pul", "pulse"),  # a synonym
        ("heart_", "heart_rate"),
        ("temp", "patient_temperature"),  # a word within a name
        ("oxygen le", "oxygen level"),  # a name of two words
        ("heart_rate ", "is"),
        ("heart_rate is t", "tachycardic"),
        ("heart_rate is ", "low"),
        ("triage is ", "green"),
        ("triage = r", "red"),
        ("heart_rate above 120 ", "bpm"),
        ("patient_temperature above 104 °", "°C"),
        ("heart_rate is high ", "and"),
        ("(heart_rate is high ", "and"),
        ("heart_rate is high, top 5 ", ","),
        ("heart_rate is high, ex", "expires after 10 min"),
        ("heart_rate is high, expires after 10 m", "min"),
        ("heart_rate is high, by geo", "geometric mean"),
        ("heart_rate is high, event pa", "patient"),
        ("heart_rate is high, prefer ", "fever"),
        ("pain is mild or s", "severe"),
        ("heartb", '"heartbeat"'),  # a keyword elsewhere: quoted
    ],
)
def test_the_likeliest_goes_first(text: str, first: str) -> None:
    assert propose(text)[0] == first


def test_a_proposal_says_what_it_means_and_what_it_replaces() -> None:
    (pulse,) = complete("pain is mild and pul", 20, RESCUE)
    assert (pulse.start, pulse.kind) == (17, "attribute")
    assert "heart_rate" in pulse.detail
    assert "hospital" in pulse.detail
    high = next(one for one in complete("heart_rate is ", 14, RESCUE) if one.word == "high")
    assert high.detail == "begins at 100, fully from 140 bpm"
    (level,) = complete("oxygen le", 9, RESCUE)
    assert level.start == 0
    assert "oxygen_saturation" in level.detail  # two organisations, two meanings
    assert "fire brigade" in level.detail


def test_only_attributes_of_the_event_that_is_spoken_of_follow() -> None:
    words = {one.word for one in complete("smoke is dense and ", 19, RESCUE)}
    assert words
    assert words <= {*RESCUE.events["fire"].attributes, "not"}


def test_an_organisations_own_words_go_first() -> None:
    found = [o.word for o in complete("heat", 4, RESCUE.prefer("fire_brigade"))]
    assert found.index("heat_flux") < len(found)
    assert "heat" not in found  # it is written already


def test_the_caret_may_stand_in_the_middle() -> None:
    text = "heart_rate is hi and pain is severe"
    (high, *_) = complete(text, 16, RESCUE)
    assert (high.word, high.start) == ("high", 14)


@pytest.mark.parametrize("text", ['"heart', "<subscription", '{"when": ', "heart_rate is is hi"])
def test_nothing_is_proposed_where_nothing_can_be_known(text: str) -> None:
    assert propose(text) == []


@pytest.mark.parametrize("text", TEXTS)
def test_whatever_is_taken_can_go_on(text: str) -> None:
    """At every place of a right text, each proposal gives words that the parser can go on from."""
    compile_subscription(parse(text), RESCUE)
    proposed = 0
    for caret in range(len(text) + 1):
        for one in complete(text, caret, RESCUE, ["fire", "smoke"]):
            written = f"{text[: one.start]}{one.word} "
            assert find_context(written, len(written), RESCUE).is_readable, written
            proposed += 1
        assert len(complete(text, caret, RESCUE)) <= MOST
    assert proposed > 50
