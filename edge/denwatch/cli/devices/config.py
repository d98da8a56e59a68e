"""Builds `watchdog.json`: which sensor gives which attribute, for which device and nodes.

A `ConfigBuilder` looks words up in the vocabulary, shares sources and groups channels by event. It
takes one sentence at a time, and a sentence that it refuses does not change it, so that a wizard
can ask again.

The functions below it read what stands in files or in one word: key file, sources written by hand,
certificate, wireless network, spool. The only file of `denwatch device config` that opens files;
every refusal is a CommandError that says what and where. `docs/watchdog.md` describes the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from denwatch.cli.common import point_at, read_file
from denwatch.cli.devices.channels import (
    Ends,
    Found,
    LookUp,
    SensorScale,
    SourceTable,
    check_units,
    convert,
    convert_width,
    fit_ends,
    fit_symbols,
    read_points,
    read_step,
)
from denwatch.cli.devices.schema import check_source
from denwatch.cli.devices.sentences import Sentence, parse_lines, parse_sentence
from denwatch.cli.errors import MISSING, CommandError
from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary
from denwatch.client.vocabulary.values import convert as convert_unit
from denwatch.client.vocabulary.values import find_unit
from denwatch.client.vocabulary.vocabulary import HASH_DIGITS
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.site import read_secret_file, write_file

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
        return f"{float(convert(scale.to_value(number), scale.unit, self.attribute.unit)):.5g}"

    def _show_width(self, steps: int, scale: SensorScale) -> str:
        width = convert_width(steps * scale.step, scale.unit, self.attribute.unit)
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
    organisation: str | None = None
    period: int = DEFAULT_PERIOD
    look: LookUp = field(default=lambda _: None, repr=False)  # finds the columns of a CSV file
    rows: list[ConfigRow] = field(default_factory=list, init=False)
    _periods: dict[str, int] = field(default_factory=dict, init=False)  # those that were said
    _sources: SourceTable = field(init=False)

    def __post_init__(self) -> None:
        self._sources = SourceTable(self.written, self.look)

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
        found = self.vocabulary.prefer(self.organisation).find_attributes(sentence.attribute)
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
            scale = read_points(attribute, points)
        elif step is not None:
            scale = read_step(attribute, step)
        elif found.scale is not None:
            scale = found.scale
            check_units(attribute, scale.unit, found.called, span)
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
            return scale, fit_ends(attribute, scale, known, sentence, _CSV_LAST)
        return scale, fit_ends(attribute, scale, known, sentence)

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
        return fit_symbols(attribute, found.known, sentence.source.span)

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
    cells = [_HEADS, *(row.describe() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADS))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
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


# Files and options ----------------------------------------------------------------------------

DEFAULT_SPOOL = "file:spool.bin"
_BLOCKS = 16  # of 4 KB
_FEWEST = 3  # blocks that a spool needs
_BLOCK = 4096
_LINE = 1 << 16


def read_key(path: Path) -> dict[str, Any]:
    """Return name and nodes of a device: what `denwatch keys show NAME --secrets` wrote."""
    try:
        data = read_secret_file(path)
    except SecurityError as error:
        raise CommandError(str(error), 1 if path.exists() else MISSING) from None
    key = _parse_json(data.decode("utf-8", "replace"), path)
    show = "`denwatch keys show NAME --secrets --output FILE` writes one"
    if not isinstance(key.get("device"), str) or not isinstance(key.get("nodes"), list):
        raise CommandError(f"{path}: not a device's key file; {show}")
    for node in key["nodes"]:
        if not isinstance(node, dict) or not _is_hex(node.get("key")):
            raise CommandError(f"{path}: there is no key in it; {show}")
    return {"device": key["device"], "nodes": [dict(node) for node in key["nodes"]]}


def read_sources(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sources that stand in a file: {"name": {"kind": ...}, ...}."""
    document = _parse_json(read_file(path), path)
    for name, entry in document.items():
        try:
            check_source(entry)
        except ValueError as error:
            raise CommandError(f"{path}: {name}: {error}") from None
    return document


def add_sentence(builder: ConfigBuilder, text: str) -> ConfigRow:
    """Take one sentence; the error points at the word."""
    try:
        return builder.add(parse_sentence(text))
    except LanguageError as error:
        raise CommandError(point_at(error, text, "")) from None


