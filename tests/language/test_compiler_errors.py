"""Every mistake that the compiler finds: its message, its place, and what it proposes."""

from __future__ import annotations

import difflib

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    DeadBand,
    Extension,
    Name,
    NamedTerm,
    Not,
    Operator,
    Or,
    Persistence,
    PredicateNode,
    Prefer,
    Quantity,
    Recent,
    Scalar,
    SourceSpan,
    SubscriptionTree,
    SugenoRule,
    Text,
)
from denwatch.client.vocabulary import load_shipped
from denwatch.client.vocabulary.values import read_duration

from tests.language.mistakes import FAST, HOT, MISTAKES, WHERE, compare, name, number, scalar, shape

RESCUE = load_shipped("rescue")

SETTINGS: dict[str, tuple[SubscriptionTree, str]] = {
    "contradictory thresholds": (
        SubscriptionTree(HOT, possible=Scalar(0.3), certain=scalar(0.6)),
        "contradictory thresholds: certain 0.6 is above possible 0.3",
    ),
    "contradictory thresholds of a predicate": (
        SubscriptionTree(
            PredicateNode(HOT.attribute, HOT.constraint, possible=Scalar(0.3), certain=scalar(0.6))
        ),
        "contradictory thresholds: certain 0.6 is above possible 0.3",
    ),
    "threshold above 1": (
        SubscriptionTree(HOT, possible=scalar(1.2)),
        "threshold 1.2 is not between 0 and 1",
    ),
    "hysteresis above the threshold": (
        SubscriptionTree(HOT, possible=Scalar(0.5), hysteresis=scalar(0.6)),
        "contradictory thresholds: the hysteresis is above the threshold",
    ),
    "quiet longer than heartbeat": (
        SubscriptionTree(HOT, heartbeat=Quantity(1, "min"), quiet=number(1, "h")),
        "contradictory times: the quiet time is longer than the heartbeat",
    ),
    "unknown aggregator": (
        SubscriptionTree(And((HOT, FAST)), aggregator=Aggregator("harmonic", span=WHERE)),
        'unknown aggregator "harmonic"; did you mean "harmonic_mean"',
    ),
    "weights without their mean": (
        SubscriptionTree(
            And((HOT, PredicateNode(FAST.attribute, FAST.constraint, weight=scalar(2)))),
            aggregator=Aggregator("product"),
        ),
        "weights are for the weighted mean only",
    ),
    "a weight of nothing": (
        SubscriptionTree(
            And((HOT, PredicateNode(FAST.attribute, FAST.constraint, weight=scalar(0))))
        ),
        "a weight must be above 0, not 0",
    ),
    "rule missing": (
        SubscriptionTree(
            And((HOT, FAST, PredicateNode(Name("age"), NamedTerm(Name("old"))))),
            rules=(SugenoRule(1, 2, Scalar(0.5), span=WHERE),),
        ),
        "the rule of patient_temperature and age is missing",
    ),
    "rule of nobody": (
        SubscriptionTree(And((HOT, FAST)), rules=(SugenoRule(1, 7, Scalar(0.5), span=WHERE),)),
        "there is no predicate 7",
    ),
    "rule twice": (
        SubscriptionTree(
            And((HOT, FAST)),
            rules=(SugenoRule(1, 2, Scalar(0.5)), SugenoRule(2, 1, Scalar(0.5), span=WHERE)),
        ),
        "predicates 2 and 1 have a rule already",
    ),
    "rule too steep": (
        SubscriptionTree(
            And((HOT, FAST)), rules=(SugenoRule(1, 2, Scalar(0.5), (scalar(1.0), Scalar(0.0))),)
        ),
        "slope 1 is too steep for patient_temperature",
    ),
    "consequent above 1": (
        SubscriptionTree(And((HOT, FAST)), rules=(SugenoRule(1, 2, scalar(1.5)),)),
        "consequent 1.5 is not between 0 and 1",
    ),
    "rules with an aggregator": (
        SubscriptionTree(
            And((HOT, FAST)),
            rules=(SugenoRule(1, 2, Scalar(0.5)),),
            aggregator=Aggregator("product", span=WHERE),
        ),
        "rules have their own aggregator",
    ),
    "dead band without a predicate": (
        SubscriptionTree(HOT, dead_bands=(DeadBand(name("HR"), Quantity(5.0)),)),
        "heart_rate has a dead band but no predicate",
    ),
    "dead band twice": (
        SubscriptionTree(
            HOT,
            dead_bands=(DeadBand(Name("temp"), Quantity(1.0)), DeadBand(name("T°"), Quantity(2.0))),
        ),
        "patient_temperature has a dead band already",
    ),
    "dead band wider than the domain": (
        SubscriptionTree(HOT, dead_bands=(DeadBand(Name("temp"), number(90.0)),)),
        "the dead band is wider than the domain of patient_temperature",
    ),
    "dead band of a text": (
        SubscriptionTree(
            compare("triage", Text("red"), Operator.EQUAL),
            dead_bands=(DeadBand(Name("triage"), number(1.0)),),
        ),
        "triage is a text and has no dead band",
    ),
    "more hits than samples": (
        SubscriptionTree(HOT, persistence=Persistence(scalar(5), Scalar(3))),
        "5 of 3 samples can never match",
    ),
    "half a sample": (
        SubscriptionTree(HOT, persistence=Persistence(Scalar(1), scalar(2.5))),
        "the window is a whole number from 1 to 15, not 2.5",
    ),
    "score above 1": (SubscriptionTree(HOT, score=scalar(7)), "score 7 is not between 0 and 1"),
    "top of nothing": (SubscriptionTree(HOT, top=scalar(0)), "top is a whole number from 1 to"),
    "preferred to itself": (
        SubscriptionTree(HOT, prefer=(Prefer(Name("a"), Name("a"), span=WHERE),)),
        '"a" cannot be preferred to itself',
    ),
    "duration in metres": (
        SubscriptionTree(HOT, valid_for=number(5, "m")),
        '"m" is a unit of length, not of time',
    ),
    "duration backwards": (
        SubscriptionTree(HOT, valid_for=number(-5)),
        "a duration must be above 0",
    ),
    "duration too long": (
        SubscriptionTree(HOT, valid_for=number(9999, "d")),
        "valid for: a duration is at most 364 days",
    ),
    "unknown phrase of time": (
        SubscriptionTree(HOT, recent=Recent("few secnds", span=WHERE)),
        'unknown phrase of time "few secnds"; did you mean "few seconds"',
    ),
    "recent backwards": (
        SubscriptionTree(HOT, recent=Recent(None, Quantity(60.0), number(30.0))),
        "the second duration must be longer than the first",
    ),
    "unknown function": (
        SubscriptionTree(shape("trapezium", 1, 2, 3, 4)),
        'did you mean "trapezoid"',
    ),
    "points that fall": (
        SubscriptionTree(shape("triangle", 90, 60, 120)),
        "points must be in rising order",
    ),
    "too few points": (
        SubscriptionTree(shape("trapezoid", 1, 2)),
        "trapezoid takes 4 points, not 2",
    ),
    "function outside the domain": (
        SubscriptionTree(shape("triangle", 900, 910, 920)),
        "the core of this triangle lies outside the domain of heart_rate",
    ),
    "unknown extension": (
        SubscriptionTree(PredicateNode(Name("heart_rate"), Extension("nere", span=WHERE))),
        'no plug-in adds the predicate "nere"; did you mean "near"',
    ),
}


