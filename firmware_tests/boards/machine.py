"""A board for the emulator: `machine` with a serial port, a converter, a watchdog and a flash.

Frozen into the firmware that `build.sh` makes, over the module `port` (port/port.c). AES, which
the emulated firmware lacks, is the tests' plain one.
"""

# mypy: ignore-errors
# ruff: noqa: ARG002 - stand-ins have the hardware's interface
import sys

import aes
import port

sys.modules["cryptolib"] = aes
PWRON_RESET = 1
_BLOCK = 4096


def reset_cause():
    """Return why the board started: power came."""
    return PWRON_RESET


class Pin:
    """A pin, by its number."""

    def __init__(self, number):
        self.number = number


class ADC:
    """A converter that counts up by a step at each reading, from the top to zero again."""

    step = 4099
    count = 0

    def __init__(self, pin):
        self._pin = pin

    def read_u16(self):
        """Return the next reading."""
        ADC.count += ADC.step
        return ADC.count & 0xFFFF


class WDT:
    """A hardware watchdog; it counts how often it was fed."""

    fed = 0

    def __init__(self, timeout):
        self.timeout = timeout

    def feed(self):
        """Feed it."""
        WDT.fed += 1


class UART:
    """The board's only serial port, which its prompt uses as well."""

    def __init__(self, number, baudrate=115200, timeout=0, **options):
        self.number = number

    def read(self, limit=4096):
        """Return what has come; None: nothing."""
        return port.read(limit, 3000) or None

    def write(self, data):
        """Send bytes."""
        return port.write(data)


class Flash:
    """Memory that stands for flash, with the calls of a block device."""

    def __init__(self):
        self._data = port.flash()
        self.erases = 0

    def readblocks(self, block, data, offset=0):
        """Read."""
        start = block * _BLOCK + offset
        data[:] = self._data[start : start + len(data)]

    def writeblocks(self, block, data, offset=None):
        """Program; without an offset, erase before."""
        if offset is None:
            self.ioctl(6, block)
            offset = 0
        start = block * _BLOCK + offset
        self._data[start : start + len(data)] = data

    def ioctl(self, operation, argument):
        """Answer 4, the number of blocks; 5, their size; 6, erase one."""
        if operation == 4:
            return len(self._data) // _BLOCK
        if operation == 5:
            return _BLOCK
        if operation == 6:
            self.erases += 1
            start = argument * _BLOCK
            for at in range(start, start + _BLOCK, 64):
                self._data[at : at + 64] = b"\xff" * 64
            return 0
        return None


def mount():
    """Make a new file system on the flash, and mount it."""
    import os

    flash = Flash()
    os.VfsLfs2.mkfs(flash)
    os.mount(os.VfsLfs2(flash), "/")
    return flash
