"""Which notifications may wait for whom, in eight bytes each; and when they were read.

The truth is on the disk (`sub.want`); this says where to look. A notification is a code here: the
number of its run and its sequence. Lists only grow; `delivery` cleans an
owner's when half of it is gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from denwatch.node.core.items import Dot, read_dot
from denwatch.node.replication.dot_sets import Run

_SEQUENCE_BITS = 40
_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_SECOND = 1_000


class Ledger:
    """Codes of notifications, by owner and by time."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._bases: list[bytes] = []  # of each run, how its keys begin
        self._numbers: dict[Run, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._seconds: dict[int, array[int]] = {}
        self._counts: dict[int, int] = {}

    def encode(self, dot: Dot) -> int:
        """Return the code of a dot."""
        run = (dot.origin, dot.epoch)
        number = self._numbers.get(run)
        if number is None:
            number = self._numbers[run] = len(self._runs)
            self._runs.append(run)
            self._bases.append(dot.key[:-8])
        return number << _SEQUENCE_BITS | dot.sequence

    def encode_key(self, key: bytes) -> int:
        """Return the code of a dot's key."""
        base = self._prefixes.get(key[:-8])
        if base is None:
            base = self._prefixes[key[:-8]] = self.encode(read_dot(key)) & ~_SEQUENCE
        return base | int.from_bytes(key[-8:], "big")

    def decode(self, code: int) -> Dot:
        """Return the dot of a code."""
        origin, epoch = self._runs[code >> _SEQUENCE_BITS]
        return Dot(origin, epoch, code & _SEQUENCE)

    def make_key(self, code: int) -> bytes:
        """Return the key of the dot of a code."""
        return self._bases[code >> _SEQUENCE_BITS] + (code & _SEQUENCE).to_bytes(8, "big")

    # By time --------------------------------------------------------------------------------

    def note_time(self, code: int, time: int) -> None:
        """Note when a notification was read at the latest."""
        second = time // _SECOND
        codes = self._seconds.get(second)
        if codes is None:
            codes = self._seconds[second] = array("Q")
            self._counts[second] = 0
        codes.append(code)
        self._counts[second] += 1

    def forget_time(self, time: int) -> None:
        """Note that a notification of this time is gone."""
        second = time // _SECOND
        if second in self._counts:
            self._counts[second] -= 1
            if not self._counts[second]:
                del self._counts[second], self._seconds[second]

    def iterate_since(self, time: int) -> Iterator[int]:
        """Yield the codes of what was read since then, in the order of time; some may be gone."""
        first = time // _SECOND
        for second in sorted(second for second in self._seconds if second >= first):
            yield from self._seconds.get(second, ())

    def has_since(self, time: int) -> bool:
        """Return whether anything was read since then."""
        return any(second >= time // _SECOND for second in self._seconds)
