"""The loops over rectangles of a negative space, in numpy; `kernels.py` has the same compiled.

Every function does exactly what its namesake does, to the last position, so that a space may be
worked on by either in turn: the same order, the same ties, the same blocks. Tests compare them.
"""

from __future__ import annotations

import numpy as np
from denwatch.node.covering.boxes import BLOCK, Row, Rows
from numpy.typing import NDArray

Positions = NDArray[np.int64]
Box = NDArray[np.int32]


def _meets(rows: Rows, box: Box) -> NDArray[np.bool_]:
    """Return which rows have a point in common with the box."""
    met: NDArray[np.bool_] = np.all(
        (rows[:, ::2] <= box[1::2]) & (rows[:, 1::2] >= box[::2]), axis=1
    )
    return met


def _list_blocks(counts: Positions, bounds: Rows, blocks: int, box: Box) -> list[int]:
    """Return the blocks whose bounds meet the box."""
    met = _meets(bounds[:blocks], box) & (counts[:blocks] > 0)
    found: list[int] = np.flatnonzero(met).tolist()
    return found


def find_first(rows: Rows, counts: Positions, bounds: Rows, blocks: int, box: Box) -> int:
    """Return the position of one rectangle that meets the box, or -1 if there is none."""
    for block in _list_blocks(counts, bounds, blocks, box):
        start = block * BLOCK
        met = _meets(rows[start : start + int(counts[block])], box)
        if met.any():
            return start + int(met.argmax())
    return -1


def find_all(rows: Rows, counts: Positions, bounds: Rows, blocks: int, box: Box) -> Positions:
    """Return the positions of all rectangles that meet the box, ascending."""
    found = [np.empty(0, np.int64)]
    for block in _list_blocks(counts, bounds, blocks, box):
        start = block * BLOCK
        found.append(start + np.flatnonzero(_meets(rows[start : start + int(counts[block])], box)))
    return np.concatenate(found)


def measure_cuts(
    rows: Rows, positions: Positions, box: Box
) -> tuple[Positions, NDArray[np.float64]]:
    """Return, for each rectangle, how many pieces a cut leaves and the volume that it removes."""
    found = rows[positions]
    low, high = found[:, ::2], found[:, 1::2]
    pieces = (low < box[::2]).sum(axis=1) + (high > box[1::2]).sum(axis=1)
    volumes = np.ones(len(positions), np.float64)
    first = np.maximum(low, box[::2]).astype(np.float64)
    last = np.minimum(high, box[1::2]).astype(np.float64)
    for column in range(first.shape[1]):  # in this order: products of floats depend on it
        volumes *= last[:, column] - first[:, column] + 1.0
    return pieces.astype(np.int64), volumes


def take_sections(rows: Rows, positions: Positions, box: Box) -> Rows:
    """Return what the box and each rectangle at `positions` share; each must meet the box."""
    sections = rows[positions]
    sections[:, ::2] = np.maximum(sections[:, ::2], box[::2])
    sections[:, 1::2] = np.minimum(sections[:, 1::2], box[1::2])
    return sections


def _list_pieces(row: list[int], box: list[int]) -> list[Row]:
    """Return the pieces of one rectangle outside the box, which must meet it."""
    pieces = []
    for column in range(0, len(box), 2):
        if row[column] < box[column]:
            pieces.append((*row[: column + 1], box[column] - 1, *row[column + 2 :]))
            row[column] = box[column]
        if row[column + 1] > box[column + 1]:
            pieces.append((*row[:column], box[column + 1] + 1, *row[column + 1 :]))
            row[column + 1] = box[column + 1]
    return pieces


def _order_by_spread(items: Rows, order: Positions) -> Positions:
    """Return the order sorted by centre along the dimension in which the centres spread most."""
    chosen = items[order].astype(np.int64)
    centres = chosen[:, ::2] + chosen[:, 1::2]
    widest = int((centres.max(axis=0) - centres.min(axis=0)).argmax())
    return order[np.argsort(centres[:, widest], kind="stable")]


def store_items(
    rows: Rows, counts: Positions, bounds: Rows, blocks: int, home: int, items: Rows
) -> int:
    """Put the items into the block `home` and, halved until they fit, into new blocks."""
    order = np.arange(len(items))
    todo = [(0, len(items))]
    counts[home] = 0
    while todo:
        start, stop = todo.pop()
        if stop - start > BLOCK:
            order[start:stop] = _order_by_spread(items, order[start:stop])
            middle = (start + stop) // 2
            todo.append((start, middle))
            todo.append((middle, stop))
            continue
        target = home
        if counts[home] > 0:
            target = blocks
            blocks += 1
        counts[target] = stop - start
        if stop > start:
            stored = items[order[start:stop]]
            rows[target * BLOCK : target * BLOCK + stop - start] = stored
            bounds[target, ::2] = stored[:, ::2].min(axis=0)
            bounds[target, 1::2] = stored[:, 1::2].max(axis=0)
    return blocks


