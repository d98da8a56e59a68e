"""A catalogue of mistakes in names, types, values and sets, each with the message it must get.

In every tree the culprit stands at WHERE: column 8, five characters.
"""

from __future__ import annotations

from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Comparison,
    Hedge,
    Moment,
    Name,
    Operator,
    Or,
    Predicate,
    Quantity,
    Range,
    Scalar,
    Shape,
    Span,
    Subscription,
    Term,
    Text,
)

HOT = Predicate(Name("patient_temperature"), Term(Name("high")))
FAST = Predicate(Name("heart_rate"), Term(Name("high")))
WHERE = Span(7, 12)


def name(text: str) -> Name:
    return Name(text, span=WHERE)


def number(value: float, unit: str | None = None) -> Quantity:
    return Quantity(value, unit, span=WHERE)


def scalar(value: float) -> Scalar:
    return Scalar(value, span=WHERE)


def compare(
    attribute: str, value: Quantity | Text | Moment, operator: Operator = Operator.GREATER
) -> Predicate:
    return Predicate(Name(attribute), Comparison(operator, value, span=WHERE))


def shape(kind: str, *points: float) -> Predicate:
    return Predicate(Name("heart_rate"), Shape(kind, tuple(map(Quantity, points)), span=WHERE))


def marked(condition: Predicate) -> Predicate:
    return Predicate(
        condition.attribute, condition.constraint, condition.negated, condition.hedges, span=WHERE
    )


MISTAKES: dict[str, tuple[Subscription, str]] = {
    "unknown attribute": (
        Subscription(Predicate(name("hart_rate"), Term(Name("high")))),
        'unknown attribute "hart_rate"; did you mean "heart_rate"',
    ),
    "unknown attribute of the event": (
        Subscription(Predicate(name("puls"), Term(Name("high"))), Name("patient")),
        'unknown attribute "puls" of event patient; did you mean "pulse"',
    ),
    "attribute of another event": (
        Subscription(And((HOT, Predicate(name("smoke"), Term(Name("dense")))))),
        '"smoke" belongs to event fire, what stands before it to patient',
    ),
    "attribute of several events": (
        Subscription(Predicate(name("east"), Comparison(Operator.LESS, Quantity(9.0)))),
        '"east" is an attribute of several events (say which: event patient, fire, gas,',
    ),
    "unknown event": (
        Subscription(HOT, name("patent")),
        'unknown event "patent"; did you mean "patient"',
    ),
    "unknown term": (
        Subscription(Predicate(Name("heart_rate"), Term(name("hihg")))),
        'heart_rate has no term "hihg"; did you mean "high"',
    ),
    "unknown term, nothing like it": (
        Subscription(Predicate(Name("heart_rate"), Term(name("purple")))),
        'heart_rate has no term "purple" (there are low, normal, high, very_high)',
    ),
    "unknown symbol": (
        Subscription(compare("triage", Text("redd", span=WHERE), Operator.EQUAL)),
        'triage has no symbol "redd"; did you mean "red"',
    ),
    "text for a number": (
        Subscription(compare("heart_rate", Text("green", span=WHERE))),
        'heart_rate is a number, "green" is not',
    ),
    "number for a text": (
        Subscription(compare("triage", number(3), Operator.EQUAL)),
        "triage is a text, 3 is not (one of green, yellow, red, black)",
    ),
    "date for a number": (
        Subscription(compare("heart_rate", Moment("2026-11-16", span=WHERE))),
        "heart_rate is a number, 2026-11-16 is not",
    ),
    "number for a time": (
        Subscription(compare("measured_at", number(14))),
        "measured_at is a time of day, 14 is not",
    ),
    "not a time": (
        Subscription(compare("measured_at", Moment("25:99", span=WHERE))),
        '"25:99" is not a time such as 14:30',
    ),
    "term in a comparison": (
        Subscription(compare("heart_rate", Text("high", span=WHERE), Operator.EQUAL)),
        '"high" is a fuzzy term (write: is high)',
    ),
    "order of unordered symbols": (
        Subscription(compare("triage", Text("red"))),
        "the symbols of triage have no order (use = or !=)",
    ),
    "fuzzy set on a text": (
        Subscription(Predicate(Name("triage"), About(Quantity(3.0), span=WHERE))),
        "triage is a text and has no fuzzy sets",
    ),
    "hedge on a crisp comparison": (
        Subscription(
            Predicate(
                Name("heart_rate"),
                Comparison(Operator.LESS, Quantity(9.0)),
                False,
                (Hedge.VERY,),
                span=WHERE,
            )
        ),
        '"very" needs a fuzzy set',
    ),
    "out of domain": (
        Subscription(compare("patient_temperature", number(400, "°C"))),
        "400 °C is outside the domain of patient_temperature (it goes from 25 to 50.5 °C)",
    ),
    "out of domain after conversion": (
        Subscription(compare("patient_temperature", number(20, "°F"))),
        "20 °F is outside the domain",
    ),
    "not a number": (
        Subscription(compare("heart_rate", number(float("nan")))),
        "nan is not a finite number",
    ),
    "unit of something else": (
        Subscription(compare("heart_rate", number(9, "km/h"))),
        'heart_rate is in bpm: "km/h" is a unit of speed, not of rate (units: bpm, /min, Hz, /h)',
    ),
    "unknown unit": (
        Subscription(compare("patient_temperature", number(39, "°D"))),
        'unknown unit "°D"',
    ),
    "unit where there is none": (
        Subscription(compare("age", number(9, "h"))),
        'age has no unit, "h" is written here',
    ),
    "empty range": (
        Subscription(
            Predicate(Name("heart_rate"), Range(Quantity(90.0), Quantity(60.0), span=WHERE))
        ),
        "empty set: 90 is above 60 (it can never match)",
    ),
    "nothing above the top": (
        Subscription(compare("heart_rate", Quantity(255.0))),
        "empty set: no value of heart_rate is > 255",
    ),
    "nothing left by two predicates": (
        Subscription(
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
        Subscription(
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
    "nothing left under a product": (
        Subscription(
            And(
                (
                    compare("heart_rate", Quantity(150.0)),
                    marked(Predicate(Name("heart_rate"), Term(Name("low")))),
                )
            ),
            aggregator=Aggregator("product"),
        ),
        "empty set: no value of heart_rate",
    ),
}
