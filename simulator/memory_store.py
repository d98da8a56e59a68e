"""The model of a node's store: in memory, with the same promises. Touches no disk.

`EmulatedDisk` is the disk: what is on it survives. `MemoryStore` is the process that has it open:
its `crash` loses what was not committed, and with `EmulatedDisk(syncs=False)`, a disk that
acknowledges before it has written, also the last commits. `Faults` plans what fails at which
operation:

    faults = Faults()
    faults.plan("commit", 1, "crash-after")  # the first commit is on the disk, its caller dead
    faults.plan("any", 17, "crash")          # die at the seventeenth operation, whatever it is
    store = MemoryStore("north", disk := EmulatedDisk(), faults=faults)

Operations are counted from 1 over the life of the object, across reopening, so that a test can run
a scenario once to count them and then again with a fault at each. Deterministic throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, get_args

from denwatch.node.log.writer import OutboxRow
from denwatch.node.store.interface import (
    Change,
    CommitGroup,
    StoreBusy,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
    check_boundary,
    split_records,
)

Operation = Literal["open", "get", "scan", "apply", "commit", "outbox", "any"]
Fault = Literal["crash", "crash-after", "full", "failed"]
Spaces = dict[str, dict[bytes, bytes]]
_MISSING = object()


class Crashed(BaseException):
    """The emulated process died.

    Not an `Exception`, so that no handler of the code under test survives its own death.
    """


class Faults:
    """Which operations fail, and how many operations there were so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(get_args(Operation), 0)
        self._plan: dict[tuple[str, int], Fault] = {}

    def plan(self, operation: Operation, number: int, fault: Fault) -> None:
        """Make the operation with this number fail.

        "crash" dies before it has any effect, "crash-after" when its effect is complete, "full" and
        "failed" raise `StoreFull` and `StoreFailed`, with the group undone.
        """
        if fault not in get_args(Fault) or operation not in get_args(Operation):
            raise ValueError(f"no fault {fault!r} at {operation!r}")
        self._plan[operation, number] = fault

    def count(self, operation: Operation) -> Fault | None:
        """Count one operation, and return the fault planned for it."""
        self.counts[operation] += 1
        self.counts["any"] += 1
        return self._plan.get((operation, self.counts[operation])) or self._plan.get(
            ("any", self.counts["any"])
        )


@dataclass
class EmulatedDisk:
    """What is on the emulated disk. `syncs` False: commits are safe only after `sync`."""

    syncs: bool = True
    node: str = ""
    epoch: int = 0
    settled: int = 1
    spaces: Spaces = field(default_factory=dict)
    outbox: list[OutboxRow] = field(default_factory=list)
    is_open: bool = False
    # States before each commit, oldest first.
    unsynced: list[EmulatedDisk] = field(default_factory=list)

    def copy(self) -> EmulatedDisk:
        """Return a snapshot of the disk, independent of it."""
        twin = EmulatedDisk(self.syncs, self.node, self.epoch, self.settled)
        twin.spaces = {space: dict(rows) for space, rows in self.spaces.items()}
        twin.outbox = list(self.outbox)
        twin.unsynced = deepcopy(self.unsynced)
        return twin

    def sync(self) -> None:
        """Write everything acknowledged so far."""
        self.unsynced.clear()

    def lose(self, keep: int) -> None:
        """Lose what was acknowledged but not written, all but the first `keep` commits of it."""
        if keep < len(self.unsynced):
            before = self.unsynced[keep]
            self.epoch, self.settled = before.epoch, before.settled
            self.spaces, self.outbox = before.spaces, before.outbox
        self.unsynced.clear()


