"""The index: a million fuzzy subscriptions, matched at the speed of memory.

`FuzzyIndex` answers exactly what `protocol.matching.match` answers for each subscription, for
exact, interval and fuzzy readings alike. It only arranges memory; the work is in the kernels of the
neighbouring files, and README.md explains how they fit together. One thread may change an index
while no other uses it; any number may match at once.

Only this file asks the system for memory (`Column`) and opens files (`save_index`, `load_index`).
`warm_up` compiles every kernel before work arrives, from the cache on disk or anew: a node calls it
in the background, a Spark worker before it forks; otherwise the first notification waits.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from denwatch.node.matching import bit_rows, compiling, index_insert, masks, records
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.matching.records import (
    ATTRIBUTES,
    SubscriptionBatch,
    pack_subscriptions,
    sign_id,
)
from denwatch.node.matching.search import MatchBatch, NotificationBatch, pack_notifications, search
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from numpy.typing import DTypeLike, NDArray

_HUGE = 1 << 22  # from this size on, ask for large pages: rows are read all over the column
_FIRST = 1 << 16


class Column:
    """An array of rows that grows in place; `data` is replaced when it does, so do not keep it.

    A column reserves address space and moves its pages, not its content, when it grows (mremap):
    adding one subscription never copies a million. Pages that were never written cost nothing.
    Regions that are given back are used again for the same size.
    """

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


Words = NDArray[np.int64]

PACKED_LIMIT = 256  # packed boxes of a group that become a block, when they come one by one
BULK_LIMIT = 128  # and when they come in bulk
MERGED_WORDS = 64  # no merging beyond 4,096 boxes

_ROOT_SHAPE = (1, 1, 0)
_PLACED = ("bits", "slots", "packed", "zones", "blocks")  # in the order of `count_needs`
_ONLY = np.zeros(1, np.int64)  # the order of one record
_NO_ROOM = np.zeros(len(_PLACED), np.int64)


class FuzzyIndex:
    """A set of fuzzy subscriptions that answers which of them a notification matches."""

    def __init__(self, attributes: int = ATTRIBUTES, buckets: int = 256) -> None:
        """Make an empty index for attributes 0..attributes-1.

        Fewer buckets (16, 32, 64, 128) take less memory and look closely at more candidates.
        """
        if not 1 <= attributes <= ATTRIBUTES:
            raise ValueError(f"{attributes} attributes are not in 1..{ATTRIBUTES}")
        if buckets not in (16, 32, 64, 128, 256):
            raise ValueError(f"{buckets} buckets are not 16, 32, 64, 128 or 256")
        self.buckets = buckets
        self.attributes = attributes
        self.widest = 1  # no mask has more attributes
        self._start()

    def _start(self) -> None:
        self.columns = {
            "recs": Column(np.int64),
            "slots": Column(np.int32),
            "bits": Column(np.int64),
            "packed": Column(np.int64),
            "zones": Column(np.int64),
            "groups": Column(np.int64, 8),
            "blocks": Column(np.int64, 5),
            "nodes": Column(np.int64, masks.NODE_CHILDREN + (self.attributes + 63) // 64),
            "node_heads": Column(np.int32),
            "attrs": Column(np.int32),
            "id_heads": Column(np.int32),
        }
        # Kernels move these: (buckets, round, entries) of the two tables, and the counters.
        self.node_shape = np.array(_ROOT_SHAPE, np.int64)
        self.id_shape = np.array(_ROOT_SHAPE, np.int64)
        self.counts = np.zeros(masks.COUNTERS, np.int64)
        for name in ("nodes", "node_heads", "id_heads"):
            self.columns[name].reserve(1)
        self._get("id_heads")[0] = -1
        masks.plant_root(self._get("nodes"), self._get("node_heads"), self.node_shape, self.counts)
        self._count_used()

    def _get(self, name: str) -> NDArray[Any]:
        return self.columns[name].data

    def _count_used(self) -> None:
        """Let the columns that kernels extend know their length."""
        self.columns["nodes"].used = int(self.counts[masks.COUNT_NODES])
        self.columns["groups"].used = int(self.counts[masks.COUNT_GROUPS])
        self.columns["attrs"].used = int(self.counts[masks.COUNT_ATTRS])
        self.columns["node_heads"].used = int(self.node_shape[0])
        self.columns["id_heads"].used = int(self.id_shape[0])

    def __len__(self) -> int:
        return int(self.id_shape[2])

    def __contains__(self, id: int) -> bool:
        return self._find(id) >= 0

    def _find(self, id: int) -> int:
        recs, heads = self._get("recs"), self._get("id_heads")
        return int(records.find_record(recs, heads, self.id_shape, sign_id(id)))

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        staged, starts = self._encode(pack_subscriptions([(id, subscription)]))
        if id in self:
            self.remove(id)
        _, lanes, ends = self._plan(staged, starts)
        target = self.columns["recs"].take(len(staged))
        self._store(_ONLY, np.array([target], np.int64), staged, starts)
        self._place_one(np.array([target], np.int64), staged, starts, lanes, ends)

    def add_batch(self, batch: SubscriptionBatch) -> None:
        """Add subscriptions, or replace those with the same ids; of equal ids the last counts."""
        if not len(batch):
            return
        staged, starts = self._encode(batch)
        _, newest = np.unique(batch.subs["id"][::-1], return_index=True)
        chosen = len(batch) - 1 - newest
        if len(self):
            ids = np.ascontiguousarray(batch.subs["id"][chosen])
            recs, heads = self._get("recs"), self._get("id_heads")
            for id in ids[records.find_known(recs, heads, self.id_shape, ids)].tolist():
                self.remove(id & (1 << 64) - 1)
        self._insert(staged, starts, chosen)

    def _encode(self, batch: SubscriptionBatch) -> tuple[Words, Words]:
        """Return the records of a batch; ValueError for attributes that the index cannot hold."""
        staged, starts, highest, most = records.encode_records(batch.subs, batch.preds, batch.code)
        if highest >= self.attributes:
            raise ValueError(f"attribute {highest} is not below {self.attributes}")
        self.widest = max(self.widest, most)
        return staged, starts

    def _insert(self, staged: Words, starts: Words, chosen: Words) -> None:
        """Insert the chosen records, whose ids are new, in bulk."""
        keys, lanes, ends = self._plan(staged, starts)
        order = chosen[np.argsort(keys[chosen], kind="stable")]
        lengths = starts[order + 1] - starts[order]
        recs = self.columns["recs"]
        recs.reserve(int(lengths.sum()))
        targets = recs.used + np.cumsum(lengths) - lengths
        recs.used += int(lengths.sum())
        self._store(order, targets, staged, starts)
        needs = self._count_needs(order, staged, starts, BULK_LIMIT, False)
        for name, need in zip(_PLACED, needs, strict=True):
            self.columns[name].reserve(need)
        used = np.array([self.columns[name].used for name in _PLACED], np.int64)
        self._place(order, targets, lanes, ends, used, BULK_LIMIT, False)
        for name, end in zip(_PLACED, used.tolist(), strict=True):
            self.columns[name].used = end

    def _plan(self, staged: Words, starts: Words) -> tuple[Words, Words, Words]:
        """Return the keys and the boxes of records."""
        c = self.columns
        for name in ("nodes", "groups", "attrs", "node_heads"):
            c[name].reserve(len(staged))  # more than there can be new attributes of masks
        planned: tuple[Words, Words, Words] = index_insert.plan_boxes(
            staged, starts, c["nodes"].data, c["node_heads"].data, self.node_shape,
            c["groups"].data, c["attrs"].data, self.counts,
        )  # fmt: skip
        return planned

    def _store(self, order: Words, targets: Words, staged: Words, starts: Words) -> None:
        """Copy records to their targets."""
        heads = self.columns["id_heads"]
        heads.reserve(len(order))
        index_insert.store_records(
            order, staged, starts, targets, self._get("recs"), heads.data, self.id_shape
        )
        self._count_used()

    def _count_needs(
        self, order: Words, staged: Words, starts: Words, limit: int, reuse: bool
    ) -> tuple[int, ...]:
        groups = self._get("groups")
        return tuple(
            index_insert.count_needs(order, staged, starts, groups, self.buckets, limit, reuse)
        )

    def _place(
        self,
        order: Words,
        targets: Words,
        lanes: Words,
        ends: Words,
        used: Words,
        limit: int,
        reuse: bool,
    ) -> None:
        """Give the boxes of stored records their places."""
        c = self.columns
        left = index_insert.place_boxes(
            order, targets, lanes, ends, c["recs"].data, c["groups"].data, c["blocks"].data,
            c["bits"].data, c["slots"].data, c["packed"].data, c["zones"].data, used, self.buckets,
            limit, reuse,
        )  # fmt: skip
        for start, size in left.tolist():
            c["packed"].give(start, size)

    def _place_one(
        self, target: Words, staged: Words, starts: Words, lanes: Words, ends: Words
    ) -> None:
        """Give the boxes of one record their places, first in regions that were given back."""
        needs = self._count_needs(_ONLY, staged, starts, PACKED_LIMIT, True)
        if not any(needs):
            self._place(_ONLY, target, lanes, ends, _NO_ROOM.copy(), PACKED_LIMIT, True)
            return
        columns = [self.columns[name] for name in _PLACED]
        room = [column.take(need) for column, need in zip(columns, needs, strict=True)]
        columns[0].data[room[0] : room[0] + needs[0]] = 0
        self._place(_ONLY, target, lanes, ends, np.array(room, np.int64), PACKED_LIMIT, True)
        if needs[0]:
            self._merge(int(records.get_group(staged[1])))

    def _merge(self, group: int) -> None:
        """Let the group's newest blocks become one while two are equal and small."""
        c = self.columns
        while index_insert.can_merge(c["groups"].data, c["blocks"].data, group, MERGED_WORDS):
            width = int(c["groups"].data[group, masks.WIDTH])
            newest = int(c["groups"].data[group, masks.BLOCK])
            pair = (newest, int(c["blocks"].data[newest, bit_rows.NEXT]))
            old = [c["blocks"].data[block].tolist() for block in pair]
            words = old[0][bit_rows.WORDS]
            start = c["bits"].take(int(bit_rows.measure_rows(2 * words, width, self.buckets)))
            base = c["slots"].take(128 * words)
            around = c["zones"].take(int(bit_rows.measure_zones(2 * words, width)))
            gone = index_insert.merge_blocks(
                group, c["groups"].data, c["blocks"].data, c["bits"].data, c["slots"].data,
                c["zones"].data, c["recs"].data, start, base, around, self.buckets,
            )  # fmt: skip
            for block in old:
                c["bits"].give(
                    block[bit_rows.ROWS], int(bit_rows.measure_rows(words, width, self.buckets))
                )
                c["slots"].give(block[bit_rows.SLOTS], 64 * words)
                c["zones"].give(block[bit_rows.ZONES], int(bit_rows.measure_zones(words, width)))
            c["blocks"].give(int(gone), 1)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        r = self._find(id)
        if r < 0:
            raise KeyError(id)
        c = self.columns
        index_insert.remove_boxes(
            r, c["recs"].data, c["id_heads"].data, self.id_shape, c["groups"].data, c["attrs"].data,
            c["blocks"].data, c["bits"].data, c["slots"].data, c["packed"].data, self.buckets,
        )  # fmt: skip
        c["recs"].give(r, int(records.measure_record(c["recs"].data, r)))

    def compact(self) -> None:
        """Build the index anew from its records: no spare room, the best order, no empty masks."""
        recs = self.columns["recs"].data
        staged, starts = records.gather_records(recs, self.columns["id_heads"].data, self.id_shape)
        self._start()
        if len(starts) > 1:
            self._insert(staged, starts, np.arange(len(starts) - 1))

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches by rising id; `age` is the notification's, in seconds."""
        matches = self.match_batch(pack_notifications([notification], [age]))
        order = np.argsort(matches.ids)
        rows = zip(
            matches.ids[order].tolist(),
            matches.possible[order].tolist(),
            matches.certain[order].tolist(),
            (matches.attributes[order] & 15).tolist(),
            strict=True,
        )
        return [SubscriptionMatch(*row) for row in rows]

    def match_batch(self, readings: NotificationBatch) -> MatchBatch:
        """Return the matches of many notifications; holds no interpreter lock while it works."""
        c = self.columns
        starts, ids, possible, certain, attributes, candidates = search(
            readings.starts, readings.attributes, readings.points, readings.wides, readings.ages,
            c["recs"].data, c["slots"].data, c["bits"].data, c["zones"].data, c["packed"].data,
            c["groups"].data, c["blocks"].data, c["nodes"].data, c["node_heads"].data,
            self.node_shape, c["attrs"].data, self.counts, self.buckets, self.widest,
        )  # fmt: skip
        return MatchBatch(starts, ids.view(np.uint64), possible, certain, attributes, candidates)


