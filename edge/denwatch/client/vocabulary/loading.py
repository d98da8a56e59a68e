"""Builds vocabularies: from TOML, from two others, from fuzzylite's FLL.

The document is checked key by key and an unknown key is refused, so that a typing error does not
become a silent default. The same document, as a plain dictionary, travels between nodes.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.plugins import PluginRegistry, load_registry
from denwatch.client.syntax import Hedge, Name
from denwatch.client.vocabulary.attributes import (
    KINDS,
    Attribute,
    EventType,
    Membership,
    ValueKind,
    VocabularyTerm,
    fold_name,
    parse_moment,
)
from denwatch.client.vocabulary.values import UnitError, find_unit
from denwatch.client.vocabulary.vocabulary import PHRASES, Thesaurus, Vocabulary

POWERS = {Hedge.VERY: 2.0, Hedge.EXTREMELY: 3.0, Hedge.MORE_OR_LESS: 0.5, Hedge.SOMEWHAT: 0.5}
SHIPPED = ("rescue", "weather")
_HUGE = 1e300  # beyond, differences are no numbers any more


@cache
def load_shipped(name: str) -> Vocabulary:
    """Return one of the vocabularies that come with denwatch."""
    if name not in SHIPPED:
        raise LanguageError(
            f'no vocabulary "{name}" is shipped', suggestions=suggest_names(name, SHIPPED)
        )
    path = resources.files("denwatch.client") / "vocabularies" / f"{name}.toml"
    return parse_vocabulary(path.read_text(encoding="utf-8"))


def parse_vocabulary(text: str, registry: PluginRegistry | None = None) -> Vocabulary:
    """Return the vocabulary of a TOML text."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LanguageError(f"vocabulary: {error}") from None
    return build_vocabulary(document, registry)


_KEYS = ("name", "description", "recent", "event", "thesaurus", "label")


def build_vocabulary(
    document: Mapping[str, Any], registry: PluginRegistry | None = None
) -> Vocabulary:
    """Return the vocabulary of a document, as TOML or a peer gave it."""
    _check_keys(document, "vocabulary", _KEYS)
    name = _take(document, "vocabulary", "name", str)
    registry = load_registry() if registry is None else registry
    events: dict[str, EventType] = {}
    numbers: dict[int, str] = {}
    for event_name, table in _take(document, "vocabulary", "event", dict).items():
        event = _build_event(event_name, table, registry)
        if event.number in numbers:
            raise LanguageError(
                f"event.{event_name}: number {event.number} is {numbers[event.number]}'s"
            )
        numbers[event.number] = event_name
        events[event_name] = event
    thesaurus = _build_thesaurus(document.get("thesaurus", {}), events)
    description = _take(document, "vocabulary", "description", str, "")
    phrases = {**PHRASES, **_build_phrases(document.get("recent", {}))}
    labels = _build_thesaurus(document.get("label", {}), events, "label").words
    return Vocabulary(name, events, thesaurus, phrases, description, dict(document), labels=labels)


def _build_event(name: str, table: Mapping[str, Any], registry: PluginRegistry) -> EventType:
    where = f"event.{name}"
    _check_name(name, where)
    _check_keys(table, where, ("number", "description", "attribute"))
    number = _take(table, where, "number", int)
    if not 0 <= number <= 63:
        raise LanguageError(f"{where}: number {number} is not in 0..63")
    attributes: dict[str, Attribute] = {}
    bits: dict[int, str] = {}
    for key, entry in _take(table, where, "attribute", dict).items():
        attribute = _build_attribute(name, key, entry, registry)
        if attribute.bit in bits:
            raise LanguageError(f"{where}.{key}: bit {attribute.bit} is {bits[attribute.bit]}'s")
        bits[attribute.bit] = key
        attributes[key] = attribute
    if not attributes:
        raise LanguageError(f"{where}: no attributes")
    return EventType(name, number, attributes, _take(table, where, "description", str, ""))


_GRADED_ABOUT = 2.0  # symbols from full to nothing: the neighbours of "about" one are half as good
_ATTRIBUTE_KEYS = (
    *("bit", "kind", "domain", "unit", "resolution", "symbols", "ordered", "about", "period"),
    *("terms", "description"),
)


