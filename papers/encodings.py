"""Reduced encodings of degrees (A-ToPSS, precision against space): 8, 4, 3 or 2 bits for a float.

A code names a cell: 0..1 is divided into 2**bits equal parts, and a degree passes a threshold if
its cell is not below the threshold's. So nothing that a float would pass is lost; what lies in the
threshold's own cell but below it passes as well, and that is the loss of precision.
Codes stand packed, without a bit between them. Only this file knows how.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from papers.trapezoids import compile_kernel

FLOAT = 32
BITS = (FLOAT, 8, 4, 3, 2)

Bytes = npt.NDArray[np.uint8]


@compile_kernel
def encode(degree: float, bits: int) -> int:
    """Return the cell of a degree; the highest cell contains 1."""
    cells = 1 << bits
    return min(int(degree * cells), cells - 1)


@compile_kernel
def decode(code: int, bits: int) -> float:
    """Return a degree inside the cell: 0 for the lowest, 1 for the highest."""
    return code / ((1 << bits) - 1)


@compile_kernel
def read_code(packed: Bytes, index: int, bits: int) -> int:
    """Return the code at an index."""
    at = index * bits
    both = packed[at >> 3] | np.int64(packed[(at >> 3) + 1]) << 8
    code: int = (both >> (at & 7)) & ((1 << bits) - 1)
    return code


@compile_kernel
def write_code(packed: Bytes, index: int, bits: int, code: int) -> None:
    """Write the code at an index; a code of three bits may straddle two bytes."""
    at = index * bits
    byte = at >> 3
    shift = at & 7
    mask = ((1 << bits) - 1) << shift
    both = packed[byte] | np.int64(packed[byte + 1]) << 8
    both = (both & ~mask) | (code << shift)
    packed[byte] = both & 255
    packed[byte + 1] = both >> 8


def allocate_codes(count: int, bits: int) -> Bytes:
    """Return room for so many codes of 0, and the byte that the last may reach into."""
    return np.zeros((count * bits + 7) // 8 + 1, dtype=np.uint8)
