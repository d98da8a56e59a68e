"""What vocabularies mean, as the logs tell it: which agree, and how values are called.

The node's own rule, with the documents that any node has logged. A vocabulary whose document
nobody logged is held against nothing, as on a node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import EventType, build_vocabulary
from denwatch.node.core.vocabularies import Vocabularies, shorten_hash


class Meanings:
    """The vocabularies of a site, by their eight bytes."""

    def __init__(self, documents: Mapping[bytes, str | None]) -> None:
        self.documents: dict[bytes, str] = {}
        self.errors: dict[bytes, str] = {}
        self._known: Vocabularies | None = None
        for hash_, document in sorted(documents.items()):
            if document is None:
                continue
            try:
                vocabulary = build_vocabulary(json.loads(document))
                if shorten_hash(vocabulary) != hash_:
                    raise ValueError("the document is not that of the hash")
            except (LanguageError, ValueError, AttributeError, TypeError) as error:
                self.errors[hash_] = str(error)
                continue
            self.documents[hash_] = document
            if self._known is None:
                self._known = Vocabularies(vocabulary)
            self._known.add(vocabulary)

    @property
    def known(self) -> list[bytes]:
        """The vocabularies whose documents are known."""
        return sorted(self.documents)

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies give an event's codes the same meaning."""
        return self._known is None or self._known.agree(one, other, event, features)

    def find_event(self, vocabulary: bytes, number: int) -> EventType | None:
        """Return an event of a vocabulary; None if that is not known."""
        return None if self._known is None else self._known.find_event(vocabulary, number)