def _build_attribute(
    event: str, name: str, table: Mapping[str, Any], registry: PluginRegistry
) -> Attribute:
    where = f"event.{event}.attribute.{name}"
    _check_name(name, where)
    _check_keys(table, where, _ATTRIBUTE_KEYS)
    bit = _take(table, where, "bit", int)
    if not 0 <= bit <= 15:
        raise LanguageError(f"{where}: bit {bit} is not in 0..15")
    resolution = _take(table, where, "resolution", int, 8)
    if resolution not in (8, 16):
        raise LanguageError(f"{where}: resolution is 8 or 16 bits, not {resolution}")
    text = _take(table, where, "kind", str, "text" if "symbols" in table else "number")
    if text not in list(ValueKind):
        raise LanguageError.of_unknown(f"{where}: unknown kind", text, ValueKind)
    kind = ValueKind(text)
    symbols = tuple(_take(table, where, "symbols", list, []))
    low, high = _take_domain(table, where, kind, symbols, resolution)
    terms = _take(table, where, "terms", dict, {})
    about = _GRADED_ABOUT if kind is ValueKind.TEXT else (high - low) / 20
    attribute = Attribute(
        name=name,
        event=event,
        bit=bit,
        kind=kind,
        low=low,
        high=high,
        unit=_take_unit(table, where, kind),
        wide=resolution == 16,
        symbols=symbols,
        ordered=_take(table, where, "ordered", bool, False),
        about=_take_point(table.get("about", about), where, ValueKind.NUMBER),
        period=_take_point(table["period"], where, ValueKind.NUMBER) if "period" in table else None,
        description=_take(table, where, "description", str, ""),
    )
    if attribute.about <= 0:
        raise LanguageError(f"{where}: about must be above 0")
    if attribute.period is not None and not attribute.period >= high - low:
        raise LanguageError(f"{where}: the period is shorter than the domain")
    if terms and kind is ValueKind.TEXT:
        _check_graded(attribute, terms, where)
    return replace(attribute, terms=_build_terms(attribute, terms, where, registry))


def _check_graded(attribute: Attribute, terms: Mapping[str, Any], where: str) -> None:
    """Raise LanguageError for a text that cannot have terms, and for names that mean two things."""
    if not attribute.ordered or len(attribute.symbols) < 2:
        raise LanguageError(f"{where}: terms need two or more symbols with ordered = true")
    for name in terms:
        if fold_name(name) in map(fold_name, attribute.symbols):
            raise LanguageError(f"{where}.terms.{name}: a symbol is called so")


def _take_domain(
    table: Mapping[str, Any], where: str, kind: ValueKind, symbols: tuple[str, ...], resolution: int
) -> tuple[float, float]:
    if kind is ValueKind.TEXT:
        if "domain" in table:
            raise LanguageError(f"{where}: a text has symbols, not a domain")
        if not symbols or not all(isinstance(symbol, str) and symbol for symbol in symbols):
            raise LanguageError(f"{where}: symbols must be a list of texts")
        if len({fold_name(symbol) for symbol in symbols}) < len(symbols):
            raise LanguageError(f"{where}: two symbols are alike")
        if len(symbols) > 1 << resolution:
            raise LanguageError(f"{where}: {len(symbols)} symbols do not fit {resolution} bits")
        return 0.0, float(len(symbols) - 1)
    if symbols:
        raise LanguageError(f"{where}: only a text has symbols")
    ends = _take(table, where, "domain", list)
    if len(ends) != 2:
        raise LanguageError(f"{where}: domain is a list of two ends")
    low, high = (_take_point(end, where, kind) for end in ends)
    if not low < high:
        raise LanguageError(f"{where}: the domain is empty")
    if kind is not ValueKind.NUMBER and high - low < (1 << resolution) - 1:
        unit = "days" if kind is ValueKind.DATE else "seconds"
        raise LanguageError(f"{where}: {resolution} bits need a domain of {1 << resolution} {unit}")
    return low, high


def _take_point(value: object, where: str, kind: ValueKind) -> float:
    """Return a number of the document, or the date or time that a text says."""
    if kind is ValueKind.NUMBER:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise LanguageError(f"{where}: {value!r} is not a number")
        if not abs(value) < _HUGE:
            raise LanguageError(f"{where}: {value!r} is no finite number")
        return float(value)
    try:
        return parse_moment(str(value), kind)
    except LanguageError as error:
        raise LanguageError(f"{where}: {error.message}") from None


