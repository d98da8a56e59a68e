"""From an attribute's unit to a sensor's steps, in whole numbers: the ends of a channel.

Exact fractions throughout; a float is the decimal that people wrote. What cannot be expressed is
refused with the reason, what had to be rounded is told. Pure; only this file calculates steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from denwatch.cli.devices.sensors import COUNTS, Accuracy, Field
from denwatch.cli.devices.words import Amount, Clause, Sense
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Attribute, ValueKind
from denwatch.client.vocabulary.values import Unit, find_unit

_LAST = (1 << 30) - 1  # what MicroPython counts to without allocating, on 32 bits
_FINEST = 100_000  # of the scales of a CSV column that are tried


@dataclass(frozen=True)
class Scale:
    """What a sensor's numbers mean: number = zero + value / step, the value in `unit`."""

    step: Fraction
    unit: str | None
    zero: Fraction = Fraction(0)

    def to_number(self, value: Fraction) -> Fraction:
        """Return where a value lies among the sensor's numbers."""
        return self.zero + value / self.step

    def to_value(self, number: Fraction | int) -> Fraction:
        """Return the value of a number."""
        return (number - self.zero) * self.step


@dataclass(frozen=True)
class Ends:
    """The numbers of a channel, as `denwatch.watchdog.sources.Channel` takes them."""

    low: int
    high: int
    lowest: int
    highest: int
    typical: int = 0
    worst: int = 0
    notes: tuple[str, ...] = ()


def to_fraction(number: float) -> Fraction:
    """Return the decimal that a float was written as."""
    return Fraction(repr(number))


def convert(value: Fraction, source: str | None, target: str | None) -> Fraction:
    """Return a value in another unit of the same dimension."""
    if source is None or target is None or source == target:
        return value
    a, b = find_unit(source), find_unit(target)
    return (value * _factor(a) + _offset(a) - _offset(b)) / _factor(b)


def convert_width(value: Fraction, source: str | None, target: str | None) -> Fraction:
    """Return a difference in another unit of the same dimension."""
    return convert(value, source, target) - convert(Fraction(0), source, target)


def _factor(unit: Unit) -> Fraction:
    return Fraction(unit.factor).limit_denominator(10**12)  # 5/9 again, not its float


def _offset(unit: Unit) -> Fraction:
    return Fraction(unit.offset).limit_denominator(10**12)


def check_units(attribute: Attribute, unit: str | None, what: str, span: SourceSpan | None) -> None:
    """Refuse a unit that does not measure what the attribute does."""
    if unit is None:
        return
    if attribute.unit is None:
        raise LanguageError.at_span(f"{attribute.name} has no unit, {what} is in {unit}", span)
    wanted, given = find_unit(attribute.unit).dimension, find_unit(unit).dimension
    if wanted != given:
        raise LanguageError.at_span(
            f"{attribute.name} is a {wanted} in {attribute.unit}, {what} is a {given} in {unit}",
            span,
        )


def read_points(attribute: Attribute, clause: Clause) -> Scale:
    """Return the scale of two points, `with 0 bar at 6553 and 300 bar at 58982`."""
    first, low, second, high = clause.amounts
    unit = first.unit or attribute.unit
    for amount in (first, second):
        check_units(attribute, amount.unit, "what is written here", amount.span)
    start = first.value
    rise = convert(second.value, second.unit, unit) - start
    run = high.value - low.value
    if not rise or not run:
        raise LanguageError.at_span(
            "the two points are one: two that differ are needed", clause.span
        )
    if rise / run < 0:
        raise LanguageError.at_span(
            f"{attribute.name} falls while the numbers rise, and a channel needs both to rise",
            clause.span,
            "turn the voltage divider round; a gpio may be inverted",
        )
    return Scale(rise / run, unit, low.value - start * run / rise)


def read_step(attribute: Attribute, clause: Clause) -> Scale:
    """Return the scale of `step 0.01 °C`."""
    amount = clause.amounts[0]
    check_units(attribute, amount.unit, "the step", amount.span)
    if amount.value <= 0:
        raise LanguageError.at_span("a step is above 0", amount.span)
    return Scale(amount.value, amount.unit or attribute.unit)


def choose_scale(attribute: Attribute, unit: str | None, sense: Sense) -> int:
    """Return the smallest power of ten by which a CSV column is whole: ends and accuracy."""
    values = [convert(to_fraction(end), attribute.unit, unit) for end in _list_ends(attribute)]
    clause = sense.find("accuracy")
    for amount in clause.amounts if clause else ():
        values.append(convert_width(amount.value, amount.unit, unit))
    scale = 1
    while (values[1] - values[0]) * scale < attribute.last:
        scale *= 10
    fine = scale
    while scale <= _FINEST:
        if all((value * scale).denominator == 1 for value in values):
            return scale
        scale *= 10
    return 10 * fine  # nothing is exact: a tenth of what the wire tells apart


def _list_ends(attribute: Attribute) -> tuple[float, float]:
    return attribute.low, attribute.high


def fit_symbols(attribute: Attribute, field: Field | None, span: SourceSpan | None) -> Ends:
    """Return the channel of a text: a number is the symbol of that number, from 0."""
    last = len(attribute.symbols) - 1
    if field is not None and field.high is not None:
        last = min(last, int(field.high))
    if last < 1:
        raise LanguageError.at_span(f"{attribute.name} has one symbol only", span)
    shown = ", ".join(f"{i} {symbol}" for i, symbol in enumerate(attribute.symbols[: last + 1]))
    note = f"{attribute.name}: {shown}; any other number is a fault"
    return Ends(0, attribute.last, 0, last, notes=(note,))


