"""Records on raw flash, safe against a power cut at every operation. STORAGE.md has the theory.

A block starts with a head: state, magic, generation, the generation that it was copied from, CRC.
Records follow: state, kind, length, degree, epoch, sequence, time, CRC, body. All writes go to one
block, the head; every block begins with a record of the whole state (epoch, acknowledgement, ...),
so the newest block knows everything and the others are free once nothing lives in them.

The rules, each of which a test removes to see what is lost:

* bytes whose CRC is wrong are not there (`_is_sound`);
* a block is erased before it is used again (`_erase`), and never the one with the last state;
* behind a torn record nothing is written (`_find_end`);
* survivors are copied to a spare block, and the old block is retired only when the copy is
  complete (`_retire`); a copy whose source was not retired is void (`_void_copies`).

A state byte is programmed from 0xff to 0, which flash can do without an erase; whichever of the two
a cut leaves is right. Only this file knows where bytes stand on the medium.

Below the ring is the `Medium`, through which alone a block device is called: writes are read back,
errors become answers. A block device answers MicroPython's extended protocol, so that
`esp32.Partition` and `rp2.Flash` serve as they are; `FileBlocks` is a file of a PC, `CarvedBlocks`
are blocks of a board's file system, `PagedBlocks` pads to whole pages. The only file that imports
`esp32`, `flashbdev` or `rp2`, or opens the spool's files.
"""

from array import array
from binascii import crc32

from ..protocol.degrees import const

try:
    from os import fsync
except ImportError:  # MicroPython
    fsync = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    class BlockDevice(Protocol):
        """MicroPython's extended block-device protocol."""

        def readblocks(self, block: int, buf: Any, offset: int = 0) -> object:
            """Fill the buffer from a place in a block."""

        def writeblocks(self, block: int, buf: Any, offset: int = 0) -> object:
            """Write the buffer to a place in an erased block."""

        def ioctl(self, operation: int, argument: int) -> int:
            """Do SYNC or ERASE; return COUNT or SIZE."""


HEAD = const(16)  # bytes before the records of a block
RECORD = const(20)  # bytes before the body of a record
MAX_BODY = const(148)
NOTE = const(1)  # kinds of records
STATE = const(2)
LIVE = const(0xFF)
ACK_EPOCH = const(1)  # words of the state that the ring itself reads
ACK_SEQUENCE = const(2)
_MAGIC = b"DW1"
_MARK = const(16)
_MIN_BLOCKS = const(3)

_CHUNK = const(64)
SYNC = const(3)
COUNT = const(4)
SIZE = const(5)
ERASE = const(6)


class Medium:
    """Reads, programs and erases; `errors` counts what the device refused or got wrong."""

    def __init__(self, device: "BlockDevice") -> None:
        self._device = device
        self.size = device.ioctl(SIZE, 0)
        self.count = device.ioctl(COUNT, 0)
        self._chunk = memoryview(bytearray(_CHUNK))
        self.errors = 0

    def read(self, block: int, view: memoryview, at: int) -> None:
        """Fill a buffer from a place in a block."""
        try:
            self._device.readblocks(block, view, at)
        except OSError:
            self.errors += 1
            for i in range(len(view)):
                view[i] = 0  # passes neither for a record nor for an erased place

    def program(self, block: int, view: memoryview, at: int) -> bool:
        """Write bytes and read them back; False if the flash did not take them."""
        try:
            self._device.writeblocks(block, view, at)
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
            self._device.ioctl(ERASE, block)
        except OSError:
            self.errors += 1
            return False
        return True

    def sync(self) -> None:
        """Wait until everything is on the medium."""
        self._device.ioctl(SYNC, 0)


class RingError(Exception):
    """The flash cannot be used: too small, or too many of its blocks fail."""


def measure(length: int) -> int:
    """Return the bytes of a record with such a body."""
    return (RECORD + length + 3) & ~3


def write_word(buf: bytearray, at: int, value: int) -> None:
    """Write 32 bits, the highest first, without an allocation."""
    buf[at] = value >> 24 & 255
    buf[at + 1] = value >> 16 & 255
    buf[at + 2] = value >> 8 & 255
    buf[at + 3] = value & 255


def read_word(buf: "bytearray | memoryview", at: int) -> int:
    """Return 32 bits."""
    return buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]


def sum_record(view: memoryview) -> int:
    """Return the CRC of a record: everything but its state byte and the CRC."""
    return crc32(view[RECORD : RECORD + view[2]], crc32(view[1:16]))


