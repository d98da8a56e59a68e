"""The roofline of a match: the time to read, and do nothing else with, the memory it touches.

Two of them, measured on the index itself and for the same notifications. `read_touched` reads the
boxes around zones, the lines of the rows in zones that are met, and the records of the candidates.
`read_rows` reads every row that the values name, whole, as an index without zones would.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from denwatch.node.matching.bit_rows import (
    NEXT,
    ROWS,
    SLOTS,
    TOPS,
    WORDS,
    ZONE,
    ZONES,
    count_rows,
    pack_probe,
)
from denwatch.node.matching.compiling import count_trailing_zeros
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.masks import ATTRS, BLOCK, WIDTH
from denwatch.node.matching.records import HEADER
from denwatch.node.matching.search import NotificationBatch
from numba import njit

Array = Any


@njit(nogil=True)
def list_lines(
    values: Array, groups: Array, count: int, attrs: Array, blocks: Array, zones: Array,
    bits: Array, slots: Array, whole: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Return where the touched lines of rows begin, and the touched records."""
    lines = []
    records = []
    first = np.empty(16, np.int64)
    probe = np.empty(8, np.int64)
    for group in range(count):
        row = groups[group]
        width = row[WIDTH]
        present = True
        for j in range(width):
            first[j] = values[attrs[row[ATTRS] + j]]
            present = present and first[j] >= 0
        if not present:
            continue
        pack_probe(first, first, 0, width, probe)
        block = row[BLOCK]
        while block >= 0:
            words = blocks[block, WORDS]
            lanes = (width + 1) // 2
            for zone in range((words + ZONE - 1) // ZONE):
                common = np.int64(TOPS)
                for j in range(lanes):
                    common &= probe[j] - zones[blocks[block, ZONES] + zone * lanes + j]
                if common != TOPS and not whole:
                    continue
                starts = np.empty(width, np.int64)
                for j in range(width):
                    at = (j * count_rows(256) + first[j]) * words + zone * ZONE
                    starts[j] = blocks[block, ROWS] + at
                    lines.append(starts[j])
                for i in range(min(ZONE, words - zone * ZONE)):
                    word = bits[starts[0] + i]
                    for j in range(1, width):
                        word &= bits[starts[j] + i]
                    while word:
                        slot = (zone * ZONE + i) * 64 + count_trailing_zeros(word)
                        records.append(np.int64(slots[blocks[block, SLOTS] + slot]))
                        word &= word - 1
            block = blocks[block, NEXT]
    return np.array(lines), np.array(records)


@njit(nogil=True)
def read_touched(
    lines: Array, bits: Array, zones: Array, used: int, records: Array, recs: Array
) -> int:
    """Read all of it; return something that depends on every word."""
    total = np.int64(0)
    for i in range(used):
        total |= zones[i]
    for line in lines:
        for i in range(ZONE):
            total |= bits[line + i]
    for r in records:
        for i in range(HEADER + 1):
            total |= recs[r + i]
    return int(total)


class Roofline:
    """Reads what a notification touches in an index."""

    def __init__(self, index: FuzzyIndex) -> None:
        self.index = index

    def prepare(self, readings: NotificationBatch, whole: bool) -> tuple[Array, Array]:
        """Return what one notification of exact values touches; `whole` takes rows, not lines."""
        c = self.index.columns
        values = np.full(self.index.attributes, -1, np.int64)
        values[readings.attributes] = readings.points[:, 0]
        lines, records = list_lines(
            values, c["groups"].data, c["groups"].used, c["attrs"].data, c["blocks"].data,
            c["zones"].data, c["bits"].data, c["slots"].data, whole,
        )  # fmt: skip
        return lines, records[:0] if whole else records

    def read(self, touched: tuple[Array, Array]) -> None:
        """Read it."""
        c = self.index.columns
        lines, records = touched
        used = c["zones"].used if len(records) else 0
        read_touched(lines, c["bits"].data, c["zones"].data, used, records, c["recs"].data)
