"""JSON: the shape that docs/language.md describes, strictly, with the place of every mistake."""

from __future__ import annotations

import json

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language.json import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    parse_json,
    print_json,
    to_document,
)
from denwatch.client.language.words import parse_words
from denwatch.client.plugins import PluginRegistry
from denwatch.client.syntax import CrispComparison, Extension, Moment, PredicateNode, Quantity, Text
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
LOW = '{"attribute": "a", "is": "low"}'


def test_a_subscription_reads_like_its_words() -> None:
    text = """{
        "when": {"or": [
            {"and": [
                {"attribute": "patient_temperature", "hedges": ["very"], "is": "high"},
                {"attribute": "heart_rate", "negated": true, "is": "normal", "possible": 0.6}
            ]},
            {"not": {"attribute": "T°", "between": ["98 °F", "101 °F"]}},
            {"attribute": "glucose", "about": 5.5, "within": "1 mmol/L"},
            {"attribute": "pain", "shape": "rising", "points": [6, 8]},
            {"attribute": "triage", "=": "red"}
        ]},
        "event": "patient", "name": "fever", "aggregator": "harmonic_mean",
        "possible": 0.7, "certain": 0.2, "recent": "few seconds", "score": 0.8, "top": 5,
        "prefer": [["fever", "burns"]], "valid_for": "2 days", "expiry": "10 min",
        "dead_bands": [{"attribute": "T°", "width": "0.5 °C"}], "relative_band": 0.05,
        "hysteresis": 0.1, "persistence": [3, 5], "heartbeat": "10 min", "quiet": 60, "why": true
    }"""
    words = (
        "(patient_temperature is very high and heart_rate is not normal possible 0.6) "
        "or not (T° between 98 and 101 °F) or glucose is about 5.5 units within 1 mmol/L "
        "or pain is rising(6, 8) or triage = red, "
        "event patient, named fever, by harmonic mean, at least 0.7, certain 0.2, "
        "in the last few seconds, score 0.8, top 5, prefer fever over burns, valid for 2 days, "
        "expires after 10 min, dead band 0.5 °C of T°, relative band 0.05, hysteresis 0.1, "
        "3 of 5, heartbeat 10 min, quiet for 60, why"
    )
    tree = parse_json(text)
    assert tree == parse_words(words)
    assert parse_json(print_json(tree)) == tree
    assert json.loads(text) == to_document(tree)


def test_rules_and_plug_ins_have_keys_of_their_own() -> None:
    text = (
        '{"when": {"and": [{"attribute": "w", "near": {"centre": "350 °", "spread": 20}},'
        ' {"attribute": "w", "sector": {"from": 340, "to": 20}}]},'
        ' "rules": [{"pair": [1, 2], "constant": 0.5, "slopes": [0.1, -0.2]}],'
        ' "aggregator": {"name": "owa", "arguments": [0.5]},'
        ' "recent": {"within": 30, "gone": "2 min"}}'
    )
    tree = parse_json(text)
    assert tree == parse_words(
        "w is near 350 ° within 20 units and w is in the sector 340 to 20, "
        "rule 1 with 2 gives 0.5 slopes 0.1 and -0.2, by owa(0.5), "
        "in the last 30 fading until 2 min"
    )
    assert json.loads(print_json(tree)) == json.loads(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", Quantity(5.0)),
        ('"5"', Quantity(5.0)),
        ('"104 °F"', Quantity(104.0, "°F")),
        ('"40bpm"', Quantity(40.0, "bpm")),
        ('"14:30"', Moment("14:30")),
        ('"red"', Text("red")),
        ('"\\"14:30\\""', Text("14:30")),
        ('{"text": "14:30"}', Text("14:30")),
    ],
)
def test_a_text_may_be_a_number_with_unit_or_a_moment(value: str, expected: object) -> None:
    condition = parse_json(f'{{"when": {{"attribute": "a", "=": {value}}}}}').condition
    assert isinstance(condition, PredicateNode)
    assert isinstance(condition.constraint, CrispComparison)
    assert condition.constraint.value == expected