class Ring:
    """The blocks of one device, and the words of the state that each begins with."""

    def __init__(self, device: "BlockDevice", words: int) -> None:
        self.medium = Medium(device)
        self.size = self.medium.size
        count = self.medium.count
        self.words = array("I", [0] * words)
        self._state_size = measure(4 * words)
        self.room = self.size - HEAD - self._state_size  # for records, in an empty block
        if count < _MIN_BLOCKS or self.room < 4 * measure(MAX_BODY):
            raise RingError("too small")
        self.generations = [0] * count  # 0: nothing that counts
        self.live = [0] * count  # bytes of live records
        self._ends = [0] * count  # where the last sound record ends
        self._low = [(0, 0)] * count  # numbers of the first and the last live record
        self._high = [(0, 0)] * count
        self.record = bytearray(measure(max(MAX_BODY, 4 * words)))  # the record that was read last
        self._view = memoryview(self.record)
        self.head = -1
        self._holder = -1  # the block with the last state
        self._at = self.size  # where the head's next record goes
        self._bad = [False] * count
        self.damaged = 0

    # Reading

    def mount(self) -> bool:
        """Find what is on the medium; False if there is no state on it."""
        sources = [0] * len(self.live)
        for block in range(len(self.live)):
            self.medium.read(block, self._view[:HEAD], 0)
            head = self.record
            is_sound = read_word(head, 12) == crc32(self._view[1:12])
            if head[0] == LIVE and head[1:4] == _MAGIC and is_sound:
                self.generations[block] = read_word(head, 4)
                sources[block] = read_word(head, 8)
        self._void_copies(sources)
        order = [(self.generations[b], b) for b in range(len(self.live)) if self.generations[b]]
        order.sort()
        if order:
            self.head = order[-1][1]
        for _, block in order:
            self._find_end(block)
            if self._read_state(block):
                self._holder = block
        for _, block in order:  # what lives is known with the last state only
            self._survey(block)
        return self._holder >= 0

    def _void_copies(self, sources: list[int]) -> None:
        """Retire the block that was being copied to when the power went."""
        for block in range(len(sources)):
            if sources[block] and sources[block] in self.generations:
                self._retire(block)

    def _find_end(self, block: int) -> None:
        at = end = HEAD
        while at < self.size and not self.medium.is_blank(block, at):
            size = self._load(block, at)
            if size:
                end = at + size
            elif at == end:
                self.damaged += 1  # once for a run of bytes
            at += size or 4
        self._ends[block] = end
        if block == self.head:
            self._at = end if at == end else self.size

    def _read_state(self, block: int) -> bool:
        found = False
        for _ in self.scan(block):
            if self.record[1] == STATE and self.record[2] == 4 * len(self.words):
                found = True
                for i in range(len(self.words)):
                    self.words[i] = read_word(self.record, RECORD + 4 * i)
        return found

    def _survey(self, block: int) -> None:
        """Measure what lives in a block."""
        self.live[block] = 0
        for _ in self.scan(block):
            if self.is_live():
                self._add(block, self.record)

    def _add(self, block: int, record: "bytearray | memoryview") -> None:
        number = (read_word(record, 4), read_word(record, 8))
        if not self.live[block] or number < self._low[block]:
            self._low[block] = number
        if not self.live[block] or number > self._high[block]:
            self._high[block] = number
        self.live[block] += measure(record[2])

    def is_live(self) -> bool:
        """Return whether the record that was read last is a note that still counts."""
        record = self.record
        if record[0] != LIVE or record[1] != NOTE:
            return False
        epoch = read_word(record, 4)
        mark = self.words[ACK_EPOCH]
        return epoch > mark or (epoch == mark and read_word(record, 8) > self.words[ACK_SEQUENCE])

    def scan(self, block: int) -> "Iterator[int]":
        """Yield the place of each sound record of a block; it stands in `record`."""
        at = HEAD
        while at < self._ends[block]:
            size = self._load(block, at)
            if size:
                yield at
            at += size or 4  # a damaged record hides no other

    def list_blocks(self) -> list[tuple[tuple[int, int], int]]:
        """Return the number of the first live record and the block, by number."""
        order = [(self._low[b], b) for b in range(len(self.live)) if self.live[b]]
        order.sort()
        return order

    def _load(self, block: int, at: int) -> int:
        """Read the record at a place; return its size, 0 if there is none."""
        room = min(self.size - at, len(self.record))
        if room < RECORD:
            return 0
        self.medium.read(block, self._view[:room], at)
        size = measure(self.record[2])
        return size if size <= room and self._is_sound() else 0

    def _is_sound(self) -> bool:
        return read_word(self.record, 16) == sum_record(self._view)

    # Writing

    def append(self, record: memoryview) -> bool:
        """Write a whole record to the head; False if there is no room for it."""
        while self._at + len(record) <= self.size or self.advance():
            at = self._at
            if self.medium.program(self.head, record, at):
                self._at = self._ends[self.head] = at + len(record)
                if record[1] == NOTE:
                    self._add(self.head, record)
                else:
                    self._holder = self.head
                return True
            self._at = self.size  # nothing goes behind what may be half a record
        return False

    def save_state(self) -> bool:
        """Write the state; False if there is no room."""
        return self.append(self._build_state())

    def kill(self, block: int, at: int, size: int) -> bool:
        """Mark a record as dead; False if the flash refuses."""
        if not self.medium.clear(block, at):
            return False
        self.live[block] -= size
        return True

    def release(self) -> None:
        """Measure again after an acknowledgement."""
        mark = (self.words[ACK_EPOCH], self.words[ACK_SEQUENCE])
        for block in range(len(self.live)):
            if self.live[block] and self._low[block] <= mark:
                if self._high[block] <= mark:
                    self.live[block] = 0
                else:
                    self._survey(block)

    def advance(self) -> bool:
        """Go on in a free block, if that leaves one to copy to."""
        free = self.list_free()
        while len(free) > 1:
            if self._open(free.pop(0), 0):
                return True
        return False

    def list_free(self) -> list[int]:
        """Return the blocks that may be erased, those behind the head first: wear is spread."""
        count = len(self.live)
        order = [(self.head + 1 + i) % count for i in range(count)]
        kept = (self.head, self._holder)
        return [b for b in order if b not in kept and not self.live[b] and not self._bad[b]]

    def find_sparse(self) -> int:
        """Return the block with the fewest bytes alive among those that can be moved, or -1."""
        best = -1
        free = self.list_free()
        for block in range(len(self.live)):
            movable = self.generations[block] and block not in free and not self._bad[block]
            if movable and (best < 0 or self.live[block] < self.live[best]):
                best = block
        return best

    def move(self, victim: int) -> bool:
        """Copy what lives in a block to a free one, which becomes the head."""
        for spare in self.list_free():
            before = self.head
            if not self._open(spare, self.generations[victim]):
                continue
            if self._copy(victim, spare):
                self.medium.sync()
                if self._retire(victim):
                    return True
                self._bad[victim] = True
            else:
                self._bad[spare] = True
            self._retire(spare)
            self.head = self._holder = before
            self._at = self.size
            if self._bad[victim]:
                break
        return False

    def _copy(self, victim: int, spare: int) -> bool:
        for _ in self.scan(victim):
            if self.is_live():
                view = self._view[: measure(self.record[2])]
                if not self.medium.program(spare, view, self._at):
                    return False
                self._at = self._ends[spare] = self._at + len(view)
                self._add(spare, view)
        return True

    def _open(self, block: int, source: int) -> bool:
        """Erase a block and begin it with its head and the state; it is the head then."""
        generation = max(self.generations) + 1
        start = bytearray(HEAD)
        start[0] = LIVE
        start[1:4] = _MAGIC
        write_word(start, 4, generation)
        write_word(start, 8, source)
        write_word(start, 12, crc32(memoryview(start)[1:12]))
        start += self._build_state()
        self.generations[block] = 0
        if not self._erase(block) or not self.medium.program(block, memoryview(start), 0):
            self._bad[block] = True
            self._retire(block)
            return False
        self.medium.sync()
        self.head = self._holder = block
        self.generations[block] = generation
        self.live[block] = 0
        self._at = self._ends[block] = len(start)
        return True

    def _build_state(self) -> memoryview:
        record = bytearray(self._state_size)
        record[0] = LIVE
        record[1] = STATE
        record[2] = 4 * len(self.words)
        for i in range(len(self.words)):
            write_word(record, RECORD + 4 * i, self.words[i])
        view = memoryview(record)
        write_word(record, 16, sum_record(view))
        return view

    def _erase(self, block: int) -> bool:
        self.medium.sync()  # what made the block free comes first
        if not self.medium.erase(block):
            return False
        self.medium.sync()
        return True

    def _retire(self, block: int) -> bool:
        """Make a block count for nothing, now and after a cut."""
        if not self.medium.clear(block, 0) and not self.medium.erase(block):
            return False
        self.medium.sync()
        self.generations[block] = 0
        self.live[block] = 0
        return True


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


