"""Pins. A digital input: its level (a door, a float switch, a button), or pulses, counted by
interrupt (a rain gauge, a flow meter, a Geiger counter).

`gpio`: field 0 is the level, 0 or 1, field 1 counts its changes. `pulses`: field 0 is the number of
pulses since the start (up to 65,535, then again from 0), field 1 those since the round before. What
follows another one within `debounce` ms is its bouncing.

`adc`, `adc_mv`: an analogue input in counts of 0..65535 or in millivolts, the median of a few
conversions. A converter that sticks to one of its rails is a wire that is broken or shorted: say so
with the channel's `lowest` and `highest`.
"""

from array import array

from . import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class PulseCounter(Protocol):
        """What counts while nobody looks: `board.PulseInput`."""

        count: int

    class Converter(Protocol):
        """An analogue input: `machine.ADC`."""

        def read_u16(self) -> int:
            """Convert once; 0..65535."""

        def read_uv(self) -> int:
            """Convert once; microvolts, by the calibration in the chip."""

    class InputPin(Protocol):
        """A digital input: `machine.Pin`."""

        def value(self) -> int:
            """Return 0 or 1."""


class Adc(Source):
    """The median of an odd number of conversions."""

    def __init__(self, converter: "Converter", times: int = 5, is_voltage: bool = False) -> None:
        if times < 1 or not times & 1:
            raise ValueError("no median of " + str(times))  # choose an odd number
        self._converter = converter
        self._is_voltage = is_voltage
        self._counts = array("H", [0] * times)

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Convert a few times and keep the counts in order."""
        counts = self._counts
        for i in range(len(counts)):
            is_voltage = self._is_voltage
            count = self._converter.read_uv() // 1000 if is_voltage else self._converter.read_u16()
            j = i
            while j and counts[j - 1] > count:
                counts[j] = counts[j - 1]
                j -= 1
            counts[j] = count

    def read(self, field: int) -> int:  # noqa: ARG002 - one field
        """Return the median."""
        return self._counts[len(self._counts) >> 1]


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


def make(entry: "dict[str, Any]", board: "Board") -> "Adc | Gpio | Pulses":
    """Make one: `pin`, `debounce`; a level with `debounce` has its changes counted by interrupt."""
    if entry["kind"] in ("adc", "adc_mv"):
        return Adc(board.make_adc(entry["pin"]), is_voltage=entry["kind"] == "adc_mv")
    if entry["kind"] == "pulses":
        return Pulses(board.make_counter(entry["pin"], entry.get("debounce", 10), False))
    counter = None
    if "debounce" in entry:
        counter = board.make_counter(entry["pin"], entry["debounce"], True)
    return Gpio(board.make_pin(entry["pin"]), entry.get("inverted", False), counter)
