"""`denwatch alert`: sends on what is delivered to somebody, by webhook and by Apprise.

An `AlertRoute` is one destination with what it is for and how much it takes. A destination that
begins with http or https gets the notification as JSON in a POST; any other address is Apprise's.
Only this file imports Apprise. What is beyond a route's alerts a minute is not sent one by one: the
next alert says how many there were. What somebody has silenced makes no alert. `AlertRoute.send`
raises `AlertError` if the destination did not take it, and nothing of the route has changed.

`AlertForwarder` keeps a queue for each route, in a table of its own in the subscriber's store: it
is filled in the transaction that marks the notification as handled, and emptied by a thread for
each route. So a destination that is dead, or slow, delays nobody else's alerts, and what it did not
take is there after a restart.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
import urllib.request
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_USAGE, CommandError
from denwatch.cli.profile import DEFAULT_NODE
from denwatch.cli.subscribe import add_link, read_password, read_seconds

if TYPE_CHECKING:
    import sqlite3

    from denwatch.client.subscriber import HandlerTransaction, ReceivedNotification

MINUTE = 60_000  # ms
_TIMEOUT = 15  # s
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # s after a failure
_STEP = 0.2  # s between two looks at an empty queue
_TABLE = """
CREATE TABLE IF NOT EXISTS alerts (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, route TEXT NOT NULL, payload TEXT NOT NULL
)"""
_DESCRIPTION = """
Runs beside a node, and sends on what is delivered under a name: as JSON to a webhook (an address
that begins with http), or through Apprise (denwatch[alerts]) to ntfy, mail, Matrix and the rest.
Give it a name of its own, let it subscribe or let others escalate to it: what it has received, an
app under the same name does not get again. An alert that a destination does not take is sent again
until it does; beyond --per-minute they are counted, and the next one says how many. What somebody
has and silenced (denwatch have) makes no alert."""
_EXAMPLES = """
denwatch alert --as siren --password-file siren.key --to https://example.org/hook \\
    --subscribe 'heart_rate is high, named pulse'
denwatch alert --as siren --password-file siren.key --to ntfy://ntfy.sh/our-tent --per-minute 2
denwatch alert --as siren --password-file siren.key --to 'pulse=ntfy://ntfy.sh/our-tent'"""


class AlertError(Exception):
    """A destination did not take an alert."""


@dataclass
class AlertRoute:
    """One destination: for one subscription, or for all; so many alerts a minute."""

    url: str
    subscription: str | None = None
    per_minute: int = 6
    sent: list[int] = field(default_factory=list)  # when, ms
    missed: int = 0  # since the last one

    @property
    def name(self) -> str:
        """What it is called in the store: the destination, and what it is for."""
        return f"{self.subscription or ''}={self.url}"

    def wants(self, notification: ReceivedNotification, now: int) -> bool:
        """Return whether a notification is to go there."""
        if self.subscription is not None and self.subscription not in notification.subscriptions:
            return False
        return not is_silent(notification, now)

    def send(self, notification: ReceivedNotification, now: int) -> bool:
        """Send it, or count it if that would be too many; return whether it was sent."""
        recent = [time for time in self.sent if time > now - MINUTE]
        if len(recent) >= self.per_minute:
            self.missed += 1
            return False
        if self.url.startswith(("http://", "https://")):
            post_json(self.url, {**notification.fields, "more": self.missed})
        else:
            more = f"\n{self.missed} more were not sent one by one" if self.missed else ""
            send_apprise(self.url, _title(notification), _describe(notification, now) + more)
        self.sent, self.missed = [*recent, now], 0
        return True


def is_silent(notification: ReceivedNotification, now: int) -> bool:
    """Return whether somebody has it and wants no sound for it."""
    from denwatch.client.subscriber.messages import read_moment

    had = notification.fields.get("had")
    until = read_moment(had.get("silent_until")) if isinstance(had, dict) else None
    return until is not None and until > now


def _describe(notification: ReceivedNotification, now: int) -> str:
    from denwatch.client.subscriber.display import describe_notification

    row = describe_notification(notification, now)
    parts = [row.event, row.values, row.why, f"{row.certainty} {row.degree}"]
    return " | ".join(part for part in parts if part)


def _title(notification: ReceivedNotification) -> str:
    name = notification.subscriptions[0] if notification.subscriptions else notification.event
    escalated = notification.fields.get("escalated")
    return f"{name}: nobody has it" if escalated else name


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a POST would become a GET without the alert, and count as sent."""

    def redirect_request(self, *_: object) -> None:
        return None


def post_json(url: str, body: dict[str, Any]) -> None:
    """Post a JSON object; AlertError if it was not taken."""
    request = urllib.request.Request(
        url,
        json.dumps(body, ensure_ascii=False).encode(),
        {"Content-Type": "application/json", "User-Agent": "denwatch"},
        method="POST",
    )
    try:
        with urllib.request.build_opener(_StayHere).open(request, timeout=_TIMEOUT):
            pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AlertError(f"{url}: {error}") from None


def send_apprise(url: str, title: str, text: str) -> None:
    """Send a message through Apprise; AlertError if it was not taken."""
    import apprise

    sender = apprise.Apprise()
    if not sender.add(url):
        raise AlertError(f"{url.partition(':')[0]}: Apprise does not know such an address")
    if not sender.notify(title=title, body=text):
        raise AlertError(f"{url.partition(':')[0]}: the message was not taken")


