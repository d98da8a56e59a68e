"""Snapshots: an index in one file, mapped into memory by any number of processes.

The only file of matching that opens files. The layout is a magic, the length of a JSON header, the
header, and then the columns, each at a page boundary, in this machine's byte order. A mapping is
copy-on-write: processes share the pages, nobody can change the file, and a process that adds a
subscription to its index gets pages of its own. To the compiler such an array is an ordinary one,
so that no kernel is compiled a second time for read-only memory.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path

import numpy as np
from denwatch.node.matching.index import FuzzyIndex

_MAGIC = b"dens\x00ix2"
_PAGE = 4096


class SnapshotError(ValueError):
    """A file that is not a snapshot of an index, or not a whole one."""


def _round_up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def save_index(index: FuzzyIndex, path: Path) -> int:
    """Write the index to a file, all of it or nothing; return the size in bytes."""
    sections: dict[str, tuple[int, int]] = {}
    spare = {name: column.spare for name, column in index.columns.items()}
    state = {
        "byteorder": sys.byteorder,
        "buckets": index.buckets,
        "attributes": index.attributes,
        "widest": index.widest,
        "node_shape": index.node_shape.tolist(),
        "id_shape": index.id_shape.tolist(),
        "counts": index.counts.tolist(),
        "spare": {name: {str(k): v for k, v in lists.items()} for name, lists in spare.items()},
    }
    # Where the columns begin depends on the header's length; leave it more than it can need.
    at = _round_up(len(json.dumps(state)) + 64 * (len(index.columns) + 2))
    first = at
    for name, column in index.columns.items():
        sections[name] = (at, column.used)
        at = _round_up(at + column.nbytes)
    header = json.dumps({**state, "sections": sections}).encode()
    if len(_MAGIC) + 8 + len(header) > first:
        raise SnapshotError(f"the header takes {len(header)} bytes, there is room for {first}")
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        for name, column in index.columns.items():
            file.seek(sections[name][0])
            column.data[: column.used].tofile(file)
        file.truncate(at)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return at


def load_index(path: Path) -> FuzzyIndex:
    """Return the index of a snapshot, mapped: it costs memory only where it is used."""
    with path.open("rb") as file:
        start = file.read(len(_MAGIC) + 8)
        if len(start) < len(_MAGIC) + 8 or not start.startswith(_MAGIC):
            raise SnapshotError(f"{path} is not a snapshot of an index")
        length = int.from_bytes(start[len(_MAGIC) :], "little")
        size = path.stat().st_size
        if length > size:
            raise SnapshotError(f"{path} ends within its header")
        header = json.loads(file.read(length))
        if header["byteorder"] != sys.byteorder:
            raise SnapshotError(f"{path} was written on a {header['byteorder']}-endian machine")
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    index = FuzzyIndex(header["attributes"], header["buckets"])
    for name, (at, rows) in header["sections"].items():
        column = index.columns[name]
        width = max(column.width, 1)
        if at + rows * width * column.dtype.itemsize > size:
            raise SnapshotError(f"{path} ends within its column {name!r}")
        flat = np.frombuffer(memory, column.dtype, rows * width, at)
        column.adopt(flat.reshape(-1, column.width) if column.width else flat)
        column.spare = {int(k): v for k, v in header["spare"][name].items()}
    index.node_shape[:] = header["node_shape"]
    index.id_shape[:] = header["id_shape"]
    index.counts[:] = header["counts"]
    index.widest = header["widest"]
    return index
