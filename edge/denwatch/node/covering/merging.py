"""Joining adjacent rectangles, which the Subsumption paper leaves as future work. Pure."""

from __future__ import annotations

import numpy as np
from denwatch.node.covering.layout import Rows


def merge_rows(rows: Rows) -> Rows:
    """Return fewer disjoint rectangles with the same union as these disjoint ones.

    Two rectangles join when they agree in all dimensions but one and touch in that one. Each pass
    sorts along one dimension and joins whole runs; passes repeat until none joins anything, so no
    two rectangles of the result could be joined.
    """
    dimensions = rows.shape[1] // 2
    idle, dimension = 0, 0
    while idle < dimensions:
        merged = _merge_along(rows, 2 * dimension)
        idle = 0 if len(merged) < len(rows) else idle + 1
        rows = merged
        dimension = (dimension + 1) % dimensions
    return rows


def _merge_along(rows: Rows, column: int) -> Rows:
    if len(rows) < 2:
        return rows
    others = [c for c in range(rows.shape[1]) if c not in (column, column + 1)]
    # lexsort takes its most significant key last: equal other bounds first, then ascending.
    ordered = rows[np.lexsort((rows[:, column], *(rows[:, c] for c in others)))]
    before, after = ordered[:-1], ordered[1:]
    touches = before[:, column + 1].astype(np.int64) + 1 == after[:, column]
    joins = touches & (before[:, others] == after[:, others]).all(axis=1)
    starts = np.flatnonzero(np.concatenate(([True], ~joins)))
    ends = np.append(starts[1:], len(ordered)) - 1
    merged = ordered[starts]
    merged[:, column + 1] = ordered[ends, column + 1]
    return merged
