"""What every store promises, what can go wrong with one, and the open group that all share.

The rules:

1. `apply` is seen by every later `get` and `scan`, committed or not.
2. After `commit` has returned, everything applied before it survives any crash.
3. If `apply` or `commit` raises, or the process dies before `commit` returns, then either the whole
   group is there afterwards or nothing of it. A `commit` that raised a `StoreError` left nothing
   that this store will ever show.
4. `epoch` has risen, durably, before the store was handed out.
5. The records of the log get numbers 1, 2, 3, ... without gaps, in the order of `apply`, in the
   same transaction as the writes beside them. They wait in the outbox until `drop_outbox`.
6. Nothing that changed on the disk by itself is ever returned. Every value is stored with two
   CRC-32: of space and key, and of these with the value. A value that does not have them raises
   `StoreDecayed`; opening moves all such values into the space `damaged`, where `mend_damage` of
   the core finds them. The first CRC shows whether at least the key is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from zlib import crc32

from denwatch.node.core.events import Reader
from denwatch.node.log.writer import LogOutbox

Change = tuple[str, bytes, bytes | None]
"""(space, key, value): what `apply` takes; the core's `Write` is one. None deletes the key."""


class Storage(Reader, LogOutbox, Protocol):
    """The operations of a store; `Store` has them, and the simulator's `MemoryStore`.

    A `scan` reads a few rows at a time. What is changed while it runs may be seen or not; all other
    keys are seen once. `read_outbox` returns whole rows, up to the one that makes `limit` records;
    `drop_outbox` and `commit` work on the open group.
    """

    @property
    def epoch(self) -> int:
        """How often the store was opened: the node's boot epoch."""

    def apply(self, changes: Iterable[Change], logs: Iterable[bytes] = ()) -> None:
        """Make the changes and add the encoded log records, in the open group."""

    def rollback(self) -> None:
        """Discard everything applied since the last commit."""

    def close(self) -> None:
        """Discard what is not committed, and release the store."""


# Errors. Every message names the store, what happened, and what to do.


class StoreError(Exception):
    """The store cannot be used; also the base of the others."""


class StoreBusy(StoreError):
    """Another live process has the store open."""


class StoreDamaged(StoreError):
    """The file is not whole, or is no store at all."""


class StoreForeign(StoreError):
    """The store belongs to another node, or was written by a newer version."""


class StoreFull(StoreError):
    """There is no room, on the disk or for one more open file, and later there may be.

    The open group is lost; after `rollback` the store can be used again.
    """


class StoreFailed(StoreError):
    """Reading or writing failed. The open group is lost, and the store must be opened anew."""


class StoreDecayed(StoreError):
    """A value has changed by itself. The open group is lost; opening puts it into quarantine."""


# Checksums.

SUMS = 8  # bytes: a checksum of space and key, and one of these with the value
_RESIDUE = 0x2144DF1C  # what CRC-32 gives for anything that is followed by its own


def seed_space(space: str) -> int:
    """Return where the checksums of a space begin."""
    return crc32(space.encode())


def seal_value(seed: int, key: bytes, value: bytes) -> bytes:
    """Return a value as it is stored, with its checksums."""
    name = crc32(key, seed)
    body = value + name.to_bytes(4, "big")
    return body + crc32(body, name).to_bytes(4, "little")


def open_value(seed: int, key: bytes, stored: object) -> bytes | None:
    """Return a value that was stored; None if it, its key or its space has changed since."""
    if type(stored) is not bytes or type(key) is not bytes:
        return None
    return stored[:-SUMS] if crc32(stored, crc32(key, seed)) == _RESIDUE else None


def is_key_right(seed: int, key: object, stored: object) -> bool:
    """Return whether at least the key of a changed value is what it was."""
    if type(stored) is not bytes or type(key) is not bytes:
        return False
    return crc32(key, seed).to_bytes(4, "big") == stored[-SUMS:-4]


# The open group. Touches no disk.

_ROW_RECORDS = 4_096
_ROW_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


class CommitGroup:
    """What was applied since the last commit: changes by space and key, log records in order.

    Keeping the group beside the database until the commit makes one write of many to the same key,
    and one statement of many writes; the price is that every read must look here first.
    """

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes | None]] = {}
        self.size = 0  # number of changes
        self.logs: list[bytes] = []
        self.drop_before = 0  # outbox rows below are to go; 0: none

    def __bool__(self) -> bool:
        return bool(self.spaces or self.logs or self.drop_before)

    def add(self, changes: Iterable[Change], logs: Iterable[bytes]) -> None:
        """Add changes and records: all of them, or none if one is malformed."""
        changes = list(changes)
        logs = list(logs)
        for space in {change[0]: None for change in changes}:
            if space not in self.spaces:
                check_space(space)
        for space, key, value in changes:
            # Text would be stored beside bytes without ever being found by them.
            if type(key) is not bytes:
                raise TypeError(f"a key in {space!r} must be bytes, not {key!r}")
            if value is not None and type(value) is not bytes:
                raise TypeError(f"the value at {key!r} in {space!r} must be bytes, not {value!r}")
        for record in logs:
            if type(record) is not bytes or not record:
                raise TypeError(f"a log record must be bytes, not {record!r}")
        for space, key, value in changes:
            rows = self.spaces.get(space)
            if rows is None:
                rows = self.spaces[space] = {}
            if key not in rows:
                self.size += 1
            rows[key] = value
        self.logs += logs

    def take_changes(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return all changes and clear them; the records stay."""
        spaces = self.spaces
        self.spaces = {}
        self.size = 0
        return spaces


def split_records(logs: list[bytes]) -> Iterator[list[bytes]]:
    """Yield the records in portions, each to be one row of the outbox."""
    start = size = 0
    for place, record in enumerate(logs):
        size += len(record)
        if place - start == _ROW_RECORDS or (size > _ROW_BYTES and place > start):
            yield logs[start:place]
            start, size = place, len(record)
    if logs:
        yield logs[start:]


def check_space(space: str) -> None:
    """Refuse the name of a space that could not be a table."""
    if not isinstance(space, str) or not _NAME.fullmatch(space):
        raise ValueError(
            f"{space!r} is no name for a space: a small letter, then at most 62 of a-z 0-9 _ . -"
        )


def find_prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that begin with `prefix`; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def check_boundary(before: int, end: int | None) -> None:
    """Refuse to drop a part of an outbox row: `end` is where the last row that is touched ends."""
    if end != before:
        raise ValueError(f"no row of the outbox ends before record {before}")
