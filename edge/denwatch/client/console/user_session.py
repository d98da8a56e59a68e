"""One subscriber at the console: connection, subscriptions, notifications, settings.

It uses the durable subscriber library with one store for each subscriber: a subscription made while
no node is in range waits there and is sent later, and a notification is shown once it is stored.
A session knows one subscriber, and nothing of any other.

The only file of the console that writes files. They are patients' data: no other user of the
machine may read them. Settings are replaced as a whole, so that a crash leaves the old ones.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from denwatch.client import subscriber
from denwatch.client.console import status_monitor
from denwatch.client.console.cards import CardBuilder, MeasuredHistory, list_places
from denwatch.client.console.feed import Feed, FeedSubscription, build_feed, explain
from denwatch.client.console.preview import find_name, strip_name
from denwatch.client.language.localisation import Locale
from denwatch.client.subscriber.display import RankedNotifications
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.messages import (
    Reply,
    SubscriberStoreError,
    derive_name,
    read_moment,
)
from denwatch.client.subscriber.servers import DENIED
from denwatch.client.vocabulary import Vocabulary

_COST = {"n": 1 << 14, "r": 8, "p": 1}


def close_folder(folder: Path) -> list[str]:
    """Make a console's folder and its files unreadable for others; return what was changed.

    SubscriberStoreError if the folder is another user's.
    """
    changed = []
    for path in (folder, *sorted(folder.iterdir())):
        found = path.lstat()
        if found.st_uid != os.getuid():
            raise SubscriberStoreError(f"{path} belongs to another user: name another folder")
        if found.st_mode & 0o077 and not path.is_symlink():
            path.chmod(found.st_mode & 0o700)
            changed.append(f"{path}: other users could read it (mode {found.st_mode & 0o777:o})")
    return changed


@dataclass
class UserSettings:
    """A subscriber's settings. `salt` and `hash` are those of the last key that a node accepted;
    `token` opens the console of a single user without a key."""

    muted: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    salt: str = ""
    hash: str = ""
    token: str = ""


def load_settings(path: Path) -> UserSettings:
    """Load the settings; a missing or unreadable file gives new ones."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = UserSettings(
            [str(name) for name in document.get("muted", [])],
            [str(name) for name in document.get("ended", [])],
            *(str(document.get(key, "")) for key in ("salt", "hash", "token")),
        )
        bytes.fromhex(found.salt)
    except (OSError, ValueError, AttributeError, TypeError):
        return UserSettings()
    return found


def save_settings(path: Path, settings: UserSettings) -> None:
    """Write the settings to disk."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(settings), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def remember_key(settings: UserSettings, key: str) -> None:
    """Store the hash of a key that a node accepted: it allows logins while no node answers."""
    if not check_key(settings, key):
        settings.salt = secrets.token_hex(16)
        settings.hash = _hash(key, settings.salt)


def check_key(settings: UserSettings, key: str) -> bool:
    """Return whether a key is the one that a node accepted."""
    if not settings.hash:
        return False
    return hmac.compare_digest(_hash(key, settings.salt), settings.hash)


def _hash(key: str, salt: str) -> str:
    return hashlib.scrypt(key.encode(), salt=bytes.fromhex(salt), dklen=32, **_COST).hex()


# The session ---------------------------------------------------------------------------------

_LIVE = ("pending", "active", "refused")
_KEPT_REASONS = 2_000
_KEPT_REQUESTS = 2_000
_PATIENCE = 10.0  # s for a node's reply


@dataclass(frozen=True)
class NodeServers:
    """The nodes' addresses, and how to connect to them. `tls` is the file of an authority."""

    servers: tuple[str, ...]
    tls: str | None = None
    is_insecure: bool = False

    def identify(self, name: str, key: str | None) -> Identity:
        """Return a subscriber as the nodes know it."""
        return Identity(name, key, self.tls, self.is_insecure)


@dataclass(frozen=True)
class Situation:
    """All that a page shows, at one moment."""

    now: int
    status: subscriber.ConnectionStatus
    subscriptions: tuple[subscriber.SubscriptionStatus, ...]
    feed: Feed
    notifications: tuple[subscriber.ReceivedNotification, ...]
    network: status_monitor.NetworkView
    announcements: tuple[status_monitor.Announcement, ...]
    uncounted: int  # devices that nodes count but do not name

    @property
    def places(self) -> list[dict[str, Any]]:
        """Where devices were last, in metres."""
        return list_places(self.notifications)

    @property
    def is_online(self) -> bool:
        """Whether a node serves us."""
        return self.status.state is subscriber.ConnectionState.ONLINE


