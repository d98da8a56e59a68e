"""Where readings come from: what a source is, and how its numbers become attributes of an event.

A source measures and then returns its fields as integers in the sensor's own steps: tenths of a
degree, counts of a converter. A sensor that does not answer, or answers nonsense, raises: that
becomes a fault of the event, never a value. Only NotReadyError is no fault. There is one file for
each kind of sensor, with `make(entry, board)`; a device loads those that its configuration names.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ..execution import Sample

    class Board(Protocol):
        """What sources need of `board.py`, which a PC does not have: tests bring another one."""

        def make_adc(self, pin: int) -> Any:
            """Return a converter with `read_u16()`."""

        def make_pin(self, pin: int) -> Any:
            """Return a digital input with `value()`."""

        def make_counter(self, pin: int, debounce: int, is_both: bool) -> Any:
            """Return what counts edges, with `count`."""

        def make_serial(self, port: Any, receive: Any, baud: int) -> Any:
            """Return a serial port that does not wait, with `read(size)`."""

        def make_i2c(self, number: int, clock: int, data: int) -> Any:
            """Return a bus: `machine.I2C`."""

        def make_dht(self, pin: int, tenths: bool) -> Any:
            """Return a driver with `measure()` and `buf`."""

        def make_ds18x20(self, pin: int) -> Any:
            """Return a driver with `scan`, `convert_temp` and `read_scratch`."""


class NotReadyError(Exception):
    """The source works, but has no new reading for this round."""


class Source:
    """A sensor, whatever the number of its fields. Subclasses have `measure` and `read`."""

    is_waiting = False  # nothing new in this round
    is_broken = False

    def prepare(self, now: int) -> int:  # noqa: ARG002 - the interface
        """Begin what takes time, if that was not done; return the ms until it can be read."""
        return 0

    def start_round(self, now: int) -> None:
        """Measure, and note whether that worked."""
        self.is_waiting = self.is_broken = False
        try:
            self.measure(now)
        except NotReadyError:
            self.is_waiting = True
        except Exception:  # noqa: BLE001 - drivers raise what they like; all mean a broken sensor
            self.is_broken = True

    def measure(self, now: int) -> None:
        """Take a measurement."""

    def read(self, field: int) -> int:
        """Return a field of the last measurement, in the sensor's steps."""
        raise NotImplementedError


class Channel:
    """One field of a source as one attribute of an event.

    `low` and `high` are the ends of the attribute's domain in the sensor's steps. A number below
    `lowest` or above `highest` is none that a working sensor gives. `typical` and `worst` are the
    sensor's accuracy: the true value is without reservation within `typical` of the number, and
    never further off than `worst`.
    """

    def __init__(
        self,
        source: Source,
        field: int,
        attribute: int,
        low: int,
        high: int,
        wide: bool = False,
        lowest: int | None = None,
        highest: int | None = None,
        typical: int = 0,
        worst: int = 0,
    ) -> None:
        if not (0 <= attribute < 16 and low < high and 0 <= typical <= worst):
            raise ValueError(f"attribute {attribute}: {low}..{high}, {typical}..{worst}")
        self.source = source
        self.field = field
        self.attribute = attribute
        self.low = low
        self.high = high
        self.wide = wide
        self.lowest = low if lowest is None else lowest
        self.highest = high if highest is None else highest
        self.typical = typical
        self.worst = worst

    def read_into(self, sample: "Sample") -> None:
        """Note the attribute's value, or that its sensor is broken."""
        if self.source.is_waiting:
            return
        number = 0
        is_broken = self.source.is_broken
        if not is_broken:
            try:
                number = self.source.read(self.field)
            except Exception:  # noqa: BLE001 - as above
                is_broken = True
        if is_broken or not self.lowest <= number <= self.highest:
            sample.fail(self.attribute)
        elif self.worst:
            sample.set_doubtful(
                self.attribute,
                self.normalise(number - self.worst),
                self.normalise(number - self.typical),
                self.normalise(number + self.typical),
                self.normalise(number + self.worst),
            )
        else:
            sample.set(self.attribute, self.normalise(number))

    def normalise(self, number: int) -> int:
        """Return the number as the nearest of the domain's 256 or 65,536 values, cut to it."""
        last = 65535 if self.wide else 255
        span = self.high - self.low
        steps = (number - self.low) * last
        return min(last, max(0, (steps + span // 2) // span))


def sign(number: int, bits: int) -> int:
    """Return an unsigned field as the two's complement number that it codes."""
    return number - (1 << bits) if number >> (bits - 1) else number


class Callback(Source):
    """A source that asks a function: for sensors with a driver of their own, and for tests.

    `ask(field)` returns an integer in any steps; what it raises is a fault.
    """

    def __init__(self, ask: "Callable[[int], int]") -> None:
        self._ask = ask

    def read(self, field: int) -> int:
        """Return what the function returns."""
        return self._ask(field)
