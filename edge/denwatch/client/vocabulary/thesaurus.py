"""The cross-vocabulary thesaurus: what each organisation calls the things of a vocabulary.

A target is a path: "patient", "patient.heart_rate", "patient.heart_rate.high", the last for terms
and symbols. Two organisations may use one word for different things; then the caller's
organisation decides, or the event, or it is an error that names both.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property


def fold_name(text: str) -> str:
    """Return a name as it is compared: case, blanks and hyphens make no difference."""
    folded = unicodedata.normalize("NFC", text).casefold().strip()
    return "_".join(folded.replace("-", " ").replace("_", " ").split())


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