def add_file(builder: ConfigBuilder, path: Path) -> None:
    """Take the sentences of a file, one a line."""
    text = read_file(path)
    try:
        for sentence in parse_lines(text):
            builder.add(sentence)
    except LanguageError as error:
        raise CommandError(point_at(error, text, str(path))) from None


def read_columns(path: str) -> list[str] | None:
    """Return the columns of a CSV file, None if it is not there (yet, or on the board only)."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            return [name.strip() for name in stream.readline(_LINE).split(",")]
    except OSError:
        return None


def read_spool(text: str) -> dict[str, Any]:
    """Return the spool that `file:NAME[:BLOCKS]`, `partition:NAME` or `flash:START:LENGTH` says."""
    kind, _, rest = text.partition(":")
    if kind == "partition" and rest:
        return {"partition": rest}
    if kind == "file" and rest:
        name, _, blocks = rest.rpartition(":")
        if not name:
            return {"file": rest, "blocks": _BLOCKS}
        if not blocks.isdecimal() or int(blocks) < _FEWEST:
            raise CommandError(f'spool "{text}": at least {_FEWEST} blocks of 4 KB')
        return {"file": name, "blocks": int(blocks)}
    if kind == "flash":
        try:
            start, length = (int(number, 0) for number in rest.split(":"))
        except ValueError:
            raise CommandError(f'spool "{text}": flash:START:LENGTH, in bytes') from None
        if start < 0 or start % _BLOCK or length % _BLOCK or length < _FEWEST * _BLOCK:
            raise CommandError(
                f'spool "{text}": both are multiples of {_BLOCK}, at least {_FEWEST} of them'
            )
        return {"flash": [start, length]}
    known = ("file:spool.bin", "partition:spool", "flash:0x100000:0x10000")
    near = suggest_names(kind, ("file", "partition", "flash"))
    meant = f"; did you mean {join_choices(near)}?" if near and near[0] != kind else ""
    raise CommandError(f'spool "{text}": none{meant} (such as {", ".join(known)})')


def read_wifi(name: str, password: str) -> dict[str, str]:
    """Return a wireless network; an empty password is for an open one."""
    if not 1 <= len(name.encode()) <= 32:
        raise CommandError(f'the network "{name}": a name has 1 to 32 bytes')
    if password and not 8 <= len(password.encode()) <= 64:
        raise CommandError(f"the password of {name}: WPA has 8 to 63 characters")
    return {"name": name, "password": password}


def read_password_file(path: Path) -> str:
    """Return the password that a file of mode 0600 holds."""
    try:
        return read_secret_file(path).decode("utf-8").rstrip("\r\n")
    except SecurityError as error:
        raise CommandError(str(error), 1 if path.exists() else MISSING) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not a text") from None


def list_secured(device: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes that are reached over TLS."""
    return [node for node in device["nodes"] if str(node.get("url", "")).startswith("mqtts:")]


def set_certificate(device: Mapping[str, Any], given: str | None) -> None:
    """Name the authority's certificate for every node with TLS; it must be there, as DER."""
    nodes = list_secured(device)
    if given is not None and not nodes:
        raise CommandError(f"--ca {given}: none of the nodes has TLS")
    for node in nodes:
        node["ca"] = given or node.get("ca") or "ca.der"
        check_certificate(Path(node["ca"]), str(node.get("name")))


def check_certificate(path: Path, name: str) -> None:
    """Refuse what a board cannot verify a node with."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"{name}: {path}: {error.strerror}; --ca FILE names its authority's certificate, "
            f"the ca.der in the node's tls/",
            MISSING,
        ) from None
    if data.startswith(b"-----"):
        raise CommandError(f"{path} is PEM; a board takes DER: the ca.der beside it")
    if not data.startswith(b"\x30"):
        raise CommandError(f"{path} is no certificate")


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a configuration for its owner's eyes only: it holds a key."""
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    try:
        write_file(path, text.encode())
    except SecurityError as error:
        raise CommandError(str(error), MISSING) from None


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise CommandError(f"{path}: not a JSON object")
    return document


def _is_hex(text: object) -> bool:
    try:
        return bool(bytes.fromhex(str(text)))
    except ValueError:
        return False
