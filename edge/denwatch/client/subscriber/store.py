"""A subscriber's own disk: its subscriptions, and the notifications that it received.

The only file of the subscriber that opens SQLite (WAL, synchronous=FULL: a commit is on the disk).
One process uses a store at a time, over two connections: `SubscriberStore` for the link thread and
`Inbox` for whoever handles notifications; each call is one transaction. The tables are named
denwatch_…, so that an app may keep its own tables in the same file.

HANDLED ONCE. `Inbox.take` lends a transaction in which the notification is marked as handled:
whatever is written through it is committed together with the mark, or not at all. So effects *in
the store* happen exactly once, whenever the process dies. Effects *outside* (a siren, a mail)
cannot be tied to a commit, so the app chooses what a death in between does:

- AT_LEAST_ONCE: handle, then mark. Killed in between, the notification is handled again.
- AT_MOST_ONCE: mark, then handle. Killed in between, the notification is not handled at all.

While a transaction is lent, arriving notifications wait unacknowledged, so handlers that use one
should be short; `lend` holds no transaction, and leaves only that choice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from denwatch.client.subscriber import core
from denwatch.client.subscriber.messages import (
    ReceivedNotification,
    RequestRefusedError,
    SubscriberStoreError,
    TransactionError,
    read_notification,
)

try:
    import fcntl
except ImportError:  # not on this system: nothing keeps a second process out there
    fcntl = None  # type: ignore[assignment]

_APPLICATION = 0x64656E73  # "dens": whose file it is
_VERSION = 2
_PATIENCE = 10_000  # ms, while a store is opened
_BUSY = 50  # ms, afterwards
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
# By schema version: the statements that make the next version of it.
_MIGRATIONS = {
    1: (
        "ALTER TABLE denwatch_inbox ADD COLUMN reading TEXT",
        "CREATE UNIQUE INDEX denwatch_readings ON denwatch_inbox (reading)",
    )
}


@dataclass(frozen=True)
class SubscriptionStatus:
    """One of our subscriptions. `state`: "pending", "active", "refused" (see `error`), "ending"
    until a node confirms its end, "ended" while another node may still have it."""

    name: str
    text: str
    state: str
    id: int | str | None = None
    error: RequestRefusedError | None = None
    notes: tuple[str, ...] = ()  # what the node said besides: who can answer, approximations
    taken: tuple[str, ...] = ()  # what the node took everyday and ambiguous words for
    understood: str = ""  # the subscription as the node says it


def connect(path: str | Path, busy_ms: int) -> sqlite3.Connection:
    """Open a connection whose transactions we begin ourselves, one thread at a time."""
    connection = sqlite3.connect(
        path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous=FULL")
    return connection


@contextmanager
def transact(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction; commit it, or roll back if the block raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class SubscriberStore:
    """The link thread's side. `remember` is how many handled notifications are recognised, `keep`
    of how many the content is kept; both far beyond what a node would send again."""

    def __init__(
        self,
        path: str | Path,
        name: str,
        device: str,
        *,
        remember: int = 1_000_000,
        keep: int = 10_000,
    ) -> None:
        self.path = Path(path)
        self._remember, self._keep = remember, keep
        self._lock = _lock(self.path)
        with ExitStack() as undo:
            undo.callback(self._lock.close)
            try:
                self._connection = connect(self.path, _PATIENCE)
                self._run = self._connection.execute
                undo.callback(self._connection.close)
                self.device = self._prepare(name, device)
            except sqlite3.Error as error:
                raise SubscriberStoreError(f"{self.path}: {error}") from None
            undo.pop_all()
        # From here on: try again later rather than block the link.
        self._connection.execute(f"PRAGMA busy_timeout={_BUSY}")

    def _prepare(self, name: str, device: str) -> str:
        """Check whose file it is before changing anything; return the MQTT client id."""
        found = self._connection
        (application,) = found.execute("PRAGMA application_id").fetchone()
        (version,) = found.execute("PRAGMA user_version").fetchone()
        (tables,) = found.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        is_ours = application == _APPLICATION
        if not is_ours and tables:
            raise SubscriberStoreError(f"{self.path} is not a subscriber's store")
        if is_ours and version != _VERSION and version not in _MIGRATIONS:
            raise SubscriberStoreError(f"{self.path} has schema {version}, this program {_VERSION}")
        if is_ours:
            subscriber, device = found.execute("SELECT name, device FROM denwatch_about").fetchone()
            if subscriber != name:
                raise SubscriberStoreError(f"{self.path} belongs to {subscriber}, not {name}")
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
        """Close, and release the lock."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._connection.close()
        self._lock.close()

    # Reading ---------------------------------------------------------------------------------

    def list_subscriptions(self) -> list[SubscriptionStatus]:
        """Return our subscriptions, by name."""
        rows = self._run(
            "SELECT name, text, state, id, error FROM denwatch_subscriptions ORDER BY name"
        )
        return [
            SubscriptionStatus(
                name,
                text,
                state,
                json.loads(id) if id else None,
                RequestRefusedError(*json.loads(error)) if error else None,
            )
            for name, text, state, id, error in rows
        ]

    def list_wanted(self) -> list[tuple[str, str, list[str]]]:
        """Return name, text and confirming servers of the subscriptions that are not refused."""
        return self._list_in("pending", "active")

    def list_ended(self) -> list[tuple[str, list[str]]]:
        """Return the ended subscriptions, with the servers that may still have them."""
        return [(name, servers) for name, _, servers in self._list_in("ending", "ended")]

    def _list_in(self, *states: str) -> list[tuple[str, str, list[str]]]:
        servers: dict[str, list[str]] = {}
        for name, server in self._run("SELECT * FROM denwatch_confirmations"):
            servers.setdefault(name, []).append(server)
        found = [status for status in self.list_subscriptions() if status.state in states]
        return [(one.name, one.text, servers.get(one.name, [])) for one in found]

    def list_requests(self) -> list[core.SubscriberRequest]:
        """Return the requests that no node has answered, oldest first."""
        query = "SELECT id, kind, name, text FROM denwatch_requests ORDER BY sequence"
        return [core.SubscriberRequest(*row) for row in self._run(query)]

    def list_unreported(self) -> list[str]:
        """Return the keys of notifications that are not reported as received yet."""
        query = "SELECT key FROM denwatch_inbox WHERE NOT is_reported ORDER BY sequence"
        return [key for (key,) in self._run(query)]

    # Changing --------------------------------------------------------------------------------

    def add_request(self, request: core.SubscriberRequest) -> None:
        """Store a request until it is answered; it replaces an older one for the same name."""
        with transact(self._connection):
            self._run("DELETE FROM denwatch_requests WHERE name = ?", (request.name,))
            if request.kind == "subscribe":
                self._run("DELETE FROM denwatch_confirmations WHERE name = ?", (request.name,))
            self._run(
                "INSERT INTO denwatch_requests (id, kind, name, text) VALUES (?, ?, ?, ?)",
                (request.id, request.kind, request.name, request.text),
            )
            state = "pending" if request.kind == "subscribe" else "ending"
            self._run(
                "INSERT OR REPLACE INTO denwatch_subscriptions (name, text, state)"
                " VALUES (?, ?, ?)",
                (request.name, request.text, state),
            )

    def apply(self, changes: Iterable[core.StoreChange]) -> int:
        """Make all changes in one transaction; return how many notifications were new.

        sqlite3.OperationalError: somebody else is writing, nothing was changed, try again.
        """
        new = 0
        with transact(self._connection):
            for change in changes:
                if isinstance(change, core.StoreNotification):
                    new += self._store_notification(change)
                elif isinstance(change, core.StoreReply):
                    self._store_reply(change)
                else:
                    self._connection.executemany(
                        "UPDATE denwatch_inbox SET is_reported = 1 WHERE key = ?",
                        [(key,) for key in change.keys],
                    )
        return new

    def _store_notification(self, change: core.StoreNotification) -> int:
        notification = change.notification
        if notification.reading is not None and self._has_twin(notification):
            self._run(
                "INSERT INTO denwatch_inbox (key, at, is_handled) VALUES (?, ?, 1)"
                " ON CONFLICT (key) DO UPDATE SET is_reported = 0",
                (notification.key, change.at),
            )
            return 0
        cursor = self._run(
            "INSERT OR IGNORE INTO denwatch_inbox (key, payload, at, reading) VALUES (?, ?, ?, ?)",
            (notification.key, change.payload, change.at, notification.reading),
        )
        if cursor.rowcount:
            return 1
        # A second time: the node does not know yet that we have it.
        self._run("UPDATE denwatch_inbox SET is_reported = 0 WHERE key = ?", (notification.key,))
        return 0

    def _has_twin(self, notification: ReceivedNotification) -> bool:
        """Return whether the same reading came before through another node, by another id."""
        query = "SELECT key FROM denwatch_inbox WHERE reading = ?"
        found = self._run(query, (notification.reading,)).fetchone()
        return found is not None and found[0] != notification.key

    def _store_reply(self, change: core.StoreReply) -> None:
        request, reply = change.request, change.reply
        self._run("DELETE FROM denwatch_requests WHERE id = ?", (request.id,))
        if request.kind == "unsubscribe":  # also refused: the node does not have it for us
            self._run(
                "DELETE FROM denwatch_confirmations WHERE name = ? AND server = ?",
                (request.name, change.server),
            )
            self._run(
                "UPDATE denwatch_subscriptions SET state = 'ended' WHERE name = ?", (request.name,)
            )
            self._run(
                "DELETE FROM denwatch_subscriptions WHERE name = ?1 AND NOT EXISTS"
                " (SELECT * FROM denwatch_confirmations WHERE name = ?1)",
                (request.name,),
            )
        elif reply.is_ok:
            self._run(
                "UPDATE denwatch_subscriptions SET state = 'active', id = ? WHERE name = ?",
                (json.dumps(reply.fields.get("id")), request.name),
            )
            self._run(
                "INSERT OR IGNORE INTO denwatch_confirmations VALUES (?, ?)",
                (request.name, change.server),
            )
        else:
            error = reply.build_error()
            fields = (
                error.message,
                error.at,
                error.length,
                error.hint,
                error.suggestions,
                error.hints,
            )
            self._run(
                "UPDATE denwatch_subscriptions SET state = 'refused', error = ? WHERE name = ?",
                (json.dumps(fields), request.name),
            )

    def tidy(self) -> None:
        """Delete what is long done: first the content of handled notifications, then their keys."""
        with transact(self._connection):
            (last,) = self._run("SELECT coalesce(max(sequence), 0) FROM denwatch_inbox").fetchone()
            self._run(
                "UPDATE denwatch_inbox SET payload = NULL"
                " WHERE is_handled AND payload IS NOT NULL AND sequence <= ?",
                (last - self._keep,),
            )
            self._run(
                "DELETE FROM denwatch_inbox WHERE is_handled AND sequence <= ?",
                (last - self._remember,),
            )


