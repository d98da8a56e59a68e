"""`denwatch subscribe`: subscribes in words, and shows what matches, ranked, while it is valid."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TextIO

from denwatch.cli.common import build_parser, point_at, read_file, read_input
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.subscriber import ConnectionStatus, ReceivedNotification, Subscriber
    from rich.table import Table

_STYLES = {"certain": "bold green", "possible": "yellow"}
_DESCRIPTION = """
Sends a subscription to a node, and shows what matches it, best first: whether the match is certain
or possible, the reason, the age, and how long the notification stays valid. On a terminal this is a
live table; otherwise each notification is a line. The subscription stays when the command ends: the
nodes store what matches meanwhile, and the next run shows it. --unsubscribe ends the subscription.

With several --node the best of those in range is used, and another one when it is lost."""
_EXAMPLES = """
denwatch subscribe 'patient_temperature is very high' --as medic7 --password-file medic7.key
denwatch subscribe 'pain is severe' --as medic7 --node mqtts://tent --node mqtts://truck
denwatch subscribe 'heart_rate above 120' --as medic7 --json --count 10
denwatch subscribe --as medic7                                    (all subscriptions so far)
denwatch subscribe 'pain is severe' --as medic7 --unsubscribe"""


def run(argv: list[str]) -> int:
    """Subscribe, and show what matches until it is enough."""
    arguments = _parse(argv)
    try:
        from denwatch.client.subscriber import SubscriberError
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]'"
        raise CommandError(message, MISSING) from None
    try:
        return _run(arguments)
    except SubscriberError as error:
        raise CommandError(str(error)) from None


def _run(arguments: argparse.Namespace) -> int:
    from denwatch.client.errors import LanguageError
    from denwatch.client.subscriber import Subscriber, UnconfirmedError
    from denwatch.client.subscriber.session import find_name

    text = _read_words(arguments)
    status = _StatusPrinter(sys.stderr)
    subscriber = Subscriber(
        arguments.name,
        read_password(arguments),
        arguments.node or ["mqtt://127.0.0.1:1883"],
        store=_find_store(arguments),
        tls=arguments.ca,
        is_insecure=arguments.insecure,
        on_status=status.report,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    with subscriber:
        name = None
        try:
            if arguments.unsubscribe:
                names = _choose_ended(arguments, text, subscriber)
                for name in names:
                    subscriber.unsubscribe(name, arguments.timeout)
                    print(f'"{name}" has ended', file=sys.stderr)
                return 0
            if text is not None:
                name, _ = find_name(text, arguments.subscription_name)
                found = subscriber.subscribe(text, name, arguments.timeout)
                print(f'"{found.name}" is active ({found.id})', file=sys.stderr)
            elif not subscriber.subscriptions():
                raise CommandError("there is no subscription yet: give one in words", WRONG_USAGE)
        except UnconfirmedError as error:
            if arguments.is_short or arguments.unsubscribe:
                raise CommandError(f"{error}", MISSING) from None
            print(f"denwatch subscribe: {error}", file=sys.stderr)
        except LanguageError as error:
            if arguments.json:
                print(json.dumps(error.to_reply(), ensure_ascii=False))
            else:
                print(point_at(error, text or "", ""), file=sys.stderr)
            return 1
        return _show(arguments, subscriber, status, name)


def _show(
    arguments: argparse.Namespace, subscriber: Subscriber, status: _StatusPrinter, name: str | None
) -> int:
    wants_table = sys.stdout.isatty() and not arguments.json and not arguments.plain
    with suppress(KeyboardInterrupt):
        if wants_table:
            _show_table(arguments, subscriber, status, name)
        else:

            def print_one(notification: ReceivedNotification) -> None:
                print(_format_line(notification, subscriber.now(), arguments.json), flush=True)

            _take_notifications(arguments, subscriber, print_one)
    if not arguments.json:
        ending = f"--name {name} --unsubscribe" if name else "--name NAME --unsubscribe"
        print(
            f"the subscription stays; to end it: denwatch subscribe --as {arguments.name} {ending}",
            file=sys.stderr,
        )
    return 0


def _take_notifications(
    arguments: argparse.Namespace,
    subscriber: Subscriber,
    show: Callable[[ReceivedNotification], None],
) -> None:
    """Show notifications until there are enough or the time is over; mark each once shown."""
    until = math.inf if arguments.seconds is None else time.monotonic() + arguments.seconds
    left = 1 if arguments.once else arguments.count or math.inf
    while left > 0:
        # On some systems Ctrl-C does not interrupt a wait without end.
        if subscriber.wait(max(0.0, min(1.0, until - time.monotonic()))):
            with subscriber.take() as taken:
                if taken is not None:
                    show(taken[0])
                    left -= 1
        if time.monotonic() >= until:
            return


def _show_table(
    arguments: argparse.Namespace, subscriber: Subscriber, status: _StatusPrinter, name: str | None
) -> None:
    from denwatch.client.subscriber.display import RankedNotifications

    now = subscriber.now
    ranked = RankedNotifications()
    ranked.add(subscriber.stored(), now())
    stop = threading.Event()
    try:
        table = LiveTable(f"{arguments.name}: {name or 'all'}")
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]', or --plain"
        raise CommandError(message, MISSING) from None
    with table:
        status.table = table
        table.show_status(subscriber.status)

        def repaint() -> None:  # ages grow, and what has expired disappears
            while not stop.wait(0.5):
                table.show(ranked.rank(now()), now())

        def show(notification: ReceivedNotification) -> None:
            ranked.add([notification], now())
            table.count += 1

        painter = threading.Thread(target=repaint, daemon=True)
        painter.start()
        try:
            _take_notifications(arguments, subscriber, show)
        finally:
            stop.set()
            painter.join()
            status.table = None
            table.show(ranked.rank(now()), now())


class LiveTable:
    """A table on the terminal that is repainted, with the connection's status below it.

    rich is imported only when a table is made: it is an optional dependency.
    """

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self.count = 0
        self._title = title
        self._console = Console()
        self._status = Text("")
        self._lock = threading.Lock()
        self._last: tuple[list[ReceivedNotification], int] = ([], 0)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show_status(self, status: ConnectionStatus) -> None:
        """Show what the connection is doing."""
        from denwatch.client.subscriber import ConnectionState
        from rich.text import Text

        style = "green" if status.state is ConnectionState.ONLINE else "red"
        words = " ".join(filter(None, (status.state.value, status.server, status.reason)))
        with self._lock:
            self._status = Text(words, style=style)
        self.show(*self._last)

    def show(self, notifications: list[ReceivedNotification], now: int) -> None:
        """Paint the notifications, best first, as many as the terminal has lines for."""
        with self._lock:
            self._last = notifications, now
            self._live.update(self._build(notifications, now), refresh=True)

    def _build(self, notifications: list[ReceivedNotification], now: int) -> Table:
        from denwatch.client.subscriber.display import describe_notification
        from rich.table import Table
        from rich.text import Text

        room = max(1, self._console.height - 7)
        table = Table(title=Text(self._title, style="bold"), expand=True)
        caption = Text.assemble(
            self._status, f"  {self.count} received, {len(notifications)} valid"
        )
        if len(notifications) > room:
            caption.append(f", best {room} shown")
        table.caption = caption
        table.add_column("", no_wrap=True)
        table.add_column("degree", justify="right", no_wrap=True)
        # One line a notification, or the table would not fit the terminal.
        table.add_column("event", no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column("values", no_wrap=True, overflow="ellipsis", ratio=4)
        table.add_column("limited by", no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column("age", justify="right", no_wrap=True)
        table.add_column("valid for", justify="right", no_wrap=True)
        for notification in notifications[:room]:
            row = describe_notification(notification, now)
            # Text, not markup: what a sensor sends is never interpreted as markup.
            cells = (row.degree, row.event, row.values, row.limit, row.age, row.left)
            table.add_row(Text(row.certainty, style=_STYLES[row.certainty]), *map(Text, cells))
        return table


class _StatusPrinter:
    """Reports the connection's status: in the table while there is one, otherwise in lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""
        self.table: LiveTable | None = None

    def report(self, status: ConnectionStatus) -> None:
        """Report a change of the connection's status."""
        if self.table is not None:
            self.table.show_status(status)
            return
        from denwatch.client.subscriber import ConnectionState

        if status.state is ConnectionState.ONLINE:
            words = f"connected to {status.server}"
            words += f"; {status.reason}" if status.reason else ""
        elif status.reason:
            words = status.reason
            words = f"{status.server}: {words}; trying again" if status.server else words
        else:
            return
        if words != self._last:
            self._last = words
            print(words, file=self._stream, flush=True)