def test_an_extension_that_nobody_knows_is_kept() -> None:
    text = '{"when": {"attribute": "a", "extension": "near", "arguments": [1, "x"]}}'
    tree = parse_json(text, PluginRegistry())
    assert isinstance(tree.condition, PredicateNode)
    assert tree.condition.constraint == Extension("near", (Quantity(1.0), Text("x")))
    assert json.loads(print_json(tree, PluginRegistry())) == json.loads(text)


ERRORS = [
    # JSON itself
    ("{", 2, "a key in double quotes"),
    ('{"when" 5}', 9, '":" is expected'),
    ('{"when": 5', 11, '"," or "}"'),
    ('{"when": [1 2]}', 13, '"," or "]"'),
    ('{"when": NaN}', 10, "a JSON value is expected"),
    ('{"when": 01}', 11, '"," or "}"'),
    ('{"when": 1e999}', 10, "too large"),
    ('{"when": {"attribute": "a", "<": "1e999 m"}}', 34, "too large"),
    ('{"when": "a', 10, "unterminated string"),
    ('{"when": {"a": 1, "a": 2}}', 19, "appears twice"),
    (f'{{"when": {LOW}}} x', 43, "text after the end"),
    ("[" * 70, MAX_DEPTH + 2, "nested more than"),
    ('{"when": "' + "x" * MAX_CHARACTERS + '"}', MAX_CHARACTERS + 1, "is the limit"),
    # the shape
    ("[]", 1, "a subscription"),
    ("{}", 1, '"when" is missing'),
    (f'{{"when": {LOW}, "tpo": 5}}', 43, 'unknown key "tpo"; did you mean "top"?'),
    ('{"when": {"attribute": "a", "is": "low", "hegdes": []}}', 42, 'did you mean "hedges"?'),
    ('{"when": {"is": "low"}}', 10, '"attribute" is missing'),
    ('{"when": {"attribute": "a"}}', 10, "0 constraints, one is expected"),
    ('{"when": {"attribute": "a", "is": "b", "<": 5}}', 10, "2 constraints"),
    ('{"when": {"attribute": "a", "is": 5}}', 35, "a text is expected"),
    ('{"when": {"attribute": "a", "is": "b", "negated": 1}}', 51, "true or false"),
    ('{"when": {"attribute": "a", "is": "b", "hedges": ["vrey"]}}', 51, 'did you mean "very"?'),
    ('{"when": {"attribute": "a", "<": true}}', 34, "a number is expected"),
    ('{"when": {"attribute": "a", "<": {"unit": "m"}}}', 35, "unknown key"),
    ('{"when": {"attribute": "a", "between": [1]}}', 40, "a list of 2, not of 1"),
    ('{"when": {"attribute": "a", "shape": "rising"}}', 10, '"points" is missing'),
    ('{"when": {"attribute": "a", "near": {"spread": 5}}}', 37, '"centre" is missing'),
    (f'{{"when": {{"and": [{LOW}]}}}}', 18, "a list of 2 or more, not of 1"),
    (f'{{"when": {{"not": {LOW}, "or": []}}}}', 51, '"or" is not allowed beside "not"'),
    (f'{{"when": {LOW}, "valid_for": "long"}}', 56, "not a number with a unit"),
    (f'{{"when": {LOW}, "persistence": 3}}', 58, "a list is expected"),
    (f'{{"when": {LOW}, "recent": {{"gone": 5}}}}', 53, '"within" is missing'),
    (f'{{"when": {LOW}, "rules": [{{"pair": [1, 2.5], "constant": 1}}]}}', 66, "whole number"),
    # what the compiler finds has its place too
    ('{"when": {"attribute": "hart_rate", "is": "low"}}', 24, 'did you mean "heart_rate"'),
    ('{"when": {"attribute": "heart_rate", ">": "400 bpm"}}', 43, "outside the domain"),
]


@pytest.mark.parametrize(("text", "column", "message"), ERRORS)
def test_an_error_points(text: str, column: int, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_subscription(parse_json(text), RESCUE)
    assert message in caught.value.describe()
    assert caught.value.at == column
