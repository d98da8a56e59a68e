"""The lock beside a store: one live process at a time, and its number for whoever is refused.

The kernel lets go of the lock when the process ends, however it ends: there are no stale locks.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from denwatch.node.store.errors import StoreBusy


class Lock:
    """Held from construction until `release`."""

    def __init__(self, store: Path) -> None:
        path = store.with_name(store.name + ".lock")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            raise StoreBusy(
                f"the store {store} is in use by process {owner or 'unknown'}: stop that one, or"
                " give this node a store of its own"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go. The file stays: removing it could take it from under the next owner."""
        os.close(self._file)
