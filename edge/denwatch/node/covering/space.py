"""The negative space of one feature mask: what no active subscription covers.

THEORY     Kept: disjoint rectangles over the mask's attributes. `cut` removes a box: every
           rectangle that meets it is replaced by what lies outside the box, at most two pieces for
           each attribute. `release` adds rectangles that the space does not contain. Whether the
           space is the exact complement of the active subscriptions is the caller's choice of
           budgets.
INVARIANT  Rectangles are disjoint at all times. The bounds of a block contain all of its
           rectangles. A cut and a release of the same box are each other's inverse.
LAYOUT     A rectangle is one row `lo0, hi0, lo1, hi1, ...` of inclusive 32-bit bounds. Rows live in
           blocks of BLOCK slots: block b owns rows[b * BLOCK : b * BLOCK + counts[b]], and
           bounds[b] is the smallest box around them (of an empty block: anything). `blocks` is how
           many there are. A rectangle's pieces stay in its block, so bounds only shrink; a block
           that overflows is halved at the median of its widest spread.
COST       A search skips most blocks after one comparison and reads the others in order.
EXAMPLE    (0..255, 0..255) minus (100..200, 50..60) leaves (0..99, 0..255), (201..255, 0..255),
           (100..200, 0..49) and (100..200, 61..255).

The loops over the arrays are kernels, in two ways that do the same to the same arrays: compiled
(`kernels.py`) where this process has loaded the compiler, else in numpy (`numpy_kernels.py`). So a
space can change from one to the other between any two calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from denwatch.node.covering import kernels, numpy_kernels
from denwatch.node.covering.boxes import BLOCK, Metric, Rows
from denwatch.node.matching import compiling

Positions = npt.NDArray[np.int64]


def count_blocks(items: int) -> int:
    """Return an upper bound on the blocks that halving `items` rectangles can fill."""
    return 2 * (items // BLOCK) + 2


def get_kernels() -> Any:
    """Return the kernels to call now: compiled ones, if they are there."""
    return kernels if compiling.is_ready() else numpy_kernels


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
        self._blocks = get_kernels().store_items(self._rows, self._counts, self._bounds, 1, 0, rows)
        self.count = len(rows)

    def rectangles(self) -> Rows:
        """Return a copy of all rectangles, one row each."""
        slots = np.arange(BLOCK) < self._counts[: self._blocks, None]
        return self._rows[: self._blocks * BLOCK][slots.ravel()]

    def meets(self, boxes: Rows) -> bool:
        """Say whether any of the boxes has a point in common with the space."""
        state = (self._rows, self._counts, self._bounds, self._blocks)
        find_first = get_kernels().find_first
        return any(find_first(*state, box) >= 0 for box in boxes)

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
        pieces, volumes = get_kernels().measure_cuts(self._rows, positions, box)
        free = pieces <= 1
        costly = np.flatnonzero(~free)
        if metric is Metric.RATIO:
            worth = volumes[costly] / pieces[costly]
        elif metric is Metric.BENEFIT:
            worth = volumes[costly]
        else:
            worth = -pieces[costly].astype(np.float64)
        order = costly[np.argsort(-worth, kind="stable")]
        taken = get_kernels().choose_within(order, pieces, budget)
        chosen = positions[free | taken]
        sections: Rows = get_kernels().take_sections(self._rows, chosen, box)
        self._cut_at(chosen, box)
        return sections, int(pieces[taken].sum())

    def release(self, rows: Rows) -> None:
        """Add disjoint rectangles that the space does not contain."""
        done = 0
        while done < len(rows):
            done, self._blocks = get_kernels().insert_items(
                self._rows, self._counts, self._bounds, self._blocks, rows, done
            )
            if done < len(rows):
                self._grow(count_blocks(0))
        self.count += len(rows)
        self._tidy()

    def _find(self, box: npt.NDArray[np.int32]) -> Positions:
        found: Positions = get_kernels().find_all(
            self._rows, self._counts, self._bounds, self._blocks, box
        )
        return found

    def _cut_at(self, positions: Positions, box: npt.NDArray[np.int32]) -> None:
        if not len(positions):
            return
        done = 0
        while done < len(positions):
            done, self._blocks = get_kernels().cut_positions(
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
