"""`denwatch subscribe`: subscribes in words, and shows what matches, ranked, while it is valid."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_INPUT, WRONG_USAGE, CommandError
from denwatch.cli.profile import DEFAULT_NODE, add_profile, fill_login, refuse_nameless

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
denwatch subscribe 'patient_temperature is very high'        (after denwatch login medic7)
denwatch subscribe 'heart_rate above 120' --json --count 10
denwatch subscribe                                           (all subscriptions so far)
denwatch subscribe 'my top 3 of the last 10 minutes'         (of all subscriptions)
denwatch subscribe 'pain is severe' --unsubscribe
denwatch subscribe 'pain is severe' --as medic8 --node mqtts://tent --node mqtts://truck"""


def run(argv: list[str]) -> int:
    """Subscribe, and show what matches until it is enough."""
    from denwatch.client.subscriber import SubscriberError

    arguments = _parse(argv)
    refuse_nameless(arguments)
    with common.refuse(SubscriberError):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from denwatch.client.errors import LanguageError
    from denwatch.client.language.preferences import is_preference
    from denwatch.client.subscriber import Subscriber, SubscriberOptions, UnconfirmedError
    from denwatch.client.subscriber.session import find_name

    text = _read_words(arguments)
    if arguments.why is not None:
        return _explain_sensors(arguments)
    if text is not None and is_preference(text):
        return _prefer(arguments, text)
    status = _StatusPrinter(sys.stderr)
    subscriber = Subscriber(
        arguments.name,
        read_password(arguments),
        arguments.node or [DEFAULT_NODE],
        store=_find_store(arguments),
        tls=arguments.ca,
        is_insecure=arguments.insecure,
        settings=SubscriberOptions(login_patience=0),  # somebody waits and looks
        on_status=status.report,
    )
    common.stop_at_sigterm()
    with subscriber:
        name, understood = None, ""
        try:
            if arguments.unsubscribe:
                for name in _choose_ended(arguments, text, subscriber):
                    subscriber.unsubscribe(name, arguments.timeout)
                    print(f'"{name}" has ended', file=sys.stderr)
                return 0
            if text is not None:
                name, _ = find_name(text, arguments.subscription_name)
                found = subscriber.subscribe(text, name, arguments.timeout)
                understood = found.understood
                if arguments.explain:
                    _explain(subscriber)
                print(
                    f'"{found.name}" is active ({found.id})',
                    *found.taken,
                    sep="\n",
                    file=sys.stderr,
                )
                for note in found.notes:
                    print(f"  {note}", file=sys.stderr)
            elif not subscriber.subscriptions():
                raise CommandError("there is no subscription yet: give one in words", WRONG_USAGE)
        except UnconfirmedError as error:
            if arguments.is_short or arguments.unsubscribe:
                raise CommandError(f"{error}", MISSING) from None
            print(f"denwatch subscribe: {error}", file=sys.stderr)
        except LanguageError as error:
            common.print_mistake(error, text or "", as_json=arguments.json)
            return WRONG_INPUT
        texts = [understood] if understood else [each.text for each in subscriber.subscriptions()]
        return _show(arguments, subscriber, status, name, texts)


def _explain(subscriber: Subscriber) -> None:
    """Print why this node serves, and not another one of those that were named."""
    lines = subscriber.explain_choice()
    for line in lines or [f"{subscriber.status.server}: no other node was in range"]:
        print(line, file=sys.stderr)


def _explain_sensors(arguments: argparse.Namespace) -> int:
    """Print why a subscription is on the sensors of a node, or is not, and exit."""
    from denwatch.cli.find import ask_first

    reply = ask_first(arguments, {"explain": arguments.why})
    if not reply["ok"]:
        raise CommandError(reply["error"], WRONG_INPUT)
    print(json.dumps(reply) if arguments.json else f"{reply['node']}: {reply['words']}")
    return 0


def _prefer(arguments: argparse.Namespace, text: str) -> int:
    """Set how much of all subscriptions somebody wants to hear, and exit."""
    from denwatch.cli.find import ask_first
    from denwatch.client.errors import LanguageError

    reply = ask_first(arguments, {"my_top": text})
    if not reply["ok"]:
        error = LanguageError(reply["error"], reply.get("at"), reply.get("length", 1))
        common.print_mistake(error, text, as_json=arguments.json)
        return WRONG_INPUT
    print(json.dumps(reply) if arguments.json else f"{reply['node']}: {reply['understood']}")
    return 0


