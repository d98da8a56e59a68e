"""`denwatch alert`: sends on what is delivered to somebody, by webhook and by Apprise.

An `AlertRoute` is one destination with what it is for and how much it takes. A destination that
begins with http or https gets the notification as JSON in a POST; any other address is Apprise's.
Only this file imports Apprise. What is beyond a route's alerts a minute is not sent one by one: the
next alert says how many there were. What somebody has silenced makes no alert. `AlertRoute.send`
raises `AlertError` if the destination did not take it, and nothing of the route has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_USAGE, CommandError
from denwatch.cli.profile import DEFAULT_NODE
from denwatch.cli.subscribe import add_link, read_password, read_seconds

if TYPE_CHECKING:
    from denwatch.client.subscriber import HandlerTransaction, ReceivedNotification

MINUTE = 60_000  # ms
_TIMEOUT = 15  # s
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
    except (OSError, urllib.error.URLError, ValueError) as error:
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

    forwarder = AlertForwarder(_read_routes(arguments))
    path = common.find_data_home() / f"{arguments.name}-alerts.db"
    store = arguments.store or path
    common.make_folder(path.parent)
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
    with subscriber:
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
    """Hands each notification to all routes that want it, until each has taken it."""

    def __init__(self, routes: list[AlertRoute]) -> None:
        self._routes = routes
        self._done: dict[str, set[int]] = {}  # by notification: routes that have it

    def forward(self, notification: ReceivedNotification, _: HandlerTransaction) -> None:
        """Send it on; an error makes the library hand it over again, for the routes left."""
        now = int(time.time() * 1000)
        done = self._done.setdefault(notification.key, set())
        for number, route in enumerate(self._routes):
            if number in done:
                continue
            try:
                if route.wants(notification, now):
                    route.send(notification, now)
            except AlertError as error:
                print(f"denwatch alert: {error}; it is sent again", file=sys.stderr, flush=True)
                raise
            done.add(number)
        del self._done[notification.key]


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
