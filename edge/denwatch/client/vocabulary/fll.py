"""Terms from FLL, the language of fuzzylite: input variables become terms of attributes.

Only what has the same meaning here is taken: triangles, trapezoids, rectangles, ramps, bells and
Gaussians of full height. Everything else is refused with its line, so that nothing changes its
meaning on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.plugins import PluginRegistry
from denwatch.client.syntax import Name
from denwatch.client.vocabulary.attributes import ValueKind
from denwatch.client.vocabulary.loading import build_vocabulary
from denwatch.client.vocabulary.thesaurus import fold_name
from denwatch.client.vocabulary.vocabulary import Vocabulary

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


def import_fll(
    vocabulary: Vocabulary, text: str, registry: PluginRegistry | None = None
) -> Vocabulary:
    """Return the vocabulary with the terms of an FLL text added.

    Each input variable is an attribute by any of its names, "event.attribute" if several events
    have it, in the attribute's own unit. A term that is there already must be the same.
    """
    variables = parse_fll(text)
    if not variables:
        raise LanguageError("no InputVariable in this FLL")
    document: dict[str, Any] = dict(vocabulary.document)
    for variable in variables.values():
        found = vocabulary.find_attributes(Name(variable.name))
        if len(found) > 1:
            events = ", ".join(f"{a.path}" for a in found)
            raise LanguageError(f'"{variable.name}" may be {events}', hint="use one of these names")
        attribute = found[0]
        if attribute.kind is not ValueKind.NUMBER:
            raise LanguageError(f"{attribute.path} is a {attribute.kind.value} and has no terms")
        terms = {
            name: {kind: [_tidy(p) for p in points]}
            for name, (kind, points) in variable.terms.items()
        }
        document = _add_terms(document, (attribute.event, attribute.name), terms)
    return build_vocabulary(document, registry)


def _tidy(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _add_terms(
    document: Mapping[str, Any], path: tuple[str, str], terms: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a copy of the document in which an attribute has more terms."""
    event, name = path
    events = dict(document["event"])
    table = dict(events[event])
    attributes = dict(table["attribute"])
    attribute = dict(attributes[name])
    known = dict(attribute.get("terms", {}))
    for term, definition in terms.items():
        if known.setdefault(term, definition) != definition:
            raise LanguageError(
                f"{event}.{name} has a term {term} already: {known[term]!r}, not {definition!r}"
            )
    attributes[name] = {**attribute, "terms": known}
    events[event] = {**table, "attribute": attributes}
    return {**document, "event": events}
