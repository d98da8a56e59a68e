"""Which number of a source a sentence means: a field or column by its name, or the obvious one.

A DHT22 gives a temperature and a humidity; who asks for `air_temperature` means the first. Where a
unit alone would decide (smoke and humidity are both in %), the name must be said. Pure.
"""

from __future__ import annotations

from denwatch.cli.devices.sensors import Field, Sensor
from denwatch.cli.devices.words import Sense
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.vocabulary import Attribute
from denwatch.client.vocabulary.values import UnitError, find_unit, list_spellings


def choose_field(sense: Sense, attribute: Attribute, sensor: Sensor) -> Field:
    """Return the field that was named, else the obvious one, else the one with that name."""
    clause = sense.find("field")
    if clause is not None:
        for field in sensor.fields:
            if clause.text.casefold() in (field.name, str(field.number)):
                return field
        names = [field.name for field in sensor.fields]
        raise LanguageError.at_span(
            f'{sensor.title} has no field "{clause.text}"',
            clause.span,
            f"it has {' and '.join(names)}",
            suggest_names(clause.text, names),
        )
    for field in sensor.fields:
        if not field.is_obvious and field.name in attribute.name.casefold():
            return field
    obvious = next(field for field in sensor.fields if field.is_obvious)
    for field in sensor.fields:
        if field is not obvious and _measure_alike(field.unit, attribute.unit):
            raise LanguageError.at_span(
                f"{attribute.name} is in {attribute.unit}; {sensor.title} has {field.name} in "
                f"{field.unit}",
                sense.source.span,
                f'if that is meant, say "field {field.name}"',
            )
    return obvious


def _measure_alike(first: str | None, second: str | None) -> bool:
    if first is None or second is None:
        return False
    return find_unit(first).dimension == find_unit(second).dimension


def choose_place(sense: Sense, names: list[str], default: str) -> int:
    """Return the place of a column or field that was called by its name or number."""
    word = "column" if sense.find("column") else "field"
    clause = sense.find(word)
    if word == "column" and sense.find("field"):
        raise LanguageError.at_span('"column" or "field", not both', sense.clauses["field"].span)
    wanted = clause.text if clause is not None else default
    span = clause.span if clause is not None else sense.source.span
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    if clause is None and len(names) == 1:
        return 0
    raise LanguageError.at_span(
        f'{sense.source.text} has no {word} "{wanted}"'
        if wanted
        else f"which of {sense.source.text}?",
        span,
        f"it has {', '.join(names)}",
        suggest_names(wanted, names),
    )


def read_unit(sense: Sense) -> str | None:
    """Return the unit of a column, None if none is said."""
    clause = sense.find("in")
    if clause is None:
        return None
    try:
        return find_unit(clause.text).name
    except UnitError as error:
        near = suggest_names(clause.text, list_spellings())
        raise LanguageError.at_span(str(error), clause.span, suggestions=near) from None
