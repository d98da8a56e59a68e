"""XML: the DENS paper's shape, valid by the shipped schema; whatever is hostile is refused."""

from __future__ import annotations

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language.words import parse_words
from denwatch.client.language.xml import parse_xml
from denwatch.client.language.xml_printer import print_xml
from denwatch.client.language.xml_source import MAX_CHARACTERS, MAX_DEPTH, SCHEMA
from denwatch.client.plugins import Lowered, Parameter, PluginRegistry
from denwatch.client.syntax import (
    Aggregator,
    And,
    Condition,
    Hedge,
    Name,
    NamedTerm,
    Not,
    Or,
    PredicateNode,
    Quantity,
    Recent,
    Shape,
    SubscriptionTree,
)
from denwatch.client.vocabulary import load_shipped
from lxml import etree

RESCUE = load_shipped("rescue")

# The example of the DENS paper, section 4.2, with names that XML allows, numbers in the places of
# "width", "left" and "right", and two attributes more, as its subscription of 17 bytes has.
PAPER = """<?xml version="1.0" encoding="UTF-8"?>
<Subscription>
  <Approximate-Predicate>
    <Attribute type="fuzzy variable"> Patient_Temperature
      <Fuzzy-Terms>low, high, very_high</Fuzzy-Terms>
      <Domain_min> 30 °C </Domain_min>
      <Domain_max>50 °C</Domain_max>
      <Fuzzy-Set> <term>low </term>
        <Fuzzifier> trapezoidal (1, 30, 35)</Fuzzifier> </Fuzzy-Set>
      <Fuzzy-Set> <term>high </term>
        <Fuzzifier> triangular (2, 40)</Fuzzifier> </Fuzzy-Set>
      <Fuzzy-Set> <term>very_high</term>
        <Hedge>Very </Hedge><term>high </term> </Fuzzy-Set>
    </Attribute>
    <term>very_high</term>
  </Approximate-Predicate>
  <Approximate-Predicate>
    <Attribute type="fuzzy variable">heart_rate</Attribute>
    <Relational-operator>is not</Relational-operator>
    <term>normal</term>
  </Approximate-Predicate>
  <crisp-predicate>
    <Attribute type="crisp variable">oxygen_saturation</Attribute>
    <Comparison operator="&lt;">92 %</Comparison>
  </crisp-predicate>
  <aggregating-function>harmonic_mean</aggregating-function>
</Subscription>
"""


def wrap(inside: str) -> str:
    predicate = f"<Approximate-Predicate>{inside}</Approximate-Predicate>"
    return f"<Subscription>{predicate}</Subscription>"


def one(constraint: str, attribute: str = "<Attribute>heart_rate</Attribute>") -> str:
    return wrap(f"{attribute}{constraint}")


def test_the_papers_example_compiles_to_17_bytes_at_most() -> None:
    tree = parse_xml(PAPER)
    high = Shape("triangle", (Quantity(38.0), Quantity(40.0), Quantity(42.0)))
    assert tree.aggregator == Aggregator("harmonic_mean")
    assert isinstance(tree.condition, And)
    first, second, third = tree.condition.operands
    assert first == PredicateNode(Name("Patient_Temperature"), high, hedges=(Hedge.VERY,))
    assert second == PredicateNode(Name("heart_rate"), NamedTerm(Name("normal")), negated=True)
    words = parse_words("oxygen_saturation < 92 %").condition
    assert third == words
    assert len(compile_subscription(tree, RESCUE).data) <= 17


