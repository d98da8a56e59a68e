"""Subscriptions with temporal restrictors, and notifications with readings of earlier.

A notification may have *old* readings beside its new ones. The index sees the new ones only, which
is all that a subscription without restrictors may use; it has restricted subscriptions too, for
notifications in which everything they ask for is new. What is left, those that need an old reading,
is found here, by the protocol's own definition: such subscriptions are few, and so are such
notifications.
"""

from __future__ import annotations

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector


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
