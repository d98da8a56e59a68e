"""Opening the file of a store: create, check, migrate, take possession, count the start.

The order matters. Nothing is written before we know that the file is ours, whole, and of a version
that we understand; and the new epoch is durable before anybody sees the store.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from denwatch.node.store.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
)
from denwatch.node.store.schema import Migration, is_foreign, migrate, read_version

Check = Literal["quick", "full", "none"]
_SMALLEST = 512  # bytes of a database, at least
_AUTOCHECKPOINT = 2_000  # pages of the log that are moved into the database at a time
_WAL_KEPT = 32 << 20  # bytes; a log that grew in a burst is cut back to this


class Opened(NamedTuple):
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
    migrations: Sequence[Migration],
) -> Opened:
    """Open or create the store of a node; a StoreError says what hinders."""
    _create_file(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        # Exclusive: the index of the log lives in our memory instead of a shared file, and no
        # other program can write below us. It must be set before the first access.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        _inspect(connection, path, check, len(migrations))
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreFailed(f"the file system of {path} cannot hold a write-ahead log ({mode})")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = {-(cache_bytes // 1024)}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")
        migrate(connection, migrations)
        return _take_possession(connection, path, node, first_epoch)
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
            raise _describe_damage(path, "it is cut off within its header") from None
        return
    except OSError as error:
        raise StoreFailed(
            f"the store {path} cannot be created: {error.strerror}. Check that its directory exists"
            " and that this user may write there"
        ) from error
    with suppress(OSError):  # some file systems cannot; then they need not
        os.fsync(directory)
    os.close(directory)


def _inspect(connection: sqlite3.Connection, path: Path, check: Check, newest: int) -> None:
    version = read_version(connection)
    if is_foreign(connection):
        raise StoreForeign(f"{path} is a database of another program: name another file in `store`")
    if version > newest:
        raise StoreForeign(
            f"the store {path} has version {version}, and this program knows versions up to"
            f" {newest}: upgrade denwatch, or name another file in `store`"
        )
    if check != "none" and version:
        verify(connection, path, is_full=check == "full")


def verify(connection: sqlite3.Connection, path: Path, is_full: bool) -> None:
    """Refuse a store whose pages do not fit together."""
    pragma = "integrity_check(5)" if is_full else "quick_check(5)"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}")]
    if found != ["ok"]:
        raise _describe_damage(path, "; ".join(found).replace("\n", " "))


def _take_possession(
    connection: sqlite3.Connection, path: Path, node: str, first_epoch: int
) -> Opened:
    connection.execute("BEGIN IMMEDIATE")
    meta = dict(connection.execute("SELECT name, value FROM meta"))
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
    epoch = max(int(meta.get("epoch", 0)) + 1, first_epoch)
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("node", node), ("epoch", epoch)]
    )
    connection.execute("COMMIT")
    return Opened(connection, epoch, settled, next_)


def _describe_damage(path: Path, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"the store {path} is damaged ({what}). Keep the file; repair a copy with"
        " `sqlite3 damaged.db .recover`, or move it away and start with an empty store under a"
        " new node name: under the old one it would number its items like those already sent"
    )


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Say in our words what SQLite reports."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"the disk of the store {path} is full ({error}): what was not committed is undone;"
            " make room"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _describe_damage(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"the store {path} is in use by another program ({error}): close that one first"
        )
    return StoreFailed(
        f"the store {path} cannot be read or written ({error}): what was not committed is undone;"
        " look at the disk, then start again"
    )