def test_what_is_printed_is_valid_and_reads_back() -> None:
    words = (
        "(patient_temperature is not very high possible 0.6 certain 0.2 or T° above 104 °F) "
        "and not (pain between 3 and 5) and glucose is about 5 within 1 mmol/L "
        "and pain is rising(6, 8) and triage is red weight 2, "
        "event patient, named fever, by owa(0.5), at least 0.7, certain 0.1, recent, score 0.8, "
        "top 5, prefer a over b, valid for 2 days, expires after 10 min, dead band 0.5 °C of T°, "
        "relative band 0.05, hysteresis 0.1, 3 of 5, heartbeat 10 min, quiet for 1 min, why, "
        "rule 1 with 2 gives 0.5 slopes 0.1 and -0.2"
    )
    tree = parse_words(words)
    text = print_xml(tree)
    assert parse_xml(text) == tree
    schema = etree.XMLSchema(etree.parse(SCHEMA))
    schema.assertValid(etree.fromstring(text.encode()))
    assert (
        "<Predicate-pattern>(p1 or p2) and not p3 and p4 and p5 and p6</Predicate-pattern>" in text
    )


def test_a_self_contained_document_says_domain_terms_and_fuzzifiers() -> None:
    tree = parse_words("temp is very high and triage is red and measured_at after 14:30")
    text = print_xml(tree, vocabulary=RESCUE)
    assert "<Fuzzy-Terms>very_low, low, normal, high, very_high</Fuzzy-Terms>" in text
    assert "<Domain_min>25 °C</Domain_min>" in text
    assert "<Fuzzifier>rising(37.5, 39.5 °C)</Fuzzifier>" in text
    assert "<term>very_high</term><Hedge>very</Hedge><term>high</term>" in text
    assert "<Fuzzy-Terms>green, yellow, red, black</Fuzzy-Terms>" in text
    etree.XMLSchema(etree.parse(SCHEMA)).assertValid(etree.fromstring(text.encode()))
    again = compile_subscription(parse_xml(text), RESCUE)
    assert again.data == compile_subscription(tree, RESCUE).data


def test_a_derived_term_is_written_as_its_hedge_and_its_base() -> None:
    tree = parse_words("heart_rate is very_high")
    text = print_xml(tree, vocabulary=RESCUE)
    assert parse_xml(text) == parse_words("heart_rate is very rising(100, 140 bpm)")


@pytest.mark.parametrize(
    ("fuzzifier", "shape"),
    [
        ("trapezoidal(2, 38, 40 °C)", ("trapezoid", (36.0, 38.0, 40.0, 42.0), "°C")),
        ("triangular (2, 40)", ("triangle", (38.0, 40.0, 42.0), None)),
        ("Trapezoidal(0, 38, 38)", ("trapezoid", (38.0, 38.0, 38.0, 38.0), None)),
        ("trapezoid(1, 2, 3, 4 m)", ("trapezoid", (1.0, 2.0, 3.0, 4.0), "m")),
        ("gaussian(5, 1.25)", ("gaussian", (5.0, 1.25), None)),
    ],
)
def test_fuzzifiers(fuzzifier: str, shape: tuple[str, tuple[float, ...], str | None]) -> None:
    kind, points, unit = shape
    condition = parse_xml(one(f"<Fuzzifier>{fuzzifier}</Fuzzifier>")).condition
    assert isinstance(condition, PredicateNode)
    assert condition.constraint == Shape(kind, tuple(Quantity(p, unit) for p in points))


@pytest.mark.parametrize(
    ("operator", "negated", "hedges", "recent"),
    [
        ("is", False, (), None),
        ("is not", True, (), None),
        ("more or less", False, (Hedge.MORE_OR_LESS,), None),
        ("is not very", True, (Hedge.VERY,), None),
        ("last few seconds", False, (), Recent("few seconds")),
        ("is in the last few minutes", False, (), Recent("few minutes")),
    ],
)
def test_the_papers_relational_operators(
    operator: str, negated: bool, hedges: tuple[Hedge, ...], recent: Recent | None
) -> None:
    tree = parse_xml(one(f"<Relational-operator>{operator}</Relational-operator><term>low</term>"))
    predicate = PredicateNode(Name("heart_rate"), NamedTerm(Name("low")), negated, hedges)
    assert tree == SubscriptionTree(predicate, recent=recent)


P = [PredicateNode(Name(name), NamedTerm(Name("low"))) for name in "abcd"]


