"""Subscriptions in Python: a fluent surface over the same syntax tree.

    from denwatch.client.language.builder import attribute, when

    fever = attribute("patient_temperature").is_("high").very()
    pulse = attribute("heart_rate").is_not("normal").weight(2)
    subscription = when(fever & pulse).at_least(0.7).top(5).valid_for(2, "days").build()

`&`, `|` and `~` join conditions; a chain of one of them is one node, `all_of` and `any_of` keep the
grouping that they are given. Builders are never changed: every call returns a new one.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import is_moment, read_hedge

Plain: TypeAlias = (
    float | str | datetime.date | datetime.time | syntax.Quantity | syntax.Text | syntax.Moment
)


def quantity(value: float, unit: str | None = None) -> syntax.Quantity:
    """Return a number with its unit; None is the attribute's own, or seconds for durations."""
    return syntax.Quantity(_check_number(value), unit)


def text(value: str) -> syntax.Text:
    """Return a text, also where it looks like a date or a time."""
    return syntax.Text(value)


@dataclass(frozen=True)
class ConditionBuilder:
    """A condition; `chained` means that an operator of Python made its outermost node."""

    tree: syntax.Condition
    chained: bool = False

    def __and__(self, other: ConditionBuilder) -> ConditionBuilder:
        return ConditionBuilder(
            syntax.And((*self._unchain(syntax.And), *other._unchain(syntax.And))), True
        )

    def __or__(self, other: ConditionBuilder) -> ConditionBuilder:
        return ConditionBuilder(
            syntax.Or((*self._unchain(syntax.Or), *other._unchain(syntax.Or))), True
        )

    def __invert__(self) -> ConditionBuilder:
        return ConditionBuilder(syntax.Not(self.tree))

    def __bool__(self) -> bool:
        raise TypeError('conditions are joined by "&", "|" and "~", not by "and", "or" and "not"')

    def _unchain(self, kind: type[syntax.And] | type[syntax.Or]) -> tuple[syntax.Condition, ...]:
        if self.chained and isinstance(self.tree, kind):
            return self.tree.operands
        return (self.tree,)


@dataclass(frozen=True)
class PredicateBuilder(ConditionBuilder):
    """A predicate, which also takes hedges, thresholds and a weight."""

    tree: syntax.PredicateNode

    def very(self) -> PredicateBuilder:
        """Put "very" before what is said so far."""
        return self.hedged(syntax.Hedge.VERY)

    def extremely(self) -> PredicateBuilder:
        """Put "extremely" before what is said so far."""
        return self.hedged(syntax.Hedge.EXTREMELY)

    def more_or_less(self) -> PredicateBuilder:
        """Put "more or less" before what is said so far."""
        return self.hedged(syntax.Hedge.MORE_OR_LESS)

    def somewhat(self) -> PredicateBuilder:
        """Put "somewhat" before what is said so far."""
        return self.hedged(syntax.Hedge.SOMEWHAT)

    def hedged(self, *hedges: str) -> PredicateBuilder:
        """Put hedges before what is said so far; the last one acts first."""
        new = tuple(read_hedge(hedge, None) for hedge in hedges)
        return self._with(hedges=new + self.tree.hedges)

    def negated(self) -> PredicateBuilder:
        """Turn "is" into "is not" and back."""
        return self._with(negated=not self.tree.negated)

    def possible(self, degree: float) -> PredicateBuilder:
        """Ask that this predicate is possible at least to a degree."""
        return self._with(possible=_scalar(degree))

    def certain(self, degree: float) -> PredicateBuilder:
        """Ask that this predicate is certain at least to a degree."""
        return self._with(certain=_scalar(degree))

    def weight(self, weight: float) -> PredicateBuilder:
        """Give the predicate a weight in the weighted mean."""
        return self._with(weight=_scalar(weight))

    def recent(self, phrase: str = "recent") -> PredicateBuilder:
        """Let the attribute's last reading count while it is recent, by a phrase."""
        return self._with(recent=syntax.Recent(phrase))

    def in_the_last(
        self, value: float, unit: str | None = None, gone: syntax.Quantity | None = None
    ) -> PredicateBuilder:
        """Let the attribute's last reading count until it is so old."""
        return self._with(recent=syntax.Recent(None, quantity(value, unit), gone))

    def _with(self, **changes: Any) -> PredicateBuilder:
        return PredicateBuilder(replace(self.tree, **changes))