def _lock(path: Path) -> IO[bytes]:
    """Lock out every other process until the file is closed or this process dies."""
    try:
        for name in (path, f"{path}-lock"):  # what is in them is for their owner's eyes
            os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
        stream = Path(f"{path}-lock").open("ab")  # noqa: SIM115 - held as long as the store
    except OSError as error:
        raise SubscriberStoreError(f"{path}: {error.strerror}") from None
    if fcntl is not None:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            raise SubscriberStoreError(
                f"{path} is used by another process: give each its own store"
            ) from None
    os.set_inheritable(stream.fileno(), False)
    return stream


_BUSY_TIMEOUT = 60_000  # ms for a handler; the link thread's transactions are short
_FIRST_PAUSE = 1_000  # ms, after a handler that failed; then doubling
_LONGEST_PAUSE = 300_000


class Promise(Enum):
    """What holds for effects outside the store if the process dies while handling."""

    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


class HandlerTransaction:
    """Lent to a handler: SQL on the store's file, committed when the notification is handled."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: sqlite3.Connection | None = connection

    def execute(self, sql: str, parameters: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._use().execute(sql, tuple(parameters))

    def executemany(self, sql: str, rows: Iterable[Iterable[Any]]) -> sqlite3.Cursor:
        """Run one statement for many rows."""
        return self._use().executemany(sql, [tuple(row) for row in rows])

    def end(self) -> None:
        """End the loan; the handler may not use it any more."""
        self._use()
        self._connection = None

    def _use(self) -> sqlite3.Connection:
        if self._connection is None:
            raise TransactionError("the transaction is over: it ends with its handler")
        if not self._connection.in_transaction:
            raise TransactionError("the handler ended the transaction that was lent to it")
        return self._connection


class Inbox:
    """The handler's side of a store: one notification at a time, from any thread."""

    def __init__(self, path: str | Path, now: Callable[[], int]) -> None:
        self._connection = connect(path, _BUSY_TIMEOUT)
        self._now = now
        self._taking = threading.RLock()  # reentrant: a handler may look at the inbox
        self._handler: int | None = None  # the thread to which the transaction is lent
        self._lent: set[int] = set()
        self._arrival = threading.Condition()
        self._arrived = 0
        self._listeners: list[Callable[[], None]] = []
        self.is_closed = False  # no more notifications come out

    def close(self) -> None:
        """Wake whoever waits, and close once the current notification is done."""
        with self._arrival:
            self.is_closed = True
        self.announce()
        with self._taking:
            self._connection.close()

    def announce(self) -> None:
        """Wake whoever waits: notifications have arrived."""
        with self._arrival:
            self._arrived += 1
            self._arrival.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener`, on any thread, when notifications arrive and when this is closed."""
        with self._arrival:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling."""
        with self._arrival:
            self._listeners.remove(listener)

    def find_pause(self) -> float | None:
        """Return the seconds until a postponed notification is due; None if there is none."""
        due = self._find_due()
        return None if due is None else max(0.01, (due - self._now()) / 1000)

    def wait(self, timeout: float | None = None) -> bool:
        """Return when a note waits; False after the timeout (seconds), or when closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_closed:
            with self._arrival:
                arrived = self._arrived
            due = self._find_due()
            if due is not None and due <= self._now():
                return True
            pause = self.find_pause()
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                pause = left if pause is None else min(pause, left)
            with self._arrival:
                if self._arrived == arrived and not self.is_closed:
                    self._arrival.wait(pause)
        return False

    def _find_due(self) -> int | None:
        """Return when the next notification may be handled, in ms; None if there is none."""
        with self._taking:
            if self.is_closed:
                return None
            rows = self._connection.execute(
                "SELECT sequence, not_before FROM denwatch_inbox WHERE NOT is_handled"
                " ORDER BY not_before LIMIT ?",
                (len(self._lent) + 1,),
            ).fetchall()
        return next((int(due) for number, due in rows if number not in self._lent), None)

    @contextmanager
    def take(
        self, promise: Promise = Promise.AT_LEAST_ONCE
    ) -> Iterator[tuple[ReceivedNotification, HandlerTransaction] | None]:
        """Lend the oldest waiting notification and its transaction; None if none waits.

        If the block raises, the transaction is rolled back, and the notification comes again
        later (AT_LEAST_ONCE), after the others.
        """
        self.check_thread("take")
        with self._taking:
            found = None if self.is_closed else self._find()
            if found is None:
                yield None
                return
            sequence, notification = found
            if promise is Promise.AT_MOST_ONCE:
                self.mark(sequence)
            self._handler = threading.get_ident()
            try:
                with transact(self._connection):
                    self._mark(sequence)
                    transaction = HandlerTransaction(self._connection)
                    yield notification, transaction
                    transaction.end()
            except Exception:
                if promise is Promise.AT_LEAST_ONCE:
                    self._postpone(sequence)
                raise
            finally:
                self._handler = None

    def check_thread(self, what: str) -> None:
        """Refuse a call that would deadlock: the calling handler itself holds the store."""
        if self._handler == threading.get_ident():
            raise TransactionError(f"{what}() inside a handler's transaction: call it afterwards")

    def lend(self, promise: Promise) -> tuple[int, ReceivedNotification] | None:
        """Return the oldest waiting notification, with the number for `mark` or `put_back`."""
        self.check_thread("notifications")
        with self._taking:
            found = None if self.is_closed else self._find()
            if found is None:
                return None
            if promise is Promise.AT_MOST_ONCE:
                self.mark(found[0])
            else:
                self._lent.add(found[0])
            return found

    def mark(self, sequence: int) -> None:
        """Mark a lent notification as handled."""
        with self._taking:
            if not self.is_closed:
                with transact(self._connection):
                    self._mark(sequence)
            self._lent.discard(sequence)

    def put_back(self, sequence: int) -> None:
        """Return a lent notification that was not handled: it waits again."""
        with self._taking:
            self._lent.discard(sequence)
        self.announce()

    def _find(self) -> tuple[int, ReceivedNotification] | None:
        while True:
            rows = self._connection.execute(
                "SELECT sequence, payload FROM denwatch_inbox"
                " WHERE NOT is_handled AND not_before <= ? ORDER BY sequence LIMIT ?",
                (self._now(), len(self._lent) + 1),
            ).fetchall()
            row = next((row for row in rows if row[0] not in self._lent), None)
            if row is None:
                return None
            notification = read_notification(row[1])
            if notification is not None:
                return row[0], notification
            with transact(self._connection):  # an earlier version stored what we cannot read
                self._mark(row[0])

    def _mark(self, sequence: int) -> None:
        self._connection.execute(
            "UPDATE denwatch_inbox SET is_handled = 1 WHERE sequence = ?", (sequence,)
        )

    def _postpone(self, sequence: int) -> None:
        query = "SELECT attempts FROM denwatch_inbox WHERE sequence = ?"
        with transact(self._connection):
            (attempts,) = self._connection.execute(query, (sequence,)).fetchone()
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempts, 20))
            self._connection.execute(
                "UPDATE denwatch_inbox SET attempts = ?, not_before = ? WHERE sequence = ?",
                (attempts + 1, self._now() + pause, sequence),
            )

    def list_stored(self, limit: int = 1_000) -> list[ReceivedNotification]:
        """Return the notifications whose content is still here, handled or not, newest first."""
        query = (
            "SELECT payload FROM denwatch_inbox WHERE payload IS NOT NULL"
            " ORDER BY sequence DESC LIMIT ?"
        )
        with self._taking:
            rows = [] if self.is_closed else self._connection.execute(query, (limit,)).fetchall()
        return [found for (payload,) in rows if (found := read_notification(payload)) is not None]

    def count_waiting(self) -> int:
        """Return how many notifications are not handled."""
        query = "SELECT count(*) FROM denwatch_inbox WHERE NOT is_handled"
        with self._taking:
            found = (0,) if self.is_closed else self._connection.execute(query).fetchone()
        return int(found[0])