def _format_line(notification: ReceivedNotification, now: int, is_json: bool) -> str:
    if is_json:
        return json.dumps(dict(notification.fields), ensure_ascii=False)
    from denwatch.client.subscriber.display import describe_notification

    row = describe_notification(notification, now)
    parts = [f"{row.certainty} {row.degree}", row.event, row.values, row.why]
    if row.age:
        parts.append(f"{row.age} ago")
    if row.left:
        parts.append(f"valid for {row.left}")
    return " | ".join(part for part in parts if part)


# Arguments ----------------------------------------------------------------------------------


def _read_words(arguments: argparse.Namespace) -> str | None:
    if arguments.subscription is None and arguments.file is None:
        return None
    return read_input(arguments.subscription, arguments.file)[0]


def _choose_ended(
    arguments: argparse.Namespace, text: str | None, subscriber: Subscriber
) -> list[str]:
    from denwatch.client.subscriber.session import find_name

    if arguments.subscription_name:
        return [arguments.subscription_name]
    if text is not None:
        return [find_name(text, None)[0]]
    names = [found.name for found in subscriber.subscriptions()]
    if len(names) == 1:
        return names
    known = ", ".join(names) or "none"
    raise CommandError(f"which one? give --name NAME or its words; there is: {known}", WRONG_USAGE)


