"""The small language of `--sense`: what is sensed, by what, and how.

    patient_temperature from ds18x20 on pin 4 every 5 s
    heart_rate from ward.csv column pulse accuracy 1 worst 3

An attribute, "from", a sensor, and then clauses in any order, each once. Pure: words in, a
`Sentence` with the place of every word out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from denwatch.cli.devices.schema import Sensor, SensorField
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Name, SourceSpan
from denwatch.client.vocabulary import Attribute
from denwatch.client.vocabulary.values import UnitError, find_unit, list_spellings

_TOKEN = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+|[\"']")
_NUMBER = re.compile(r"([+-]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12}))(?!\d)(.*)")
_WHOLE = re.compile(r"[+-]?\d{1,12}|0[xX][0-9a-fA-F]{1,8}")

FLAGS = ("inverted", "signed", "little")
WHOLES = ("pin", "scale", "bus", "clock", "data", "address", "register", "bytes", "shift")
WIRES = ("pin", "bus", "clock", "data")  # they may stand after "on"
TEXTS = ("file", "column", "field", "in")
CLAUSES = (*WHOLES, *TEXTS, *FLAGS, "sensor", "step", "with", "accuracy", "range", "every")
_INSIDE = ("from", "on", "of", "at", "and", "worst", "to")  # words within a clause


@dataclass(frozen=True)
class Amount:
    """A number with its unit, if one was written."""

    value: Fraction
    unit: str | None
    span: SourceSpan


@dataclass(frozen=True)
class Clause:
    """One clause: its numbers in the order of its words, and its text if it has one."""

    span: SourceSpan
    amounts: tuple[Amount, ...] = ()
    text: str = ""

    @property
    def whole(self) -> int:
        """The number of a clause that has one whole number."""
        return int(self.amounts[0].value)


@dataclass(frozen=True)
class Sentence:
    """What was said about one attribute."""

    attribute: Name
    source: Name
    clauses: Mapping[str, Clause] = field(default_factory=dict)

    def find(self, word: str) -> Clause | None:
        """Return a clause, None if it was not said."""
        return self.clauses.get(word)


def parse_sentence(text: str, start: int = 0, end: int | None = None) -> Sentence:
    """Return what one line says; LanguageError with the place in the whole text."""
    return _SentenceParser(text, start, len(text) if end is None else end).parse()


def parse_amount(text: str) -> Amount:
    """Return a number with its unit, "5 s", and nothing else."""
    parser = _SentenceParser(text, 0, len(text))
    amount = parser.take_amount("what is said")
    if parser.at < len(parser.words):
        raise LanguageError.at_span("a number and a unit are enough", parser.words[parser.at].span)
    return amount


def parse_lines(text: str) -> Iterator[Sentence]:
    """Yield what each line says; empty ones and those that begin with "#" say nothing."""
    at = 0
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            yield parse_sentence(text, at, at + len(line))
        at += len(line) + 1


class _SentenceParser:
    def __init__(self, text: str, start: int, end: int) -> None:
        self.words: list[Name] = []
        for found in _TOKEN.finditer(text, start, end):
            word, span = found[0], SourceSpan(found.start(), found.end())
            if word in ("'", '"'):
                raise LanguageError.at_span(f"this {word} is not closed", span)
            self.words.append(Name(word, span=span))
        self.at = 0
        self.end = SourceSpan(end, end)

    # Words ------------------------------------------------------------------------------------

    def peek(self) -> str:
        return self.words[self.at].text if self.at < len(self.words) else ""

    def take(self, what: str) -> Name:
        if self.at == len(self.words):
            raise LanguageError.at_span(f"{what} is missing at the end", self.end)
        self.at += 1
        return self.words[self.at - 1]

    def accept(self, word: str) -> bool:
        if self.peek().casefold() != word:
            return False
        self.at += 1
        return True

    def expect(self, word: str, after: str) -> None:
        if not self.accept(word):
            found = self.take(f'"{word}" after {after}')
            raise LanguageError.at_span(
                f'"{word}" is expected after {after}, not "{found.text}"', found.span
            )

    def take_text(self, what: str) -> Name:
        word = self.take(what)
        if word.text[0] in "\"'":
            if len(word.text) == 2:
                raise LanguageError.at_span(f"{what} is empty", word.span)
            return Name(word.text[1:-1], span=word.span)
        return word

    # Numbers ----------------------------------------------------------------------------------

    def take_whole(self, what: str) -> Amount:
        word = self.take(what)
        if not _WHOLE.fullmatch(word.text):
            raise LanguageError.at_span(
                f'{what} is a whole number, "{word.text}" is not', word.span
            )
        assert word.span is not None
        return Amount(
            Fraction(int(word.text, 0 if "x" in word.text.lower() else 10)), None, word.span
        )

    def take_amount(self, what: str) -> Amount:
        """Return a number; its unit may stand right behind it, or be the next word."""
        word = self.take(what)
        assert word.span is not None
        found = _NUMBER.fullmatch(word.text)
        if not found:
            raise LanguageError.at_span(f'{what} is a number, "{word.text}" is not', word.span)
        span, unit = word.span, found[2]
        following = self.peek()
        if not unit and following and following.casefold() not in (*CLAUSES, *_INSIDE):
            name = self.take("a unit")
            assert name.span is not None
            unit, span = name.text, SourceSpan(span.start, name.span.end)
            self.check_unit(name, "neither a unit nor a word of this language", CLAUSES)
        elif unit:
            self.check_unit(Name(unit, span=span), "no unit", ())
        return Amount(Fraction(found[1]), find_unit(unit).name if unit else None, span)

    def check_unit(self, name: Name, refusal: str, others: tuple[str, ...]) -> None:
        try:
            find_unit(name.text)
        except UnitError:
            near = suggest_names(name.text, [*others, *list_spellings()])
            raise LanguageError.at_span(
                f'"{name.text}" is {refusal}', name.span, suggestions=near
            ) from None

    # Clauses ----------------------------------------------------------------------------------

    def parse(self) -> Sentence:
        attribute = self.parse_attribute()
        source = self.take_text('a sensor after "from"')
        clauses: dict[str, Clause] = {}
        while self.at < len(self.words):
            is_wire = self.accept("on")
            word = self.take('"pin" after "on"')
            name = word.text.casefold()
            if is_wire and name not in WIRES:
                raise LanguageError.at_span(
                    f'"pin" is expected after "on", not "{word.text}"', word.span
                )
            if name not in CLAUSES:
                raise LanguageError.at_span(
                    f'"{word.text}" is no word of this language',
                    word.span,
                    suggestions=suggest_names(word.text, CLAUSES),
                )
            if name in clauses:
                raise LanguageError.at_span(f'"{name}" is given twice', word.span)
            clauses[name] = self.parse_clause(name, word)
        return Sentence(attribute, source, clauses)

    def parse_attribute(self) -> Name:
        """Return the words before "from" as one name: synonyms may have several words."""
        first = self.take("an attribute")
        texts = [word.text.casefold() for word in self.words]
        at = texts.index("from") if "from" in texts else -1
        if at < 1:
            what = "an attribute is missing before" if at == 0 else "there is no"
            raise LanguageError.at_span(
                f'{what} "from"', first.span, "heart_rate from ward.csv column pulse"
            )
        self.at = at + 1
        last = self.words[at - 1].span
        assert first.span is not None
        assert last is not None
        text = " ".join(word.text.strip("\"'") for word in self.words[:at])
        return Name(text, span=SourceSpan(first.span.start, last.end))

    def parse_clause(self, name: str, word: Name) -> Clause:
        assert word.span is not None
        amounts: tuple[Amount, ...] = ()
        text = ""
        if name in WHOLES:
            amounts = (self.take_whole(f'what follows "{name}"'),)
        elif name in TEXTS:
            text = self.take_text(f'what follows "{name}"').text
        elif name not in FLAGS:
            read: dict[str, Callable[[], tuple[Amount, ...]]] = {
                "sensor": self.parse_sensor,
                "step": lambda: (self.take_amount('what follows "step"'),),
                "every": lambda: (self.take_amount('what follows "every"'),),
                "accuracy": self.parse_accuracy,
                "range": self.parse_range,
                "with": self.parse_points,
            }
            amounts = read[name]()
        last = self.words[self.at - 1].span
        assert last is not None
        return Clause(SourceSpan(word.span.start, last.end), amounts, text)

    def parse_sensor(self) -> tuple[Amount, ...]:
        """Read `sensor 2 of 3`."""
        number = self.take_whole('what follows "sensor"')
        return (number, self.take_whole('what follows "of"')) if self.accept("of") else (number,)

    def parse_accuracy(self) -> tuple[Amount, ...]:
        """Read `accuracy 0.2 worst 0.5`."""
        typical = self.take_amount('what follows "accuracy"')
        worst = self.take_amount('what follows "worst"') if self.accept("worst") else typical
        for amount in (typical, worst):
            if amount.value < 0:
                raise LanguageError.at_span("an accuracy is not below 0", amount.span)
        return _share_unit(typical, worst)

    def parse_range(self) -> tuple[Amount, ...]:
        """Read `range -55 to 125 °C`."""
        low = self.take_amount('what follows "range"')
        self.expect("to", "the lower end")
        return _share_unit(low, self.take_amount('what follows "to"'))

    def parse_points(self) -> tuple[Amount, ...]:
        """Read `with 0 bar at 6553 and 300 bar at 58982`."""
        first = self.take_amount('what follows "with"')
        self.expect("at", "the value")
        low = self.take_whole('what follows "at"')
        self.expect("and", "the first point")
        second = self.take_amount('what follows "and"')
        self.expect("at", "the value")
        first, second = _share_unit(first, second)
        return first, low, second, self.take_whole('what follows "at"')


def _share_unit(first: Amount, second: Amount) -> tuple[Amount, Amount]:
    """Return two amounts of which one unit was written: it is that of both."""
    unit = first.unit or second.unit
    return replace(first, unit=first.unit or unit), replace(second, unit=second.unit or unit)


# Which number of a source a sentence means ----------------------------------------------------
#
# A DHT22 gives a temperature and a humidity; who asks for `air_temperature` means the first. Where
# a unit alone would decide (smoke and humidity are both in %), the name must be said.


def choose_field(sentence: Sentence, attribute: Attribute, sensor: Sensor) -> SensorField:
    """Return the field that was named, else the obvious one, else the one with that name."""
    clause = sentence.find("field")
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
                sentence.source.span,
                f'if that is meant, say "field {field.name}"',
            )
    return obvious


def _measure_alike(first: str | None, second: str | None) -> bool:
    if first is None or second is None:
        return False
    return find_unit(first).dimension == find_unit(second).dimension


def choose_place(sentence: Sentence, names: list[str], default: str) -> int:
    """Return the place of a column or field that was called by its name or number."""
    word = "column" if sentence.find("column") else "field"
    clause = sentence.find(word)
    if word == "column" and sentence.find("field"):
        raise LanguageError.at_span('"column" or "field", not both', sentence.clauses["field"].span)
    wanted = clause.text if clause is not None else default
    span = clause.span if clause is not None else sentence.source.span
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    if clause is None and len(names) == 1:
        return 0
    raise LanguageError.at_span(
        f'{sentence.source.text} has no {word} "{wanted}"'
        if wanted
        else f"which of {sentence.source.text}?",
        span,
        f"it has {', '.join(names)}",
        suggest_names(wanted, names),
    )


def read_unit(sentence: Sentence) -> str | None:
    """Return the unit of a column, None if none is said."""
    clause = sentence.find("in")
    if clause is None:
        return None
    try:
        return find_unit(clause.text).name
    except UnitError as error:
        near = suggest_names(clause.text, list_spellings())
        raise LanguageError.at_span(str(error), clause.span, suggestions=near) from None
