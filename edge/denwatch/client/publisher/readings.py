"""Compiles a reading in words, like "patient heart_rate=160 bpm patient_temperature=39.5±0.2".

    [EVENT] ATTRIBUTE=VALUE [UNIT] ...

Names are the vocabulary's, or an organisation's synonyms. A number may have a unit and an accuracy
(±, +-), a text is one of the attribute's symbols, dates and times are ISO 8601, and `broken` is a
sensor without a reading. Pure; every error has its place in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Moment, Name, Quantity, SourceSpan, Text
from denwatch.client.vocabulary.attributes import Attribute, ValueKind
from denwatch.client.vocabulary.values import read_value, read_width
from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.protocol.vectors import NotificationVector, Reading

BROKEN = "broken"

_TOKEN = re.compile(r"""("[^"]*"|'[^']*'|[^\s="']+)(\s*=\s*)?""")
_NUMBER = re.compile(
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s*(?:±|\+/?-)\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))?\s*(.*)"
)


@dataclass
class _Pair:
    """One attribute and what was written for it."""

    name: Name
    value: str
    span: SourceSpan
    words: list[str] = field(default_factory=list)  # further words: a unit that stands apart

    @property
    def text(self) -> str:
        return " ".join([self.value, *self.words])


def parse_reading(
    text: str, vocabulary: Vocabulary, organisation: str | None = None
) -> NotificationVector:
    """Return the notification vector of a reading; LanguageError has the place of an error."""
    vocabulary = vocabulary.prefer(organisation)
    event_name, pairs = _split(text)
    if event_name is not None:
        event = vocabulary.find_event(event_name)
    else:
        names = [pair.name for pair in pairs]
        event = vocabulary.find_common_event(names, "begin with one of them:")
    readings: dict[int, Reading] = {}
    faults = 0
    for pair in pairs:
        (attribute,) = vocabulary.find_attributes(pair.name, event)
        if attribute.bit in readings or faults >> attribute.bit & 1:
            raise LanguageError.at_node(f"{attribute.name} has a value already", pair.name)
        if pair.text == BROKEN and vocabulary.find_symbol(attribute, BROKEN) is None:
            faults |= 1 << attribute.bit
        else:
            points = _read_points(pair, attribute, vocabulary)
            readings[attribute.bit] = Reading(attribute.bit, points, attribute.wide)
    ordered = [readings[bit] for bit in sorted(readings)]
    return NotificationVector(event.number, ordered, faults=faults)


def _split(text: str) -> tuple[Name | None, list[_Pair]]:
    """Return the event, if one is named, and the pairs."""
    event: Name | None = None
    pairs: list[_Pair] = []
    pending: Name | None = None  # an attribute without a value so far
    at = len(text) - len(text.lstrip())
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise LanguageError("expected a name or a value", at + 1)
        word, has_equals = token.group(1), token.group(2) is not None
        span = SourceSpan(token.start(1), token.end(1))
        if pending is not None:
            if has_equals:
                raise LanguageError.at_span("a value is followed by a space", span)
            pairs.append(_Pair(pending, word.strip("\"'"), span))
            pending = None
        elif has_equals:
            pending = Name(word.strip("\"'"), span=span)
        elif pairs:
            pairs[-1].words.append(word)
        elif event is None:
            event = Name(word.strip("\"'"), span=span)
        else:
            hint = "EVENT ATTRIBUTE=VALUE ..."
            raise LanguageError.at_span(f'"{word}" is not ATTRIBUTE=VALUE', span, hint)
        at = token.end()
        at += len(text[at:]) - len(text[at:].lstrip())
    if pending is not None:
        raise LanguageError.at_node(f'"{pending.text}" has no value', pending)
    if not pairs:
        raise LanguageError("the reading is empty: EVENT ATTRIBUTE=VALUE ...")
    return event, pairs


def _read_points(
    pair: _Pair, attribute: Attribute, vocabulary: Vocabulary
) -> tuple[int, int, int, int]:
    """Return the four points of a value: one if it is exact."""
    if attribute.kind is ValueKind.TEXT:
        code = vocabulary.find_symbol(attribute, pair.text)
        if code is None:
            known = vocabulary.list_choices(attribute)
            names = suggest_names(pair.text, known)
            hint = f"one of {attribute.describe_domain()}"
            raise LanguageError.at_span(
                f'{attribute.name} is never "{pair.text}"', pair.span, hint, names
            )
        return (code,) * 4
    if attribute.kind is not ValueKind.NUMBER:
        return (attribute.to_code(read_value(Moment(pair.text, span=pair.span), attribute)),) * 4
    number = _NUMBER.fullmatch(pair.text)
    if number is None:
        value = read_value(Text(pair.text, span=pair.span), attribute)  # raises the error
        return (attribute.to_code(value),) * 4
    unit = number.group(3) or None
    value = read_value(Quantity(float(number.group(1)), unit, span=pair.span), attribute)
    code = attribute.to_code(value)
    if number.group(2) is None or float(number.group(2)) == 0:
        return (code,) * 4
    accuracy = Quantity(float(number.group(2)), unit, span=pair.span)
    width = read_width(accuracy, attribute)
    return attribute.to_code(value - width), code, code, attribute.to_code(value + width)