def _show(
    arguments: argparse.Namespace,
    subscriber: Subscriber,
    status: _StatusPrinter,
    name: str | None,
    texts: list[str],
) -> int:
    from denwatch.client.subscriber.display import list_asked

    wants_table = sys.stdout.isatty() and not arguments.json and not arguments.plain
    with suppress(KeyboardInterrupt):
        asked = [] if arguments.json else list_asked(texts)
        if wants_table:
            status.is_quiet = True  # the table shows it
            _show_table(arguments, subscriber, f"{arguments.name}: {name or 'all'}", asked)
        else:

            def print_one(notification: ReceivedNotification) -> None:
                line = _format_line(notification, subscriber.now(), arguments.json, asked)
                print(line, flush=True)

            _take_notifications(arguments, subscriber, print_one)
    if not arguments.json:
        print("the subscription stays; to end it:", file=sys.stderr)
        for ended in [name] if name else [each.name for each in subscriber.subscriptions()]:
            print(f"  {_spell_ending(arguments, ended)}", file=sys.stderr)
    return 0


def _spell_ending(arguments: argparse.Namespace, name: str) -> str:
    """Return the command that ends a subscription; it can be pasted as it is."""
    words = ["denwatch", "subscribe", *arguments.spelled_login, "--name", name, "--unsubscribe"]
    return shlex.join(words)


def _take_notifications(
    arguments: argparse.Namespace,
    subscriber: Subscriber,
    show: Callable[[ReceivedNotification], None],
    repaint: Callable[[], None] = lambda: None,
) -> None:
    """Show notifications until there are enough or the time is over; mark each once shown."""
    until = math.inf if arguments.seconds is None else time.monotonic() + arguments.seconds
    left = 1 if arguments.once else arguments.count or math.inf
    while left > 0:
        if subscriber.is_denied:
            raise CommandError("all nodes refused the name or password")
        # On some systems Ctrl-C does not interrupt a wait without end.
        if subscriber.wait(max(0.0, min(0.5, until - time.monotonic()))):
            with subscriber.take() as taken:
                if taken is not None:
                    show(taken[0])
                    left -= 1
        repaint()
        if time.monotonic() >= until:
            return


