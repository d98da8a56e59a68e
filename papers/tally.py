"""The vectors of A-ToPSS: degrees of predicates and of subscriptions, and what associates them.

The arrays are the paper's: a predicate vector and a subscription vector of (possible, certain), as
floats or as packed codes, counters, association lists or one association bit matrix. Only this file
allocates them.
"""

from __future__ import annotations

from array import array

import numpy as np

from papers.encodings import (
    FLOAT,
    Bytes,
    allocate_codes,
    encode,
    read_code,
    write_code,
)
from papers.stages import (
    Rated,
    Singles,
    Slots,
    follow_list,
    follow_row,
    list_complete,
)

_WEIGHTED = 3
_ROOM = 128  # subscriptions at first; doubled as needed, and always whole bytes of bits


class Tally:
    """The vectors of both stages and the association between them."""

    def __init__(self, bits: int, kind: int, matrix: bool) -> None:
        self._bits = bits
        self._kind = kind
        self._lists: list[array[int]] = []
        self._holders: list[int] = []  # how many subscriptions contain each predicate
        self._predicate_weights: list[float] = []
        self._predicates = np.zeros((16, 2), dtype=np.float32)
        self._predicate_codes = self._allocate(16)
        self._matrix = np.zeros((16, _ROOM // 8), dtype=np.uint8) if matrix else None
        self._size = 0
        self._sizes = np.zeros(_ROOM, dtype=np.uint8)
        self._limits = np.zeros((_ROOM, 2), dtype=np.float32)
        self._limit_codes = self._allocate(_ROOM)
        self._make_scores(_ROOM)

    def _allocate(self, count: int) -> Bytes:
        """Return room for so many pairs of codes; none where degrees are floats."""
        return allocate_codes(0 if self._bits == FLOAT else 2 * count, min(self._bits, 8))

    def _make_scores(self, room: int) -> None:
        """Allocate what a publication starts from anew."""
        self._floats = np.zeros((room if self._bits == FLOAT else 0, 2), dtype=np.float32)
        self._codes = self._allocate(room)
        self._counts = np.zeros(room, dtype=np.uint8)
        self._weights = np.zeros(room, dtype=np.float32)
        self._out = np.zeros((room, 2), dtype=np.float32)

    def _double(self) -> None:
        """Make room for twice as many subscriptions."""
        self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])
        self._limits = np.concatenate([self._limits, np.zeros_like(self._limits)])
        limit_codes = self._allocate(len(self._sizes))
        limit_codes[: len(self._limit_codes)] = self._limit_codes
        self._limit_codes = limit_codes
        if self._matrix is not None:
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)], axis=1)
        self._make_scores(len(self._sizes))

    def count_bytes(self) -> dict[str, int]:
        """Return the bytes of the degree vectors in use, and of the association."""
        degrees = 2 * (len(self._lists) + self._size)
        vectors = degrees * 4 if self._bits == FLOAT else (degrees * self._bits + 7) // 8
        if self._matrix is None:
            association = sum(4 * len(slots) for slots in self._lists)
        else:
            association = len(self._lists) * ((self._size + 7) // 8)
        return {"degrees": vectors, "association": association}

    def open_predicate(self, number: int, weight: float) -> None:
        """Make room for a predicate; numbers come one after another or are used again."""
        if number == len(self._lists):
            self._lists.append(array("i"))
            self._holders.append(0)
            self._predicate_weights.append(weight)
            if number >= len(self._predicates):
                self._predicates = np.concatenate(
                    [self._predicates, np.zeros_like(self._predicates)]
                )
                self._predicate_codes = self._allocate(len(self._predicates))
                if self._matrix is not None:
                    self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self._predicate_weights[number] = weight

    def open_slot(self, slot: int, predicates: int, possible: float, certain: float) -> None:
        """Make room for a subscription with so many predicates and these thresholds."""
        if slot >= len(self._sizes):
            self._double()
        self._size = max(self._size, slot + 1)
        self._sizes[slot] = predicates
        self._limits[slot] = possible, certain
        if self._bits != FLOAT:
            write_code(self._limit_codes, 2 * slot, self._bits, encode(possible, self._bits))
            write_code(self._limit_codes, 2 * slot + 1, self._bits, encode(certain, self._bits))

    def close_slot(self, slot: int) -> None:
        """Forget a subscription whose associations are gone."""
        self._sizes[slot] = 0

    def associate(self, number: int, slot: int) -> None:
        """Note that a subscription contains a predicate."""
        self._holders[number] += 1
        if self._matrix is None:
            self._lists[number].append(slot)
        else:
            self._matrix[number, slot >> 3] |= 1 << (slot & 7)

    def dissociate(self, number: int, slot: int) -> int:
        """Note that it no longer does; return how many subscriptions still contain it."""
        self._holders[number] -= 1
        if self._matrix is None:
            self._lists[number].remove(slot)
        else:
            self._matrix[number, slot >> 3] &= 255 ^ (1 << (slot & 7))
        return self._holders[number]

    def get_rated(self) -> Rated:
        """Return the predicate vector, for the first stage to write into."""
        return self._predicates, self._predicate_codes, self._bits

    def read_possible(self, number: int) -> float:
        """Return a predicate's stored possibility, as a float or as a code: good to compare."""
        if self._bits == FLOAT:
            return float(self._predicates[number, 0])
        return float(read_code(self._predicate_codes, 2 * number, self._bits))

    def gather(self, satisfied: list[int]) -> tuple[Slots, Singles, Singles]:
        """Run the second stage; return the matching slots and their degrees."""
        bits, kind = self._bits, self._kind
        self._counts[: self._size] = 0
        self._weights[: self._size] = 0
        self._floats[: self._size] = 0
        for number in satisfied:
            p = c = np.float32(0)
            pc = cc = 0
            if bits == FLOAT:
                p, c = self._predicates[number]
            else:
                pc = read_code(self._predicate_codes, 2 * number, bits)
                cc = read_code(self._predicate_codes, 2 * number + 1, bits)
            w = np.float32(self._predicate_weights[number] if kind == _WEIGHTED else 1)
            how = (p, c, pc, cc, bits, kind, w)
            vectors = (self._floats, self._codes, self._counts, self._weights)
            if self._matrix is None:
                follow_list(np.frombuffer(self._lists[number], dtype=np.int32), how, vectors)
            else:
                follow_row(self._matrix[number], self._size, how, vectors)
        slots = list_complete(
            self._size,
            bits,
            kind,
            (self._floats, self._codes, self._counts, self._weights),
            (self._sizes, self._limits, self._limit_codes),
            self._out,
        )
        return slots, self._out[: len(slots), 0], self._out[: len(slots), 1]