def run(argv: list[str]) -> int:
    """Send alerts until it is stopped."""
    arguments = _parse(argv)
    from denwatch.client.subscriber import SubscriberError

    with common.refuse(SubscriberError):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from denwatch.client.subscriber import Subscriber

    routes = _read_routes(arguments)
    path = common.find_data_home() / f"{arguments.name}-alerts.db"
    store = Path(arguments.store or path)
    common.make_folder(path.parent)
    forwarder = AlertForwarder(routes, store)
    subscriber = Subscriber(
        arguments.name,
        read_password(arguments),
        arguments.node or [DEFAULT_NODE],
        store=store,
        tls=arguments.ca,
        is_insecure=arguments.insecure,
        on_notification=forwarder.forward,
    )
    common.stop_at_sigterm()
    until = time.monotonic() + arguments.seconds if arguments.seconds else None
    with subscriber, closing(forwarder):
        forwarder.start()
        for text in arguments.subscribe or ():
            found = subscriber.subscribe(text, _find_written(text), arguments.timeout)
            print(f'"{found.name}" is active ({found.id})', file=sys.stderr)
        while until is None or time.monotonic() < until:
            time.sleep(0.1)
    return 0


def _find_written(text: str) -> str | None:
    """Return the name that a subscription in words has; the node says what is wrong with it."""
    from denwatch.client.errors import LanguageError
    from denwatch.client.language import parse

    try:
        name = parse(text).name
    except LanguageError:
        return None
    return None if name is None else name.text


class AlertForwarder:
    """A queue for each route, from `start` to `close`; `forward` fills them."""

    def __init__(self, routes: list[AlertRoute], store: Path) -> None:
        """`store` is the file of the subscriber that calls `forward`."""
        self._routes = routes
        self._store = store
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(route,), daemon=True) for route in routes
        ]
        self._connection: sqlite3.Connection | None = None

    def start(self) -> None:
        """Send what waits, and what will; the store must exist."""
        from denwatch.client.subscriber import store

        self._connection = store.connect(self._store, 10_000)
        self._connection.execute(_TABLE)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; what waits stays in the store."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self._connection is not None:
            self._connection.close()

    def forward(self, notification: ReceivedNotification, transaction: HandlerTransaction) -> None:
        """Queue a notification for all routes that want it."""
        now = _read_clock()
        payload = json.dumps(dict(notification.fields), ensure_ascii=False)
        wanting = [route.name for route in self._routes if route.wants(notification, now)]
        transaction.execute(_TABLE)
        transaction.executemany(
            "INSERT INTO alerts (route, payload) VALUES (?, ?)",
            [(name, payload) for name in wanting],
        )

    def _follow(self, route: AlertRoute) -> None:
        """Empty the queue of a route, in order, each alert until it is taken."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                found = self._find(route)
                if found is None:
                    self._stopping.wait(_STEP)
                    continue
                sequence, notification = found
                now = _read_clock()
                if notification is not None and route.wants(notification, now):
                    route.send(notification, now)
                self._execute("DELETE FROM alerts WHERE sequence = ?", sequence)
                pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - a full disk, a plug-in's: it goes on
                print(f"denwatch alert: {error}; it is sent again", file=sys.stderr, flush=True)
                self._stopping.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)

    def _find(self, route: AlertRoute) -> tuple[int, ReceivedNotification | None] | None:
        """Return the oldest alert of a route; None if none waits."""
        from denwatch.client.subscriber.messages import read_notification

        query = "SELECT sequence, payload FROM alerts WHERE route = ? ORDER BY sequence LIMIT 1"
        rows = self._execute(query, route.name)
        return None if not rows else (rows[0][0], read_notification(rows[0][1].encode()))

    def _execute(self, sql: str, *parameters: object) -> list[Any]:
        with self._lock:
            assert self._connection is not None, "it is started"
            return self._connection.execute(sql, parameters).fetchall()


def _read_clock() -> int:
    return int(time.time() * 1000)


def _read_routes(arguments: argparse.Namespace) -> list[AlertRoute]:
    routes = []
    for text in arguments.to:
        before, is_named, after = text.partition("=")
        is_named = is_named if "://" not in before else ""
        url = after if is_named else text
        if "://" not in url:
            raise CommandError(f'"{text}" is not [SUBSCRIPTION=]ADDRESS', WRONG_USAGE)
        if not url.startswith(("http://", "https://")):
            with common.need_extra("alerts"):
                import apprise  # noqa: F401
        routes.append(AlertRoute(url, before if is_named else None, arguments.per_minute))
    return routes


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Send on what is delivered, by webhook, ntfy, mail and the like."
    parser = common.build_parser("alert", summary, _DESCRIPTION, _EXAMPLES)
    common.add_option(parser, "--as NAME", "whose alerts they are", dest="name", required=True)
    add_link(parser)
    words = "where to: [SUBSCRIPTION=]ADDRESS; may be repeated"
    common.add_option(parser, "--to ADDRESS ...", words, required=True)
    common.add_option(parser, "--subscribe WORDS ...", "subscribe first; may be repeated")
    common.add_option(
        parser, "--per-minute N", "alerts to each address at most (6)", type=int, default=6
    )
    common.add_option(parser, "--store FILE", "where what is not sent yet is kept")
    common.add_option(
        parser, "--for SECONDS", "stop after so long", dest="seconds", type=read_seconds
    )
    common.add_option(
        parser, "--timeout SECONDS", "how long to wait (15)", type=read_seconds, default=15.0
    )
    arguments = parser.parse_args(argv)
    if arguments.per_minute < 1:
        parser.error("--per-minute is 1 or more")
    return arguments
