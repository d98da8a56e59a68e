"""Everyday words: what people say is understood as they mean it, or refused with what helps."""

from __future__ import annotations

import ast
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import parse
from denwatch.client.language.localisation import (
    list_locales,
    load_lexicon,
    load_locale,
)
from denwatch.client.language.stories import is_story
from denwatch.client.language.understanding import Understood, understand, understand_story
from denwatch.client.vocabulary import build_vocabulary, load_shipped
from denwatch.node.core.languages import LookedUp, load_languages

RESCUE = load_shipped("rescue")
FOLDER = Path(__file__).with_name("phrases")
CLIENT = Path(__file__).parents[2] / "edge" / "denwatch" / "client"


def load_phrases(name: str) -> list[tuple[str, dict[str, str]]]:
    """Return the phrases of a file with what they mean."""
    return list(tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))["say"].items())


LISTS = {  # how many each has at least
    "english.toml": 60,
    "english_unseen.toml": 60,
    "english_third.toml": 60,
    "english_fourth.toml": 80,
    "german.toml": 40,
    "german_second.toml": 40,
}
PHRASES = [phrase for name in LISTS for phrase in load_phrases(name)]


def compile_words(words: str) -> bytes:
    """Return the bytes of a sentence that the grammar reads, or of a story."""
    if is_story(words):
        return understand_story(words, RESCUE).compiled.story.encode()
    return compile_subscription(parse(words), RESCUE).data


def test_there_are_enough_phrases() -> None:
    for name, least in LISTS.items():
        assert len(load_phrases(name)) >= least


def look_up(said: str) -> LookedUp:
    """Return what a node takes words for, whichever of its languages they are in."""
    languages = load_languages()
    return languages.find(languages.find_language(said)).look_up(said, RESCUE)


def is_right(said: str, wanted: dict[str, str]) -> bool:
    """Return whether a phrase is taken, or refused, as a person means it."""
    try:
        found = look_up(said)
    except LanguageError as error:
        hints = [compile_words(hint) for hint in error.hints]
        return "hint" in wanted and compile_words(wanted["hint"]) in hints
    is_said = any(wanted.get("taken", "") in note.casefold() for note in found.taken or ("",))
    return "means" in wanted and found.data == compile_words(wanted["means"]) and is_said


@pytest.mark.parametrize(("said", "wanted"), PHRASES, ids=[said for said, _ in PHRASES])
def test_a_phrase_means_what_a_person_means(said: str, wanted: dict[str, str]) -> None:
    assert is_right(said, wanted)
    if "means" in wanted:
        found = look_up(said)
        assert compile_words(found.source or said) == found.data
        assert look_up(found.words).data == found.data, "what it stands for means itself"


def test_phrases_that_nobody_tuned_for_are_understood() -> None:
    phrases = load_phrases("english_fifth.toml")
    right = [said for said, wanted in phrases if is_right(said, wanted)]
    assert len(phrases) >= 40
    assert len(right) >= 0.85 * len(phrases)


# What must never be taken, and what a hint must never be.
REFUSED = (
    ("don't tell me about fever", "patient_temperature is high"),
    ("ignore fever", "patient_temperature is high"),
    ("no patients with fever", "patient_temperature is high"),
    ("everyone except children", "age is child"),
    ("hardly any smoke", "smoke above 0"),
    ("no smoke or flames", "burning = burning"),
    ("patients without fever and pain", "patient_temperature is high and pain above 0"),
    ("unless there is smoke", "smoke above 0"),
    ("stop alerting me about smoke", "smoke above 0"),
    ("less pain", "pain is severe"),
    (
        "pulse over 100 and falling blood pressure",
        "heart_rate above 100 and systolic_pressure is high",
    ),
    ("patient temperature is going up", "patient_temperature is low"),
    ("carbon monoxide is falling", "carbon_monoxide is high"),
    ("more than 3 patients with fever", "age above 3"),
    ("patients with fever, pain", "patient_temperature is not high"),
    ("patients with dense smoke", "smoke is light"),
    ("pules over 100", "heart_rate below 100"),  # a spelling, not Puls with an ending
    ("John has fever", "patient_temperature is not high"),
    ("fever at noon", "patient_temperature is not high"),
    ("pain is severe and", "pain is mild"),
    ("fever or please", "patient_temperature is not high"),
    ("xyzzy", ""),
    ("?", ""),
    ("not", ""),
    ("39", ""),
    ("pulse above", ""),
    ("smoke and carbon monoxide are high", ""),
    ("heart rate above 400", "heart_rate is low"),
    ("bp 120/80", ""),
    ("f\u0000ver", ""),
)


