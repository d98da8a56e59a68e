"""What can be written next: words of the language and of the vocabulary, with what they mean. Pure.

`complete(text, caret, vocabulary)` returns the best few, each with the part of the text that it
would replace. Synonyms of all organisations are offered as they are, and say what they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from denwatch.client.console.context import Context, Place, find_context
from denwatch.client.language.words_printer import print_condition
from denwatch.client.syntax import AGGREGATORS, Name, PredicateNode
from denwatch.client.syntax import NamedTerm as TermSyntax
from denwatch.client.vocabulary import (
    Attribute,
    ValueKind,
    Vocabulary,
    VocabularyTerm,
    fold_name,
    format_moment,
)
from denwatch.client.vocabulary.values import UnitError, find_unit, list_units

MOST = 8
_VERBS = (
    ("is", "a word follows: high, normal, red"),
    ("is not", "the contrary of a word"),
    ("above", "more than a value"),
    ("below", "less than a value"),
    ("between", "from one value to another"),
    ("is about", "near a value, fading"),
)
_HEDGES = (
    ("very", "stricter"),
    ("extremely", "much stricter"),
    ("somewhat", "more lenient"),
    ("more or less", "more lenient"),
)
_COMPARISONS = (
    ("above", "more than a value"),
    ("below", "less than a value"),
    ("between", "from one value to another"),
    ("about", "near a value, fading"),
)
_JOINTS = (
    ("and", "both must hold"),
    ("or", "one is enough"),
    (")", "the end of what stands in brackets"),
    (",", "options: how many, how long, how sure"),
)
_OPTIONS = (
    ("top 5", "only the best five that still count"),
    ("score 0.8", "how much this matters among yours"),
    ("expires after 10 min", "how long a notification counts"),
    ("valid for 2 days", "how long this is asked for"),
    ("at least 0.7", "how well it must fit"),
    ("certain 0.5", "how sure it must be"),
    ("recent", "fresh readings only"),
    ("in the last", "fresh readings only, how fresh"),
    ("3 of 5", "so many of the last readings must match"),
    ("quiet for 1 min", "at most so often"),
    ("heartbeat 10 min", "at least so often"),
    ("dead band", "silence while the value hardly moves"),
    ("hysteresis 0.1", "ends only so far below the threshold"),
    ("by harmonic mean", "how the parts are combined"),
    ("prefer", "this before another subscription of yours"),
    ("event", "which event is meant"),
    ("named", "what you call it"),
    ("why", "ask for the deciding part"),
)
_DURATIONS = (("s", "seconds"), ("min", "minutes"), ("h", "hours"), ("days", "days"))


@dataclass(frozen=True)
class Completion:
    """A word to write instead of text[start:caret], of which kind it is, and what it means."""

    word: str
    start: int
    kind: str
    detail: str


@dataclass(frozen=True)
class _Candidate:
    word: str
    detail: str
    rank: int = 0  # own names before synonyms


def complete(
    text: str,
    caret: int,
    vocabulary: Vocabulary,
    organisation: str | None = None,
    subscriptions: Sequence[str] = (),
) -> list[Completion]:
    """Return what may be written at the caret, best first; `subscriptions` are names to prefer."""
    context = find_context(text, caret, vocabulary, organisation)
    found: dict[str, tuple[tuple[int, int, int, int], Completion]] = {}
    for order, (place, start) in enumerate(context.places):
        fragment = text[start:caret]
        candidates = _list_candidates(place, context, vocabulary, organisation, subscriptions)
        for number, candidate in enumerate(candidates):
            fit = _rate(candidate.word, fragment)
            if fit is None or fold_name(candidate.word) == fold_name(fragment):
                continue
            if fit and start < context.start:  # a name of several words goes on as it began
                continue
            key = (fit, candidate.rank, order, number)
            word = _quote(candidate.word) if place in _NAMED else candidate.word
            detail = candidate.detail
            if word in found:  # what one word means to several organisations
                key, other = min(key, found[word][0]), found[word][1]
                detail = other.detail if other.kind != place.value else f"{other.detail}; {detail}"
            found[word] = key, Completion(word, start, place.value, detail)
    return [entry for _, entry in sorted(found.values(), key=lambda pair: pair[0])[:MOST]]


_NAMED = (Place.ATTRIBUTE, Place.TERM, Place.VALUE, Place.EVENT, Place.SUBSCRIPTION)


def _rate(word: str, fragment: str) -> int | None:
    """Return how well a word goes on with what is written, 0 best; None if it does not."""
    wanted, name = fold_name(fragment), fold_name(word)
    if not wanted:
        return 0
    if name.startswith(wanted):
        return 0
    if any(part.startswith(wanted) for part in name.split("_")):
        return 1
    return 2 if len(wanted) > 2 and wanted in name else None


def _quote(word: str) -> str:
    """Return a name as the grammar reads it: in quotes where it looks like a keyword."""
    if word in dict(_HEDGES) or word in dict(_COMPARISONS) or word in ("not", "("):
        return word
    return print_condition(PredicateNode(Name(word), TermSyntax(Name("x")))).removesuffix(" is x")


def _list_candidates(
    place: Place,
    context: Context,
    vocabulary: Vocabulary,
    organisation: str | None,
    subscriptions: Sequence[str],
) -> Iterable[_Candidate]:
    subject = context.subject
    if place is Place.ATTRIBUTE:
        return _list_attributes(context, vocabulary, organisation)
    if place in (Place.TERM, Place.VALUE):
        return _list_terms(place, context, vocabulary) if subject is not None else ()
    if place is Place.UNIT:
        return _list_units(subject)
    if place is Place.EVENT:
        return [_Candidate(e.name, e.description) for e in vocabulary.events.values()]
    if place is Place.AGGREGATOR:
        return [_Candidate(name.replace("_", " "), "combines the parts") for name in AGGREGATORS]
    if place is Place.PERIOD:
        return _list_periods(context, vocabulary)
    if place is Place.SUBSCRIPTION:
        return [_Candidate(name, "a subscription of yours") for name in subscriptions]
    words = {
        Place.VERB: _VERBS,
        Place.JOINT: _JOINTS,
        Place.OPTION: _OPTIONS,
        Place.DURATION: _DURATIONS,
    }[place]
    return [
        _Candidate(word, detail)
        for word, detail in words
        if place is not Place.JOINT or word in context.joints
    ]


def _list_attributes(
    context: Context, vocabulary: Vocabulary, organisation: str | None
) -> Iterator[_Candidate]:
    """Yield attributes and their synonyms; only those of the event that is spoken of."""
    if context.last == "OF":
        for attribute in context.used:
            yield _Candidate(attribute.name, attribute.describe_domain())
        return
    events = [context.event] if context.event else list(vocabulary.events.values())
    for event in events:
        for attribute in event.attributes.values():
            yield _Candidate(attribute.name, describe_attribute(attribute))
    paths = {a.path: a for event in events for a in event.attributes.values()}
    for entry in vocabulary.thesaurus.entries:
        target = paths.get(entry.target)
        if target is not None:
            rank = 0 if entry.organisation == organisation else 1
            yield _Candidate(entry.word, f"{target.name}, says {_name(entry.organisation)}", rank)
    if context.last in ("", "_AND", "_OR", "_WHEN"):
        yield _Candidate("not", "the contrary of what follows", 2)


def _list_terms(place: Place, context: Context, vocabulary: Vocabulary) -> Iterator[_Candidate]:
    attribute = context.subject
    assert attribute is not None, "only called with a subject"
    if place is Place.TERM or attribute.kind is ValueKind.TEXT:
        for symbol in attribute.symbols:
            yield _Candidate(symbol, f"{attribute.name}")
        for term in attribute.terms.values():
            yield _Candidate(term.name, describe_term(attribute, term))
        prefix = f"{attribute.path}."
        for entry in vocabulary.thesaurus.entries:
            if entry.target.startswith(prefix):
                meaning = f"{entry.target.removeprefix(prefix)}, says {_name(entry.organisation)}"
                yield _Candidate(entry.word, meaning, 1)
    if place is Place.TERM:
        if context.last == "_IS":
            yield _Candidate("not", "the contrary", 1)
        if attribute.terms:
            yield from (_Candidate(word, detail, 1) for word, detail in _HEDGES)
        if attribute.kind is not ValueKind.TEXT:
            yield from (_Candidate(word, detail, 2) for word, detail in _COMPARISONS)


def _list_units(attribute: Attribute | None) -> Iterator[_Candidate]:
    if attribute is None or attribute.unit is None:
        return
    yield _Candidate(attribute.unit, f"the unit of {attribute.name}")
    try:
        dimension = find_unit(attribute.unit).dimension
    except UnitError:
        return
    for unit in list_units(dimension):
        if unit != attribute.unit:
            yield _Candidate(unit, f"converted to {attribute.unit}", 1)


def _list_periods(context: Context, vocabulary: Vocabulary) -> Iterator[_Candidate]:
    for phrase, (fresh, gone) in vocabulary.phrases.items():
        if phrase.startswith("few "):
            word = phrase.removeprefix("few ") if context.last == "_FEW" else phrase
            yield _Candidate(word, f"fresh for {fresh:g} s, gone at {gone:g} s")


def _name(organisation: str) -> str:
    return organisation.replace("_", " ")


def describe_attribute(attribute: Attribute) -> str:
    """Return what an attribute is, in a few words."""
    about = f" · {attribute.description}" if attribute.description else ""
    return f"{attribute.event} · {attribute.describe_domain()}{about}"


def describe_term(attribute: Attribute, term: VocabularyTerm) -> str:
    """Return what a term means, in the attribute's unit."""
    if term.base is not None:
        return f"{' '.join(term.hedges)} {term.base}"
    points = [_say(attribute, point) for point in term.membership.points]
    unit = f" {attribute.unit}" if attribute.unit and attribute.kind is ValueKind.NUMBER else ""
    match term.membership.kind:
        case "rising":
            return f"begins at {points[0]}, fully from {points[1]}{unit}"
        case "falling":
            return f"fully up to {points[0]}, ends at {points[1]}{unit}"
        case "trapezoid":
            return f"fully from {points[1]} to {points[2]}{unit}"
        case _:
            peak = points[1] if term.membership.kind == "triangle" else points[0]
            return f"around {peak}{unit}"


def _say(attribute: Attribute, value: float) -> str:
    if attribute.kind is ValueKind.NUMBER:
        return f"{value:g}"
    return format_moment(min(max(value, attribute.low), attribute.high), attribute.kind)
