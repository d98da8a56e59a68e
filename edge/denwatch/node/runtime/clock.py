"""The machine's clock, made steady: the only file of a node that asks for the time.

`now` never falls and never jumps: it is a time read at the start plus elapsed monotonic time. A
wall clock that is set while the node runs is noticed and reported, for those who show times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TOLERANCE = 2_000  # ms between the two clocks that count as drift, not as a correction


def read_wall() -> float:
    """Return what the machine's clock shows, in seconds since 1970."""
    return time.time()


def _read_elapsed() -> float:
    """Return seconds that never fall and count while the machine sleeps, where it can say so."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class SteadyClock:
    """Milliseconds that start at the wall clock's, or later, and go on evenly.

    `lead` is by how much the node's own timeline is ahead of the wall clock at the start: a
    machine without a battery may wake up years ago.
    """

    def __init__(
        self,
        lead: int = 0,
        wall: Callable[[], float] = read_wall,
        monotonic: Callable[[], float] = _read_elapsed,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._started = monotonic()
        self._base = int(wall() * 1000) + lead
        self._difference = -lead

    def read(self) -> int:
        """Return the time."""
        return self._base + int((self._monotonic() - self._started) * 1000)

    def find_jump(self) -> int:
        """Return by how many ms somebody set the wall clock since the last call; usually 0."""
        difference = int(self._wall() * 1000) - self.read()
        jump = difference - self._difference
        if abs(jump) < TOLERANCE:
            return 0
        self._difference = difference
        return jump
