"""The tables of the store, their versions, and how an old store becomes a new one.

A migration is a function that changes the tables of the version before it. To change the schema,
append one to `MIGRATIONS`; never edit one that was released. All that a store lacks run in one
transaction with the new version number, so a store is never between two versions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

APPLICATION_ID = 0x44454E53  # "DENS": what `file` and we tell a store by
Migration = Callable[[sqlite3.Connection], object]


def create_tables(connection: sqlite3.Connection) -> None:
    """Version 1. The tables of the spaces come on demand."""
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
    connection.execute(
        "CREATE TABLE outbox (first INTEGER PRIMARY KEY, count INTEGER NOT NULL,"
        " epoch INTEGER NOT NULL, records BLOB NOT NULL)"
    )


MIGRATIONS: tuple[Migration, ...] = (create_tables,)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of the file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Say whether the file is a database of some other program."""
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return int(mark) != APPLICATION_ID and int(tables) > 0


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
