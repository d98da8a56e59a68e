"""The directory of a node's log. The only file that writes segments; a test puts another in its
place to cut the power between any two calls.

Names are durable after `sync_directory`, bytes after `sync`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """What the writer needs of a directory."""

    def list_names(self) -> list[str]:
        """Return the names of all files."""

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""

    def create(self, name: str, data: bytes) -> None:
        """Begin a file that must not exist."""

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a file."""

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, which must be free."""

    def remove(self, name: str) -> None:
        """Delete a file."""

    def sync_directory(self) -> None:
        """Make names durable."""


class DiskFiles:
    """A directory on the disk, made if it is not there."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def list_names(self) -> list[str]:
        """Return the names of all files, in order."""
        return sorted(path.name for path in self.directory.iterdir() if path.is_file())

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        return (self.directory / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Begin a file that must not exist."""
        self._write(name, data, os.O_CREAT | os.O_EXCL)

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a file."""
        self._write(name, data, os.O_APPEND)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        os.truncate(self.directory / name, size)

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""
        descriptor = os.open(self.directory / name, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, which must be free."""
        target = self.directory / new
        if target.exists():
            raise FileExistsError(f"{target} is there already")
        (self.directory / old).rename(target)

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self.directory / name).unlink()

    def sync_directory(self) -> None:
        """Make names durable."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems cannot; then they need not
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write(self, name: str, data: bytes, flags: int) -> None:
        descriptor = os.open(self.directory / name, os.O_WRONLY | os.O_CLOEXEC | flags, 0o640)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
