"""What the surfaces agree on: names of aggregators and plug-ins, moments, units, values as text.

Reading and printing must agree on these, so both directions are here: first what the words need
(`words.py`, `words_printer.py`), then names and values as plain text, the same in XML and JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

from denwatch.client import syntax
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.plugins import MembershipFunction, PluginRegistry, PredicateType

# The word for "the attribute's own unit" where another number of the constraint has a unit, and
# what stands for it between reading and `share_unit`, or `spread_unit` and printing.
OWN_WORD = "units"
OWN_UNIT = "\0own"

# How XML may say a phrase of time; folded.
LASTLY = re.compile(r"(?:in )?last (few \S+)")

SHAPES = ("trapezoid", "triangle", "falling", "rising", "bell", "gaussian")

_AGGREGATOR_WORDS = {
    "min": "minimum",
    "max": "maximum",
    "mean": "arithmetic_mean",
    "average": "arithmetic_mean",
    "arithmetic average": "arithmetic_mean",
    "weighted average": "weighted_mean",
} | {name.replace("_", " "): name for name in syntax.AGGREGATORS}

_TIME = r"\d\d?:\d\d(:\d\d(\.\d+)?)?"
_MOMENT = re.compile(rf"{_TIME}|\d{{4}}-\d\d-\d\d([T ]{_TIME}(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def check_length(text: str, limit: int) -> None:
    """Refuse a text that is longer than its surface allows."""
    if len(text) > limit:
        raise LanguageError(f"{len(text)} characters, {limit} is the limit", limit + 1)


def fold(text: str) -> str:
    """Return a phrase as it is compared: small letters, single blanks, no underscores, no "the"."""
    words = text.replace("_", " ").casefold().split()
    return " ".join(word for word in words if word != "the")


def find_aggregator(said: str, registry: PluginRegistry) -> str:
    """Return the name of an aggregator as it is said, or what was said if nobody knows it."""
    folded = fold(said)
    if folded in _AGGREGATOR_WORDS:
        return _AGGREGATOR_WORDS[folded]
    for aggregator in registry.aggregators.values():
        if folded in (fold(aggregator.name), *map(fold, aggregator.words)):
            return aggregator.name
    return said


def say_aggregator(name: str, registry: PluginRegistry) -> str | None:
    """Return how an aggregator is said, or None if only quotes keep its name."""
    words = registry.aggregators[name].words if name in registry.aggregators else ()
    for said in (name.replace("_", " "), *words):
        if find_aggregator(said, registry) == name:
            return said
    return None


def find_extension_by_word(
    word: str, registry: PluginRegistry
) -> tuple[bool, PredicateType | MembershipFunction]:
    """Return whether a plug-in's word is a shape's, and what it stands for."""
    folded = fold(word)
    for extension in registry.constraints:
        if folded in map(fold, extension.words):
            return registry.shapes.get(extension.name) is extension, extension
    raise KeyError(word)  # the lexer knows only words of the registry


def find_call(said: str, registry: PluginRegistry) -> tuple[bool, str]:
    """Return whether `said(...)` is a shape, and its name; a word of a plug-in may stand for it."""
    if said in registry.predicates:
        return False, said
    if said in registry.shapes or fold(said) in SHAPES:
        return True, said if said in registry.shapes else fold(said)
    try:
        shape, extension = find_extension_by_word(said, registry)
    except KeyError:
        return True, said  # the compiler will say that there is no such shape
    return shape, extension.name


def complete_moment(text: str) -> str:
    """Return a moment as ISO 8601 writes it: "9:30" is "09:30", a blank is a T."""
    return re.sub(r"(^|T)(\d:)", r"\g<1>0\2", text.replace(" ", "T"))


def is_moment(text: str) -> bool:
    """Return whether a text is a date, a time of day, or both, as ISO 8601 writes it."""
    return _MOMENT.fullmatch(text) is not None and complete_moment(text) == text


def share_unit(values: Sequence[syntax.Value]) -> list[syntax.Value]:
    """Return values as read: one without a unit takes that of the next one, else the last one.

    "Between 100 and 104 °F" means °F twice. OWN_UNIT says that the attribute's own is meant.
    """
    shared = list(values)
    units = [value.unit if isinstance(value, syntax.Quantity) else None for value in values]
    for place, value in enumerate(values):
        if not isinstance(value, syntax.Quantity):
            continue
        around = (value.unit, *units[place + 1 :], *reversed(units[:place]))
        unit = next((unit for unit in around if unit is not None), None)
        shared[place] = replace(value, unit=None if unit == OWN_UNIT else unit)
    return shared


def spread_unit(values: Sequence[syntax.Value]) -> list[syntax.Value]:
    """Return values as they are printed, so that `share_unit` reads them back.

    The same unit everywhere is written once, at the end.
    """
    quantities = [value for value in values if isinstance(value, syntax.Quantity)]
    same = len({quantity.unit for quantity in quantities}) == 1
    printed: list[syntax.Value] = []
    for value in values:
        if isinstance(value, syntax.Quantity) and same and value is not quantities[-1]:
            value = replace(value, unit=None)
        elif isinstance(value, syntax.Quantity) and not same and value.unit is None:
            value = replace(value, unit=OWN_UNIT)
        printed.append(value)
    return printed


def format_number(value: float) -> str:
    """Return the shortest text that reads back as the number."""
    if value != value or value in (float("inf"), float("-inf")):
        raise LanguageError(f"{value} cannot be written")
    text = repr(float(value))
    return text.removesuffix(".0")


# Names and values as plain text, the same in XML and JSON, and what those two share of fields.
#
# "104 °F" and "-5" are quantities, "2026-11-16", "14:30" and "2026-11-16T14:30" are moments,
# everything else is a text. A text that looks like something else, or that XML could not keep as it
# is, stands in double quotes with JSON's escapes.

# Fields of a subscription by the kind of their value.
SCALARS = ("possible", "certain", "score", "top", "relative_band", "hysteresis")
DURATIONS = ("valid_for", "expiry", "heartbeat", "quiet")
LIMITS = ("possible", "certain", "weight")  # of a predicate

_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)(?:\s*(\S.*))?", re.ASCII)
_UNIT = re.compile(r"[^\s\d\"+.,:-][^\s\",]*")
_ODD = r"\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
_PLAIN = re.compile(rf"[^\s\"{_ODD}](?:[^{_ODD}]*[^\s{_ODD}])?")


def read_value(text: str, span: syntax.SourceSpan | None) -> syntax.Value:
    """Return the value that a text is."""
    text = text.strip()
    if text.startswith('"'):
        return syntax.Text(read_text(text, span), span=span)
    if is_moment(text):
        return syntax.Moment(text, span=span)
    return _match_quantity(text, span) or syntax.Text(text, span=span)


def read_quantity(text: str, span: syntax.SourceSpan | None) -> syntax.Quantity:
    """Return the number, with its unit if any, that a text is."""
    quantity = _match_quantity(text.strip(), span)
    if quantity is None:
        raise LanguageError.at_span(
            f'"{text.strip()}" is not a number with a unit', span, 'as in "0.5 °C" or "10 min"'
        )
    return quantity


def read_scalar(text: str, span: syntax.SourceSpan | None) -> syntax.Scalar:
    """Return the plain number that a text is."""
    quantity = _match_quantity(text.strip(), span)
    if quantity is None or quantity.unit is not None:
        raise LanguageError.at_span(f'"{text.strip()}" is not a number', span)
    return syntax.Scalar(quantity.value, span=span)


def read_text(text: str, span: syntax.SourceSpan | None) -> str:
    """Return a name or text out of its quotes, if it has any."""
    text = text.strip()
    if not text.startswith('"'):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise LanguageError.at_span(f"in quotes: {error.msg}", span) from None
    assert isinstance(value, str)
    return value


def read_hedge(text: str, span: syntax.SourceSpan | None) -> syntax.Hedge:
    """Return the hedge of that name."""
    folded = " ".join(text.casefold().replace("_", " ").replace("-", " ").split())
    try:
        return syntax.Hedge(folded)
    except ValueError:
        raise LanguageError.at_span(
            f'unknown hedge "{text.strip()}"',
            span,
            suggestions=suggest_names(folded, list(syntax.Hedge)),
        ) from None


def write_value(value: syntax.Value) -> str:
    """Return the text that `read_value` reads as the value."""
    if isinstance(value, syntax.Text):
        plain = write_text(value.value)
        if plain == value.value and not isinstance(read_value(plain, None), syntax.Text):
            return quote(value.value)
        return plain
    return write_moment(value) if isinstance(value, syntax.Moment) else write_quantity(value)


def write_moment(moment: syntax.Moment) -> str:
    """Return a moment as it is, or refuse what is none."""
    if not is_moment(moment.text):
        raise LanguageError.at_node(f'"{moment.text}" is not a date or a time', moment)
    return moment.text


def write_quantity(quantity: syntax.Quantity) -> str:
    """Return number and unit; the unit in quotes where it could be read as something else."""
    number = format_number(quantity.value)
    if quantity.unit is None:
        return number
    unit = quantity.unit
    return f"{number} {unit if _is_unit(unit) else quote(unit)}"


def write_text(text: str) -> str:
    """Return a name or text as XML keeps it, in quotes if need be."""
    return text if _is_plain(text) else quote(text)


def _match_quantity(text: str, span: syntax.SourceSpan | None) -> syntax.Quantity | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if math.isinf(number):
        raise LanguageError.at_span("this number is too large", span)
    if unit is None:
        return syntax.Quantity(number, None, span=span)
    if unit.startswith('"'):
        return syntax.Quantity(number, read_text(unit, span), span=span)
    return syntax.Quantity(number, unit, span=span) if _is_unit(unit) else None


def _is_plain(text: str) -> bool:
    """Return whether XML keeps a text as it is, white space included."""
    return bool(_PLAIN.fullmatch(text)) and "  " not in text and not re.search(r"[^\S ]", text)


def _is_unit(text: str) -> bool:
    return _UNIT.fullmatch(text) is not None and _is_plain(text)


def quote(text: str) -> str:
    """Return a text in double quotes, as `read_text` takes it verbatim."""
    return json.dumps(text, ensure_ascii=True)
