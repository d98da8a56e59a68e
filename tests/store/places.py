"""Both kinds of store behind one handle: a place to open a store at, again and again."""

from __future__ import annotations

from pathlib import Path

from denwatch.node.store import Storage, Store

from simulator.memory_store import EmulatedDisk, MemoryStore


class DiskPlace:
    """A file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "north.db"
        self._opened: list[Store] = []

    def open(self, node: str = "north", first_epoch: int = 1) -> Store:
        store = Store(self.path, node, first_epoch=first_epoch)
        self._opened.append(store)
        return store

    def crash(self, store: Storage) -> None:
        """Lose the process: what is not committed goes, nothing is closed in order.

        Real kills are in `test_kills`; here the files are copied as they are at this moment, and
        the copy is what the next `open` finds.
        """
        assert isinstance(store, Store)
        twin = self.path.with_name(f"{len(self._opened)}-{self.path.name}")
        for ending in ("", "-wal"):
            source = Path(f"{self.path}{ending}")
            if source.exists():
                Path(f"{twin}{ending}").write_bytes(source.read_bytes())
        self.path = twin

    def clean(self) -> None:
        for store in self._opened:
            store.close()


class MemoryPlace:
    """A medium."""

    def __init__(self) -> None:
        self.medium = EmulatedDisk()

    def open(self, node: str = "north", first_epoch: int = 1) -> MemoryStore:
        return MemoryStore(node, self.medium, first_epoch=first_epoch)

    def crash(self, store: Storage) -> None:
        assert isinstance(store, MemoryStore)
        store.crash()

    def clean(self) -> None:
        self.medium.is_open = False


Place = DiskPlace | MemoryPlace