class CarvedBlocks:
    """Blocks that a board's file system has given to files, used as raw flash.

    A file system on flash copies a block for every change that must last. So the spool asks it
    once for `count` files of one block each, finds by a mark which blocks these are, and then
    erases and programs the blocks themselves. littlefs never moves a file's data, never looks into
    it, and keeps no pointers in the only block of a file: what it knows of these files stays true.
    The places are kept in `path`.map; a file that is not where it was is carved anew.
    """

    def __init__(self, path: str, count: int, device: "BlockDevice") -> None:
        self.device = device
        self.count = count
        self.size = device.ioctl(SIZE, 0)
        self._buffer = memoryview(bytearray(2 * _MARK))
        self._places = self._read_map(path, count)
        if -1 in self._places:
            for i in range(count):
                if self._places[i] < 0:
                    self._places[i] = self._carve(path + "." + str(i))
            with open(path + ".map", "wb") as file:  # noqa: PTH123 - no pathlib on a device
                file.write(array("H", self._places))

    def _read_map(self, path: str, count: int) -> list[int]:
        """Return where the files stand, -1 for those that are not where they were."""
        places = [-1] * count
        try:
            with open(path + ".map", "rb") as file:  # noqa: PTH123
                known = array("H", file.read())
        except OSError:
            return places
        for i in range(min(count, len(known))):
            if self._is_at(path + "." + str(i), known[i]):
                places[i] = known[i]
        return places

    def _is_at(self, name: str, place: int) -> bool:
        """Return whether a file of one block has the bytes of that place."""
        mine = self._buffer[:_MARK]
        raw = self._buffer[_MARK:]
        try:
            with open(name, "rb") as file:  # noqa: PTH123
                if file.seek(0, 2) != self.size:
                    return False
                file.seek(0)
                file.readinto(mine)
            self.device.readblocks(place, raw, 0)
        except OSError:
            return False
        return mine == raw

    def _carve(self, name: str) -> int:
        """Make a file of one block, and return where it stands."""
        from os import urandom

        mark = urandom(_MARK)
        with open(name, "wb") as file:  # noqa: PTH123
            left = self.size
            while left:
                left -= file.write(mark)
        raw = self._buffer[:_MARK]
        for place in range(self.device.ioctl(COUNT, 0)):
            self.device.readblocks(place, raw, 0)
            if raw == mark:
                return place
        raise RingError("no block of " + name)

    def readblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Fill the buffer from a place in a block."""
        self.device.readblocks(self._places[block], buf, offset)

    def writeblocks(self, block: int, buf: bytes, offset: int = 0) -> None:
        """Program the buffer to a place in a block."""
        self.device.writeblocks(self._places[block], buf, offset)

    def ioctl(self, operation: int, argument: int) -> int:
        """Answer COUNT; hand over the rest."""
        if operation == COUNT:
            return self.count
        if operation == ERASE:
            argument = self._places[argument]
        return self.device.ioctl(operation, argument)


class PagedBlocks:
    """Flash that is programmed by whole pages (RP2040: 256 bytes), for writes of any size.

    The rest of the page is programmed with ones, which leaves flash as it is.
    """

    def __init__(self, device: "BlockDevice", page: int = 256) -> None:
        self.device = device
        self.readblocks = device.readblocks
        self.ioctl = device.ioctl
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
            self.device.writeblocks(block, page, start)
            done = start + len(page) - offset


def find_partition(label: str) -> "BlockDevice":
    """Return the raw data partition of that name (ESP32)."""
    from esp32 import Partition

    found = Partition.find(Partition.TYPE_DATA, label=label)
    if not found:
        raise OSError(label)
    return found[0]


def find_flash(start: int, length: int) -> "BlockDevice":
    """Return a part of the flash that no file system uses (RP2040, RP2350)."""
    from rp2 import Flash

    return PagedBlocks(Flash(start=start, len=length))


def open_file(path: str, count: int) -> "BlockDevice":
    """Return blocks of a file: of the flash below it on a board, of the file itself on a PC."""
    device: BlockDevice
    try:
        from flashbdev import bdev as device  # where an ESP32 has its file system
    except ImportError:
        try:
            from rp2 import Flash
        except ImportError:
            return FileBlocks(path, count)
        device = PagedBlocks(Flash())
    return CarvedBlocks(path, count, device)
