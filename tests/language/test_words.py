"""Words: what rescuers write is understood, prints back, and a mistake is answered with help."""

from __future__ import annotations

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language import grammar
from denwatch.client.language.words import MAX_CHARACTERS, MAX_DEPTH, parse_words
from denwatch.client.language.words_printer import print_words
from denwatch.client.plugins import Parameter, PluginRegistry, load_registry
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    CrispComparison,
    CrispRange,
    DeadBand,
    Extension,
    Hedge,
    Moment,
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
    Shape,
    SubscriptionTree,
    SugenoRule,
    Text,
)
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")


def term(attribute: str, name: str, *hedges: Hedge, negated: bool = False) -> PredicateNode:
    return PredicateNode(Name(attribute), NamedTerm(Name(name)), negated, hedges)


def compare(attribute: str, operator: str, value: object, negated: bool = False) -> PredicateNode:
    found = Quantity(value) if isinstance(value, float) else value
    assert isinstance(found, Quantity | Moment | Text)
    return PredicateNode(Name(attribute), CrispComparison(Operator(operator), found), negated)


def refuse(words: str, registry: PluginRegistry | None = None) -> LanguageError:
    """Return the error that words cause, here or in the compiler."""
    with pytest.raises(LanguageError) as caught:
        compile_subscription(parse_words(words, registry), RESCUE)
    return caught.value


A, B, C = term("a", "low"), term("b", "low"), term("c", "low")

