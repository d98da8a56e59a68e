"""Subscription languages: which there are, by one id everywhere, and the three parts of each.

A language has the parts of the DENS paper (section 2): *look-up* turns a request into bytes and
names what it asks for, so that roles and publishers are found; *filter* lowers those bytes to a
vector that devices evaluate; *match* says which subscriptions a notification fits. A node knows no
language by name but the fuzzy one, whose vectors devices speak; it asks this registry. A language
from outside is a `SubscriptionLanguage` behind an entry point of the group `denwatch.languages`
(docs/language.md, examples/where_language).

The id stands in every subscription's item and log record, and in the hello of a device that has
the language: 0 to 127 are denwatch's, 128 to 255 are for sites. An item in a language that is not
known here is carried on and matched elsewhere.

INVARIANT  what matches is sent: a reading that fits a subscription by its matcher fits the vector
           of its filter part, at possible 0.5. `None` there means that sensors cannot serve it,
           and the subscriber is told so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Protocol

import cbor2
from denwatch.client.compiler import decompile
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import print_as
from denwatch.client.language.understanding import Understood, understand
from denwatch.client.plugins import load_entry_points
from denwatch.client.vocabulary import Attribute, EventType, Vocabulary
from denwatch.node.core.items import SubscriptionBody, load_cbor
from denwatch.node.core.notifications import name_value
from denwatch.node.matching.plugins import Matcher
from denwatch.node.ranking.content import (
    POSSIBLE,
    Constraint,
    ContentError,
    ContentFilter,
    Op,
    find_kind,
)
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import CONTENT, FUZZY
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import Predicate, SubscriptionVector

GROUP = "denwatch.languages"
LAST_LANGUAGE = 255  # the id is one byte
SPECIAL = ("event", "device")  # what typed content has besides the values of attributes
# Declared as entry points too; a source checkout has them without being installed.
SHIPPED = (
    f"{__name__}:FUZZY_LANGUAGE",
    f"{__name__}:CONTENT_LANGUAGE",
    "denwatch.node.core.story_language:STORY_LANGUAGE",
)
STORY = 2  # the language of stories, whose parts are fuzzy; no device speaks it
_LOWERED = 4096  # vectors that are remembered


@dataclass(frozen=True)
class LookedUp:
    """What a request asks for, as a vocabulary has it."""

    event: EventType
    attributes: tuple[str, ...]  # all that it names; the subscriber's role must allow them
    data: bytes  # as items carry it, and as the other parts get it
    words: str  # what was understood
    options: Mapping[str, Any] = field(default_factory=dict)  # name, score, top, ...
    life: float = 0  # s; 0: until removed
    notes: tuple[str, ...] = ()  # approximations that the subscriber should know of
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # more events, each with its attributes
    taken: tuple[str, ...] = ()  # what everyday and ambiguous words were taken for
    source: str = ""  # the words to keep, if they are not those of the request


class SubscriptionLanguage(ABC):
    """One language. Whatever it reads is from outside: LanguageError and ProtocolError refuse."""

    id: int
    name: str
    key: str  # of its requests in JSON and CBOR: {"content": [...]}
    openings: tuple[str, ...] = ()  # first words by which a plain text is known to be in it

    def recognises(self, text: str) -> bool:
        """Return whether a plain text is in it; by its first word, unless a language knows more."""
        return text.split(maxsplit=1)[0].casefold() in self.openings if text.split() else False

    def list_parts(self, data: bytes) -> tuple[bytes, ...]:  # noqa: ARG002
        """Return the vectors of a subscription over several readings; of any other nothing."""
        return ()

    @abstractmethod
    def look_up(self, source: Any, vocabulary: Vocabulary) -> LookedUp:
        """Look-up: return what a request asks for; LanguageError says what is wrong, and where."""

    @abstractmethod
    def lower(self, data: bytes, vocabulary: Vocabulary) -> bytes | None:
        """Filter: return a vector that every reading fits which can match; None: there is none."""

    @abstractmethod
    def make_matcher(self) -> Matcher[Any, Any]:
        """Match: return a new, empty matcher.

        Its notifications are typed content (`describe_content_values`): the values by name, those
        of uncertain readings as `PossibleValues`.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return the subscription as the matcher takes it; ProtocolError if it is none."""

    @abstractmethod
    def list_attributes(self, data: bytes) -> tuple[str, ...]:
        """Return the attributes that a subscription names."""


class StoredSubscription(Protocol):
    """What the filter part needs of a subscription, whichever object has it."""

    @property
    def language(self) -> int: ...
    @property
    def vocabulary(self) -> bytes: ...
    @property
    def vector(self) -> bytes: ...


class Languages:
    """The languages that are known, by id, by key and by opening word."""

    def __init__(self, languages: Iterable[SubscriptionLanguage] = ()) -> None:
        self._languages: dict[int, SubscriptionLanguage] = {}
        self._lowered: dict[tuple[int, bytes, bytes], bytes | None] = {}
        for language in languages:
            self.register(language)

    def __iter__(self) -> Iterator[SubscriptionLanguage]:
        return iter(self._languages.values())

    def __contains__(self, id: int) -> bool:
        return id in self._languages

    def register(self, language: SubscriptionLanguage) -> None:
        """Add a language; its id, name, key and opening words must be new."""
        if not 0 <= language.id <= LAST_LANGUAGE:
            raise ValueError(f"language id {language.id} is not in 0..{LAST_LANGUAGE}")
        for known in self:
            if language is known:
                return
            same = {known.id, known.name, known.key} & {language.id, language.name, language.key}
            if same or set(known.openings) & set(language.openings):
                raise ValueError(f"language {known.id} ({known.name}) is already registered")
        self._languages[language.id] = language

    def find(self, id: int) -> SubscriptionLanguage:
        """Return a language; KeyError names an unknown one."""
        try:
            return self._languages[id]
        except KeyError:
            raise KeyError(f"no plug-in for language id {id}") from None

    def find_language(self, text: str) -> int:
        """Return the language that a plain text is in."""
        return next((each.id for each in self if each.recognises(text)), FUZZY)

    def split(self, body: SubscriptionBody) -> list[SubscriptionBody]:
        """Return a subscription over several readings as one for each part; any other as it is."""
        language = self._languages.get(body.language)
        try:
            parts = () if language is None else language.list_parts(body.vector)
        except ProtocolError:
            parts = ()
        return [replace(body, language=FUZZY, vector=part) for part in parts] or [body]

    def lower(self, body: StoredSubscription, vocabulary: Vocabulary | None) -> bytes | None:
        """Return the vector by which devices serve a subscription; None: they cannot."""
        if body.language == FUZZY:
            return body.vector
        language = self._languages.get(body.language)
        if vocabulary is None or language is None:
            return None
        key = body.language, body.vocabulary, body.vector
        if key not in self._lowered:
            if len(self._lowered) >= _LOWERED:
                self._lowered.clear()
            try:
                self._lowered[key] = language.lower(body.vector, vocabulary)
            except ProtocolError:
                return None
        return self._lowered[key]


@cache
def load_languages() -> Languages:
    """Return the shipped languages and those that are installed; read once."""
    return Languages(load_entry_points(GROUP, SHIPPED, SubscriptionLanguage))


# The fuzzy language ----------------------------------------------------------------------------

_MEMO = 256  # texts whose meaning is remembered: many people ask the same, and ask it again
_MEMO_LENGTH = 512  # characters; longer texts are seldom asked twice


class _Same:
    """A vocabulary as the key of a memo: the very same one, whatever else looks like it."""

    __slots__ = ("vocabulary",)

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __hash__(self) -> int:
        return id(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.vocabulary is other.vocabulary


def _read_once(text: Any, same: _Same, is_compact: bool) -> tuple[Understood, str]:
    """Return what a text means, as a vector and in words."""
    found = understand(text, same.vocabulary, compact=is_compact)
    return found, print_as("words", decompile(found.compiled.data, same.vocabulary))


_read_again = lru_cache(maxsize=_MEMO)(_read_once)


class FuzzyLanguage(SubscriptionLanguage):
    """Words, XML and JSON that compile to vectors: what devices evaluate as it is."""

    id, name, key = FUZZY, "fuzzy", "subscribe"

    def __init__(self, is_compact: bool = True) -> None:
        """`is_compact`: hedges may be fitted away where that saves bytes."""
        self._is_compact = is_compact

    def look_up(self, source: Any, vocabulary: Vocabulary) -> LookedUp:
        """Compile a text."""
        read = (
            _read_again if isinstance(source, str) and len(source) <= _MEMO_LENGTH else _read_once
        )
        found, words = read(source, _Same(vocabulary), self._is_compact)
        compiled = found.compiled
        vector, event = compiled.vector, compiled.event
        names = [a.name for a in event.attributes.values() if vector.features >> a.bit & 1]
        life = decode_duration(vector.validity) if vector.validity else 0
        notes = [str(approximation) for approximation in compiled.report]
        options = compiled.options.to_dict()
        source = found.words if found.is_restated else ""
        known = event, (*names,), compiled.data, words, options, life, (*notes,)
        return LookedUp(*known, taken=found.notes, source=source)

    def lower(self, data: bytes, vocabulary: Vocabulary) -> bytes:  # noqa: ARG002
        """Return the vector that it is."""
        return data

    def make_matcher(self) -> Matcher[Any, Any]:
        """Return the matcher of vectors, which takes notification vectors."""
        from denwatch.node.matching.matcher import FuzzyMatcher  # numpy: only where it is used

        return FuzzyMatcher()

    def decode(self, data: bytes) -> SubscriptionVector:
        """Decode a vector."""
        return codec.decode(data)

    def list_attributes(self, data: bytes) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: roles go by the features of a vector."""
        return ()