class UserSession:
    """One subscriber, between `start` and `close`. Every method may be called from any thread."""

    def __init__(
        self,
        name: str,
        password: str | None,
        nodes: NodeServers,
        store: Path,
        vocabulary: Vocabulary,
    ) -> None:
        self.name = name
        self.password = password
        self.vocabulary = vocabulary
        self._path = store.with_suffix(".console.json")
        self.settings = load_settings(self._path)
        self._lock = threading.Lock()
        self._ranked = RankedNotifications()
        self._subscriber = subscriber.Subscriber(
            name,
            password,
            nodes.servers,
            store=store,
            tls=nodes.tls,
            is_insecure=nodes.is_insecure,
            on_notification=self._receive,
            on_status=self._follow_status,
        )
        self._monitor = status_monitor.StatusMonitor(
            nodes.identify(name, password), nodes.servers, self._subscriber.now
        )
        self.since = self._subscriber.now()  # ms: when the connection was made or lost
        self._is_online = False
        self.outage = subscriber.ConnectionStatus(subscriber.ConnectionState.IDLE, "", "")
        self.is_denied = False  # a node refuses the key, and none has accepted it since
        self._reasons: dict[tuple[str, str], dict[str, Any]] = {}
        self.claims: dict[str, dict[str, Any]] = {}  # by device or notification: who has it
        self.listed: tuple[Mapping[str, Any], ...] = ()  # all our subscriptions, as the node says
        self.found: dict[str, Any] = {}  # who can measure what was asked for, as the node says
        self._requests: dict[str, None] = {}  # what browsers asked for last, by its id
        self._subscriber.listen(self._hear)
        self.history = MeasuredHistory()
        self._cards = CardBuilder(vocabulary, self.history, self._explain)

    @property
    def now(self) -> Callable[[], int]:
        """The clock of everything that is shown: ms since 1970."""
        return self._subscriber.now

    def start(self) -> None:
        """Load what came earlier, and connect."""
        self._subscriber.start()
        self._add(self._subscriber.stored())
        self._monitor.start()

    def close(self) -> None:
        """Stop; subscriptions and notifications stay."""
        self._monitor.close()
        self._subscriber.close()

    def save(self, settings: UserSettings) -> None:
        """Change the settings."""
        with self._lock:
            self._change(settings)

    def is_repeated(self, request: str) -> bool:
        """Return whether a browser has sent this request before, in whichever tab."""
        with self._lock:
            if request in self._requests:
                return True
            self._requests[request] = None
            if len(self._requests) > _KEPT_REQUESTS:
                del self._requests[next(iter(self._requests))]
            return False

    # Receiving ------------------------------------------------------------------------------

    def _receive(
        self,
        notification: subscriber.ReceivedNotification,
        transaction: subscriber.HandlerTransaction,  # noqa: ARG002 - a handler's
    ) -> None:
        self._add([notification])

    def _add(self, notifications: Iterable[subscriber.ReceivedNotification]) -> None:
        found = list(notifications)
        for notification in found:
            self.history.add(notification)
        with self._lock:
            self._ranked.add(found, self._subscriber.now())

    def _follow_status(self, status: subscriber.ConnectionStatus) -> None:
        is_online = status.state is subscriber.ConnectionState.ONLINE
        self.is_denied = not is_online and (self.is_denied or status.reason == DENIED)
        if is_online or status.reason:  # an attempt has none: what the last one failed of stays
            self.outage = status._replace(reason="") if is_online else status
        if is_online != self._is_online:
            self._is_online = is_online
            self.since = self._subscriber.now()
            if is_online:
                self.refresh()

    # Who has what, and all subscriptions ------------------------------------------------------

    def refresh(self) -> None:
        """Ask the node who has what, and for all our subscriptions; on any thread but a loop's."""
        threading.Thread(target=self._refresh, name="denwatch-refresh", daemon=True).start()

    def _refresh(self) -> None:
        for request in ({"have": True}, {"list": True}):
            with suppress(subscriber.SubscriberError):
                self._subscriber.request(request).add_done_callback(self._take_answer)

    def ask(self, request: Mapping[str, Any]) -> str:
        """Send a request; return why it was refused, "" if it was not. Waits for the node."""
        answer = self._subscriber.request(request)
        try:
            reply = answer.result(_PATIENCE)
        except TimeoutError:
            answer.cancel()
            return "No node answers."
        self._hear(reply)
        self._refresh()
        return "" if reply.is_ok else str(reply.build_error())

    def _take_answer(self, answer: Future[Reply]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._hear(answer.result())

    def _hear(self, reply: Reply) -> None:
        """Learn from a node who has what, or which subscriptions we have."""
        listed = reply.fields.get("subscriptions")
        with self._lock:
            if reply.is_ok and isinstance(listed, list):
                self.listed = tuple(one for one in listed if isinstance(one, Mapping))
            if reply.is_ok and isinstance(reply.fields.get("found"), list):
                self.found = _read_found(reply.fields)
            had = reply.fields.get("have")
            if reply.is_ok and isinstance(had, list):
                self.claims = {}
            for one in (*(had if isinstance(had, list) else ()), reply.fields.get("had")):
                if isinstance(one, Mapping) and isinstance(one.get("subject"), str):
                    self._learn_claim(one["subject"], one)

    def _learn_claim(self, subject: str, claim: Mapping[str, Any]) -> None:
        self.claims.pop(subject, None)
        if claim.get("by"):
            since, silent = (read_moment(claim.get(key)) for key in ("since", "silent_until"))
            self.claims[subject] = {"by": str(claim["by"]), "since": since, "silent": silent}

    # Subscribing ---------------------------------------------------------------------------

    def subscribe(self, text: str, name: str | None = None) -> str:
        """Subscribe, now or when a node is in range; return the subscription's name."""
        name = name or find_name(text) or derive_name(text)
        self._subscriber.subscribe(text, name, wait=False)
        with self._lock:
            self._change(replace(self.settings, ended=_without(self.settings.ended, name)))
        return name

    def replace(self, text: str, old: str | None) -> str:
        """Subscribe in place of an older subscription, if there is one."""
        name = self.subscribe(text, find_name(text) or old)
        if old is not None and old != name:
            self.unsubscribe(old)
        return name

    def unsubscribe(self, name: str) -> None:
        """End a subscription, now or when a node is in range; its notifications go at once."""
        self._subscriber.unsubscribe(name, wait=False)
        with self._lock:
            muted = _without(self.settings.muted, name)
            ended = [*_without(self.settings.ended, name), name]
            self._change(replace(self.settings, muted=muted, ended=ended[-1_000:]))

    def mute(self, name: str, is_muted: bool) -> None:
        """Hide the notifications of a subscription, or show them again; nothing is lost."""
        with self._lock:
            muted = _without(self.settings.muted, name)
            self._change(replace(self.settings, muted=muted + [name] * is_muted))

    def _change(self, settings: UserSettings) -> None:
        self.settings = settings
        save_settings(self._path, settings)

    # Reading ---------------------------------------------------------------------------

    def read(self) -> Situation:
        """Return the situation. Waits for the store: do not call it on an event loop."""
        now = self._subscriber.now()
        status = self._subscriber.status
        live = [s for s in self._subscriber.subscriptions() if s.state in _LIVE]
        with self._lock:
            ranked = self._ranked.rank(now)
            settings = self.settings
        subscriptions = [FeedSubscription(s.name, s.text, s.name in settings.muted) for s in live]
        feed = build_feed(ranked, subscriptions, settings.ended)
        with self._monitor.lock:
            served_by = self._monitor.served.get(status.server, "")
            is_online = status.state is subscriber.ConnectionState.ONLINE
            network = self._monitor.memory.view(now, served_by if is_online else "")
            statuses = self._monitor.memory.list_statuses(now)
            lost = self._monitor.memory.list_lost(now)
        announcements, uncounted = status_monitor.read_announcements(statuses, lost)
        return Situation(
            now, status, tuple(live), feed, tuple(ranked), network, tuple(announcements), uncounted
        )

    def build_cards(self, situation: Situation, locale: Locale) -> list[dict[str, Any]]:
        """Return the cards of a situation, the worst first."""
        with self._lock:
            return self._cards.build(situation.feed.entries, locale, self.claims)

    def _explain(self, notification: subscriber.ReceivedNotification, text: str) -> dict[str, Any]:
        key = notification.key, text
        known = self._reasons.get(key)
        if known is None:
            if len(self._reasons) >= _KEPT_REASONS:
                self._reasons = {}
            known = explain(notification, text, self.vocabulary)
            self._reasons[key] = known
        return known


def _read_found(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return who can measure something, best first, as a page shows it."""

    def name(paths: object) -> list[str]:
        listed = paths if isinstance(paths, list) else []
        return [str(path).rpartition(".")[2].replace("_", " ") for path in listed]

    rows = [row for row in fields["found"] if isinstance(row, Mapping)]
    return {
        "wanted": name(fields.get("find")),
        "is_watched": fields.get("watch") is True,
        "rows": [
            {
                "name": str(row.get("name")),
                "is_person": row.get("person") is True,
                "nodes": [str(node) for node in row.get("nodes") or ()],
                "has": name(row.get("has")),
                "lacks": name(row.get("lacks")),
            }
            for row in rows
        ],
    }


def _without(names: list[str], name: str) -> list[str]:
    return [other for other in names if other != name]


def describe_subscription(
    subscription: subscriber.SubscriptionStatus, feed: Feed, is_muted: bool
) -> dict[str, Any]:
    """Return a subscription as the page shows it. Pure."""
    shown = FeedSubscription(subscription.name, subscription.text)
    return {
        "name": subscription.name,
        "label": shown.label,
        "text": subscription.text,
        "words": strip_name(subscription.text),
        "state": subscription.state,
        "error": str(subscription.error or ""),
        "top": shown.top,
        "is_muted": is_muted,
        "count": feed.counts.get(subscription.name, 0),
    }
