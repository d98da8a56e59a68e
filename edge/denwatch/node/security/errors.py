"""The one error of names, keys and notices, and a refusal as a value."""

from __future__ import annotations

from typing import NamedTuple


class SecurityError(ValueError):
    """A name, key, signature or key file that is not accepted: what, and where."""


class Refusal(NamedTuple):
    """Why somebody may not do something: a word to count by, and a sentence to tell them."""

    reason: str
    words: str

    def __str__(self) -> str:
        return self.words
