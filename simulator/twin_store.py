"""Two stores in one: the memory model and SQLite do the same, and must answer the same.

Every operation goes to both; what they return is compared at once, and all contents when the store
is opened again or closed. The model decides what fails; SQLite then undoes, commits or is opened
anew, as the model did. A disk that forgets or changes values is the model's alone: SQLite gets the
same contents then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from denwatch.node.log.writer import OutboxRow
from denwatch.node.store import Change, Store, StoreError

from simulator.disk import FieldMedium, FieldStore
from simulator.memory_store import Crashed

Contents = dict[str, dict[bytes, bytes]]


class StoresDiffer(AssertionError):
    """The two stores do not hold or answer the same."""


class TwinStore:
    """A node's store, twice."""

    def __init__(self, model: FieldStore, path: Path, first_epoch: int = 1) -> None:
        self.model = model
        self._path = path
        try:
            self._sql = Store(path, model.node, check="none", first_epoch=first_epoch)
        except BaseException:
            model.close()
            raise
        # A copy begins a log of its own, which is not compared.
        self._has_outbox = not _has_lied(model.medium)
        if not self._has_outbox:
            self._copy_model()
        self._compare_contents("at its opening")

    def _copy_model(self) -> None:
        """Give SQLite what the model has: its disk forgot or changed something by itself."""
        self._sql.close()
        for path in self._path.parent.glob(self._path.name + "*"):
            path.unlink()
        self._sql = Store(self._path, self.model.node, check="none", first_epoch=self.model.epoch)
        rows = self.model.medium.spaces.items()
        self._sql.apply([(s, k, v) for s, kept in rows for k, v in kept.items()])
        self._sql.commit()

    def _compare_contents(self, when: str) -> None:
        if self.model.medium.decayed:
            return  # changed under both, and copied at the next opening
        spaces = {space: rows for space, rows in self.model.medium.spaces.items() if rows}
        found = {space: dict(self._sql.scan(space)) for space in spaces}
        if found != spaces:
            wrong = sorted(space for space in spaces if spaces[space] != found[space])
            raise StoresDiffer(f"{self.node}: {wrong} differ {when}")

    # What a store has -----------------------------------------------------------------------

    @property
    def medium(self) -> FieldMedium:
        """The model's disk."""
        return self.model.medium

    @property
    def node(self) -> str:
        """The node that the store belongs to."""
        return self.model.node

    @property
    def epoch(self) -> int:
        """How often the store was opened."""
        return self.model.epoch

    @property
    def next_number(self) -> int:
        """The number that the next log record will get."""
        return self.model.next_number

    @property
    def settled(self) -> int:
        """All log records below this number are durably gone from the outbox."""
        return self.model.settled

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        value = self.model.get(space, key)
        if value != self._sql.get(space, key) and (space, key) not in self.medium.decayed:
            raise StoresDiffer(f"{self.node}: {key!r} in {space} differs")
        return value

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        rows = list(self.model.scan(space, prefix))
        if [key for key, _ in rows] != [key for key, _ in self._sql.scan(space, prefix)]:
            raise StoresDiffer(f"{self.node}: keys from {prefix!r} in {space} differ")
        yield from rows

    def apply(self, changes: Iterable[Change], logs: Iterable[bytes] = ()) -> None:
        """Make the changes and add the encoded log records, in the open group."""
        changes, logs = list(changes), list(logs)
        self.model.apply(changes, logs)
        self._sql.apply(changes, logs if self._has_outbox else ())

    def commit(self) -> bool:
        """Make everything applied durable. False: there was nothing to do."""
        try:
            is_done = self.model.commit()
        except Crashed as death:
            if str(death).startswith("after"):
                self._sql.commit()
            raise
        except StoreError:
            self._sql.rollback()
            raise
        if is_done != self._sql.commit() and self._has_outbox:
            raise StoresDiffer(f"{self.node}: one store had something to commit")
        return is_done

    def rollback(self) -> None:
        """Discard everything applied since the last commit."""
        self._sql.rollback()
        self.model.rollback()

    def read_outbox(self, limit: int) -> list[OutboxRow]:
        """Return the oldest committed rows, up to the one that makes `limit` records."""
        rows = self.model.read_outbox(limit)
        if self._has_outbox:
            found = [(row.first, row.records) for row in self._sql.read_outbox(limit)]
            if found != [(row.first, row.records) for row in rows]:
                raise StoresDiffer(f"{self.node}: the outboxes differ")
        return rows

    def drop_outbox(self, before: int) -> None:
        """Remove the rows that end at or before this number, in the open group."""
        self.model.drop_outbox(before)
        if self._has_outbox:
            self._sql.drop_outbox(before)

    def close(self) -> None:
        """Discard what is not committed, and release the store."""
        self.model.close()
        self._sql.close()

    def crash(self) -> FieldMedium:
        """Die here; SQLite loses what was not committed."""
        self._sql.close()
        self.model.crash()
        return self.model.medium


def _has_lied(medium: FieldMedium) -> bool:
    return bool(medium.losses or medium.decayed)
