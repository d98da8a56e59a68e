"""The loops over rectangles of a negative space, compiled; `numpy_kernels.py` has the same without.

`space.py` describes the arrays. Kernels never allocate the lasting ones: where room may run out
they stop early, and the caller grows the arrays and calls again. The only file of covering that
needs numba, from the first call on.
"""

from __future__ import annotations

import numpy as np
from denwatch.node.covering.boxes import BLOCK
from denwatch.node.matching.compiling import Array, compiled


@compiled
def _overlaps(rows: Array, row: int, box: Array) -> bool:
    for column in range(0, box.size, 2):
        if rows[row, column] > box[column + 1] or rows[row, column + 1] < box[column]:
            return False
    return True


@compiled
def find_first(rows: Array, counts: Array, bounds: Array, blocks: int, box: Array) -> int:
    """Return the position of one rectangle that meets the box, or -1 if there is none.

    This is the question "does a subscription add something", so it stops at the first one.
    """
    for block in range(blocks):
        if counts[block] > 0 and _overlaps(bounds, block, box):
            start = block * BLOCK
            for row in range(start, start + counts[block]):
                if _overlaps(rows, row, box):
                    return row
    return -1


@compiled
def find_all(rows: Array, counts: Array, bounds: Array, blocks: int, box: Array) -> Array:
    """Return the positions of all rectangles that meet the box, ascending.

    Ascending positions let `cut_positions` work block by block.
    """
    found = np.empty(64, np.int64)
    size = 0
    for block in range(blocks):
        if counts[block] == 0 or not _overlaps(bounds, block, box):
            continue
        if size + BLOCK > found.size:
            larger = np.empty(2 * found.size + BLOCK, np.int64)
            larger[:size] = found[:size]
            found = larger
        start = block * BLOCK
        for row in range(start, start + counts[block]):
            if _overlaps(rows, row, box):
                found[size] = row
                size += 1
    return found[:size].copy()


@compiled
def measure_cuts(rows: Array, positions: Array, box: Array) -> tuple[Array, Array]:
    """Return, for each rectangle, how many pieces a cut leaves and the volume that it removes.

    Nothing is changed. Volumes are floats: in many dimensions they exceed 64 bits.
    """
    pieces = np.zeros(positions.size, np.int64)
    volumes = np.ones(positions.size, np.float64)
    for index in range(positions.size):
        row = positions[index]
        for column in range(0, box.size, 2):
            low, high = rows[row, column], rows[row, column + 1]
            if low < box[column]:
                pieces[index] += 1
                low = box[column]
            if high > box[column + 1]:
                pieces[index] += 1
                high = box[column + 1]
            volumes[index] *= float(high) - float(low) + 1.0
    return pieces, volumes


@compiled
def take_sections(rows: Array, positions: Array, box: Array) -> Array:
    """Return what the box and each rectangle at `positions` share; each must meet the box."""
    sections = np.empty((positions.size, box.size), rows.dtype)
    for index in range(positions.size):
        row = positions[index]
        for column in range(0, box.size, 2):
            sections[index, column] = max(rows[row, column], box[column])
            sections[index, column + 1] = min(rows[row, column + 1], box[column + 1])
    return sections


@compiled
def _write_pieces(rows: Array, row: int, box: Array, out: Array, size: int) -> int:
    """Append the pieces of one rectangle outside the box to `out`; return its new size.

    Attribute by attribute: what lies below and above the box becomes a piece, and the rest goes on,
    narrowed to the box. So pieces are disjoint; what is left at the end lies inside the box. `out`
    needs room for two pieces an attribute; the rectangle must meet the box.
    """
    rest = rows[row].copy()
    for column in range(0, box.size, 2):
        if rest[column] < box[column]:
            out[size] = rest
            out[size, column + 1] = box[column] - 1
            size += 1
            rest[column] = box[column]
        if rest[column + 1] > box[column + 1]:
            out[size] = rest
            out[size, column] = box[column + 1] + 1
            size += 1
            rest[column + 1] = box[column + 1]
    return size


