"""Units, and values as written converted to an attribute's own unit: the only file that converts.

Units are a small table, because a library of all units costs more to import than all the rest. A
unit is a dimension, a factor and an offset to the dimension's base unit. Quantities that count
different things ("bpm" and "/min" of breaths) share a dimension only where one may stand for the
other. Every refusal of a value points at it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Moment, Quantity, Text, Value
from denwatch.client.vocabulary.attributes import Attribute, ValueKind, parse_moment


@dataclass(frozen=True)
class Unit:
    """base = value * factor + offset, in the base unit of the dimension."""

    name: str
    dimension: str
    factor: float
    offset: float = 0.0


class UnitError(ValueError):
    """An unknown unit, or two units that measure different things."""


# dimension: {unit: (factor, offset)}; the first spelling of a line is the one that is written.
_TABLE: dict[str, list[tuple[str, float, float]]] = {
    "temperature": [
        ("°C degC celsius C ℃", 1.0, 0.0),
        ("°F degF fahrenheit F ℉", 5.0 / 9.0, -160.0 / 9.0),
        ("K kelvin", 1.0, -273.15),
    ],
    "speed": [
        ("m/s mps", 1.0, 0.0),
        ("km/h kmh kph", 1.0 / 3.6, 0.0),
        ("kn knots knot kt", 1852.0 / 3600.0, 0.0),
        ("mph mi/h", 0.44704, 0.0),
        ("ft/s", 0.3048, 0.0),
    ],
    "time": [
        ("s sec second seconds", 1.0, 0.0),
        ("ms millisecond milliseconds", 0.001, 0.0),
        ("min minute minutes", 60.0, 0.0),
        ("h hr hour hours", 3600.0, 0.0),
        ("d day days", 86400.0, 0.0),
        ("week weeks", 604800.0, 0.0),
    ],
    "length": [
        ("m metre metres meter meters", 1.0, 0.0),
        ("mm millimetre millimetres", 0.001, 0.0),
        ("cm centimetre centimetres", 0.01, 0.0),
        ("km kilometre kilometres kilometers", 1000.0, 0.0),
        ("ft foot feet", 0.3048, 0.0),
        ("mi mile miles", 1609.344, 0.0),
        ("nmi", 1852.0, 0.0),
    ],
    "angle": [("° deg degree degrees", 1.0, 0.0), ("rad radian radians", 57.29577951308232, 0.0)],
    "fraction": [
        ("% percent", 0.01, 0.0),
        ("ppm", 1e-6, 0.0),
        ("ppb", 1e-9, 0.0),
        ("‰ permille", 0.001, 0.0),
    ],
    "rate": [
        ("bpm", 1.0, 0.0),
        ("/min per_minute", 1.0, 0.0),
        ("Hz /s per_second", 60.0, 0.0),
        ("/h per_hour", 1.0 / 60.0, 0.0),
    ],
    "pressure": [
        ("hPa mbar", 1.0, 0.0),
        ("Pa", 0.01, 0.0),
        ("kPa", 10.0, 0.0),
        ("bar", 1000.0, 0.0),
        ("mmHg torr", 1.33322387415, 0.0),
        ("inHg", 33.86388666667, 0.0),
        ("psi", 68.9475729318, 0.0),
    ],
    "power": [("W", 1.0, 0.0), ("kW", 1e3, 0.0), ("MW", 1e6, 0.0)],
    "irradiance": [("W/m² W/m2", 1.0, 0.0), ("kW/m² kW/m2", 1e3, 0.0)],
    "precipitation": [("mm/h", 1.0, 0.0), ("in/h", 25.4, 0.0)],
    "mass": [("kg", 1.0, 0.0), ("g", 0.001, 0.0), ("t tonne tonnes", 1000.0, 0.0)],
    "voltage": [("V", 1.0, 0.0), ("mV", 0.001, 0.0)],
    "density": [("mg/m³ mg/m3", 1.0, 0.0), ("µg/m³ ug/m3 μg/m³", 0.001, 0.0)],
    "glucose": [("mmol/L mmol/l", 1.0, 0.0), ("mg/dL mg/dl", 1 / 18.016, 0.0)],
}


_UNITS = {
    name: unit
    for dimension, lines in _TABLE.items()
    for spellings, factor, offset in lines
    for unit in [Unit(spellings.split()[0], dimension, factor, offset)]
    for name in spellings.split()
}
# People write "KM/H" and "Celsius". A spelling that means two things without its case ("mW", "MW")
# is left out.
_FOLDED: dict[str, Unit | None] = {}
for _name, _unit in _UNITS.items():
    _same = _FOLDED.get(_name.casefold(), _unit)
    _FOLDED[_name.casefold()] = _unit if _same is _unit else None


def find_unit(text: str) -> Unit:
    """Return a unit by any of its spellings."""
    unit = _UNITS.get(text) or _FOLDED.get(text.casefold())
    if unit is None:
        raise UnitError(f'unknown unit "{text}"')
    return unit


def list_units(dimension: str | None = None) -> list[str]:
    """Return the units of a dimension, or all, as they are written."""
    units = (unit for unit in _UNITS.values() if dimension in (None, unit.dimension))
    return list(dict.fromkeys(unit.name for unit in units))


def list_spellings() -> list[str]:
    """Return every spelling that `find_unit` knows; a grammar wants them."""
    return list(_UNITS)


def convert(value: float, source: str, target: str) -> float:
    """Return a value in another unit: 104 °F is 40 °C."""
    a, b = _find_pair(source, target)
    if a is b:
        return value
    return (value * a.factor + a.offset - b.offset) / b.factor


def convert_width(value: float, source: str, target: str) -> float:
    """Return a difference in another unit: a step of 9 °F is one of 5 °C."""
    a, b = _find_pair(source, target)
    if a is b:
        return value
    return value * a.factor / b.factor


def _find_pair(source: str, target: str) -> tuple[Unit, Unit]:
    a = find_unit(source)
    b = find_unit(target)
    if a.dimension != b.dimension:
        raise UnitError(f'"{source}" is a unit of {a.dimension}, not of {b.dimension}')
    return a, b


# Values ------------------------------------------------------------------------------------------
#
# Wrong type, unknown unit, unit of something else, outside the domain: refused at the value.
# Plug-ins use these functions too.

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
    if attribute.kind is ValueKind.TEXT and not attribute.is_graded:
        raise LanguageError.at_node(f"{attribute.name} is a text and has no width", value)
    if not math.isfinite(value.value) or value.value <= 0:
        raise LanguageError.at_node("a width must be above 0", value)
    if value.unit is None:
        return value.value
    if attribute.kind in (ValueKind.NUMBER, ValueKind.TEXT):
        return _convert(value, attribute, width=True)
    return read_duration(value) / (86400.0 if attribute.kind is ValueKind.DATE else 1.0)


def write_place(place: float, attribute: Attribute) -> Value:
    """Return a place among the symbols of a graded text: a symbol, or a number between them."""
    is_symbol = place in range(len(attribute.symbols))
    return Text(attribute.symbols[int(place)]) if is_symbol else Quantity(place)


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
