"""Files that hold secrets: the only file of this folder that opens any.

A secret file is readable by its owner alone (mode 0600), or it is refused. It is replaced whole: a
new file beside it, written through to the disk, renamed over it. Two commands at once wait for each
other at a lock.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from denwatch.node.security.document import read_registry, write_registry
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.registry import Registry

KEYS_FILE = "keys.json"
MAX_FILE = 64 << 20
_MODE = 0o600


def read_secret_file(path: Path) -> bytes:
    """Return the content of a file that only its owner may read."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise SecurityError(f"{path}: not a file")
            if mode & 0o077:
                raise SecurityError(
                    f"{path}: others may read it (mode {mode & 0o777:04o}); "
                    f"`chmod 600 {path}`, and rotate its keys if somebody did"
                )
            data = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE:
        raise SecurityError(f"{path}: more than {MAX_FILE} bytes")
    return data


def write_file(path: Path, data: bytes, mode: int = _MODE) -> None:
    """Replace a file whole, or leave it as it was; on the disk when this returns."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # O_EXCL and the mode from the start: nobody gets at it between creation and chmod.
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), mode)  # whatever the umask
                os.fsync(stream.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None


class KeyFile:
    """`keys.json` in a node's folder, and whether it changed since it was read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / KEYS_FILE
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> Registry:
        """Return the registry of the file."""
        self._seen = self._look()
        data = read_secret_file(self.path)
        try:
            return read_registry(data)
        except SecurityError as error:
            raise SecurityError(f"{self.path}: {error}") from None

    def load_if_changed(self) -> Registry | None:
        """Return the registry if the file is another one than at the last load."""
        return None if self._look() == self._seen else self.load()

    def save(self, registry: Registry) -> None:
        """Replace the file."""
        write_file(self.path, write_registry(registry))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other commands from changing the file meanwhile."""
        try:
            handle = os.open(self.path.parent / f".{KEYS_FILE}.lock", os.O_RDWR | os.O_CREAT, _MODE)
        except OSError as error:
            raise SecurityError(f"{self.path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _look(self) -> tuple[int, int, int] | None:
        # The number of the file changes at every replacement, even within one tick of the clock.
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