@pytest.mark.parametrize(("said", "never"), REFUSED)
def test_what_is_not_clear_is_refused_with_hints_that_compile(said: str, never: str) -> None:
    with pytest.raises(LanguageError) as refused:
        understand(said, RESCUE)
    error = refused.value
    assert error.hints
    assert error.to_reply()["hints"] == list(error.hints)
    found = [compile_words(hint) for hint in error.hints]
    assert not never or compile_words(never) not in found
    assert error.at is not None
    assert 1 <= error.at <= len(said) + 1


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("pulse is not abnormal", "heart_rate is normal"),
        ("fever is gone", "patient_temperature is not high"),
        ("neither fever nor pain", "patient_temperature is not high and pain = 0"),
        ("unsafe carbon monoxide", "carbon_monoxide is not normal"),
        ("pulse isn't high and isn't low", "heart_rate is not high and heart_rate is not low"),
        ("pulse outside 60 to 100", "heart_rate is not between 60 and 100"),
        ("roads are no longer blocked", "access != closed"),
        ("fever, top 3, valid for 2 h", "patient_temperature is high, top 3, valid for 2 h"),
        ("patients between 60 and 80 years old", "age between 60 and 80"),
        ("pulse over one hundred and twenty", "heart_rate above 120"),
        (
            "fever and (pain or bleeding)",
            "patient_temperature is high and (pain above 0 or bleeding != none)",
        ),
    ],
)
def test_a_negation_and_a_bracket_keep_their_place(said: str, meant: str) -> None:
    assert understand(said, RESCUE).compiled.data == compile_words(meant)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "three patients with fever within 10 minutes",
            "3 or more devices with patient_temperature is high within 10 min",
        ),
        (
            "at least 3 firefighters with a high pulse within 5 min",
            "3 or more devices with wearer_heart_rate is high within 5 min",
        ),
        (
            "smoke within 5 minutes after high carbon monoxide",
            "smoke above 0 within 5 min after carbon_monoxide is high",
        ),
        (
            "pulse over 120 and low oxygen saturation within 10 min",
            "heart_rate above 120 and oxygen_saturation is low within 10 min",
        ),
        ("no movement for about 10 minutes", "no speed is not still for about 10 min"),
    ],
)
def test_the_parts_of_a_story_may_be_everyday_words(said: str, meant: str) -> None:
    found = look_up(said)
    assert found.data == compile_words(meant)
    assert found.taken or said.startswith("pulse")
    assert compile_words(found.source or said) == found.data


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        ("smoke within 5 min after pulse", "smoke within 5 min after heart_rate is high"),
        (
            "2 patients with fever",
            "2 or more devices with (patient_temperature is high) within 10 min",
        ),
        ("more than 2 people with pules over 100 within 5 min", ""),
    ],
)
def test_a_story_that_is_not_clear_is_refused_with_stories(said: str, offered: str) -> None:
    with pytest.raises(LanguageError) as refused:
        look_up(said)
    assert not offered or offered in refused.value.hints
    assert all(map(compile_words, refused.value.hints))


def test_an_antonym_is_never_suggested() -> None:
    assert "normal" not in suggest_names("abnormal", ["normal", "high"])
    assert suggest_names("hypotensve", ["hypertensive", "hypotensive"]) == ["hypotensive"]
    assert understand("heart_rate is abnormal", RESCUE).words == "heart_rate is not normal"


def test_the_columns_of_a_refusal_are_those_of_the_text() -> None:
    for said, word in (
        ("show me grumpy patients with fever", "grumpy"),
        ("fever in ward 3", "ward 3"),
    ):
        with pytest.raises(LanguageError) as refused:
            understand(said, RESCUE)
        at, length = refused.value.at or 0, refused.value.length
        assert said[at - 1 : at - 1 + length] == word


def test_what_is_at_hand_decides_and_is_said() -> None:
    near = RESCUE.surround(frozenset({"gas.air_temperature", "gas.oxygen"}))
    understood = understand("temperature above 39", near)
    assert understood.words == "air_temperature above 39"
    assert any("patient_temperature" in note for note in understood.notes)
    both = RESCUE.surround(frozenset({"gas.air_temperature", "team.suit_temperature"}))
    with pytest.raises(LanguageError) as asked:
        understand("temperature above 39", both)
    assert asked.value.is_question


def test_a_word_that_is_said_often_is_still_asked_for() -> None:
    for count in (2, 15):
        with pytest.raises(LanguageError) as asked:
            understand(" and ".join(["temperature above 39"] * count), RESCUE)
        assert asked.value.is_question
    said = "patient temperature over 39 degrees or under 95 degrees or over 41 degrees"
    meant = "patient_temperature above 39 or patient_temperature below 95 °F"
    assert understand(said, RESCUE).compiled.data == compile_words(
        f"{meant} or patient_temperature above 41"
    )


