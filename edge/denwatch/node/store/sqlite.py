"""The store of a node on the disk: SQLite with a write-ahead log, synced at every commit.

With `opening` and `schema`, the only files that touch SQLite for a node. One table per space,
created on demand. A failed write undoes the whole open group and closes the store for everything
but `rollback` (after a full disk) and `close`, so that nobody goes on as if it had been written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from denwatch.node.store.errors import StoreError, StoreFailed, StoreFull
from denwatch.node.store.group import Group, check_boundary, find_prefix_end, split_records
from denwatch.node.store.interface import Change, OutboxRow
from denwatch.node.store.lock import Lock
from denwatch.node.store.opening import Check, explain, open_database, verify
from denwatch.node.store.schema import MIGRATIONS, Migration

_MISSING = object()
_PAGE = 256  # rows that a scan holds at a time
_GROUP_LIMIT = 8_192  # changes that wait in memory before they go into the open transaction
_PREFIX = "space_"


class _Statements(NamedTuple):
    """The SQL of one space. The same texts each time, so that SQLite prepares them once."""

    create: str
    get: str
    put: str
    delete: str
    scan_from: str
    scan_range: str


class Store:
    """The durable state of one node; one process, one thread.

    `check` is "quick" (pages and their order), "full" (also every index entry) or "none".
    `first_epoch` is where a new store begins to count; an old one goes on counting.
    """

    def __init__(
        self,
        path: str | Path,
        node: str,
        *,
        check: Check = "quick",
        cache_bytes: int = 32 << 20,
        first_epoch: int = 1,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self.path = Path(path).absolute()
        self._node = node
        self._group = Group()
        self._failure: StoreError | None = None
        self._statements: dict[str, _Statements] = {}
        try:
            self._lock = Lock(self.path)
        except OSError as error:
            raise StoreFailed(
                f"the store {self.path} cannot be locked: {error.strerror}. Check that its"
                " directory exists and that this user may write there"
            ) from error
        try:
            opened = open_database(self.path, node, check, cache_bytes, first_epoch, migrations)
        except BaseException:
            self._lock.release()
            raise
        self._connection: sqlite3.Connection | None = opened.connection
        self._epoch = opened.epoch
        self._settled = opened.settled
        self._next = opened.next
        self._load_tables()

    @property
    def node(self) -> str:
        """The node that the store belongs to."""
        return self._node

    @property
    def epoch(self) -> int:
        """How often the store was opened."""
        return self._epoch

    @property
    def next_number(self) -> int:
        """The number that the next log record will get."""
        return self._next + len(self._group.logs)

    @property
    def settled(self) -> int:
        """All log records below this number are durably gone from the outbox."""
        return self._settled

    # Reading --------------------------------------------------------------------------------

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        connection = self._use()
        rows = self._group.spaces.get(space)
        if rows is not None:
            value = rows.get(key, _MISSING)
            if value is not _MISSING:
                return value  # type: ignore[return-value]  # bytes or None: _MISSING is gone
        statements = self._statements.get(space)
        if statements is None:
            return None
        try:
            row = connection.execute(statements.get, (key,)).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
        return None if row is None else row[0]

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order. Page by page, so changes on the way are allowed."""
        end = find_prefix_end(prefix)
        low = prefix
        while True:
            page = self._read_page(space, low, end)
            yield from page
            if len(page) < _PAGE:
                return
            low = page[-1][0] + b"\0"  # the smallest key above the last one

    def _read_page(self, space: str, low: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        connection = self._use()
        if space in self._group.spaces:
            self._flush()
        statements = self._statements.get(space)
        if statements is None:
            return []
        try:
            if end is None:
                return connection.execute(statements.scan_from, (low, _PAGE)).fetchall()
            return connection.execute(statements.scan_range, (low, end, _PAGE)).fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    # Writing --------------------------------------------------------------------------------

    def apply(self, changes: Iterable[Change], logs: Iterable[bytes] = ()) -> None:
        """Make the changes and add the encoded log records, in the open group."""
        self._use()
        self._group.add(changes, logs)
        if self._group.size > _GROUP_LIMIT:
            self._flush()

    def commit(self) -> bool:
        """Make everything applied durable. False: there was nothing to do."""
        connection = self._use()
        group = self._group
        if not group and not connection.in_transaction:
            return False
        self._flush()
        try:
            number = self._next
            for records in split_records(group.logs):
                connection.execute(
                    "INSERT INTO outbox VALUES (?, ?, ?, ?)",
                    (number, len(records), self._epoch, b"".join(records)),
                )
                number += len(records)
            if group.drop_before:
                connection.execute(
                    "DELETE FROM outbox WHERE first < ?1 AND first + count <= ?1",
                    (group.drop_before,),
                )
                connection.execute(
                    "INSERT OR REPLACE INTO meta VALUES ('settled', ?)", (group.drop_before,)
                )
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(error)
        self._next = number
        self._settled = max(self._settled, group.drop_before)
        self._group = Group()
        return True

    def rollback(self) -> None:
        """Forget everything applied since the last commit; the way on after `StoreFull`."""
        if isinstance(self._failure, StoreFull):
            self._failure = None
        self._use()
        self._undo()

    # Outbox of the log ----------------------------------------------------------------------

    def read_outbox(self, limit: int) -> list[OutboxRow]:
        """Return the oldest committed rows, up to the one that makes `limit` records."""
        connection = self._use()
        rows: list[OutboxRow] = []
        count = 0
        try:
            cursor = connection.execute(
                "SELECT first, count, epoch, records FROM outbox WHERE first >= ? ORDER BY first",
                (max(self._settled, self._group.drop_before),),
            )
            for row in cursor:
                rows.append(OutboxRow(*row))
                count += rows[-1].length
                if count >= limit:
                    break
            cursor.close()
        except sqlite3.Error as error:
            self._fail(error)
        return rows

    def drop_outbox(self, before: int) -> None:
        """Remove the rows that end at or before this number, in the open group."""
        connection = self._use()
        if before <= max(self._settled, self._group.drop_before):
            return
        try:
            row = connection.execute(
                "SELECT first + count FROM outbox WHERE first < ? ORDER BY first DESC LIMIT 1",
                (before,),
            ).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
        check_boundary(before, None if row is None else row[0])
        self._group.drop_before = before

    # The life of the store ------------------------------------------------------------------

    def check(self, *, is_full: bool = False) -> None:
        """Check the file as at the start; StoreDamaged says what is wrong."""
        connection = self._use()
        try:
            verify(connection, self.path, is_full)
        except sqlite3.Error as error:
            self._fail(error)

    def close(self) -> None:
        """Forget what is not committed, and let go of the file."""
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        self._group = Group()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        finally:
            self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside ---------------------------------------------------------------------------------

    def _use(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise self._failure
        if self._connection is None:
            raise StoreFailed(f"the store {self.path} is closed")
        return self._connection

    def _flush(self) -> None:
        """Move the group's changes into the open transaction of the database."""
        connection = self._use()
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            for space, rows in self._group.take_changes().items():
                statements = self._statements.get(space) or self._add_space(space)
                puts = [row for row in rows.items() if row[1] is not None]
                if puts:
                    # In key order the pages of the table are visited once each.
                    puts.sort()
                    connection.executemany(statements.put, puts)
                if len(puts) < len(rows):
                    gone = [(key,) for key, value in rows.items() if value is None]
                    connection.executemany(statements.delete, gone)
        except sqlite3.Error as error:
            self._fail(error)

    def _add_space(self, space: str) -> _Statements:
        statements = _write_statements(space)
        self._use().execute(statements.create)
        self._statements[space] = statements
        return statements

    def _load_tables(self) -> None:
        tables = self._use().execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [row[0].removeprefix(_PREFIX) for row in tables if row[0].startswith(_PREFIX)]
        self._statements = {name: _write_statements(name) for name in names}

    def _undo(self) -> None:
        connection = self._use()
        self._group = Group()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._load_tables()
        except sqlite3.Error as error:
            self._failure = StoreFailed(str(explain(error, self.path)))
            raise self._failure from error

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        """Undo the open group and refuse further use: the caller believes in a state that is not
        there any more."""
        failure = explain(error, self.path)
        self._undo()
        self._failure = failure
        raise failure from error


def _write_statements(space: str) -> _Statements:
    table = f'"{_PREFIX}{space}"'
    select = f"SELECT key, value FROM {table}"
    return _Statements(
        create=f"CREATE TABLE IF NOT EXISTS {table}"
        " (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
        get=f"SELECT value FROM {table} WHERE key = ?",
        put=f"INSERT OR REPLACE INTO {table} VALUES (?, ?)",
        delete=f"DELETE FROM {table} WHERE key = ?",
        scan_from=f"{select} WHERE key >= ? ORDER BY key LIMIT ?",
        scan_range=f"{select} WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
    )