FUZZY_LANGUAGE = FuzzyLanguage()
EXACT_LANGUAGE = FuzzyLanguage(is_compact=False)  # for who asks for it: {"exact": true}


# Typed content ---------------------------------------------------------------------------------


class ContentLanguage(SubscriptionLanguage):
    """Constraints on named values (`ranking.content`), as a list of triples."""

    id, name, key = CONTENT, "content", "content"

    def look_up(self, source: Any, vocabulary: Vocabulary) -> LookedUp:
        """Check triples."""
        if not isinstance(source, list):
            raise LanguageError('"content" takes a list of triples')
        for entry in source:
            if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
                raise LanguageError('"content" takes triples: [["attribute", "operator", value]]')
        try:
            content = ContentFilter.of(*(tuple(entry) for entry in source))
            data = cbor2.dumps(source)
        except (ContentError, TypeError, ValueError) as error:
            raise LanguageError(f"content: {error}") from None
        event = _find_event(content, vocabulary)
        names = _list_names(content)
        for name in names:
            if name not in event.attributes:
                raise LanguageError(
                    f'content: unknown attribute "{name}" of event {event.name}',
                    suggestions=suggest_names(name, [*event.attributes, "device"]),
                )
        return LookedUp(event, names, data, str(content))

    def lower(self, data: bytes, vocabulary: Vocabulary) -> bytes | None:
        """Return the box around what a filter asks for."""
        return lower_content(self.decode(data), vocabulary)

    def make_matcher(self) -> Matcher[Any, Any]:
        """Return the index of filters."""
        from denwatch.node.matching.content_index import ContentIndex

        return ContentIndex()

    def decode(self, data: bytes) -> ContentFilter:
        """Return the filter of a subscription's bytes."""
        triples = load_cbor(data)
        try:
            return ContentFilter.of(*(tuple(triple) for triple in triples))
        except (ContentError, ValueError, TypeError, OverflowError) as error:
            raise ProtocolError(f"no filter: {type(error).__name__}") from None

    def list_attributes(self, data: bytes) -> tuple[str, ...]:
        """Return the attributes that a filter names."""
        return _list_names(self.decode(data))