def _find_neighbour(items: Rows, at: int) -> tuple[int, int]:
    """Return the first item that makes a box together with the one at `at`, and along what.

    (number of items, 0) if there is none.
    """
    mine = items[at]
    differs = (items[:, ::2] != mine[::2]) | (items[:, 1::2] != mine[1::2])
    others = np.flatnonzero(differs.sum(axis=1) == 1)
    for other in others.tolist():
        along = 2 * int(differs[other].argmax())
        low, high = int(mine[along]), int(mine[along + 1])
        if high + 1 == int(items[other, along]) or int(items[other, along + 1]) + 1 == low:
            return other, along
    return len(items), 0


def join_items(items: Rows, old: int, size: int) -> int:
    """Join neighbours among `items[:size]`, of which the first `old` have none among themselves."""
    at = old
    while at < size:
        other, along = _find_neighbour(items[:size], at)
        if other == size:
            at += 1
            continue
        items[at, along] = min(items[at, along], items[other, along])
        items[at, along + 1] = max(items[at, along + 1], items[other, along + 1])
        size -= 1
        items[other] = items[size]
        # The enlarged one is looked at again, and so is the one moved into the gap.
        at = min(at, other)
    return size


def cut_positions(
    rows: Rows,
    counts: Positions,
    bounds: Rows,
    blocks: int,
    positions: Positions,
    start: int,
    box: Box,
    joining: bool,
) -> tuple[int, int]:
    """Cut the box out of the rectangles at `positions[start:]` (ascending, each meets the box).

    Returns (index of the next position, number of blocks); it stops early, between two blocks, when
    the arrays may be too short.
    """
    width = len(box)
    limits = box.tolist()
    while start < len(positions):
        block = int(positions[start]) // BLOCK
        if blocks + 2 * width + 2 > len(counts):
            return start, blocks
        first = block * BLOCK
        size = int(counts[block])
        after = int(np.searchsorted(positions, first + size))
        cut = positions[start:after]
        stays = np.ones(size, np.bool_)
        stays[cut - first] = False
        kept = rows[first : first + size][stays]
        pieces = [piece for row in rows[cut].tolist() for piece in _list_pieces(row, limits)]
        items = np.concatenate([kept, np.array(pieces, rows.dtype).reshape(len(pieces), width)])
        if joining:
            items = items[: join_items(items, len(kept), len(items))]
        blocks = store_items(rows, counts, bounds, blocks, block, items)
        start = after
    return start, blocks


def insert_items(
    rows: Rows, counts: Positions, bounds: Rows, blocks: int, items: Rows, start: int
) -> tuple[int, int]:
    """Insert `items[start:]`, each into the block whose bounds it enlarges least.

    Of equally good blocks the smallest is taken; an empty block costs nothing. Returns (index of
    the next item, number of blocks), and stops early like `cut_positions`.
    """
    while start < len(items):
        if blocks + 2 > len(counts):
            return start, blocks
        item = items[start].astype(np.float64)
        low = bounds[:blocks, ::2].astype(np.float64)
        high = bounds[:blocks, 1::2].astype(np.float64)
        volumes, grown = np.ones(blocks), np.ones(blocks)
        for column in range(low.shape[1]):  # in this order: products of floats depend on it
            volumes *= high[:, column] - low[:, column] + 1.0
            last = np.maximum(high[:, column], item[2 * column + 1])
            grown *= last - np.minimum(low[:, column], item[2 * column]) + 1.0
        is_empty = counts[:blocks] == 0
        volumes[is_empty] = grown[is_empty] = 0.0
        home = int(np.lexsort((volumes, grown - volumes))[0])
        size = int(counts[home])
        inside = rows[home * BLOCK : home * BLOCK + size]
        together = np.concatenate([inside, items[start : start + 1]])
        blocks = store_items(rows, counts, bounds, blocks, home, together)
        start += 1
    return start, blocks


def find_containing(rows: Rows, box: Box) -> Positions:
    """Return the indexes of the rows that contain the whole box."""
    inside = (rows[:, ::2] <= box[::2]) & (rows[:, 1::2] >= box[1::2])
    return np.flatnonzero(np.all(inside, axis=1))


def choose_within(order: Positions, pieces: Positions, budget: int) -> NDArray[np.bool_]:
    """Walk `order`, taking each cut whose pieces still fit the budget; return which were taken."""
    taken = np.zeros(len(pieces), np.bool_)
    for index, count in zip(order.tolist(), pieces[order].tolist(), strict=True):
        if count <= budget:
            taken[index] = True
            budget -= count
            if budget < 2:
                break
    return taken
