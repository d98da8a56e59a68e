"""DS18B20 and relatives on one 1-wire bus: field n is sensor n, in 1/16 degrees Celsius.

The driver is MicroPython's `ds18x20`. A conversion takes 750 ms: `prepare` starts it, and the round
waits for it, so that a reading is never older than that. 85 degrees exactly is what the sensor
holds before its first conversion: then it was without power, and that is no reading.
"""

from ...protocol.degrees import const
from . import NotReadyError, Source, sign

_CONVERSION = const(750)  # ms
_POWER_ON = const(85 * 16)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class Ds18x20Driver(Protocol):
        """MicroPython's driver: `ds18x20.DS18X20`."""

        def scan(self) -> "list[bytearray]":
            """Return the addresses of the sensors on the bus."""

        def convert_temp(self) -> None:
            """Start a conversion on all sensors."""

        def read_scratch(self, rom: bytes) -> bytes:
            """Return the memory of one sensor; raise if its checksum is wrong."""


class Ds18x20(Source):
    """All sensors of one bus, in the order of their addresses."""

    def __init__(self, driver: "Ds18x20Driver", count: int) -> None:
        self._driver = driver
        self._roms: list[bytes] = []
        self._count = count
        self._started = -1
        self._numbers: list[int | None] = []

    def prepare(self, now: int) -> int:
        """Start a conversion, unless one is under way."""
        if len(self._roms) != self._count:
            self._roms = sorted([bytes(rom) for rom in self._driver.scan()])
        if len(self._roms) != self._count:
            raise OSError  # not all of the sensors answer
        if self._started < 0:
            self._driver.convert_temp()
            self._started = now
        return _CONVERSION - now + self._started

    def measure(self, now: int) -> None:
        """Take the results of the conversion."""
        if self.prepare(now) > 0:
            raise NotReadyError
        self._started = -1
        self._numbers = [self._take(rom) for rom in self._roms]

    def read(self, field: int) -> int:
        """Return one sensor's temperature."""
        number = self._numbers[field]
        if number is None:
            raise OSError  # this sensor gave no reading
        return number

    def _take(self, rom: bytes) -> int | None:
        """Return a sensor's number, None if it is broken: the others on the bus may work."""
        try:
            scratch = self._driver.read_scratch(rom)
        except Exception:  # noqa: BLE001 - the driver raises Exception for a wrong checksum
            return None
        number = sign(scratch[1] << 8 | scratch[0], 16)
        return None if number == _POWER_ON else number


def make(entry: "dict[str, Any]", board: "Board") -> Ds18x20:
    """Make one: `pin`, `count`."""
    return Ds18x20(board.make_ds18x20(entry["pin"]), entry.get("count", 1))
