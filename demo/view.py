"""What the audience sees: a live table in a terminal, lines of text otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from denwatch.client.subscriber import ReceivedNotification
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.bridges import Bridges
from demo.cast import PATIENCE, Person, Visitor, WatchdogProcess, read_metrics
from demo.sensors import Sensors
from demo.site import DemoSite
from simulator.site import SiteError

Found = TypeVar("Found")
_LINE_EVERY = 5.0  # s, without a terminal


class View:
    """Shows the cast until something has happened."""

    def __init__(
        self,
        site: DemoSite,
        sensors: Sensors,
        dogs: Sequence[WatchdogProcess],
        people: Sequence[Person | Visitor],
        bridges: Bridges,
    ) -> None:
        self._nodes = site.metrics
        self._sensors = sensors
        self._dogs = dogs
        self._people = people
        self._bridges = bridges
        self._title = ""
        self._last = 0.0
        self._console = Console()
        is_live = sys.stdout.isatty()
        self._live = Live(console=self._console, refresh_per_second=4) if is_live else None

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, title: str) -> None:
        """Begin a new act."""
        self._title = title
        self.tell(f"\n{title}")

    def tell(self, line: str) -> None:
        """Add a line."""
        if self._live is None:
            print(line, flush=True)
        else:
            self._console.print(line, highlight=False, markup=False)

    def wait_for(self, what: str, check: Callable[[], Found | None]) -> Found:
        """Show what happens until something has; return what was found.

        Whatever a loaded machine takes, the story goes on only with what it is about.
        """
        begin = time.monotonic()
        while not (found := check()):
            if time.monotonic() - begin > PATIENCE:
                raise SiteError(f"waited {PATIENCE:.0f} s for {what}: that is a defect")
            self._show()
        return found

    def watch(self, seconds: float) -> None:
        """Show what happens for so long, for whoever watches."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._show()

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._build())
        elif time.monotonic() - self._last >= _LINE_EVERY:
            self._last = time.monotonic()
            self._print()
        time.sleep(0.1)

    def _print(self) -> None:
        taken = self._sensors.readings
        sent = sum(dog.sent for dog in self._dogs)
        held = ", ".join(
            f"{name} {read_metrics(url).get('notifications', 0):.0f}"
            for name, url in self._nodes.items()
        )
        got = ", ".join(
            f"{person.name}@{person.node} {len(person.notes)}" for person in self._people
        )
        print(f"   read {taken:6,}  sent {sent:5,}   held: {held}   delivered: {got}", flush=True)

    def _build(self) -> Group:
        title = f"MicroPython: {self._sensors.readings:,} readings"
        dogs = Table("watchdog", "sent", "on the node's disk", title=title)
        for dog in self._dogs:
            dogs.add_row(dog.name, f"{dog.sent:,}", f"{dog.acknowledged:,}")
        nodes = Table("node", "peers", "subscriptions", "notifications", "waiting", title="DENS")
        for node, url in self._nodes.items():
            seen = read_metrics(url)
            names = ("peers", "subscriptions", "notifications", "waiting")
            nodes.add_row(node, *(f"{seen.get(name, 0):,.0f}" for name in names))
        people = Table("who", "at", "has", "newest", title="rescue apps", min_width=90)
        for person in self._people:
            newest = describe_note(person.notes[-1]) if person.notes else "-"
            people.add_row(person.name, person.node, f"{len(person.notes):,}", newest)
        cut = [name for name in self._bridges.bytes if self._bridges.is_cut(name)]
        state = f"link cut: {', '.join(cut)}" if cut else "all links up"
        return Group(Text(self._title, style="bold"), Text(state), dogs, nodes, people)


def describe_note(note: ReceivedNotification) -> str:
    """Return a notification in one line."""
    who = note.fields.get("device") or note.fields.get("reporter", "")
    why = note.why.get("words", "") if isinstance(note.why, dict) else ""
    doubt = "" if note.is_certain else f", certain only to {note.certain:.2f}"
    return f"{note.degree:.2f} {who}: {why}{doubt}"