def _take_place(value: object, where: str, attribute: Attribute) -> float:
    """Return the place of a symbol, 0 for the first; or a number, for what lies between them."""
    if not isinstance(value, str):
        return _take_point(value, where, ValueKind.NUMBER)
    words = [fold_name(symbol) for symbol in attribute.symbols]
    if fold_name(value) not in words:
        raise LanguageError.of_unknown(f"{where}: unknown symbol", value, attribute.symbols)
    return float(words.index(fold_name(value)))


def _take_unit(table: Mapping[str, Any], where: str, kind: ValueKind) -> str | None:
    text = _take(table, where, "unit", str, None)
    if text is None:
        return None
    if kind is not ValueKind.NUMBER:
        raise LanguageError(f"{where}: only a number has a unit")
    try:
        return find_unit(text).name
    except UnitError as error:
        raise LanguageError(f"{where}: {error}") from None


def _build_terms(
    attribute: Attribute, tables: Mapping[str, Any], where: str, registry: PluginRegistry
) -> dict[str, VocabularyTerm]:
    """Return the terms of an attribute; hedged ones stand after what they hedge."""
    terms: dict[str, VocabularyTerm] = {}
    for name, table in tables.items():
        at = f"{where}.terms.{name}"
        _check_name(name, at)
        if not isinstance(table, dict):
            raise LanguageError(f"{at}: a term is a table such as {{ rising = [38, 39] }}")
        try:
            terms[name] = _build_term(attribute, terms, name, table, registry)
        except LanguageError as error:
            raise LanguageError(f"{at}: {error.message}", suggestions=error.suggestions) from None
    return terms


def _build_term(
    attribute: Attribute,
    terms: Mapping[str, VocabularyTerm],
    name: str,
    table: Mapping[str, Any],
    registry: PluginRegistry,
) -> VocabularyTerm:
    if "of" in table:
        base = terms.get(str(table["of"]))
        if base is None:
            raise LanguageError(
                f'"{table["of"]}" is not a term before this one',
                suggestions=suggest_names(str(table["of"]), terms),
            )
        words = table.get("hedges")
        if set(table) != {"of", "hedges"} or not isinstance(words, list) or not words:
            raise LanguageError('a hedged term is { hedges = ["very"], of = "high" }')
        power = 1.0
        for word in words:
            if word not in list(Hedge):
                raise LanguageError.of_unknown("unknown hedge", str(word), Hedge)
            power *= POWERS[Hedge(word)]
        membership = base.membership.hedged(power)
        return VocabularyTerm(name, membership, tuple(words), base.name)
    if len(table) != 1:
        raise LanguageError("a term is one function, such as { rising = [38, 39] }")
    kind, points = next(iter(table.items()))
    if kind not in KINDS and kind not in registry.shapes:
        known = (*KINDS, *registry.shapes)
        raise LanguageError.of_unknown("unknown membership function", kind, known)
    if not isinstance(points, list):
        raise LanguageError(f"{kind} takes a list of points")
    if attribute.kind is ValueKind.TEXT:
        numbers = tuple(_take_place(point, kind, attribute) for point in points)
    else:
        numbers = tuple(_take_point(point, kind, attribute.kind) for point in points)
    membership = Membership(kind, numbers, function=registry.shapes.get(kind))
    attribute.check_overlap(membership)
    return VocabularyTerm(name, membership)


def _build_thesaurus(
    tables: object, events: Mapping[str, EventType], key: str = "thesaurus"
) -> Thesaurus:
    if not isinstance(tables, dict):
        owner = "organisation" if key == "thesaurus" else "language"
        raise LanguageError(f"{key}: one table for each {owner}")
    known = set(events)
    for event in events.values():
        for attribute in event.attributes.values():
            known.add(attribute.path)
            known |= {f"{attribute.path}.{word}" for word in attribute.terms}
            known |= {f"{attribute.path}.{word}" for word in attribute.symbols}
    words: dict[str, dict[str, str]] = {}
    for organisation, table in tables.items():
        where = f"{key}.{organisation}"
        if not isinstance(table, dict):
            raise LanguageError(f"{where}: a table from words to what they mean")
        for word, target in table.items():
            if not fold_name(word):
                raise LanguageError(f"{where}: an empty word")
            if not isinstance(target, str) or target not in known:
                missing = f"{where}.{word}: nothing is called"
                raise LanguageError.of_unknown(missing, str(target), known)
        words[organisation] = dict(table)
    return Thesaurus(words)


