"""Where a finder keeps its items: rows of values and of bit planes, added and removed one by one.

The only file that gives out slots. A slot is a row number that stays an item's own until it is
removed; `age` orders items by when they were added, and decides ties.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from denwatch.node.services.attributes import Values, count_words, pack_planes, read_matrix
from denwatch.node.services.kernels import Slots

_FIRST_CAPACITY = 64


class Catalogue:
    """Items by identity, each with a vector of `width` values of -1, 0 and 1."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise ValueError(f"a catalogue needs at least one attribute, not {width}")
        self.width = width
        words = count_words(width)
        self.values: Values = np.zeros((_FIRST_CAPACITY, width), np.int8)
        self.plus = np.zeros((_FIRST_CAPACITY, words), np.uint64)
        self.minus = np.zeros((_FIRST_CAPACITY, words), np.uint64)
        self.age = np.zeros(_FIRST_CAPACITY, np.int64)
        self.identities: list[Hashable] = []
        self._slot_of: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._next_age = 0
        self._with_negatives = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self._slot_of

    @property
    def has_negatives(self) -> bool:
        """Whether any item says "against" anything."""
        return self._with_negatives > 0

    def list_slots(self) -> Slots:
        """Return the slots in use, oldest item first."""
        return np.fromiter(self._slot_of.values(), np.int64, len(self._slot_of))

    def add_items(self, identities: Sequence[Hashable], rows: npt.ArrayLike) -> Slots:
        """Add items that are not here yet, all or none; return their slots."""
        matrix = read_matrix(rows, self.width)
        if len(matrix) != len(identities):
            raise ValueError(f"{len(identities)} identities for {len(matrix)} vectors")
        given = set(identities)
        if len(given) != len(identities):
            raise ValueError("an identity is given twice in one call")
        for identity in given:
            if identity in self._slot_of:
                raise ValueError(f"{identity!r} is already here: remove it first")
        slots = self._take_slots(len(matrix))
        self.values[slots] = matrix
        self.plus[slots], self.minus[slots] = pack_planes(matrix)
        self.age[slots] = np.arange(self._next_age, self._next_age + len(matrix))
        self._next_age += len(matrix)
        self._with_negatives += int(np.count_nonzero((matrix < 0).any(axis=1)))
        for identity, slot in zip(identities, slots.tolist(), strict=True):
            self.identities[slot] = identity
            self._slot_of[identity] = slot
        return slots

    def remove_item(self, identity: Hashable) -> int:
        """Forget an item; return the slot that it had."""
        slot = self._slot_of.pop(identity, None)
        if slot is None:
            raise KeyError(f"{identity!r} is not here")
        self._with_negatives -= int((self.values[slot] < 0).any())
        self.identities[slot] = None
        self._free.append(slot)
        return slot

    def _take_slots(self, count: int) -> Slots:
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        first = len(self.identities)
        fresh = count - len(reused)
        self.identities.extend([None] * fresh)
        self._grow(len(self.identities))
        return np.array([*reused, *range(first, first + fresh)], np.int64)

    def _grow(self, needed: int) -> None:
        have = len(self.age)
        if needed <= have:
            return
        more = max(needed, 2 * have) - have
        self.values = np.concatenate([self.values, np.zeros((more, self.width), np.int8)])
        words = self.plus.shape[1]
        self.plus = np.concatenate([self.plus, np.zeros((more, words), np.uint64)])
        self.minus = np.concatenate([self.minus, np.zeros((more, words), np.uint64)])
        self.age = np.concatenate([self.age, np.zeros(more, np.int64)])
