"""A catalogue of mistakes in names, types, values and sets, each with the message it must get.

In every tree the culprit stands at WHERE: column 8, five characters.
"""

from __future__ import annotations

from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    CrispComparison,
    CrispRange,
    Hedge,
    Moment,
    Name,
    NamedTerm,
    Operator,
    Or,
    PredicateNode,
    Quantity,
    Scalar,
    Shape,
    SourceSpan,
    SubscriptionTree,
    Text,
)

HOT = PredicateNode(Name("patient_temperature"), NamedTerm(Name("high")))
FAST = PredicateNode(Name("heart_rate"), NamedTerm(Name("high")))
WHERE = SourceSpan(7, 12)


def name(text: str) -> Name:
    return Name(text, span=WHERE)


def number(value: float, unit: str | None = None) -> Quantity:
    return Quantity(value, unit, span=WHERE)


def scalar(value: float) -> Scalar:
    return Scalar(value, span=WHERE)


def compare(
    attribute: str, value: Quantity | Text | Moment, operator: Operator = Operator.GREATER
) -> PredicateNode:
    return PredicateNode(Name(attribute), CrispComparison(operator, value, span=WHERE))


def shape(kind: str, *points: float) -> PredicateNode:
    return PredicateNode(Name("heart_rate"), Shape(kind, tuple(map(Quantity, points)), span=WHERE))


def marked(condition: PredicateNode) -> PredicateNode:
    return PredicateNode(
        condition.attribute, condition.constraint, condition.negated, condition.hedges, span=WHERE
    )


