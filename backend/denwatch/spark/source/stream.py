"""The same source as a stream: what is new in the folders since the last batch.

An offset says for every run of a node which records were read, as ranges of their numbers, and
which files were told of as problems. Numbers name records for ever, so a batch that is done again
after a crash reads the same ones, even if its segment was closed, renamed or copied in between; and
segments may be carried here in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from denwatch.spark.source.columns import ALL, QUARANTINE
from denwatch.spark.source.datasource import (
    OptionError,
    Task,
    read_bounds,
    read_folders,
    read_kind_option,
    read_task,
)
from denwatch.spark.source.listing import (
    Known,
    Listing,
    Piece,
    Problem,
    Segment,
    list_segments,
    plan_reading,
    split_segment,
)
from denwatch.spark.source.pieces import Wanted
from denwatch.spark.source.ranges import (
    Range,
    count_numbers,
    join_ranges,
    read_ranges,
    subtract_ranges,
    take_first,
    write_ranges,
)
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

Offset = dict[str, Any]
Runs = dict[str, list[Range]]


class GoneError(RuntimeError):
    """Records that a batch has to read are not in the folders any more."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is new. The option `max_records` limits a batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folders = read_folders(options)
        self._kind = read_kind_option(options)
        self._bounds = read_bounds(options)
        self._limit = int(options.get("max_records", "0"))
        if self._limit < 0:
            raise OptionError(f"max_records is above 0, not {self._limit}")
        self._schema = schema
        self._known: Known = {}
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        """Return the offset before everything."""
        return {"files": {}, "runs": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there: a run of `availableNow` ends there."""
        self._target = self._find_latest()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far the next batch goes."""
        latest = self._target or self._find_latest()
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        read, there = _read_runs(start), _read_runs(latest)
        runs: Runs = {}
        for run in sorted(read.keys() | there.keys()):
            done = read.get(run, [])
            new = subtract_ranges(there.get(run, []), done)
            if left is not None:
                new = take_first(new, left)
                left -= count_numbers(new)
            runs[run] = join_ranges([*done, *new])
        files = {**latest["files"], **start["files"]}
        return {"files": dict(sorted(files.items())), "runs": _write_runs(runs)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch."""
        listing = self._list()
        tasks: list[InputPartition] = []
        fresh = {file: why for file, why in end["files"].items() if file not in start["files"]}
        if fresh and self._kind in (ALL, QUARANTINE):
            tasks.append(Task(None, tuple(_restore(file, why) for file, why in fresh.items())))
        read, ends = _read_runs(start), _read_runs(end)
        for run, ranges in ends.items():
            new = subtract_ranges(ranges, read.get(run, []))
            tasks += [Task(piece) for piece in _find_pieces(listing, run, new, self._folders)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        wanted = Wanted(self._kind, self._bounds.since, self._bounds.until)
        # A batch that is not whole must be done again, not be told of as damage.
        return read_task(partition, wanted, self._schema, is_strict=True)

    def _list(self) -> Listing:
        return list_segments(self._folders, self._known)

    def _find_latest(self) -> Offset:
        listing = self._list()
        runs: Runs = {}
        for segment in listing.segments:
            run = _name_run(segment)
            span = segment.header.first, segment.next
            runs[run] = join_ranges([*runs.get(run, []), span])
        files = {problem.file: _keep(problem) for problem in plan_reading(listing).problems}
        return {"files": dict(sorted(files.items())), "runs": _write_runs(runs)}


def _name_run(segment: Segment) -> str:
    return f"{segment.header.epoch}@{segment.header.node}"


def _read_runs(offset: Offset) -> Runs:
    return {run: read_ranges(text) for run, text in offset["runs"].items()}


def _write_runs(runs: Runs) -> dict[str, str]:
    return {run: write_ranges(ranges) for run, ranges in sorted(runs.items())}


def _keep(problem: Problem) -> str:
    """Return what an offset keeps of a problem: its class, its size, its reason."""
    return f"{problem.class_} {problem.size} {problem.reason}"


def _restore(file: str, kept: str) -> Problem:
    class_, size, reason = kept.split(" ", 2)
    return Problem(file, class_, reason, 0, int(size))


def _find_pieces(
    listing: Listing, run: str, ranges: list[Range], folders: list[str]
) -> list[Piece]:
    """Return where the records of a run are to be read."""
    pieces: list[Piece] = []
    left = ranges
    mine = [segment for segment in listing.segments if _name_run(segment) == run]
    for segment in sorted(mine, key=lambda s: (s.header.first, -s.next, s.path)):
        span = (segment.header.first, segment.next)
        rest = subtract_ranges(left, [span])
        held = subtract_ranges(left, rest)
        pieces += split_segment(segment, held)
        left = rest
    if left:
        raise GoneError(
            f"records {write_ranges(left)} of {run} are not in {', '.join(folders)} any more:"
            " put the segments back, or begin with a new checkpoint"
        )
    return pieces
