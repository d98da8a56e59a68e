"""A digital input as 0 or 1: a door, a float switch, a button. Steps: 0..1, or a count of edges."""

from . import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board
    from .pulses import PulseCounter

    class InputPin(Protocol):
        """A digital input: `machine.Pin`."""

        def value(self) -> int:
            """Return 0 or 1."""


class Gpio(Source):
    """Field 0 is the level, field 1 counts its changes: those that a round sees, or all of them if
    there is a `counter`, which counts by interrupt."""

    def __init__(
        self, pin: "InputPin", inverted: bool = False, counter: "PulseCounter | None" = None
    ) -> None:
        self._pin = pin
        self._flip = 1 if inverted else 0
        self._level = -1
        self._changes = 0
        self._counter = counter

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Read the pin."""
        level = self._pin.value() ^ self._flip
        if self._level >= 0 and level != self._level:
            self._changes = (self._changes + 1) & 0xFFFF
        self._level = level
        if self._counter is not None:
            self._changes = self._counter.count

    def read(self, field: int) -> int:
        """Return the level (0) or the number of changes seen (1)."""
        return self._changes if field else self._level


def make(entry: "dict[str, Any]", board: "Board") -> Gpio:
    """Make one: `pin`, `inverted`, `debounce` (ms: changes are counted by interrupt)."""
    counter = None
    if "debounce" in entry:
        counter = board.make_counter(entry["pin"], entry["debounce"], True)
    return Gpio(board.make_pin(entry["pin"]), entry.get("inverted", False), counter)
