"""Sensirion's chips: a command of 16 bits, a wait, words with a checksum each. SHT3x and SCD4x.

SHT30, SHT31, SHT35: field 0 is the temperature in 0.01 degrees Celsius, field 1 humidity in 0.01 %.
Each measurement is started by its own command. SCD40, SCD41: field 0 is CO2 in ppm, 1 and 2 are
temperature and humidity as above. One command starts them; then there is a measurement every 5 s,
which another command fetches. A chip that was gone is started again.
"""

import time

from ...protocol.degrees import const
from . import NotReadyError, Source

_PLAIN = const(0)  # what a word means
_CELSIUS = const(1)
_PERCENT = const(2)
# By kind: address, command that starts, ms until there are words, command that fetches them (none:
# each measurement is started), meaning of each word.
CHIPS = {
    "sht3x": (0x44, b"\x24\x00", 16, b"", (_CELSIUS, _PERCENT)),
    "scd4x": (0x62, b"\x21\xb1", 5000, b"\xec\x05", (_PLAIN, _CELSIUS, _PERCENT)),
}

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


class CommandChip(Source):
    """One chip of a kind of `CHIPS`."""

    def __init__(self, kind: str, bus: "CommandBus", address: int = 0) -> None:
        usual, self._start, self._duration, self._fetch, self._words = CHIPS[kind]
        self._bus = bus
        self._address = address or usual
        self._bytes = bytearray(3 * len(self._words))
        self._due = -1  # when there are words; -1: nothing was started

    def prepare(self, now: int) -> int:
        """Start a measurement, unless one is under way."""
        if self._due < 0:
            self._bus.writeto(self._address, self._start)
            self._due = now + self._duration
        return self._due - now

    def measure(self, now: int) -> None:
        """Read the words; a wrong checksum is a broken sensor."""
        if self.prepare(now) > 0:
            raise NotReadyError
        self._due = -1
        if self._fetch:
            self._bus.writeto(self._address, self._fetch)
            time.sleep(0.002)
        self._bus.readfrom_into(self._address, self._bytes)
        for at in range(0, len(self._bytes), 3):
            if sum_word(self._bytes, at) != self._bytes[at + 2]:
                raise OSError
        if self._fetch:
            self._due = now + self._duration

    def read(self, field: int) -> int:
        """Return a field: hundredths, or the word itself."""
        word = self._bytes[3 * field] << 8 | self._bytes[3 * field + 1]
        if self._words[field] == _PLAIN:
            return word
        is_celsius = self._words[field] == _CELSIUS
        return (17_500 * word // 65535 - 4500) if is_celsius else 10_000 * word // 65535


def sum_word(data: bytearray, at: int) -> int:
    """Return the chip's checksum of two bytes: CRC-8, polynomial 0x31, from 0xff."""
    crc = 0xFF
    for i in range(at, at + 2):
        crc ^= data[i]
        for _ in range(8):
            crc = crc << 1 ^ (0x131 if crc & 0x80 else 0)
    return crc


def make(entry: "dict[str, Any]", board: "Board") -> CommandChip:
    """Make one: `kind`, `bus`, `clock`, `data`, `address`."""
    bus = board.make_i2c(entry.get("bus", 0), entry.get("clock", 0), entry.get("data", 0))
    return CommandChip(entry["kind"], bus, entry.get("address", 0))