CONDITIONS: list[tuple[str, Condition]] = [
    (
        "patient_temperature is very high and heart_rate is not normal",
        And(
            (
                term("patient_temperature", "high", Hedge.VERY),
                term("heart_rate", "normal", negated=True),
            )
        ),
    ),
    (
        "temp above 104 °F or heart_rate between 40 and 50 bpm",
        Or(
            (
                compare("temp", ">", Quantity(104, "°F")),
                PredicateNode(
                    Name("heart_rate"), CrispRange(Quantity(40.0, "bpm"), Quantity(50.0, "bpm"))
                ),
            )
        ),
    ),
    ("smoke is more or less dense", term("smoke", "dense", Hedge.MORE_OR_LESS)),
    ("smoke IS Very EXTREMELY dense", term("smoke", "dense", Hedge.VERY, Hedge.EXTREMELY)),
    ("smoke somewhat dense", term("smoke", "dense", Hedge.SOMEWHAT)),
    ("T° is high", term("T°", "high")),
    ("patient.heart_rate is high", term("patient.heart_rate", "high")),
    ("road access is totally blocked", term("road access", "totally blocked")),
    ("the road access is semi-burning", term("road access", "semi-burning")),
    ('"is" is "not or"', term("is", "not or")),
    # precedence and grouping
    ("a is low and b is low or c is low", Or((And((A, B)), C))),
    ("a is low and (b is low or c is low)", And((A, Or((B, C))))),
    ("(a is low and b is low) and c is low", And((And((A, B)), C))),
    ("not a is low and b is low", And((Not(A), B))),
    ("not (a is low or not b is low)", Not(Or((A, Not(B))))),
    ("a is low && b is low || c is low", Or((And((A, B)), C))),
    # the attribute goes on
    ("a is low or very high", Or((A, term("a", "high", Hedge.VERY)))),
    ("a is low or is not high", Or((A, term("a", "high", negated=True)))),
    ("a is low or not high", Or((A, term("a", "high", negated=True)))),
    ("a below 34 or above 40", Or((compare("a", "<", 34.0), compare("a", ">", 40.0)))),
    ("a is low and b is low or high", Or((And((A, B)), term("b", "high")))),
    # comparisons
    *[
        (f"a {word} 5", compare("a", sign, 5.0))
        for sign, words in {
            ">": (">", "above", "over", "is more than", "is higher than", "exceeds", "rises above"),
            "<": ("<", "below", "under", "is less than", "is lower than", "falls below"),
            ">=": (">=", "≥", "at least", "is no less than"),
            "<=": ("<=", "≤", "at most", "up to"),
            "=": ("=", "==", "is", "equals", "is equal to", "is exactly"),
            "!=": ("!=", "≠", "<>", "differs from"),
        }.items()
        for word in words
    ],
    ("a is falling below 34", compare("a", "<", 34.0)),
    ("a is not above 5", compare("a", ">", 5.0, negated=True)),
    ("a = red", compare("a", "=", Text("red"))),
    ('a != "5 bpm"', compare("a", "!=", Text("5 bpm"))),
    ("a after 9:30", compare("a", ">", Moment("09:30"))),
    ("a before 2026-11-16 14:30", compare("a", "<", Moment("2026-11-16T14:30"))),
    ("a is 2026-11-16", compare("a", "=", Moment("2026-11-16"))),
    # ranges and their dashes
    *[
        (f"a {words}", PredicateNode(Name("a"), CrispRange(Quantity(-4.0), Quantity(5.0))))
        for words in ("between -4 and 5", "from -4 to 5", "is -4 to 5", "is -4-5", "is -4..5")
    ],
    # a unit written once is meant for all
    (
        "a between 100 and 104 °F",
        PredicateNode(Name("a"), CrispRange(Quantity(100.0, "°F"), Quantity(104.0, "°F"))),
    ),
    (
        "a between 100 °F and 104",
        PredicateNode(Name("a"), CrispRange(Quantity(100.0, "°F"), Quantity(104.0, "°F"))),
    ),
    (
        "a between 37 units and 104 °F",
        PredicateNode(Name("a"), CrispRange(Quantity(37.0), Quantity(104.0, "°F"))),
    ),
    ("a about 39", PredicateNode(Name("a"), About(Quantity(39.0)))),
    (
        "a is around 39 °C within 0.5",
        PredicateNode(Name("a"), About(Quantity(39.0, "°C"), Quantity(0.5, "°C"))),
    ),
    (
        "a ~ 14:30 ± 10 min",
        PredicateNode(Name("a"), About(Moment("14:30"), Quantity(10.0, "min"))),
    ),
    (
        "a is rising(37.5, 39.5 °C)",
        PredicateNode(Name("a"), Shape("rising", (Quantity(37.5, "°C"), Quantity(39.5, "°C")))),
    ),
    (
        "wind is near 350 ° within 20",
        PredicateNode(Name("wind"), Extension("near", (Quantity(350.0, "°"), Quantity(20.0, "°")))),
    ),
    (
        "wind in the sector 340 to 20 °",
        PredicateNode(
            Name("wind"), Extension("sector", (Quantity(340.0, "°"), Quantity(20.0, "°")))
        ),
    ),
    ("wind is near(350)", PredicateNode(Name("wind"), Extension("near", (Quantity(350.0),)))),
    (
        "a is low possible 0.6 certain 20 % with weight 3",
        PredicateNode(
            Name("a"),
            NamedTerm(Name("low")),
            possible=Scalar(0.6),
            certain=Scalar(0.2),
            weight=Scalar(3.0),
        ),
    ),
]


@pytest.mark.parametrize(("words", "condition"), CONDITIONS)
def test_a_condition_is_understood_and_prints_back(words: str, condition: Condition) -> None:
    tree = parse_words(words)
    assert tree == SubscriptionTree(condition)
    assert parse_words(print_words(tree)) == tree


@pytest.mark.parametrize("start", ["", "when ", "If the ", "tell me when ", "Notify us whenever "])
@pytest.mark.parametrize("end", ["", ".", " . "])
def test_politeness_means_nothing(start: str, end: str) -> None:
    assert parse_words(f"{start}a is low{end}") == SubscriptionTree(A)


