"""How rectangles lie in memory: the constants and counts that the kernels and the space share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK = 128  # slots a block: small enough that bounds are tight, large enough to scan in cache

Rows = npt.NDArray[np.int32]  # (n, 2 * dimensions): lo0, hi0, lo1, hi1, ...
Positions = npt.NDArray[np.int64]


def count_blocks(items: int) -> int:
    """Return an upper bound on the blocks that halving `items` rectangles can fill."""
    return 2 * (items // BLOCK) + 2
