"""Everyday words, first half: the phrases of a text, and numbers as values. Pure.

`read_items` cuts a text into the longest phrases that a lexicon has. `join_numbers` joins what
belongs together: comparisons with their numbers and units, spans of time, places with their number.
What a phrase may mean stays open; `everyday` decides with its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from denwatch.client.language.lexicon import format_number
from denwatch.client.language.localisation import (
    Lexicon,
    PhraseChoice,
    PhraseEntry,
    find_dimension,
    list_locales,
    load_lexicon,
    split_phrase,
)
from denwatch.client.vocabulary import Vocabulary

_TOKEN = re.compile(
    r"""(?P<moment>\d{4}-\d\d-\d\d(?:[T ]\d\d?:\d\d)?|\d\d?:\d\d)
    |(?P<number>(?<![\w.])[-+]?\d+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)
    |(?P<word>[^\W\d_]+[^\W_]*(?:['\u2019][^\W_]+)*)
    |(?P<mark><=|>=|!=|==|<>|&&|\|\||[^\w\s])
    |(?P<under>_)""",
    re.VERBOSE,
)
_UNIT = re.compile(r"\s*(/?[^\W\d_][\w/²³·]*|[%‰]|°\s?[CFcf]?(?!\w))")
COMPARISONS = {
    "above": "above",
    "below": "below",
    "at_least": "at least",
    "at_most": "at most",
    "equal": "=",
    "unequal": "!=",
    "about": "about",
}
_BEHIND_NUMBERS = {"or_more", "or_less"}
_HUNDRED = 100
_QUIET = ".!?:;\u2026\"'"
_TIME_UNITS = ("s", "min", "h", "days", "week")


@dataclass
class PhraseItem:
    """One phrase of the text at text[start:end], and what it was taken as."""

    start: int
    end: int
    text: str
    entry: PhraseEntry
    kind: str = ""  # a keyword, or "number", "value", "thing", "term", "event", "unknown", …
    number: float = 0.0
    units: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # "above 39 °C", "above 39 °F": the first that fits is meant
    direction: str = ""  # of a comparison: "up" or "down"
    is_negated: bool = False  # "unsafe": the word has its own "not"

    def says(self, *keywords: str) -> bool:
        """Return whether the phrase may be one of some keywords."""
        return any(keyword in self.entry.keywords for keyword in keywords)


# Words to items ------------------------------------------------------------------------------


def read_items(text: str, lexicon: Lexicon) -> list[PhraseItem]:
    """Return the phrases of a text: always the longest that the lexicon has."""
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "under"]
    folded = [
        split_phrase(match.group()) if match.lastgroup in ("word", "mark") else (match.group(),)
        for match in tokens
    ]
    items: list[PhraseItem] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.lastgroup in ("number", "moment"):
            items.append(_read_number(token, lexicon))
            place += 1
            continue
        found, length = None, 1
        for size in range(min(lexicon.longest, len(tokens) - place), 0, -1):
            span = tokens[place : place + size]
            if any(t.lastgroup in ("number", "moment") for t in span):
                continue
            key = tuple(part for parts in folded[place : place + size] for part in parts)
            if size > 1:
                key = tuple(part for part in key if part not in ("-", "\u2013"))
            found = lexicon.find(key)
            after = tokens[place + size] if place + size < len(tokens) else None
            is_before_number = after is not None and after.lastgroup == "number"
            if found is not None and is_before_number and set(found.keywords) & _BEHIND_NUMBERS:
                found = None  # "39 or under" is one thing, "or under 39" two
            if found is not None:
                length = size
                break
        start, end = token.start(), tokens[place + length - 1].end()
        item = PhraseItem(start, end, text[start:end], found or PhraseEntry())
        if found is None:
            unit = _UNIT.match(text, token.start())
            if items and items[-1].kind == "number" and unit and find_dimension(_squeeze(unit[1])):
                item = PhraseItem(
                    start, unit.end(), unit[1], PhraseEntry(units=(_squeeze(unit[1]),))
                )
                length = sum(token.start() < unit.end() for token in tokens[place:])
            elif token.group() not in _QUIET and token.group() not in ",()":
                item = _find_contrary(item, lexicon)
        items.append(item)
        place += length
    for index, item in enumerate(items):
        before = items[index - 1] if index else None
        if not item.kind:
            item.kind = _choose_kind(item, before)
    return items


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _read_number(token: re.Match[str], lexicon: Lexicon) -> PhraseItem:
    start, end, said = token.start(), token.end(), token.group()
    if token.lastgroup == "moment":
        return PhraseItem(start, end, said, PhraseEntry(), "moment")
    if "," in said and lexicon.locale.tables["decimal"] != ",":
        return PhraseItem(start, end, said, PhraseEntry(), "unknown")
    return PhraseItem(start, end, said, PhraseEntry(), "number", float(said.replace(",", ".")))


def _find_contrary(item: PhraseItem, lexicon: Lexicon) -> PhraseItem:
    """Return an unknown word, or a known one behind a syllable that means "not"."""
    said = split_phrase(item.text)
    for prefix in lexicon.locale.tables.get("contrary", ()):
        rest = said[-1].removeprefix(prefix)
        if rest != said[-1] and len(rest) > 3:
            entry = lexicon.find((rest,))
            if entry is not None and (entry.terms or any(c.condition for c in entry.choices)):
                return replace(item, entry=entry, is_negated=True)
    item.kind = "unknown"
    return item


def _choose_kind(item: PhraseItem, before: PhraseItem | None) -> str:
    """Return what an item is taken as, where only the item before it decides."""
    entry = item.entry
    if entry.units and before is not None and before.kind == "number":
        return "unit"
    if entry.choices:
        first = entry.choices[0]
        if first.event:
            return "event"
        return "thing" if first.attribute and not first.term else "term"
    if entry.terms:
        return "term"
    if entry.number is not None and not entry.keywords:
        item.number = entry.number
        return "number"
    if entry.keywords:
        return entry.keywords[0]
    if item.text in (",", "(", ")"):
        return item.text
    return "filler" if item.text in _QUIET else "unknown"


def find_paths(phrase: str, vocabulary: Vocabulary) -> list[str]:
    """Return the attributes that a phrase is about ("who measures pulse"), in the first language
    that knows all its words; nothing if none does."""
    for code in list_locales():
        items = read_items(phrase, load_lexicon(code, vocabulary))
        found = [
            choice.attribute
            for item in items
            if item.kind in ("thing", "term")
            for choice in item.entry.choices
            if choice.attribute
        ]
        if found and all(item.kind in ("thing", "term", "filler", "verb") for item in items):
            return list(dict.fromkeys(found))
    return []


# Numbers to values ---------------------------------------------------------------------------


def join_numbers(items: list[PhraseItem], options: list[str]) -> list[PhraseItem]:
    """Return the items with numbers joined; spans of time go to the options."""
    items = _join_number_words(items)
    found: list[PhraseItem] = []
    place = 0
    while place < len(items):
        item = items[place]
        joined = (
            _join_time(items, place, options)
            or (_join_value(items, place) if item.says("outside") else None)
            or _join_place(items, place)
            or _join_value(items, place)
        )
        if joined is None:
            found.append(item)
            place += 1
        else:
            new, place = joined
            if new is not None:
                found.append(new)
    return found


def _join_number_words(items: list[PhraseItem]) -> list[PhraseItem]:
    """Return the items with "a hundred and twenty" as one number."""
    found: list[PhraseItem] = []
    for place, item in enumerate(items):
        last = found[-1] if found else None
        after = items[place + 1] if place + 1 < len(items) else None
        if (
            item.says("and")
            and last is not None
            and last.entry.number is not None
            and last.number >= _HUNDRED
            and after is not None
            and after.entry.number is not None
        ):
            continue
        if item.kind != "number" or item.entry.number is None:
            found.append(item)
            continue
        if last is not None and last.kind == "number" and last.entry.number is not None:
            is_factor = item.number >= _HUNDRED
            last.number = last.number * item.number if is_factor else last.number + item.number
            last.end, last.text = item.end, f"{last.text} {item.text}"
        else:
            found.append(item)
    return found


def _span(items: Sequence[PhraseItem], kind: str, **fields: object) -> PhraseItem:
    text = items[0].text
    for before, after in pairwise(items):  # as it was typed: "bed-1" has no blank
        text += f" {after.text}" if after.start > before.end else after.text
    item = PhraseItem(items[0].start, items[-1].end, text, PhraseEntry(), kind)
    for name, value in fields.items():
        setattr(item, name, value)
    return item


def _read_quantity(items: list[PhraseItem], place: int) -> tuple[str, tuple[str, ...], int] | None:
    """Return a number as text, its possible units, and where it ends."""
    while place < len(items) and items[place].kind in ("filler", "about"):
        place += 1
    if place >= len(items) or items[place].kind not in ("number", "moment"):
        return None
    item = items[place]
    number = item.text if item.kind == "moment" else format_number(item.number)
    place += 1
    if place < len(items) and items[place].kind == "unit":
        return number, items[place].entry.units, place + 1
    return number, ("",), place


def _join_time(
    items: list[PhraseItem], place: int, options: list[str]
) -> tuple[PhraseItem | None, int] | None:
    """Read "in the last 10 minutes", "for the next 2 hours", "recently", "for 5 minutes"."""
    item = items[place]
    if item.kind == "recent":
        options.append("recent")
        return None, place + 1
    if not item.says("last", "next", "for", "every"):
        return None
    after = place + 1
    is_few = after < len(items) and "few" in items[after].entry.terms.values()
    if item.says("last") and is_few and after + 1 < len(items):
        unit = {"s": "seconds", "min": "minutes", "h": "hours"}.get(
            next(iter(items[after + 1].entry.units), "")
        )
        if unit:
            options.append(f"in the last few {unit}")
            return None, after + 2
    while after < len(items) and items[after].kind == "filler":
        after += 1
    quantity = _read_quantity(items, after)
    if quantity is None and after < len(items) and items[after].entry.units:
        quantity = "1", items[after].entry.units, after + 1
    if quantity is None or quantity[1][0] not in _TIME_UNITS:
        return None
    number, units, end = quantity
    if item.says("last") and not item.says("for"):
        options.append(f"in the last {number} {units[0]}")
        return None, end
    if item.says("next"):
        options.append(f"valid for {number} {units[0]}")
        return None, end
    kind = "every" if item.says("every") else "for"
    return _span(items[place:end], kind, values=(f"{number} {units[0]}",)), end


def _join_place(items: list[PhraseItem], place: int) -> tuple[PhraseItem, int] | None:
    """Read "ward 3", "bed-1", "patient 7": which one, not how much."""
    item = items[place]
    if item.kind not in ("place", "event", "person"):
        return None
    end = place + 1
    while end < len(items) and items[end].text in ("-", "#", "/"):
        end += 1
    if end >= len(items) or items[end].kind != "number":
        return (_span(items[place:end], "place"), end) if item.kind == "place" else None
    after = items[end + 1] if end + 1 < len(items) else None
    if after is not None and after.kind == "unit":
        return None
    return _span(items[place : end + 1], "place"), end + 1


def _join_value(items: list[PhraseItem], place: int) -> tuple[PhraseItem, int] | None:
    """Read a comparison with its number, a range, or a number alone."""
    item = items[place]
    if item.says("between", "from") and item.kind not in ("thing", "term"):
        return _join_range(items, place, place + 1)
    if item.says("outside"):
        return _join_range(items, place, place + 1, "not ")
    comparison = next((k for k in item.entry.keywords if k in COMPARISONS), None)
    if item.kind == "within":  # "within 2 km", but not "within 10 minutes"
        reach = _read_quantity(items, place + 1)
        is_length = reach is not None and find_dimension(reach[1][0]) == "length"
        comparison = "at_most" if is_length else None
    if item.kind in ("thing", "term", "event"):
        comparison = None
    choice = item.entry.choices[0] if item.entry.choices else PhraseChoice()
    if choice.comparison:
        comparison = choice.comparison.replace(" ", "_")
    if comparison is not None:
        quantity = _read_quantity(items, place + 1)
        if quantity is None:
            return None
        number, units, end = quantity
        said = COMPARISONS[comparison]
        if comparison == "about" and end < len(items) and items[end].says("within"):
            spread = _read_quantity(items, end + 1)
            if spread is not None:
                values = tuple(f"about {number} within {spread[0]} {u}".strip() for u in units)
                return _span(items[place : spread[2]], "value", values=values), spread[2]
        direction = {"above": "up", "at_least": "up", "below": "down", "at_most": "down"}
        values = tuple(f"{said} {number} {unit}".strip() for unit in units)
        way = direction.get(comparison, "")
        new = _span(items[place:end], "value", values=values, direction=way)
        if choice.comparison:
            new.entry = PhraseEntry(choices=(replace(choice, comparison=""),), mode="|")
        return new, end
    if item.kind not in ("number", "moment"):
        return None
    joined = _join_range(items, place, place)
    if joined is not None:
        return joined
    quantity = _read_quantity(items, place)
    assert quantity is not None, "it begins with a number"
    number, units, end = quantity
    said, way = "=", ""
    if end < len(items) and items[end].says("or_more", "or_less"):
        said = "at least" if items[end].says("or_more") else "at most"
        way = "up" if items[end].says("or_more") else "down"
        end += 1
        if end < len(items) and items[end].kind == "unit":
            units, end = items[end].entry.units, end + 1
    values = tuple(f"{said} {number} {unit}".strip() for unit in units)
    return _span(items[place:end], "value", values=values, direction=way), end


def _join_range(
    items: list[PhraseItem], place: int, first: int, negation: str = ""
) -> tuple[PhraseItem, int] | None:
    low = _read_quantity(items, first)
    if low is None or low[2] >= len(items):
        return None
    joint = items[low[2]]
    if not (joint.says("to") or (joint.says("and") and first > place)):
        return None
    high = _read_quantity(items, low[2] + 1)
    if high is None:
        return None
    units = high[1] if high[1] != ("",) else low[1]
    said = f"{negation}between {low[0]} and {high[0]}"
    values = tuple(f"{said} {unit}".strip() for unit in units)
    return _span(items[place : high[2]], "value", values=values), high[2]