OPTIONS: list[tuple[str, SubscriptionTree]] = [
    ("at least 0.7", SubscriptionTree(A, possible=Scalar(0.7))),
    ("at least 70 %", SubscriptionTree(A, possible=Scalar(0.7))),
    ("possible 0.6, certain 0.2", SubscriptionTree(A, possible=Scalar(0.6), certain=Scalar(0.2))),
    ("at least 0.5, possible 0.6", SubscriptionTree(A, possible=Scalar(0.6))),
    ("by harmonic mean", SubscriptionTree(A, aggregator=Aggregator("harmonic_mean"))),
    ("by the average", SubscriptionTree(A, aggregator=Aggregator("arithmetic_mean"))),
    (
        "by owa(0.5, 0.2)",
        SubscriptionTree(A, aggregator=Aggregator("owa", (Quantity(0.5), Quantity(0.2)))),
    ),
    ("top 5", SubscriptionTree(A, top=Scalar(5.0))),
    ("score 0.8", SubscriptionTree(A, score=Scalar(0.8))),
    ("valid for 2 days", SubscriptionTree(A, valid_for=Quantity(2.0, "days"))),
    ("expires after 10 min", SubscriptionTree(A, expiry=Quantity(10.0, "min"))),
    ("heartbeat 10 min", SubscriptionTree(A, heartbeat=Quantity(10.0, "min"))),
    ("heartbeat every 600", SubscriptionTree(A, heartbeat=Quantity(600.0))),
    ("quiet for 1 min", SubscriptionTree(A, quiet=Quantity(1.0, "min"))),
    (
        "dead band 0.5 °C",
        SubscriptionTree(A, dead_bands=(DeadBand(Name("a"), Quantity(0.5, "°C")),)),
    ),
    (
        "dead band 5 % of b",
        SubscriptionTree(A, dead_bands=(DeadBand(Name("b"), Quantity(5.0, "%")),)),
    ),
    ("relative dead band 5 %", SubscriptionTree(A, relative_band=Scalar(0.05))),
    ("hysteresis 0.1", SubscriptionTree(A, hysteresis=Scalar(0.1))),
    ("3 of 5", SubscriptionTree(A, persistence=Persistence(Scalar(3.0), Scalar(5.0)))),
    ("3 of the last 5", SubscriptionTree(A, persistence=Persistence(Scalar(3.0), Scalar(5.0)))),
    ("recent", SubscriptionTree(A, recent=Recent("recent"))),
    ("in the last few seconds", SubscriptionTree(A, recent=Recent("few seconds"))),
    ("within the last 30 s", SubscriptionTree(A, recent=Recent(None, Quantity(30.0, "s")))),
    (
        "in the last 30 s fading until 2 min",
        SubscriptionTree(A, recent=Recent(None, Quantity(30.0, "s"), Quantity(2.0, "min"))),
    ),
    (
        "prefer A over B over C",
        SubscriptionTree(A, prefer=(Prefer(Name("A"), Name("B")), Prefer(Name("B"), Name("C")))),
    ),
    ("why", SubscriptionTree(A, why=True)),
    ("event patient, named fever", SubscriptionTree(A, event=Name("patient"), name=Name("fever"))),
    ("rule 1 with 2 gives 0.5", SubscriptionTree(A, rules=(SugenoRule(1, 2, Scalar(0.5)),))),
    (
        "rule 1 with 2 gives 0.5 slopes 0.1 and -0.2",
        SubscriptionTree(A, rules=(SugenoRule(1, 2, Scalar(0.5), (Scalar(0.1), Scalar(-0.2))),)),
    ),
]


@pytest.mark.parametrize(("words", "tree"), OPTIONS)
def test_an_option_is_understood_and_prints_back(words: str, tree: SubscriptionTree) -> None:
    assert parse_words(f"a is low, {words}") == tree
    assert parse_words(print_words(tree)) == tree


def test_time_may_follow_the_condition_without_a_comma() -> None:
    assert parse_words("a is low recently") == SubscriptionTree(A, recent=Recent("recent"))
    tree = parse_words("a is low in the last few minutes, top 3")
    assert tree == SubscriptionTree(A, recent=Recent("few minutes"), top=Scalar(3.0))


