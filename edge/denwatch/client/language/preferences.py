"""What a person prefers, in words: how much they want to hear, of all their subscriptions.

    my top 3
    my top 3 of the last 20                          of the last 20 that matched
    my top 3 of the last 10 minutes, by mean         several subscriptions match: their mean counts
    my top 5, fading over 1 hour, by most specific
    my top 3, by weighted sum, weight 2 for fever, weight 0.5 for "bad air"
    my top off

    meine besten 3 der letzten 10 Minuten, nach Mittelwert        German has the same words
    meine besten 5, verblassend über 1 Stunde, nach den speziellsten, Gewicht 2 für Fieber
    meine besten aus

The parts stand in any order; a comma between them is welcome. JSON says the same:
`{"top": 3, "last": 20}`, `{"top": 3, "within": "10 min", "by": "mean"}`. Only this file reads and
writes these words; what the options may be is checked by the node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language.lexicon import format_number, quote, read_quantity, read_text
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary.values import read_duration

_BEGIN = re.compile(r"\s*(?:my\s+top|meine\s+besten)\b", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,9}\b|(?:off|aus)\b", re.IGNORECASE)
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_NEXT = r"fading|by|weight|verblassend|nach|gewicht"  # begins another part
_SPECIFIC = r"most\s+specific|speziellsten"
_PARTS = {
    "window": re.compile(
        r"(?:(?:of|in)\s+the\s+last|(?:der|von\s+den|in\s+den)\s+letzten)"
        rf"\s+({_NUMBER})(?:\s*(?!(?:{_NEXT})\b)([^\W\d]\w*))?",
        re.IGNORECASE,
    ),
    "fading": re.compile(
        r"(?:fading\s+(?:over|until)|verblassend\s+(?:über|ueber|bis))"
        rf"\s+({_NUMBER})\s*([^\W\d]\w*)",
        re.IGNORECASE,
    ),
    "by": re.compile(
        rf"(?:by\s+(?:the\s+)?|nach\s+(?:de[nmr]\s+)?)(?:({_SPECIFIC})\b"
        rf"|(weighted\s+sum|gewichteter\s+summe|\w+)"
        rf"(\s+(?:of|der)\s+(?:the\s+)?(?:{_SPECIFIC})\b)?)",
        re.IGNORECASE,
    ),
    "weight": re.compile(
        rf'(?:weight|gewicht)\s+({_NUMBER})\s+(?:for|für|fuer)\s+("(?:\\.|[^"\\])*"|[^\s,]+)',
        re.IGNORECASE,
    ),
}
_COMBINATIONS = {
    "maximum": "maximum",
    "max": "maximum",
    "best": "maximum",
    "minimum": "minimum",
    "min": "minimum",
    "worst": "minimum",
    "mean": "mean",
    "average": "mean",
    "mittelwert": "mean",
    "durchschnitt": "mean",
    "weighted sum": "sum",
    "sum": "sum",
    "gewichteter summe": "sum",
    "summe": "sum",
}
_SAID = {"maximum": "maximum", "minimum": "minimum", "mean": "mean", "sum": "weighted sum"}
# No units of time.
_COUNTED = ("notifications", "notification", "matches", "events", "news", "meldungen", "treffer")
_GERMAN_UNITS = {
    "sekunde": "s",
    "sekunden": "s",
    "minuten": "min",
    "stunde": "h",
    "stunden": "h",
    "tag": "d",
    "tage": "d",
    "tagen": "d",
}
_GAP = re.compile(r"[\s,]*")
_END = re.compile(r"\s*\.?\s*$")


def is_preference(text: str) -> bool:
    """Return whether words are about what a person prefers."""
    return _BEGIN.match(text) is not None


def parse_preference(text: str) -> dict[str, Any]:
    """Return the options that words say, none for "my top off"; LanguageError points at a fault."""
    begin = _BEGIN.match(text)
    assert begin is not None, "is_preference"
    place = _skip(text, begin.end())
    count = _COUNT.match(text, place)
    if count is None:
        raise LanguageError("a number or off is expected: my top 3", place + 1)
    place = count.end()
    if count[0].casefold() in ("off", "aus"):
        if not _END.match(text, place):
            raise LanguageError("nothing is expected after off", _skip(text, place) + 1)
        return {}
    options: dict[str, Any] = {"top": int(count[0])}
    while not _END.match(text, place):
        place = _skip(text, place)
        for name, pattern in _PARTS.items():
            part = pattern.match(text, place)
            if part is not None:
                _READERS[name](options, part, SourceSpan(part.start(), part.end()))
                place = part.end()
                break
        else:
            known = "of the last …, fading over …, by …, weight … for …"
            raise LanguageError(f"one of these is expected: {known}", place + 1)
    return options


def _skip(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    assert gap is not None, "it matches nothing as well"
    return gap.end()


def _set(options: dict[str, Any], name: str, value: Any, span: SourceSpan) -> None:
    if name in options:
        raise LanguageError.at_span(f"{name} is said twice", span)
    options[name] = value


def _read_window(options: dict[str, Any], part: re.Match[str], span: SourceSpan) -> None:
    number, unit = part[1], part[2]
    if unit is None or unit.casefold() in _COUNTED:
        if "." in number:
            raise LanguageError.at_span("a number of notifications is whole", span)
        _set(options, "last", int(number), span)
    else:
        _set(options, "within", _read_time(number, unit, span), span)


def _read_fading(options: dict[str, Any], part: re.Match[str], span: SourceSpan) -> None:
    _set(options, "fading", _read_time(part[1], part[2], span), span)


def _read_by(options: dict[str, Any], part: re.Match[str], span: SourceSpan) -> None:
    if part[1]:
        _set(options, "specific", True, span)
        return
    said = " ".join(part[2].casefold().split())
    if said not in _COMBINATIONS:
        raise LanguageError.at_span(
            f'there is no combination "{said}"',
            span,
            suggestions=suggest_names(said, [*_COMBINATIONS, "most specific"])
            or ("maximum", "mean", "minimum", "weighted sum"),
        )
    _set(options, "by", _COMBINATIONS[said], span)
    if part[3]:
        _set(options, "specific", True, span)


def _read_weight(options: dict[str, Any], part: re.Match[str], span: SourceSpan) -> None:
    weights = options.setdefault("weights", {})
    _set(weights, read_text(part[2], span), float(part[1]), span)


def _read_time(number: str, unit: str, span: SourceSpan) -> float:
    unit = _GERMAN_UNITS.get(unit.casefold(), unit)
    return read_duration(read_quantity(f"{number} {unit}", span))


_READERS = {
    "window": _read_window,
    "fading": _read_fading,
    "by": _read_by,
    "weight": _read_weight,
}


def read_preference(value: object) -> dict[str, Any]:
    """Return the options of JSON: a number, false for none, or an object; times as 600 or "10 min".

    What each option may be is checked by the node.
    """
    if value is False or value is None:
        return {}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"top": value}
    if isinstance(value, str):
        text = value if is_preference(value) else f"my top {value}"
        return parse_preference(text)
    if not isinstance(value, dict) or "top" not in value:
        raise LanguageError('"my_top" takes a number, false, or an object with "top"')
    options = dict(value)
    for name in ("within", "fading"):
        if isinstance(options.get(name), str):
            options[name] = read_duration(read_quantity(options[name], None))
    if isinstance(options.get("by"), str):
        options["by"] = _COMBINATIONS.get(options["by"], options["by"])
    return options


def print_preference(options: Mapping[str, Any]) -> str:
    """Return the words of options; they read back as the same."""
    if "top" not in options:
        return "my top off"
    words = f"my top {options['top']}"
    if "last" in options:
        words += f" of the last {options['last']}"
    if "within" in options:
        words += f" of the last {format_number(options['within'])} s"
    if "fading" in options:
        words += f", fading over {format_number(options['fading'])} s"
    specific = options.get("specific", False)
    if "by" in options:
        words += f", by {_SAID[options['by']]}" + (" of the most specific" if specific else "")
    elif specific:
        words += ", by most specific"
    for name, weight in options.get("weights", {}).items():
        words += f", weight {format_number(weight)} for {quote(name)}"
    return words
