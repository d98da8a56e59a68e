"""The Python surface: every call says one thing, builders are never changed."""

from __future__ import annotations

import datetime

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language.builder import (
    PredicateBuilder,
    all_of,
    any_of,
    attribute,
    quantity,
    text,
    when,
)
from denwatch.client.language.words import parse_words
from denwatch.client.syntax import And, Not, Or, SubscriptionTree
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
A, B, C = (attribute(name).is_("low") for name in "abc")


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (attribute("a").is_("high"), "a is high"),
        (attribute("a").is_("high", "very", "somewhat"), "a is very somewhat high"),
        (attribute("a").is_("high").somewhat().very(), "a is very somewhat high"),
        (attribute("a").is_("high").more_or_less().extremely(), "a is extremely more or less high"),
        (attribute("a").is_not("high"), "a is not high"),
        (attribute("a").is_not("high").negated(), "a is high"),
        (attribute("a").above(104, "°F"), "a above 104 °F"),
        (attribute("a").below(-5), "a below -5"),
        (attribute("a").at_least(5), "a at least 5"),
        (attribute("a").at_most(5), "a at most 5"),
        (attribute("a").equals("red"), "a = red"),
        (attribute("a").differs_from(text("14:30")), 'a != "14:30"'),
        (attribute("a").compare("<=", 5), "a at most 5"),
        (attribute("a").between(40, 50, "bpm"), "a between 40 and 50 bpm"),
        (attribute("a").between(quantity(40), quantity(5, "m")), "a between 40 units and 5 m"),
        (attribute("a").about(39, "°C"), "a about 39 °C"),
        (attribute("a").about(39, "°C", within=0.5), "a about 39 °C within 0.5 °C"),
        (attribute("a").about("14:30", within=quantity(5, "min")), "a about 14:30 within 5 min"),
        (attribute("a").above(datetime.date(2026, 11, 16)), "a after 2026-11-16"),
        (attribute("a").below(datetime.time(9, 30)), "a before 09:30:00"),
        (
            attribute("a").above(datetime.datetime(2026, 11, 16, 9, 30)),
            "a after 2026-11-16T09:30:00",
        ),
        (attribute("a").shaped("rising", 38, 40, unit="°C"), "a is rising(38, 40 °C)"),
        (attribute("a").extended("near", 350, 20, unit="°"), "a is near 350 within 20 °"),
        (
            attribute("a").is_("low").possible(0.6).certain(0.2).weight(3),
            "a is low possible 0.6 certain 0.2 weight 3",
        ),
    ],
)
def test_a_predicate_is_what_the_words_say(predicate: PredicateBuilder, words: str) -> None:
    assert when(predicate).build() == parse_words(words)


def test_operators_chain_and_functions_group() -> None:
    a, b, c = A.tree, B.tree, C.tree
    assert (A & B & C).tree == And((a, b, c))
    assert (A | B | C).tree == Or((a, b, c))
    assert (A & (B | C)).tree == And((a, Or((b, c))))
    assert (all_of(A, B) & C).tree == And((And((a, b)), c))
    assert any_of(A, any_of(B, C)).tree == Or((a, Or((b, c))))
    assert (~A & ~(B & C)).tree == And((Not(a), Not(And((b, c)))))


def test_every_option() -> None:
    tree = (
        when(A & B)
        .event("patient")
        .named("fever")
        .by("owa", 0.5)
        .at_least(0.7)
        .certain(0.2)
        .rule(1, 2, 0.5, (0.1, -0.2))
        .in_the_last(30, "s", gone=quantity(2, "min"))
        .score(0.8)
        .prefer("fever", "burns")
        .prefer("burns", "smoke")
        .top(5)
        .valid_for(2, "days")
        .expires_after(600)
        .dead_band("a", 0.5, "°C")
        .dead_band("b", 1)
        .relative_band(0.05)
        .hysteresis(0.1)
        .persist(3, 5)
        .heartbeat(10, "min")
        .quiet_for(1, "min")
        .why()
        .build()
    )
    assert tree == parse_words(
        "a is low and b is low, event patient, named fever, by owa(0.5), at least 0.7, "
        "certain 0.2, rule 1 with 2 gives 0.5 slopes 0.1 and -0.2, "
        "in the last 30 s fading until 2 min, score 0.8, prefer fever over burns over smoke, "
        "top 5, valid for 2 days, expires after 600, dead band 0.5 °C of a, dead band 1 of b, "
        "relative band 0.05, hysteresis 0.1, 3 of 5, heartbeat 10 min, quiet for 1 min, why"
    )
    assert when(A).recent().build() == parse_words("a is low, recent")
    assert when(A).recent("few hours").build() == parse_words("a is low in the last few hours")


def test_builders_are_never_changed() -> None:
    start = when(A)
    start.top(5)
    A.very()
    assert start.build() == SubscriptionTree(A.tree)
    assert A.tree.hedges == ()


def test_mistakes_are_refused() -> None:
    with pytest.raises(LanguageError, match="nan is not a number"):
        attribute("a").above(float("nan"))
    with pytest.raises(LanguageError, match="True is not a number"):
        when(A).top(True)
    with pytest.raises(LanguageError, match='unknown hedge "vrey"; did you mean "very"'):
        attribute("a").is_("high", "vrey")
    with pytest.raises(LanguageError, match="two or more"):
        all_of(A)
    with pytest.raises(TypeError, match="not by"):
        bool(A)
    with pytest.raises(LanguageError, match='did you mean "heart_rate"') as caught:
        compile_subscription(when(attribute("hart_rate").is_("low")).build(), RESCUE)
    assert caught.value.at is None