def _build_phrases(tables: object) -> dict[str, tuple[float, float]]:
    if not isinstance(tables, dict):
        raise LanguageError("recent: a table from phrases to two durations in seconds")
    phrases = {}
    for phrase, pair in tables.items():
        numbers = pair if isinstance(pair, list) else []
        if len(numbers) != 2 or not all(isinstance(n, (int, float)) for n in numbers):
            raise LanguageError(f"recent.{phrase}: two durations in seconds")
        if not 0 <= numbers[0] < numbers[1]:
            raise LanguageError(f"recent.{phrase}: durations must rise")
        phrases[fold_name(phrase).replace("_", " ")] = float(numbers[0]), float(numbers[1])
    return phrases


def _check_name(name: str, where: str) -> None:
    if not name or fold_name(name) != name or "." in name:
        raise LanguageError(f"{where}: names are lower case, without blanks, hyphens or dots")


def _check_keys(table: object, where: str, known: tuple[str, ...]) -> None:
    if not isinstance(table, dict):
        raise LanguageError(f"{where}: a table is missing")
    for key in table:
        if key not in known:
            raise LanguageError.of_unknown(f"{where}: unknown key", key, known)


_MISSING = object()


def _take(
    table: Mapping[str, Any],
    where: str,
    key: str,
    kind: type | tuple[type, ...],
    default: Any = _MISSING,
) -> Any:
    if key not in table:
        if default is _MISSING:
            raise LanguageError(f'{where}: "{key}" is missing')
        return default
    value = table[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise LanguageError(f"{where}: {key} = {value!r} has the wrong type")
    return value


# Two vocabularies into one, or a clear error at the first thing they disagree on.
#
# What both define alike is fine; what only one defines is taken over. Nothing is ever renamed or
# renumbered silently, because vectors on the air carry numbers.

_LISTS = ("event", "attribute", "terms", "recent")


def merge_vocabularies(
    first: Vocabulary, second: Vocabulary, name: str | None = None
) -> Vocabulary:
    """Return a vocabulary that says what both say; its name is "first+second" unless given."""
    document = _merge(dict(first.document), dict(second.document), "", first.name, second.name)
    document["name"] = name if name is not None else f"{first.name}+{second.name}"
    texts = dict.fromkeys(text for text in (first.description, second.description) if text)
    if texts:
        document["description"] = "; ".join(texts)
    _check_synonyms(document.get("thesaurus", {}))
    try:
        return build_vocabulary(document)
    except LanguageError as error:
        raise LanguageError(
            f"{first.name} and {second.name} do not go together: {error.message}"
        ) from None


def _merge(
    first: Mapping[str, Any], second: Mapping[str, Any], path: str, one: str, other: str
) -> dict[str, Any]:
    """Return both tables in one."""
    parts = path.split(".")
    # What may be on one side only: things that are listed, and descriptions.
    is_list = not path or parts[-1] in _LISTS or parts[0] == "thesaurus"
    for has, lacks, owner in ((first, second, one), (second, first, other)):
        for key in has:
            if key not in lacks and not is_list and key not in ("terms", "description"):
                raise LanguageError(f"conflict at {path}.{key}: only {owner} has it")
    merged = dict(first)
    for key, value in second.items():
        where = f"{path}.{key}" if path else key
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict) and parts[-1] != "terms":
            merged[key] = _merge(merged[key], value, where, one, other)
        elif merged[key] != value and where not in ("name", "description"):
            raise LanguageError(
                f"conflict at {where}: {one} says {merged[key]!r}, {other} says {value!r}"
            )
    return merged


