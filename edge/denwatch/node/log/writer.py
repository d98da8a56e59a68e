"""Moves the log from the store's outbox into segments: every record once, whatever crashes between.

THEORY. A record is durable in the outbox with the commit that it belongs to. Moving it is separate,
in three steps: `take` reads rows from the outbox; `write` appends them to the open segment and
syncs it (files only, so another thread may do it); `settle` drops them from the outbox, with the
store's next commit. What was written but not dropped when the node died is recognised by its
numbers: at the start the segments show where they end (`recover`).

INVARIANTS
  1. Rows are dropped only after the segment that has them is synced.
  2. A segment is closed, and so may be copied away, only after its rows are durably dropped.
  3. A segment holds one run of the node; blocks hold whole rows of the outbox.
  4. Bytes are truncated from a segment only if their records are still in the outbox.

EXAMPLE. Records 1 to 10 are in the outbox. `write` appends 1 to 10 and syncs; the power fails
before the commit that drops them. At the next start the segment ends with 10, the outbox still
begins with 1: the writer continues with 11, and `settle` drops 1 to 10. If the block of 6 to 10 was
torn, it is truncated (rule 4) and 6 to 10 are written again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cbor2
from denwatch.node.log import segments
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.reader import Contents, decode_columns, read_segment

BLOCK_RECORDS = 4_096
BLOCK_BYTES = 256 << 10


class OutboxRow(NamedTuple):
    """The log records of one commit, as they wait in a store."""

    first: int  # number of the first record
    length: int  # how many records
    epoch: int  # the boot epoch in which they were written
    records: bytes  # encoded, one after another


class LogOutbox(Protocol):
    """What the writer needs of a store; records wait there until they are in a segment."""

    @property
    def node(self) -> str:
        """The node's name."""

    @property
    def next_number(self) -> int:
        """The number of the next record."""

    @property
    def settled(self) -> int:
        """All records below this number are durably gone from the outbox."""

    def read_outbox(self, limit: int) -> Sequence[OutboxRow]:
        """Return the oldest rows, with about `limit` records."""

    def drop_outbox(self, before: int) -> None:
        """Drop the records below a number, with the next commit."""

    def commit(self) -> bool:
        """Make everything applied durable. False: there was nothing to do."""


class OutboxBatch(NamedTuple):
    """Rows of one run that go from the outbox into a segment."""

    rows: list[OutboxRow]
    settled: int  # records below this number are durably out of the outbox


