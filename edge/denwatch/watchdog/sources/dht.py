"""DHT11 and DHT22: field 0 is the temperature in 0.1 degrees Celsius, field 1 humidity in 0.1 %.

The driver is MicroPython's `dht`; its five bytes are read as they are, because its own methods
return floats, which are allocated. The sensor needs two seconds between measurements: a round that
comes earlier gets the last one.
"""

from ...protocol.degrees import const
from . import Source

_REST = const(2000)  # ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class DhtDriver(Protocol):
        """MicroPython's driver: `dht.DHT22`."""

        buf: bytearray

        def measure(self) -> None:
            """Fill `buf`; raise if there is no answer or the checksum is wrong."""


class Dht(Source):
    """One sensor; `tenths` is False for a DHT11."""

    def __init__(self, driver: "DhtDriver", tenths: bool = True) -> None:
        self._driver = driver
        self._tenths = tenths
        self._next = 0
        self._has_failed = True

    def measure(self, now: int) -> None:
        """Ask the sensor; it raises if there is no answer or the checksum is wrong."""
        if now < self._next:
            if self._has_failed:
                raise OSError  # the last measurement failed
            return
        self._next = now + _REST
        self._has_failed = True
        self._driver.measure()
        self._has_failed = False

    def read(self, field: int) -> int:
        """Return a field in tenths."""
        buf = self._driver.buf
        at = 0 if field else 2
        if not self._tenths:
            return 10 * buf[at]
        number = (buf[at] & 0x7F) << 8 | buf[at + 1]
        return -number if buf[at] & 0x80 else number


def make(entry: "dict[str, Any]", board: "Board") -> Dht:
    """Make one: `kind`, `pin`."""
    tenths = entry["kind"] == "dht22"
    return Dht(board.make_dht(entry["pin"], tenths), tenths)