@dataclass(frozen=True)
class AttributeBuilder:
    """An attribute that waits for its constraint."""

    name: syntax.Name

    def is_(self, term: str, *hedges: str) -> PredicateBuilder:
        """Ask for a fuzzy term: `is_("high", "very")`."""
        return self._constrain(syntax.NamedTerm(syntax.Name(term))).hedged(*hedges)

    def is_not(self, term: str, *hedges: str) -> PredicateBuilder:
        """Ask for the contrary of a fuzzy term."""
        return self.is_(term, *hedges).negated()

    def above(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for more than a value."""
        return self.compare(syntax.Operator.GREATER, value, unit)

    def below(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for less than a value."""
        return self.compare(syntax.Operator.LESS, value, unit)

    def at_least(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a value or more."""
        return self.compare(syntax.Operator.AT_LEAST, value, unit)

    def at_most(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a value or less."""
        return self.compare(syntax.Operator.AT_MOST, value, unit)

    def equals(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for exactly a value."""
        return self.compare(syntax.Operator.EQUAL, value, unit)

    def differs_from(self, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for anything but a value."""
        return self.compare(syntax.Operator.UNEQUAL, value, unit)

    def compare(self, operator: str, value: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a crisp comparison by its sign: `compare(">=", 40)`."""
        return self._constrain(
            syntax.CrispComparison(syntax.Operator(operator), _value(value, unit))
        )

    def between(self, low: Plain, high: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a crisp range, both ends included."""
        return self._constrain(syntax.CrispRange(_value(low, unit), _value(high, unit)))

    def about(
        self, value: Plain, unit: str | None = None, within: float | syntax.Quantity | None = None
    ) -> PredicateBuilder:
        """Ask for a value or one near it: nothing from `within` away on."""
        spread = quantity(within, unit) if isinstance(within, int | float) else within
        return self._constrain(syntax.About(_value(value, unit), spread))

    def shaped(self, kind: str, *points: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a membership function by its points: `shaped("rising", 38, 40)`."""
        return self._constrain(syntax.Shape(kind, tuple(_value(point, unit) for point in points)))

    def extended(self, name: str, *arguments: Plain, unit: str | None = None) -> PredicateBuilder:
        """Ask for a constraint of a plug-in: `extended("near", 350, 20)`."""
        values = tuple(_value(argument, unit) for argument in arguments)
        return self._constrain(syntax.Extension(name, values))

    def _constrain(self, constraint: syntax.Constraint) -> PredicateBuilder:
        return PredicateBuilder(syntax.PredicateNode(self.name, constraint))


@dataclass(frozen=True)
class SubscriptionBuilder:
    """A whole subscription; `build` returns its syntax tree."""

    tree: syntax.SubscriptionTree

    def build(self) -> syntax.SubscriptionTree:
        """Return the syntax tree, for the compiler."""
        return self.tree

    def event(self, name: str) -> SubscriptionBuilder:
        """Say which event the attributes belong to."""
        return self._with(event=syntax.Name(name))

    def named(self, name: str) -> SubscriptionBuilder:
        """Give the subscription a name, for `prefer`."""
        return self._with(name=syntax.Name(name))

    def by(self, aggregator: str, *arguments: float | syntax.Quantity) -> SubscriptionBuilder:
        """Combine "and" by an aggregator: `by("harmonic_mean")`."""
        quantities = (a if isinstance(a, syntax.Quantity) else quantity(a) for a in arguments)
        return self._with(aggregator=syntax.Aggregator(aggregator, tuple(quantities)))

    def at_least(self, degree: float) -> SubscriptionBuilder:
        """Ask for a degree of possibility; without uncertainty, for the degree itself."""
        return self._with(possible=_scalar(degree))

    def certain(self, degree: float) -> SubscriptionBuilder:
        """Ask for a degree of necessity."""
        return self._with(certain=_scalar(degree))

    def rule(
        self, first: int, second: int, constant: float, slopes: tuple[float, float] | None = None
    ) -> SubscriptionBuilder:
        """Add the Takagi-Sugeno consequent of two predicates, counted from 1."""
        pair = None if slopes is None else (_scalar(slopes[0]), _scalar(slopes[1]))
        rule = syntax.SugenoRule(first, second, _scalar(constant), pair)
        return self._with(rules=(*self.tree.rules, rule))

    def recent(self, phrase: str = "recent") -> SubscriptionBuilder:
        """Ask for readings that are recent, by a phrase of the vocabulary."""
        return self._with(recent=syntax.Recent(phrase))

    def in_the_last(
        self, value: float, unit: str | None = None, gone: syntax.Quantity | None = None
    ) -> SubscriptionBuilder:
        """Ask for readings so old at most, fading out until `gone`."""
        return self._with(recent=syntax.Recent(None, quantity(value, unit), gone))

    def score(self, score: float) -> SubscriptionBuilder:
        """Say how much the subscription is worth among the subscriber's."""
        return self._with(score=_scalar(score))

    def prefer(self, better: str, worse: str) -> SubscriptionBuilder:
        """Prefer one of the subscriber's subscriptions over another."""
        return self._with(
            prefer=(*self.tree.prefer, syntax.Prefer(syntax.Name(better), syntax.Name(worse)))
        )

    def top(self, count: float) -> SubscriptionBuilder:
        """Deliver the best so many only."""
        return self._with(top=_scalar(count))

    def valid_for(self, value: float, unit: str | None = None) -> SubscriptionBuilder:
        """Say how long the subscription lives."""
        return self._with(valid_for=quantity(value, unit))

    def expires_after(self, value: float, unit: str | None = None) -> SubscriptionBuilder:
        """Say how long a notification counts."""
        return self._with(expiry=quantity(value, unit))

    def dead_band(self, name: str, width: float, unit: str | None = None) -> SubscriptionBuilder:
        """Send nothing new while the attribute moves by less."""
        band = syntax.DeadBand(syntax.Name(name), quantity(width, unit))
        return self._with(dead_bands=(*self.tree.dead_bands, band))

    def relative_band(self, share: float) -> SubscriptionBuilder:
        """Send nothing new while values move by less than a share of themselves."""
        return self._with(relative_band=_scalar(share))

    def hysteresis(self, degrees: float) -> SubscriptionBuilder:
        """Let a match end only so far below the threshold."""
        return self._with(hysteresis=_scalar(degrees))

    def persist(self, hits: float, window: float) -> SubscriptionBuilder:
        """Report only if so many of the last samples matched."""
        return self._with(persistence=syntax.Persistence(_scalar(hits), _scalar(window)))

    def heartbeat(self, value: float, unit: str | None = None) -> SubscriptionBuilder:
        """Send at least so often while it matches."""
        return self._with(heartbeat=quantity(value, unit))

    def quiet_for(self, value: float, unit: str | None = None) -> SubscriptionBuilder:
        """Send at most so often."""
        return self._with(quiet=quantity(value, unit))

    def why(self) -> SubscriptionBuilder:
        """Ask each notification which attribute decided."""
        return self._with(why=True)

    def whole(self) -> SubscriptionBuilder:
        """Ask for all values of a reading, not only those that somebody names."""
        return self._with(whole=True)

    def _with(self, **changes: Any) -> SubscriptionBuilder:
        return SubscriptionBuilder(replace(self.tree, **changes))


def attribute(name: str) -> AttributeBuilder:
    """Begin a predicate on an attribute, by any of its names."""
    return AttributeBuilder(syntax.Name(name))


def when(condition: ConditionBuilder) -> SubscriptionBuilder:
    """Begin a subscription."""
    return SubscriptionBuilder(syntax.SubscriptionTree(condition.tree))


def all_of(*conditions: ConditionBuilder) -> ConditionBuilder:
    """Join two or more conditions by "and", as one group."""
    return ConditionBuilder(syntax.And(_check_two(conditions)))


def any_of(*conditions: ConditionBuilder) -> ConditionBuilder:
    """Join two or more conditions by "or", as one group."""
    return ConditionBuilder(syntax.Or(_check_two(conditions)))


def _check_two(conditions: tuple[ConditionBuilder, ...]) -> tuple[syntax.Condition, ...]:
    if len(conditions) < 2:
        raise LanguageError("two or more conditions are needed")
    return tuple(condition.tree for condition in conditions)


def _check_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LanguageError(f"{value!r} is not a number")
    return float(value)


def _scalar(value: float) -> syntax.Scalar:
    return syntax.Scalar(_check_number(value))


def _value(value: Plain, unit: str | None) -> syntax.Value:
    """Return a plain Python value as a value of the syntax."""
    if isinstance(value, syntax.Quantity | syntax.Text | syntax.Moment):
        return value
    if isinstance(value, str):
        return syntax.Moment(value) if is_moment(value) else syntax.Text(value)
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return syntax.Moment(value.isoformat())
    return quantity(value, unit)
