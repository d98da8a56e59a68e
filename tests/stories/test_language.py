"""A story in words, JSON, XML and Python is one tree, and its bytes can be read back."""

from __future__ import annotations

import json
from random import Random

import cbor2
import pytest
from denwatch.client.compiler.stories import (
    ABSENCE,
    CompiledStory,
    Story,
    compile_story,
    decode_story,
    decompile_story,
)
from denwatch.client.errors import LanguageError
from denwatch.client.language.builder import attribute, when
from denwatch.client.language.stories import StoryTree, is_story, parse_story, print_story
from denwatch.client.language.story_builder import (
    about,
    absent,
    counted,
    few,
    in_sequence,
    together,
    up_to,
)
from denwatch.client.language.story_surfaces import parse_any_story, print_story_as
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol.errors import ProtocolError

RESCUE = load_shipped("rescue")
SMOKE = attribute("smoke").is_("dense")
GAS = attribute("carbon_monoxide").is_("high")
RED = attribute("triage").equals("red")

SAID: list[tuple[str, StoryTree, str]] = [
    (
        "smoke is dense within about 5 min after carbon_monoxide is high, within about 200 m",
        in_sequence(GAS, SMOKE, within=about(5, "min")).near(about(200, "m")).build(),
        '{"sequence": ["carbon_monoxide is high", "smoke is dense"], "within": "about 5 min",'
        ' "near": "about 200 m"}',
    ),
    (
        "smoke is dense within a few minutes after carbon_monoxide is high",
        in_sequence(GAS, SMOKE, within=few("minutes")).build(),
        '{"sequence": ["carbon_monoxide is high", {"attribute": "smoke", "is": "dense"}],'
        ' "within": ["a few minutes"]}',
    ),
    (
        "smoke is dense and (carbon_monoxide is high, at least 0.7) within 10 min",
        together(SMOKE, when(GAS).at_least(0.7), within=up_to(10, "min")).build(),
        '{"together": ["smoke is dense", {"when": {"attribute": "carbon_monoxide", "is": "high"},'
        ' "possible": 0.7}], "within": "10 min"}',
    ),
    (
        "no smoke is dense for about 10 min, at least 0.9, named silence",
        absent(SMOKE, about(10, "min")).at_least(0.9).named("silence").build(),
        '{"none": "smoke is dense", "for": "about 10 min", "possible": 0.9, "name": "silence"}',
    ),
    (
        "3 or more devices with triage = red within 10 min fading until 1 h, top 3, score 0.5",
        counted(3, RED, up_to(10, "min", 1, "h")).top(3).score(0.5).build(),
        '{"count": 3, "of": "triage = red", "within": "10 min fading until 1 h", "top": 3,'
        ' "score": 0.5}',
    ),
    (
        "triage = red within 2 min after smoke is dense within about 5 min after"
        " carbon_monoxide is high, valid for 2 h",
        in_sequence(GAS, SMOKE, RED, within=(about(5, "min"), up_to(2, "min")))
        .valid_for(2, "h")
        .build(),
        '{"sequence": ["carbon_monoxide is high", "smoke is dense", "triage = red"],'
        ' "within": ["about 5 min", "2 min"], "valid_for": "2 h"}',
    ),
]


@pytest.mark.parametrize(("words", "built", "written"), SAID)
def test_four_surfaces_say_the_same(words: str, built: StoryTree, written: str) -> None:
    assert is_story(words)
    assert parse_any_story(words) == built
    assert parse_any_story(json.loads(written)) == built
    assert parse_any_story(f'{{"story": {written}}}') == built
    for surface in ("words", "json", "xml"):
        assert parse_any_story(print_story_as(surface, built)) == built, surface
    check_fixed_point(compile_story(built, RESCUE))


def check_fixed_point(compiled: CompiledStory) -> None:
    """What is decompiled compiles to the same bytes, in every surface."""
    data = compiled.story.encode()
    assert decode_story(data) == compiled.story
    back = decompile_story(data, RESCUE)
    for surface in ("words", "json", "xml"):
        again = parse_any_story(print_story_as(surface, back))
        assert compile_story(again, RESCUE).story.encode() == data, surface
    assert print_story(decompile_story(data, RESCUE)) == print_story(back)


PARTS = (
    "smoke is very dense",
    "carbon_monoxide above 50 ppm",
    "(heart_rate is high and triage = red)",
    "(heart_rate is high or pain is severe, at least 0.6)",
    "heart_rate between 40 and 50 bpm",
    "glucose is about 5 within 2 mmol/L",
    '"heart_rate" is not normal',
)
WINDOWS = ("about 5 min", "90 s", "a few hours", "1 h fading until 90 min", "0.5 s")


@pytest.mark.parametrize("seed", range(8))
def test_random_stories_are_read_back(seed: int) -> None:
    rng = Random(seed)
    for _ in range(20):
        some = [rng.choice(PARTS) for _ in range(rng.randrange(2, 5))]
        window = rng.choice(WINDOWS)
        text = rng.choice(
            (
                "".join(f"{part} within {rng.choice(WINDOWS)} after " for part in some[1:])
                + some[0],
                f"{' and '.join(some)} within {window}",
                f"no {some[0]} for {window.replace('fading until', 'rising from')}",
                f"{rng.randrange(2, 9)} or more with {some[0]} within {window}",
            )
        )
        if "rising from" in text:
            text = text.replace("1 h rising from 90 min", "1 h rising from 30 min")
        options = rng.sample((", at least 0.75", ", named rose", ", expires after 3 min"), 2)
        tree = parse_story(f"Tell me when {text}{''.join(options)}.")
        assert is_story(text)
        assert parse_story(print_story(tree)) == tree
        check_fixed_point(compile_story(tree, RESCUE))


