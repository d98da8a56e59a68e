"""Columns: the arrays that an index consists of, growing in place.

The only file that asks the system for memory. A column reserves address space and moves its pages,
not its content, when it grows (mremap): taking one more subscription never copies a million. Pages
that were never written cost nothing. Regions that are given back are used again by size.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import DTypeLike, NDArray

_HUGE = 1 << 22  # from this size on, ask for large pages: rows are read all over the column
_FIRST = 1 << 16


class Column:
    """An array of rows; `data` is replaced whenever the column grows, so do not keep it."""

    def __init__(self, dtype: DTypeLike, width: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.width = width  # 0: rows are single numbers
        self.used = 0
        self.spare: dict[int, list[int]] = {}
        self._map: mmap.mmap | None = None
        self.data: NDArray[np.generic] = self._view(None)

    def reserve(self, rows: int) -> None:
        """Make room for so many rows beyond the used ones."""
        wanted = self.used + rows
        if wanted > len(self.data):
            size = max(wanted + wanted // 2, _FIRST // self._row_bytes()) * self._row_bytes()
            self._resize(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def take(self, rows: int) -> int:
        """Return the start of a region of so many rows, of any content if it was used before."""
        starts = self.spare.get(rows)
        if starts:
            return starts.pop()
        self.reserve(rows)
        start = self.used
        self.used += rows
        return start

    def give(self, start: int, rows: int) -> None:
        """Take a region back; it is handed out again for the same size."""
        if start + rows == self.used:
            self.used = start
            self.data[start : start + rows] = 0  # fresh rows are 0 for whoever comes next
        else:
            self.spare.setdefault(rows, []).append(start)

    def adopt(self, rows: NDArray[np.generic]) -> None:
        """Stand on existing rows, for example of a mapped file; growing copies them once."""
        self._map = None
        self.data = rows
        self.used = len(rows)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows ever used, spare regions included."""
        return self.used * self._row_bytes()

    def _row_bytes(self) -> int:
        return self.dtype.itemsize * max(self.width, 1)

    def _view(self, memory: mmap.mmap | None) -> NDArray[np.generic]:
        flat = np.frombuffer(memory, self.dtype) if memory else np.empty(0, self.dtype)
        if not self.width:
            return flat
        whole = len(flat) // self.width * self.width
        return flat[:whole].reshape(-1, self.width)

    def _resize(self, size: int) -> None:
        old = self.data
        self.data = self._view(None)
        memory = self._map
        if memory is not None:
            try:
                del old
                memory.resize(size)
            except (BufferError, SystemError, ValueError, OSError):  # no mremap, or a view is out
                old = self._view(memory)
                memory = None
        if memory is None:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.data = self._view(memory)
        if memory is not self._map and self.used:
            self.data[: self.used] = old[: self.used]
        self._map = memory