CONTENT_LANGUAGE = ContentLanguage()


def _list_names(content: ContentFilter) -> tuple[str, ...]:
    return tuple(sorted({c.name for c in content.constraints} - set(SPECIAL)))


def _find_event(content: ContentFilter, vocabulary: Vocabulary) -> EventType:
    named = [c.value for c in content.constraints if c.name == "event" and c.op == "="]
    if len(named) != 1:
        raise LanguageError('content: one event is needed, ["event", "=", "patient"]')
    event = vocabulary.events.get(str(named[0]))
    if event is None:
        raise LanguageError(
            f'content: unknown event "{named[0]}"',
            suggestions=suggest_names(str(named[0]), vocabulary.events),
        )
    return event


def lower_content(content: ContentFilter, vocabulary: Vocabulary) -> bytes | None:
    """Return a vector that every reading matches which can match a filter; None: there is none.

    Each attribute's range is from the first to the last code that satisfies what is asked of it;
    the node refuses what lies between and does not.
    """
    named = [str(c.value) for c in content.constraints if c.name == "event" and c.op == "="]
    event = vocabulary.events.get(named[0]) if len(named) == 1 else None
    if event is None:
        return None
    ranges = {}
    for name in _list_names(content):
        if name in event.attributes:
            asked = [c for c in content.constraints if c.name == name]
            ranges[name] = find_range(event.attributes[name], asked)
    return build_box(event, ranges)


