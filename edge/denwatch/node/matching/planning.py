"""Planning: for every record of a batch its group, its boxes, and a good place among the others.

This is the step before `placing`, which gives the boxes their memory.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.boxes import build_boxes, make_scratch
from denwatch.node.matching.compiling import Array, compiled
from denwatch.node.matching.masks import LEVEL, find_group, sort_attributes
from denwatch.node.matching.packed import measure_entry, pack_box
from denwatch.node.matching.records import MAX_PREDICATES, place_record


@compiled
def mix_centre(box: Array, width: int) -> int:
    """Return the place of a box's middle on a Z-order curve over its first four attributes.

    Neighbours in this order hold similar values, so their bits and their records are used together.
    """
    axes = min(width, 4)
    mixed = 0
    for bit in range(8):
        for j in range(axes):
            mixed = mixed << 1 | (((box[j, 0] + box[j, 1]) >> (8 - bit)) & 1)
    return mixed


@compiled
def plan_boxes(
    recs: Array, starts: Array, nodes: Array, heads: Array, shape: Array, groups: Array,
    attrs: Array, counts: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Find each record's group and boxes; return (keys, lanes, ends).

    A key is the group, then where the record should stand in it. Record i's boxes are
    lanes[ends[i]:ends[i + 1]]; how many they are, and the group, is noted in the record.
    """
    n = starts.size - 1
    keys = np.empty(n, np.int64)
    ends = np.zeros(n + 1, np.int64)
    lanes = np.empty(3 * n + 64, np.int64)
    mask = np.empty(MAX_PREDICATES, np.int64)
    work, sizes, notes, found = make_scratch(MAX_PREDICATES)
    for i in range(n):
        r = starts[i]
        width = sort_attributes(recs, r, mask)
        group = find_group(mask, width, nodes, heads, shape, groups, attrs, counts)
        level = build_boxes(recs, r, mask[:width], work, sizes, notes, found)
        groups[group, LEVEL] = min(groups[group, LEVEL], level)
        size = sizes[0]
        step = measure_entry(width) - 1
        if ends[i] + size * step > lanes.size:
            larger = np.empty(2 * lanes.size + size * step, np.int64)
            larger[: lanes.size] = lanes
            lanes = larger
        for b in range(size):
            pack_box(work[0, b], width, lanes, ends[i] + b * step)
        ends[i + 1] = ends[i] + size * step
        keys[i] = group << 32 | (mix_centre(work[0, 0], width) if size else 0)
        place_record(recs, r, group, size)
    return keys, lanes[: ends[n]], ends
