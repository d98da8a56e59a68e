"""The live table of notes on a terminal. The only file of the subscriber that imports rich."""

from __future__ import annotations

import threading
from types import TracebackType

from denwatch.client.subscriber.actions import State, Tell
from denwatch.client.subscriber.messages import Note
from denwatch.client.subscriber.view import describe_note
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

_SURE = {"certain": "bold green", "possible": "yellow"}


class Screen:
    """A table that is painted over and over, with the link's state above it."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.count = 0
        self._title = title
        self._console = console or Console()
        self._link = Text("")
        self._lock = threading.Lock()
        self._last: tuple[list[Note], int] = ([], 0)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show_link(self, tell: Tell) -> None:
        """Say what the link does."""
        style = "green" if tell.state is State.ONLINE else "red"
        words = " ".join(part for part in (tell.state.value, tell.server, tell.reason) if part)
        with self._lock:
            self._link = Text(words, style=style)
        self.show(*self._last)

    def show(self, notes: list[Note], now: int) -> None:
        """Paint the notes, best first, as many as the terminal has lines for."""
        with self._lock:
            self._last = notes, now
            self._live.update(self._build(notes, now), refresh=True)

    def _build(self, notes: list[Note], now: int) -> Table:
        room = max(1, self._console.height - 7)
        table = Table(title=Text(self._title, style="bold"), expand=True)
        caption = Text.assemble(self._link, f"  {self.count} arrived, {len(notes)} count")
        if len(notes) > room:
            caption.append(f", best {room} shown")
        table.caption = caption
        table.add_column("", no_wrap=True)
        table.add_column("degree", justify="right", no_wrap=True)
        # One line a note, or the table would not fit the terminal and could not be painted over.
        table.add_column("event", no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column("values", no_wrap=True, overflow="ellipsis", ratio=4)
        table.add_column("limited by", no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column("age", justify="right", no_wrap=True)
        table.add_column("counts for", justify="right", no_wrap=True)
        for note in notes[:room]:
            row = describe_note(note, now)
            # Text, not markup: what a sensor says is never taken for instructions to the table.
            cells = (row.degree, row.event, row.values, row.limit, row.age, row.left)
            table.add_row(Text(row.sure, style=_SURE[row.sure]), *map(Text, cells))
        return table
