"""Where in a subscription the caret stands: what may be written there, and about which attribute.

The language's own parser says what may follow the words before the caret, so completion can offer
nothing that the parser would refuse. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from denwatch.client.errors import LanguageError
from denwatch.client.language import detect_surface
from denwatch.client.language.grammar import load_parser
from denwatch.client.plugins import load_registry
from denwatch.client.syntax import Name
from denwatch.client.vocabulary import Attribute, EventType, Vocabulary
from lark import Token
from lark.exceptions import UnexpectedInput

_MOST_WORDS = 4  # of a name; each costs a parse
_NAMES = ("NAME", "STRING")
_HEDGES = ("VERY", "EXTREMELY", "MORE_OR_LESS", "SOMEWHAT")
_OPERATORS = ("EQUAL", "UNEQUAL", "LESS", "AT_MOST", "GREATER", "OVER", "AT_LEAST", "FROM")
_VERBS = (*_HEDGES, *_OPERATORS, "_IS", "_NOT", "_BETWEEN", "_ABOUT", "EXTENSION")
_JOINTS = {"_AND": "and", "_OR": "or", "RPAR": ")", "COMMA": ","}
_AFTER_VERB = (*_VERBS, "TO", "WITHIN", "_DASH")
_WORD = re.compile("(?:[^\\W\\d]|[°%/])(?:\\w|[°%/²³'\u2019.-])*$")


class Place(Enum):
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
class Context:
    """What may stand at the caret, each with where the word begins that would be replaced.

    `subject` is what the last predicate is about, `event` what all of them are about.
    """

    places: tuple[tuple[Place, int], ...] = ()
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


def find_context(
    text: str, caret: int, vocabulary: Vocabulary, organisation: str | None
) -> Context:
    """Return what may be written at the caret; nothing inside quotes, XML and JSON."""
    head = text[: max(0, caret)]
    if detect_surface(text) != "words" or head.count('"') % 2:
        return Context()
    word = _WORD.search(head)
    start = word.start() if word else len(head)
    reading = _read(head[:start])
    if reading.accepts is None:
        return Context()
    subject, used = _find_subject(reading.tokens, vocabulary, organisation)
    events = {attribute.event for attribute in used}
    event = vocabulary.events[events.pop()] if len(events) == 1 else None
    places = [(place, start) for place in _find_places(reading)]
    # A name may have several words: what is written may be the last word of one.
    for first in reversed(range(max(0, len(reading.tokens) - _MOST_WORDS), len(reading.tokens))):
        if reading.tokens[first].type != "NAME":
            break
        begin = reading.tokens[first].start_pos or 0
        before = _read(head[:begin])
        places += [(p, begin) for p in _find_places(before) if p in (Place.ATTRIBUTE, Place.TERM)]
    if start == len(head) and not re.search(r"(^|[\s(,])$", head):
        places = []  # directly behind a number or a bracket: a blank comes first
    last = reading.tokens[-1].type if reading.tokens else ""
    joints = tuple(word for kind, word in _JOINTS.items() if kind in reading.accepts)
    return Context(tuple(dict.fromkeys(places)), start, subject, event, used, last, joints, True)


def _read(text: str) -> _Reading:
    parser = load_parser(load_registry()).parse_interactive(text)
    tokens: list[Token] = []
    try:
        for token in parser.iter_parse():
            tokens.append(token)
        accepts = parser.accepts()  # type: ignore[no-untyped-call]
        return _Reading(tokens, frozenset(accepts))
    except UnexpectedInput:
        return _Reading(tokens)


def _find_places(reading: _Reading) -> list[Place]:
    """Return what the parser would take next, the likeliest first."""
    accepts = reading.accepts or frozenset()
    last = reading.tokens[-1].type if reading.tokens else ""
    if "_PREFER" in accepts:
        return [Place.OPTION]
    if _is_in_options(reading.tokens):
        return _find_option_places(reading.tokens, accepts)
    if last in _NAMES:
        found = [Place.VERB] if "_IS" in accepts else []
        return found + ([Place.JOINT] if "_AND" in accepts else [])
    if {"_NOT", "LPAR"} <= accepts:
        return [Place.TERM, Place.ATTRIBUTE] if last == "_OR" else [Place.ATTRIBUTE]
    if "EXTREMELY" in accepts:
        return [Place.TERM]
    if {"NAME", "NUMBER"} <= accepts:
        return [Place.VALUE]
    found = [Place.UNIT] if "UNIT" in accepts else []
    return found + ([Place.JOINT] if "_AND" in accepts else [])


def _find_option_places(tokens: list[Token], accepts: frozenset[str]) -> list[Place]:
    last = tokens[-1].type
    begin = max(place for place, token in enumerate(tokens) if token.type == "COMMA")
    option = tokens[begin + 1].type if begin + 1 < len(tokens) else ""
    direct = {
        "EVENT": Place.EVENT,
        "BY": Place.AGGREGATOR,
        "_IN_THE_LAST": Place.PERIOD,
        "_FEW": Place.PERIOD,
        "_PREFER": Place.SUBSCRIPTION,
        "OVER": Place.SUBSCRIPTION,
        "OF": Place.ATTRIBUTE,
    }
    if last in direct and "NAME" in accepts | {"NAME" if last == "_IN_THE_LAST" else ""}:
        return [direct[last]]
    if "UNIT" in accepts:
        return [Place.UNIT if option == "_DEAD_BAND" else Place.DURATION]
    return [Place.JOINT] if "COMMA" in accepts else []


def _is_in_options(tokens: list[Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += {"LPAR": 1, "RPAR": -1}.get(token.type, 0)
        if token.type == "COMMA" and depth == 0:
            return True
    return False


def _find_subject(
    tokens: list[Token], vocabulary: Vocabulary, organisation: str | None
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
        if end > place and after in _VERBS and before not in _AFTER_VERB:
            name = " ".join(str(token).strip('"') for token in tokens[place:end])
            used += _look_up(name, used, vocabulary, organisation)
        place = max(end, place + 1)
    return (used[-1] if used else None), tuple(used)


def _look_up(
    name: str, used: list[Attribute], vocabulary: Vocabulary, organisation: str | None
) -> list[Attribute]:
    """Return the attribute of a name: of several, the one of the event that is spoken of."""
    try:
        found = vocabulary.find_attributes(Name(name), None, organisation)
    except LanguageError:
        return []
    events = {attribute.event for attribute in used}
    return [a for a in found if a.event in events][:1] or found[:1]