def _show_table(
    arguments: argparse.Namespace, subscriber: Subscriber, title: str, asked: list[str]
) -> None:
    """Show a table that is repainted: ages grow, and what has expired disappears."""
    from denwatch.client.subscriber.display import RankedNotifications
    from rich.live import Live

    ranked, received, now = RankedNotifications(), 0, subscriber.now
    ranked.add(subscriber.stored(), now())

    def show(notification: ReceivedNotification) -> None:
        nonlocal received
        ranked.add([notification], now())
        received += 1

    def repaint() -> None:
        best = ranked.rank(now())
        room = max(1, live.console.height - 7)
        while True:  # values wrap: fewer notifications, until all lines fit
            table = _build_table(best, now(), room, subscriber.status, received, asked)
            table.title = title
            lines = len(live.console.render_lines(table))
            if room == 1 or lines < live.console.height:
                break
            room = max(1, min(room, len(best)) * 3 // 4)
        live.update(table, refresh=True)

    with Live(auto_refresh=False) as live:
        repaint()
        _take_notifications(arguments, subscriber, show, repaint)


def _build_table(
    notifications: list[ReceivedNotification],
    now: int,
    room: int,
    status: ConnectionStatus,
    received: int,
    asked: Sequence[str] = (),
) -> Table:
    """Return so many notifications, best first, with the status below them."""
    from denwatch.client.subscriber import ConnectionState
    from denwatch.client.subscriber.display import describe_notification
    from rich.table import Table
    from rich.text import Text

    style = "green" if status.state is ConnectionState.ONLINE else "red"
    words = " ".join(filter(None, (status.state.value, status.server, status.reason)))
    counts = f"  {received} received, {len(notifications)} valid"
    counts += f", best {room} shown" if len(notifications) > room else ""
    table = Table(title_style="bold", expand=True, caption=Text.assemble((words, style), counts))
    table.add_column("", no_wrap=True)
    for title, ratio in (("values", 4), ("event", 2), ("limited by", 2)):
        table.add_column(title, overflow="fold", ratio=ratio)
    for title in ("degree", "age", "valid for"):
        table.add_column(title, justify="right", no_wrap=True)
    for notification in notifications[:room]:
        row = describe_notification(notification, now, asked)
        # Text, not markup: what a sensor sends is never interpreted as markup.
        cells = (row.values, row.event, row.limit, row.degree, row.age, row.left)
        table.add_row(Text(row.certainty, style=_STYLES[row.certainty]), *map(Text, cells))
    return table


class _StatusPrinter:
    """Reports the connection's status in lines, unless a table shows it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""
        self.is_quiet = False

    def report(self, status: ConnectionStatus) -> None:
        """Report a change of the connection's status."""
        from denwatch.client.subscriber import ConnectionState

        if status.state is ConnectionState.ONLINE:
            words = f"connected to {status.server}"
            words += f"; {status.reason}" if status.reason else ""
        elif status.reason:
            words = status.reason
            words = f"{status.server}: {words}; trying again" if status.server else words
        else:
            return
        if words != self._last and not self.is_quiet:
            self._last = words
            print(words, file=self._stream, flush=True)


def _format_line(
    notification: ReceivedNotification, now: int, is_json: bool, asked: Sequence[str] = ()
) -> str:
    if is_json:
        return json.dumps(dict(notification.fields), ensure_ascii=False)
    from denwatch.client.subscriber.display import describe_notification

    row = describe_notification(notification, now, asked)
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
    return common.read_input(arguments.subscription, arguments.file)[0]


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
        password = common.read_file(path).strip()
        if path.stat().st_mode & 0o077:
            print(f"{path}: other users can read this password: chmod 600 {path}", file=sys.stderr)
        return password
    return os.environ.get("DENWATCH_PASSWORD") or None


def _find_store(arguments: argparse.Namespace) -> Path:
    path = Path(arguments.store or common.find_data_home() / f"{arguments.name}.db")
    common.make_folder(path.parent)
    return path


def add_link(parser: argparse.ArgumentParser) -> None:
    """Add the options for the nodes' addresses and for logging in."""
    words = f"mqtt://HOST[:PORT] or mqtts://…; may be repeated ({DEFAULT_NODE})"
    common.add_option(parser, "--node URL ...", words)
    add_login(parser)
    add_profile(parser)


def add_login(parser: argparse._ActionsContainer) -> None:
    """Add the options for logging in."""
    common.add_option(
        parser, "--password-file FILE", "file with the password (or DENWATCH_PASSWORD)"
    )
    common.add_option(parser, "--ca FILE", "authority to trust (the system's)")
    common.add_option(parser, "--insecure", "allow the password in the clear to another machine")


def read_seconds(text: str) -> float:
    """Return the value of an option that is a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 3e7:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds below a year')
    return seconds


def _read_count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f'"{text}" is not a count from 1')
    return int(text)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Subscribe in words, and see what matches."
    parser = common.build_parser("subscribe", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("subscription", nargs="?", help="words, XML or JSON; - reads stdin")
    common.add_option(parser, "-f, --file FILE", "read the subscription from a file")
    common.add_option(parser, "--as NAME", "who you are", dest="name")
    add_link(parser)
    common.add_option(parser, "--name NAME", "name of the subscription", dest="subscription_name")
    common.add_option(
        parser, "--store FILE", "file for notifications (~/.local/share/denwatch/NAME.db)"
    )
    common.add_option(parser, "--unsubscribe", "end the subscription, and exit")
    common.add_option(parser, "--why NAME", "say why one is on the sensors or not, and exit")
    common.add_option(parser, "--explain", "say why this node was chosen, and not another one")
    ending = parser.add_mutually_exclusive_group()
    common.add_option(ending, "--once", "exit after one notification")
    common.add_option(ending, "--count N", "exit after N notifications", type=_read_count)
    common.add_option(
        parser, "--for SECONDS", "exit after this time", dest="seconds", type=read_seconds
    )
    common.add_option(
        parser,
        "--timeout SECONDS",
        "how long to wait for the node's answer (15)",
        type=read_seconds,
        default=15.0,
    )
    output = parser.add_mutually_exclusive_group()
    common.add_option(output, "--json", "one JSON object a line, errors too")
    common.add_option(output, "--plain", "print lines, also on a terminal")
    arguments = fill_login(parser.parse_args(argv))
    arguments.is_short = arguments.once or arguments.count or arguments.seconds is not None
    return arguments
