"""Handling notes: each is taken, handled and marked, and never comes again.

What holds, precisely. `take()` lends a transaction in which the note is marked as handled:
whatever is written through it becomes true together with the mark, or not at all. So effects *in
the store* happen exactly once, whenever the process dies. Effects *outside* (a siren, a mail)
cannot be tied to a commit, and one has to choose what a death in between does:

- AT_LEAST_ONCE: handle, then mark. Killed in between, the note is handled again.
- AT_MOST_ONCE: mark, then handle. Killed in between, the note is not handled at all.

While a transaction is lent, arriving notes wait unacknowledged, so handlers that use one should be
short; `lend()` holds no transaction, and leaves only that choice.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from denwatch.client.subscriber.errors import TransactionError
from denwatch.client.subscriber.messages import Note, read_note
from denwatch.client.subscriber.store import connect, transact

_BUSY = 60_000  # ms; the link's transactions are short
_FIRST_PAUSE = 1_000  # ms, after a handler that failed; then doubling
_LONGEST_PAUSE = 300_000


class Promise(Enum):
    """What holds for effects outside the store when the process dies at the wrong moment."""

    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


class Transaction:
    """Lent to a handler: SQL on the store's file, true when the note counts as handled."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: sqlite3.Connection | None = connection

    def execute(self, sql: str, parameters: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._use().execute(sql, tuple(parameters))

    def executemany(self, sql: str, rows: Iterable[Iterable[Any]]) -> sqlite3.Cursor:
        """Run one statement for many rows."""
        return self._use().executemany(sql, [tuple(row) for row in rows])

    def end(self) -> None:
        """Take it back."""
        connection = self._use()
        self._connection = None
        if not connection.in_transaction:
            raise TransactionError("the handler ended the transaction that marks its note")

    def _use(self) -> sqlite3.Connection:
        if self._connection is None:
            raise TransactionError("the transaction is over: it lives as long as its note")
        if not self._connection.in_transaction:
            raise TransactionError("the handler ended the transaction that marks its note")
        return self._connection


class Inbox:
    """The handler's side of a store. One note at a time, from whichever thread."""

    def __init__(self, path: str | Path, now: Callable[[], int]) -> None:
        self._connection = connect(path, _BUSY)
        self._now = now
        self._taking = threading.RLock()  # again: a handler may look at the inbox
        self._handler: int | None = None  # the thread to which the transaction is lent
        self._in_hand: set[int] = set()
        self._arrival = threading.Condition()
        self._arrived = 0
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False

    def close(self) -> None:
        """Wake whoever waits, and close when the note in hand is done."""
        with self._arrival:
            self._is_closed = True
        self.announce()
        with self._taking:
            self._connection.close()

    @property
    def is_closed(self) -> bool:
        """Whether no more notes come out."""
        return self._is_closed

    def announce(self) -> None:
        """Say that notes have arrived."""
        with self._arrival:
            self._arrived += 1
            self._arrival.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call somebody, on whichever thread, when notes arrive and when this is closed."""
        with self._arrival:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling."""
        with self._arrival:
            self._listeners.remove(listener)

    def find_pause(self) -> float | None:
        """Return the seconds until a postponed note is due; None if there is none."""
        due = self._find_due()
        return None if due is None else max(0.01, (due - self._now()) / 1000)

    def wait(self, timeout: float | None = None) -> bool:
        """Return when a note waits; False after the timeout (seconds), or when closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_closed:
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
                if self._arrived == arrived and not self._is_closed:
                    self._arrival.wait(pause)
        return False

    def _find_due(self) -> int | None:
        """Return when the next note may be handled, in ms; None if there is none."""
        with self._taking:
            if self._is_closed:
                return None
            rows = self._connection.execute(
                "SELECT sequence, not_before FROM denwatch_inbox WHERE NOT is_handled"
                " ORDER BY not_before LIMIT ?",
                (len(self._in_hand) + 1,),
            ).fetchall()
        return next((int(due) for number, due in rows if number not in self._in_hand), None)

    @contextmanager
    def take(
        self, promise: Promise = Promise.AT_LEAST_ONCE
    ) -> Iterator[tuple[Note, Transaction] | None]:
        """Lend the oldest waiting note and the transaction that marks it; None if none waits.

        If the block raises, nothing in the transaction has happened, and the note comes again
        later (AT_LEAST_ONCE), behind the others.
        """
        self.check_thread("take")
        with self._taking:
            found = None if self._is_closed else self._find()
            if found is None:
                yield None
                return
            sequence, note = found
            if promise is Promise.AT_MOST_ONCE:
                self.mark(sequence)
            self._handler = threading.get_ident()
            try:
                with transact(self._connection):
                    self._mark(sequence)
                    transaction = Transaction(self._connection)
                    yield note, transaction
                    transaction.end()
            except Exception:
                if promise is Promise.AT_LEAST_ONCE:
                    self._postpone(sequence)
                raise
            finally:
                self._handler = None

    def check_thread(self, what: str) -> None:
        """Refuse what would wait for ever: the store is held by the handler that asks."""
        if self._handler == threading.get_ident():
            raise TransactionError(f"{what}() inside a note's transaction: call it afterwards")

    def lend(self, promise: Promise) -> tuple[int, Note] | None:
        """Return the oldest waiting note, with the number for `mark` or `put_back`."""
        self.check_thread("notes")
        with self._taking:
            found = None if self._is_closed else self._find()
            if found is None:
                return None
            if promise is Promise.AT_MOST_ONCE:
                self.mark(found[0])
            else:
                self._in_hand.add(found[0])
            return found

    def mark(self, sequence: int) -> None:
        """Note that a lent note was handled."""
        with self._taking:
            if not self._is_closed:
                with transact(self._connection):
                    self._mark(sequence)
            self._in_hand.discard(sequence)

    def put_back(self, sequence: int) -> None:
        """Note that a lent note was not handled: it waits again."""
        with self._taking:
            self._in_hand.discard(sequence)
        self.announce()

    def _find(self) -> tuple[int, Note] | None:
        while True:
            rows = self._connection.execute(
                "SELECT sequence, payload FROM denwatch_inbox"
                " WHERE NOT is_handled AND not_before <= ? ORDER BY sequence LIMIT ?",
                (self._now(), len(self._in_hand) + 1),
            ).fetchall()
            row = next((row for row in rows if row[0] not in self._in_hand), None)
            if row is None:
                return None
            note = read_note(row[1])
            if note is not None:
                return row[0], note
            with transact(self._connection):  # written by a program that read it otherwise
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

    def list_held(self, limit: int = 1_000) -> list[Note]:
        """Return the notes whose text is still here, handled or not, newest first."""
        query = (
            "SELECT payload FROM denwatch_inbox WHERE payload IS NOT NULL"
            " ORDER BY sequence DESC LIMIT ?"
        )
        with self._taking:
            rows = [] if self._is_closed else self._connection.execute(query, (limit,)).fetchall()
        return [note for (payload,) in rows if (note := read_note(payload)) is not None]

    def count_waiting(self) -> int:
        """Return how many notes are not handled."""
        query = "SELECT count(*) FROM denwatch_inbox WHERE NOT is_handled"
        with self._taking:
            found = (0,) if self._is_closed else self._connection.execute(query).fetchone()
        return int(found[0])
