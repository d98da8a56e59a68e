"""The store of a node on the disk: SQLite with a write-ahead log, synced at every commit.

The only file of a node that touches SQLite, with `damage.py`. Top to bottom: the lock that keeps a
second process out, the tables and their migrations, opening a file, and `Store` itself. There is
one table per space, created on demand. A failed write undoes the whole open group and closes the
store for everything but `rollback` (after a full disk) and `close`, so that nobody continues as if
it had been written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from denwatch.node.log.writer import OutboxRow
from denwatch.node.store import damage
from denwatch.node.store.interface import (
    Change,
    CommitGroup,
    StoreBusy,
    StoreDecayed,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
    check_boundary,
    find_prefix_end,
    open_value,
    seal_value,
    seed_space,
    split_records,
)

APPLICATION_ID = 0x44454E53  # "DENS": `file` and `is_foreign` recognise a store by it
Migration = Callable[[sqlite3.Connection], object]
Check = Literal["quick", "full", "none"]
_SMALLEST = 512  # bytes of a database, at least
_AUTOCHECKPOINT = 2_000  # pages of the log that are moved into the database at a time
_WAL_KEPT = 32 << 20  # bytes; a log that grew in a burst is cut back to this
_MISSING = object()
_PAGE = 256  # rows that a scan holds at a time
_GROUP_LIMIT = 8_192  # changes that wait in memory before they go into the open transaction
MAX_EPOCH = (1 << 32) - 1  # what frames and keys of items hold


class Lock:
    """The lock file beside a store, held from construction until `release`.

    One live process has it at a time, and writes its number there for whoever is refused. The
    kernel releases it when the process ends, however it ends: there are no stale locks.
    """

    def __init__(self, store: Path) -> None:
        path = store.with_name(store.name + ".lock")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            raise StoreBusy(
                f"the store {store} is in use by process {owner or 'unknown'}: stop that one, or"
                " give this node a store of its own"
            ) from None
        with suppress(OSError):  # a full disk: whoever is refused does not get to know by whom
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release it. The file stays: the next owner may have it open already."""
        os.close(self._file)


# Tables and migrations ----------------------------------------------------------------------
#
# A migration is a function that changes the tables of the version before it. To change the schema,
# append one to `MIGRATIONS`; never edit one that was released. All that a store lacks run in one
# transaction with the new version number, so a store is never between two versions.


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1. The tables of the spaces come on demand."""
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
    connection.execute(
        "CREATE TABLE outbox (first INTEGER PRIMARY KEY, count INTEGER NOT NULL,"
        " epoch INTEGER NOT NULL, records BLOB NOT NULL)"
    )


def seal_values(connection: sqlite3.Connection) -> None:
    """Version 2. Every value, every row of the outbox and all of meta get checksums."""
    for space in damage.list_spaces(connection):
        connection.create_function("seal", 2, partial(seal_value, seed_space(space)))
        connection.execute(f"UPDATE {damage.name_table(space)} SET value = seal(key, value)")
    connection.create_function("seal_row", 4, lambda *row: damage.seal_row(OutboxRow(*row)))
    connection.execute("UPDATE outbox SET records = seal_row(first, count, epoch, records)")
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    damage.write_meta(connection, meta)


MIGRATIONS: tuple[Migration, ...] = (create_tables, seal_values)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of the file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Return whether the file is a database of some other program."""
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return int(found) != APPLICATION_ID and int(tables) > 0


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Bring the store to the newest version, or on any failure leave it as it was."""
    version = read_version(connection)
    if version >= len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in migrations[version:]:
            step(connection)
        # PRAGMA takes no parameters; both are our own integers.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Opening: create, check, migrate, claim for the node, count the start ------------------------
#
# The order matters. Nothing is written before we know that the file is ours, whole, and of a
# version that we understand; and the new epoch is durable before anybody sees the store.


class OpenDatabase(NamedTuple):
    """What the store knows after opening."""

    connection: sqlite3.Connection
    epoch: int
    settled: int
    next: int  # the number of the next log record


def open_database(
    path: Path,
    node: str,
    check: Check,
    cache_bytes: int,
    first_epoch: int,
    leap: int,
    migrations: Sequence[Migration],
) -> OpenDatabase:
    """Open or create the store of a node; a StoreError says why it cannot."""
    _create_file(path)
    connection = damage.connect(path)
    try:
        version = _inspect(connection, path, len(migrations))
        if check != "none" and version == 1:  # without checksums one cannot tell what is right
            fault = damage.find_fault(connection, is_full=check == "full")
            if fault:
                raise damage.describe_damage(path, fault)
        elif check != "none" and version:
            connection = damage.remove_damage(
                connection, path, create_tables, is_full=check == "full"
            )
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreFailed(f"the file system of {path} cannot hold a write-ahead log ({mode})")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = {-(cache_bytes // 1024)}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")
        migrate(connection, migrations)
        return _claim(connection, path, node, first_epoch, leap)
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error
    except BaseException:
        connection.close()
        raise


def _create_file(path: Path) -> None:
    """Create an empty file that others cannot read, with its name durable."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        directory = os.open(path.parent, os.O_RDONLY)
    except FileExistsError:
        # SQLite would take such a stump for a new database, and the node would begin anew.
        if 0 < path.stat().st_size < _SMALLEST:
            raise damage.describe_damage(path, "it is cut off within its header") from None
        return
    except OSError as error:
        raise _explain_opening(error, path) from error
    with suppress(OSError):  # some file systems cannot; then they need not
        os.fsync(directory)
    os.close(directory)


