"""Subscriptions as unions of integer boxes over a feature mask, and covering between two of them.

A notification must carry every feature of a subscription to match it. Whoever matches t with
mask G may carry G alone, so s with mask F covers t only if F is a subset of G and t's boxes,
seen on F's attributes, lie inside s's. This file is plain: no numba, no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from denwatch.node.covering.layout import Rows

Interval = tuple[int, int]  # both ends belong to it
Box = Mapping[int, Interval]  # by bit number
Row = tuple[int, ...]  # lo0, hi0, lo1, hi1, ... over the bits of a mask, ascending

_SMALLEST, _LARGEST = -(2**31), 2**31 - 1  # rectangles are stored as 32-bit integers


@dataclass(frozen=True, slots=True)
class Domains:
    """The values that each attribute can take: one common interval, and exceptions by bit."""

    default: Interval = (0, 255)
    special: Mapping[int, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [("default", self.default), *((f"bit {b}", i) for b, i in self.special.items())]
        for name, (low, high) in named:
            if not _SMALLEST <= low <= high <= _LARGEST:
                raise ValueError(
                    f"domain of {name} is not an interval of 32-bit integers: {low, high}"
                )

    def of(self, bit: int) -> Interval:
        """Return the domain of one attribute."""
        return self.special.get(bit, self.default)

    def span(self, mask: int) -> Row:
        """Return the box of everything over the attributes of a mask."""
        return tuple(end for bit in list_bits(mask) for end in self.of(bit))


@dataclass(frozen=True, slots=True)
class Subscription:
    """The features that a notification must carry, and the boxes of which its values meet one.

    A box maps an attribute's bit number to the interval of its values; an attribute of the mask
    that a box leaves out may have any value. Without boxes nothing matches.

    Where boxes cannot say exactly what matches, `boxes` hold what surely does and `outer` what can
    at most: the subscription covers others with the former and is covered only with the latter.
    """

    mask: int
    boxes: tuple[Box, ...]
    outer: tuple[Box, ...] | None = None  # None: the same as `boxes`

    def __post_init__(self) -> None:
        if self.mask < 0:
            raise ValueError(f"a feature mask must not be negative, but is {self.mask}")
        for number, box in enumerate((*self.boxes, *(self.outer or ()))):
            for bit, (low, high) in box.items():
                if bit < 0 or not self.mask >> bit & 1:
                    raise ValueError(f"box {number}: bit {bit} is not in mask {self.mask:#x}")
                if low > high:
                    raise ValueError(f"box {number}, bit {bit}: {low} > {high}; leave it out")


def find_outer(subscription: Subscription) -> tuple[Box, ...]:
    """Return the boxes outside of which a subscription matches nothing."""
    return subscription.boxes if subscription.outer is None else subscription.outer


@lru_cache(maxsize=4096)
def list_bits(mask: int) -> tuple[int, ...]:
    """Return the bit numbers of a mask, ascending."""
    bits = []
    while mask:  # by set bits, not by length: masks may be long and sparse
        bits.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return tuple(bits)


def list_rows(boxes: Iterable[Box], mask: int, domains: Domains) -> list[Row]:
    """Return boxes over a mask that has all of their attributes, clipped to the domains.

    A box that lies outside a domain matches nothing and is left out, as are repetitions.
    """
    rows = []
    for box in boxes:
        row: list[int] = []
        for bit in list_bits(mask):
            least, most = domains.of(bit)
            low, high = box.get(bit, (least, most))
            row += (max(low, least), min(high, most))
        if all(low <= high for low, high in zip(row[::2], row[1::2], strict=True)):
            rows.append(tuple(row))
    return list(dict.fromkeys(rows))


def pack_rows(rows: Iterable[Row], mask: int) -> Rows:
    """Return boxes over a mask as an array, one row each."""
    listed = list(rows)
    return np.array(listed, dtype=np.int32).reshape(len(listed), 2 * mask.bit_count())


@lru_cache(maxsize=4096)
def find_columns(inner: int, outer: int) -> npt.NDArray[np.intp]:
    """Return where the columns of mask `inner` are among those of mask `outer`."""
    places = [index for index, bit in enumerate(list_bits(outer)) if inner >> bit & 1]
    columns = np.array([2 * place + end for place in places for end in (0, 1)], np.intp)
    columns.flags.writeable = False  # many callers share it
    return columns


def lift_rows(rows: Rows, inner: int, outer: int, domains: Domains) -> Rows:
    """Return boxes over mask `inner` as boxes over `outer`: any value in the attributes added."""
    lifted = np.empty((len(rows), 2 * outer.bit_count()), np.int32)
    lifted[:] = domains.span(outer)
    lifted[:, find_columns(inner, outer)] = rows
    return lifted


def subtract_row(row: Row, cut: Row) -> list[Row]:
    """Return what is left of a box outside another, as disjoint boxes (Subsumption, Fig. 4)."""
    pairs = range(0, len(row), 2)
    if any(row[i] > cut[i + 1] or row[i + 1] < cut[i] for i in pairs):
        return [row]
    pieces, rest = [], list(row)
    for i in pairs:
        if rest[i] < cut[i]:
            pieces.append((*rest[: i + 1], cut[i] - 1, *rest[i + 2 :]))
            rest[i] = cut[i]
        if rest[i + 1] > cut[i + 1]:
            pieces.append((*rest[:i], cut[i + 1] + 1, *rest[i + 1 :]))
            rest[i + 1] = cut[i + 1]
    return pieces


def cover_rows(rows: Iterable[Row], by: Iterable[Row]) -> bool:
    """Say whether the boxes `by` together cover all of the boxes `rows`."""
    left = list(rows)
    for cut in by:
        left = [piece for row in left for piece in subtract_row(row, cut)]
        if not left:
            break
    return not left


def covers(first: Subscription, second: Subscription, domains: Domains) -> bool:
    """Say whether every notification that can match the second subscription matches the first."""
    rows = list_rows(find_outer(second), second.mask, domains)
    if first.mask & ~second.mask:
        return not rows  # what matches nothing is covered by anything
    return cover_rows(rows, list_rows(first.boxes, second.mask, domains))
