"""What a node remembers of each peer, durably: what was acknowledged, and names for runs.

The only file that reads and writes these records. They are in memory during a contact alone. A
record is about one direction each way: `told` is our state that the peer acknowledged (a version,
and a token by which the peer knows that state again), `heard` the tokens of the peer's state that
we have committed. The last two are kept, because the peer may not know that we committed the
newest. Whoever lost its store does not know the token, says so, and is told everything.
"""

from __future__ import annotations

from denwatch.node.core.interface import Reader
from denwatch.node.core.items import Dot, read_dot
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import FrameReader, Run, Spans, decode_spans, encode_spans
from denwatch.node.replication.wire import NO_TOKEN, TOKEN
from denwatch.protocol.errors import ProtocolError

RECORDS = "peer.record"
TABLES = "peer.table"
WITHHELD = "peer.withheld"
_OUT, _IN = b"\0", b"\1"


class PeerRecord:
    """One peer's record, as a contact found it and changes it."""

    def __init__(self, peer: str, reader: Reader) -> None:
        self.told_version = 0
        self.told_token = NO_TOKEN
        self.heard: tuple[bytes, bytes] = (NO_TOKEN, NO_TOKEN)
        self.indices: dict[Run, int] = {}  # of runs that the peer knows by number
        self.names: list[Run] = []  # what the peer's numbers mean
        # Runs of which the strategy kept something back, and what the peer had seen of them then;
        # None if that is not known. A peer that has seen more since says so by itself.
        self.withheld: dict[Run, Spans | None] = {}
        name = peer.encode()
        self._key = bytes([len(name)]) + name
        value = reader.get(RECORDS, self._key)
        if value is None:
            return
        self.told_version = int.from_bytes(value[:8], "big")
        tokens = [value[at : at + TOKEN] for at in range(8, 8 + 3 * TOKEN, TOKEN)]
        self.told_token, self.heard = tokens[0], (tokens[1], tokens[2])
        for _, run in reader.scan(TABLES, self._key + _OUT):
            dot = read_dot(run)
            self.indices[dot.origin, dot.epoch] = len(self.indices)
        for _, run in reader.scan(TABLES, self._key + _IN):
            dot = read_dot(run)
            self.names.append((dot.origin, dot.epoch))
        for key, seen in reader.scan(WITHHELD, self._key):
            dot = read_dot(key[len(self._key) :])
            self.withheld[dot.origin, dot.epoch] = decode_spans(FrameReader(seen)) if seen else None

    # What the peer has of us ----------------------------------------------------------------

    def forget_told(self, transaction: Transaction) -> None:
        """Take it that the peer knows nothing of us: it lost its store."""
        self.told_version, self.told_token = 0, NO_TOKEN
        for index in range(len(self.indices)):
            transaction.write(TABLES, self._table_key(_OUT, index), None)
        self.indices = {}
        self._write(transaction)

    def note_told(
        self, transaction: Transaction, version: int, token: bytes, named: list[Run]
    ) -> None:
        """Note that the peer committed our state as of a version, and numbers for new runs."""
        for run in named:
            index = len(self.indices)
            self.indices[run] = index
            transaction.write(TABLES, self._table_key(_OUT, index), Dot(*run, 0).key)
        self.told_version, self.told_token = version, token
        self._write(transaction)

    def note_equal(self, transaction: Transaction, version: int) -> None:
        """Note that the peer has all that we had at a version, however it came to it."""
        if version > self.told_version:
            self.told_version = version
            self._write(transaction)

    # What we have of the peer ---------------------------------------------------------------

    def knows(self, token: bytes) -> bool:
        """Return whether the peer may speak relative to this state of its own."""
        return token == NO_TOKEN or token in self.heard

    def resolve(self, run: Run | int, table: int) -> Run:
        """Return the run that a peer means, whose table has so many names that we confirmed."""
        if not isinstance(run, int):
            return run
        if run >= table:
            raise ProtocolError(f"number {run} for a run, {table} were named")
        return self.names[run]

    def note_heard(
        self, transaction: Transaction, token: bytes, start: int, named: list[Run]
    ) -> None:
        """Note that we have the peer's state, and its numbers for new runs, from `start` on."""
        for index in range(start + len(named), len(self.names)):
            transaction.write(TABLES, self._table_key(_IN, index), None)
        self.names[start:] = named
        for index, run in enumerate(named, start):
            transaction.write(TABLES, self._table_key(_IN, index), Dot(*run, 0).key)
        self.heard = (token, self.heard[0])
        self._write(transaction)

    # What was kept back ---------------------------------------------------------------------

    def withhold(self, transaction: Transaction, withheld: dict[Run, Spans | None]) -> None:
        """Note the runs of which something was kept back, and may go the next time."""
        for run in sorted(self.withheld.keys() - withheld.keys()):
            transaction.write(WITHHELD, self._key + Dot(*run, 0).key, None)
        for run, seen in sorted(withheld.items(), key=lambda pair: pair[0]):
            if run not in self.withheld or self.withheld[run] != seen:
                value = b"" if seen is None else encode_spans(seen)
                transaction.write(WITHHELD, self._key + Dot(*run, 0).key, value)
        self.withheld = withheld

    def _table_key(self, way: bytes, index: int) -> bytes:
        return self._key + way + index.to_bytes(4, "big")

    def _write(self, transaction: Transaction) -> None:
        value = self.told_version.to_bytes(8, "big") + self.told_token + b"".join(self.heard)
        transaction.write(RECORDS, self._key, value)