def test_a_long_subscription_reads_as_a_rescuer_writes_it() -> None:
    words = (
        "when patient_temperature is very high or T° below 34 °C and heart_rate is not normal, "
        "at least 0.7, certain 0.2, top 5, valid for 2 days, dead band 0.5 °C of T°, 3 of 5, "
        "quiet for 1 min, prefer fever over burns, named fever, score 0.8."
    )
    compiled = compile_subscription(parse_words(words), RESCUE)
    assert compiled.options.to_dict() == {
        "name": "fever",
        "score": 0.8,
        "top": 5,
        "prefer": [["fever", "burns"]],
    }


# Errors ------------------------------------------------------------------------------------------

ERRORS = [
    # unknown names
    ("patient_temprature is high", 1, "unknown attribute", "patient_temperature"),
    ("heart_rate is high and smoek is dense", 24, "unknown attribute", "smoke"),
    ("patient_temperature is very hihg", 29, 'has no term "hihg"', "high"),
    ("triage is rde", 11, 'has no symbol "rde"', "red"),
    ("heart_rate is high, event pateint", 27, "unknown event", "patient"),
    # wrong types
    ("patient_temperature above high", 27, "is a fuzzy term", "write: is high"),
    ("patient_temperature above red", 27, "is a number", ""),
    ("triage above red", 8, "have no order", ""),
    ("triage = 5", 10, "is a text", "green"),
    ("heart_rate after 14:30", 18, "is a number", ""),
    ("heart_rate is very above 120", 1, "needs a fuzzy set", ""),
    # domain and units
    ("heart_rate above 400", 18, "outside the domain", "0 to 255 bpm"),
    ("heart_rate above 120 °C", 18, "is a unit of temperature", "bpm"),
    ("heart_rate above 120 bmp", 18, "unknown unit", "bpm"),
    ("age above 12 kg", 11, "has no unit", ""),
    # sets that are empty, thresholds that cannot be met, more than a vector holds
    ("heart_rate between 50 and 40", 12, "empty set", "never match"),
    ("heart_rate above 255", 12, "empty set", "never match"),
    ("heart_rate above 100 and heart_rate below 50", 26, "empty set", ""),
    ("heart_rate is high, at least 0.3, certain 0.9", 43, "certain", ""),
    ("heart_rate is high, at least 1.7", 30, "1.7", ""),
    (
        " or ".join(f"heart_rate = {value}" for value in range(101, 135, 2)),
        321,
        "too many predicates",
        "",
    ),
    # grammar
    ("(heart_rate is high", 1, 'this "(" is never closed', ""),
    ("a is low and (b is low or (c is low)", 14, 'this "(" is never closed', ""),
    ("heart_rate is high) or a is low", 19, 'this ")" has no matching "("', ""),
    ('a is "low', 6, "quotes are never closed", ""),
    ("heart_rate iz high", 12, '"iz" is not understood', "is"),
    ("a is low adn b is low", 10, '"adn" is not understood', "and"),
    ("a is low, topp 5", 11, '"topp" is not understood', "top"),
    ("a is low, at leest 0.7", 11, '"at leest" is not understood', "at least"),
    ("a is low, b is low", 11, "an option is expected", 'joined by "and"'),
    ("a is low, top 5, top 6", 18, '"top" is given twice', ""),
    ("a is low possible 1 possible 0", 21, '"possible" is given twice', ""),
    ("a above 39,5 °C", 11, "write decimals with a point", ""),
    ("a is", 5, "ends too early", "a term, a value or a comparison"),
    ("a is low or", 12, "ends too early", "an attribute"),
    ("a between 4", 12, "ends too early", '"and"'),
    ("", 1, "ends too early", "an attribute"),
    ("a is lo$w", 8, '"$" is not allowed here', ""),
    ("a is 40 bpm foo", 13, '"foo" is not allowed here', '"and"'),
    ("very high", 1, "which attribute?", "it stands first"),
    ("a is low and b is low, dead band 5", 24, "of which attribute", "add"),
    ("a is low, rule 0 with 2 gives 1", 16, "counted from 1", ""),
    ('a is "\\q"', 6, "in quotes", ""),
    ("a above 1e999", 9, "too large", ""),
    ("a is \x00low", 6, '"character 0x0000" is not allowed here', ""),
    ("a is low " + "." * 99, 10, '"' + "." * 30 + '…" is not allowed here', ""),
    ("wind is near 350 to 20", 18, '"near" does not accept this argument', "within"),
    ("wind is near 350 within 20 within 3", 28, '"near" does not accept this argument', "too many"),
    ("a is low " + "x" * MAX_CHARACTERS, MAX_CHARACTERS + 1, "is the limit", ""),
    ("(" * 60 + "a is low" + ")" * 60, MAX_DEPTH + 2, "nested more than", ""),
    ("not " * 1500 + "a is low", 4 * MAX_DEPTH + 5, "nested more than", ""),
]


