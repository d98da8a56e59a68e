"""A serial line with NMEA 0183 sentences, as receivers of GPS and its like send them.

Of the sentences GGA: field 0 is the latitude and 1 the longitude in 0.00001 degrees, 2 the altitude
in 0.1 m, 3 the number of satellites, 4 the accuracy of the position in 0.1 m: the dilution that
the receiver reports times 2.5 m, which is what data sheets promise under an open sky. Integers
throughout: MicroPython's floats have 24 bits, too few for a position. A sentence with a wrong
checksum is passed over; a receiver that has no fix is a fault.
"""

from ...protocol.degrees import const
from . import NotReadyError, Source

_LONGEST = const(82)  # characters of a sentence
_OPEN_SKY = const(25)  # 0.1 m

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class SerialLine(Protocol):
        """A serial port that does not wait: `machine.UART`."""

        def read(self, size: int) -> "bytes | None":
            """Return what has come, None if nothing."""


class Nmea(Source):
    """The newest position on a line."""

    def __init__(self, line: "SerialLine") -> None:
        self._line = line
        self._rest = b""
        self._fields = [0] * 5

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Read all that has come, and keep the last position of it."""
        newest = None
        data = self._line.read(256)
        while data:
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()[-_LONGEST:]
            for line in lines:
                newest = read_gga(line) or newest
            data = self._line.read(256)
        if newest is None:
            raise NotReadyError
        if newest[6] in (b"", b"0"):
            raise OSError  # no fix
        accuracy = scale(newest[8], 1) * _OPEN_SKY // 10
        self._fields[0] = read_angle(newest[2], 2) * (-1 if newest[3] == b"S" else 1)
        self._fields[1] = read_angle(newest[4], 3) * (-1 if newest[5] == b"W" else 1)
        self._fields[2:] = [scale(newest[9], 1), int(newest[7]), accuracy]

    def read(self, field: int) -> int:
        """Return a field of the last position."""
        return self._fields[field]


def read_gga(line: bytes) -> "list[bytes] | None":
    """Return the fields of a sound sentence with a position; None for any other one."""
    line = line.strip()
    body, star, check = line[1:].partition(b"*")
    if line[:1] != b"$" or not star or body[2:6] != b"GGA,":
        return None
    total = 0
    for byte in body:
        total ^= byte
    fields = body.split(b",")
    return fields if check.upper() == b"%02X" % total and len(fields) > 9 else None


def read_angle(text: bytes, degrees: int) -> int:
    """Return ddmm.mmmm, with so many digits of degrees, in 0.00001 degrees."""
    return int(text[:degrees]) * 100_000 + (scale(text[degrees:], 5) + 30) // 60


def scale(text: bytes, digits: int) -> int:
    """Return a decimal with so many digits after its point as an integer."""
    whole, _, rest = text.partition(b".")
    number = int((whole.lstrip(b"-") or b"0") + (rest + b"00000")[:digits])
    return -number if text[:1] == b"-" else number


def make(entry: "dict[str, Any]", board: "Board") -> Nmea:
    """Make one: `port` (a number, or a path on Linux), `receive` (a pin), `baud`."""
    line = board.make_serial(entry["port"], entry.get("receive"), entry.get("baud", 9600))
    return Nmea(line)