def build_box(event: EventType, ranges: Mapping[str, tuple[int, int]]) -> bytes | None:
    """Return the vector of a range of codes for each attribute; None if one of them is empty.

    No vector says "every reading, whatever it has", so there is none without an attribute.
    """
    if not ranges or any(low > high for low, high in ranges.values()):
        return None
    predicates = [
        Predicate(attribute.bit, *ranges[attribute.name], wide=attribute.wide)
        for attribute in sorted(event.attributes.values(), key=lambda one: one.bit)
        if attribute.name in ranges
    ]
    return codec.encode(SubscriptionVector(event.number, predicates, threshold=POSSIBLE))


def find_range(attribute: Attribute, asked: list[Constraint]) -> tuple[int, int]:
    """Return the first and the last code that satisfies all constraints; nothing: (1, 0)."""
    if not attribute.wide:
        return span_codes(attribute, lambda value: all(c.accepts(value) for c in asked))
    # 65,536 codes are too many to look at; but their values rise, as text does that says when.
    low, high = 0, attribute.last
    for c in asked:
        if find_kind(name_value(attribute, 0)) is not c.kind:
            return 1, 0
        if c.op in (Op.GT, Op.GE, Op.EQ):
            above = Constraint(c.name, Op.GT if c.op is Op.GT else Op.GE, c.value)
            low = max(low, _find_first(attribute, above, True))
        if c.op in (Op.LT, Op.LE, Op.EQ):
            below = Constraint(c.name, Op.LT if c.op is Op.LT else Op.LE, c.value)
            high = min(high, _find_first(attribute, below, False) - 1)
    return low, high


def span_codes(attribute: Attribute, accepts: Callable[[float | str], bool]) -> tuple[int, int]:
    """Return the first and the last code whose value is accepted; nothing: (1, 0)."""
    codes = range(attribute.last + 1)
    fits = [code for code in codes if accepts(name_value(attribute, code))]
    return (fits[0], fits[-1]) if fits else (1, 0)


def _find_first(attribute: Attribute, constraint: Constraint, is_met: bool) -> int:
    """Return the first code that satisfies a limit, or that does not; one past the last if none."""
    codes = range(attribute.last + 1)
    return bisect_left(
        codes,
        True,
        key=lambda code: constraint.accepts(name_value(attribute, code)) is is_met,
    )
