"""The Knowledge Manager: vocabulary files, names and synonyms, versions, merging, publishers."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import denwatch.client.vocabulary
import pytest
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Name
from denwatch.client.vocabulary import (
    SHIPPED,
    ValueKind,
    Vocabulary,
    build_vocabulary,
    load_shipped,
    parse_vocabulary,
)
from denwatch.client.vocabulary.loading import merge_vocabularies
from denwatch.client.vocabulary.vocabulary import browse, describe_vocabulary

SMALL = """
name = "small"
[event.sea]
number = 3
[event.sea.attribute.wave_height]
bit = 0
domain = [0.0, 25.5]
unit = "m"
[event.sea.attribute.wave_height.terms]
flat = { falling = [0.5, 1.5] }
high = { rising = [3, 6] }
monstrous = { hedges = ["extremely"], of = "high" }
[event.sea.attribute.flag]
bit = 1
symbols = ["green", "red"]
[thesaurus.coast_guard]
"swell" = "sea.wave_height"
"""


def change(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_vocabularies_load(name: str) -> None:
    vocabulary = load_shipped(name)
    assert vocabulary.name == name
    assert len(vocabulary.hash) == 64
    for event in vocabulary.events.values():
        assert 1 <= len(event.attributes) <= 16
        assert vocabulary.find_number(event.number) is event
        for attribute in event.attributes.values():
            assert event.find_bit(attribute.bit) is attribute
            for term in attribute.terms.values():
                assert attribute.fit_term(term).error < 0.1, (attribute.path, term.name)


def test_straight_terms_of_shipped_vocabularies_are_followed_within_two_percent() -> None:
    for name in SHIPPED:
        for attribute in load_shipped(name).iterate_attributes():
            for term in attribute.terms.values():
                if term.membership.is_linear:
                    assert attribute.fit_term(term).error < 0.02, (attribute.path, term.name)


def test_hedged_term_is_fitted_and_its_error_known() -> None:
    attribute = load_shipped("rescue").events["patient"].attributes["patient_temperature"]
    term = attribute.terms["very_high"]
    assert (term.base, term.hedges) == ("high", ("very",))
    assert term.membership.evaluate(38.5) == pytest.approx(0.25)
    assert 0.02 < attribute.fit_term(term).error < 0.09


def test_rescue_has_the_five_events_and_wide_positions() -> None:
    rescue = load_shipped("rescue")
    assert set(rescue.events) == {"patient", "fire", "gas", "road", "team"}
    assert rescue.events["team"].attributes["east"].wide
    assert rescue.events["patient"].attributes["born"].kind is ValueKind.DATE


# Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["patient_temperature", "temp", "body_temp", "T°", "t°", "Body Temp", "patient.temp"]
)
def test_synonyms_name_the_same_attribute(word: str) -> None:
    found = load_shipped("rescue").find_attributes(Name(word))
    assert [attribute.path for attribute in found] == ["patient.patient_temperature"]


def test_event_and_term_and_symbol_have_synonyms() -> None:
    rescue = load_shipped("rescue")
    patient = rescue.find_event(Name("casualty"))
    assert patient.name == "patient"
    term = rescue.find_term(patient.attributes["heart_rate"], Name("tachycardic"))
    assert term is not None
    assert term.name == "high"
    assert rescue.find_symbol(patient.attributes["triage"], "immediate") == 2


def test_organisation_decides_between_two_meanings() -> None:
    rescue = load_shipped("rescue")
    both = [a.path for a in rescue.find_attributes(Name("oxygen level"))]
    assert both == ["patient.oxygen_saturation", "gas.oxygen"]
    own = rescue.prefer("red_cross").find_attributes(Name("oxygen level"))
    assert [a.path for a in own] == ["patient.oxygen_saturation"]


def test_synonyms_of_a_thing_are_listed_by_organisation() -> None:
    entries = load_shipped("rescue").thesaurus.list_synonyms("patient.patient_temperature")
    assert ("hospital", "temp") in [(e.organisation, e.word) for e in entries]
    assert ("red_cross", "body_temperature") in [(e.organisation, e.word) for e in entries]


def test_attribute_of_another_event_is_explained() -> None:
    rescue = load_shipped("rescue")
    with pytest.raises(LanguageError, match="belongs to event patient"):
        rescue.find_attributes(Name("pulse"), rescue.events["fire"])
    with pytest.raises(
        LanguageError, match=r'"patient\.pulse" belongs to event patient, not to fire'
    ):
        rescue.find_attributes(Name("patient.pulse"), rescue.events["fire"])


# Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("number = 3", "number = 64", "number 64 is not in 0..63"),
        ("number = 3", "", '"number" is missing'),
        ("number = 3", 'number = "3"', "wrong type"),
        ("number = 3", "numer = 3\nnumber = 3", 'unknown key "numer"; did you mean "number"'),
        ("bit = 1", "bit = 0", "bit 0 is wave_height's"),
        ("bit = 1", "bit = 16", "bit 16 is not in 0..15"),
        ("domain = [0.0, 25.5]", "domain = [9, 9]", "the domain is empty"),
        ("domain = [0.0, 25.5]", 'domain = ["a", 9]', "'a' is not a number"),
        ('unit = "m"', 'unit = "parsec"', 'unknown unit "parsec"'),
        ('unit = "m"', 'unit = "m"\nresolution = 12', "resolution is 8 or 16 bits"),
        ("falling = [0.5, 1.5]", "falling = [1.5, 0.5]", "points must be in rising order"),
        ("falling = [0.5, 1.5]", "faling = [0.5, 1.5]", 'did you mean "falling"'),
        ("falling = [0.5, 1.5]", "falling = [0.5]", "falling takes 2 points, not 1"),
        ("rising = [3, 6]", "rising = [60, 80]", "outside the domain of wave_height"),
        ('of = "high"', 'of = "hihg"', 'did you mean "high"'),
        ('hedges = ["extremely"]', 'hedges = ["quite"]', 'unknown hedge "quite"'),
        ('["green", "red"]', '["green", "Green"]', "two symbols are alike"),
        ('["green", "red"]', "[]", "symbols must be a list of texts"),
        ('"sea.wave_height"', '"sea.wave_hight"', 'did you mean "sea.wave_height"'),
        ("[event.sea.attribute.flag]", "[event.sea.attribute.Flag]", "names are lower case"),
        ('name = "small"', "", '"name" is missing'),
        ('name = "small"', "name = small", "vocabulary: Invalid value"),
    ],
)
def test_mistakes_in_a_file_are_refused_with_their_key(old: str, new: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_vocabulary(change(SMALL, old, new))
    assert message in str(caught.value)


def test_content_hash_knows_content_and_not_order() -> None:
    document = tomllib.loads(SMALL)
    turned: dict[str, Any] = dict(reversed(document.items()))
    assert build_vocabulary(turned).hash == build_vocabulary(document).hash
    changed = parse_vocabulary(change(SMALL, "rising = [3, 6]", "rising = [3, 7]"))
    assert changed.hash != build_vocabulary(document).hash


def test_a_document_travels_and_gives_the_same_vocabulary() -> None:
    import json

    rescue = load_shipped("rescue")
    again = build_vocabulary(json.loads(json.dumps(rescue.document)))
    assert again.hash == rescue.hash
    assert again == rescue


# Merging --------------------------------------------------------------------------------------


def test_merging_joins_events_terms_and_synonyms() -> None:
    small = parse_vocabulary(SMALL)
    more = change(SMALL, 'name = "small"', 'name = "more"')
    more = change(more, "flat = { falling = [0.5, 1.5] }", "rough = { trapezoid = [1, 2, 3, 4] }")
    more = change(more, '"swell"', '"sea state"')
    merged = merge_vocabularies(small, parse_vocabulary(more))
    assert merged.name == "small+more"
    terms = merged.events["sea"].attributes["wave_height"].terms
    assert set(terms) == {"flat", "rough", "high", "monstrous"}
    for word in ("swell", "sea state"):
        assert merged.find_attributes(Name(word))[0].name == "wave_height"


def test_merging_the_shipped_ones_keeps_both() -> None:
    merged = merge_vocabularies(load_shipped("rescue"), load_shipped("weather"), "both")
    assert merged.name == "both"
    assert len(merged.events) == 6
    same = merge_vocabularies(merged, load_shipped("weather"), "both")
    assert same.events == merged.events


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("number = 3", "number = 4", "conflict at event.sea.number: small says 3, other says 4"),
        ("domain = [0.0, 25.5]", "domain = [0.0, 51.0]", "event.sea.attribute.wave_height.domain"),
        ("rising = [3, 6]", "rising = [4, 6]", "event.sea.attribute.wave_height.terms.high"),
        ('unit = "m"', "", "unit: only small has it"),
        ('"swell" = "sea.wave_height"', '"swell" = "sea.flag"', "thesaurus.coast_guard.swell"),
        (
            '"swell" = "sea.wave_height"',
            '"Swell" = "sea.flag"',
            "conflict at thesaurus.coast_guard",
        ),
    ],
)
def test_merging_refuses_what_differs(old: str, new: str, message: str) -> None:
    other = parse_vocabulary(change(change(SMALL, old, new), '"small"', '"other"'))
    with pytest.raises(LanguageError) as caught:
        merge_vocabularies(parse_vocabulary(SMALL), other)
    assert message in str(caught.value)


def test_merging_refuses_two_events_of_one_number() -> None:
    text = SMALL.replace("sea", "lake").replace("swell", "chop")
    renamed = parse_vocabulary(text.replace('"small"', '"other"'))
    with pytest.raises(LanguageError, match="number 3 is sea's"):
        merge_vocabularies(parse_vocabulary(SMALL), renamed)


# Publishers and browsing ----------------------------------------------------------------------


def test_browsing_shows_events_terms_and_synonyms() -> None:
    rescue = load_shipped("rescue")
    text = describe_vocabulary(rescue)
    assert "patient (1): Vital signs of one patient" in text
    assert rescue.version in text
    page = browse(rescue, "temp")
    assert "hospital: body_temp" in page
    assert "very_high: very high (at most" in page
    assert browse(rescue, "casualty").startswith("patient (1)")
    with pytest.raises(LanguageError, match='nothing is called "patiemt"; did you mean "patient"'):
        browse(rescue, "patiemt")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, denwatch.client.compiler, denwatch.client.vocabulary as v;"
        "v.load_shipped('rescue');"
        "heavy = {'numpy', 'lark', 'lxml', 'matplotlib', 'numba', 'asyncio', 'pint'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_vocabularies_compare_by_content() -> None:
    assert parse_vocabulary(SMALL) == parse_vocabulary(SMALL)
    assert isinstance(parse_vocabulary(SMALL), Vocabulary)


# The description of the format ----------------------------------------------------------------


def test_the_example_of_the_readme_is_a_vocabulary() -> None:
    text = (Path(denwatch.client.vocabulary.__file__).parent / "README.md").read_text("utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    harbour = parse_vocabulary(example)
    assert harbour.name == "harbour"
    assert harbour.phrases["this watch"] == (7200.0, 14400.0)
    breakers = harbour.find_term(harbour.events["sea"].attributes["wave_height"], Name("breakers"))
    assert breakers is not None
    assert breakers.name == "high"
    used = {
        key for attribute in example.split("[event.sea.attribute.")[1:] for key in attribute.split()
    }
    for key in (
        "bit",
        "domain",
        "unit",
        "resolution",
        "symbols",
        "ordered",
        "about",
        "period",
        "kind",
    ):
        assert key in used  # every key of an attribute is shown


# Documents from peers -------------------------------------------------------------------------

JUNK: list[Any] = [None, 0, -1, math.nan, math.inf, "", "x", [], [[1]], {}, {"a": 1}, True, 10**400]
JUNK += [{"of": [], "hedges": ["very"]}, {"bell": [1, 2, 1e308]}, {"triangle": ["a", 1, 2]}]


def list_paths(table: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = (
        table if isinstance(table, dict) else range(len(table)) if isinstance(table, list) else ()
    )
    return [p for key in keys for p in ((*path, key), *list_paths(table[key], (*path, key)))]


def test_a_spoiled_document_is_refused_or_read_and_never_breaks() -> None:
    document = tomllib.loads(SMALL)
    refused = 0
    for path in list_paths(document):
        for junk in JUNK:
            spoiled = copy.deepcopy(document)
            table = spoiled
            for key in path[:-1]:
                table = table[key]
            table[path[-1]] = junk
            try:
                describe_vocabulary(build_vocabulary(spoiled))
            except LanguageError:
                refused += 1
    assert refused > 300
