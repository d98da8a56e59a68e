"""A directory that loses its power: the writer's file port, in memory.

Bytes are durable after `sync`, names after `sync_directory`. A cut before any chosen operation, or
in the middle of it, leaves what a real disk may leave: of bytes that were not synced any part, also
later pages without earlier ones (zeros in between); of names that were not synced, the old or the
new ones.
"""

from __future__ import annotations

from random import Random

from simulator.memory_store import Crashed

PAGE = 64


class CrashingFiles:
    """Counts operations; dies before the one with the number `cut`, half-way if it writes."""

    def __init__(self, chance: Random, cut: int = 0) -> None:
        self.files: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}  # bytes that are durable, by the file's present name
        self.durable: dict[str, str] = {}  # durable name: the present name of that file
        self.operations = 0
        self.cut = cut
        self.fail_at = 0  # the operation that raises OSError instead
        self._chance = chance

    def _count(self) -> None:
        self.operations += 1
        if self.operations == self.cut:
            raise Crashed(f"before operation {self.cut}")
        if self.operations == self.fail_at:
            raise OSError(28, "no space left")

    def list_names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def create(self, name: str, data: bytes) -> None:
        if name in self.files:
            raise FileExistsError(name)
        self.files[name] = b""
        self.synced[name] = b""
        self._write(name, data)

    def append(self, name: str, data: bytes) -> None:
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._count()
        except BaseException:
            self.files[name] += data[: self._chance.randrange(len(data) + 1)]
            raise
        self.files[name] += data

    def truncate(self, name: str, size: int) -> None:
        self._count()
        self.files[name] = self.files[name][:size]

    def sync(self, name: str) -> None:
        self._count()
        self.synced[name] = self.files[name]

    def rename(self, old: str, new: str) -> None:
        self._count()
        if new in self.files:
            raise FileExistsError(new)
        self.files[new] = self.files.pop(old)
        self.synced[new] = self.synced.pop(old)
        self.durable = {name: new if at == old else at for name, at in self.durable.items()}

    def remove(self, name: str) -> None:
        self._count()
        del self.files[name]

    def sync_directory(self) -> None:
        self._count()
        self.durable = {name: name for name in self.files}

    def crash(self, is_power_cut: bool) -> CrashingFiles:
        """Return the directory as the next start finds it."""
        left = CrashingFiles(self._chance)
        if not is_power_cut:  # only the process died: the machine has everything
            left.files = dict(self.files)
        elif self._chance.random() < 0.5:
            left.files = {name: self._lose(name) for name in self.files}
        else:
            left.files = {
                name: self._lose(at) for name, at in self.durable.items() if at in self.files
            }
        left.synced = dict(left.files)
        left.durable = {name: name for name in left.files}
        return left

    def _lose(self, name: str) -> bytes:
        safe, cached = self.synced[name], self.files[name]
        if not cached.startswith(safe):  # a truncation that is not synced may or may not be there
            return self._chance.choice([safe, cached])
        data = bytearray(cached[: self._chance.randrange(len(safe), len(cached) + 1)])
        for start in range(len(safe), len(data), PAGE):
            if self._chance.random() < 0.3:
                end = min(start + PAGE, len(data))
                data[start:end] = bytes(end - start)
        return bytes(data)
