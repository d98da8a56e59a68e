"""The disk of an emulated node: the memory store, with scans that do not look at every key.

Nodes ask for all keys that begin alike at each contact; over a day of contacts the plain store
would sort its keys a hundred thousand times. Promises and faults are the memory store's own. A disk
that lies says "written" and forgets the last commits when its node dies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from denwatch.node.store.interface import find_prefix_end

from simulator.memory_store import EmulatedDisk, Faults, MemoryStore


class FieldMedium(EmulatedDisk):
    """A disk that also knows the order of its keys, and what it lost."""

    def __init__(self) -> None:
        super().__init__()
        self.order: dict[str, list[bytes]] = {}
        self.lost: set[tuple[str, bytes]] = set()  # spaces and keys
        self.losses = 0  # commits that it had promised to keep

    def lose(self, keep: int) -> None:
        """Lose what was said to be written and was not; lie no more from here on."""
        self.losses += max(0, len(self.unsynced) - keep)
        before = self.spaces
        super().lose(keep)
        self.syncs = True
        if before is not self.spaces:
            self.order = {space: sorted(rows) for space, rows in self.spaces.items()}
            self.lost |= {
                (space, key)
                for space, rows in before.items()
                for key in rows.keys() - self.spaces.get(space, {}).keys()
            }

    def measure(self) -> int:
        """Return the bytes of all keys and values."""
        rows = (row for space in self.spaces.values() for row in space.items())
        return sum(len(key) + len(value) for key, value in rows)


class FieldFaults(Faults):
    """A plan of faults that can be given up."""

    def clear(self) -> None:
        """Let nothing more go wrong."""
        self._plan.clear()


class FieldStore(MemoryStore):
    """A node's store on such a disk."""

    medium: FieldMedium

    def __init__(self, node: str, medium: FieldMedium, faults: Faults | None = None) -> None:
        super().__init__(node, medium, faults=faults)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        dies = self._begin("scan")
        keys = self._list_keys(space, prefix)
        self._finish(dies)
        for key in keys:
            self._use()
            value = self._find(space, key)
            if value is not None:
                yield key, value

    def _list_keys(self, space: str, prefix: bytes) -> list[bytes]:
        order = self.medium.order.get(space, [])
        end = find_prefix_end(prefix) if prefix else None
        first = bisect_left(order, prefix)
        found = order[first : len(order) if end is None else bisect_left(order, end)]
        fresh = [key for key in self._group.spaces.get(space, ()) if key.startswith(prefix)]
        if fresh:
            found = sorted({*found, *fresh})
        return found

    def commit(self) -> bool:
        """Make everything applied durable, and keep the order of keys."""
        if not self._group:
            return super().commit()
        moved = [
            (space, key)
            for space, rows in self._group.spaces.items()
            for key, value in rows.items()
            if (value is None) == (key in self.medium.spaces.get(space, ()))
        ]
        try:
            return super().commit()
        finally:
            self._reorder(moved)

    def _reorder(self, moved: list[tuple[str, bytes]]) -> None:
        """Put keys into their order that are now there, and take out those that are not."""
        for space, key in moved:
            order = self.medium.order.setdefault(space, [])
            place = bisect_left(order, key)
            is_known = place < len(order) and order[place] == key
            if key in self.medium.spaces.get(space, ()):
                if not is_known:
                    order.insert(place, key)
            elif is_known:
                del order[place]