CASES = MISTAKES | SETTINGS


@pytest.mark.parametrize("case", CASES)
def test_mistakes_say_what_and_where(case: str) -> None:
    tree, message = CASES[case]
    with pytest.raises(LanguageError) as caught:
        compile_subscription(tree, RESCUE)
    error = caught.value
    assert message in str(error)
    assert (error.at, error.length) == (8, 5)
    assert error.to_reply() == {"ok": False, "error": str(error), "at": 8}


def test_too_many_predicates_point_at_the_first_one_too_many() -> None:
    leaves = [
        PredicateNode(
            Name("heart_rate"),
            About(Quantity(float(30 + 7 * i))),
            span=SourceSpan(10 * i, 10 * i + 9),
        )
        for i in range(20)
    ]
    with pytest.raises(LanguageError) as caught:
        compile_subscription(SubscriptionTree(Or(tuple(leaves))), RESCUE)
    assert "too many predicates: a vector stores at most 16 predicates, not 20" in str(caught.value)
    assert caught.value.at == 161


def test_hostile_depth_and_size_are_refused_and_do_not_recurse_for_ever() -> None:
    condition: Condition = HOT
    for _ in range(300):
        condition = Not(condition)
    with pytest.raises(LanguageError, match="nested too deeply"):
        compile_subscription(SubscriptionTree(condition), RESCUE)
    crowd = Or(
        tuple(PredicateNode(Name("age"), About(Quantity(i % 90 + 1.0))) for i in range(5000))
    )
    with pytest.raises(LanguageError, match="too many predicates"):
        compile_subscription(SubscriptionTree(crowd), RESCUE)


def test_a_weighted_mean_of_alternatives_is_refused() -> None:
    weighted = PredicateNode(FAST.attribute, FAST.constraint, weight=Scalar(2.0))
    with pytest.raises(LanguageError, match='a weighted mean can join predicates by "and" only'):
        compile_subscription(SubscriptionTree(Or((HOT, weighted))), RESCUE)


def test_errors_point_into_the_source() -> None:
    source = "event patient\nheart_rate is hihg"
    error = LanguageError("no such term", 29, 4, suggestions=["high"])
    assert error.locate(source) == (2, 15)
    lines = error.point(source).split("\n")
    assert lines[1] == " " * 14 + "^^^^"
    assert lines[2] == 'no such term; did you mean "high"?'
    assert LanguageError("nowhere").point(source) == "nowhere"
    assert LanguageError("nowhere").to_reply() == {"ok": False, "error": "nowhere", "at": None}


@pytest.mark.parametrize(
    ("wanted", "best"), [("temprature", "temperature"), ("HEART_RAT", "heart_rate"), ("xyz", None)]
)
def test_suggestions_look_alike(wanted: str, best: str | None) -> None:
    found = suggest_names(wanted, ["temperature", "heart_rate", "age"])
    assert (found[0] if found else None) == best


def test_a_duration_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(LanguageError, match="a duration is at most 364 days"):
        read_duration(Quantity(1e308, "d"))


def test_who_chose_all_names_cannot_make_a_suggestion_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    ratio = difflib.SequenceMatcher.ratio

    def count(matcher: difflib.SequenceMatcher[str]) -> float:
        compared.append(matcher)
        return ratio(matcher)

    monkeypatch.setattr(difflib.SequenceMatcher, "ratio", count)
    names = [f"{'ab' * 29}{number:04}" for number in range(1_000)]
    assert len(suggest_names("ab" * 31, names)) == 3
    assert len(compared) <= 2 * 32
    assert suggest_names(f"{'ab' * 29}0770x", names)[0] == names[770]
    assert suggest_names("ab" * 40, names) == []
