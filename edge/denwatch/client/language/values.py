"""Names and values as plain text, the same in XML and JSON, and what those two share of fields.

"104 °F" and "-5" are quantities, "2026-11-16", "14:30" and "2026-11-16T14:30" are moments,
everything else is a text. A text that looks like something else, or that XML could not keep as it
is, stands in double quotes with JSON's escapes.
"""

from __future__ import annotations

import json
import math
import re

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language.lexicon import is_moment
from denwatch.client.language.phrases import format_number
from denwatch.client.syntax import Hedge, Moment, Quantity, Scalar, SourceSpan, Text, Value

# Fields of a subscription by the kind of their value.
SCALARS = ("possible", "certain", "score", "top", "relative_band", "hysteresis")
DURATIONS = ("valid_for", "expiry", "heartbeat", "quiet")
LIMITS = ("possible", "certain", "weight")  # of a predicate

_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)(?:\s*(\S.*))?", re.ASCII)
_UNIT = re.compile(r"[^\s\d\"+.,:-][^\s\",]*")
_ODD = r"\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
_PLAIN = re.compile(rf"[^\s\"{_ODD}](?:[^{_ODD}]*[^\s{_ODD}])?")


def read_value(text: str, span: SourceSpan | None) -> Value:
    """Return the value that a text is."""
    text = text.strip()
    if text.startswith('"'):
        return Text(read_text(text, span), span=span)
    if is_moment(text):
        return Moment(text, span=span)
    return _match_quantity(text, span) or Text(text, span=span)


def read_quantity(text: str, span: SourceSpan | None) -> Quantity:
    """Return the number, with its unit if any, that a text is."""
    quantity = _match_quantity(text.strip(), span)
    if quantity is None:
        raise LanguageError.at_span(
            f'"{text.strip()}" is not a number with a unit', span, 'as in "0.5 °C" or "10 min"'
        )
    return quantity


def read_scalar(text: str, span: SourceSpan | None) -> Scalar:
    """Return the plain number that a text is."""
    quantity = _match_quantity(text.strip(), span)
    if quantity is None or quantity.unit is not None:
        raise LanguageError.at_span(f'"{text.strip()}" is not a number', span)
    return Scalar(quantity.value, span=span)


def read_text(text: str, span: SourceSpan | None) -> str:
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


def read_hedge(text: str, span: SourceSpan | None) -> Hedge:
    """Return the hedge of that name."""
    folded = " ".join(text.casefold().replace("_", " ").replace("-", " ").split())
    try:
        return Hedge(folded)
    except ValueError:
        raise LanguageError.at_span(
            f'unknown hedge "{text.strip()}"', span, suggestions=suggest_names(folded, list(Hedge))
        ) from None


def write_value(value: Value) -> str:
    """Return the text that `read_value` reads as the value."""
    if isinstance(value, Text):
        plain = write_text(value.value)
        if plain == value.value and not isinstance(read_value(plain, None), Text):
            return quote(value.value)
        return plain
    if isinstance(value, Moment):
        if not is_moment(value.text):
            raise LanguageError.at_node(f'"{value.text}" is not a date or a time', value)
        return value.text
    return write_quantity(value)


def write_quantity(quantity: Quantity) -> str:
    """Return number and unit; the unit in quotes where it could be read as something else."""
    number = format_number(quantity.value)
    if quantity.unit is None:
        return number
    unit = quantity.unit
    return f"{number} {unit if _is_unit(unit) else quote(unit)}"


def write_text(text: str) -> str:
    """Return a name or text as XML keeps it, in quotes if need be."""
    return text if _is_plain(text) else quote(text)


def _match_quantity(text: str, span: SourceSpan | None) -> Quantity | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if math.isinf(number):
        raise LanguageError.at_span("this number is too large", span)
    if unit is None:
        return Quantity(number, None, span=span)
    if unit.startswith('"'):
        return Quantity(number, read_text(unit, span), span=span)
    return Quantity(number, unit, span=span) if _is_unit(unit) else None


def _is_plain(text: str) -> bool:
    """Return whether XML keeps a text as it is, white space included."""
    return bool(_PLAIN.fullmatch(text)) and "  " not in text and not re.search(r"[^\S ]", text)


def _is_unit(text: str) -> bool:
    return _UNIT.fullmatch(text) is not None and _is_plain(text)


def quote(text: str) -> str:
    """Return a text in double quotes, as `read_text` takes it verbatim."""
    return json.dumps(text, ensure_ascii=True)
