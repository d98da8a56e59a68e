"""The vocabulary as a whole, its thesaurus, and its description as text.

`Vocabulary` is immutable; `loading` builds it. It finds events, attributes, terms and symbols by
any synonym. Its own names are folded already (`loading` refuses others), so that finding one is a
look into a dictionary. A name that is not found is refused with the names that are spelled alike.

A synonym's target is a path: "patient", "patient.heart_rate", "patient.heart_rate.high", the last
for terms and symbols. Two organisations may use one word for different things; then the caller's
organisation decides, or the event, or it is an error that names both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Name
from denwatch.client.vocabulary.attributes import (
    Attribute,
    EventType,
    VocabularyTerm,
    fold_name,
)


@dataclass(frozen=True)
class Synonym:
    """One synonym."""

    organisation: str
    word: str
    target: str


@dataclass(frozen=True)
class Thesaurus:
    """Synonyms by organisation."""

    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def entries(self) -> tuple[Synonym, ...]:
        """All synonyms, by organisation and word."""
        return tuple(
            Synonym(organisation, word, target)
            for organisation, words in sorted(self.words.items())
            for word, target in sorted(words.items())
        )

    @cached_property
    def _by_word(self) -> dict[str, list[Synonym]]:
        index: dict[str, list[Synonym]] = {}
        for entry in self.entries:
            index.setdefault(fold_name(entry.word), []).append(entry)
        return index

    def look_up(self, word: str, organisation: str | None = None) -> list[str]:
        """Return the targets of a word; the organisation's own meaning goes before all others."""
        entries = self._by_word.get(fold_name(word), [])
        own = [entry.target for entry in entries if entry.organisation == organisation]
        return list(dict.fromkeys(own or [entry.target for entry in entries]))

    def list_synonyms(self, target: str) -> list[Synonym]:
        """Return what the organisations call a thing."""
        return [entry for entry in self.entries if entry.target == target]

    def list_words(self, prefix: str, depth: int) -> Iterable[str]:
        """Yield the synonyms of things so deep under a prefix; for suggestions."""
        for entry in self.entries:
            if entry.target.startswith(prefix) and entry.target.count(".") == depth:
                yield entry.word


# Temporal phrases: fully recent until, not recent from, in seconds. A vocabulary may change them.
PHRASES: dict[str, tuple[float, float]] = {
    "recent": (30.0, 120.0),
    "few seconds": (5.0, 15.0),
    "few minutes": (180.0, 480.0),
    "few hours": (10800.0, 28800.0),
}


