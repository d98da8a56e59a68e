"""Builds `watchdog.json`: which sensor gives which attribute, for which device and nodes.

A `ConfigBuilder` looks words up in the vocabulary, shares sources and groups channels by event. It
takes one sentence at a time, and a sentence that it refuses does not change it, so that a wizard
can ask again. `docs/watchdog.md` describes the result. Opens no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from denwatch.cli.common import format_table
from denwatch.cli.devices import channels
from denwatch.cli.devices.channels import Ends, Found, LookUp, SensorScale
from denwatch.cli.devices.sentences import Sentence
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary
from denwatch.client.vocabulary.values import convert as convert_unit
from denwatch.client.vocabulary.values import find_unit
from denwatch.client.vocabulary.vocabulary import HASH_DIGITS

DEFAULT_PERIOD = 5000  # ms
_CSV_LAST = 10**9 - 1  # edge/denwatch/watchdog/sources/csv_file.py takes no larger number
_MEANINGS = (
    'say what its numbers mean: "step 0.01{unit}", or "with 0{unit} at 0 and 100{unit} at 4000"'
)


@dataclass(frozen=True)
class ConfigRow:
    """One sentence as it was understood."""

    attribute: Attribute
    number: int  # of the event
    found: Found
    scale: SensorScale | None  # None: a number is a symbol
    ends: Ends

    def describe(self) -> tuple[str, ...]:
        """Return what people check: attribute, event, source, domain, steps, accuracy, faults."""
        ends, scale = self.ends, self.scale
        steps = f"{ends.low} to {ends.high}" if scale else f"{ends.lowest} to {ends.highest}"
        accuracy = "taken as exact"
        if scale and ends.worst:
            typical, worst = (self._show_width(n, scale) for n in (ends.typical, ends.worst))
            unit = f" {self.attribute.unit}" if self.attribute.unit else ""
            accuracy = f"±{typical}{unit}"
            accuracy += f", worst ±{worst}" if worst != typical else ""
        beyond = f"{ends.lowest} to {ends.highest}"
        if scale:
            beyond = f"{self._show(ends.lowest, scale)} to {self._show(ends.highest, scale)}"
            beyond += f" {self.attribute.unit}" if self.attribute.unit else ""
        domain = self.attribute.describe_domain() if scale else "symbols"
        attribute = self.attribute
        return attribute.name, attribute.event, self.found.title, domain, steps, accuracy, beyond

    def _show(self, number: int, scale: SensorScale) -> str:
        value = channels.convert(scale.to_value(number), scale.unit, self.attribute.unit)
        return f"{float(value):.5g}"

    def _show_width(self, steps: int, scale: SensorScale) -> str:
        width = channels.convert_width(steps * scale.step, scale.unit, self.attribute.unit)
        return f"{float(width):.3g}"

    def write(self) -> dict[str, Any]:
        """Return the channel."""
        ends, attribute = self.ends, self.attribute
        channel: dict[str, Any] = {
            "source": self.found.name,
            "field": self.found.field,
            "attribute": attribute.bit,
            "low": ends.low,
            "high": ends.high,
        }
        if attribute.wide:
            channel["wide"] = True
        if (ends.lowest, ends.highest) != (ends.low, ends.high):
            channel |= {"lowest": ends.lowest, "highest": ends.highest}
        if ends.worst:
            channel |= {"typical": ends.typical, "worst": ends.worst}
        return channel


@dataclass
class ConfigBuilder:
    """Collects what a device senses."""

    vocabulary: Vocabulary
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # sources of a file
    period: int = DEFAULT_PERIOD
    look: LookUp = field(default=lambda _: None, repr=False)  # finds the columns of a CSV file
    rows: list[ConfigRow] = field(default_factory=list, init=False)
    _periods: dict[str, int] = field(default_factory=dict, init=False)  # those that were said
    _sources: channels.SourceTable = field(init=False)

    def __post_init__(self) -> None:
        self._sources = channels.SourceTable(self.written, self.look)

    def add(self, sentence: Sentence) -> ConfigRow:
        """Take one sentence; LanguageError at the word that cannot be."""
        attribute = self._find_attribute(sentence)
        event = attribute.event
        for row in self.rows:
            if row.attribute.path == attribute.path:
                raise LanguageError.at_span(
                    f"{attribute.path} comes from {row.found.title} already",
                    sentence.attribute.span,
                )
        said = self._read_period(sentence, event)
        found = self._sources.plan(sentence, attribute)
        period = said or self._periods.get(event) or self.period
        rest = max([found.rest, *(r.found.rest for r in self.rows if r.attribute.event == event)])
        if period < rest:
            clause = sentence.find("every")
            raise LanguageError.at_span(
                f"{event} every {show_time(period)}: the sensor needs {show_time(rest)}",
                clause.span if clause else sentence.source.span,
                f'say "every {show_time(rest)}", or more',
            )
        scale, ends = self._fit(sentence, attribute, found)
        self._sources.take(found)
        row = ConfigRow(attribute, self.vocabulary.events[event].number, found, scale, ends)
        self.rows.append(row)
        if said:
            self._periods[event] = said
        return row

    def _find_attribute(self, sentence: Sentence) -> Attribute:
        found = self.vocabulary.find_attributes(sentence.attribute)
        if len(found) > 1:
            paths = [attribute.path for attribute in found]
            raise LanguageError.at_span(
                f'"{sentence.attribute.text}" is in several events',
                sentence.attribute.span,
                f"write {', '.join(paths[:-1])} or {paths[-1]}",
            )
        if found[0].kind not in (ValueKind.NUMBER, ValueKind.TEXT):
            raise LanguageError.at_span(
                f"{found[0].name} is a {found[0].kind.value}, and sensors give numbers",
                sentence.attribute.span,
            )
        return found[0]

    def _read_period(self, sentence: Sentence, event: str) -> int:
        """Return the ms of "every", 0 if nothing is said. All of an event is sampled at once."""
        clause = sentence.find("every")
        if clause is None:
            return 0
        amount = clause.amounts[0]
        period = read_time(amount.value, amount.unit, clause.span)
        before = self._periods.get(event)
        if before not in (None, period):
            assert before is not None
            raise LanguageError.at_span(
                f"{event} is sampled every {show_time(before)}, and all its attributes at once",
                clause.span,
            )
        return period

    def _fit(
        self, sentence: Sentence, attribute: Attribute, found: Found
    ) -> tuple[SensorScale | None, Ends]:
        span, known = sentence.source.span, found.known
        if attribute.kind is ValueKind.TEXT:
            return None, self._fit_text(sentence, attribute, found)
        points, step = sentence.find("with"), sentence.find("step")
        if points is not None and step is not None:
            raise LanguageError.at_span('"step" or "with", not both', step.span)
        if points is not None:
            scale = channels.read_points(attribute, points)
        elif step is not None:
            scale = channels.read_step(attribute, step)
        elif found.scale is not None:
            scale = found.scale
            channels.check_units(attribute, scale.unit, found.called, span)
        elif known is not None and known.step is not None and attribute.unit is None:
            scale = SensorScale(known.step, None)
        else:
            unit = f" {attribute.unit}" if attribute.unit else ""
            raise LanguageError.at_span(
                f"{attribute.name} goes from {attribute.describe_domain()}, "
                f"{found.called} is a bare number",
                span,
                _MEANINGS.format(unit=unit),
            )
        is_csv = found.entry["kind"] == "csv"
        if is_csv:
            return scale, channels.fit_ends(attribute, scale, known, sentence, _CSV_LAST)
        return scale, channels.fit_ends(attribute, scale, known, sentence)

    def _fit_text(self, sentence: Sentence, attribute: Attribute, found: Found) -> Ends:
        for word in ("step", "with", "accuracy", "range", "in"):
            clause = sentence.find(word)
            if clause is not None:
                raise LanguageError.at_span(
                    f'{attribute.name} has symbols, and no "{word}"', clause.span
                )
        is_plain = found.scale is None or (found.scale.step == 1 and found.scale.unit is None)
        if not is_plain or found.entry["kind"] == "adc":
            raise LanguageError.at_span(
                f"{attribute.name} is one of {', '.join(attribute.symbols)}, and {found.called} "
                "is none of these",
                sentence.source.span,
            )
        return channels.fit_symbols(attribute, found.known, sentence.source.span)

    def build(self, device: Mapping[str, Any], spool: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration; `device` has its name and nodes."""
        events: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            name = row.attribute.event
            period = self.find_period(name)
            empty = {"event": row.number, "period": period, "channels": []}
            events.setdefault(name, empty)["channels"].append(row.write())
        return {
            "device": device["device"],
            "vocabulary": self.vocabulary.hash[:HASH_DIGITS],
            "nodes": [dict(node) for node in device["nodes"]],
            "spool": dict(spool),
            "sources": self._sources.write(),
            "events": list(events.values()),
        }

    def find_period(self, event: str) -> int:
        """Return how often an event is sampled, in ms."""
        return self._periods.get(event, self.period)

    def list_unused(self) -> list[str]:
        """Return the sources of a file that no sentence names."""
        used = {row.found.name for row in self.rows}
        return [name for name in self.written if name not in used]


_HEADS = ("attribute", "event", "source", "domain", "in steps", "accuracy", "a fault beyond")


def describe_rows(rows: list[ConfigRow]) -> list[str]:
    """Return what was understood as a table, and below it what was rounded."""
    lines = format_table([_HEADS, *(row.describe() for row in rows)])
    return [*lines, *(f"note: {note}" for row in rows for note in row.ends.notes)]


def read_time(value: Fraction, unit: str | None, span: SourceSpan | None) -> int:
    """Return a duration in ms."""
    if unit is None or find_unit(unit).dimension != "time":
        raise LanguageError.at_span("a time has a unit of time", span, 'such as "10 s"')
    period = value * Fraction(round(convert_unit(1000, unit, "ms")), 1000)
    if period.denominator != 1 or not 1 <= period <= 86_400_000:
        raise LanguageError.at_span("a time is from 1 ms to a day, in whole ms", span)
    return int(period)


def show_time(period: int) -> str:
    """Return ms as people write them."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if period % size == 0:
            return f"{period // size} {unit}"
    return f"{period} ms" if period < 1000 else f"{period / 1000:g} s"