def test_the_grammar_goes_first_and_says_what_an_ambiguous_name_is() -> None:
    assert not understand("heart_rate is high", RESCUE).notes
    assert "oxygen_saturation" in understand("oxygen is low", RESCUE).notes[0]


# Languages -----------------------------------------------------------------------------------


def list_messages() -> Iterator[str]:
    """Yield every message of the language layer, as a template with {} for what is put in."""
    files = [*CLIENT.glob("language/*.py"), *CLIENT.glob("compiler/*.py")]
    files += [CLIENT / "vocabulary" / name for name in ("vocabulary.py", "values.py")]
    skipped = ("xml", "json", "builder", "printer", "reports", "understanding", "localisation")
    for path in files:
        if any(part in path.name for part in skipped):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("LanguageError", "LanguageError.at_node", "LanguageError.at_span"):
                yield from _read_template(node.args[0])
                if called != "LanguageError" and len(node.args) > 2:
                    yield from _read_template(node.args[2])
            elif called == "_refuse_empty":
                yield "empty set: {}"


def _read_template(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
        yield "".join(map(str, parts))


@pytest.mark.parametrize("code", [code for code in list_locales() if code != "en"])
def test_every_string_has_its_translation(code: str) -> None:
    english, other = load_locale("en").tables, load_locale(code).tables
    assert set(other["message"]) == set(english["message"])
    for key, text in english["message"].items():
        assert text.count("{}") == other["message"][key].count("{}"), key
    assert set(other["keyword"]) == set(english["keyword"])
    missing = [text for text in set(list_messages()) if _is_missing(text, other["translation"])]
    assert not sorted(missing)
    for english_text, own in other["translation"].items():
        assert english_text.count("{}") >= len(re.findall(r"{\d*}", own)) > -1, english_text


def _is_missing(text: str, table: dict[str, Any]) -> bool:
    return text not in table and text.replace("{}", "").strip(" :,()") != ""


@pytest.mark.parametrize("code", list_locales())
@pytest.mark.parametrize("name", ["rescue", "weather"])
def test_every_target_of_a_language_exists(code: str, name: str) -> None:
    vocabulary = load_shipped(name)
    lexicon = load_lexicon(code, vocabulary)
    for word in load_locale(code).tables["vocabulary"].get(name, {}):
        entry = lexicon.find(tuple(_split(word)))
        assert entry is not None, word
        for choice in entry.choices:
            if choice.condition:
                compile_subscription(parse(choice.condition), vocabulary)


def _split(word: str) -> tuple[str, ...]:
    from denwatch.client.language.localisation import split_phrase

    return split_phrase(word)


def test_every_attribute_has_a_label_in_every_language() -> None:
    for code in list_locales():
        lexicon = load_lexicon(code, RESCUE)
        for path in lexicon.attributes:
            assert lexicon.find_label(path), (code, path)


def test_a_vocabulary_brings_its_own_labels() -> None:
    document = {**RESCUE.document, "label": {"de": {"Lauftempo": "team.speed"}}}
    own = build_vocabulary(document)
    assert understand("Lauftempo \u00fcber 5 km/h", own).words == "speed above 5 km/h"
    with pytest.raises(LanguageError, match="nothing is called"):
        build_vocabulary({**RESCUE.document, "label": {"de": {"Lauf": "team.pace"}}})


def test_a_refusal_is_in_the_language_of_the_words() -> None:
    with pytest.raises(LanguageError) as refused:
        understand("Puls steigt", RESCUE)
    assert "\u00c4nderungen" in refused.value.message
    with pytest.raises(LanguageError) as refused:
        understand("Puls \u00fcber 400", RESCUE)
    assert "Bereich" in refused.value.message


def test_the_first_language_can_be_chosen() -> None:
    found: Understood = understand("fever", RESCUE, language="de")
    assert found.compiled.data == compile_words("patient_temperature is high")


@pytest.mark.parametrize("code", list_locales())
def test_any_words_are_understood_or_refused_with_hints(code: str) -> None:
    rng = random.Random(24)
    tables = load_locale(code).tables
    words = [word for group in tables["keyword"].values() for word in group]
    words += [*tables["adjective"], *tables["vocabulary"]["rescue"], "39", "120 bpm", ",", "(", ")"]
    for _ in range(120):
        said = " ".join(rng.choice(words) for _ in range(rng.randint(1, 7)))
        try:
            understood = understand(said, RESCUE, language=code)
        except LanguageError as error:
            refused = error.hints
        else:
            assert compile_words(understood.words) == understood.compiled.data, said
            continue
        assert refused, said
        assert all(map(compile_words, refused)), said
