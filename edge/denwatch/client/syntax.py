"""The abstract syntax of subscriptions: what words, XML, JSON and the builder all produce.

Frozen dataclasses, nothing else: no vocabulary, no arithmetic, no text. Numbers keep the value and
the unit that were written and names keep the spelling that was written: units and synonyms are
resolved by `client.compiler` and nowhere else. Every node may carry the span of source text
that it came from; spans are for error messages and never count in a comparison.

A surface raises `client.errors.LanguageError` for what it cannot parse; whether names, types
and values make sense is the compiler's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """Characters start..end (end excluded) of the source, counted from 0."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """Base of every node: where it was written, if anywhere."""

    span: SourceSpan | None = field(default=None, compare=False, repr=False, kw_only=True)


# Names and values ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name(SyntaxNode):
    """An event, attribute, term, symbol or subscription as it was called.

    An attribute may be qualified by its event, "patient.heart_rate".
    """

    text: str


@dataclass(frozen=True, slots=True)
class Quantity(SyntaxNode):
    """A number with the unit that was written; None means the attribute's own unit.

    For durations None means seconds.
    """

    value: float
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Text(SyntaxNode):
    """A text value: one of the symbols of a text attribute."""

    value: str


@dataclass(frozen=True, slots=True)
class Moment(SyntaxNode):
    """A date, a time of day, or both, as ISO 8601 text.

    "2026-11-16", "14:30", "14:30:15", "2026-11-16T14:30".
    """

    text: str


Value: TypeAlias = Quantity | Text | Moment


@dataclass(frozen=True, slots=True)
class Scalar(SyntaxNode):
    """A plain number: a threshold, weight, score, share (0..1 each but weights) or count."""

    value: float


# Constraints: what may follow an attribute -----------------------------------------------------


class Operator(StrEnum):
    """The crisp comparisons."""

    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    EQUAL = "="
    UNEQUAL = "!="


@dataclass(frozen=True, slots=True)
class CrispComparison(SyntaxNode):
    """Crisp: `< 35`, `>= 40 °C`, `= red`, `!= red`, `> 14:30`."""

    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class CrispRange(SyntaxNode):
    """Crisp: between low and high, both included."""

    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class NamedTerm(SyntaxNode):
    """A fuzzy term of the vocabulary: `high`. A symbol of a text attribute may stand here too."""

    name: Name


@dataclass(frozen=True, slots=True)
class About(SyntaxNode):
    """Around a value: full there, nothing at `spread` or more from it.

    Without a spread the attribute's own is taken.
    """

    value: Value
    spread: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Shape(SyntaxNode):
    """A membership function given by its parameters, in the attribute's unit or the one written.

    Kinds of the core and their points:
    `trapezoid` a b c d, `triangle` a b c,
    `falling` c d (full up to c, nothing from d), `rising` a b (nothing up to a, full from b),
    `bell` centre width slope (1 / (1 + |(x - centre) / width| ** (2 slope))),
    `gaussian` mean sigma,
    `fuzzifier` low high gamma, maybe a second gamma: the vector's own triple (DENS paper, Eq. 1),
    with which every vector can be written down; gamma is 0.57 to 57, or 255 for a vertical side.
    A plug-in may add kinds. Points of a trapezoid may lie outside the domain.
    """

    kind: str
    points: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Extension(SyntaxNode):
    """A constraint of a plug-in: its name and its arguments in the order the plug-in declares."""

    name: str
    arguments: tuple[Value, ...] = ()


Constraint: TypeAlias = CrispComparison | CrispRange | NamedTerm | About | Shape | Extension


# Conditions ------------------------------------------------------------------------------------


class Hedge(StrEnum):
    """Modifiers of a fuzzy set. "Somewhat" is the same root as "more or less"."""

    VERY = "very"  # mu ** 2
    EXTREMELY = "extremely"  # mu ** 3
    MORE_OR_LESS = "more or less"  # mu ** 0.5
    SOMEWHAT = "somewhat"  # mu ** 0.5


@dataclass(frozen=True, slots=True)
class PredicateNode(SyntaxNode):
    """One constraint on one attribute: `heart_rate is not very high possible 0.6 certain 0.2`.

    `hedges` stand as written, so the last one acts first; the negation acts after all of them.
    The thresholds are on this predicate's own degree, negation included. They hold wherever the
    predicate stands: if one is not met, the subscription does not match. `recent` says how old the
    attribute's last reading may be; without it, it must be of the same time as what is sent.
    """

    attribute: Name
    constraint: Constraint
    negated: bool = False
    hedges: tuple[Hedge, ...] = ()
    possible: Scalar | None = None
    certain: Scalar | None = None
    weight: Scalar | None = None
    recent: Recent | None = None


@dataclass(frozen=True, slots=True)
class And(SyntaxNode):
    """All of two or more conditions, combined by the subscription's aggregator."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or(SyntaxNode):
    """One of two or more conditions: the highest degree."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not(SyntaxNode):
    """The contrary of a condition."""

    operand: Condition


Condition: TypeAlias = PredicateNode | And | Or | Not


# Subscriptions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aggregator(SyntaxNode):
    """How `and` combines: one of AGGREGATORS, or the name of a plug-in's, with its arguments."""

    name: str
    arguments: tuple[Quantity, ...] = ()


