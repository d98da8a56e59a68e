"""A block device with its failures counted: writes are read back, errors become answers.

The only file that calls a block device. Nothing here knows what the bytes mean.
"""

from .blocks import COUNT, ERASE, SIZE, SYNC

_CHUNK = 64


class Medium:
    """Reads, programs and erases; `errors` counts what the device refused or got wrong."""

    def __init__(self, device: object) -> None:
        self._device = device
        self.size: int = device.ioctl(SIZE, 0)  # type: ignore[attr-defined]
        self.count: int = device.ioctl(COUNT, 0)  # type: ignore[attr-defined]
        self._chunk = memoryview(bytearray(_CHUNK))
        self.errors = 0

    def read(self, block: int, view: memoryview, at: int) -> None:
        """Fill a buffer from a place in a block."""
        try:
            self._device.readblocks(block, view, at)  # type: ignore[attr-defined]
        except OSError:
            self.errors += 1
            for i in range(len(view)):
                view[i] = 0  # passes neither for a record nor for an erased place

    def program(self, block: int, view: memoryview, at: int) -> bool:
        """Write bytes and read them back; False if the flash did not take them."""
        try:
            self._device.writeblocks(block, view, at)  # type: ignore[attr-defined]
        except OSError:
            self.errors += 1
            return False
        if self.holds(block, view, at):
            return True
        self.errors += 1
        return False

    def holds(self, block: int, view: memoryview, at: int) -> bool:
        """Return whether a place holds these bytes."""
        done = 0
        while done < len(view):
            part = self._chunk[: min(_CHUNK, len(view) - done)]
            self.read(block, part, at + done)
            if part != view[done : done + len(part)]:
                return False
            done += len(part)
        return True

    def is_blank(self, block: int, at: int) -> bool:
        """Return whether a block is erased from a place on."""
        while at < self.size:
            part = self._chunk[: min(_CHUNK, self.size - at)]
            self.read(block, part, at)
            for byte in part:
                if byte != 255:
                    return False
            at += len(part)
        return True

    def clear(self, block: int, at: int) -> bool:
        """Program one byte to zero, which needs no erase."""
        return self.program(block, memoryview(b"\x00"), at)

    def erase(self, block: int) -> bool:
        """Erase a block; False if the flash refuses."""
        try:
            self._device.ioctl(ERASE, block)  # type: ignore[attr-defined]
        except OSError:
            self.errors += 1
            return False
        return True

    def sync(self) -> None:
        """Wait until everything is on the medium."""
        self._device.ioctl(SYNC, 0)  # type: ignore[attr-defined]