class MemoryStore:
    """A node's store on an `EmulatedDisk`; see `Storage` for what it promises."""

    def __init__(
        self,
        node: str,
        medium: EmulatedDisk | None = None,
        *,
        faults: Faults | None = None,
        first_epoch: int = 1,
    ) -> None:
        self.medium = medium if medium is not None else EmulatedDisk()
        self.faults = faults
        self._group = CommitGroup()
        self._failure: StoreError | None = None
        self._is_dead = False
        if self.medium.is_open:
            raise StoreBusy("the store is open already: close it, or crash it, first")
        if self.medium.node not in ("", node):
            raise StoreForeign(f"the store belongs to the node {self.medium.node!r}, not {node!r}")
        dies = self._begin("open")
        self._keep_old()
        self.medium.node = node
        self.medium.epoch = max(self.medium.epoch + 1, first_epoch)
        self.medium.is_open = True
        outbox = self.medium.outbox
        self._next = outbox[-1].first + outbox[-1].length if outbox else self.medium.settled
        self._finish(dies)

    @property
    def node(self) -> str:
        """The node that the store belongs to."""
        return self.medium.node

    @property
    def epoch(self) -> int:
        """How often the store was opened."""
        return self.medium.epoch

    @property
    def next_number(self) -> int:
        """The number that the next log record will get."""
        return self._next + len(self._group.logs)

    @property
    def settled(self) -> int:
        """All log records below this number are durably gone from the outbox."""
        return self.medium.settled

    # Reading --------------------------------------------------------------------------------

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        dies = self._begin("get")
        value = self._find(space, key)
        self._finish(dies)
        return value

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        dies = self._begin("scan")
        keys = set(self.medium.spaces.get(space, ())) | set(self._group.spaces.get(space, ()))
        found = sorted(key for key in keys if key.startswith(prefix))
        self._finish(dies)
        for key in found:
            self._use()
            value = self._find(space, key)
            if value is not None:
                yield key, value

    def _find(self, space: str, key: bytes) -> bytes | None:
        value = self._group.spaces.get(space, {}).get(key, _MISSING)
        if value is not _MISSING:
            return value  # type: ignore[return-value]  # bytes or None: _MISSING is gone
        return self.medium.spaces.get(space, {}).get(key)

    # Writing --------------------------------------------------------------------------------

    def apply(self, changes: Iterable[Change], logs: Iterable[bytes] = ()) -> None:
        """Make the changes and add the encoded log records, in the open group."""
        dies = self._begin("apply")
        self._group.add(changes, logs)
        self._finish(dies)

    def commit(self) -> bool:
        """Make everything applied durable. False: there was nothing to do."""
        self._use()
        group, medium = self._group, self.medium
        if not group:
            return False
        dies = self._begin("commit")
        self._keep_old()
        for space, rows in group.take_changes().items():
            kept = medium.spaces.setdefault(space, {})
            for key, value in rows.items():
                if value is None:
                    kept.pop(key, None)
                else:
                    kept[key] = value
        for records in split_records(group.logs):
            row = OutboxRow(self._next, len(records), self.epoch, b"".join(records))
            medium.outbox.append(row)
            self._next += len(records)
        if group.drop_before:
            medium.outbox = [row for row in medium.outbox if row.first >= group.drop_before]
            medium.settled = group.drop_before
        self._group = CommitGroup()
        self._finish(dies)
        return True

    def rollback(self) -> None:
        """Discard everything applied since the last commit; needed after `StoreFull`."""
        if isinstance(self._failure, StoreFull):
            self._failure = None
        self._use()
        self._group = CommitGroup()

    # Outbox of the log ----------------------------------------------------------------------

    def read_outbox(self, limit: int) -> list[OutboxRow]:
        """Return the oldest committed rows, up to the one that makes `limit` records."""
        dies = self._begin("outbox")
        rows: list[OutboxRow] = []
        count = 0
        for row in self.medium.outbox:
            if row.first >= self._group.drop_before and count < limit:
                rows.append(row)
                count += row.length
        self._finish(dies)
        return rows

    def drop_outbox(self, before: int) -> None:
        """Remove the rows that end at or before this number, in the open group."""
        dies = self._begin("outbox")
        if before > max(self.settled, self._group.drop_before):
            ends = [row.first + row.length for row in self.medium.outbox if row.first < before]
            check_boundary(before, ends[-1] if ends else None)
            self._group.drop_before = before
        self._finish(dies)

    # The life of the store ------------------------------------------------------------------

    def close(self) -> None:
        """Discard what is not committed, and release the disk."""
        if not self._is_dead:
            self._is_dead = True
            self._group = CommitGroup()
            self.medium.is_open = False

    def crash(self, keep: int = 0) -> EmulatedDisk:
        """Die here: lose what was not committed, and what a disk that does not sync still had in
        its cache, all but the first `keep` commits of that. Returns what is left."""
        self.close()
        self.medium.lose(keep)
        return self.medium

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside ---------------------------------------------------------------------------------

    def _use(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_dead:
            raise StoreFailed("the store is closed")

    def _keep_old(self) -> None:
        if not self.medium.syncs:
            before = self.medium.copy()
            before.unsynced = []
            self.medium.unsynced.append(before)

    def _begin(self, operation: Operation) -> bool:
        """Count the operation and raise its fault; True: crash when the operation is done."""
        self._use()
        fault = self.faults.count(operation) if self.faults is not None else None
        if fault is None:
            return False
        if fault == "crash":
            self.close()
            raise Crashed(f"at {operation}")
        if fault == "crash-after":
            return True
        self._group = CommitGroup()
        kind = StoreFull if fault == "full" else StoreFailed
        self._failure = kind(f"injected at {operation}: what was not committed is undone")
        raise self._failure

    def _finish(self, dies: bool) -> None:
        if dies:
            self.close()
            raise Crashed("after the operation")
