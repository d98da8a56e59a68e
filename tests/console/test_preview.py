"""What a text would mean: problems at the very word, pictures, bytes; and changing the top k."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.console.completion import complete
from denwatch.client.console.page import EXAMPLES
from denwatch.client.console.preview import (
    MOST_CHARACTERS,
    find_name,
    find_top,
    preview,
    set_top,
    shorten,
    strip_name,
)
from denwatch.client.console.status_monitor import Announcement
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.language.localisation import list_locales, load_locale
from denwatch.client.vocabulary import load_shipped, parse_vocabulary
from hypothesis import given
from hypothesis import strategies as st

RESCUE = load_shipped("rescue")


@pytest.mark.parametrize("code", list_locales())
def test_the_examples_can_be_subscribed_to_as_they_stand(code: str) -> None:
    say = load_locale(code).translate
    known = [RESCUE, load_shipped("weather")]
    for text in map(say, EXAMPLES):
        assert any(preview(text, vocabulary).problem is None for vocabulary in known), text


@pytest.mark.parametrize(
    ("text", "wrong", "meant"),
    [
        ("patient_temperature is very hgih and pain is mild", "hgih", "high"),
        ("heart_rat is high", "heart_rat", "heart_rate"),
        ("heart_rate is high andd pain is mild", "andd", "and"),
        ("heart_rate abov 120", "abov", "above"),
        ("heart_rate is high, topp 5", "topp", "top"),
        ("pain is mild and smoke is dense", "smoke", None),
        ("heart_rate is 500 bpm", "500 bpm", None),
    ],
)
def test_a_problem_points_at_the_very_word(text: str, wrong: str, meant: str | None) -> None:
    problem = preview(text, RESCUE).problem
    assert problem is not None
    assert text[problem.start : problem.end].startswith(wrong)
    assert not problem.is_unfinished
    assert meant is None or meant in problem.suggestions
    assert meant is not None or problem.hint


@pytest.mark.parametrize(
    "text", ["heart_rate", "heart_rate is", "pain is mild and ", "pain is mild, "]
)
def test_what_only_ends_too_early_is_not_wrong_yet(text: str) -> None:
    understood = preview(text, RESCUE)
    assert understood.problem is not None
    assert understood.problem.is_unfinished or text == "heart_rate"


@given(st.text(max_size=60))
def test_any_text_is_understood_or_has_a_problem_within_it(text: str) -> None:
    understood = preview(text, RESCUE)
    if understood.problem is None:
        assert understood.size or not text.strip()
        return
    assert 0 <= understood.problem.start < understood.problem.end <= max(1, len(text))


def test_an_overlong_text_is_refused() -> None:
    assert "too long" in str(preview("a" * (MOST_CHARACTERS + 1), RESCUE).problem)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "pain is mild" + ")" * 1000,
        "not " * 900 + "pain is mild",
        "pain " * 700,
        "<" * 4000,
    ],
)
def test_an_absurd_text_has_a_problem_and_takes_no_time(text: str) -> None:
    assert preview(text, RESCUE).problem is not None
    complete(text, len(text), RESCUE)


def test_the_bytes_are_those_of_the_compiler_and_every_field_is_told() -> None:
    text = "patient_temperature is very high and heart_rate is not normal"
    understood = preview(text, RESCUE)
    data = compile_subscription(parse(text), RESCUE).data
    assert "".join(one.hex for one in understood.fields) == data.hex()
    assert understood.size == len(data) <= 17
    assert all(one.field and one.meaning for one in understood.fields)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("heart_rate is high", ["from 120 bpm"]),  # rising 100..140: half at 120
        ("patient_temperature is low", ["up to 35.4 °C"]),  # falling 35..36, and 0.5 is 128 of 255
        ("heart_rate is normal", ["from 53 to 107 bpm"]),  # trapezoid 45 60 100 115
        ("heart_rate is not normal", ["up to 52 bpm or from 108 bpm"]),
        ("heart_rate is low or high", ["up to 50 bpm or from 120 bpm"]),
        ("heart_rate above 40 and heart_rate below 100", ["from 41 to 99 bpm"]),
        ("triage is red or black", ["red or black"]),
        ("measured_at after 14:30", ["from 14:30:01"]),
        ("pain is severe and heart_rate is high, at least 1", ["from 8", "from 140 bpm"]),
    ],
)
def test_what_counts_is_said_in_values(text: str, counts: list[str]) -> None:
    assert [graph.counts for graph in preview(text, RESCUE).graphs] == counts


def test_pictures_are_well_formed_and_speak() -> None:
    for text in ("east is about 500 m", "triage is red", "heart_rate is low or very high"):
        for graph in preview(text, RESCUE).graphs:
            root = ElementTree.fromstring(graph.svg)
            assert root.get("role") == "img"
            assert graph.counts in str(root.get("aria-label"))


def test_a_vocabularys_words_are_never_markup() -> None:
    text = """
