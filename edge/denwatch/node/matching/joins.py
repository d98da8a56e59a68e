"""Matchers of what no single new reading decides: restricted subscriptions, and parts of stories.

RESTRICTORS. A notification may have *old* readings beside its new ones. The index sees the new ones
only, which is all that a subscription without restrictors may use; it has restricted subscriptions
too, for notifications in which everything they ask for is new. What is left, those that need an old
reading, is found here, by the protocol's own definition: such subscriptions are few, and so are
such notifications.

STORIES. Which parts of which stories does a reading fit? No reading fits a whole story, so `match`
finds nothing; `match_parts` is what a node asks. A part has the number of its story times
`MAX_PARTS` plus its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from denwatch.client.compiler.stories import MAX_PARTS, Story
from denwatch.node.matching.matcher import FuzzyMatcher
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

PartMatch = tuple[int, int, int, int]  # number of the story, possible, certain, part


class JoinMatcher:
    """The restricted ones among subscriptions; a `Matcher` of what needs an old reading."""

    def __init__(self) -> None:
        self._by_event: dict[int, dict[int, SubscriptionVector]] = {}
        self._events: dict[int, int] = {}  # by id

    def __len__(self) -> int:
        return len(self._events)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id; one without restrictors is none."""
        self.discard(id)
        if subscription.restrictors:
            self._events[id] = subscription.event
            self._by_event.setdefault(subscription.event, {})[id] = subscription

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        del self._by_event[self._events.pop(id)][id]

    def discard(self, id: int) -> None:
        """Remove a subscription, if it is here."""
        if id in self._events:
            self.remove(id)

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches that use an old reading, by rising id."""
        found = []
        if notification.olds:
            for id, s in sorted(self._by_event.get(notification.event, {}).items()):
                hit = match(s, notification, age) if s.features & notification.olds else None
                if hit is not None and hit.matched:
                    attribute = s.predicates[hit.predicate].attribute
                    found.append(SubscriptionMatch(id, hit.possible, hit.certain, attribute))
        return found


class StoryParts:
    """The parts of stories, by the numbers of the stories."""

    def __init__(self) -> None:
        self._matcher = FuzzyMatcher()
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, id: int, subscription: Story) -> None:
        """Add a story, or replace the one with this number."""
        if id in self._sizes:
            self.remove(id)
        self._sizes[id] = len(subscription.parts)
        for part, vector in enumerate(subscription.vectors):
            self._matcher.add(id * MAX_PARTS + part, vector)

    def remove(self, id: int) -> None:
        """Remove a story; KeyError if there is none with this number."""
        for part in range(self._sizes.pop(id)):
            self._matcher.remove(id * MAX_PARTS + part)

    def match(self, notification: Any, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002
        """Return nothing: one reading is no story."""
        return []

    def match_parts(self, vectors: Sequence[NotificationVector]) -> list[list[PartMatch]]:
        """Return, for each reading, the parts that it fits."""
        if not self._sizes:
            return [[] for _ in vectors]
        return [
            [
                (number // MAX_PARTS, possible, certain, number % MAX_PARTS)
                for number, possible, certain, _ in sorted(found)
            ]
            for found in self._matcher.match_many(vectors, [0] * len(vectors))
        ]

    def go_on(self) -> None:
        """Move some parts to the compiled index, where there are many."""
        self._matcher.go_on()
