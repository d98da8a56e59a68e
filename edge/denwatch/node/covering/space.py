"""The negative space of one feature mask: what no active subscription covers.

Only this file owns the rectangles. They are disjoint at all times; a cut and a release are each
other's inverse. Whether they are the exact complement is the caller's choice of budgets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from denwatch.node.covering import kernels
from denwatch.node.covering.layout import BLOCK, Positions, Rows, count_blocks
from denwatch.node.covering.merging import merge_rows
from denwatch.node.covering.policy import Metric


class NegativeSpace:
    """Disjoint rectangles in blocks, searched by the blocks' bounds."""

    def __init__(self, rows: Rows, *, merging: bool = False) -> None:
        """Start with disjoint rectangles: usually one, the whole domain.

        With `merging`, each cut joins the pieces that it leaves with neighbours nearby.
        """
        self._merging = merging
        self._load(rows)

    def _load(self, rows: Rows) -> None:
        capacity = count_blocks(len(rows))
        self._rows: Rows = np.empty((capacity * BLOCK, rows.shape[1]), np.int32)
        self._counts: npt.NDArray[np.int64] = np.zeros(capacity, np.int64)
        self._bounds: Rows = np.zeros((capacity, rows.shape[1]), np.int32)
        self._blocks = kernels.store_items(self._rows, self._counts, self._bounds, 1, 0, rows)
        self.count = len(rows)

    def rectangles(self) -> Rows:
        """Return a copy of all rectangles, one row each."""
        slots = np.arange(BLOCK) < self._counts[: self._blocks, None]
        return self._rows[: self._blocks * BLOCK][slots.ravel()]

    def meets(self, boxes: Rows) -> bool:
        """Say whether any of the boxes has a point in common with the space."""
        state = (self._rows, self._counts, self._bounds, self._blocks)
        return any(kernels.find_first(*state, box) >= 0 for box in boxes)

    def cut(self, box: npt.NDArray[np.int32]) -> None:
        """Remove all of a box from the space."""
        self._cut_at(self._find(box), box)

    def cut_within(
        self, box: npt.NDArray[np.int32], budget: int, metric: Metric
    ) -> tuple[Rows, int]:
        """Remove as much of a box as leaves at most `budget` new pieces behind.

        A cut that leaves one piece or none only shrinks a rectangle: it is free and always made.
        Returns the sections removed, and how much of the budget was spent.
        """
        positions = self._find(box)
        if not len(positions):
            return self._rows[:0].copy(), 0
        pieces, volumes = kernels.measure_cuts(self._rows, positions, box)
        free = pieces <= 1
        costly = np.flatnonzero(~free)
        if metric is Metric.RATIO:
            worth = volumes[costly] / pieces[costly]
        elif metric is Metric.BENEFIT:
            worth = volumes[costly]
        else:
            worth = -pieces[costly].astype(np.float64)
        order = costly[np.argsort(-worth, kind="stable")]
        taken = kernels.choose_within(order, pieces, budget)
        chosen = positions[free | taken]
        sections: Rows = kernels.take_sections(self._rows, chosen, box)
        self._cut_at(chosen, box)
        return sections, int(pieces[taken].sum())

    def release(self, rows: Rows) -> None:
        """Add disjoint rectangles that the space does not contain."""
        done = 0
        while done < len(rows):
            done, self._blocks = kernels.insert_items(
                self._rows, self._counts, self._bounds, self._blocks, rows, done
            )
            if done < len(rows):
                self._grow(count_blocks(0))
        self.count += len(rows)
        self._tidy()

    def merge(self) -> None:
        """Join adjacent rectangles, near or far, until no two of them can be joined."""
        self._load(merge_rows(self.rectangles()))

    def _find(self, box: npt.NDArray[np.int32]) -> Positions:
        found: Positions = kernels.find_all(
            self._rows, self._counts, self._bounds, self._blocks, box
        )
        return found

    def _cut_at(self, positions: Positions, box: npt.NDArray[np.int32]) -> None:
        if not len(positions):
            return
        done = 0
        while done < len(positions):
            done, self._blocks = kernels.cut_positions(
                self._rows,
                self._counts,
                self._bounds,
                self._blocks,
                positions,
                done,
                box,
                self._merging,
            )
            if done < len(positions):
                self._grow(2 * len(box) + 2)
        self.count = int(self._counts[: self._blocks].sum())
        self._tidy()

    def _grow(self, blocks: int) -> None:
        # In place: beyond some size realloc moves pages instead of copying, so the peak is the end.
        capacity = len(self._counts) + max(blocks, len(self._counts) // 4)
        self._rows.resize((capacity * BLOCK, self._rows.shape[1]), refcheck=False)
        self._counts.resize(capacity, refcheck=False)
        self._bounds.resize((capacity, self._bounds.shape[1]), refcheck=False)

    def _tidy(self) -> None:
        if self._blocks > 8 and self.count * 4 < self._blocks * BLOCK:
            self._load(self.rectangles())  # mostly empty blocks: pack them again
