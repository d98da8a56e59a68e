"""From a sentence to a channel: which source it needs, and the sensor's steps in whole numbers.

Steps: exact fractions throughout; a float is the decimal that people wrote. What cannot be
expressed is refused with the reason, what had to be rounded is reported. Only this file calculates
steps.

Sources: two sentences mean one source if they name the same wires: a DHT22 has two fields, a 1-wire
bus many sensors, a CSV file many columns. A wire that another sensor uses is refused.

Opens no files.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, product
from pathlib import PurePath
from typing import Any

from denwatch.cli.devices import schema, sentences
from denwatch.cli.devices.schema import Accuracy, Sensor, SensorField
from denwatch.cli.devices.sentences import Amount, Clause, Sentence
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Attribute, ValueKind
from denwatch.client.vocabulary.values import find_unit

_LAST = (1 << 30) - 1  # what MicroPython counts to without allocating, on 32 bits
_FINEST = 100_000  # of the scales of a CSV column that are tried


@dataclass(frozen=True)
class SensorScale:
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
    given, wanted = _read_unit(source), _read_unit(target)
    return (value * given[0] + given[1] - wanted[1]) / wanted[0]


def convert_width(value: Fraction, source: str | None, target: str | None) -> Fraction:
    """Return a difference in another unit of the same dimension."""
    return convert(value, source, target) - convert(Fraction(0), source, target)


def _read_unit(name: str) -> tuple[Fraction, Fraction]:
    """Return the factor and the offset of a unit: 5/9 again, not its float."""
    unit = find_unit(name)
    return tuple(Fraction(x).limit_denominator(10**12) for x in (unit.factor, unit.offset))  # type: ignore[return-value]


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


def read_points(attribute: Attribute, clause: Clause) -> SensorScale:
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
    return SensorScale(rise / run, unit, low.value - start * run / rise)


def read_step(attribute: Attribute, clause: Clause) -> SensorScale:
    """Return the scale of `step 0.01 °C`."""
    amount = clause.amounts[0]
    check_units(attribute, amount.unit, "the step", amount.span)
    if amount.value <= 0:
        raise LanguageError.at_span("a step is above 0", amount.span)
    return SensorScale(amount.value, amount.unit or attribute.unit)


def choose_scale(attribute: Attribute, unit: str | None, sentence: Sentence) -> int:
    """Return the smallest power of ten by which a CSV column is whole: ends and accuracy."""
    values = [
        convert(to_fraction(end), attribute.unit, unit) for end in (attribute.low, attribute.high)
    ]
    clause = sentence.find("accuracy")
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


def fit_symbols(attribute: Attribute, field: SensorField | None, span: SourceSpan | None) -> Ends:
    """Return the channel of a text: a number is the symbol of that number, from 0."""
    last = len(attribute.symbols) - 1
    if field is not None and field.high is not None:
        last = min(last, int(field.high))
    if last < 1:
        raise LanguageError.at_span(f"{attribute.name} has one symbol only", span)
    shown = ", ".join(f"{i} {symbol}" for i, symbol in enumerate(attribute.symbols[: last + 1]))
    note = f"{attribute.name}: {shown}; any other number is a fault"
    high = len(attribute.symbols) - 1 if attribute.is_graded else attribute.last
    return Ends(0, high, 0, last, notes=(note,))


def fit_ends(
    attribute: Attribute,
    scale: SensorScale,
    field: SensorField | None,
    sentence: Sentence,
    limit: int = _LAST,
) -> Ends:
    """Return the channel of a number; LanguageError where the domain cannot be expressed."""
    assert attribute.kind is ValueKind.NUMBER
    ends = [
        convert(to_fraction(end), attribute.unit, scale.unit)
        for end in (attribute.low, attribute.high)
    ]
    exact = [scale.to_number(end) for end in ends]
    low, high = (_round(number) for number in exact)
    if low >= high:
        raise LanguageError.at_span(
            f"{attribute.name} goes from {attribute.describe_domain()}, and that is "
            f"{_show(exact[1] - exact[0])} of a step: its values cannot be told apart",
            sentence.source.span,
        )
    if max(abs(low), abs(high)) > limit:
        raise LanguageError.at_span(
            f"{attribute.name} would go from {low} to {high} in steps; {limit} is the last number",
            sentence.source.span,
            "choose a larger step, or a larger unit",
        )
    notes = []
    if exact != [low, high]:
        notes.append(
            f"{attribute.name}: {attribute.describe_domain()} is {_show(exact[0])} to "
            f"{_show(exact[1])} in steps; the nearest whole ones are taken"
        )
    lowest, highest = _find_range(attribute, scale, field, sentence, low, high)
    typical, worst = _find_accuracy(attribute, scale, field, sentence, (ends[0], ends[1]))
    return Ends(low, high, lowest, highest, typical, worst, tuple(notes))


def _find_range(
    attribute: Attribute,
    scale: SensorScale,
    field: SensorField | None,
    sentence: Sentence,
    low: int,
    high: int,
) -> tuple[int, int]:
    """Return the numbers that a working sensor gives; any other one is a fault."""
    clause = sentence.find("range")
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
            lowest, highest = max(lowest, min(1, low)), min(highest, max(schema.COUNTS - 1, high))
    elif attribute.period is not None:  # 359.9° is a direction, although the domain ends before
        whole = to_fraction(attribute.low) + to_fraction(attribute.period)
        lowest = low
        highest = _round(scale.to_number(convert(whole, attribute.unit, scale.unit)))
    else:
        return low, high
    if lowest >= high or highest <= low or lowest >= highest:
        span = clause.span if clause else sentence.source.span
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
    scale: SensorScale,
    field: SensorField | None,
    sentence: Sentence,
    ends: tuple[Fraction, Fraction],
) -> tuple[int, int]:
    """Return what was said, else the data sheet's; rounded up, so that nothing is too certain."""
    clause = sentence.find("accuracy")
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


