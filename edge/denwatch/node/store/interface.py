"""What a store promises, whichever it is. Types only.

The rules, for every store:

1. `apply` is seen by every later `get` and `scan`, committed or not.
2. After `commit` has returned, everything applied before it survives any crash.
3. If `apply` or `commit` raises, or the process dies before `commit` returns, then either the whole
   group is there afterwards or nothing of it. A `commit` that raised a `StoreError` left nothing
   that this store will ever show.
4. `epoch` has risen, durably, before the store was handed out.
5. The records of the log get numbers 1, 2, 3, ... without gaps, in the order of `apply`, in the
   same transaction as the writes beside them. They wait in the outbox until `drop_outbox`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

Change = tuple[str, bytes, bytes | None]
"""(space, key, value): what `apply` takes; the core's `Write` is one. None deletes the key."""


class OutboxRow(NamedTuple):
    """The log records of one commit."""

    first: int  # number of the first record
    length: int  # how many records
    epoch: int  # the boot epoch in which they were written
    records: bytes  # encoded, one after another


class Reader(Protocol):
    """What the core sees of a store."""

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order, a few at a time.

        What is changed while the scan runs may be seen or not; all other keys are seen once.
        """


class Storage(Reader, Protocol):
    """What the runtime sees of a store."""

    @property
    def node(self) -> str:
        """The node that the store belongs to."""

    @property
    def epoch(self) -> int:
        """How often the store was opened: the node's boot epoch."""

    @property
    def next_number(self) -> int:
        """The number that the next log record will get."""

    @property
    def settled(self) -> int:
        """All log records below this number are durably gone from the outbox."""

    def apply(self, changes: Iterable[Change], logs: Iterable[bytes] = ()) -> None:
        """Make the changes and add the encoded log records, in the open group."""

    def commit(self) -> bool:
        """Make everything applied durable. False: there was nothing to do."""

    def rollback(self) -> None:
        """Forget everything applied since the last commit."""

    def read_outbox(self, limit: int) -> list[OutboxRow]:
        """Return the oldest committed rows, up to the one that makes `limit` records."""

    def drop_outbox(self, before: int) -> None:
        """Remove the rows that end at or before this number, in the open group."""

    def close(self) -> None:
        """Forget what is not committed, and let go of the store."""