MISTAKES: dict[str, tuple[SubscriptionTree, str]] = {
    "unknown attribute": (
        SubscriptionTree(PredicateNode(name("hart_rate"), NamedTerm(Name("high")))),
        'unknown attribute "hart_rate"; did you mean "heart_rate"',
    ),
    "unknown attribute of the event": (
        SubscriptionTree(PredicateNode(name("puls"), NamedTerm(Name("high"))), Name("patient")),
        'unknown attribute "puls" of event patient; did you mean "pulse"',
    ),
    "attribute of another event": (
        SubscriptionTree(And((HOT, PredicateNode(name("smoke"), NamedTerm(Name("dense")))))),
        '"smoke" belongs to event fire, but the attributes before it belong to patient',
    ),
    "attribute of several events": (
        SubscriptionTree(
            PredicateNode(name("east"), CrispComparison(Operator.LESS, Quantity(9.0)))
        ),
        '"east" is an attribute of several events (add one of them: event patient, fire, gas,',
    ),
    "unknown event": (
        SubscriptionTree(HOT, name("patent")),
        'unknown event "patent"; did you mean "patient"',
    ),
    "unknown term": (
        SubscriptionTree(PredicateNode(Name("heart_rate"), NamedTerm(name("hihg")))),
        'heart_rate has no term "hihg"; did you mean "high"',
    ),
    "unknown term, nothing like it": (
        SubscriptionTree(PredicateNode(Name("heart_rate"), NamedTerm(name("purple")))),
        'heart_rate has no term "purple" (there are low, normal, high, very_high)',
    ),
    "unknown symbol": (
        SubscriptionTree(compare("triage", Text("redd", span=WHERE), Operator.EQUAL)),
        'triage has no symbol "redd"; did you mean "red"',
    ),
    "text for a number": (
        SubscriptionTree(compare("heart_rate", Text("green", span=WHERE))),
        'heart_rate is a number, "green" is not',
    ),
    "number for a text": (
        SubscriptionTree(compare("triage", number(3), Operator.EQUAL)),
        "triage is a text, 3 is not (one of green, yellow, red, black)",
    ),
    "date for a number": (
        SubscriptionTree(compare("heart_rate", Moment("2026-11-16", span=WHERE))),
        "heart_rate is a number, 2026-11-16 is not",
    ),
    "number for a time": (
        SubscriptionTree(compare("measured_at", number(14))),
        "measured_at is a time of day, 14 is not",
    ),
    "not a time": (
        SubscriptionTree(compare("measured_at", Moment("25:99", span=WHERE))),
        '"25:99" is not a time such as 14:30',
    ),
    "term in a comparison": (
        SubscriptionTree(compare("heart_rate", Text("high", span=WHERE), Operator.EQUAL)),
        '"high" is a fuzzy term (write: is high)',
    ),
    "order of unordered symbols": (
        SubscriptionTree(compare("triage", Text("red"))),
        "the symbols of triage have no order (use = or !=)",
    ),
    "fuzzy set on a text": (
        SubscriptionTree(PredicateNode(Name("triage"), About(Quantity(3.0), span=WHERE))),
        "triage is a text and has no fuzzy sets",
    ),
    "hedge on a crisp comparison": (
        SubscriptionTree(
            PredicateNode(
                Name("heart_rate"),
                CrispComparison(Operator.LESS, Quantity(9.0)),
                False,
                (Hedge.VERY,),
                span=WHERE,
            )
        ),
        '"very" needs a fuzzy set',
    ),
    "out of domain": (
        SubscriptionTree(compare("patient_temperature", number(400, "°C"))),
        "400 °C is outside the domain of patient_temperature (it goes from 25 to 50.5 °C)",
    ),
    "out of domain after conversion": (
        SubscriptionTree(compare("patient_temperature", number(20, "°F"))),
        "20 °F is outside the domain",
    ),
    "not a number": (
        SubscriptionTree(compare("heart_rate", number(float("nan")))),
        "nan is not a finite number",
    ),
    "unit of something else": (
        SubscriptionTree(compare("heart_rate", number(9, "km/h"))),
        'heart_rate is in bpm: "km/h" is a unit of speed, not of rate (units: bpm, /min, Hz, /h)',
    ),
    "unknown unit": (
        SubscriptionTree(compare("patient_temperature", number(39, "°D"))),
        'unknown unit "°D"',
    ),
    "unit where there is none": (
        SubscriptionTree(compare("age", number(9, "h"))),
        'age has no unit, "h" is written here',
    ),
    "empty range": (
        SubscriptionTree(
            PredicateNode(
                Name("heart_rate"), CrispRange(Quantity(90.0), Quantity(60.0), span=WHERE)
            )
        ),
        "empty set: 90 is above 60 (it can never match)",
    ),
    "nothing above the top": (
        SubscriptionTree(compare("heart_rate", Quantity(255.0))),
        "empty set: no value of heart_rate is > 255",
    ),
    "nothing left by two predicates": (
        SubscriptionTree(
            And(
                (
                    compare("heart_rate", Quantity(150.0)),
                    marked(compare("heart_rate", Quantity(90.0), Operator.LESS)),
                )
            )
        ),
        "empty set: no value of heart_rate can satisfy this (the subscription can never match)",
    ),
    "nothing left of all alternatives": (
        SubscriptionTree(
            Or(
                (
                    And(
                        (
                            compare("heart_rate", Quantity(150.0)),
                            compare("heart_rate", Quantity(90.0), Operator.LESS),
                        )
                    ),
                    And(
                        (
                            compare("age", Quantity(60.0)),
                            marked(compare("age", Quantity(5.0), Operator.LESS)),
                        )
                    ),
                )
            )
        ),
        "empty set: no value of age",
    ),
    "nothing left beside alternatives on the same attribute": (
        SubscriptionTree(
            And(
                (
                    compare("heart_rate", Quantity(150.0)),
                    Or(
                        (
                            compare("heart_rate", Quantity(90.0), Operator.LESS),
                            marked(compare("heart_rate", Quantity(60.0), Operator.LESS)),
                        )
                    ),
                )
            )
        ),
        "empty set: no value of heart_rate can satisfy this (the subscription can never match)",
    ),
    "nothing left under a product": (
        SubscriptionTree(
            And(
                (
                    compare("heart_rate", Quantity(150.0)),
                    marked(PredicateNode(Name("heart_rate"), NamedTerm(Name("low")))),
                )
            ),
            aggregator=Aggregator("product"),
        ),
        "empty set: no value of heart_rate",
    ),
}