class Writer:
    """Writes the segments of one node. A segment is closed at a size or an age (ms)."""

    def __init__(
        self,
        store: LogOutbox,
        files: Files,
        *,
        segment_bytes: int = 32 << 20,
        segment_age: int = 3_600_000,
    ) -> None:
        self._store = store
        self._files = files
        self._segment_bytes = segment_bytes
        self._segment_age = segment_age
        found = recover(files, store.node, store.settled, store.next_number)
        self._open = found.segment
        self._next = found.next
        self._is_torn = False  # the last write failed and may have left some of its bytes
        self.settle()

    @property
    def next_number(self) -> int:
        """The number of the next record to be moved."""
        return self._next

    def move(self, now: int, limit: int = 20_000) -> int:
        """Move up to about `limit` records; return how many. Commit the store afterwards.

        After OSError or LogError nothing has changed: the records are still in the outbox.
        """
        moved = self.write(self.take(limit), now)
        self.settle()
        return moved

    def take(self, limit: int = 20_000) -> OutboxBatch:
        """Return the next rows of one run. Reads the store."""
        rows = [row for row in self._store.read_outbox(limit) if row.first >= self._next]
        rows = [row for row in rows if row.epoch == rows[0].epoch]
        return OutboxBatch(rows, self._store.settled)

    def write(self, batch: OutboxBatch, now: int) -> int:
        """Write a batch into the segment and sync it; return the number of records."""
        self._repair()
        segment = self._open
        if segment and batch.settled >= self._next and self._is_due(segment, batch, now):
            self._close_segment(segment)
            segment = None
        if not batch.rows:
            return 0
        first = batch.rows[0]
        if first.first != self._next:
            raise LogError(f"the outbox goes on with record {first.first}, not {self._next}")
        segment = segment or self._begin_segment(first, now)
        if segment.header.epoch != first.epoch:
            return 0  # the old segment stays open until its rows are durably dropped
        return self._append(segment, batch.rows)

    def settle(self) -> None:
        """Drop what is written from the outbox, with the store's next commit."""
        if self._next > self._store.settled:
            self._store.drop_outbox(self._next)

    def close(self, now: int) -> None:
        """Move everything and close the segment; commits the store."""
        self._store.commit()
        while self.move(now) or self._store.settled < self._next:
            self._store.commit()
        self._repair()
        if self._open is not None:
            self._close_segment(self._open)

    def _is_due(self, segment: OpenSegment, batch: OutboxBatch, now: int) -> bool:
        return (
            segment.size >= self._segment_bytes
            or now - segment.header.time >= self._segment_age
            or now < segment.header.time  # the clock was set back: do not wait for years
            or bool(batch.rows and batch.rows[0].epoch != segment.header.epoch)
        )

    def _begin_segment(self, row: OutboxRow, now: int) -> OpenSegment:
        header = segments.Header(self._store.node, row.epoch, row.first, now)
        name = segments.write_name(header.node, header.epoch, header.first)
        if name in self._files.list_names():
            self._files.remove(name)  # left by a failed start: its records are in the outbox
        data = segments.pack_header(header)
        self._files.create(name, data)
        self._open = OpenSegment(name, header, len(data), {}, [])
        self._files.sync_directory()
        return self._open

    def _append(self, segment: OpenSegment, rows: list[OutboxRow]) -> int:
        data = b""
        counts = dict(segment.counts)
        blocks = list(segment.blocks)
        for group in _group_rows(rows):
            records = b"".join(row.records for row in group)
            decoded = _decode(group, records)
            block, head = segments.pack_records(records, decoded, group[0].first)
            entry = (segment.size + len(data), head.first, head.length)
            blocks.append(segments.IndexEntry(*entry, head.earliest, head.latest, head.kinds))
            segments.count_kinds(counts, decoded)
            data += block
        self._is_torn = True  # until the sync has succeeded
        self._files.append(segment.name, data)
        self._files.sync(segment.name)
        self._is_torn = False
        moved = rows[-1].first + rows[-1].length - self._next
        self._open = OpenSegment(
            segment.name, segment.header, segment.size + len(data), counts, blocks
        )
        self._next += moved
        return moved

    def _repair(self) -> None:
        """Truncate what a failed write may have left. Its records are still in the outbox."""
        if self._is_torn and self._open is not None:
            self._files.truncate(self._open.name, self._open.size)
            self._files.sync(self._open.name)
        self._is_torn = False

    def _close_segment(self, segment: OpenSegment) -> None:
        if segment.blocks:
            self._is_torn = True  # a retry truncates the footer, until the file has its new name
            self._files.append(segment.name, segments.pack_footer(segment.build_footer(self._next)))
            self._files.sync(segment.name)
            self._files.rename(
                segment.name, segment.name.removesuffix(segments.OPEN) + segments.CLOSED
            )
            self._is_torn = False
        else:
            self._files.remove(segment.name)
        self._open = None
        self._files.sync_directory()


def _group_rows(rows: list[OutboxRow]) -> list[list[OutboxRow]]:
    """Group rows into blocks."""
    groups: list[list[OutboxRow]] = []
    records = size = 0
    for row in rows:
        records += row.length
        size += len(row.records)
        if not groups or records > BLOCK_RECORDS or size > BLOCK_BYTES:
            groups.append([])
            records, size = row.length, len(row.records)
        groups[-1].append(row)
    return groups


def _decode(group: list[OutboxRow], records: bytes) -> list[list[Any]]:
    length = sum(row.length for row in group)
    rows: list[list[Any]] = cbor2.loads(segments.pack_array_head(length) + records)
    return rows


# Recovery: the files may be as any crash left them (no complete header, a torn block at the end, a
# footer without the new name). What can be repaired is; what is damaged is closed as it is, for the
# reader to report.


class LogError(Exception):
    """The log cannot be written; the text says why, and what to do."""


class OpenSegment(NamedTuple):
    """The segment that is being written."""

    name: str
    header: segments.Header
    size: int
    counts: dict[int, int]
    blocks: list[segments.IndexEntry]

    def build_footer(self, next_: int) -> segments.Footer:
        """Return the footer that closes it."""
        return segments.Footer(next_, self.counts, self.blocks)