def _choose_accuracy(field: SensorField, ends: tuple[Fraction, Fraction]) -> Accuracy:
    """Return the narrowest promise of the data sheet that holds all over the domain."""
    whole = field.accuracies[-1]
    low, high = max(ends[0], whole.low), min(ends[1], whole.high)
    return next(a for a in field.accuracies if a.low <= low and high <= a.high)


def _read(
    amount: Amount, attribute: Attribute, scale: SensorScale, is_width: bool = False
) -> Fraction:
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


# Sources --------------------------------------------------------------------------------------

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
    known: SensorField | None = None
    scale: SensorScale | None = None  # None: the sentence must say what numbers mean
    rest: int = 0
    event: str = ""  # the only one that the source serves
    said: int = 0  # sensors that the bus was said to have


class SourceTable:
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

    def plan(self, sentence: Sentence, attribute: Attribute) -> Found:
        """Return where a sentence's numbers come from; nothing is changed."""
        name, span = sentence.source.text, sentence.source.span
        if name in self._written:
            sensor = schema.SENSORS[self._written[name]["kind"]]
            _check_words(
                sentence, schema.READING & (sensor.words | {"field", "step", "with"}), name
            )
            found = self._plan_written(sentence, attribute, name, sensor)
        else:
            known = (
                schema.SENSORS["csv"]
                if name.casefold().endswith(".csv")
                else schema.find_sensor(name)
            )
            if known is None:
                near = suggest_names(name, [*schema.SENSORS, *schema.ALIASES, *self._written])
                names = ", ".join([*schema.SENSORS, *self._written])
                raise LanguageError.at_span(
                    f'no sensor is called "{name}"', span, f"there are {names}", near
                )
            if known.is_written:
                raise LanguageError.at_span(
                    f"{name} is described in a file (--sources), and said by its name there",
                    span,
                )
            sensor = known
            _check_words(sentence, sensor.words, name)
            for word in sensor.needed.split():
                if sentence.find(word) is None:
                    raise LanguageError.at_span(
                        f'{name} has no "{word}"', span, f'such as "{_EXAMPLES[word]}"'
                    )
            if sensor.kind == "csv":
                found = self._plan_csv(sentence, attribute)
            elif sensor.kind == "i2c":
                found = self._plan_i2c(sentence)
            elif "clock" in sensor.needed:
                found = self._plan_chip(sentence, attribute, sensor)
            else:
                found = self._plan_pin(sentence, attribute, sensor)
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

    def _plan_csv(self, sentence: Sentence, attribute: Attribute) -> Found:
        """A column; each event reads the file by itself, because a line is read once."""
        path = _find_path(sentence)
        column = clause.text if (clause := sentence.find("column")) else attribute.name
        self._check_column(sentence, path, column)
        is_text = attribute.kind is ValueKind.TEXT
        unit = sentences.read_unit(sentence) or attribute.unit
        if (clause := sentence.find("scale")) is not None:
            scale = clause.whole
            if scale < 1:
                raise LanguageError.at_span("a scale is above 0", clause.span)
        else:
            scale = 1 if is_text else choose_scale(attribute, unit, sentence)
        base = PurePath(path).stem

        def is_ours(name: str) -> bool:
            is_same = name not in self._written and self._entries[name].get("path") == path
            return is_same and self._events.get(name) == attribute.event

        names = (base if n == 1 else f"{base}-{n}" for n in count(1))
        name = next(n for n in names if n not in self._entries or is_ours(n))
        empty = {"kind": "csv", "path": path, "columns": [], "scales": []}
        entry = copy.deepcopy(self._entries.get(name, empty))
        pairs = list(zip(entry["columns"], entry["scales"], strict=True))
        if (column, scale) not in pairs:
            entry["columns"].append(column)
            entry["scales"].append(scale)
            pairs.append((column, scale))
        title = f"{path}, column {column}"
        meaning = SensorScale(Fraction(1, scale), None if is_text else unit)
        called = f"the column {column}"
        return Found(name, entry, pairs.index((column, scale)), title, called, None, meaning)

    def _check_column(self, sentence: Sentence, path: str, column: str) -> None:
        """Refuse a column that the file does not have; a file may also come later."""
        names = self._look(path)
        if names is not None and column not in names:
            clause = sentence.find("column")
            raise LanguageError.at_span(
                f'{path} has no column "{column}"',
                clause.span if clause else sentence.source.span,
                f"it has {', '.join(names)}",
                suggest_names(column, names),
            )

    def _plan_pin(self, sentence: Sentence, attribute: Attribute, sensor: Sensor) -> Found:
        """A sensor with one wire."""
        clause = sentence.find("pin")
        assert clause is not None
        pin = clause.whole
        if pin < 0:
            raise LanguageError.at_span("a pin is 0 or more", clause.span)
        name = self._check_name(f"{sensor.kind}-{pin}", sentence)
        entry: dict[str, Any] = {"kind": sensor.kind, "pin": pin}
        if sentence.find("inverted"):
            entry["inverted"] = True
        before = self._entries.get(name, entry)
        if {**before, "count": 0} != {**entry, "count": 0} and sensor.kind != "ds18x20":
            raise LanguageError.at_span(
                f"pin {pin} is inverted in one sentence and not in the other", clause.span
            )
        known = sentences.choose_field(sentence, attribute, sensor)
        number, title, said = known.number, f"{sensor.kind} on pin {pin}", 0
        if sensor.kind == "ds18x20":
            number, entry["count"], said = self._count_sensors(sentence, name)
            title += f", sensor {number + 1} of {entry['count']}" if sentence.find("sensor") else ""
        elif len(sensor.fields) > 1:
            title += f", {known.name}"
        return replace(_finish(name, entry, number, title, sensor, known), said=said)

    def _check_name(self, name: str, sentence: Sentence) -> str:
        """Return a name that no source of a file has."""
        if name in self._written:
            raise LanguageError.at_span(
                f"{name} is a source of the file; say its name", sentence.source.span
            )
        return name

    def _count_sensors(self, sentence: Sentence, name: str) -> tuple[int, int, int]:
        """Return which sensor of a 1-wire bus, from 0, how many there are, and were said to be."""
        before, said = self._entries.get(name, {}).get("count", 1), self._said.get(name, 0)
        clause = sentence.find("sensor")
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

    def _plan_chip(self, sentence: Sentence, attribute: Attribute, sensor: Sensor) -> Found:
        """A chip on an I2C bus whose fields are known."""
        numbers = _read_wires(sentence)
        bus, address = numbers.get("bus", 0), numbers.get("address", sensor.address)
        name = self._check_name(f"{sensor.kind}-{bus}-{address:02x}", sentence)
        wires = {word: numbers[word] for word in ("clock", "data")}
        entry = {"kind": sensor.kind, "bus": bus, "address": address, **wires}
        known = sentences.choose_field(sentence, attribute, sensor)
        title = f"{sensor.kind} 0x{address:02x}, {known.name}"
        return _finish(name, entry, known.number, title, sensor, known)

    def _plan_i2c(self, sentence: Sentence) -> Found:
        """Registers of a chip; two sentences with one address are two fields of it."""
        numbers = _read_wires(sentence)
        bus, address = numbers.get("bus", 0), numbers["address"]
        name = self._check_name(f"i2c-{bus}-{address:02x}", sentence)
        empty = {"kind": "i2c", "bus": bus, "clock": numbers["clock"], "data": numbers["data"]}
        empty |= {"address": address, "fields": []}
        entry = copy.deepcopy(self._entries.get(name, empty))
        if (entry["clock"], entry["data"]) != (empty["clock"], empty["data"]):
            raise LanguageError.at_span(
                f"bus {bus} has its clock on pin {entry['clock']} and its data on pin "
                f"{entry['data']} already",
                sentence.clauses["clock"].span,
            )
        register, flags = (
            numbers["register"],
            ("signed" in sentence.clauses, "little" in sentence.clauses),
        )
        described = [register, numbers["bytes"], *flags, numbers.get("shift", 0)]
        if described not in entry["fields"]:
            entry["fields"].append(described)
        title = f"i2c 0x{address:02x}, register {register}"
        field = entry["fields"].index(described)
        return Found(name, entry, field, title, f"register {register}")

    def _plan_written(
        self, sentence: Sentence, attribute: Attribute, name: str, sensor: Sensor
    ) -> Found:
        """A source that stands in a file; the sentence says which of its numbers."""
        entry = self._entries[name]
        if sensor.kind == "csv":
            columns = [str(column) for column in entry["columns"]]
            field = sentences.choose_place(sentence, columns, attribute.name)
            is_text = attribute.kind is ValueKind.TEXT
            unit = None if is_text else sentences.read_unit(sentence) or attribute.unit
            meaning = SensorScale(Fraction(1, entry["scales"][field]), unit)
            title = f"{name}, column {columns[field]}"
            return Found(name, entry, field, title, f"the column {columns[field]}", None, meaning)
        if not sensor.fields:
            field = sentences.choose_place(
                sentence, [str(i) for i in range(schema.count_fields(entry))], ""
            )
            return Found(name, entry, field, f"{name}, field {field}", f"field {field} of {name}")
        known = sentences.choose_field(sentence, attribute, sensor)
        number, title = known.number, f"{name}, {known.name}"
        if sensor.kind in ("ds18x20", "w1"):
            number, count, _ = self._count_sensors(sentence, name)
            if count > entry.get("count", 1):
                span = sentence.clauses["sensor"].span
                raise LanguageError.at_span(f"{name} has {entry.get('count', 1)} sensors", span)
            title = f"{name}, sensor {number + 1}"
        return _finish(name, entry, number, title, sensor, known)

    def _check_pins(self, found: Found, span: SourceSpan | None) -> None:
        """Refuse a wire that another sensor has; chips on one I2C bus share theirs."""
        for name, entry in self._entries.items():
            if name == found.name:
                continue
            for word, other in product(_PINS, _PINS):
                is_bus = "clock" in found.entry and "clock" in entry and word == other
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


