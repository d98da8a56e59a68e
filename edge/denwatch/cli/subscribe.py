"""`denwatch subscribe`: asks in words, and shows what comes, ranked, while it counts."""

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
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from denwatch.cli.common import build_parser, point_at, read_file, read_input
from denwatch.cli.failures import MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.subscriber import Note, Subscriber, Tell
    from denwatch.client.subscriber.screen import Screen

_DESCRIPTION = """
Asks the node for what the words say, and shows what matches: best first, certain and possible told
apart, with the reason, its age, and how long it still counts. On a terminal this is a live table;
otherwise each notification is a line. The subscription stays when the command ends: what matches
meanwhile waits with the nodes, and is shown by the next run. --unsubscribe ends it.

With several --node the one that serves best is taken, and another when it is lost."""
_EXAMPLES = """
denwatch subscribe 'patient_temperature is very high' --as medic7 --password-file medic7.key
denwatch subscribe 'pain is severe' --as medic7 --node mqtts://tent --node mqtts://truck
denwatch subscribe 'heart_rate above 120' --as medic7 --json --count 10
denwatch subscribe --as medic7                                    (what was asked for earlier)
denwatch subscribe 'pain is severe' --as medic7 --unsubscribe"""


def run(argv: list[str]) -> int:
    """Subscribe, and show what comes until it is enough."""
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
    status = _Status(sys.stderr)
    subscriber = Subscriber(
        arguments.name,
        read_password(arguments),
        arguments.node or ["mqtt://127.0.0.1:1883"],
        store=_find_store(arguments),
        tls=arguments.ca,
        is_insecure=arguments.insecure,
        on_state=status.note,
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
                print(f'"{found.name}" is in place ({found.id})', file=sys.stderr)
            elif not subscriber.subscriptions():
                raise CommandError("nothing was asked for yet: say what in words", WRONG_USAGE)
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
    arguments: argparse.Namespace, subscriber: Subscriber, status: _Status, name: str | None
) -> int:
    wants_table = sys.stdout.isatty() and not arguments.json and not arguments.plain
    with suppress(KeyboardInterrupt):
        if wants_table:
            _show_table(arguments, subscriber, status, name)
        else:

            def print_note(note: Note) -> None:
                print(_format_line(note, subscriber.now(), arguments.json), flush=True)

            _take_notes(arguments, subscriber, print_note)
    if not arguments.json:
        ending = f"--name {name} --unsubscribe" if name else "--name NAME --unsubscribe"
        print(
            f"the subscription stays; to end it: denwatch subscribe --as {arguments.name} {ending}",
            file=sys.stderr,
        )
    return 0


def _take_notes(
    arguments: argparse.Namespace, subscriber: Subscriber, show: Callable[[Note], None]
) -> None:
    """Show notes until there are enough of them, or the time is over; each is marked once shown."""
    until = math.inf if arguments.seconds is None else time.monotonic() + arguments.seconds
    left = 1 if arguments.once else arguments.count or math.inf
    while left > 0:
        # A wait without end would not hear Ctrl-C on every system.
        if subscriber.wait(max(0.0, min(1.0, until - time.monotonic()))):
            with subscriber.take() as taken:
                if taken is not None:
                    show(taken[0])
                    left -= 1
        if time.monotonic() >= until:
            return


def _show_table(
    arguments: argparse.Namespace, subscriber: Subscriber, status: _Status, name: str | None
) -> None:
    try:
        from denwatch.client.subscriber.screen import Screen
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]', or --plain"
        raise CommandError(message, MISSING) from None
    from denwatch.client.subscriber.view import Board

    now = subscriber.now
    board = Board()
    board.add(subscriber.held(), now())
    stop = threading.Event()
    with Screen(f"{arguments.name}: {name or 'all'}") as screen:
        status.screen = screen
        screen.show_link(subscriber.state)

        def repaint() -> None:  # ages go on, and what has expired goes away
            while not stop.wait(0.5):
                screen.show(board.rank(now()), now())

        def show(note: Note) -> None:
            board.add([note], now())
            screen.count += 1

        painter = threading.Thread(target=repaint, daemon=True)
        painter.start()
        try:
            _take_notes(arguments, subscriber, show)
        finally:
            stop.set()
            painter.join()
            status.screen = None
            screen.show(board.rank(now()), now())