@dataclass(frozen=True)
class Vocabulary:
    """Events by name, synonyms, and phrases of time. `document` is what it was built from."""

    name: str
    events: Mapping[str, EventType] = field(repr=False)
    thesaurus: Thesaurus = field(default_factory=Thesaurus, repr=False)
    phrases: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: dict(PHRASES), repr=False
    )
    description: str = ""
    document: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)
    organisation: str | None = field(default=None, compare=False)  # whose synonyms go first
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)  # by language
    # Paths of the attributes that devices here sense and the asker may see; empty: not known.
    present: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @cached_property
    def hash(self) -> str:
        """The content hash: 64 hexadecimal digits, the same for the same content in any order."""
        text = json.dumps(
            self.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
        )
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def version(self) -> str:
        """The first digits of the hash, for people."""
        return self.hash[:12]

    @cached_property
    def _preferring(self) -> dict[str, Vocabulary]:
        return {}

    def prefer(self, organisation: str | None) -> Vocabulary:
        """Return the same vocabulary, with an organisation's synonyms before all others."""
        if organisation is None:
            return self
        if organisation not in self._preferring:
            self._preferring[organisation] = replace(self, organisation=organisation)
        return self._preferring[organisation]

    def surround(self, present: frozenset[str]) -> Vocabulary:
        """Return the same vocabulary, where some attributes are at hand."""
        return replace(self, present=present)

    def iterate_attributes(self) -> Iterator[Attribute]:
        """Yield every attribute of every event."""
        for event in self.events.values():
            yield from event.attributes.values()

    def find_number(self, number: int) -> EventType | None:
        """Return the event of a number on the wire."""
        return next((e for e in self.events.values() if e.number == number), None)

    # Names ----------------------------------------------------------------------------------

    def find_event(self, name: Name) -> EventType:
        """Return the event that is called so."""
        event = self.events.get(fold_name(name.text))
        if event is not None:
            return event
        targets = [target for target in self._look_up(name.text) if target in self.events]
        if len(targets) == 1:
            return self.events[targets[0]]
        if targets:
            raise LanguageError.at_node(
                f'"{name.text}" may be {" or ".join(targets)}', name, "use one of these names"
            )
        known = [*self.events, *self.thesaurus.list_words("", 0)]
        raise LanguageError.of_unknown("unknown event", name.text, known, name)

    def find_common_event(self, names: Sequence[Name], advice: str) -> EventType:
        """Return the event that has all of some attributes; `advice` is how to name one of them."""
        common: list[str] | None = None
        for name in names:
            events = [a.event for a in self.find_attributes(name)]
            kept = [e for e in dict.fromkeys(events) if common is None or e in common]
            if common is not None and not kept:
                raise LanguageError.at_node(
                    f'"{name.text}" belongs to event {" or ".join(events)}, '
                    f"but the attributes before it belong to {' or '.join(common)}",
                    name,
                    "all attributes are of one event",
                )
            common = kept
        assert common, "there is a name, and every name has an attribute"
        if len(common) > 1:
            raise LanguageError.at_node(
                f'"{names[0].text}" is an attribute of several events',
                names[0],
                f"{advice} {', '.join(common)}",
            )
        return self.events[common[0]]

    def find_attributes(self, name: Name, event: EventType | None = None) -> list[Attribute]:
        """Return the attributes that are called so, one in each event that has one.

        With an event, exactly one or an error.
        """
        text = name.text
        if "." in text and not self._match_attributes(text, event):
            qualifier, text = text.split(".", 1)
            named = self.find_event(Name(qualifier, span=name.span))
            if event is not None and event.name != named.name:
                raise LanguageError.at_node(
                    f'"{name.text}" belongs to event {named.name}, not to {event.name}', name
                )
            event = named
        found = self._match_attributes(text, event)
        if not found:
            self._refuse_attribute(name, text, event)
        if event is not None and len(found) > 1:
            choices = " or ".join(attribute.name for attribute in found)
            raise LanguageError.at_node(
                f'"{name.text}" may be {choices}', name, "use one of these names"
            )
        return found

    def _look_up(self, word: str) -> list[str]:
        return self.thesaurus.look_up(word, self.organisation)

    def _match_attributes(self, text: str, event: EventType | None) -> list[Attribute]:
        events = [event] if event is not None else list(self.events.values())
        targets = self._look_up(text)
        word = fold_name(text)
        found = []
        for candidate in events:
            exact = candidate.attributes.get(word)
            if exact is not None:
                found.append(exact)
            elif targets:
                found += [a for a in candidate.attributes.values() if a.path in targets]
        return found

    def _refuse_attribute(self, name: Name, text: str, event: EventType | None) -> None:
        where = f" of event {event.name}" if event else ""
        prefix = f"{event.name}." if event else ""
        events = [event] if event else self.events.values()
        known = [attribute for e in events for attribute in e.attributes]
        known += self.thesaurus.list_words(prefix, 1)
        hint = ""
        elsewhere = self._match_attributes(text, None) if event else []
        if elsewhere:
            hint = f"it belongs to event {elsewhere[0].event}"
        raise LanguageError.at_node(
            f'unknown attribute "{name.text}"{where}', name, hint, suggest_names(text, known)
        )

    def find_term(self, attribute: Attribute, name: Name) -> VocabularyTerm | None:
        """Return the attribute's term that is called so, or None."""
        term = attribute.terms.get(fold_name(name.text))
        if term is not None:
            return term
        return attribute.terms.get(self._find_synonym(attribute, name.text))

    def find_symbol(self, attribute: Attribute, text: str) -> int | None:
        """Return the code of a text attribute's symbol, or None."""
        code = attribute.codes_by_word.get(fold_name(text))
        if code is not None:
            return code
        symbol = self._find_synonym(attribute, text)
        return attribute.codes_by_word.get(fold_name(symbol))

    def _find_synonym(self, attribute: Attribute, text: str) -> str:
        """Return the attribute's term or symbol that a synonym stands for, "" for none."""
        paths = (target.rpartition(".") for target in self._look_up(text))
        return next((last for path, _, last in paths if path == attribute.path), "")

    def list_choices(self, attribute: Attribute) -> list[str]:
        """Return what may follow "is" for an attribute: terms or symbols, and their synonyms."""
        return [
            *attribute.symbols,
            *attribute.terms,
            *self.thesaurus.list_words(f"{attribute.path}.", 2),
        ]