def _read_wires(sentence: Sentence) -> dict[str, int]:
    """Return the numbers of an I2C bus and of a chip on it."""
    numbers = {word: c.whole for word in _RANGES if (c := sentence.find(word)) is not None}
    for word, value in numbers.items():
        low, high = _RANGES[word]
        if not low <= value <= high:
            span = sentence.clauses[word].span
            raise LanguageError.at_span(f"{word} is from {low} to {high}", span)
    return numbers


def _find_path(sentence: Sentence) -> str:
    """Return the CSV file: the source itself, or what follows "file"."""
    clause, name = sentence.find("file"), sentence.source.text
    if name.casefold() == "csv":
        if clause is None:
            raise LanguageError.at_span("which file?", sentence.source.span, '"csv file ward.csv"')
        return clause.text
    if clause is not None:
        raise LanguageError.at_span(f"{name} is the file already", clause.span)
    return name


def _finish(
    name: str, entry: dict[str, Any], field: int, title: str, sensor: Sensor, known: SensorField
) -> Found:
    scale = (
        None if known.step is None or known.unit is None else SensorScale(known.step, known.unit)
    )
    called = f"the {known.name} of {sensor.title}"
    return Found(name, entry, field, title, called, known, scale)


def _check_words(sentence: Sentence, allowed: Iterable[str], name: str) -> None:
    for word, clause in sentence.clauses.items():
        if word not in allowed:
            known = ", ".join(sorted(allowed))
            raise LanguageError.at_span(f'{name} has no "{word}"', clause.span, f"it has {known}")
