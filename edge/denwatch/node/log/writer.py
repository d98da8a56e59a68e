"""Moving the log from the store's outbox to segments: every record once, whatever happens between.

A record is durable in the outbox with the commit it belongs to. Moving it happens apart, in three
steps: take rows from the outbox (reads the store), write them into the open segment and sync it
(touches files only, so another thread may do it), and drop them from the outbox (with the store's
next commit). What was written but not dropped when the node died is found again by its numbers: at
the start the segments say how far they reach. Rules:

1. Rows are dropped only after the segment that has them is synced.
2. A segment is closed, and so may be carried away, only after its rows are durably dropped.
3. A segment holds one run of the node; blocks hold whole rows of the outbox.
4. Bytes are cut off a segment only if their records are still in the outbox.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cbor2
from denwatch.node.log.files import Files
from denwatch.node.log.names import CLOSED, OPEN, write_name
from denwatch.node.log.recovery import LogError, OpenSegment, recover
from denwatch.node.log.segment import (
    Header,
    IndexEntry,
    count_kinds,
    pack_array_head,
    pack_footer,
    pack_header,
    pack_records,
)
from denwatch.node.store.interface import OutboxRow, Storage

BLOCK_RECORDS = 4_096
BLOCK_BYTES = 256 << 10


class Batch(NamedTuple):
    """Rows of one run, on their way from the outbox to a segment."""

    rows: list[OutboxRow]
    settled: int  # records below this number are durably out of the outbox


class Writer:
    """Writes the segments of one node. A segment is closed at a size or an age (ms)."""

    def __init__(
        self,
        store: Storage,
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
        self._is_torn = False  # the last write failed, and may have left a part of it
        self.settle()

    @property
    def next_number(self) -> int:
        """The number of the next record to be moved."""
        return self._next

    def move(self, now: int, limit: int = 20_000) -> int:
        """Move up to about `limit` records; return how many. Commit the store afterwards.

        OSError and LogError leave everything as it was: the records wait in the outbox.
        """
        moved = self.write(self.take(limit), now)
        self.settle()
        return moved

    def take(self, limit: int = 20_000) -> Batch:
        """Return the next rows of one run. Reads the store."""
        rows = [row for row in self._store.read_outbox(limit) if row.first >= self._next]
        rows = [row for row in rows if row.epoch == rows[0].epoch]
        return Batch(rows, self._store.settled)

    def write(self, batch: Batch, now: int) -> int:
        """Write a batch into the segment and sync it; return how many records that were."""
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
            return 0  # the old segment waits until its rows are dropped for good
        return self._append(segment, batch.rows)

    def settle(self) -> None:
        """Drop what is written from the outbox, with the next commit. Changes the store."""
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

    def _is_due(self, segment: OpenSegment, batch: Batch, now: int) -> bool:
        return (
            segment.size >= self._segment_bytes
            or now - segment.header.time >= self._segment_age
            or now < segment.header.time  # the clock was set back: do not wait for years
            or bool(batch.rows and batch.rows[0].epoch != segment.header.epoch)
        )

    def _begin_segment(self, row: OutboxRow, now: int) -> OpenSegment:
        header = Header(self._store.node, row.epoch, row.first, now)
        name = write_name(header.node, header.epoch, header.first)
        if name in self._files.list_names():
            self._files.remove(name)  # begun before, in vain: its records are in the outbox
        data = pack_header(header)
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
            block, head = pack_records(records, decoded, group[0].first)
            entry = (segment.size + len(data), head.first, head.length)
            blocks.append(IndexEntry(*entry, head.earliest, head.latest, head.kinds))
            count_kinds(counts, decoded)
            data += block
        self._is_torn = True  # until we know better
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
        """Cut off what a failed write may have left. Its records are still in the outbox."""
        if self._is_torn and self._open is not None:
            self._files.truncate(self._open.name, self._open.size)
            self._files.sync(self._open.name)
        self._is_torn = False

    def _close_segment(self, segment: OpenSegment) -> None:
        if segment.blocks:
            self._is_torn = True  # until it has its name, the footer is cut off to go on
            self._files.append(segment.name, pack_footer(segment.build_footer(self._next)))
            self._files.sync(segment.name)
            self._files.rename(segment.name, segment.name.removesuffix(OPEN) + CLOSED)
            self._is_torn = False
        else:
            self._files.remove(segment.name)
        self._open = None
        self._files.sync_directory()


def _group_rows(rows: list[OutboxRow]) -> list[list[OutboxRow]]:
    """Put rows together that go into one block."""
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
    rows: list[list[Any]] = cbor2.loads(pack_array_head(length) + records)
    return rows
