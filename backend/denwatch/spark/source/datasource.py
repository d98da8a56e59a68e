"""The Spark data source `denwatch`: the logs of nodes, in a batch.

    spark.read.format("denwatch").option("kind", "note").load("logs/north,logs/south")

Options: `kind` (one of the log's, `all` or `quarantine`), `since` and `until` (ms). A schema with
fewer columns than the kind has is served with those alone; filters on `time` and `node` leave out
blocks and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from denwatch.spark.source.columns import ALL, QUARANTINE, build_schema, convert_schema
from denwatch.spark.source.listing import Piece, Plan, Problem, list_segments, plan_reading
from denwatch.spark.source.pieces import Wanted, build_problems, read_piece
from denwatch.spark.source.pruning import Bounds, apply_filters
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

FORMAT = "denwatch"
_SEPARATOR = ","


class OptionError(ValueError):
    """An option of the source is missing or wrong."""


class Task(InputPartition):
    """What one task reads: a piece of a segment, or problems that the driver has found."""

    def __init__(self, piece: Piece | None, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(None)
        self.piece = piece
        self.problems = problems


def join_folders(folders: Iterable[object]) -> str:
    """Return folders as the one text that an option is."""
    texts = [str(Path(str(folder)).absolute()) for folder in folders]  # Spark may be elsewhere
    if not texts or any(_SEPARATOR in text for text in texts):
        raise OptionError(f"folders of logs are named, without a comma: {texts}")
    return _SEPARATOR.join(texts)


class LogSource(DataSource):
    """The logs of nodes."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the kind that is asked for."""
        return build_schema(read_kind_option(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        return LogReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream."""
        from denwatch.spark.source.stream import LogStreamReader

        return LogStreamReader(self.options, schema)


class LogReader(DataSourceReader):
    """Reads what is there now."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folders = read_folders(options)
        self._kind = read_kind_option(options)
        self._bounds = read_bounds(options)
        self._schema = schema

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take from the filters what leaves out files and blocks; Spark applies them all."""
        self._bounds = apply_filters(self._bounds, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return a task for every piece."""
        plan = plan_reading(list_segments(self._folders))
        return list(make_tasks(plan, self._kind, self._bounds))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        wanted = Wanted(self._kind, self._bounds.since, self._bounds.until)
        return read_task(partition, wanted, self._schema)


def make_tasks(plan: Plan, kind: str, bounds: Bounds) -> Iterator[InputPartition]:
    """Yield what tasks have to read of a plan."""
    if plan.problems and kind in (ALL, QUARANTINE):
        yield Task(None, tuple(plan.problems))
    for piece in plan.pieces:
        if bounds.nodes is None or piece.node in bounds.nodes:
            yield Task(piece)


def read_task(
    task: InputPartition, wanted: Wanted, schema: StructType, *, is_strict: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task; if `is_strict`, a file that is gone is an error."""
    arrow = convert_schema(schema)
    if isinstance(task, Task):  # a plan without tasks is one empty partition to Spark
        if task.problems:
            yield build_problems(list(task.problems), arrow)
        if task.piece is not None:
            yield from read_piece(task.piece, wanted, arrow, is_strict=is_strict)


def read_folders(options: Mapping[str, str]) -> list[str]:
    """Return the folders that the options name."""
    folders = [part for part in options.get("path", "").split(_SEPARATOR) if part]
    if not folders:
        raise OptionError("which folders? .load('logs/north,logs/south')")
    return folders


def read_kind_option(options: Mapping[str, str]) -> str:
    """Return the kind that the options name; `all` if none."""
    return options.get("kind", ALL)


def read_bounds(options: Mapping[str, str]) -> Bounds:
    """Return the times that the options name."""
    bounds: dict[str, Any] = {}
    for name in ("since", "until"):
        if name in options:
            try:
                bounds[name] = int(options[name])
            except ValueError:
                raise OptionError(f"{name} is in ms since 1970, not {options[name]!r}") from None
    return Bounds(**bounds)
