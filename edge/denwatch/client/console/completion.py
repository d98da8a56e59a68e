"""Completion of subscriptions: what may be written at the caret, with what it means. Pure.

`find_context` asks the language's own parser what may follow the text before the caret, so that
nothing is proposed that the parser would refuse. `complete` lists the best words of the language
and of the vocabulary for it, each with the part of the text that it would replace. Synonyms of all
organisations are proposed as they are, with what they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from denwatch.client.errors import LanguageError
from denwatch.client.language import detect_surface
from denwatch.client.language.grammar import load_parser
from denwatch.client.language.words_printer import print_name
from denwatch.client.plugins import load_registry
from denwatch.client.syntax import AGGREGATORS, Name
from denwatch.client.vocabulary import (
    Attribute,
    EventType,
    ValueKind,
    Vocabulary,
    VocabularyTerm,
    fold_name,
    format_moment,
)
from denwatch.client.vocabulary.values import UnitError, find_unit, list_units
from lark import Token
from lark.exceptions import UnexpectedInput

_MOST_WORDS = 4  # of a name; each costs a parse
_NAMES = ("NAME", "STRING")
_HEDGE_TOKENS = ("VERY", "EXTREMELY", "MORE_OR_LESS", "SOMEWHAT")
_OPERATORS = ("EQUAL", "UNEQUAL", "LESS", "AT_MOST", "GREATER", "OVER", "AT_LEAST", "FROM")
_VERB_TOKENS = (*_HEDGE_TOKENS, *_OPERATORS, "_IS", "_NOT", "_BETWEEN", "_ABOUT", "EXTENSION")
_JOINT_TOKENS = {"_AND": "and", "_OR": "or", "RPAR": ")", "COMMA": ","}
_AFTER_VERB = (*_VERB_TOKENS, "TO", "WITHIN", "_DASH")
_WORD = re.compile("(?:[^\\W\\d]|[°%/])(?:\\w|[°%/²³'\u2019.-])*$")


class ExpectedKind(Enum):
    """What may be written somewhere."""

    ATTRIBUTE = "attribute"
    VERB = "verb"  # "is", "above"
    TERM = "term"  # after "is"
    VALUE = "value"  # after "above"
    UNIT = "unit"
    JOINT = "joint"  # "and", "or", ","
    OPTION = "option"
    EVENT = "event"
    AGGREGATOR = "aggregator"
    PERIOD = "period"  # after "in the last"
    DURATION = "duration"  # the unit of one
    SUBSCRIPTION = "subscription"  # after "prefer"


@dataclass(frozen=True)
class CaretContext:
    """What may stand at the caret, each with where the word begins that would be replaced.

    `subject` is what the last predicate is about, `event` what all of them are about.
    """

    places: tuple[tuple[ExpectedKind, int], ...] = ()
    start: int = 0  # of the word at the caret
    subject: Attribute | None = None
    event: EventType | None = None
    used: tuple[Attribute, ...] = ()
    last: str = ""  # the kind of the last word before the caret's
    joints: tuple[str, ...] = ()  # "and", "or", ",", ")", those that may follow
    is_readable: bool = False  # whether the parser can make sense of what stands before


@dataclass
class _Reading:
    """The words before some place, as the parser took them; None where it could not."""

    tokens: list[Token] = field(default_factory=list)
    accepts: frozenset[str] | None = None


def find_context(text: str, caret: int, vocabulary: Vocabulary) -> CaretContext:
    """Return what may be written at the caret; nothing inside quotes, XML and JSON."""
    head = text[: max(0, caret)]
    if detect_surface(text) != "words" or head.count('"') % 2:
        return CaretContext()
    word = _WORD.search(head)
    start = word.start() if word else len(head)
    reading = _read(head[:start])
    if reading.accepts is None:
        return CaretContext()
    subject, used = _find_subject(reading.tokens, vocabulary)
    events = {attribute.event for attribute in used}
    event = vocabulary.events[events.pop()] if len(events) == 1 else None
    places = [(place, start) for place in _find_places(reading)]
    # A name may have several words: what is written may be the last word of one.
    for first in reversed(range(max(0, len(reading.tokens) - _MOST_WORDS), len(reading.tokens))):
        if reading.tokens[first].type != "NAME":
            break
        begin = reading.tokens[first].start_pos or 0
        before = _read(head[:begin])
        places += [
            (p, begin)
            for p in _find_places(before)
            if p in (ExpectedKind.ATTRIBUTE, ExpectedKind.TERM)
        ]
    if start == len(head) and not re.search(r"(^|[\s(,])$", head):
        places = []  # directly behind a number or a bracket: a blank comes first
    last = reading.tokens[-1].type if reading.tokens else ""
    joints = tuple(word for kind, word in _JOINT_TOKENS.items() if kind in reading.accepts)
    return CaretContext(
        tuple(dict.fromkeys(places)), start, subject, event, used, last, joints, True
    )


def _read(text: str) -> _Reading:
    parser = load_parser(load_registry()).parse_interactive(text)
    reading = _Reading()
    with suppress(UnexpectedInput):
        for token in parser.iter_parse():
            reading.tokens.append(token)
        reading.accepts = frozenset(parser.accepts())  # type: ignore[no-untyped-call]
    return reading


def _find_places(reading: _Reading) -> list[ExpectedKind]:
    """Return what the parser would take next, the likeliest first."""
    accepts = reading.accepts or frozenset()
    last = reading.tokens[-1].type if reading.tokens else ""
    if "_PREFER" in accepts:
        return [ExpectedKind.OPTION]
    if _is_in_options(reading.tokens):
        return _find_option_places(reading.tokens, accepts)
    if last in _NAMES:
        found = [ExpectedKind.VERB] if "_IS" in accepts else []
        return found + ([ExpectedKind.JOINT] if "_AND" in accepts else [])
    if {"_NOT", "LPAR"} <= accepts:
        found = [ExpectedKind.TERM] if last == "_OR" else []
        return [*found, ExpectedKind.ATTRIBUTE]
    if "EXTREMELY" in accepts:
        return [ExpectedKind.TERM]
    if {"NAME", "NUMBER"} <= accepts:
        return [ExpectedKind.VALUE]
    found = [ExpectedKind.UNIT] if "UNIT" in accepts else []
    return found + ([ExpectedKind.JOINT] if "_AND" in accepts else [])


def _find_option_places(tokens: list[Token], accepts: frozenset[str]) -> list[ExpectedKind]:
    last = tokens[-1].type
    begin = max(place for place, token in enumerate(tokens) if token.type == "COMMA")
    option = tokens[begin + 1].type if begin + 1 < len(tokens) else ""
    direct = {
        "EVENT": ExpectedKind.EVENT,
        "BY": ExpectedKind.AGGREGATOR,
        "_IN_THE_LAST": ExpectedKind.PERIOD,
        "_FEW": ExpectedKind.PERIOD,
        "_PREFER": ExpectedKind.SUBSCRIPTION,
        "OVER": ExpectedKind.SUBSCRIPTION,
        "OF": ExpectedKind.ATTRIBUTE,
    }
    if last in direct and "NAME" in accepts | {"NAME" if last == "_IN_THE_LAST" else ""}:
        return [direct[last]]
    if "UNIT" in accepts:
        return [ExpectedKind.UNIT if option == "_DEAD_BAND" else ExpectedKind.DURATION]
    return [ExpectedKind.JOINT] if "COMMA" in accepts else []


def _is_in_options(tokens: list[Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += {"LPAR": 1, "RPAR": -1}.get(token.type, 0)
        if token.type == "COMMA" and depth == 0:
            return True
    return False


def _find_subject(
    tokens: list[Token], vocabulary: Vocabulary
) -> tuple[Attribute | None, tuple[Attribute, ...]]:
    """Return the attribute of the last predicate, and all of them."""
    used: list[Attribute] = []
    place = 0
    while place < len(tokens):
        end = place
        while end < len(tokens) and tokens[end].type in _NAMES:
            end += 1
        before = tokens[place - 1].type if place else ""
        after = tokens[end].type if end < len(tokens) else ""
        if end > place and after in _VERB_TOKENS and before not in _AFTER_VERB:
            name = " ".join(str(token).strip('"') for token in tokens[place:end])
            used += _look_up(name, used, vocabulary)
        place = max(end, place + 1)
    return (used[-1] if used else None), tuple(used)


def _look_up(name: str, used: list[Attribute], vocabulary: Vocabulary) -> list[Attribute]:
    """Return the attribute of a name: of several, the one of the event that is spoken of."""
    try:
        found = vocabulary.find_attributes(Name(name))
    except LanguageError:
        return []
    events = {attribute.event for attribute in used}
    return [a for a in found if a.event in events][:1] or found[:1]


# The words -----------------------------------------------------------------------------------

MOST = 8
_CRISP = (
    ("above", "more than a value"),
    ("below", "less than a value"),
    ("between", "from one value to another"),
)
_COMPARISONS = (*_CRISP, ("about", "near a value, fading"))
_VERBS = (
    ("is", "a word follows: high, normal, red"),
    ("is not", "the contrary of a word"),
    *_CRISP,
    ("is about", "near a value, fading"),
)
_HEDGES = (
    ("very", "stricter"),
    ("extremely", "much stricter"),
    ("somewhat", "more lenient"),
    ("more or less", "more lenient"),
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
    ("whole reading", "all values, not only those that are asked for"),
)
_DURATIONS = (("s", "seconds"), ("min", "minutes"), ("h", "hours"), ("days", "days"))


@dataclass(frozen=True)
class WordCompletion:
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
    text: str, caret: int, vocabulary: Vocabulary, subscriptions: Sequence[str] = ()
) -> list[WordCompletion]:
    """Return what may be written at the caret, best first; `subscriptions` are names to prefer."""
    context = find_context(text, caret, vocabulary)
    found: dict[str, tuple[tuple[int, int, int, int], WordCompletion]] = {}
    for order, (place, start) in enumerate(context.places):
        fragment = text[start:caret]
        candidates = _list_candidates(place, context, vocabulary, subscriptions)
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
            found[word] = key, WordCompletion(word, start, place.value, detail)
    return [entry for _, entry in sorted(found.values(), key=lambda pair: pair[0])[:MOST]]


_NAMED = (
    ExpectedKind.ATTRIBUTE,
    ExpectedKind.TERM,
    ExpectedKind.VALUE,
    ExpectedKind.EVENT,
    ExpectedKind.SUBSCRIPTION,
)


def _rate(word: str, fragment: str) -> int | None:
    """Return how well a word goes on with what is written, 0 best; None if it does not."""
    wanted, name = fold_name(fragment), fold_name(word)
    if name.startswith(wanted):
        return 0
    if any(part.startswith(wanted) for part in name.split("_")):
        return 1
    return 2 if len(wanted) > 2 and wanted in name else None


def _quote(word: str) -> str:
    """Return a name as the grammar reads it: in quotes where it looks like a keyword."""
    if word in dict(_HEDGES) or word in dict(_COMPARISONS) or word in ("not", "("):
        return word
    return print_name(word)


def _list_candidates(
    place: ExpectedKind, context: CaretContext, vocabulary: Vocabulary, subscriptions: Sequence[str]
) -> Iterable[_Candidate]:
    subject = context.subject
    if place is ExpectedKind.ATTRIBUTE:
        return _list_attributes(context, vocabulary)
    if place in (ExpectedKind.TERM, ExpectedKind.VALUE):
        return _list_terms(place, context, vocabulary) if subject is not None else ()
    if place is ExpectedKind.UNIT:
        return _list_units(subject)
    if place is ExpectedKind.EVENT:
        return [_Candidate(e.name, e.description) for e in vocabulary.events.values()]
    if place is ExpectedKind.AGGREGATOR:
        return [_Candidate(name.replace("_", " "), "combines the parts") for name in AGGREGATORS]
    if place is ExpectedKind.PERIOD:
        return _list_periods(context, vocabulary)
    if place is ExpectedKind.SUBSCRIPTION:
        return [_Candidate(name, "a subscription of yours") for name in subscriptions]
    words = {
        ExpectedKind.VERB: _VERBS,
        ExpectedKind.JOINT: _JOINTS,
        ExpectedKind.OPTION: _OPTIONS,
        ExpectedKind.DURATION: _DURATIONS,
    }[place]
    return [
        _Candidate(word, detail)
        for word, detail in words
        if place is not ExpectedKind.JOINT or word in context.joints
    ]


def _list_attributes(context: CaretContext, vocabulary: Vocabulary) -> Iterator[_Candidate]:
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
            rank = 0 if entry.organisation == vocabulary.organisation else 1
            yield _Candidate(
                entry.word, f"{_name(entry.organisation)}: {entry.word} = {target.name}", rank
            )
    if context.last in ("", "_AND", "_OR", "_WHEN"):
        yield _Candidate("not", "the contrary of what follows", 2)


def _list_terms(
    place: ExpectedKind, context: CaretContext, vocabulary: Vocabulary
) -> Iterator[_Candidate]:
    attribute = context.subject
    assert attribute is not None, "only called with a subject"
    if place is ExpectedKind.TERM or attribute.kind is ValueKind.TEXT:
        for symbol in attribute.symbols:
            yield _Candidate(symbol, f"{attribute.name}")
        for term in attribute.terms.values():
            yield _Candidate(term.name, describe_term(attribute, term))
        prefix = f"{attribute.path}."
        for entry in vocabulary.thesaurus.entries:
            if entry.target.startswith(prefix):
                target = entry.target.removeprefix(prefix)
                meaning = f"{_name(entry.organisation)}: {entry.word} = {target}"
                yield _Candidate(entry.word, meaning, 1)
    if place is ExpectedKind.TERM:
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


def _list_periods(context: CaretContext, vocabulary: Vocabulary) -> Iterator[_Candidate]:
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
    unit = attribute.suffix
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
