"""The Spark data source `denwatch`: the logs of nodes, in a batch.

    spark.read.format("denwatch").option("kind", "note").load(["logs/north", "logs/south"])

A path is a folder, a file, a pattern (`logs/*/2026-11-*`) or a `file:` URI; there may be several.
Options: `kind` (one of the log's, `all` or `quarantine`), `since` and `until` (ms), `pushdown`.
A schema with fewer columns than the kind has is served with those alone, in the types that it
names. With `pushdown`, filters on `time` and `node` leave out blocks and files: it needs Spark's
setting `spark.sql.python.filterPushdown.enabled`, without which Spark refuses a reader that can.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from denwatch.spark.source import decoding, listing
from denwatch.spark.source.decoding import Wanted
from denwatch.spark.source.listing import Listing, Piece, Quarantined, Range
from pyspark.sql import datasource as api
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

FORMAT = "denwatch"
_SEPARATOR = ","
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


class OptionError(ValueError):
    """An option of the source is missing or wrong."""


class Task(api.InputPartition):
    """What one task reads: a piece of a segment, or problems that the driver found."""

    def __init__(self, piece: Piece | None, problems: tuple[Quarantined, ...] = ()) -> None:
        super().__init__(None)
        self.piece = piece
        self.problems = problems


def join_folders(folders: Iterable[object]) -> str:
    """Return folders as the text of one option."""
    texts = [str(Path(str(folder)).absolute()) for folder in folders]  # Spark may be elsewhere
    if not texts or any(_SEPARATOR in text for text in texts):
        raise OptionError(f"folders of logs are named, without a comma: {texts}")
    return _SEPARATOR.join(texts)


class LogSource(api.DataSource):
    """The data source `denwatch`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the kind that is asked for."""
        return decoding.build_readable_schema(self.options.get("kind", decoding.ALL))

    def reader(self, schema: StructType) -> api.DataSourceReader:
        """Return a reader of a batch."""
        is_pruned = self.options.get("pushdown", "").lower() == "true"
        return (PrunedLogReader if is_pruned else LogReader)(self.options, schema)

    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:
        """Return a reader of a stream."""
        return LogStreamReader(self.options, schema)


class LogReader(api.DataSourceReader):
    """Reads the records that are there now."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folders = read_folders(options)
        self._wanted = read_wanted(options)
        self._schema = schema

    def partitions(self) -> list[api.InputPartition]:
        """Return a task for every piece."""
        plan, nodes = listing.plan_reading(listing.list_segments(self._folders)), self._wanted.nodes
        tasks = [Task(piece) for piece in plan.pieces if nodes is None or piece.node in nodes]
        if plan.problems and self._wanted.has_problems:
            tasks.append(Task(None, tuple(plan.problems)))
        return list(tasks)

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return read_task(partition, self._wanted, self._schema)


class PrunedLogReader(LogReader):
    """Skips files and blocks that filters exclude; Spark applies all filters again."""

    def pushFilters(self, filters: list[api.Filter]) -> Iterable[api.Filter]:
        """Remember filters."""
        self._wanted = apply_filters(self._wanted, filters)
        return filters