# A vocabulary as text to read: for the command line, and for people who look for a word.

HASH_DIGITS = 16  # of the hash in a device's configuration, and in what it says at a node


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    """Return name and hash as devices write it, then the events with their attributes."""
    lines = [f"{vocabulary.name} {vocabulary.hash[:HASH_DIGITS]}"]
    if vocabulary.description:
        lines.append(vocabulary.description)
    for event in vocabulary.events.values():
        lines += ["", *_list_event(vocabulary, event)]
    return "\n".join(lines)


def _list_event(vocabulary: Vocabulary, event: EventType) -> list[str]:
    title = f"{event.name} ({event.number})"
    lines = [f"{title}: {event.description}" if event.description else title]
    width = max(len(name) for name in event.attributes)
    for attribute in event.attributes.values():
        words = ", ".join(attribute.terms)
        lines.append(
            f"  {attribute.name:{width}}  {attribute.describe_domain():28}  {words}".rstrip()
        )
    synonyms = [entry.word for entry in vocabulary.thesaurus.list_synonyms(event.name)]
    return [*lines, f"  also: {', '.join(synonyms)}"] if synonyms else lines


def describe_attribute(vocabulary: Vocabulary, attribute: Attribute) -> str:
    """Return all about one attribute: domain, terms with their fit, synonyms."""
    bits = 16 if attribute.wide else 8
    lines = [
        attribute.path + (f": {attribute.description}" if attribute.description else ""),
        f"  {attribute.kind.value}, {attribute.describe_domain()}, bit {attribute.bit}, "
        f"{bits} bits, step {attribute.step:.4g}",
    ]
    lines += [f"  {describe_term(attribute, term)}" for term in attribute.terms.values()]
    for entry in vocabulary.thesaurus.entries:
        if entry.target == attribute.path:
            lines.append(f"  {entry.organisation}: {entry.word}")
        elif entry.target.startswith(f"{attribute.path}."):
            term = entry.target.rpartition(".")[2]
            lines.append(f"  {entry.organisation}: {entry.word} = {term}")
    return "\n".join(lines)


def describe_term(attribute: Attribute, term: VocabularyTerm) -> str:
    """Return a term's definition and how well the wire follows it."""
    if term.base is not None:
        meaning = f"{' '.join(term.hedges)} {term.base}"
    else:
        points = " ".join(_write_point(point, attribute) for point in term.membership.points)
        meaning = f"{term.membership.kind} {points}"
    error = attribute.fit_term(term).error
    return f"{term.name}: {meaning} (at most {error:.1%} off)"


def _write_point(point: float, attribute: Attribute) -> str:
    """Return a point of a term: a number, or the symbol of a graded text that stands there."""
    is_symbol = attribute.is_graded and point in range(len(attribute.symbols))
    return attribute.symbols[int(point)] if is_symbol else f"{point:g}"


def browse(vocabulary: Vocabulary, word: str) -> str:
    """Return what a word means: an event, or every attribute that is called so."""
    try:
        return "\n".join(_list_event(vocabulary, vocabulary.find_event(Name(word))))
    except LanguageError as not_an_event:
        try:
            found = vocabulary.find_attributes(Name(word))
        except LanguageError as not_an_attribute:
            names = dict.fromkeys((*not_an_attribute.suggestions, *not_an_event.suggestions))
            raise LanguageError(
                f'nothing is called "{word}"', suggestions=list(names)[:3]
            ) from None
        return "\n\n".join(describe_attribute(vocabulary, a) for a in found)
