"""Pulses on a pin, counted by interrupt: a rain gauge, a flow meter, a Geiger counter.

Field 0 is the number of pulses since the start (up to 65,535, then again from 0), field 1 those
since the round before. What follows another one within `debounce` ms is its bouncing.
"""

from . import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class PulseCounter(Protocol):
        """What counts while nobody looks: `board.PulseInput`."""

        count: int


class Pulses(Source):
    """A counter, and what it had counted at the round before."""

    def __init__(self, counter: "PulseCounter") -> None:
        self._counter = counter
        self._seen = counter.count
        self._fresh = 0

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Take what was counted."""
        count = self._counter.count
        self._fresh = (count - self._seen) & 0xFFFF
        self._seen = count

    def read(self, field: int) -> int:
        """Return all pulses (0), or those of this round (1)."""
        return self._fresh if field else self._seen


def make(entry: "dict[str, Any]", board: "Board") -> Pulses:
    """Make one: `pin`, `debounce`."""
    return Pulses(board.make_counter(entry["pin"], entry.get("debounce", 10), False))
