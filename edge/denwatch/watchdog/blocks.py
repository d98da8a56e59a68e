"""Block devices under the ring: a flash partition, a file, one that pads to whole pages; and the
medium, through which alone they are called: writes are read back, errors become answers.

All devices answer MicroPython's extended block-device protocol, `readblocks(block, buf, offset)`,
`writeblocks(block, buf, offset)` and `ioctl(operation, argument)`, so that `esp32.Partition` and
`rp2.Flash` serve as they are. The only file that imports `esp32` or `rp2`, or opens the spool's
file.
"""

from ..protocol.degrees import const

try:
    from os import fsync
except ImportError:  # MicroPython
    fsync = None  # type: ignore[assignment]

_CHUNK = const(64)
SYNC = const(3)
COUNT = const(4)
SIZE = const(5)
ERASE = const(6)


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


class FileBlocks:
    """A file on a Pi or a PC. Written is what `SYNC` returned for, as with any file system."""

    def __init__(self, path: str, count: int, size: int = 4096) -> None:
        self.count = count
        self.size = size
        try:
            self._file = open(path, "r+b")  # noqa: SIM115, PTH123 - kept open; no pathlib there
        except OSError:
            self._file = open(path, "w+b")  # noqa: SIM115, PTH123
        self._fill(self._file.seek(0, 2), count * size)

    def readblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Fill the buffer from a place in a block."""
        self._file.seek(block * self.size + offset)
        self._file.readinto(buf)

    def writeblocks(self, block: int, buf: bytes, offset: int = 0) -> None:
        """Write the buffer to a place in a block."""
        self._file.seek(block * self.size + offset)
        self._file.write(buf)

    def ioctl(self, operation: int, argument: int) -> int:
        """Answer COUNT and SIZE; do SYNC and ERASE."""
        if operation == COUNT:
            return self.count
        if operation == SIZE:
            return self.size
        if operation == ERASE:
            self._fill(argument * self.size, (argument + 1) * self.size)
        elif operation == SYNC:
            self._file.flush()  # on MicroPython that is all
            if fsync is not None:
                fsync(self._file.fileno())
        return 0

    def _fill(self, start: int, stop: int) -> None:
        """Write ones, as an erased flash has them, in pieces that any memory has room for."""
        self._file.seek(start)
        while start < stop:
            start += self._file.write(b"\xff" * min(stop - start, 128))

    def close(self) -> None:
        """Write what is left and close the file."""
        self.ioctl(SYNC, 0)
        self._file.close()


class PagedBlocks:
    """Flash that is programmed by whole pages (RP2040: 256 bytes), for writes of any size.

    The rest of the page is programmed with ones, which leaves flash as it is.
    """

    def __init__(self, device: object, page: int = 256) -> None:
        self.device = device
        self.readblocks = device.readblocks  # type: ignore[attr-defined]
        self.ioctl = device.ioctl  # type: ignore[attr-defined]
        self._page = bytearray(page)

    def writeblocks(self, block: int, buf: bytes, offset: int = 0) -> None:
        """Program the buffer page by page."""
        page = self._page
        done = 0
        while done < len(buf):
            start = (offset + done) // len(page) * len(page)
            for i in range(len(page)):
                at = start + i - offset
                page[i] = buf[at] if 0 <= at < len(buf) else 255
            self.device.writeblocks(block, page, start)  # type: ignore[attr-defined]
            done = start + len(page) - offset


def find_partition(label: str) -> object:
    """Return the raw data partition of that name (ESP32)."""
    from esp32 import Partition  # type: ignore[import-not-found]

    found = Partition.find(Partition.TYPE_DATA, label=label)
    if not found:
        raise OSError(label)
    return found[0]


def find_flash(start: int, length: int) -> object:
    """Return a part of the flash that no file system uses (RP2040, RP2350)."""
    from rp2 import Flash  # type: ignore[import-not-found]

    return PagedBlocks(Flash(start=start, len=length))
