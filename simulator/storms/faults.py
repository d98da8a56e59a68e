"""Faults of a real process's disk and clock: the library faults.c, and its page of numbers.

A library below libc, and not a file system of SQLite's own (apsw has those): the node's store is
Python's sqlite3 and its log is plain files, so only what lies below both tests what is shipped. The
compiler is the machine's; without one, these storms are skipped by name.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("faults.c")
_NOTE = struct.Struct("=5q")
_WRITTEN, _SYNCED = 0, 1
NEVER = -1
HONEST, LYING, FAILING = 0, 1, 2  # what a sync does


class Number(IntEnum):
    """What is on the page, in the order of faults.c. Countdowns are NEVER, or how many succeed."""

    CLOCK = 0  # s that the wall clock is ahead
    ROOM = 1  # bytes by which files may grow; NEVER: no bound
    OPENS = 2  # the errno with which every open fails; 0: none
    READS = 3  # countdown: reads until they fail with EIO
    WRITES = 4  # countdown: writes until they fail with ENOSPC
    TEAR = 5  # countdown: writes until one is torn, and the power fails
    SYNCS = 6  # HONEST, LYING, FAILING
    NOTES = 7  # 1: writes are noted, to be undone
    DONE_WRITES = 8
    DONE_SYNCS = 9


_CALM = {Number.ROOM: NEVER, Number.READS: NEVER, Number.WRITES: NEVER, Number.TEAR: NEVER}


class FaultsMissing(RuntimeError):
    """There is no compiler on this machine."""


class FaultNote(NamedTuple):
    """A write, with what it replaced; or a sync."""

    kind: int
    inode: int
    offset: int
    size: int  # of the file before
    replaced: bytes


class Faults:
    """What goes wrong for one process, in one folder."""

    def __init__(self, folder: Path, data: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise FaultsMissing("no C compiler (Debian: apt-get install gcc)")
        self._library = folder / "faults.so"
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)]
        subprocess.run([*command, "-ldl", "-lpthread"], check=True)
        self._data = data
        self._undo = folder / "undo"
        control = folder / "faults"
        control.write_bytes(bytes(8 * len(Number)))
        with control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8 * len(Number))
        self._control = control
        self.calm()

    @property
    def prefix(self) -> Sequence[str]:
        """What to put before a command."""
        return (
            "env",
            f"LD_PRELOAD={self._library}",
            f"DENWATCH_FAULTS={self._control}",
            f"DENWATCH_FAULTS_FOLDER={self._data}",
            f"DENWATCH_FAULTS_UNDO={self._undo}",
        )

    def set(self, number: Number, value: int) -> None:
        """Set one number, from now on."""
        struct.pack_into("=q", self._page, 8 * number, value)

    def get(self, number: Number) -> int:
        """Return a number."""
        return int(struct.unpack_from("=q", self._page, 8 * number)[0])

    def calm(self) -> None:
        """Let nothing go wrong."""
        for number in Number:
            self.set(number, _CALM.get(number, 0))

    # Power cuts -----------------------------------------------------------------------------

    def begin_notes(self) -> None:
        """Note writes from now on, all before being on the disk."""
        self._forget_notes()
        self.set(Number.NOTES, 1)

    def lose_unsynced(self) -> int:
        """Undo every write since its file's last sync; the process must be dead. Return how many.

        A note may be cut off at its end: its write had not begun.
        """
        self.set(Number.NOTES, 0)
        notes = list(self._read_notes())
        self._forget_notes()
        paths = {path.stat().st_ino: path for path in self._data.rglob("*") if path.is_file()}
        settled: set[int] = set()
        undone = 0
        for found in reversed(notes):
            if found.kind == _SYNCED:
                settled.add(found.inode)
            elif found.inode not in settled and found.inode in paths:
                with paths[found.inode].open("r+b") as file:
                    file.seek(found.offset)
                    file.write(found.replaced)
                    file.truncate(found.size)
                undone += 1
        return undone

    def _forget_notes(self) -> None:
        if self._undo.exists():  # a running process has it open, and appends
            os.truncate(self._undo, 0)

    def _read_notes(self) -> Sequence[FaultNote]:
        if not self._undo.exists():
            return ()
        data, at, notes = self._undo.read_bytes(), 0, []
        while at + _NOTE.size <= len(data):
            kind, inode, offset, size, length = _NOTE.unpack_from(data, at)
            at += _NOTE.size
            if at + length > len(data):
                break
            notes.append(FaultNote(kind, inode, offset, size, data[at : at + length]))
            at += length
        return notes


def flip_bit(path: Path, offset: int, bit: int = 0) -> None:
    """Change one bit of a file, as a tired disk does."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))
        file.flush()
        os.fsync(file.fileno())