class Recovered(NamedTuple):
    """Where the writer continues."""

    segment: OpenSegment | None
    next: int  # number of the next record


def recover(files: Files, node: str, settled: int, end: int) -> Recovered:
    """Repair what the last run left. The store has the records `settled` to `end` - 1."""
    parsed = [(segments.read_name(name), name) for name in files.list_names()]
    mine = sorted((found, name) for found, name in parsed if found and found.node == node)
    reached = settled
    if mine and mine[-1][0].is_closed:
        # Only a damaged segment that an earlier start had to close can end later.
        reached = max(reached, read_segment(files.read(mine[-1][1]), is_closed=True).next)
    segment: OpenSegment | None = None
    for found, name in mine:
        if found.is_closed:
            continue
        if segment is not None:
            raise LogError(f"{segment.name} and {name} are both open: move one of them away")
        repaired = _repair_segment(files, found, name, settled)
        segment = repaired.segment
        reached = max(reached, repaired.next)
    files.sync_directory()
    if reached > end:
        raise LogError(
            f"the log of {node!r} has records up to {reached - 1}, and the store only up to"
            f" {end - 1}: this store is older than the log. Find the right one, or move the log"
            " away and give the node a new name, since others know its items by their numbers"
        )
    return Recovered(segment, reached)


def _repair_segment(
    files: Files, found: segments.SegmentName, name: str, settled: int
) -> Recovered:
    """Repair one open segment; None: it was removed, or could only be closed."""
    data = files.read(name)
    contents = read_segment(data, is_closed=False)
    if contents.damages and contents.header is not None:
        # Blocks that were written together may reach the disk in any order.
        whole = read_segment(data[: contents.damages[0].offset], is_closed=False)
        if whole.next >= settled:
            contents = whole
    if contents.header is None and found.first >= settled:
        files.remove(name)  # all of its records are still in the outbox
        return Recovered(None, settled)
    if (
        contents.header is None
        or contents.footer is not None  # closed but for the name
        or contents.damages
        or contents.next < settled
    ):
        _close_as_is(files, name)
        return Recovered(None, contents.next)
    if contents.end < len(data):
        files.truncate(name, contents.end)
    files.sync(name)  # what we found may be only in the page cache
    return Recovered(_reopen(name, contents.header, contents), contents.next)


def _reopen(name: str, header: segments.Header, contents: Contents) -> OpenSegment:
    counts: dict[int, int] = {}
    entries = []
    for block in contents.blocks:
        head = block.header
        times = head.earliest, head.latest
        entries.append(
            segments.IndexEntry(block.offset, head.first, head.length, *times, head.kinds)
        )
        for kind, columns in decode_columns(block)[0].items():
            id_ = KINDS[kind].id
            counts[id_] = counts.get(id_, 0) + len(columns["number"])
    return OpenSegment(name, header, contents.end, counts, entries)


def _close_as_is(files: Files, name: str) -> None:
    files.sync(name)
    stem = name.removesuffix(segments.OPEN)
    taken = set(files.list_names())
    again = 0
    target = stem + segments.CLOSED
    while target in taken:
        again += 1
        target = f"{stem}~{again}{segments.CLOSED}"
    files.rename(name, target)


# Files: names are durable after `sync_directory`, bytes after `sync`. Tests replace `DiskFiles` to
# cut the power between any two calls.


class Files(Protocol):
    """What the writer needs of a directory."""

    def list_names(self) -> list[str]:
        """Return the names of all files."""

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""

    def create(self, name: str, data: bytes) -> None:
        """Create a file that must not exist."""

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a file."""

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file; the new name must be free."""

    def remove(self, name: str) -> None:
        """Delete a file."""

    def sync_directory(self) -> None:
        """Make names durable."""


class DiskFiles:
    """A directory on the disk, created if it does not exist."""

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
        """Create a file that must not exist."""
        self._write(name, data, os.O_CREAT | os.O_EXCL)

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a file."""
        self._write(name, data, os.O_APPEND)

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""
        os.truncate(self.directory / name, size)

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""
        descriptor = os.open(self.directory / name, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; the new name must be free."""
        target = self.directory / new
        if target.exists():
            raise FileExistsError(f"{target} exists already")
        (self.directory / old).rename(target)

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self.directory / name).unlink()

    def sync_directory(self) -> None:
        """Make names durable."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems cannot, and do not need it
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
