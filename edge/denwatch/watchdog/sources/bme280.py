"""BME280 (and BMP280, without humidity): field 0 is the temperature in 0.01 degrees Celsius, field
1 the pressure in Pa, field 2 humidity in 0.01 %.

Each chip has its own calibration, which is read once; the data sheet says how raw numbers become
values. Here that is done in integers, with the data sheet's powers of two: MicroPython's floats
have 24 bits, too few for a pressure. Every measurement is started by itself (forced mode), so the
chip sleeps in between.
"""

from ...protocol.degrees import const
from . import NotReadyError, Source, sign

_ADDRESS = const(0x76)
_DURATION = const(10)  # ms, each value measured once
_HUMIDITY = const(0xF2)  # registers: how often humidity is measured, ...
_CONTROL = const(0xF4)  # ... the other two, and the mode
_DATA = const(0xF7)
_ABSENT = const(0x80000)  # what a value that was not measured reads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import Board
    from .i2c import I2cBus


class Bme280(Source):
    """One chip on a bus."""

    def __init__(self, bus: "I2cBus", address: int = _ADDRESS) -> None:
        self._bus = bus
        self._address = address
        self._t: list[int] = []
        self._p: list[int] = []
        self._h: list[int] = []
        self._bytes = bytearray(8)
        self._started = -1
        self._values = [0, 0, 0]

    def prepare(self, now: int) -> int:
        """Start a measurement, unless one is under way."""
        if not self._t:
            self._calibrate()
        if self._started < 0:
            self._bus.writeto_mem(self._address, _HUMIDITY, b"\x01")
            self._bus.writeto_mem(self._address, _CONTROL, b"\x25")  # once each, forced
            self._started = now
        return _DURATION - now + self._started

    def measure(self, now: int) -> None:
        """Read the measurement and apply the calibration."""
        if self.prepare(now) > 0:
            raise NotReadyError
        self._started = -1
        data = self._bytes
        try:
            self._bus.readfrom_mem_into(self._address, _DATA, data)
        except OSError:
            self._t = []  # another chip may be there next time
            raise
        raw = data[3] << 12 | data[4] << 4 | data[5] >> 4
        if raw == _ABSENT:
            raise OSError
        fine = self.find_fine(raw)
        self._values[0] = (fine * 5 + 128) >> 8
        self._values[1] = self.find_pressure(data[0] << 12 | data[1] << 4 | data[2] >> 4, fine)
        self._values[2] = self.find_humidity(data[6] << 8 | data[7], fine)

    def read(self, field: int) -> int:
        """Return a field of the last measurement."""
        return self._values[field]

    def set_calibration(self, low: "bytes | bytearray", high: "bytes | bytearray") -> None:
        """Take the calibration: 26 bytes from register 0x88, 7 from 0xe1."""

        def word(at: int, is_signed: bool = True) -> int:
            number = low[at] | low[at + 1] << 8
            return sign(number, 16) if is_signed else number

        self._t = [word(0, False), word(2), word(4)]
        self._p = [word(6, False)] + [word(at) for at in range(8, 24, 2)]
        fourth = sign(high[3] << 4 | high[4] & 15, 12)
        fifth = sign(high[5] << 4 | high[4] >> 4, 12)
        second = sign(high[0] | high[1] << 8, 16)
        self._h = [low[25], second, high[2], fourth, fifth, sign(high[6], 8)]

    def _calibrate(self) -> None:
        low, high = bytearray(26), bytearray(7)
        self._bus.readfrom_mem_into(self._address, 0x88, low)
        self._bus.readfrom_mem_into(self._address, 0xE1, high)
        self.set_calibration(low, high)

    def find_fine(self, raw: int) -> int:
        """Return the temperature in 1/5120 degrees, which the other two values need."""
        t = self._t
        linear = ((raw >> 3) - (t[0] << 1)) * t[1] >> 11
        square = (raw >> 4) - t[0]
        return linear + ((square * square >> 12) * t[2] >> 14)

    def find_pressure(self, raw: int, fine: int) -> int:
        """Return the pressure in Pa."""
        p = self._p
        x = fine - 128_000
        offset = x * x * p[5] + (x * p[4] << 17) + (p[3] << 35)
        gain = ((x * x * p[2] >> 8) + (x * p[1] << 12) + (1 << 47)) * p[0] >> 33
        if not gain:
            raise OSError
        value = (((1_048_576 - raw) << 31) - offset) * 3125 // gain
        square = p[8] * (value >> 13) * (value >> 13) >> 25
        value = ((value + square + (p[7] * value >> 19)) >> 8) + (p[6] << 4)
        return (value + 128) >> 8

    def find_humidity(self, raw: int, fine: int) -> int:
        """Return the relative humidity in 0.01 %."""
        h = self._h
        x = fine - 76_800
        slope = ((x * h[5] >> 10) * ((x * h[2] >> 11) + 32_768) >> 10) + 2_097_152
        value = ((raw << 14) - (h[3] << 20) - h[4] * x + 16_384 >> 15) * (slope * h[1] + 8192 >> 14)
        value -= ((value >> 15) * (value >> 15) >> 7) * h[0] >> 4
        return min(max(value, 0), 419_430_400) * 100 >> 22


def make(entry: "dict[str, Any]", board: "Board") -> Bme280:
    """Make one: `bus`, `clock`, `data`, `address`."""
    bus = board.make_i2c(entry.get("bus", 0), entry.get("clock", 0), entry.get("data", 0))
    return Bme280(bus, entry.get("address", _ADDRESS))
