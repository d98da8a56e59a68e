"""The sources of a configuration: made from sentences, shared where two name the same sensor.

Two sentences mean one source if they name the same wires: a DHT22 has two fields, a 1-wire bus many
sensors, a CSV file many columns. A wire that has another sensor already is refused. Opens no files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import PurePath
from typing import Any

from denwatch.cli.devices.fields import choose_field, choose_place, read_unit
from denwatch.cli.devices.sensors import ALIASES, READING, SENSORS, Field, Sensor, find_sensor
from denwatch.cli.devices.steps import Scale, choose_scale
from denwatch.cli.devices.words import Sense
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Attribute, ValueKind

LookUp = Callable[[str], list[str] | None]  # the columns of a file, None if it is not there

_PINS = ("pin", "clock", "data")
_MAX_ADDRESS = 0x77  # of 7-bit addresses; those above are reserved
_MAX_SENSORS = 16


@dataclass(frozen=True)
class Found:
    """Where a sentence's numbers come from."""

    name: str  # of the source
    entry: dict[str, Any]  # the source as it will be
    field: int
    title: str  # for a table
    called: str  # in a sentence: "the temperature of a dht22"
    known: Field | None = None
    scale: Scale | None = None  # None: the sentence must say what numbers mean
    rest: int = 0
    event: str = ""  # the only one that the source serves
    said: int = 0  # sensors that the bus was said to have