class _Status:
    """Says what the link does: in the table's head while there is one, else in lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said = ""
        self.screen: Screen | None = None

    def note(self, tell: Tell) -> None:
        """Take a change of the link's state."""
        if self.screen is not None:
            self.screen.show_link(tell)
            return
        from denwatch.client.subscriber import State

        if tell.state is State.ONLINE:
            words = f"connected to {tell.server}" + (f"; {tell.reason}" if tell.reason else "")
        elif tell.reason:
            words = f"{tell.server}: {tell.reason}; trying again" if tell.server else tell.reason
        else:
            return
        if words != self._said:
            self._said = words
            print(words, file=self._stream, flush=True)


def _format_line(note: Note, now: int, is_json: bool) -> str:
    if is_json:
        return json.dumps(dict(note.fields), ensure_ascii=False)
    from denwatch.client.subscriber.view import describe_note

    row = describe_note(note, now)
    parts = [f"{row.sure} {row.degree}", row.event, row.values, row.why]
    if row.age:
        parts.append(f"{row.age} ago")
    if row.left:
        parts.append(f"counts for {row.left}")
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
    raise CommandError(f"which one? --name NAME, or its words; there is: {known}", WRONG_USAGE)


def read_password(arguments: argparse.Namespace) -> str | None:
    """Return the password: of a file, else of DENWATCH_PASSWORD, else none."""
    if arguments.password_file:
        path = Path(arguments.password_file)
        password = read_file(path).strip()
        if path.stat().st_mode & 0o077:
            print(f"{path}: others may read this password: chmod 600 {path}", file=sys.stderr)
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
    """End like Ctrl-C does: the note in hand is marked, the store closed."""
    raise KeyboardInterrupt


def add_link(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a node is, and how to be let in."""
    parser.add_argument(
        "--node",
        action="append",
        metavar="URL",
        help="mqtt://HOST[:PORT] or mqtts://…, several times for several (mqtt://127.0.0.1:1883)",
    )
    parser.add_argument(
        "--password-file", metavar="FILE", help="where the password stands (or DENWATCH_PASSWORD)"
    )
    parser.add_argument("--ca", metavar="FILE", help="whose certificates to trust (the system's)")
    parser.add_argument(
        "--insecure", action="store_true", help="send the password in the clear, off this machine"
    )


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds')
    return seconds


def _read_count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f'"{text}" is no count from 1')
    return int(text)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Ask for what you need to know, and watch it come."
    parser = build_parser("subscribe", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("subscription", nargs="?", help="words, XML or JSON; - reads the pipe")
    parser.add_argument("-f", "--file", help="read the subscription from a file")
    parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="who you are")
    add_link(parser)
    parser.add_argument(
        "--name", dest="subscription_name", metavar="NAME", help="what to call the subscription"
    )
    parser.add_argument(
        "--store", metavar="FILE", help="where notes are kept (~/.local/share/denwatch/NAME.db)"
    )
    parser.add_argument("--unsubscribe", action="store_true", help="end it, and stop")
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--once", action="store_true", help="stop after one notification")
    ending.add_argument("--count", type=_read_count, metavar="N", help="stop after so many")
    parser.add_argument(
        "--for", dest="seconds", type=_read_seconds, metavar="SECONDS", help="stop after so long"
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
    output.add_argument("--plain", action="store_true", help="lines, also on a terminal")
    arguments = parser.parse_args(argv)
    arguments.is_short = arguments.once or arguments.count or arguments.seconds is not None
    return arguments
