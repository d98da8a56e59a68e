"""SHT30, SHT31 and SHT35: field 0 is the temperature in 0.01 degrees Celsius, field 1 humidity in
0.01 %.

The chip has no registers: a command of 16 bits starts a measurement, which takes 15 ms and is then
read, each word with a checksum.
"""

from ...protocol.degrees import const
from . import NotReadyError, Source

_DURATION = const(16)  # ms at high repeatability
_ADDRESS = const(0x44)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class CommandBus(Protocol):
        """A bus: `machine.I2C`."""

        def writeto(self, address: int, data: bytes) -> object:
            """Write bytes to a chip."""

        def readfrom_into(self, address: int, buf: bytearray) -> object:
            """Fill the buffer from a chip."""


class Sht3x(Source):
    """One sensor, measuring when it is asked to."""

    def __init__(self, bus: "CommandBus", address: int = _ADDRESS) -> None:
        self._bus = bus
        self._address = address
        self._bytes = bytearray(6)
        self._started = -1

    def prepare(self, now: int) -> int:
        """Start a measurement, unless one is under way."""
        if self._started < 0:
            self._bus.writeto(self._address, b"\x24\x00")
            self._started = now
        return _DURATION - now + self._started

    def measure(self, now: int) -> None:
        """Read the measurement; a wrong checksum is a broken sensor."""
        if self.prepare(now) > 0:
            raise NotReadyError
        self._started = -1
        self._bus.readfrom_into(self._address, self._bytes)
        for at in (0, 3):
            if _sum(self._bytes, at) != self._bytes[at + 2]:
                raise OSError

    def read(self, field: int) -> int:
        """Return a field in hundredths."""
        at = 3 * field
        count = self._bytes[at] << 8 | self._bytes[at + 1]
        return (10_000 * count if field else 17_500 * count) // 65535 - (0 if field else 4500)


def _sum(data: bytearray, at: int) -> int:
    """Return the chip's checksum of two bytes: CRC-8, polynomial 0x31, from 0xff."""
    crc = 0xFF
    for i in range(at, at + 2):
        crc ^= data[i]
        for _ in range(8):
            crc = crc << 1 ^ (0x131 if crc & 0x80 else 0)
    return crc


def make(entry: "dict[str, Any]", board: "Board") -> Sht3x:
    """Make one: `bus`, `clock`, `data`, `address`."""
    bus = board.make_i2c(entry.get("bus", 0), entry["clock"], entry["data"])
    return Sht3x(bus, entry.get("address", _ADDRESS))
