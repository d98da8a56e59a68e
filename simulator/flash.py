"""A flash chip in memory for emulated watchdogs: what was programmed survives a power cut.

NOR flash: programming clears bits, erasing a block sets them. A cut can fall into any change and
leaves a part of it done. Speaks MicroPython's extended block-device protocol.
"""

from __future__ import annotations

from random import Random

from denwatch.watchdog.ring import COUNT, ERASE, SIZE

_BLANK = 0xFF


class PowerCut(BaseException):
    """The device is dead: nothing of its program runs on."""


class Flash:
    """Blocks of bytes; `cut_at` is the number of the change in which the power goes."""

    def __init__(self, count: int = 8, size: int = 1024, image: bytes | None = None) -> None:
        self.count = count
        self.size = size
        self.image = bytearray(image or bytes([_BLANK]) * (count * size))
        self.changes = 0
        self.cut_at = 0
        self.rng = Random(0)

    def readblocks(self, block: int, buf: memoryview, offset: int = 0) -> None:
        """Fill a buffer."""
        start = block * self.size + offset
        buf[:] = self.image[start : start + len(buf)]

    def writeblocks(self, block: int, buf: bytes, offset: int = 0) -> None:
        """Program bytes: bits can only be cleared."""
        start = block * self.size + offset
        old = self.image[start : start + len(buf)]
        self._change(start, bytes(one & other for one, other in zip(old, bytes(buf), strict=True)))

    def ioctl(self, operation: int, argument: int) -> int:
        """Answer what the chip is, or erase a block."""
        if operation == COUNT:
            return self.count
        if operation == SIZE:
            return self.size
        if operation == ERASE:
            self._change(argument * self.size, bytes([_BLANK]) * self.size)
        return 0

    def _change(self, start: int, data: bytes) -> None:
        self.changes += 1
        if self.changes == self.cut_at:
            done = self.rng.randrange(len(data) + 1)
            self.image[start : start + done] = data[:done]
            raise PowerCut
        self.image[start : start + len(data)] = data