@pytest.mark.parametrize(
    "text",
    [
        "delay is about 10 within 5 min",
        "access is open and delay is about 10 within 5 min",
        "glucose is about 5 within 1.5 mmol/L",
        "smoke is dense within the last 5 minutes",
        "heart_rate no more than 5",
        "smoke is dense and pain is severe in the last few minutes",
        "measured_at after 14:30",
        "not (smoke is dense)",
    ],
)
def test_what_is_no_story(text: str) -> None:
    assert not is_story(text)


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("smoke is dense within soon after carbon_monoxide is high", 16, "a time is expected"),
        ("smoke is dens within 5 min after carbon_monoxide is high", 10, 'has no term "dens"'),
        ("smoke is dense within 5 min after carbon_monoxid is high", 35, "carbon_monoxide"),
        ("no smoke is dense", 18, '"for" and a time are expected'),
        ("smoke is dense within 5 m after carbon_monoxide is high", 23, "a time is expected"),
        ("3 or more with pain is severe", 30, '"within" and a time are expected'),
        ("1 or more with pain is severe within 5 min", 1, "two or more are counted"),
        ("smoke is dense within 5 min after pain is severe, within 5 s", 58, "a distance"),
        ("smoke is dense within 5 min after pain is severe, dead band 5", 49, "of one part"),
        ("smoke is dense within 5 min after (pain is severe, top 3)", 36, "the whole story"),
        ("smoke is dense within 5 min after ", 34, "a condition is expected"),
        ("smoke is dense or pain is mild and triage = red within 5 s", 1, "in parentheses"),
        ("no smoke is dense for 5 min, within 3 m", 37, "not near anything"),
        ("no smoke is dense for 9 days", 23, "up to 7 days"),
        ("no smoke is dense for 5 min rising from 6 min", 23, "in its order"),
        ("smoke is dense and triage = red within 5 weks", 40, 'unknown unit "weks"'),
        ("smoke is dense and triage = red within few eons", 40, "unknown phrase of time"),
        (
            '<Story kind="none" for="5 min"><Subscription/></Story>',
            14,
            '"none" is no kind of story',
        ),
        ('<Story kind="absence" within="5 min"/>', 1, "1 to 1 <Subscription> are expected"),
    ],
)
def test_mistakes_have_their_column(text: str, at: int, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_story(parse_any_story(text), RESCUE)
    assert why in caught.value.describe()
    assert caught.value.at == at


def test_a_distance_needs_places() -> None:
    text = "wind_direction above 20 ° within 5 min after wind_direction above 90 °, within 5 m"
    with pytest.raises(LanguageError, match="do not say where they were made") as caught:
        compile_story(parse_story(text), load_shipped("weather"))
    assert caught.value.at == text.index("wind_direction above 90") + 1


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"sequence": ["smoke is dense"], "within": "5 min"}, "two parts or more"),
        ({"sequence": ["smoke iz dense", "x"], "within": "5 min"}, "column 7 of the part"),
        ({"none": "smoke is dense", "within": "5 min"}, '"for"'),
        ({"none": "smoke is dense", "for": "5 m"}, "a time is expected"),
        ({"none": "smoke is dense", "for": "5 min", "near": "5 m"}, "not near anything"),
        ({"count": 3, "within": "5 min"}, 'a story has one of "sequence"'),
        ({"count": "3", "of": "smoke is dense", "within": "5 min"}, "takes a number"),
        ({"none": "smoke is dense", "fro": "5 min"}, 'did you mean "for"'),
        ({"together": [1, 2], "within": "5 min"}, "a part is words or a condition"),
        (7, "takes a text or an object"),
    ],
)
def test_mistakes_in_json_name_their_key(members: object, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_story(parse_any_story(members), RESCUE)
    assert why in caught.value.describe()


def test_bytes_that_are_no_story() -> None:
    good = compile_story(parse_any_story(SAID[0][0]), RESCUE).story
    vector = good.parts[0]
    fields = [0, [vector, vector], [[5, 7]], None, 0, 128]
    assert decode_story(cbor2.dumps(fields)) == Story(0, (vector, vector), ((5, 7),))
    for place, wrong in (
        (0, 4),
        (0, True),
        (1, [vector]),
        (1, [vector] * 5),
        (1, [vector, b"\1"]),
        (2, []),
        (2, [[7, 5]]),
        (2, [[5, 7, 9]]),
        (2, [[0, 0]]),
        (2, [[0, 1 << 40]]),
        (3, [7, 5]),
        (4, 3),
        (5, 0),
        (5, 256),
    ):
        changed = [*fields]
        changed[place] = wrong
        with pytest.raises(ProtocolError):
            decode_story(cbor2.dumps(changed))
    for data in (b"", b"\xff", cbor2.dumps(fields[:5]), cbor2.dumps(fields) + b"\0"):
        with pytest.raises(ProtocolError):
            decode_story(data)
    silent = Story(ABSENCE, (vector,), ((7, 5),))
    assert decode_story(silent.encode()) == silent
    with pytest.raises(ProtocolError):
        decode_story(cbor2.dumps([ABSENCE, [vector], [[7, 5]], [5, 7], 0, 128]))