@pytest.mark.parametrize(
    ("pattern", "condition"),
    [
        ("c1d2", And((P[0], Or((P[1], P[2]))))),
        ("c2d1", Or((And((P[0], P[1])), P[2]))),
        ("d2c1", And((Or((P[0], P[1])), P[2]))),
        ("c2c2", Or((And((P[0], P[1])), And((P[2], P[3]))))),
        ("d3c1", And((Or((P[0], P[1], P[2])), P[3]))),
        ("p1 and p2 or p3", Or((And((P[0], P[1])), P[2]))),
        ("p1 AND (p2 or not p3)", And((P[0], Or((P[1], Not(P[2])))))),
        ("not not p1", Not(Not(P[0]))),
        ("p1 or p1", Or((P[0], P[0]))),
    ],
)
def test_predicate_patterns(pattern: str, condition: Condition) -> None:
    count = 4 if pattern in ("c2c2", "d3c1") else 3 if "3" in pattern or "c1" in pattern else 1
    count = 3 if pattern in ("c1d2", "c2d1") else count
    predicates = "".join(
        f"<Approximate-Predicate><Attribute>{name}</Attribute><term>low</term></Approximate-Predicate>"
        for name in "abcd"[:count]
    )
    text = (
        f"<Subscription>{predicates}<Predicate-pattern>{pattern}</Predicate-pattern></Subscription>"
    )
    assert parse_xml(text).condition == condition


LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>' + one("<term>&c;</term>")
)
EXTERNAL = '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + one("<term>&x;</term>")
TERM = "<term>low</term>"


def pattern(text: str) -> str:
    inside = f"<Predicate-pattern>{text}</Predicate-pattern></Subscription>"
    return one(TERM).replace("</Subscription>", inside)


# HERE marks the place that the error must point at; it is taken out before parsing.
HERE = "¦"
ERRORS = [
    # hostile
    (HERE + LAUGHS, "document type declaration is refused"),
    (HERE + EXTERNAL, "document type declaration is refused"),
    ("\n\n" + HERE + LAUGHS, "document type declaration is refused"),
    ('¦<!DOCTYPE s SYSTEM "http://example.org/s.dtd"><s/>', "document type declaration"),
    ('<?xml version="1.0"?>¦<?php evil ?>' + one(TERM), "processing instruction is refused"),
    ("<a>" * MAX_DEPTH + HERE + "<a>" * 5000, "nested more than"),
    (f"<a>{'x' * (MAX_CHARACTERS - 3)}¦</a>", "is the limit"),
    (one("<term>¦&nbsp;</term>"), "undefined entity"),
    (one("<term>¦\x01</term>"), "not well-formed"),
    # not well-formed, not valid
    ("<Subscription>¦", "no element found"),
    ("<Subscription></¦Wrong>", "mismatched tag"),
    ("¦<Wrong/>", "No matching global declaration"),
    ("¦<Subscription/>", "Missing child element"),
    (one("¦<term/>"), "<term>"),
    (one("¦<trem>low</trem>"), "not expected. Expected is one of ( Relational-operator"),
    ("¦" + one(TERM).replace("<Subscription", '<Subscription color="red"'), "color"),
    (one(TERM).replace("<Approximate-Predicate", '¦<Approximate-Predicate weight="x"'), "weight"),
    (wrap("¦<Attribute/><term>low</term>"), "has no name"),
    # meaning
    (one("<Hedge>¦vrey</Hedge><term>low</term>"), 'did you mean "very"?'),
    (one("<Fuzzifier>¦trapezoid</Fuzzifier>"), "kind(value, ...)"),
    (one("<Fuzzifier>¦triangular(1)</Fuzzifier>"), "needs the numbers (width, center)"),
    (one("<Fuzzifier>¦trapezoidal(1, 5, 3)</Fuzzifier>"), "an empty set"),
    (one("<Fuzzifier>¦triangular(1 m, 3 s)</Fuzzifier>"), "one unit"),
    (one('¦<Fuzzifier kind="x">y(1)</Fuzzifier>'), "not both"),
    (one('<About spread="¦wide">5</About>'), "not a number with a unit"),
    (one('¦<near spread="5"/>'), "The attribute 'centre' is required"),
    (
        one(TERM, "<Attribute>a<Domain_min>5</Domain_min><Domain_max>¦4</Domain_max></Attribute>"),
        "the domain is empty",
    ),
    (
        one(
            TERM,
            "<Attribute>a<Fuzzy-Terms>b</Fuzzy-Terms><Fuzzy-Set><term>¦c</term>"
            "<Fuzzifier>rising(1,2)</Fuzzifier></Fuzzy-Set></Attribute>",
        ),
        '<Fuzzy-Terms> does not list "c"',
    ),
    (
        one(
            "<term>¦low</term>",
            "<Attribute>a<Fuzzy-Set><term>low</term><Hedge>very</Hedge><term>low</term>"
            "</Fuzzy-Set></Attribute>",
        ),
        "is defined by itself",
    ),
    (one(TERM).replace("</Sub", "<Why/>¦<Why/></Sub"), "<Why> appears twice"),
    (pattern("¦p2"), "no p2"),
    (pattern("p1 or¦"), "the end"),
    (pattern("¦(p1"), "never closed"),
    (pattern("p1 ¦xor p1"), '"x" means nothing'),
    (pattern("p1 ¦p1"), "not expected"),
    (pattern("¦c2d1"), "joins 3 predicates, there are 1"),
    (pattern("¦c1d1"), "not one of the kind"),
    # found by the compiler
    (one("<term>¦lwo</term>"), 'did you mean "low"?'),
    (one(TERM, "<Attribute>\n  ¦hart_rate</Attribute>"), 'did you mean "heart_rate"'),
    (one("<Fuzzifier>¦rising(300, 400)</Fuzzifier>"), "outside the domain"),
]