@compiled
def _set_bounds(rows: Array, counts: Array, bounds: Array, block: int) -> None:
    start = block * BLOCK
    for column in range(0, bounds.shape[1], 2):
        low, high = rows[start, column], rows[start, column + 1]
        for row in range(start + 1, start + counts[block]):
            low = min(low, rows[row, column])
            high = max(high, rows[row, column + 1])
        bounds[block, column] = low
        bounds[block, column + 1] = high


@compiled
def _order_by_spread(items: Array, order: Array) -> Array:
    """Return the order sorted by centre along the dimension in which the centres spread most.

    Centres are doubled (lo + hi), in 64 bits, so that nothing overflows and nothing is rounded.
    """
    widest, best = 0, -1
    for column in range(0, items.shape[1], 2):
        smallest = largest = np.int64(items[order[0], column]) + items[order[0], column + 1]
        for item in order:
            centre = np.int64(items[item, column]) + items[item, column + 1]
            smallest = min(smallest, centre)
            largest = max(largest, centre)
        if largest - smallest > best:
            widest, best = column, largest - smallest
    centres = np.empty(order.size, np.int64)
    for index in range(order.size):
        item = order[index]
        centres[index] = np.int64(items[item, widest]) + items[item, widest + 1]
    return order[np.argsort(centres, kind="mergesort")]


@compiled
def store_items(
    rows: Array, counts: Array, bounds: Array, blocks: int, home: int, items: Array
) -> int:
    """Put the items into the block `home` and, halved until they fit, into new blocks.

    What `home` held before is forgotten. Halving at the median along the widest spread keeps the
    bounds of both halves tight. A list serves as the stack, because numba does not compile
    recursion with a changing type. Returns the new number of blocks; the caller has made room for
    `count_blocks(len(items))`.
    """
    size = items.shape[0]
    order = np.arange(size)
    todo = [(0, size)]
    counts[home] = 0
    while len(todo) > 0:
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
        for index in range(start, stop):
            rows[target * BLOCK + index - start] = items[order[index]]
        if stop > start:
            _set_bounds(rows, counts, bounds, target)
    return blocks


@compiled
def _join(items: Array, first: int, second: int) -> bool:
    """Enlarge the first item by the second if both together are a box; return whether they are.

    They are if they differ in one dimension only and touch there. Bounds are compared in 64 bits,
    because hi + 1 may overflow 32.
    """
    along = -1
    for column in range(0, items.shape[1], 2):
        if (
            items[first, column] != items[second, column]
            or items[first, column + 1] != items[second, column + 1]
        ):
            if along >= 0:
                return False
            along = column
    if np.int64(items[first, along + 1]) + 1 == items[second, along]:
        items[first, along + 1] = items[second, along + 1]
        return True
    if np.int64(items[second, along + 1]) + 1 == items[first, along]:
        items[first, along] = items[second, along]
        return True
    return False


@compiled
def join_items(items: Array, old: int, size: int) -> int:
    """Join neighbours among `items[:size]`, of which the first `old` have none among themselves.

    Returns how many are left. Quadratic, over the items of one block.
    """
    at = old
    while at < size:
        other = 0
        while other < size and (other == at or not _join(items, at, other)):
            other += 1
        if other == size:
            at += 1
            continue
        size -= 1
        items[other] = items[size]
        # The enlarged one is looked at again, and so is the one moved into the gap.
        at = min(at, other)
    return size


@compiled
def cut_positions(
    rows: Array,
    counts: Array,
    bounds: Array,
    blocks: int,
    positions: Array,
    start: int,
    box: Array,
    joining: bool,
) -> tuple[int, int]:
    """Cut the box out of the rectangles at `positions[start:]` (ascending, each meets the box).

    Each block is rewritten once: the rectangles that stay, then the pieces of the others. With
    `joining`, pieces join their neighbours in the same block where they can. Returns (index of the
    next position, number of blocks). It stops early, between two blocks, when the arrays may be too
    short for the next block's pieces: grow them and call again.
    """
    width = box.size
    buffer = np.empty((BLOCK * max(width, 1), width), rows.dtype)
    while start < positions.size:
        block = positions[start] // BLOCK
        if blocks + 2 * width + 2 > counts.size:
            return start, blocks
        old, first = 0, start
        for row in range(block * BLOCK, block * BLOCK + counts[block]):
            if start < positions.size and positions[start] == row:
                start += 1
            else:
                buffer[old] = rows[row]
                old += 1
        size = old
        for index in range(first, start):
            size = _write_pieces(rows, positions[index], box, buffer, size)
        if joining:
            size = join_items(buffer, old, size)
        blocks = store_items(rows, counts, bounds, blocks, block, buffer[:size])
    return start, blocks


