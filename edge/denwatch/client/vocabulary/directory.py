"""Who publishes what: the announcements of watchdogs, looked up by what a subscription needs.

State without clock or I/O: the node feeds it with hellos and asks it where a subscription can be
served. A publisher that falls silent is forgotten by whoever watches the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Name
from denwatch.client.vocabulary.attributes import Attribute
from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.protocol.vectors import SubscriptionVector


@dataclass(frozen=True)
class Publication:
    """One event that a publisher senses, and the attributes of it, as a feature mask."""

    publisher: str
    event: int
    features: int


@dataclass(frozen=True)
class Finding:
    """What of a wish a publisher can serve: attributes it has, attributes it lacks."""

    publisher: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the publisher can evaluate the whole subscription."""
        return not self.lacks


class PublisherDirectory:
    """The publishers that are known, by name."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._publications: dict[tuple[str, int], Publication] = {}

    def announce(self, publisher: str, event: int, features: int) -> None:
        """Note what a publisher senses of an event; a new announcement replaces the old one."""
        if not 0 < features <= 0xFFFF:
            raise LanguageError(f'"{publisher}" announces no attributes of event {event}')
        self._publications[publisher, event] = Publication(publisher, event, features)

    def announce_names(self, publisher: str, names: Iterable[str]) -> None:
        """Note what a publisher senses, by any names: "temp", "patient.heart_rate"."""
        masks: dict[int, int] = {}
        for text in names:
            found = self.vocabulary.find_attributes(Name(text))
            if len(found) > 1:
                events = ", ".join(attribute.event for attribute in found)
                raise LanguageError(f'"{text}" is an attribute of several events', hint=events)
            event = self.vocabulary.events[found[0].event]
            masks[event.number] = masks.get(event.number, 0) | 1 << found[0].bit
        for number, mask in masks.items():
            self.announce(publisher, number, mask)

    def forget(self, publisher: str) -> None:
        """Forget all that a publisher announced."""
        for key in [key for key in self._publications if key[0] == publisher]:
            del self._publications[key]

    def iterate_publications(self) -> Iterator[Publication]:
        """Yield what is known, by publisher and event."""
        yield from (self._publications[key] for key in sorted(self._publications))

    def find_publishers(self, subscription: SubscriptionVector) -> list[str]:
        """Return who senses everything that a subscription asks for."""
        wanted = subscription.features
        return [
            p.publisher
            for p in self.iterate_publications()
            if p.event == subscription.event and not wanted & ~p.features
        ]

    def look_up(self, names: Iterable[str], organisation: str | None = None) -> list[Finding]:
        """Return who senses any of some attributes, by any names; complete ones first."""
        wanted: list[Attribute] = []
        for text in names:
            wanted += self.vocabulary.find_attributes(Name(text), None, organisation)
        found = []
        for p in self.iterate_publications():
            event = self.vocabulary.find_number(p.event)
            own = [a for a in wanted if event is not None and a.event == event.name]
            has = tuple(a.name for a in own if p.features >> a.bit & 1)
            lacks = tuple(a.name for a in own if not p.features >> a.bit & 1)
            if has:
                found.append(Finding(p.publisher, has, lacks))
        return sorted(found, key=lambda finding: len(finding.lacks))