def fit_ends(
    attribute: Attribute, scale: Scale, field: Field | None, sense: Sense, limit: int = _LAST
) -> Ends:
    """Return the channel of a number; LanguageError where the domain cannot be expressed."""
    assert attribute.kind is ValueKind.NUMBER
    ends = [convert(to_fraction(end), attribute.unit, scale.unit) for end in _list_ends(attribute)]
    exact = [scale.to_number(end) for end in ends]
    low, high = (_round(number) for number in exact)
    if low >= high:
        raise LanguageError.at_span(
            f"{attribute.name} goes from {attribute.describe_domain()}, and that is "
            f"{_show(exact[1] - exact[0])} of a step: its values cannot be told apart",
            sense.source.span,
        )
    if max(abs(low), abs(high)) > limit:
        raise LanguageError.at_span(
            f"{attribute.name} would go from {low} to {high} in steps; {limit} is the last number",
            sense.source.span,
            "choose a larger step, or a larger unit",
        )
    notes = []
    if exact != [low, high]:
        notes.append(
            f"{attribute.name}: {attribute.describe_domain()} is {_show(exact[0])} to "
            f"{_show(exact[1])} in steps; the nearest whole ones are taken"
        )
    lowest, highest = _find_range(attribute, scale, field, sense, low, high)
    typical, worst = _find_accuracy(attribute, scale, field, sense, (ends[0], ends[1]))
    return Ends(low, high, lowest, highest, typical, worst, tuple(notes))


def _find_range(
    attribute: Attribute, scale: Scale, field: Field | None, sense: Sense, low: int, high: int
) -> tuple[int, int]:
    """Return the numbers that a working sensor gives; any other one is a fault."""
    clause = sense.find("range")
    if clause is not None:
        first, last = (_read(amount, attribute, scale) for amount in clause.amounts)
        lowest, highest = math.ceil(scale.to_number(first)), math.floor(scale.to_number(last))
    elif field is not None and field.low is not None and field.high is not None:
        if field.unit is not None:
            lowest = math.floor(scale.to_number(field.low))
            highest = math.ceil(scale.to_number(field.high))
        else:
            lowest, highest = int(field.low), int(field.high)
        if field.name == "count":  # at a rail the wire is broken, unless the domain goes there
            lowest, highest = max(lowest, min(1, low)), min(highest, max(COUNTS - 1, high))
    elif attribute.period is not None:  # 359.9° is a direction, although the domain ends before
        whole = to_fraction(attribute.low) + to_fraction(attribute.period)
        lowest = low
        highest = _round(scale.to_number(convert(whole, attribute.unit, scale.unit)))
    else:
        return low, high
    if lowest >= high or highest <= low or lowest >= highest:
        span = clause.span if clause else sense.source.span
        shown = f"{_show(scale.to_value(lowest))} to {_show(scale.to_value(highest))}"
        unit = f" {scale.unit}" if scale.unit else ""
        raise LanguageError.at_span(
            f"{shown}{unit} is all that it measures, and {attribute.name} goes from "
            f"{attribute.describe_domain()}",
            span,
        )
    return lowest, highest


def _find_accuracy(
    attribute: Attribute,
    scale: Scale,
    field: Field | None,
    sense: Sense,
    ends: tuple[Fraction, Fraction],
) -> tuple[int, int]:
    """Return what was said, else the data sheet's; rounded up, so that nothing is too certain."""
    clause = sense.find("accuracy")
    if clause is not None:
        typical, worst = (_read(amount, attribute, scale, True) for amount in clause.amounts)
        if worst < typical:
            raise LanguageError.at_span(
                "the worst accuracy is not below the usual one", clause.amounts[1].span
            )
    elif field is not None and field.accuracies:
        sheet = _choose_accuracy(field, ends)
        typical, worst = sheet.typical, sheet.worst
    else:
        return 0, 0
    return math.ceil(typical / scale.step), math.ceil(worst / scale.step)


def _choose_accuracy(field: Field, ends: tuple[Fraction, Fraction]) -> Accuracy:
    """Return the narrowest promise of the data sheet that holds all over the domain."""
    whole = field.accuracies[-1]
    low, high = max(ends[0], whole.low), min(ends[1], whole.high)
    return next(a for a in field.accuracies if a.low <= low and high <= a.high)


def _read(amount: Amount, attribute: Attribute, scale: Scale, is_width: bool = False) -> Fraction:
    """Return a number of the sentence in the sensor's unit."""
    check_units(attribute, amount.unit, "what is written here", amount.span)
    if amount.unit is None and scale.unit != attribute.unit and amount.value:
        raise LanguageError.at_span(
            f"is this in {attribute.unit}, as {attribute.name}, or in {scale.unit}, as the sensor?",
            amount.span,
            "write the unit",
        )
    return (convert_width if is_width else convert)(amount.value, amount.unit, scale.unit)


def _round(number: Fraction) -> int:
    return math.floor(number + Fraction(1, 2))


def _show(number: Fraction) -> str:
    return f"{float(number):.6g}"