AGGREGATORS = (
    *("minimum", "maximum", "product", "arithmetic_mean", "geometric_mean", "harmonic_mean"),
    "weighted_mean",
)


@dataclass(frozen=True, slots=True)
class SugenoRule(SyntaxNode):
    """The Takagi-Sugeno consequent of one pair of predicates.

    `first` and `second` count predicates as written, from 1. The consequent is
    `constant + slopes[0] * x + slopes[1] * y`, where x and y are the two attributes' values in
    their own units and 1 is a full degree; without slopes it is the constant alone (zero order).
    Every pair of predicates needs its rule.
    """

    first: int
    second: int
    constant: Scalar
    slopes: tuple[Scalar, Scalar] | None = None


@dataclass(frozen=True, slots=True)
class Recent(SyntaxNode):
    """A temporal restrictor: by a phrase that the vocabulary knows, or by durations.

    With a phrase ("recent", "few seconds", "few minutes", "few hours") the durations are None.
    Else a reading counts fully until it is `within` old, and not at all from `gone` on; without
    `gone` the end is as sharp as the vector allows.
    """

    phrase: str | None = None
    within: Quantity | None = None
    gone: Quantity | None = None


@dataclass(frozen=True, slots=True)
class DeadBand(SyntaxNode):
    """Do not send again while this attribute has moved by less than `width`."""

    attribute: Name
    width: Quantity


@dataclass(frozen=True, slots=True)
class Persistence(SyntaxNode):
    """N of M: report only if `hits` of the last `window` samples matched."""

    hits: Scalar
    window: Scalar


@dataclass(frozen=True, slots=True)
class Prefer(SyntaxNode):
    """ "Prefer A over B": two of the subscriber's subscriptions, by name."""

    better: Name
    worse: Name


@dataclass(frozen=True, slots=True)
class SubscriptionTree(SyntaxNode):
    """A whole subscription. Everything but the condition may be left out.

    Without `possible` the threshold is 0.5 (or `certain`, if that is higher); without an event it
    follows from the attributes; without an aggregator it is the minimum, or the weighted mean
    where predicates have weights, or the rules' fuzzy mean where there are rules.
    """

    condition: Condition
    event: Name | None = None
    name: Name | None = None
    aggregator: Aggregator | None = None
    possible: Scalar | None = None  # "at least 0.7", "possible 0.7"
    certain: Scalar | None = None
    rules: tuple[SugenoRule, ...] = ()
    recent: Recent | None = None
    score: Scalar | None = None
    prefer: tuple[Prefer, ...] = ()
    top: Scalar | None = None  # a whole number
    valid_for: Quantity | None = None  # how long the subscription lives
    expiry: Quantity | None = None  # how long a notification delivered for it counts
    dead_bands: tuple[DeadBand, ...] = ()
    relative_band: Scalar | None = None  # share of the last value sent, 0..1
    hysteresis: Scalar | None = None  # degrees below the threshold at which a match ends
    persistence: Persistence | None = None
    heartbeat: Quantity | None = None
    quiet: Quantity | None = None
    why: bool = False
    whole: bool = False  # notifications have all values, not only those that somebody names


def iterate_predicates(condition: Condition) -> Iterator[PredicateNode]:
    """Yield the predicates of a condition in the order they were written."""
    match condition:
        case PredicateNode():
            yield condition
        case Not(operand=operand):
            yield from iterate_predicates(operand)
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                yield from iterate_predicates(operand)