name = "evil"
[event.e]
number = 1
[event.e.attribute.s]
bit = 1
symbols = ["<img src=x>", "<script>", "ok"]
"""
    evil = parse_vocabulary(text)
    (graph,) = preview("s is ok", evil).graphs
    assert "<img" not in graph.svg
    assert "<script" not in graph.svg
    ElementTree.fromstring(graph.svg)


def test_who_can_answer_is_looked_up() -> None:
    announced = [
        Announcement("north", "bed-1", "patient", ("heart_rate", "pain"), True),
        Announcement("north", "bed-2", "patient", ("heart_rate",), True),
        Announcement("north", "bed-3", "patient", ("heart_rate", "pain"), False),
    ]
    understood = preview("pulse is high and pain is severe", RESCUE, announced)
    assert understood.answered_by == ("bed-1",)
    assert understood.is_known
    assert not preview("smoke is dense", RESCUE, announced).answered_by


def test_what_words_mean_is_decided_by_the_devices_that_are_known() -> None:
    """As at a node: it asks back only if two things remain."""
    text = "temperature above 39, named hot"
    asked = preview(text, RESCUE).problem
    assert asked is not None
    assert "fire_temperature above 39, named hot" in asked.hints
    bed = Announcement("north", "bed-1", "patient", ("patient_temperature", "pain"), False)
    found = preview(text, RESCUE, [bed])
    assert (found.problem, found.words) == (None, "patient_temperature above 39, named hot")
    assert found.is_narrowed
    assert "fire_temperature" in " ".join(found.remarks)  # it says what else it may have been
    oven = Announcement("north", "oven", "fire", ("fire_temperature",), True)
    assert preview(text, RESCUE, [bed, oven]).problem == asked
    assert not preview("patient_temperature above 39", RESCUE, [bed]).is_narrowed
    story = "temperature above 39 within 5 min after pain is severe"
    assert preview(story, RESCUE, [bed]).words == f"patient_{story}"


@pytest.mark.parametrize("place", ["bed-1", "ward 3", "bed 12"])
def test_a_refusal_quotes_what_was_typed(place: str) -> None:
    problem = preview(f"heart rate is high on {place}", RESCUE).problem
    assert problem is not None
    assert f'"{place}"' in problem.message


# Changing -----------------------------------------------------------------------------------


@given(
    st.integers(1, 1000), st.sampled_from(["pain is severe, top 3", "pulse is high, named fast"])
)
def test_another_top_changes_nothing_else(top: int, text: str) -> None:
    changed = set_top(text, top)
    assert find_top(changed) == top
    assert replace(parse(changed), top=None) == replace(parse(text), top=None)
    assert find_top(set_top(changed, None)) is None


@pytest.mark.parametrize("top", [0, -1, 1001])
def test_a_top_that_is_none_is_refused(top: int) -> None:
    with pytest.raises(LanguageError):
        set_top("pain is severe", top)


def test_names_and_labels() -> None:
    assert find_name("pain is severe, named ouch") == "ouch"
    assert find_name("pain is severe") is None
    assert find_name("pain is") is None
    assert strip_name("pain is severe, named ouch, top 3") == "pain is severe, top 3"
    assert shorten("pain is severe, top 3") == "pain is severe"
    assert len(shorten("pain is severe and " * 9 + "pain is mild")) == 60


def test_a_story_is_shown_part_by_part() -> None:
    text = "dense smoke within 5 min after high carbon monoxide, named gasfire, top 3"
    nose = Announcement("north", "nose-1", "gas", ("carbon_monoxide",), True)
    shown = preview(text, RESCUE, [nose])
    assert shown.problem is None
    assert shown.words == (
        "smoke is dense within 5 min after carbon_monoxide is high, top 3, named gasfire"
    )
    assert [field.meaning for field in shown.fields] == [
        "carbon_monoxide is high",
        "smoke is dense",
    ]
    assert [graph.attribute for graph in shown.graphs] == ["carbon_monoxide", "smoke"]
    assert shown.answered_by == ("nose-1",)
    assert shown.name == "gasfire"
    assert (find_name(shown.words), find_top(shown.words)) == ("gasfire", 3)
    assert find_top(set_top(shown.words, 5)) == 5
    assert "named" not in strip_name(shown.words)
    assert shorten(shown.words, 80) == "smoke is dense within 5 min after carbon_monoxide is high"


def test_a_part_that_is_wrong_is_underlined_and_every_hint_is_a_story() -> None:
    text = "smoke within 5 min after pulse"
    problem = preview(text, RESCUE).problem
    assert problem is not None
    assert text[problem.start : problem.end] == "pulse"
    assert problem.hints
    assert all(preview(hint, RESCUE).problem is None for hint in problem.hints)
