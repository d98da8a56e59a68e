"""`denwatch status`: the nodes that a server knows of, as a live table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, CommandError
from denwatch.cli.subscribe import add_link, read_password

_DESCRIPTION = """
Every node publishes a status: what it stores, what is queued, its peers and devices, and how far
its clock is off. On a terminal this is a live table; otherwise it is printed once."""
_EXAMPLES = """
denwatch status
denwatch status --node mqtts://tent --node mqtts://truck --ca site.pem --as medic7
denwatch status --once --json"""
_SETTLE = 0.5  # s without a new status: all retained ones have arrived
_COLUMNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("node", ("node", "name")),
    ("subscriptions", ("subscriptions",)),
    ("notifications", ("notifications", "held")),
    ("delivered", ("delivered",)),
    ("queue", ("queue", "waiting")),
    ("attached", ("attached",)),
    ("devices", ("devices",)),
    ("peers", ("peers",)),
    ("lag", ("lag", "lag_ms")),
    ("clock", ("clock", "clock_ms")),
    ("doubt", ("doubt", "doubt_ms")),
    ("up", ("uptime", "uptime_s")),
    ("heard", ()),
)


class ReportedStatus(NamedTuple):
    """A node's last status, and when it arrived (ms)."""

    fields: Mapping[str, Any]
    heard: int


def run(argv: list[str]) -> int:
    """Show the nodes."""
    arguments = _parse(argv)
    try:
        from denwatch.client.subscriber import SubscriberError
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]'"
        raise CommandError(message, MISSING) from None
    is_live = not arguments.once and not arguments.json and sys.stdout.isatty()
    try:
        with StatusTable(arguments) as table:
            if is_live:
                return _show_live(table)
            if arguments.json and not arguments.once:
                return _follow(table)
            table.settle(arguments.timeout)
            if arguments.json:
                for name in sorted(table.nodes):
                    print(json.dumps({**table.nodes[name].fields, "node": name}, sort_keys=True))
            else:
                print(format_rows(build_rows(table.nodes, table.now())))
            table.print_failures()
            return 0
    except SubscriberError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        return 0


class StatusTable:
    """The last status of every node, as read from several servers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from denwatch.client.subscriber.link import Identity, StatusReader
        from denwatch.client.subscriber.servers import parse_server

        servers = arguments.node or ["mqtt://127.0.0.1:1883"]
        identity = Identity(
            arguments.name or "", read_password(arguments), arguments.ca, arguments.insecure
        )
        for server in servers:  # refuse now to send a password in the clear
            identity.build_context(parse_server(server))
        self.reader = StatusReader(identity, servers, "status")
        self.nodes: dict[str, ReportedStatus] = {}

    def __enter__(self) -> StatusTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def now(self) -> int:
        """Return the time in ms."""
        return int(time.time() * 1000)

    def step(self, timeout: float) -> set[str]:
        """Wait for at most so many seconds; return the nodes whose status changed."""
        changed: set[str] = set()
        for message in self.reader.step(timeout):
            if message.fields is not None:
                self.nodes[message.node] = ReportedStatus(message.fields, self.now())
                changed.add(message.node)
            elif self.nodes.pop(message.node, None) is not None:  # it stopped in order
                changed.add(message.node)
        return changed

    def settle(self, timeout: float) -> None:
        """Listen until every server has sent its retained statuses, or was found unreachable."""
        until = time.monotonic() + timeout
        quiet = time.monotonic()
        while time.monotonic() < until:
            if self.step(0.1) or not self.reader.is_settled:
                quiet = time.monotonic()
            elif time.monotonic() - quiet > _SETTLE or not self.reader.listening:
                break
        if not self.reader.listening:
            failures = sorted(self.reader.failures.items())
            reasons = "; ".join(f"{url}: {why}" for url, why in failures)
            raise CommandError(reasons or "no node answers", MISSING)

    def print_failures(self) -> None:
        """Print which servers could not be used."""
        for url, why in sorted(self.reader.failures.items()):
            print(f"{url}: {why}", file=sys.stderr)


def build_rows(nodes: Mapping[str, ReportedStatus], now: int) -> list[list[str]]:
    """Return a table, its first row the titles; columns without any value are left out."""
    from denwatch.client.subscriber.display import describe_span

    rows = [[title for title, _ in _COLUMNS]]
    for name in sorted(nodes):
        fields, heard = {"node": name, **nodes[name].fields}, nodes[name].heard
        cells = [_describe(title, fields, keys) for title, keys in _COLUMNS[:-1]]
        rows.append([*cells, f"{describe_span(max(0, now - heard))} ago"])
    used = [i for i in range(len(_COLUMNS)) if len(rows) == 1 or any(row[i] for row in rows[1:])]
    return [[row[i] for i in used] for row in rows]


def _describe(title: str, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    from denwatch.client.subscriber.display import describe_span

    key = next((key for key in keys if fields.get(key) is not None), None)
    if key is None:
        return ""
    value = fields[key]
    if title in ("lag", "clock", "doubt", "up") and isinstance(value, int | float):
        ms = round(value * 1000) if key in ("uptime", "uptime_s") else round(value)
        span = f"{ms} ms" if abs(ms) < 1000 else describe_span(abs(ms))
        return f"-{span}" if ms <= -1000 else span
    if isinstance(value, Mapping):
        if all(isinstance(inner, int | float) for inner in value.values()):
            return ", ".join(f"{name} {inner:g}" for name, inner in value.items())
        return ", ".join(map(str, value))
    if isinstance(value, list):
        named = [e.get("name", e) if isinstance(e, Mapping) else e for e in value]
        return ", ".join(map(str, named))
    return str(value)


def format_rows(rows: list[list[str]]) -> str:
    """Return a table as lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _follow(table: StatusTable) -> int:
    """Print each status as one JSON object, as it comes."""
    while True:
        for name in sorted(table.step(0.5)):
            entry = table.nodes.get(name)
            document = {"node": name, "gone": True} if entry is None else dict(entry.fields)
            print(json.dumps({**document, "node": name}, sort_keys=True), flush=True)


def _show_live(table: StatusTable) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]', or --once"
        raise CommandError(message, MISSING) from None

    def build() -> Table:
        rows = build_rows(table.nodes, table.now())
        painted = Table(title="nodes", expand=True)
        for title in rows[0]:
            painted.add_column(title, overflow="fold")
        for row in rows[1:]:
            painted.add_row(*(Text(cell) for cell in row))
        states = [f"listening at {url}" for url in sorted(table.reader.listening)]
        states += [
            f"{url}: {why}; trying again" for url, why in sorted(table.reader.failures.items())
        ]
        painted.caption = Text("; ".join(states) or "connecting")
        return painted

    with Live(build(), console=Console(), auto_refresh=False) as live:
        while True:
            table.step(0.5)
            live.update(build(), refresh=True)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Show the state of the nodes."
    parser = build_parser("status", summary, _DESCRIPTION, _EXAMPLES)
    add_link(parser)
    parser.add_argument("--as", dest="name", metavar="NAME", help="who you are")
    parser.add_argument("--once", action="store_true", help="print once, also on a terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, as it comes")
    parser.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for servers (10)",
    )
    return parser.parse_args(argv)