@compiled
def insert_items(
    rows: Array, counts: Array, bounds: Array, blocks: int, items: Array, start: int
) -> tuple[int, int]:
    """Insert `items[start:]`, each into the block whose bounds it enlarges least.

    Of equally good blocks the smallest is taken; an empty block costs nothing. Returns (index of
    the next item, number of blocks), and stops early like `cut_positions`.
    """
    width = items.shape[1]
    buffer = np.empty((BLOCK + 1, width), rows.dtype)
    while start < items.shape[0]:
        if blocks + 2 > counts.size:
            return start, blocks
        home, least, tightest = 0, np.inf, np.inf
        for block in range(blocks):
            if counts[block] == 0:
                grown, volume = 0.0, 0.0
            else:
                grown = volume = 1.0
                for column in range(0, width, 2):
                    low, high = bounds[block, column], bounds[block, column + 1]
                    volume *= float(high) - float(low) + 1.0
                    low = min(low, items[start, column])
                    high = max(high, items[start, column + 1])
                    grown *= float(high) - float(low) + 1.0
            if grown - volume < least or (grown - volume == least and volume < tightest):
                home, least, tightest = block, grown - volume, volume
        size = counts[home]
        buffer[:size] = rows[home * BLOCK : home * BLOCK + size]
        buffer[size] = items[start]
        blocks = store_items(rows, counts, bounds, blocks, home, buffer[: size + 1])
        start += 1
    return start, blocks


@compiled
def find_containing(rows: Array, box: Array) -> Array:
    """Return the indexes of the rows that contain the whole box. A scan: rows need no blocks."""
    found = np.empty(rows.shape[0], np.int64)
    size = 0
    for row in range(rows.shape[0]):
        inside = True
        for column in range(0, box.size, 2):
            if rows[row, column] > box[column] or rows[row, column + 1] < box[column + 1]:
                inside = False
                break
        if inside:
            found[size] = row
            size += 1
    return found[:size].copy()


@compiled
def choose_within(order: Array, pieces: Array, budget: int) -> Array:
    """Walk `order`, taking each cut whose pieces still fit the budget; return which were taken.

    `pieces` counts the pieces of each cut; cuts of one piece or none are free and not in `order`.
    """
    taken = np.zeros(pieces.size, np.bool_)
    for index in order:
        if pieces[index] <= budget:
            taken[index] = True
            budget -= pieces[index]
            if budget < 2:  # a cut that leaves at most one piece costs nothing and is not here
                break
    return taken


def warm_up() -> None:
    """Run every kernel once, with arrays as `NegativeSpace` has them."""
    blocks = 16
    rows = np.zeros((blocks * BLOCK, 2), np.int32)
    counts, bounds = np.zeros(blocks, np.int64), np.zeros((blocks, 2), np.int32)
    whole, box = np.array([[0, 255]], np.int32), np.array([10, 20], np.int32)
    used = store_items(rows, counts, bounds, 1, 0, whole)
    find_first(rows, counts, bounds, used, box)
    positions = find_all(rows, counts, bounds, used, box)
    pieces, _ = measure_cuts(rows, positions, box)
    choose_within(np.zeros(1, np.int64), pieces, 9)
    sections = take_sections(rows, positions, box)
    _, used = cut_positions(rows, counts, bounds, used, positions, 0, box, False)
    insert_items(rows, counts, bounds, used, sections, 0)
    find_containing(rows, box)
