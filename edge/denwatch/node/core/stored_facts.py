"""Facts about vectors of subscriptions (`matching/facts.py`) on the disk: a start looks them up.

What a start had to work out is written during the ticks after it, a chunk at a time. Chunks of
other code, damaged ones, and all of them when most are of subscriptions that are gone, are removed
before. Nothing depends on it but the time that a start takes. Space on the disk:

  sub.fact    number of a chunk: a thousand vectors and their facts
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.matching.facts import Facts, FactTable, encode_chunk

FACT = "sub.fact"
_CHUNK = 1_000  # facts in a chunk, written in one tick


class StoredFacts:
    """What is on the disk, and what is not yet."""

    def __init__(self) -> None:
        self._vectors: list[bytes] = []  # not on the disk yet
        self._rows: Facts = FactTable().rows  # their facts
        self._useless: list[bytes] = []  # keys of chunks
        self._next = 1  # the number of the next chunk

    def load(self, reader: Reader) -> FactTable:
        """Return what is known."""
        table = FactTable()
        chunks = list(reader.scan(FACT))
        useless = table.load([value for _, value in chunks])
        self._useless = [chunks[number][0] for number in useless]
        self._next = 1 + max((int.from_bytes(key, "big") for key, _ in chunks), default=0)
        return table

    def learn(
        self, table: FactTable, vectors: Sequence[bytes], facts: Sequence[tuple[Any, ...]]
    ) -> None:
        """Add facts of vectors whose places are in the table already, to be written."""
        known = len(table.rows)
        table.add(facts)
        self._vectors = list(vectors)
        self._rows = table.rows[known:].copy()

    def drop_unused(self, reader: Reader, table: FactTable, used: int) -> None:
        """Begin anew if the facts are mostly of subscriptions that are gone."""
        if len(table.rows) > 2 * used + _CHUNK:
            self._useless = [key for key, _ in reader.scan(FACT)]

    def write_some(self, transaction: Transaction) -> None:
        """Remove a useless chunk, or write a new one, if there is any."""
        if self._useless:
            transaction.write(FACT, self._useless.pop(), None)
        elif self._vectors:
            vectors, self._vectors = self._vectors[:_CHUNK], self._vectors[_CHUNK:]
            rows, self._rows = self._rows[:_CHUNK], self._rows[_CHUNK:]
            transaction.write(FACT, self._next.to_bytes(4, "big"), encode_chunk(vectors, rows))
            self._next += 1
