"""A causal context: which dots were ever seen, for each origin and epoch a base and a bitmap.

All sequences up to `base` were seen, and base + 1 + i where bit i of the bitmap is set. Sequences
begin at 1. Nothing is ever taken out: what was seen stays seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

Run = tuple[str, int]  # one origin's one epoch


class Range(NamedTuple):
    """What was seen of one run."""

    base: int
    bitmap: int

    def holds(self, sequence: int) -> bool:
        """Return whether a sequence is in it."""
        if sequence <= self.base:
            return sequence > 0
        return bool(self.bitmap >> (sequence - self.base - 1) & 1)

    def add(self, sequence: int) -> Range:
        """Return the range with one more; the base moves over what has become whole."""
        if self.holds(sequence):
            return self
        if sequence == self.base + 1 and not self.bitmap:  # the usual case
            return Range(sequence, 0)
        bitmap = self.bitmap | 1 << (sequence - self.base - 1)
        whole = (~bitmap & (bitmap + 1)).bit_length() - 1
        return Range(self.base + whole, bitmap >> whole)

    def join(self, other: Range) -> Range:
        """Return what either has seen."""
        base = max(self.base, other.base)
        bitmap = self.bitmap >> (base - self.base) | other.bitmap >> (base - other.base)
        whole = (~bitmap & (bitmap + 1)).bit_length() - 1
        return Range(base + whole, bitmap >> whole)

    def list_missing(self, other: Range) -> Iterator[int]:
        """Yield the sequences that this one has and the other has not, rising."""
        sequence = other.base + 1
        while sequence <= self.base:
            if not other.holds(sequence):
                yield sequence
            sequence += 1
        bitmap = self.bitmap
        while bitmap:
            low = (bitmap & -bitmap).bit_length()
            sequence = self.base + low
            if sequence > other.base and not other.holds(sequence):
                yield sequence
            bitmap &= bitmap - 1

    def encode(self) -> bytes:
        """Return the range as bytes: eight for the base, then the bitmap, lowest byte first."""
        size = (self.bitmap.bit_length() + 7) // 8
        return self.base.to_bytes(8, "big") + self.bitmap.to_bytes(size, "little")


EMPTY = Range(0, 0)


def decode_range(data: bytes) -> Range:
    """Return the range of `Range.encode`."""
    return Range(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "little"))


class Context:
    """What one node has ever seen."""

    def __init__(self) -> None:
        self.runs: dict[Run, Range] = {}

    def holds(self, origin: str, epoch: int, sequence: int) -> bool:
        """Return whether a dot was seen."""
        return self.runs.get((origin, epoch), EMPTY).holds(sequence)

    def add(self, origin: str, epoch: int, sequence: int) -> None:
        """Note that a dot was seen."""
        run = (origin, epoch)
        self.runs[run] = self.runs.get(run, EMPTY).add(sequence)

    def join(self, run: Run, seen: Range) -> None:
        """Note everything that a range holds as seen."""
        self.runs[run] = self.runs.get(run, EMPTY).join(seen)
