"""Texts with degrees: terms, hedges and "about" over the places of ordered symbols."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.console.cards import judge_value
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse, print_as
from denwatch.client.language.reports import parse_reading
from denwatch.client.language.words_printer import print_words
from denwatch.client.language.xml_printer import print_xml
from denwatch.client.vocabulary import Vocabulary, build_vocabulary, load_shipped
from denwatch.node.core.languages import CONTENT_LANGUAGE
from denwatch.node.core.notifications import describe_reading, list_symbols
from denwatch.protocol import subscription as codec
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.language import wild

RESCUE = load_shipped("rescue")


def build(terms: dict[str, Any], **changes: Any) -> Vocabulary:
    """Return a vocabulary with the road of the DENS paper."""
    access = {"bit": 0, "symbols": ["clear", "semi_blocked", "blocked"], "ordered": True}
    event = {"number": 1, "attribute": {"access": {**access, "terms": terms, **changes}}}
    return build_vocabulary({"name": "roads", "event": {"road": event}})


ROADS = build(
    {"open": {"falling": ["clear", "blocked"]}, "wide_open": {"hedges": ["very"], "of": "open"}}
)


def rate(words: str, vocabulary: Vocabulary = ROADS) -> list[float]:
    """Return to which degree each symbol of the road's access fits some words."""
    vector = codec.decode(compile_subscription(parse(f"{words}, at least 0.004"), vocabulary).data)
    event = vocabulary.events["road"]
    access = event.attributes["access"]
    degrees = []
    for code in access.symbol_codes:
        found = match(vector, NotificationVector(event.number, [Reading(0, (code,) * 4)]))
        degrees.append(round(found.possible / 255, 2) if found is not None and found.matched else 0)
    return degrees


@pytest.mark.parametrize(
    ("words", "degrees"),
    [
        ("access is open", [1, 0.5, 0]),
        ("access is not open", [0, 0.5, 1]),
        ("access is very open", [1, 0.25, 0]),
        ("access is wide open", [1, 0.25, 0]),
        ("access is somewhat open", [1, 0.71, 0]),
        ("access is about semi_blocked", [0.5, 1, 0.5]),
        ("access is about clear within 3", [1, 0.67, 0.33]),
        ("access is semi-blocked", [0, 1, 0]),
        ("access at least semi_blocked", [0, 1, 1]),
        ("access below semi_blocked", [1, 0, 0]),
        ("access between clear and semi_blocked", [1, 1, 0]),
        ("access != blocked", [1, 1, 0]),
    ],
)
def test_symbols_fit_to_degrees(words: str, degrees: list[float]) -> None:
    assert rate(words) == pytest.approx(degrees, abs=0.015)


@pytest.mark.parametrize(
    "words",
    [
        "access is usable",
        "access is not very obstructed",
        "access is about one_lane",
        "access is about one_lane within 1",
        "access is one_lane",
        "access above closed",
        "access is usable and delay is short",
    ],
)
def test_four_surfaces_and_the_way_back_agree(words: str) -> None:
    tree = parse(words)
    compiled = compile_subscription(tree, RESCUE)
    for surface in ("words", "xml", "json"):
        assert compile_subscription(parse(print_as(surface, tree)), RESCUE).data == compiled.data
    assert compile_subscription(wild.build(tree), RESCUE).data == compiled.data
    whole = parse(print_xml(tree, vocabulary=RESCUE))  # with the sets that it uses
    assert compile_subscription(whole, RESCUE).data == compiled.data
    again = decompile(compiled.data, RESCUE, compiled.options)
    assert "fuzzifier" not in print_words(again)
    assert compile_subscription(again, RESCUE).data == compiled.data


def test_codes_are_spread_only_where_there_are_degrees() -> None:
    access = ROADS.events["road"].attributes["access"]
    assert access.symbol_codes == (0, 128, 255)
    assert RESCUE.events["patient"].attributes["consciousness"].symbol_codes == (0, 1, 2, 3)
    assert [access.name_code(code) for code in (0, 63, 64, 200, 255)] == [
        *("clear", "clear", "semi_blocked", "blocked", "blocked")
    ]


@pytest.mark.parametrize(
    ("terms", "changes", "said"),
    [
        ({"open": {"falling": ["clear", "shut"]}}, {}, "unknown symbol"),
        ({"open": {"falling": ["clear", "blocked"]}}, {"ordered": False}, "ordered = true"),
        ({"open": {"rising": [0, 1]}}, {"symbols": ["one"]}, "two or more symbols"),
        ({"blocked": {"rising": [0, 1]}}, {}, "a symbol is called so"),
        ({"open": {"falling": ["blocked", "clear"]}}, {}, "rising order"),
    ],
)
def test_what_a_vocabulary_may_not_say(
    terms: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(LanguageError, match=said):
        build(terms, **changes)


def test_a_text_without_terms_has_no_sets() -> None:
    with pytest.raises(LanguageError, match="has no fuzzy sets"):
        compile_subscription(parse("triage is about red"), RESCUE)
    with pytest.raises(LanguageError, match="is a fuzzy term"):
        compile_subscription(parse("access = usable"), RESCUE)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("road: access one_lane", (170,) * 4),
        ("road: access about one_lane", (0, 170, 170, 255)),
        ("road: access emergency_only or one_lane", (85, 85, 170, 170)),
        ("road: access at most one_lane", (0, 0, 170, 170)),
        ("road: access is usable", (0, 255, 255, 255)),
    ],
)
def test_people_report_places(text: str, points: tuple[int, ...]) -> None:
    assert parse_reading(text, RESCUE).readings[0].points == pytest.approx(points, abs=2)


def test_what_lies_between_is_named_by_its_symbols() -> None:
    access = RESCUE.events["road"].attributes["access"]
    shown = describe_reading(access, Reading(access.bit, (0, 85, 170, 200)))
    assert shown == b'{"value":null,"among":["emergency_only","one_lane"]}'
    assert describe_reading(access, Reading(access.bit, (85,) * 4)) == b'{"value":"emergency_only"}'
    assert list_symbols(access, (100, 110, 110, 120)) == [("emergency_only", 255)]


def test_typed_content_asks_for_the_codes_nearest_to_a_symbol() -> None:
    content: Any = [["event", "=", "road"], ["access", "=", "one_lane"]]
    lowered = CONTENT_LANGUAGE.lower(CONTENT_LANGUAGE.look_up(content, RESCUE).data, RESCUE)
    assert lowered is not None
    (predicate,) = codec.decode(lowered).predicates
    assert (predicate.low, predicate.high) == (128, 212)


def test_the_console_judges_terms_of_a_text() -> None:
    access = RESCUE.events["road"].attributes["access"]
    closed, open_ = (judge_value(access, {"value": name}) for name in ("closed", "open"))
    assert closed is not None
    assert open_ is not None
    assert closed.level > open_.level