# A snapshot is an index in one file, mapped into memory by any number of processes: a magic, the
# length of a JSON header, the header, and then the columns, each at a page boundary, in this
# machine's byte order. A mapping is copy-on-write: processes share the pages, nobody can change the
# file, and a process that adds a subscription gets pages of its own. To the compiler such an array
# is an ordinary one, so that no kernel is compiled a second time for read-only memory.
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


def warm_up() -> None:
    """Run every kernel of matching and covering once; from then on this process uses them."""
    from denwatch.node.covering import kernels as covering_kernels  # it imports from here

    index = FuzzyIndex()
    subscription = SubscriptionVector(0, [Predicate(0, 10, 20, 100)])
    count = 2 * PACKED_LIMIT  # one by one: packed, then two blocks that merge
    for id in range(count):
        index.add(id, subscription)
    for _ in range(2):  # new ones, then known ones
        pairs = [(id, subscription) for id in range(count, count + 200)]
        index.add_batch(pack_subscriptions(pairs))
    index.remove(0)
    index.add(0, SubscriptionVector(0, [Predicate(0, 10, 20, 100)], 3))
    index.compact()
    index.match(NotificationVector(0, [Reading(0, (5, 10, 10, 15))]))
    covering_kernels.warm_up()
    compiling.declare_ready()
