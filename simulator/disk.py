"""The disk of an emulated node: the memory store, with scans that do not look at every key.

Nodes ask for all keys that begin alike at each contact; over a day of contacts the plain store
would sort its keys a hundred thousand times. Promises and faults are the memory store's own, and
these: a disk that lies says "written" and forgets the last commits when its node dies; one that is
full is so at every write and at opening, until somebody makes room; one that decays gives back
values with a bit or a half of them changed, or an error instead of them. What it gives back has
its old checksum, by which the store knows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from random import Random

from denwatch.node.core.mending import DAMAGED, write_row
from denwatch.node.store import interface
from denwatch.node.store.interface import SUMS, StoreDecayed, StoreFailed, find_prefix_end

from simulator.memory_store import EmulatedDisk, Fault, Faults, MemoryStore, Operation

_WRITING = ("open", "commit")  # what needs room on the disk


class FieldMedium(EmulatedDisk):
    """A disk that also knows the order of its keys, and what it lost."""

    def __init__(self) -> None:
        super().__init__()
        self.order: dict[str, list[bytes]] = {}
        self.lost: set[tuple[str, bytes]] = set()  # spaces and keys
        self.losses = 0  # commits that it had promised to keep
        self.decayed: dict[tuple[str, bytes], bytes] = {}  # changed by nobody: what was there
        self.unreadable: set[tuple[str, bytes]] = set()
        self.sums: dict[tuple[str, bytes], bytes] = {}  # of what decayed, as it was written
        self.served: set[tuple[str, bytes]] = set()  # what a store returned all the same

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

    def decay(self, rng: Random, how: str) -> str:
        """Change one value: "flip" a bit, "tear" off its end, or make it "unreadable".

        Return the space of it, "" if the disk is empty.
        """
        spaces = sorted(space for space, rows in self.spaces.items() if rows)
        if not spaces:
            return ""
        space = rng.choice(spaces)
        key = rng.choice(sorted(self.spaces[space]))
        value = bytearray(self.spaces[space][key])
        if how == "unreadable":
            self.unreadable.add((space, key))
        elif how == "tear" or not value:
            half = len(value) // 2
            value[half:] = bytes(len(value) - half)
        else:
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        before = self.spaces[space][key]
        self.decayed.setdefault((space, key), before)
        if bytes(value) != before and (space, key) not in self.sums:
            sealed = interface.seal_value(interface.seed_space(space), key, before)
            self.sums[space, key] = sealed[-SUMS:]
        self.spaces[space][key] = bytes(value)
        return space

    def mend(self) -> None:
        """Put back what decayed and is still there: somebody has a copy of the disk.

        What was written anew since is as it should be.
        """
        for space, key in self.sums:
            if key in self.spaces.get(space, {}):
                self.spaces[space][key] = self.decayed[space, key]
        self.unreadable.clear()
        self.sums.clear()

    def is_right(self, space: str, key: bytes) -> bool:
        """Return whether a value has the checksum that it was written with."""
        sums = self.sums.get((space, key))
        value = self.spaces.get(space, {}).get(key)
        if sums is None or value is None:
            return True
        return interface.open_value(interface.seed_space(space), key, value + sums) is not None

    def measure(self) -> int:
        """Return the bytes of all keys and values."""
        rows = (row for space in self.spaces.values() for row in space.items())
        return sum(len(key) + len(value) for key, value in rows)


class FieldFaults(Faults):
    """A plan of faults that can be given up; `is_full`: there is no room, until somebody makes it.

    `unopened` is how many more times the store cannot be opened: the process has too many files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.unopened = 0

    def clear(self) -> None:
        """Let nothing more go wrong."""
        self._plan.clear()
        self.is_full = False
        self.unopened = 0

    def count(self, operation: Operation) -> Fault | None:
        """Count one operation, and return the fault planned for it."""
        planned = super().count(operation)
        if planned is None and self.is_full and operation in _WRITING:
            return "full"
        if operation == "open" and self.unopened:
            self.unopened -= 1
            return "full"  # of files, which is the same to whoever opens it
        return planned


class FieldStore(MemoryStore):
    """A node's store on such a disk."""

    medium: FieldMedium

    def __init__(
        self,
        node: str,
        medium: FieldMedium,
        faults: Faults | None = None,
        *,
        first_epoch: int = 1,
    ) -> None:
        super().__init__(node, medium, faults=faults, first_epoch=first_epoch)
        self._quarantine()

    def _quarantine(self) -> None:
        """Put what decayed where a real store would put it."""
        medium = self.medium
        for space, key in [place for place in medium.sums if not medium.is_right(*place)]:
            del medium.sums[space, key]
            medium.lost.add((space, key))
            name, value = write_row(space, key, medium.spaces[space].pop(key), is_key_right=True)
            if space != DAMAGED:
                medium.spaces.setdefault(DAMAGED, {})[name] = value
            self._reorder([(space, key), (DAMAGED, name)])

    def _find(self, space: str, key: bytes) -> bytes | None:
        if self.medium.unreadable and (space, key) in self.medium.unreadable:
            written = self._group.spaces.get(space, {})
            if key not in written:
                raise StoreFailed(f"the value at {key!r} in {space} cannot be read")
        if (space, key) in self.medium.sums and key not in self._group.spaces.get(space, {}):
            if not self.medium.is_right(space, key):
                self._group = interface.CommitGroup()
                self._failure = StoreDecayed(f"the value at {key!r} in {space} is damaged")
                raise self._failure
            self.medium.served.add((space, key))
        return super()._find(space, key)

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
        medium = self.medium
        written = [(s, key) for s, rows in self._group.spaces.items() for key in rows]
        if medium.unreadable or medium.sums:
            medium.unreadable.difference_update(written)
            for place in written:
                medium.sums.pop(place, None)
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
