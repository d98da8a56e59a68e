"""Who must get what: all subscriptions times all notifications, in plain Python.

Uses `denwatch.protocol.matching`, the definition of a match, and nothing of the node.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from denwatch.protocol import subscription
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector


@dataclass
class OracleSubscription:
    """A subscription: live, or ended with its matches still to be delivered."""

    id: int
    owner: str
    vector: bytes
    created: int
    end: int
    score: float
    is_live: bool = True
    is_gone: bool = False  # nothing is delivered for it any more


@dataclass
class News:
    """A notification."""

    id: int
    vector: NotificationVector
    at: int
    expires: int
    is_held: bool = True
    hits: dict[int, int] = field(default_factory=dict)  # asked: degree


class Oracle:
    """Keeps what each subscriber is still to get."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, OracleSubscription] = {}
        self.news: dict[int, News] = {}
        self.done: dict[str, set[int]] = {}

    def subscribe(self, asked: OracleSubscription) -> None:
        """A subscription; it looks at everything that is held, too."""
        self.subscriptions[asked.id] = asked
        for news in self.news.values():
            if news.is_held:
                self._try(asked, news)

    def unsubscribe(self, id: int, *, is_kept: bool) -> None:
        """The end of one; kept ones still have their matches delivered."""
        self.subscriptions[id].is_live = False
        self.subscriptions[id].is_gone = not is_kept

    def publish(self, news: News) -> None:
        """A notification comes."""
        self.news[news.id] = news
        for asked in self.subscriptions.values():
            if asked.is_live:
                self._try(asked, news)

    def _try(self, asked: OracleSubscription, news: News) -> None:
        if not asked.created <= news.at or (asked.end and news.at >= asked.end):
            return
        found = match(subscription.decode(asked.vector), news.vector, 0)
        if found is not None and found.matched:
            news.hits[asked.id] = found.possible

    def expire(self, now: int) -> None:
        """Time goes on, by whole seconds as the node looks."""
        for news in self.news.values():
            if news.expires // 1000 < now // 1000:
                news.is_held = False
        for asked in self.subscriptions.values():
            if asked.end and asked.end // 1000 < now // 1000:
                asked.is_live = False

    def deliver(self, owner: str, id: int) -> None:
        """A subscriber has a notification."""
        self.done.setdefault(owner, set()).add(id)

    def find_rank(
        self, owner: str, id: int, known: Container[int]
    ) -> tuple[float, int, int, int] | None:
        """Return the place of a notification for a subscriber, smaller is better; None: not his.

        `known`: the subscriptions that the node has matched it with so far; it catches up in ticks.
        """
        news = self.news[id]
        degrees = [
            (self.subscriptions[asked].score * degree / 255, degree)
            for asked, degree in news.hits.items()
            if self.subscriptions[asked].owner == owner
            and not self.subscriptions[asked].is_gone
            and asked in known
        ]
        if not degrees:
            return None
        value = max(worth for worth, _ in degrees)
        degree = max(degree for worth, degree in degrees if worth == value)
        return -value, -degree, -news.at, id

    def list_due(self, owner: str, now: int) -> set[int]:
        """Return what a subscriber is still to get."""
        return {
            id
            for id, news in self.news.items()
            if news.is_held
            and news.expires > now
            and self.find_rank(owner, id, self.subscriptions) is not None
            and id not in self.done.get(owner, ())
        }
