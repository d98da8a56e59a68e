"""Values as written, to numbers in an attribute's own unit: the only place that converts them.

Every refusal points at the value: wrong type, unknown unit, unit of something else, outside the
domain. Plug-ins use these functions too.
"""

from __future__ import annotations

import math

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Moment, Quantity, Text, Value
from denwatch.client.vocabulary.attributes import Attribute, ValueKind, parse_moment
from denwatch.client.vocabulary.units import (
    UnitError,
    convert,
    convert_width,
    find_unit,
    list_spellings,
    list_units,
)

_TOLERANCE = 1e-9


def read_value(value: Value, attribute: Attribute, anywhere: bool = False) -> float:
    """Return a number, date or time in the attribute's unit; `anywhere` allows any domain."""
    number = _read(value, attribute)
    slack = _TOLERANCE * (attribute.high - attribute.low)
    if not anywhere and not attribute.low - slack <= number <= attribute.high + slack:
        raise LanguageError.at_node(
            f"{format_value(value)} is outside the domain of {attribute.name}",
            value,
            f"it goes from {attribute.describe_domain()}",
        )
    return number


def _read(value: Value, attribute: Attribute) -> float:
    match value:
        case Quantity(value=number, unit=unit):
            if attribute.kind is not ValueKind.NUMBER:
                raise _refuse_type(value, attribute)
            if not math.isfinite(number):
                raise LanguageError.at_node(f"{number} is not a finite number", value)
            return number if unit is None else _convert(value, attribute, width=False)
        case Moment(text=text):
            if attribute.kind not in (ValueKind.DATE, ValueKind.TIME, ValueKind.DATETIME):
                raise _refuse_type(value, attribute)
            try:
                return parse_moment(text, attribute.kind)
            except LanguageError as error:
                raise LanguageError.at_node(error.message, value) from None
        case Text():
            raise _refuse_type(value, attribute)


def read_width(value: Quantity, attribute: Attribute) -> float:
    """Return a difference in the attribute's unit; of dates in days, of times in seconds."""
    if attribute.kind is ValueKind.TEXT:
        raise LanguageError.at_node(f"{attribute.name} is a text and has no width", value)
    if not math.isfinite(value.value) or value.value <= 0:
        raise LanguageError.at_node("a width must be above 0", value)
    if value.unit is None:
        return value.value
    if attribute.kind is ValueKind.NUMBER:
        return _convert(value, attribute, width=True)
    return read_duration(value) / (86400.0 if attribute.kind is ValueKind.DATE else 1.0)


def read_duration(value: Quantity) -> float:
    """Return a duration in seconds."""
    if not math.isfinite(value.value) or value.value <= 0:
        raise LanguageError.at_node("a duration must be above 0", value)
    if value.unit is None:
        return value.value
    try:
        seconds = convert(value.value, value.unit, "s")
    except UnitError as error:
        raise LanguageError.at_node(
            str(error), value, f"durations: {', '.join(list_units('time'))}"
        ) from None
    if not math.isfinite(seconds):
        raise LanguageError.at_node("a duration is at most 364 days", value)
    return seconds


def _convert(value: Quantity, attribute: Attribute, width: bool) -> float:
    assert value.unit is not None
    if attribute.unit is None:
        raise LanguageError.at_node(
            f'{attribute.name} has no unit, "{value.unit}" is written here', value
        )
    try:
        unit = find_unit(value.unit)
    except UnitError as error:
        names = suggest_names(value.unit, list_spellings())
        raise LanguageError.at_node(str(error), value, suggestions=names) from None
    try:
        return (convert_width if width else convert)(value.value, unit.name, attribute.unit)
    except UnitError as error:
        allowed = ", ".join(list_units(find_unit(attribute.unit).dimension))
        raise LanguageError.at_node(
            f"{attribute.name} is in {attribute.unit}: {error}", value, f"units: {allowed}"
        ) from None


def _refuse_type(value: Value, attribute: Attribute) -> LanguageError:
    wanted = {
        ValueKind.NUMBER: "a number",
        ValueKind.TEXT: "a text",
        ValueKind.DATE: "a date",
        ValueKind.TIME: "a time of day",
        ValueKind.DATETIME: "a date and time",
    }[attribute.kind]
    hint = f"one of {', '.join(attribute.symbols)}" if attribute.symbols else ""
    return LanguageError.at_node(
        f"{attribute.name} is {wanted}, {format_value(value)} is not", value, hint
    )


def format_value(value: Value) -> str:
    """Return a value as it is written in words."""
    match value:
        case Quantity(value=number, unit=unit):
            return f"{number:.15g}" + (f" {unit}" if unit else "")
        case Moment(text=text):
            return text
        case Text(value=text):
            return f'"{text}"'
