"""The open group: what was applied since the last commit. Shared by all stores; touches no disk.

Keeping the group beside the database until the commit makes one write of many to the same key, and
one statement of many writes; the price is that every read must ask here first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from denwatch.node.store.interface import Change

_ROW_RECORDS = 4_096
_ROW_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


class Group:
    """Changes by space and key, the last one counting, and log records in order."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes | None]] = {}
        self.size = 0  # changes held
        self.logs: list[bytes] = []
        self.drop_before = 0  # outbox rows below are to go; 0: none

    def __bool__(self) -> bool:
        return bool(self.spaces or self.logs or self.drop_before)

    def add(self, changes: Iterable[Change], logs: Iterable[bytes]) -> None:
        """Take in changes and records: all of them, or on a bad one none."""
        changes = list(changes)
        logs = list(logs)
        known = self.spaces
        for space, key, value in changes:
            if space not in known:
                check_space(space)
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
        """Hand over all changes; the records stay."""
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
