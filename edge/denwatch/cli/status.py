"""`denwatch status`: the nodes that a server knows of, as a live table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from denwatch.cli.common import add_option, build_parser, format_table, refuse
from denwatch.cli.errors import MISSING, CommandError
from denwatch.cli.profile import DEFAULT_NODE, fill_login
from denwatch.cli.subscribe import add_link, read_password

_DESCRIPTION = """
Every node publishes a status: what it stores, what is queued, its peers and devices, and how far
its clock is off. On a terminal this is a live table; otherwise it is printed once."""
_EXAMPLES = """
denwatch status
denwatch status --node mqtts://tent --node mqtts://truck --ca site.pem --as medic7
denwatch status --once --json"""
_SETTLE = 0.5  # s without a new status: all retained ones have arrived
_FIELDS = (  # of a status, in the order of the columns
    *("node", "subscriptions", "notifications", "delivered", "queue", "attached", "devices"),
    *("peers", "lag_ms", "clock_ms", "doubt_ms", "uptime_s"),
)


class ReportedStatus(NamedTuple):
    """A node's last status, and when it arrived (ms)."""

    fields: Mapping[str, Any]
    heard: int


def run(argv: list[str]) -> int:
    """Show the nodes."""
    from denwatch.client.subscriber import SubscriberError

    arguments = _parse(argv)
    is_live = not arguments.once and not arguments.json and sys.stdout.isatty()
    with suppress(KeyboardInterrupt), refuse(SubscriberError), StatusTable(arguments) as table:
        if is_live:
            _show_live(table)
        elif arguments.json and not arguments.once:
            _follow(table)
        table.settle(arguments.timeout)
        if arguments.json:
            for name in sorted(table.nodes):
                print(json.dumps({**table.nodes[name].fields, "node": name}, sort_keys=True))
        else:
            print(*format_table(build_rows(table.nodes, table.now())), sep="\n")
        table.print_failures()
    return 0


class StatusTable:
    """The last status of every node, as read from several servers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from denwatch.client.subscriber.link import Identity, StatusReader
        from denwatch.client.subscriber.servers import parse_server

        servers = arguments.node or [DEFAULT_NODE]
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

    titles = [name.removesuffix("_ms").replace("uptime_s", "up") for name in _FIELDS]
    rows = [[*titles, "heard"]]
    for name in sorted(nodes):
        fields, heard = {**nodes[name].fields, "node": name}, nodes[name].heard
        cells = [_describe(field, fields.get(field)) for field in _FIELDS]
        rows.append([*cells, f"{describe_span(max(0, now - heard))} ago"])
    used = [i for i in range(len(rows[0])) if len(rows) == 1 or any(row[i] for row in rows[1:])]
    return [[row[i] for i in used] for row in rows]


def _describe(field: str, value: Any) -> str:
    from denwatch.client.subscriber.display import describe_span

    if value is None:
        return ""
    if field.endswith(("_ms", "_s")) and isinstance(value, int | float):
        ms = round(value * 1000 if field.endswith("_s") else value)
        span = f"{ms} ms" if abs(ms) < 1000 else describe_span(abs(ms))
        return f"-{span}" if ms <= -1000 else span
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _follow(table: StatusTable) -> NoReturn:
    """Print each status as one JSON object, as it comes."""
    while True:
        for name in sorted(table.step(0.5)):
            entry = table.nodes.get(name)
            document = {"node": name, "gone": True} if entry is None else dict(entry.fields)
            print(json.dumps({**document, "node": name}, sort_keys=True), flush=True)


def _show_live(table: StatusTable) -> NoReturn:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

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
    add_option(parser, "--as NAME", "who you are", dest="name")
    add_option(parser, "--once", "print once, also on a terminal")
    add_option(parser, "--json", "one JSON object a line, as it comes")
    add_option(
        parser, "--timeout SECONDS", "how long to wait for servers (10)", type=float, default=10.0
    )
    return fill_login(parser.parse_args(argv))
