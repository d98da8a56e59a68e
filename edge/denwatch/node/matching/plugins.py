"""What every matching engine looks like. `denwatch.node.core.languages` has those of a node, by
the id of the subscription language that they serve.

`S` is what a language calls a subscription and `N` what it calls a notification: vectors in the
fuzzy language, filters and typed values in the content language.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

S = TypeVar("S", contravariant=True)
N = TypeVar("N", contravariant=True)


class SubscriptionMatch(NamedTuple):
    """One subscription that a notification matches."""

    id: int
    possible: int  # 0..255; equal to `certain` for exact readings
    certain: int
    attribute: int  # the attribute whose predicate decided; -1 where the language has none


class Matcher(Protocol[S, N]):
    """A set of subscriptions that answers which of them a notification matches."""

    def add(self, id: int, subscription: S) -> None:
        """Add a subscription, or replace the one with this id."""

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""

    def __len__(self) -> int:
        """Return the number of subscriptions."""

    def match(self, notification: N, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches by rising id; `age` is the notification's, in seconds."""