class Sources:
    """All sources so far. `plan` says what would be, `take` does it."""

    def __init__(self, written: Mapping[str, Mapping[str, Any]], look: LookUp) -> None:
        self._written = written
        self._look = look
        self._entries: dict[str, dict[str, Any]] = {
            name: copy.deepcopy(dict(entry)) for name, entry in written.items()
        }
        self._events: dict[str, str] = {}  # of sources that serve one only
        self._said: dict[str, int] = {}  # how many sensors a bus was said to have

    def write(self) -> dict[str, Any]:
        """Return the sources as they stand in the configuration."""
        return copy.deepcopy(self._entries)

    def take(self, found: Found) -> None:
        """Note a source that was planned."""
        self._entries[found.name] = found.entry
        if found.event:
            self._events[found.name] = found.event
        if found.said:
            self._said[found.name] = found.said

    def plan(self, sense: Sense, attribute: Attribute) -> Found:
        """Return where a sentence's numbers come from; nothing is changed."""
        name, span = sense.source.text, sense.source.span
        if name in self._written:
            sensor = SENSORS[self._written[name]["kind"]]
            _check_words(sense, READING & (sensor.words | {"field", "step", "with"}), name)
            found = self._plan_written(sense, attribute, name, sensor)
        else:
            known = SENSORS["csv"] if name.casefold().endswith(".csv") else find_sensor(name)
            if known is None:
                near = suggest_names(name, [*SENSORS, *ALIASES, *self._written])
                raise LanguageError.at_span(f'no sensor is called "{name}"', span, suggestions=near)
            sensor = known
            _check_words(sense, sensor.words, name)
            for word in sensor.needs:
                if sense.find(word) is None:
                    raise LanguageError.at_span(
                        f'{name} has no "{word}"', span, f'such as "{_EXAMPLES[word]}"'
                    )
            if sensor.kind == "csv":
                found = self._plan_csv(sense, attribute)
            elif sensor.kind == "i2c":
                found = self._plan_i2c(sense)
            else:
                found = self._plan_pin(sense, attribute, sensor)
        if sensor.is_consumed:
            before = self._events.get(found.name, attribute.event)
            if before != attribute.event:
                raise LanguageError.at_span(
                    f"{found.title} serves {before}, and a reading of it cannot serve "
                    f"{attribute.event}, too",
                    span,
                    "give that event a sensor of its own",
                )
            found = replace(found, event=attribute.event)
        self._check_pins(found, span)
        return replace(found, rest=sensor.rest)

    # Kinds ------------------------------------------------------------------------------------

    def _plan_csv(self, sense: Sense, attribute: Attribute) -> Found:
        """A column; each event reads the file by itself, because a line is read once."""
        path = _find_path(sense)
        column = clause.text if (clause := sense.find("column")) else attribute.name
        self._check_column(sense, path, column)
        unit = read_unit(sense) or attribute.unit
        if (clause := sense.find("scale")) is not None:
            scale = clause.whole
            if scale < 1:
                raise LanguageError.at_span("a scale is above 0", clause.span)
        else:
            scale = 1 if attribute.kind is ValueKind.TEXT else choose_scale(attribute, unit, sense)
        base = PurePath(path).stem
        name = next(
            n
            for n in _iterate_names(base)
            if n not in self._entries
            or (
                n not in self._written
                and self._entries[n].get("path") == path
                and self._events.get(n) == attribute.event
            )
        )
        empty = {"kind": "csv", "path": path, "columns": [], "scales": []}
        entry = copy.deepcopy(self._entries.get(name, empty))
        pairs = list(zip(entry["columns"], entry["scales"], strict=True))
        if (column, scale) not in pairs:
            entry["columns"].append(column)
            entry["scales"].append(scale)
            pairs.append((column, scale))
        title = f"{path}, column {column}"
        unit = None if attribute.kind is ValueKind.TEXT else unit
        meaning = Scale(Fraction(1, scale), unit)
        called = f"the column {column}"
        return Found(name, entry, pairs.index((column, scale)), title, called, None, meaning)

    def _check_column(self, sense: Sense, path: str, column: str) -> None:
        """Refuse a column that the file does not have; a file may also come later."""
        names = self._look(path)
        if names is not None and column not in names:
            clause = sense.find("column")
            raise LanguageError.at_span(
                f'{path} has no column "{column}"',
                clause.span if clause else sense.source.span,
                f"it has {', '.join(names)}",
                suggest_names(column, names),
            )

    def _plan_pin(self, sense: Sense, attribute: Attribute, sensor: Sensor) -> Found:
        """A sensor with one wire."""
        clause = sense.find("pin")
        assert clause is not None
        pin = clause.whole
        if pin < 0:
            raise LanguageError.at_span("a pin is 0 or more", clause.span)
        name = self._check_name(f"{sensor.kind}-{pin}", sense)
        entry: dict[str, Any] = {"kind": sensor.kind, "pin": pin}
        if sense.find("inverted"):
            entry["inverted"] = True
        before = self._entries.get(name, entry)
        if {**before, "count": 0} != {**entry, "count": 0} and sensor.kind != "ds18x20":
            raise LanguageError.at_span(
                f"pin {pin} is inverted in one sentence and not in the other", clause.span
            )
        known = choose_field(sense, attribute, sensor)
        number, title, said = known.number, f"{sensor.kind} on pin {pin}", 0
        if sensor.kind == "ds18x20":
            number, entry["count"], said = self._count_sensors(sense, name)
            title += f", sensor {number + 1} of {entry['count']}" if sense.find("sensor") else ""
        elif len(sensor.fields) > 1:
            title += f", {known.name}"
        return replace(_finish(name, entry, number, title, sensor, known), said=said)

    def _check_name(self, name: str, sense: Sense) -> str:
        """Return a name that no source of a file has."""
        if name in self._written:
            raise LanguageError.at_span(
                f"{name} is a source of the file; say its name", sense.source.span
            )
        return name

    def _count_sensors(self, sense: Sense, name: str) -> tuple[int, int, int]:
        """Return which sensor of a 1-wire bus, from 0, how many there are, and were said to be."""
        before, said = self._entries.get(name, {}).get("count", 1), self._said.get(name, 0)
        clause = sense.find("sensor")
        if clause is None:
            return 0, before, said
        number = clause.whole
        now = int(clause.amounts[1].value) if len(clause.amounts) > 1 else said
        count = now or max(number, before)
        if not 1 <= number <= count <= _MAX_SENSORS:
            raise LanguageError.at_span(
                f"a sensor is 1 to {min(count, _MAX_SENSORS)} here, in the order of their "
                "addresses",
                clause.span,
            )
        if count < before or now != (said or now):
            raise LanguageError.at_span(f"another sentence says {before} sensors", clause.span)
        return number - 1, count, now

    def _plan_i2c(self, sense: Sense) -> Found:
        """Registers of a chip; two sentences with one address are two fields of it."""
        numbers = {word: c.whole for word in _RANGES if (c := sense.find(word)) is not None}
        for word, value in numbers.items():
            low, high = _RANGES[word]
            if not low <= value <= high:
                span = sense.clauses[word].span
                raise LanguageError.at_span(f"{word} is from {low} to {high}", span)
        bus, address = numbers.get("bus", 0), numbers["address"]
        name = self._check_name(f"i2c-{bus}-{address:02x}", sense)
        empty = {"kind": "i2c", "bus": bus, "clock": numbers["clock"], "data": numbers["data"]}
        empty |= {"address": address, "fields": []}
        entry = copy.deepcopy(self._entries.get(name, empty))
        if (entry["clock"], entry["data"]) != (empty["clock"], empty["data"]):
            raise LanguageError.at_span(
                f"bus {bus} has its clock on pin {entry['clock']} and its data on pin "
                f"{entry['data']} already",
                sense.clauses["clock"].span,
            )
        is_signed, is_little = sense.find("signed") is not None, sense.find("little") is not None
        register, size = numbers["register"], numbers["bytes"]
        described = [register, size, is_signed, is_little, numbers.get("shift", 0)]
        if described not in entry["fields"]:
            entry["fields"].append(described)
        title = f"i2c 0x{address:02x}, register {register}"
        field = entry["fields"].index(described)
        return Found(name, entry, field, title, f"register {register}")

    def _plan_written(self, sense: Sense, attribute: Attribute, name: str, sensor: Sensor) -> Found:
        """A source that stands in a file; the sentence says which of its numbers."""
        entry = self._entries[name]
        if sensor.kind == "csv":
            columns = [str(column) for column in entry["columns"]]
            field = choose_place(sense, columns, attribute.name)
            unit = None if attribute.kind is ValueKind.TEXT else read_unit(sense) or attribute.unit
            meaning = Scale(Fraction(1, entry["scales"][field]), unit)
            title = f"{name}, column {columns[field]}"
            return Found(name, entry, field, title, f"the column {columns[field]}", None, meaning)
        if sensor.kind == "i2c":
            field = choose_place(sense, [str(i) for i in range(len(entry["fields"]))], "")
            return Found(name, entry, field, f"{name}, field {field}", f"field {field} of {name}")
        known = choose_field(sense, attribute, sensor)
        number, title = known.number, f"{name}, {known.name}"
        if sensor.kind == "ds18x20":
            number, count, _ = self._count_sensors(sense, name)
            if count > entry.get("count", 1):
                span = sense.clauses["sensor"].span
                raise LanguageError.at_span(f"{name} has {entry.get('count', 1)} sensors", span)
            title = f"{name}, sensor {number + 1}"
        return _finish(name, entry, number, title, sensor, known)

    def _check_pins(self, found: Found, span: SourceSpan | None) -> None:
        """Refuse a wire that another sensor has; chips on one I2C bus share theirs."""
        for name, entry in self._entries.items():
            if name == found.name:
                continue
            for word, other in ((a, b) for a in _PINS for b in _PINS):
                is_bus = found.entry["kind"] == entry["kind"] == "i2c" and word == other
                pin = found.entry.get(word)
                if pin is not None and pin == entry.get(other) and not is_bus:
                    raise LanguageError.at_span(f"pin {pin} has {name} already", span)