@pytest.mark.parametrize(("marked", "message"), ERRORS)
def test_an_error_points(marked: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_subscription(parse_xml(marked.replace(HERE, "")), RESCUE)
    assert message in caught.value.describe()
    assert caught.value.at == marked.index(HERE) + 1


def test_an_error_in_a_file_names_its_line() -> None:
    text = PAPER.replace("normal", "nromal")
    with pytest.raises(LanguageError) as caught:
        compile_subscription(parse_xml(text), RESCUE)
    assert caught.value.locate(text) == (20, 11)
    assert caught.value.point(text).splitlines()[0].strip() == "<term>nromal</term>"


def test_tags_are_taken_without_their_case() -> None:
    assert parse_xml(PAPER.replace("Approximate-Predicate", "APPROXIMATE-predicate")) == parse_xml(
        PAPER
    )


class Wave:
    """A membership function of a plug-in."""

    name, words, tag = "wave", (), "Wave"
    parameters = (Parameter("crest"), Parameter("length", optional=True))


class Yager:
    """An aggregator of a plug-in."""

    name, words, tag = "yager", ("the yager way",), "Yager"
    parameters = (Parameter("exponent", "to"),)

    def lower(self, operands: tuple[Condition, ...], _: object) -> Lowered:
        return Lowered(And(operands))


def test_plug_ins_bring_their_tags() -> None:
    registry = PluginRegistry(shapes={"wave": Wave()}, aggregators={"yager": Yager()})  # type: ignore[dict-item]
    text = one('<Wave crest="5 m" length="2 m"/>').replace(
        "</Sub", '<Aggregating-function><Yager exponent="2"/></Aggregating-function></Sub'
    )
    tree = parse_xml(text, registry)
    shape = Shape("wave", (Quantity(5.0, "m"), Quantity(2.0, "m")))
    assert tree == SubscriptionTree(
        PredicateNode(Name("heart_rate"), shape), aggregator=Aggregator("yager", (Quantity(2.0),))
    )
    printed = print_xml(tree, registry)
    assert '<Wave crest="5 m" length="2 m"/>' in printed
    assert parse_xml(printed, registry) == tree
    assert parse_words("heart_rate is wave(5, 2 m), by the yager way to 2", registry) == tree
    with pytest.raises(LanguageError, match="<Wave>"):
        parse_xml(text)