def _inspect(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    """Return the version of a file that is ours."""
    version = read_version(connection)
    if is_foreign(connection):
        raise StoreForeign(f"{path} is a database of another program: name another file in `store`")
    if version > newest:
        raise StoreForeign(
            f"the store {path} has version {version}, and this program knows versions up to"
            f" {newest}: upgrade denwatch, or name another file in `store`"
        )
    return version


def _claim(
    connection: sqlite3.Connection, path: Path, node: str, first_epoch: int, leap: int
) -> OpenDatabase:
    connection.execute("BEGIN IMMEDIATE")
    meta = damage.read_meta(connection, path)
    owner = meta.setdefault("node", node)
    if owner != node:
        connection.execute("ROLLBACK")
        raise StoreForeign(
            f"the store {path} belongs to the node {owner!r}, not to {node!r}: two nodes must not"
            " share one, and a copy must not live on under another name"
        )
    settled = int(meta.get("settled", 1))
    last = connection.execute("SELECT first + count FROM outbox ORDER BY first DESC LIMIT 1")
    next_ = max([settled, *(int(row[0]) for row in last)])
    before = int(meta.get("epoch", 0))
    if before >= MAX_EPOCH:  # of an older version, and a clock after 2106: nothing was made in it
        before = 0
    epoch = min(max(before + 1, first_epoch) + leap, MAX_EPOCH)
    damage.write_meta(connection, {"node": node, "epoch": epoch})
    connection.execute("COMMIT")
    return OpenDatabase(connection, epoch, settled, next_)


SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""What may pass by itself: no room on the disk, too many open files."""


def _explain_opening(error: OSError, path: Path) -> StoreError:
    if error.errno in SHORTAGES:
        return StoreFull(f"the store {path} cannot be opened: {error.strerror}; make room")
    return StoreFailed(
        f"the store {path} cannot be opened: {error.strerror}. Check that its directory exists"
        " and that this user may write there"
    )


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Return our error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN:  # it does not say why
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as reason:
            return _explain_opening(reason, path)
        return StoreFull(f"the store {path} cannot be opened ({error}): too many open files")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"the disk of the store {path} is full ({error}): what was not committed is undone;"
            " make room"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damage.describe_damage(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"the store {path} is in use by another program ({error}): close that one first"
        )
    return StoreFailed(
        f"the store {path} cannot be read or written ({error}): what was not committed is undone;"
        " look at the disk, then start again"
    )


# The store ----------------------------------------------------------------------------------


class _Statements(NamedTuple):
    """The SQL of one space. The same texts each time, so that SQLite prepares them once."""

    seed: int
    create: str
    get: str
    put: str
    delete: str
    scan_from: str
    scan_range: str


class Store:
    """The durable state of one node; one process, one thread.

    `check` is "quick" (pages and their order), "full" (also every index entry) or "none".
    `first_epoch` is where a new store begins to count; an old one continues its count. `leap` is
    by how much it counts on besides: who draws it has no epoch twice, even if a disk forgot one.
    """

    def __init__(
        self,
        path: str | Path,
        node: str,
        *,
        check: Check = "quick",
        cache_bytes: int = 32 << 20,
        first_epoch: int = 1,
        leap: int = 0,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self.path = Path(path).absolute()
        self._node = node
        self._group = CommitGroup()
        self._failure: StoreError | None = None
        self._statements: dict[str, _Statements] = {}
        try:
            self._lock = Lock(self.path)
        except OSError as error:
            raise _explain_opening(error, self.path) from error
        try:
            opened = open_database(
                self.path, node, check, cache_bytes, first_epoch, leap, migrations
            )
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
        if row is None:
            return None
        value = open_value(statements.seed, key, row[0])
        if value is None:
            self._fail_decayed(space, key)
        return value

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
                rows = connection.execute(statements.scan_from, (low, _PAGE)).fetchall()
            else:
                rows = connection.execute(statements.scan_range, (low, end, _PAGE)).fetchall()
        except sqlite3.Error as error:
            self._fail(error)
        seed = statements.seed
        page = [(key, open_value(seed, key, stored)) for key, stored in rows]
        for key, value in page:
            if value is None:
                self._fail_decayed(space, key)
        return page  # type: ignore[return-value]  # None is gone

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
                row = OutboxRow(number, len(records), self._epoch, b"".join(records))
                connection.execute(
                    "INSERT INTO outbox VALUES (?, ?, ?, ?)", (*row[:3], damage.seal_row(row))
                )
                number += len(records)
            if group.drop_before:
                connection.execute(
                    "DELETE FROM outbox WHERE first < ?1 AND first + count <= ?1",
                    (group.drop_before,),
                )
                damage.write_meta(connection, {"settled": group.drop_before})
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(error)
        self._next = number
        self._settled = max(self._settled, group.drop_before)
        self._group = CommitGroup()
        return True

    def rollback(self) -> None:
        """Discard everything applied since the last commit; needed after `StoreFull`."""
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
            for found in cursor:
                row = damage.open_row(found)
                if row is None:
                    self._fail_decayed("outbox", found[0])
                rows.append(row)
                count += row.length
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

    def close(self) -> None:
        """Discard what is not committed, and release the file."""
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        self._group = CommitGroup()
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
                seed = statements.seed
                puts = [
                    (key, seal_value(seed, key, value))
                    for key, value in rows.items()
                    if value is not None
                ]
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
        names = damage.list_spaces(self._use())
        self._statements = {name: _write_statements(name) for name in names}

    def _undo(self) -> None:
        connection = self._use()
        self._group = CommitGroup()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._load_tables()
        except sqlite3.Error as error:
            self._failure = StoreFailed(str(explain(error, self.path)))
            raise self._failure from error

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        """Undo the open group and refuse further use: the caller relies on writes that are gone."""
        failure = explain(error, self.path)
        self._undo()
        self._failure = failure
        raise failure from error

    def _fail_decayed(self, space: str, key: object) -> NoReturn:
        """Undo the open group because of a value that changed by itself: opening removes it."""
        self._undo()
        self._failure = StoreDecayed(
            f"the store {self.path} is damaged at {damage.describe_key(key)} in {space}: it is"
            " opened again without this value"
        )
        raise self._failure


def _write_statements(space: str) -> _Statements:
    table = damage.name_table(space)
    select = f"SELECT key, value FROM {table}"
    return _Statements(
        seed_space(space),
        create=damage.write_create(space),
        get=f"SELECT value FROM {table} WHERE key = ?",
        put=f"INSERT OR REPLACE INTO {table} VALUES (?, ?)",
        delete=f"DELETE FROM {table} WHERE key = ?",
        scan_from=f"{select} WHERE key >= ? ORDER BY key LIMIT ?",
        scan_range=f"{select} WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
    )
