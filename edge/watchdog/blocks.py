"""Block devices under the ring: a flash partition, a file, and one that pads to whole pages.

All of them answer MicroPython's extended block-device protocol, `readblocks(block, buf, offset)`,
`writeblocks(block, buf, offset)` and `ioctl(operation, argument)`, so that `esp32.Partition` and
`rp2.Flash` serve as they are. The only file that imports `esp32` or `rp2`, or opens the spool's
file.
"""

from protocol.degrees import const

SYNC = const(3)
COUNT = const(4)
SIZE = const(5)
ERASE = const(6)


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
            self._file.flush()
            sync_file(self._file)
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


def sync_file(file: object) -> None:
    """Wait until a file is on its medium; on MicroPython its flush has done that."""
    try:
        from os import fsync
    except ImportError:  # MicroPython
        return
    fsync(file.fileno())  # type: ignore[attr-defined]


def find_partition(label: str) -> object:
    """Return the raw data partition of that name (ESP32)."""
    from esp32 import Partition  # type: ignore[import-not-found]

    found = Partition.find(Partition.TYPE_DATA, label=label)
    if not found:
        raise OSError("no data partition is called " + label)
    return found[0]


def find_flash(start: int, length: int) -> object:
    """Return a part of the flash that no file system uses (RP2040, RP2350)."""
    from rp2 import Flash  # type: ignore[import-not-found]

    return PagedBlocks(Flash(start=start, len=length))