_RANGES = {
    "bus": (0, 9),
    "clock": (0, 999),
    "data": (0, 999),
    "address": (0x08, _MAX_ADDRESS),
    "register": (0, 255),
    "bytes": (1, 4),
    "shift": (0, 31),
}
_EXAMPLES = {
    "pin": "on pin 4",
    "clock": "clock 22",
    "data": "data 21",
    "address": "address 0x48",
    "register": "register 0",
    "bytes": "bytes 2",
}


def _find_path(sense: Sense) -> str:
    """Return the CSV file: the source itself, or what follows "file"."""
    clause, name = sense.find("file"), sense.source.text
    if name.casefold() == "csv":
        if clause is None:
            raise LanguageError.at_span("which file?", sense.source.span, '"csv file ward.csv"')
        return clause.text
    if clause is not None:
        raise LanguageError.at_span(f"{name} is the file already", clause.span)
    return name


def _finish(
    name: str, entry: dict[str, Any], field: int, title: str, sensor: Sensor, known: Field
) -> Found:
    scale = None if known.step is None or known.unit is None else Scale(known.step, known.unit)
    called = f"the {known.name} of {sensor.title}"
    return Found(name, entry, field, title, called, known, scale)


def _check_words(sense: Sense, allowed: Iterable[str], name: str) -> None:
    for word, clause in sense.clauses.items():
        if word not in allowed:
            known = ", ".join(sorted(allowed))
            raise LanguageError.at_span(f'{name} has no "{word}"', clause.span, f"it has {known}")


def _iterate_names(base: str) -> Iterable[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1
