"""The vocabulary as a whole: look-up of names by any synonym, and its content hash.

Immutable. `loading` builds it, `merging` joins two, `denwatch.client.compiler` asks it. Errors of
look-up name what exists and is spelled alike.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Name
from denwatch.client.vocabulary.attributes import Attribute, EventType, ValueKind, VocabularyTerm
from denwatch.client.vocabulary.thesaurus import Thesaurus, fold_name

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

    def iterate_attributes(self) -> Iterator[Attribute]:
        """Yield every attribute of every event."""
        for event in self.events.values():
            yield from event.attributes.values()

    def find_number(self, number: int) -> EventType | None:
        """Return the event of a number on the wire."""
        return next((e for e in self.events.values() if e.number == number), None)

    # Names ----------------------------------------------------------------------------------

    def find_event(self, name: Name, organisation: str | None = None) -> EventType:
        """Return the event that is called so."""
        word = fold_name(name.text)
        for event in self.events.values():
            if fold_name(event.name) == word:
                return event
        targets = [t for t in self.thesaurus.look_up(name.text, organisation) if t in self.events]
        if len(targets) == 1:
            return self.events[targets[0]]
        if targets:
            raise LanguageError.at_node(
                f'"{name.text}" may be {" or ".join(targets)}', name, "use one of these names"
            )
        known = [*self.events, *self.thesaurus.list_words("", 0)]
        raise LanguageError.at_node(
            f'unknown event "{name.text}"', name, suggestions=suggest_names(name.text, known)
        )

    def find_attributes(
        self, name: Name, event: EventType | None = None, organisation: str | None = None
    ) -> list[Attribute]:
        """Return the attributes that are called so, one in each event that has one.

        With an event, exactly one or an error.
        """
        text = name.text
        if "." in text and not self._match_attributes(text, event, organisation):
            qualifier, text = text.split(".", 1)
            named = self.find_event(Name(qualifier, span=name.span), organisation)
            if event is not None and event.name != named.name:
                raise LanguageError.at_node(
                    f'"{name.text}" belongs to event {named.name}, not to {event.name}',
                    name,
                )
            event = named
        found = self._match_attributes(text, event, organisation)
        if not found:
            self._refuse_attribute(name, text, event)
        if event is not None and len(found) > 1:
            choices = " or ".join(attribute.name for attribute in found)
            raise LanguageError.at_node(
                f'"{name.text}" may be {choices}', name, "use one of these names"
            )
        return found

    def _match_attributes(
        self, text: str, event: EventType | None, organisation: str | None
    ) -> list[Attribute]:
        events = [event] if event is not None else list(self.events.values())
        targets = self.thesaurus.look_up(text, organisation)
        word = fold_name(text)
        found = []
        for candidate in events:
            exact = [a for a in candidate.attributes.values() if fold_name(a.name) == word]
            found += exact or [a for a in candidate.attributes.values() if a.path in targets]
        return found

    def _refuse_attribute(self, name: Name, text: str, event: EventType | None) -> None:
        where = f" of event {event.name}" if event else ""
        prefix = f"{event.name}." if event else ""
        events = [event] if event else self.events.values()
        known = [attribute for e in events for attribute in e.attributes]
        known += self.thesaurus.list_words(prefix, 1)
        hint = ""
        elsewhere = self._match_attributes(text, None, None) if event else []
        if elsewhere:
            hint = f"it belongs to event {elsewhere[0].event}"
        raise LanguageError.at_node(
            f'unknown attribute "{name.text}"{where}', name, hint, suggest_names(text, known)
        )

    def find_term(
        self, attribute: Attribute, name: Name, organisation: str | None = None
    ) -> VocabularyTerm | None:
        """Return the attribute's term that is called so, or None."""
        word = fold_name(name.text)
        for term in attribute.terms.values():
            if fold_name(term.name) == word:
                return term
        for target in self.thesaurus.look_up(name.text, organisation):
            path, _, last = target.rpartition(".")
            if path == attribute.path and last in attribute.terms:
                return attribute.terms[last]
        return None

    def find_symbol(
        self, attribute: Attribute, text: str, organisation: str | None = None
    ) -> int | None:
        """Return the code of a text attribute's symbol, or None."""
        word = fold_name(text)
        for code, symbol in enumerate(attribute.symbols):
            if fold_name(symbol) == word:
                return code
        for target in self.thesaurus.look_up(text, organisation):
            path, _, last = target.rpartition(".")
            if path == attribute.path and last in attribute.symbols:
                return attribute.symbols.index(last)
        return None

    def list_choices(self, attribute: Attribute) -> list[str]:
        """Return what may follow "is" for an attribute: terms or symbols, and their synonyms."""
        own = attribute.symbols if attribute.kind is ValueKind.TEXT else tuple(attribute.terms)
        return [*own, *self.thesaurus.list_words(f"{attribute.path}.", 2)]