def read_password(arguments: argparse.Namespace) -> str | None:
    """Return the password from the file, else from DENWATCH_PASSWORD, else None."""
    if arguments.password_file:
        path = Path(arguments.password_file)
        password = read_file(path).strip()
        if path.stat().st_mode & 0o077:
            print(f"{path}: other users can read this password: chmod 600 {path}", file=sys.stderr)
        return password
    return os.environ.get("DENWATCH_PASSWORD") or None


def _find_store(arguments: argparse.Namespace) -> Path:
    if arguments.store:
        path = Path(arguments.store)
    else:
        home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        path = Path(home) / "denwatch" / f"{arguments.name}.db"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{path.parent}: {error.strerror}", MISSING) from None
    return path


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's interface
    """End like Ctrl-C: the current notification is marked, and the store closed."""
    raise KeyboardInterrupt


def add_link(parser: argparse.ArgumentParser) -> None:
    """Add the options for the nodes' addresses and for logging in."""
    parser.add_argument(
        "--node",
        action="append",
        metavar="URL",
        help="mqtt://HOST[:PORT] or mqtts://…; may be repeated (mqtt://127.0.0.1:1883)",
    )
    parser.add_argument(
        "--password-file", metavar="FILE", help="file with the password (or DENWATCH_PASSWORD)"
    )
    parser.add_argument("--ca", metavar="FILE", help="authority to trust (the system's)")
    parser.add_argument(
        "--insecure", action="store_true", help="allow the password in the clear to another machine"
    )


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds')
    return seconds


def _read_count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f'"{text}" is not a count from 1')
    return int(text)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Subscribe in words, and see what matches."
    parser = build_parser("subscribe", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("subscription", nargs="?", help="words, XML or JSON; - reads stdin")
    parser.add_argument("-f", "--file", help="read the subscription from a file")
    parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="who you are")
    add_link(parser)
    parser.add_argument(
        "--name", dest="subscription_name", metavar="NAME", help="name of the subscription"
    )
    parser.add_argument(
        "--store", metavar="FILE", help="file for notifications (~/.local/share/denwatch/NAME.db)"
    )
    parser.add_argument("--unsubscribe", action="store_true", help="end the subscription, and exit")
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--once", action="store_true", help="exit after one notification")
    ending.add_argument("--count", type=_read_count, metavar="N", help="exit after N notifications")
    parser.add_argument(
        "--for", dest="seconds", type=_read_seconds, metavar="SECONDS", help="exit after this time"
    )
    parser.add_argument(
        "--timeout",
        type=_read_seconds,
        default=15.0,
        metavar="SECONDS",
        help="how long to wait for the node's answer (15)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object a line, errors too")
    output.add_argument("--plain", action="store_true", help="print lines, also on a terminal")
    arguments = parser.parse_args(argv)
    arguments.is_short = arguments.once or arguments.count or arguments.seconds is not None
    return arguments
