"""`denwatch status`: the nodes that a server knows of, as a live table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, CommandError
from denwatch.cli.subscribe import add_link, read_password

if TYPE_CHECKING:
    from denwatch.client.subscriber.link import MqttLink, Waker

_DESCRIPTION = """
Every node keeps a status where it listens: what it holds, what waits, which peers and devices it
sees, how far its clock is off. On a terminal this is a live table; otherwise it is printed once."""
_EXAMPLES = """
denwatch status
denwatch status --node mqtts://tent --node mqtts://truck --ca site.pem --as medic7
denwatch status --once --json"""
_SETTLE = 0.5  # s without a new status: what is retained has been told
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


class Entry(NamedTuple):
    """What one node said last, and when we heard it (ms)."""

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
        with Watch(arguments) as watch:
            if is_live:
                return _show_live(watch)
            if arguments.json and not arguments.once:
                return _follow(watch)
            watch.settle(arguments.timeout)
            if arguments.json:
                for name in sorted(watch.nodes):
                    print(json.dumps({**watch.nodes[name].fields, "node": name}, sort_keys=True))
            else:
                print(format_rows(build_rows(watch.nodes, watch.now())))
            watch.complain()
            return 0
    except SubscriberError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        return 0


class Watch:
    """Listens to the status topics of several servers at once; one that is lost is tried again."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from denwatch.client.subscriber.link import Identity, Waker
        from denwatch.client.subscriber.servers import parse_server

        self._identity = Identity(
            arguments.name or "", read_password(arguments), arguments.ca, arguments.insecure
        )
        self._servers = [parse_server(url) for url in arguments.node or ["mqtt://127.0.0.1:1883"]]
        self._links: dict[Any, MqttLink] = {}
        self._not_before: dict[Any, float] = {}
        self._waker: Waker = Waker()
        self._client_id = f"status-{time.time_ns():x}-"
        self.failures: dict[str, str] = {}
        self.listening: set[str] = set()
        self.nodes: dict[str, Entry] = {}

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links.values():
            link.close()
        self._waker.close()

    def now(self) -> int:
        """Return the time in ms."""
        return int(time.time() * 1000)

    def step(self, timeout: float) -> set[str]:
        """Wait for at most so many seconds; return the nodes that said something."""
        changed: set[str] = set()
        for number, server in enumerate(self._servers):
            link = self._links.get(server)
            if link is None:
                if time.monotonic() < self._not_before.get(server, 0.0):
                    continue
                link = self._open(server, number)
            changed |= self._take(link, timeout / len(self._servers))
        if not self._links:
            time.sleep(timeout)
        return changed

    def _open(self, server: Any, number: int) -> MqttLink:
        from denwatch.client.subscriber.link import MqttLink

        link = MqttLink(server, self._identity, f"{self._client_id}{number}", is_temporary=True)
        self._links[server] = link
        link.open()
        return link

    def _take(self, link: MqttLink, timeout: float) -> set[str]:
        from denwatch.client.subscriber.link import (
            LinkConnected,
            LinkFailed,
            MessageArrived,
            TopicsSubscribed,
        )
        from denwatch.client.subscriber.messages import STATUS, read_object

        changed: set[str] = set()
        url = link.server.url
        for happening in link.poll(timeout, self._waker):
            if isinstance(happening, LinkConnected):
                link.listen((STATUS + "+",))
            elif isinstance(happening, TopicsSubscribed):
                self.listening.add(url)
                self.failures.pop(url, None)
            elif isinstance(happening, LinkFailed):
                self.failures[url] = happening.reason
                self.listening.discard(url)
                self._links.pop(link.server).close()
                self._not_before[link.server] = time.monotonic() + 2.0
            elif isinstance(happening, MessageArrived):
                if happening.mid:
                    link.acknowledge(happening.mid)
                name = happening.topic.removeprefix(STATUS)
                fields = read_object(happening.payload)
                if fields is not None:
                    self.nodes[name] = Entry(fields, self.now())
                    changed.add(name)
                elif not happening.payload and name in self.nodes:
                    del self.nodes[name]  # it took its status back: it is gone
                    changed.add(name)
        return changed

    def settle(self, timeout: float) -> None:
        """Listen until every server has told what it keeps, or was found dead."""
        until = time.monotonic() + timeout
        quiet = time.monotonic()
        while time.monotonic() < until:
            if self.step(0.1):
                quiet = time.monotonic()
            settled = len(self.listening) + len(self.failures) >= len(self._servers)
            if not settled:
                quiet = time.monotonic()
            elif time.monotonic() - quiet > _SETTLE or not self.listening:
                break
        if not self.listening:
            reasons = "; ".join(f"{url}: {why}" for url, why in sorted(self.failures.items()))
            raise CommandError(reasons or "no node answers", MISSING)

    def complain(self) -> None:
        """Say which servers could not be asked."""
        for url, why in sorted(self.failures.items()):
            print(f"{url}: {why}", file=sys.stderr)


def build_rows(nodes: Mapping[str, Entry], now: int) -> list[list[str]]:
    """Return a table, its first row the titles: only columns of which some node says something."""
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


def _follow(watch: Watch) -> int:
    """Print each status as one JSON object, as it comes."""
    while True:
        for name in sorted(watch.step(0.5)):
            entry = watch.nodes.get(name)
            document = {"node": name, "gone": True} if entry is None else dict(entry.fields)
            print(json.dumps({**document, "node": name}, sort_keys=True), flush=True)


def _show_live(watch: Watch) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[client]', or --once"
        raise CommandError(message, MISSING) from None

    def build() -> Table:
        rows = build_rows(watch.nodes, watch.now())
        table = Table(title="nodes", expand=True)
        for title in rows[0]:
            table.add_column(title, overflow="fold")
        for row in rows[1:]:
            table.add_row(*(Text(cell) for cell in row))
        states = [f"listening at {url}" for url in sorted(watch.listening)]
        states += [f"{url}: {why}; trying again" for url, why in sorted(watch.failures.items())]
        table.caption = Text("; ".join(states) or "connecting")
        return table

    with Live(build(), console=Console(), auto_refresh=False) as live:
        while True:
            watch.step(0.5)
            live.update(build(), refresh=True)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Show the nodes: what they hold, whom they see, how they are."
    parser = build_parser("status", summary, _DESCRIPTION, _EXAMPLES)
    add_link(parser)
    parser.add_argument("--as", dest="name", metavar="NAME", help="who you are")
    parser.add_argument("--once", action="store_true", help="print and stop, also on a terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, as it comes")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="of a single print (10)"
    )
    return parser.parse_args(argv)