@pytest.mark.parametrize(("words", "column", "message", "help_"), ERRORS)
def test_an_error_points_and_helps(words: str, column: int, message: str, help_: str) -> None:
    error = refuse(words)
    assert message in error.message
    assert error.at == column
    assert help_ in error.describe()


def test_an_error_shows_the_line_with_a_caret() -> None:
    words = "heart_rate is high\nand smoek is dense"
    error = refuse(words)
    assert error.locate(words) == (2, 5)
    shown = error.point(words).splitlines()
    assert shown[:2] == ["and smoek is dense", "    ^^^^^"]


def test_every_node_knows_where_it_was_written() -> None:
    words = "heart_rate is very high and not (T° above 104 °F)"
    condition = parse_words(words).condition
    assert isinstance(condition, And)
    first, second = condition.operands
    assert isinstance(first, PredicateNode)
    assert isinstance(second, Not)
    assert isinstance(second.operand, PredicateNode)
    inner = second.operand.constraint
    assert isinstance(inner, CrispComparison)
    spans = [first.span, first.attribute.span, second.span, inner.value.span]
    texts = [words[span.start : span.end] for span in spans if span]
    assert texts == ["heart_rate is very high", "heart_rate", "not (T° above 104 °F)", "104 °F"]


# The grammar's tables ----------------------------------------------------------------------------


def test_the_shipped_tables_are_those_of_the_grammar() -> None:
    # After a change of words.lark: python -m denwatch.client.language.grammar
    assert f'"of":"{grammar.digest_grammar()}"' in grammar.TABLES.read_text(encoding="utf-8")


def test_other_tables_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "digest_grammar", lambda: "another grammar")
    built = []
    build = grammar.build_parser
    monkeypatch.setattr(grammar, "build_parser", lambda: built.append(1) or build())
    grammar.load_tables()
    assert built == [1]


class Gentle:
    """A plug-in's constraint, for the grammar alone."""

    name = "gentle"
    words = ("from", "gently sloping at", "gentle")
    tag = "gentle"
    parameters = (Parameter("start", "starting"), Parameter("end", "to", optional=True))


def test_a_plugin_adds_words_and_the_core_keeps_its_own() -> None:
    registry = PluginRegistry(predicates={"gentle": Gentle()})  # type: ignore[dict-item]
    tree = parse_words("a is gently  sloping at starting 3 m to 5", registry)
    expected = Extension("gentle", (Quantity(3.0, "m"), Quantity(5.0, "m")))
    assert tree.condition == PredicateNode(Name("a"), expected)
    assert print_words(tree, registry) == "a is gently sloping at starting 3 to 5 m"
    plain = parse_words("a from 3 to 5", registry).condition
    assert plain == PredicateNode(Name("a"), CrispRange(Quantity(3.0), Quantity(5.0)))
    assert parse_words("starting is low", load_registry()) == SubscriptionTree(
        term("starting", "low")
    )