def read_task(
    task: api.InputPartition, wanted: Wanted, schema: StructType, *, is_strict: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task; if `is_strict`, a file that is gone is an error."""
    arrow = decoding.convert_schema(schema)
    if isinstance(task, Task):  # a plan without tasks is one empty partition to Spark
        if task.problems:
            yield decoding.build_problems(list(task.problems), arrow)
        if task.piece is not None:
            yield from decoding.read_piece(task.piece, wanted, arrow, is_strict=is_strict)


def read_folders(options: Mapping[str, str]) -> list[str]:
    """Return the folders and files that the options name, patterns replaced by what they match."""
    named = [part for part in options.get("path", "").split(_SEPARATOR) if part]
    named += json.loads(options.get("paths", "[]"))  # of `load([...])`
    if not named:
        raise OptionError("which folders? .load('logs') or .load(['logs/north', 'logs/south'])")
    return [folder for path in named for folder in find_folders(path)]


def find_folders(path: str) -> list[str]:
    """Return what a path names: itself, or what a pattern matches."""
    scheme, _, rest = path.partition(":")
    if rest.startswith("/") and len(scheme) > 1:
        if scheme != "file":
            raise OptionError(
                f"{path}: this format reads files; denwatch.spark.read_kind and tables copy what is"
                f" behind {scheme}: first"
            )
        path = unquote(urlsplit(path).path)
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - Path.glob takes relative ones
    if not found:
        raise OptionError(f"{path}: no file or folder matches")
    return found


def read_wanted(options: Mapping[str, str]) -> Wanted:
    """Return the kind and the times that the options name; all if they name none."""
    times = {"since": decoding.LOWEST, "until": decoding.HIGHEST}
    for name in {"since", "until"} & options.keys():
        try:
            times[name] = int(options[name])
        except ValueError:
            raise OptionError(f"{name} is in ms since 1970, not {options[name]!r}") from None
    return Wanted(options.get("kind", decoding.ALL), times["since"], times["until"])


# Filters --------------------------------------------------------------------------------
# Filters on the time and the node skip blocks and files. Spark evaluates every filter again: a
# block that is read may contain records outside of the bounds.


def apply_filters(wanted: Wanted, filters: Iterable[api.Filter]) -> Wanted:
    """Return what is wanted, narrowed by filters, all of which hold."""
    since, until, nodes = wanted.since, wanted.until, wanted.nodes
    for found in filters:
        column: tuple[str, ...] = getattr(found, "attribute", ())
        value: Any = getattr(found, "value", None)
        if column == ("node",) and isinstance(found, api.EqualTo | api.In):
            named = frozenset(value if isinstance(found, api.In) else [value])
            nodes = named if nodes is None else nodes & named
        elif column == ("time",) and (ms := _read_ms(value)) is not None:
            if isinstance(found, api.EqualTo | api.GreaterThanOrEqual):
                since = max(since, ms)
            elif isinstance(found, api.GreaterThan):
                since = max(since, ms + 1)
            if isinstance(found, api.EqualTo | api.LessThanOrEqual):
                until = min(until, ms + 1)
            elif isinstance(found, api.LessThan):
                until = min(until, ms + (ms != value))  # a timestamp may have been rounded down
    return Wanted(wanted.kind, since, until, nodes)


def _read_ms(value: object) -> int | None:
    """Return a time of a filter in ms, rounded down; None if it is none."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MS if value.tzinfo else None
    return value if type(value) is int else None


# Streaming ------------------------------------------------------------------------------
# An offset lists for every run of a node the records that were read, as ranges of their numbers,
# and the files that were reported as unreadable. A record keeps its number for ever, so a batch
# that is repeated after a crash reads the same records, even if their segment was closed, renamed
# or copied in between; and segments may arrive in any order.

Offset = dict[str, Any]
Runs = dict[str, list[Range]]


class GoneError(RuntimeError):
    """Records that a batch has to read are not in the folders any more."""


# Spark starts one Python process for a streaming source without its daemon, and waits exactly ten
# seconds for it to connect (PythonWorkerFactory.createSimpleWorker of Spark 4.3; no setting, and
# the same over TCP). On a machine that is busy enough the imports alone take longer.
_START_TIMEOUTS = ("failed to connect back", "CANNOT_OPEN_SOCKET")


def is_start_timeout(error: Exception) -> bool:
    """Return whether a stream failed only because its Python process started too slowly.

    Nothing was read then: starting the query again with its checkpoint is safe.
    """
    return any(words in str(error) for words in _START_TIMEOUTS)


class LogStreamReader(api.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is new. The option `max_records` limits a batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folders = read_folders(options)
        self._wanted = read_wanted(options)
        self._limit = int(options.get("max_records", "0"))
        if self._limit < 0:
            raise OptionError(f"max_records is above 0, not {self._limit}")
        self._schema = schema
        self._known: listing.Known = {}
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        """Return the offset before the first record."""
        return {"files": {}, "runs": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now: a run of `availableNow` ends there."""
        self._target = self._find_latest()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far the next batch goes."""
        latest = self._target or self._find_latest()
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        read, there = _read_runs(start), _read_runs(latest)
        runs: Runs = {}
        for run in sorted(read.keys() | there.keys()):
            done = read.get(run, [])
            new = listing.subtract_ranges(there.get(run, []), done)
            if left is not None:
                new = listing.take_first(new, left)
                left -= listing.count_numbers(new)
            runs[run] = listing.join_ranges([*done, *new])
        files = {**latest["files"], **start["files"]}
        return {"files": dict(sorted(files.items())), "runs": _write_runs(runs)}

    def partitions(self, start: Offset, end: Offset) -> list[api.InputPartition]:
        """Return the tasks of a batch."""
        found = listing.list_segments(self._folders, self._known)
        tasks: list[api.InputPartition] = []
        fresh = {file: why for file, why in end["files"].items() if file not in start["files"]}
        if fresh and self._wanted.has_problems:
            tasks.append(Task(None, tuple(_restore(file, why) for file, why in fresh.items())))
        read, ends = _read_runs(start), _read_runs(end)
        for run, ranges in ends.items():
            new = listing.subtract_ranges(ranges, read.get(run, []))
            tasks += [Task(piece) for piece in _find_pieces(found, run, new, self._folders)]
        return tasks

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        # An incomplete batch must be repeated, not be reported as damage.
        return read_task(partition, self._wanted, self._schema, is_strict=True)

    def _find_latest(self) -> Offset:
        found = listing.list_segments(self._folders, self._known)
        runs: Runs = {}
        for segment in found.segments:
            run = _name_run(segment)
            span = segment.header.first, segment.next
            runs[run] = listing.join_ranges([*runs.get(run, []), span])
        files = {problem.file: _keep(problem) for problem in listing.plan_reading(found).problems}
        return {"files": dict(sorted(files.items())), "runs": _write_runs(runs)}


def _name_run(segment: listing.Segment) -> str:
    return f"{segment.header.epoch}@{segment.header.node}"


def _read_runs(offset: Offset) -> Runs:
    return {run: listing.read_ranges(text) for run, text in offset["runs"].items()}


def _write_runs(runs: Runs) -> dict[str, str]:
    return {run: listing.write_ranges(ranges) for run, ranges in sorted(runs.items())}


def _keep(problem: Quarantined) -> str:
    """Return what an offset keeps of a problem: its class, its size, its reason."""
    return f"{problem.class_} {problem.size} {problem.reason}"


def _restore(file: str, kept: str) -> Quarantined:
    class_, size, reason = kept.split(" ", 2)
    return Quarantined(file, class_, reason, 0, int(size))


def _find_pieces(found: Listing, run: str, ranges: list[Range], folders: list[str]) -> list[Piece]:
    """Return where the records of a run are to be read."""
    pieces: list[Piece] = []
    left = ranges
    mine = [segment for segment in found.segments if _name_run(segment) == run]
    for segment in sorted(mine, key=lambda s: (s.header.first, -s.next, s.path)):
        span = (segment.header.first, segment.next)
        rest = listing.subtract_ranges(left, [span])
        held = listing.subtract_ranges(left, rest)
        pieces += listing.split_segment(segment, held)
        left = rest
    if left:
        lost = listing.write_ranges(left)
        raise GoneError(
            f"records {lost} of {run} are not in {', '.join(folders)} any more:"
            " put the segments back, or begin with a new checkpoint"
        )
    return pieces
