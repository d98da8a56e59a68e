"""Temporal restrictors of predicates: whose they are, what they compile to, and the way back."""

from __future__ import annotations

import pytest
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse, print_as
from denwatch.client.language.builder import attribute, when
from denwatch.client.syntax import Quantity, Recent, SubscriptionTree, iterate_predicates
from denwatch.client.vector_dump import describe_bytes
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol.matching import rate_age
from denwatch.protocol.timecode import decode_duration, encode_duration

RESCUE = load_shipped("rescue")
SECONDS = Recent(None, Quantity(30.0, "s"))


def list_recents(text: str) -> tuple[list[Recent | None], Recent | None]:
    tree = parse(text)
    return [p.recent for p in iterate_predicates(tree.condition)], tree.recent


@pytest.mark.parametrize(
    ("text", "predicates", "whole"),
    [
        ("a is high in the last 30 s and b is low", [SECONDS, None], None),
        ("a is high and b is low in the last 30 s", [None, None], SECONDS),
        ("a is high in the last 30 s", [None], SECONDS),
        ("(a is high in the last 30 s)", [SECONDS], None),
        ("a is high and (b is low in the last 30 s)", [None, SECONDS], None),
        ("a is high in the last 30 s or b is low in the last 30 s", [SECONDS, SECONDS], None),
        ("a is high recent and b is low recent", [Recent("recent"), Recent("recent")], None),
        ("a is high in the last few minutes and not b is low", [Recent("few minutes"), None], None),
        ("(a is high or b is low) in the last 30 s", [None, None], SECONDS),
        ("not (a is high in the last 30 s), recent", [SECONDS], Recent("recent")),
        ("a is high possible 0.6 in the last 30 s and b is low", [SECONDS, None], None),
        ("a above 5 in the last 30 s and b is low, in the last 30 s", [SECONDS, None], SECONDS),
    ],
)
def test_whose_a_restrictor_is(
    text: str, predicates: list[Recent | None], whole: Recent | None
) -> None:
    assert list_recents(text) == (predicates, whole)
    tree = parse(text)
    for surface in ("words", "json", "xml"):
        assert parse(print_as(surface, tree)) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heart_rate is high in the last 5 s recent and pain is mild", '"recent" is given twice'),
        ("heart_rate is high in the last 5 s, recent", '"recent" is given twice'),
        (
            "heart_rate is high in the last 5 s or heart_rate is low in the last 9 s",
            "two temporal restrictors",
        ),
        ("heart_rate is high in the last 0 s and pain is mild", "above 0"),
        ("heart_rate is high in the last few eons and pain is mild", "unknown phrase of time"),
        ("heart_rate is high in the last 900 days and pain is mild", "at most 364 days"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message) as refused:
        compile_subscription(parse(text), RESCUE)
    assert refused.value.at


def test_a_vector_has_a_code_for_each_attribute() -> None:
    words = "patient_temperature is high in the last 30 s and heart_rate is low and pain is severe"
    compiled = compile_subscription(parse(words), RESCUE)
    assert list(compiled.vector.restrictors) == [encode_duration(30), 0, 0]
    plain = compile_subscription(parse(words.replace(" in the last 30 s", "")), RESCUE)
    assert plain.vector.restrictors == b""
    assert len(plain.data) <= 17
    assert len(compiled.data) == len(plain.data) + 5
    said = decompile(compiled.data, RESCUE)
    assert print_as("words", said) == words
    dumped = str(describe_bytes(compiled.data, RESCUE))
    assert "restrictor of patient_temperature" in dumped


def test_one_attribute_has_one_restrictor_for_all_its_predicates() -> None:
    words = "patient_temperature is low in the last 30 s or very high and heart_rate is high"
    vector = compile_subscription(parse(words), RESCUE).vector
    assert len(vector.predicates) == 3
    assert list(vector.restrictors) == [encode_duration(30), 0]


@pytest.mark.parametrize("phrase", ["recent", "few seconds", "few minutes", "few hours"])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_a_phrase_counts_while_its_degree_reaches_the_threshold(
    phrase: str, threshold: float
) -> None:
    tree: SubscriptionTree = (
        when(attribute("heart_rate").is_("low").recent(phrase) & attribute("pain").is_("mild"))
        .at_least(threshold)
        .build()
    )
    compiled = compile_subscription(tree, RESCUE)
    code = max(compiled.vector.restrictors)
    ends = [encode_duration(round(end)) for end in RESCUE.phrases[phrase]]
    least = compiled.vector.threshold
    fades = (ends[0], ends[1])
    # Every age that is fresh enough counts, and the next shorter code would leave one out.
    ages = range(decode_duration(ends[1]) + 1)
    oldest = max(age for age in ages if rate_age(age, fades) >= least)
    assert decode_duration(code - 1) < oldest <= decode_duration(code)
    assert any("counts for" in str(note) for note in compiled.report)


def test_whole_readings_are_an_option() -> None:
    tree = parse("heart_rate is high, whole reading")
    assert tree.whole
    compiled = compile_subscription(tree, RESCUE)
    assert compiled.options.to_dict() == {"whole": True}
    assert decompile(compiled.data, RESCUE, compiled.options) == tree
    assert parse('{"when": {"attribute": "heart_rate", "is": "high"}, "whole": true}') == tree
