"""One person's desk: their link to a node, what they asked for, and the notes that came for them.

Through the durable subscriber library, one store for each person: what is asked for while no node
is in range waits there and is sent later, and a note is shown once it is on the disk. A desk knows
one name, and nothing of any other desk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from denwatch.client.console.network import NetworkView
from denwatch.client.console.preview import find_name, strip_name
from denwatch.client.console.rows import Feed, Wish, build_feed, explain, label
from denwatch.client.console.settings import Settings, load_settings, save_settings
from denwatch.client.console.sources import Announcement, read_announcements
from denwatch.client.console.watch import Watch
from denwatch.client.subscriber import (
    ConnectionState,
    ConnectionStatus,
    HandlerTransaction,
    ReceivedNotification,
    Subscriber,
    SubscriptionStatus,
)
from denwatch.client.subscriber.display import RankedNotifications
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.messages import derive_name
from denwatch.client.vocabulary import Vocabulary

_LIVE = ("pending", "active", "refused")
_KEPT_REASONS = 2_000


@dataclass(frozen=True)
class Place:
    """Where the nodes are, and how to speak with them. `tls` is a CA's file."""

    servers: tuple[str, ...]
    tls: str | None = None
    is_insecure: bool = False


@dataclass(frozen=True)
class Situation:
    """All that a page shows, at one moment."""

    now: int
    tell: ConnectionStatus
    subscriptions: tuple[SubscriptionStatus, ...]
    feed: Feed
    notes: tuple[ReceivedNotification, ...]
    network: NetworkView
    announcements: tuple[Announcement, ...]
    uncounted: int  # devices that no node names

    @property
    def is_online(self) -> bool:
        """Whether a node serves us."""
        return self.tell.state is ConnectionState.ONLINE


class Desk:
    """One person, between `start` and `close`. Every method may be called from any thread."""

    def __init__(
        self,
        name: str,
        password: str | None,
        place: Place,
        store: Path,
        vocabulary: Vocabulary,
        organisation: str | None = None,
    ) -> None:
        self.name = name
        self.password = password
        self.vocabulary = vocabulary
        self.organisation = organisation
        self._path = store.with_suffix(".console.json")
        self.settings = load_settings(self._path)
        self._lock = threading.Lock()
        self._board = RankedNotifications()
        self._subscriber = Subscriber(
            name,
            password,
            place.servers,
            store=store,
            tls=place.tls,
            is_insecure=place.is_insecure,
            on_notification=self._take,
            on_status=self._note_state,
        )
        identity = Identity(name, password, place.tls, place.is_insecure)
        self._watch = Watch(identity, place.servers, self._subscriber.now)
        self._since = self._subscriber.now()
        self._is_online = False
        self._reasons: dict[tuple[str, str], dict[str, Any]] = {}

    def start(self) -> None:
        """Take up what came earlier, and connect."""
        self._subscriber.start()
        self._add(self._subscriber.stored())
        self._watch.start()

    def close(self) -> None:
        """Stop; subscriptions and notes stay."""
        self._watch.close()
        self._subscriber.close()

    def save(self, settings: Settings) -> None:
        """Keep other settings."""
        with self._lock:
            self.settings = settings
            save_settings(self._path, settings)

    # What comes ------------------------------------------------------------------------------

    def _take(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002 - a handler's
        self._add([note])

    def _add(self, notes: Iterable[ReceivedNotification]) -> None:
        with self._lock:
            self._board.add(notes, self._subscriber.now())

    def _note_state(self, tell: ConnectionStatus) -> None:
        is_online = tell.state is ConnectionState.ONLINE
        if is_online != self._is_online:
            self._is_online = is_online
            self._since = self._subscriber.now()

    # What is asked ---------------------------------------------------------------------------

    def subscribe(self, text: str, name: str | None = None) -> str:
        """Ask, now or as soon as a node is there; return the subscription's name."""
        name = name or find_name(text) or derive_name(text)
        self._subscriber.subscribe(text, name, wait=False)
        with self._lock:
            ended = [other for other in self.settings.ended if other != name]
            self._change(replace(self.settings, ended=ended))
        return name

    def replace(self, text: str, old: str | None) -> str:
        """Ask for something in the place of an older subscription, if there is one."""
        name = self.subscribe(text, find_name(text) or old)
        if old is not None and old != name:
            self.unsubscribe(old)
        return name

    def unsubscribe(self, name: str) -> None:
        """End a subscription, now or as soon as a node is there; its notes go at once."""
        self._subscriber.unsubscribe(name, wait=False)
        with self._lock:
            muted = [other for other in self.settings.muted if other != name]
            ended = [other for other in self.settings.ended if other != name] + [name]
            self._change(replace(self.settings, muted=muted, ended=ended[-1_000:]))

    def mute(self, name: str, is_muted: bool) -> None:
        """Hold back what a subscription brings, or show it again; nothing is lost."""
        with self._lock:
            muted = [other for other in self.settings.muted if other != name]
            self._change(replace(self.settings, muted=muted + [name] * is_muted))

    def _change(self, settings: Settings) -> None:
        self.settings = settings
        save_settings(self._path, settings)

    # What is shown ---------------------------------------------------------------------------

    def read(self) -> Situation:
        """Return the situation. Waits for the store: not on an event loop."""
        now = self._subscriber.now()
        tell = self._subscriber.status
        live = [s for s in self._subscriber.subscriptions() if s.state in _LIVE]
        with self._lock:
            ranked = self._board.rank(now)
            settings = self.settings
        wishes = [Wish(s.name, s.text, s.name in settings.muted) for s in live]
        feed = build_feed(ranked, wishes, settings.ended, self._explain_note)
        with self._watch.lock:
            served_by = self._watch.served.get(tell.server, "")
            is_online = tell.state is ConnectionState.ONLINE
            network = self._watch.memory.view(now, served_by if is_online else "")
            statuses = self._watch.memory.list_statuses(now)
        announcements, uncounted = read_announcements(statuses)
        return Situation(
            now,
            tell,
            tuple(live),
            feed,
            tuple(ranked),
            network,
            tuple(announcements),
            uncounted,
        )

    @property
    def since(self) -> int:
        """When a node began to serve us, or ceased to, ms."""
        return self._since

    def _explain_note(self, note: ReceivedNotification, text: str) -> dict[str, Any]:
        key = note.key, text
        known = self._reasons.get(key)
        if known is None:
            if len(self._reasons) >= _KEPT_REASONS:
                self._reasons = {}
            known = explain(note, text, self.vocabulary, self.organisation)
            self._reasons[key] = known
        return known


def describe_subscription(
    subscription: SubscriptionStatus, feed: Feed, is_muted: bool
) -> dict[str, Any]:
    """Return a subscription as the page shows it. Pure."""
    wish = Wish(subscription.name, subscription.text)
    error = subscription.error
    return {
        "name": subscription.name,
        "label": label(subscription.name, subscription.text),
        "text": subscription.text,
        "words": strip_name(subscription.text),
        "state": subscription.state,
        "error": "" if error is None else str(error),
        "top": wish.top,
        "is_muted": is_muted,
        "count": feed.counts.get(subscription.name, 0),
    }
