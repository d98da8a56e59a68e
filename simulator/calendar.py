"""Simulated time: what is to happen when. The only clock that anything in the field has.

Things due at the same millisecond happen in the order in which they were entered, so that one run
is like the other on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

START = 1_700_000_000_000  # ms since 1970: when every emulated day begins


class Calendar:
    """A queue of calls by time; `now` is in ms and never falls."""

    def __init__(self, start: int = START) -> None:
        self.now = start
        self.count = 0  # calls made
        self._entries: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, time: int, call: Callable[..., object], *arguments: Any) -> None:
        """Have something called at a time, or now if that is over."""
        self._number += 1
        heapq.heappush(self._entries, (max(time, self.now), self._number, call, arguments))

    def wait(self, delay: int, call: Callable[..., object], *arguments: Any) -> None:
        """Have something called in so many ms."""
        self.enter(self.now + delay, call, *arguments)

    def run(self, until: int) -> None:
        """Let time go on to a moment, with all that is due before and at it."""
        entries = self._entries
        while entries and entries[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(entries)
            self.count += 1
            call(*arguments)
        self.now = max(self.now, until)
