"""The board of a PC or a Raspberry Pi: I2C buses and serial ports as Linux has them.

Takes the place of `board.py` where there is no `machine`: the same sources then read the same
chips. Pins are those of the kernel's drivers (`sources/sysfs.py`). The only file that imports
`fcntl`.
"""

import os
import time

from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SLAVE = const(0x0703)  # ioctl: which chip is meant


class LinuxI2c:
    """A bus of i2c-dev with the methods of `machine.I2C` that sources call."""

    def __init__(self, file: "Any", control: "Callable[[Any, int, int], object]") -> None:
        self._file = file
        self._control = control

    def writeto(self, address: int, data: bytes) -> None:
        """Write bytes to a chip."""
        self._control(self._file, _SLAVE, address)
        if self._file.write(data) != len(data):
            raise OSError

    def readfrom_into(self, address: int, buf: bytearray) -> None:
        """Fill the buffer from a chip."""
        self._control(self._file, _SLAVE, address)
        if self._file.readinto(buf) != len(buf):
            raise OSError

    def writeto_mem(self, address: int, register: int, data: bytes) -> None:
        """Write bytes from a register on."""
        self.writeto(address, bytes([register]) + data)

    def readfrom_mem_into(self, address: int, register: int, buf: bytearray) -> None:
        """Fill the buffer from a register on."""
        self.writeto(address, bytes([register]))
        self.readfrom_into(address, buf)


class LinuxSerial:
    """A serial port that does not wait for input."""

    def __init__(self, path: str, baud: int) -> None:
        self._number = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
        if os.isatty(self._number):
            import termios
            import tty

            tty.setraw(self._number)
            attributes = termios.tcgetattr(self._number)
            attributes[4] = attributes[5] = getattr(termios, f"B{baud}")
            termios.tcsetattr(self._number, termios.TCSANOW, attributes)

    def read(self, size: int = 4096) -> "bytes | None":
        """Return what has come, None if nothing."""
        try:
            return os.read(self._number, size) or None
        except BlockingIOError:
            return None

    def write(self, data: bytes) -> None:
        """Write all of it."""
        while data:
            try:
                data = data[os.write(self._number, data) :]
            except BlockingIOError:
                time.sleep(0.001)


def make_i2c(number: int, clock: int, data: int) -> LinuxI2c:  # noqa: ARG001 - as `board.make_i2c`
    """Return /dev/i2c-N; its pins are the kernel's."""
    from fcntl import ioctl

    file = open(f"/dev/i2c-{number}", "r+b", buffering=0)  # noqa: SIM115, PTH123
    return LinuxI2c(file, ioctl)


def make_serial(port: "int | str", receive: object, baud: int) -> LinuxSerial:  # noqa: ARG001
    """Return a serial port by its path."""
    return LinuxSerial(str(port), baud)