def _check_synonyms(thesaurus: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse one organisation's word with two meanings, however it is written."""
    for organisation, words in thesaurus.items():
        seen: dict[str, tuple[str, str]] = {}
        for word, target in words.items():
            known = seen.setdefault(fold_name(word), (word, target))
            if known[1] != target:
                raise LanguageError(
                    f'conflict at thesaurus.{organisation}: "{known[0]}" is {known[1]}, '
                    f'"{word}" is {target}'
                )


# Terms from FLL, the language of fuzzylite: input variables become terms of attributes.
#
# Only what has the same meaning here is taken: triangles, trapezoids, rectangles, ramps, bells and
# Gaussians of full height. Everything else is refused with its line, so that nothing changes its
# meaning on the way.

Definition = tuple[str, tuple[float, ...]]


@dataclass
class Variable:
    """An input variable: its range and its terms, as kinds and points of ours."""

    name: str
    low: float = -math.inf
    high: float = math.inf
    terms: dict[str, Definition] = field(default_factory=dict)


def parse_fll(text: str) -> dict[str, Variable]:
    """Return the input variables of an FLL text by name."""
    variables: dict[str, Variable] = {}
    current: Variable | None = None
    offset = 0
    for line in text.split("\n"):
        start = offset + len(line) - len(line.lstrip()) + 1
        offset += len(line) + 1
        key, _, rest = line.split("#", 1)[0].strip().partition(":")
        rest = rest.strip()
        if not key:
            continue
        try:
            if key in ("InputVariable", "OutputVariable", "RuleBlock", "Engine"):
                current = Variable(rest) if key == "InputVariable" else None
                if current is not None:
                    variables[rest] = current
            elif current is not None and key == "range":
                current.low, current.high = _read_numbers(rest, 2)
            elif current is not None and key == "term":
                name, definition = _read_term(rest)
                current.terms[name] = definition
        except LanguageError as error:
            raise LanguageError(
                error.message, start, len(line.strip()), error.hint, error.suggestions
            ) from None
    return variables


def _read_numbers(text: str, count: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(word) for word in text.split())
    except ValueError:
        raise LanguageError(f'"{text}" are not numbers') from None
    if any(math.isnan(number) for number in numbers):
        raise LanguageError("nan is not a place")
    if len(numbers) == count + 1 and numbers[-1] != 1.0:
        raise LanguageError(f"a term of height {numbers[-1]:g}; full height is 1")
    if len(numbers) not in (count, count + 1):
        raise LanguageError(f"{count} numbers are wanted, {len(numbers)} are here")
    return numbers[:count]


def _read_term(text: str) -> tuple[str, Definition]:
    words = text.split(None, 2)
    if len(words) != 3:
        raise LanguageError("a term is: name, class, parameters")
    name, kind, rest = words
    reader = _READERS.get(kind)
    if reader is None:
        raise LanguageError(
            f'the class "{kind}" of term "{name}" has no counterpart',
            hint=f"known are {', '.join(_READERS)}",
            suggestions=suggest_names(kind, _READERS),
        )
    count, convert = reader
    return fold_name(name), convert(_read_numbers(rest, count))


def _read_trapezoid(points: tuple[float, ...]) -> Definition:
    a, b, c, d = points
    if a == b == -math.inf:
        return "falling", (c, d)
    if c == d == math.inf:
        return "rising", (a, b)
    return "trapezoid", points


def _read_triangle(points: tuple[float, ...]) -> Definition:
    a, b, c = points
    return _read_trapezoid((a, b, b, c)) if math.inf in map(abs, points) else ("triangle", points)


def _read_ramp(points: tuple[float, ...]) -> Definition:
    start, end = points
    return ("rising", (start, end)) if start <= end else ("falling", (end, start))


_READERS = {
    "Triangle": (3, _read_triangle),
    "Trapezoid": (4, _read_trapezoid),
    "Rectangle": (2, lambda p: ("trapezoid", (min(p), min(p), max(p), max(p)))),
    "Ramp": (2, _read_ramp),
    "Bell": (3, lambda p: ("bell", p)),
    "Gaussian": (2, lambda p: ("gaussian", p)),
}


def import_fll(vocabulary: Vocabulary, text: str) -> Vocabulary:
    """Return the vocabulary with the terms of an FLL text added.

    Each input variable is an attribute by any of its names, "event.attribute" if several events
    have it, in the attribute's own unit. A term that is there already must be the same.
    """
    variables = parse_fll(text)
    if not variables:
        raise LanguageError("no InputVariable in this FLL")
    document: dict[str, Any] = deepcopy(dict(vocabulary.document))
    for variable in variables.values():
        found = vocabulary.find_attributes(Name(variable.name))
        if len(found) > 1:
            events = ", ".join(f"{a.path}" for a in found)
            raise LanguageError(f'"{variable.name}" may be {events}', hint="use one of these names")
        attribute = found[0]
        if attribute.kind is not ValueKind.NUMBER:
            raise LanguageError(f"{attribute.path} is a {attribute.kind.value} and has no terms")
        table = document["event"][attribute.event]["attribute"][attribute.name]
        known = table.setdefault("terms", {})
        for term, (kind, points) in variable.terms.items():
            definition = {kind: [int(p) if p.is_integer() else p for p in points]}
            if known.setdefault(term, definition) != definition:
                raise LanguageError(
                    f"{attribute.path} has a term {term} already: {known[term]!r}, not"
                    f" {definition!r}"
                )
    return build_vocabulary(document)
