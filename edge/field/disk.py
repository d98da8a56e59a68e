"""The disk of an emulated node: the memory store, with scans that do not look at every key.

Nodes ask for all keys that begin alike at each contact; over a day of contacts the plain store
would sort its keys a hundred thousand times. Promises and faults are the memory store's own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from edge.dens.store import Faults, Medium, MemoryStore
from edge.dens.store.group import find_prefix_end


class FieldMedium(Medium):
    """A disk that also knows the order of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.order: dict[str, list[bytes]] = {}

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
        changed = {space: list(rows) for space, rows in self._group.spaces.items()}
        before = {
            space: {key for key in keys if key in self.medium.spaces.get(space, ())}
            for space, keys in changed.items()
        }
        done = False
        try:
            done = super().commit()
        finally:
            self._reorder(changed, before)
        return done

    def _reorder(self, changed: dict[str, list[bytes]], before: dict[str, set[bytes]]) -> None:
        for space, keys in changed.items():
            rows = self.medium.spaces.get(space, {})
            order = self.medium.order.setdefault(space, [])
            for key in keys:
                if key in rows and key not in before[space]:
                    insort(order, key)
                elif key not in rows and key in before[space]:
                    del order[bisect_left(order, key)]
