"""Notifications that lie in Parquet files: read by the workers themselves, then matched.

A row that Spark reads and hands to Python takes about half a microsecond of a core, where matching
it takes two. Where notifications are in files anyway, one row each, tasks are told which row groups
are theirs, and read them as the Arrow batches that the matcher wants. Every worker must see the
files, as for logs. What the matches are does not depend on how the files are cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from denwatch.spark.matching.blocks import Batches, map_blocks
from denwatch.spark.matching.content import match_content
from denwatch.spark.matching.index import Shard, SharedIndex
from denwatch.spark.matching.job import (
    ALL_COLUMNS,
    choose_arrow,
    choose_schema,
    list_inputs,
    make_matcher,
)
from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 50_000  # notifications that are matched at a time
TASK_ROWS = 500_000  # a task costs Spark 20 ms, and matching so many some 600


@dataclass(frozen=True)
class Part:
    """A row group of a file."""

    path: str
    group: int
    rows: int


def match_files(
    spark: SparkSession,
    paths: Iterable[str | Path],
    index: SharedIndex,
    columns: Sequence[str] = ALL_COLUMNS,
    *,
    tasks: int | None = None,
) -> DataFrame:
    """Return the matches of the notifications in Parquet files; see `match_notes`."""
    schema = choose_schema(columns)
    parts = list_parts(paths)
    if not parts or not (index.shards or index.content):
        return spark.createDataFrame([], schema)
    shares = share_parts(parts, tasks or count_tasks(parts, spark.sparkContext.defaultParallelism))
    # All of a shard before the next, so that a worker has only one in its memory.
    units: list[Shard | None] = [*index.shards, *([None] if index.content else [])]
    work = [(unit, share) for unit in units for share in shares]
    numbers = spark.range(0, len(work), 1, len(work))  # one to a task
    return map_blocks(numbers, make_reader(work, index, tuple(columns)), schema)


def list_parts(paths: Iterable[str | Path]) -> list[Part]:
    """Return every row group of the files; a folder stands for the files in it."""
    parts: list[Part] = []
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
            footer = pq.read_metadata(file)
            sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
            parts += [Part(str(file.resolve()), g, rows) for g, rows in enumerate(sizes)]
    return parts


def count_tasks(parts: Sequence[Part], cores: int) -> int:
    """Return how many tasks to make: something for every core, equally often."""
    rows = sum(part.rows for part in parts)
    return cores * max(1, math.ceil(rows / (cores * TASK_ROWS)))


def share_parts(parts: Sequence[Part], tasks: int) -> list[list[Part]]:
    """Return the parts of each task: neighbours, about equally many rows, none empty."""
    total = sum(part.rows for part in parts)
    shares: list[list[Part]] = []
    seen = 0
    for part in parts:
        if not shares or seen * tasks >= total * len(shares):
            shares.append([])
        shares[-1].append(part)
        seen += part.rows
    return shares


def make_reader(
    work: list[tuple[Shard | None, list[Part]]], index: SharedIndex, columns: tuple[str, ...]
) -> Callable[[Batches], Batches]:
    """Return what a task does: it is given the number of its work."""

    def match_work(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                shard, share = work[number]
                notes = read_parts(share, index)
                if shard is None:
                    yield from match_content(index, choose_arrow(columns))(notes)
                else:
                    yield from make_matcher(index, shard, columns)(notes)

    return match_work


def read_parts(parts: Iterable[Part], index: SharedIndex) -> Batches:
    """Yield the notifications of some row groups, with the columns that the index looks at."""
    for part in parts:
        with pq.ParquetFile(part.path, memory_map=True) as file:
            names = list_inputs(index, file.schema_arrow.names)
            yield from file.iter_batches(BATCH_ROWS, [part.group], names, use_threads=False)
