"""A subscriber's own disk: what it asked for, and the notes that it got.

The only file of the subscriber that opens SQLite (WAL, synchronous=FULL: a commit is on the disk).
One process uses a store at a time. Inside, two connections: `Store` for the link's thread, `Inbox`
for whoever handles notes; each call is one transaction. The tables are named denwatch_…, so that
an app may keep its own in the same file and change both in one transaction.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from denwatch.client.subscriber.actions import Keep, KeepAnswer, KeepNote, Request
from denwatch.client.subscriber.errors import RefusedError, StoreError
from denwatch.client.subscriber.messages import Note

try:
    import fcntl
except ImportError:  # not on this system: nothing then keeps a second process out
    fcntl = None  # type: ignore[assignment]

_APPLICATION = 0x64656E73  # "dens": whose file it is
_VERSION = 2
_PATIENCE = 10_000  # ms
_SCHEMA = """
CREATE TABLE denwatch_about (name TEXT NOT NULL, device TEXT NOT NULL);
CREATE TABLE denwatch_subscriptions (
    name TEXT PRIMARY KEY, text TEXT NOT NULL, state TEXT NOT NULL, id TEXT, error TEXT
) WITHOUT ROWID;
CREATE TABLE denwatch_confirmations (
    name TEXT, server TEXT, PRIMARY KEY (name, server)
) WITHOUT ROWID;
CREATE TABLE denwatch_requests (
    sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    name TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE denwatch_inbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, payload BLOB,
    at INTEGER NOT NULL, is_handled INTEGER NOT NULL DEFAULT 0,
    is_reported INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0, reading TEXT
);
CREATE UNIQUE INDEX denwatch_readings ON denwatch_inbox (reading);
CREATE INDEX denwatch_waiting ON denwatch_inbox (not_before, sequence) WHERE NOT is_handled;
CREATE INDEX denwatch_unreported ON denwatch_inbox (sequence) WHERE NOT is_reported;
"""
# By schema: what makes the next one of it.
_MIGRATIONS = {
    1: (
        "ALTER TABLE denwatch_inbox ADD COLUMN reading TEXT",
        "CREATE UNIQUE INDEX denwatch_readings ON denwatch_inbox (reading)",
    )
}


@dataclass(frozen=True)
class Subscription:
    """What we asked for. `state`: "pending", "active", "refused" (then `error`), "ending" until
    a node has agreed to its end, "ended" while another node may not have heard of it."""

    name: str
    text: str
    state: str
    id: int | str | None = None
    error: RefusedError | None = None


def connect(path: str | Path, busy_ms: int) -> sqlite3.Connection:
    """Open a connection whose transactions we begin ourselves, one thread at a time."""
    connection = sqlite3.connect(
        path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous=FULL")
    return connection


@contextmanager
def transact(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin, and commit if nothing went wrong."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Store:
    """The link's side. `remember` is how many handled notes are known again, `keep` of how many
    the text is kept; both far beyond what a node would send again."""

    def __init__(
        self,
        path: str | Path,
        name: str,
        device: str,
        *,
        remember: int = 1_000_000,
        keep: int = 10_000,
        busy_ms: int = 50,
    ) -> None:
        self.path = Path(path)
        self._remember, self._keep = remember, keep
        self._lock = _lock(self.path)
        try:
            self._connection = connect(self.path, _PATIENCE)
        except sqlite3.Error as error:
            self._lock.close()
            raise StoreError(f"{self.path}: {error}") from None
        try:
            self.device = self._prepare(name, device)
        except (sqlite3.Error, StoreError) as error:
            self._connection.close()
            self._lock.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path}: {error}") from None
        # From here on: rather come back later than keep the link waiting.
        self._connection.execute(f"PRAGMA busy_timeout={int(busy_ms)}")

    def _prepare(self, name: str, device: str) -> str:
        """Look whose file it is, and change nothing before that is clear."""
        found = self._connection
        (application,) = found.execute("PRAGMA application_id").fetchone()
        (version,) = found.execute("PRAGMA user_version").fetchone()
        (tables,) = found.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        is_ours = application == _APPLICATION
        if not is_ours and tables:
            raise StoreError(f"{self.path} is not a subscriber's store")
        if is_ours and version != _VERSION and version not in _MIGRATIONS:
            raise StoreError(f"{self.path} has schema {version}, this program {_VERSION}")
        if is_ours:
            owner, device = found.execute("SELECT name, device FROM denwatch_about").fetchone()
            if owner != name:
                raise StoreError(f"{self.path} is the store of {owner}, not of {name}")
        found.execute("PRAGMA journal_mode=WAL")
        if is_ours and version == _VERSION:
            return str(device)
        with transact(found):
            if not is_ours:
                for statement in _SCHEMA.split(";\n"):
                    found.execute(statement)
                found.execute("INSERT INTO denwatch_about VALUES (?, ?)", (name, device))
                found.execute(f"PRAGMA application_id={_APPLICATION}")
            else:
                for older in range(version, _VERSION):
                    for statement in _MIGRATIONS[older]:
                        found.execute(statement)
            found.execute(f"PRAGMA user_version={_VERSION}")
        return str(device)

    def close(self) -> None:
        """Close, and let others in."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._connection.close()
        self._lock.close()

    # Looking ---------------------------------------------------------------------------------

    def list_subscriptions(self) -> list[Subscription]:
        """Return what was asked for, by name."""
        rows = self._connection.execute(
            "SELECT name, text, state, id, error FROM denwatch_subscriptions ORDER BY name"
        )
        return [
            Subscription(name, text, state, json.loads(id) if id else None, _read_error(error))
            for name, text, state, id, error in rows
        ]

    def list_wanted(self) -> list[tuple[str, str, list[str]]]:
        """Return name, text and confirming servers of what is asked for and not refused."""
        servers: dict[str, list[str]] = {}
        for name, server in self._connection.execute("SELECT * FROM denwatch_confirmations"):
            servers.setdefault(name, []).append(server)
        return [
            (s.name, s.text, servers.get(s.name, []))
            for s in self.list_subscriptions()
            if s.state in ("pending", "active")
        ]

    def list_ended(self) -> list[tuple[str, list[str]]]:
        """Return what was ended, with the servers that may not know."""
        found: dict[str, list[str]] = {}
        for name, server in self._connection.execute(
            "SELECT s.name, server FROM denwatch_subscriptions s"
            " LEFT JOIN denwatch_confirmations c ON s.name = c.name"
            " WHERE state IN ('ending', 'ended')"
        ):
            found.setdefault(name, []).extend([server] if server else [])
        return list(found.items())

    def list_requests(self) -> list[Request]:
        """Return the requests that no node has answered, oldest first."""
        query = "SELECT id, kind, name, text FROM denwatch_requests ORDER BY sequence"
        return [Request(*row) for row in self._connection.execute(query)]

    def list_unreported(self) -> list[str]:
        """Return the keys of notes of which no node was told."""
        query = "SELECT key FROM denwatch_inbox WHERE NOT is_reported ORDER BY sequence"
        return [key for (key,) in self._connection.execute(query)]

    # Changing --------------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Keep a request until it is answered; it replaces an older one for the same name."""
        with transact(self._connection):
            run = self._connection.execute
            run("DELETE FROM denwatch_requests WHERE name = ?", (request.name,))
            if request.kind == "subscribe":
                run("DELETE FROM denwatch_confirmations WHERE name = ?", (request.name,))
            run(
                "INSERT INTO denwatch_requests (id, kind, name, text) VALUES (?, ?, ?, ?)",
                (request.id, request.kind, request.name, request.text),
            )
            state = "pending" if request.kind == "subscribe" else "ending"
            run(
                "INSERT OR REPLACE INTO denwatch_subscriptions (name, text, state)"
                " VALUES (?, ?, ?)",
                (request.name, request.text, state),
            )

    def keep(self, changes: Iterable[Keep]) -> int:
        """Make all changes in one transaction; return how many notes were new.

        sqlite3.OperationalError: somebody else writes, nothing was changed, try again.
        """
        new = 0
        with transact(self._connection):
            for change in changes:
                if isinstance(change, KeepNote):
                    new += self._keep_note(change)
                elif isinstance(change, KeepAnswer):
                    self._keep_answer(change)
                else:
                    self._connection.executemany(
                        "UPDATE denwatch_inbox SET is_reported = 1 WHERE key = ?",
                        [(key,) for key in change.keys],
                    )
        return new

    def _keep_note(self, change: KeepNote) -> int:
        run = self._connection.execute
        note = change.note
        if note.reading is not None and self._has_twin(note):
            run(
                "INSERT INTO denwatch_inbox (key, at, is_handled) VALUES (?, ?, 1)"
                " ON CONFLICT (key) DO UPDATE SET is_reported = 0",
                (note.key, change.at),
            )
            return 0
        cursor = run(
            "INSERT OR IGNORE INTO denwatch_inbox (key, payload, at, reading) VALUES (?, ?, ?, ?)",
            (note.key, change.payload, change.at, note.reading),
        )
        if cursor.rowcount:
            return 1
        # A second time: the node does not know that we have it.
        run("UPDATE denwatch_inbox SET is_reported = 0 WHERE key = ?", (note.key,))
        return 0

    def _has_twin(self, note: Note) -> bool:
        """Return whether the same reading came before through another node, by another id."""
        found = self._connection.execute(
            "SELECT key FROM denwatch_inbox WHERE reading = ?", (note.reading,)
        ).fetchone()
        return found is not None and found[0] != note.key

    def _keep_answer(self, change: KeepAnswer) -> None:
        request, reply = change.request, change.reply
        run = self._connection.execute
        run("DELETE FROM denwatch_requests WHERE id = ?", (request.id,))
        if request.kind == "unsubscribe":  # also refused: the node does not have it for us
            run(
                "DELETE FROM denwatch_confirmations WHERE name = ? AND server = ?",
                (request.name, change.server),
            )
            run("UPDATE denwatch_subscriptions SET state = 'ended' WHERE name = ?", (request.name,))
            run(
                "DELETE FROM denwatch_subscriptions WHERE name = ?1 AND NOT EXISTS"
                " (SELECT * FROM denwatch_confirmations WHERE name = ?1)",
                (request.name,),
            )
        elif reply.is_ok:
            run(
                "UPDATE denwatch_subscriptions SET state = 'active', id = ? WHERE name = ?",
                (json.dumps(reply.fields.get("id")), request.name),
            )
            run(
                "INSERT OR IGNORE INTO denwatch_confirmations VALUES (?, ?)",
                (request.name, change.server),
            )
        else:
            run(
                "UPDATE denwatch_subscriptions SET state = 'refused', error = ? WHERE name = ?",
                (_write_error(reply.build_error()), request.name),
            )

    def tidy(self) -> None:
        """Forget what is long done: first the texts of handled notes, then their ids."""
        run = self._connection.execute
        with transact(self._connection):
            (last,) = run("SELECT coalesce(max(sequence), 0) FROM denwatch_inbox").fetchone()
            run(
                "UPDATE denwatch_inbox SET payload = NULL"
                " WHERE is_handled AND payload IS NOT NULL AND sequence <= ?",
                (last - self._keep,),
            )
            run(
                "DELETE FROM denwatch_inbox WHERE is_handled AND sequence <= ?",
                (last - self._remember,),
            )


def _lock(path: Path) -> IO[bytes]:
    """Keep every other process out until the file is closed, or we die."""
    try:
        stream = Path(f"{path}-lock").open("ab")  # noqa: SIM115 - held as long as the store
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    if fcntl is not None:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            raise StoreError(
                f"{path} is used by another process: give each its own store"
            ) from None
    os.set_inheritable(stream.fileno(), False)
    return stream


def _write_error(error: RefusedError) -> str:
    return json.dumps([error.message, error.at, error.length, error.hint, error.suggestions])


def _read_error(text: str | None) -> RefusedError | None:
    return None if text is None else RefusedError(*json.loads(text))
