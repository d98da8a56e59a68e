"""A batch's records as Parquet by kind and day: written by the workers, in one pass over the batch.

The same layout and columns as `denwatch.spark.tables`; a file is named after its batch and task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from denwatch.spark.source.columns import QUARANTINE, build_schema, convert_schema
from denwatch.spark.tables import name_day, write_parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame

_DAY = 86_400_000
_SCHEMA = pa.schema([("kind", pa.string()), ("file", pa.string()), ("rows", pa.int64())])
Batches = Iterator[pa.RecordBatch]


class Written(NamedTuple):
    """The new files of a kind, and how many records they hold."""

    files: list[Path]
    rows: int


def name_stem(batch: int) -> str:
    """Return how the names of a batch's files begin."""
    return f"b{batch:08d}"


def write_records(batch: DataFrame, folder: Path, number: int) -> dict[str, Written]:
    """Write the records of a batch (all kinds, wide) into a folder; return what was written."""
    work = _make_writer(str(folder), name_stem(number))
    rows = batch.mapInArrow(work, "kind string, file string, rows bigint").collect()
    written: dict[str, Written] = {}
    for row in sorted(rows):
        files, count = written.get(row["kind"], Written([], 0))
        written[row["kind"]] = Written([*files, folder / row["file"]], count + row["rows"])
    return written


def _make_writer(folder: str, stem: str) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        parts: dict[tuple[str, str], list[pa.Table]] = {}
        for batch in batches:
            for key, table in split_batch(batch):
                parts.setdefault(key, []).append(table)
        told = []
        for (kind, day), tables in sorted(parts.items()):
            name = f"kind={kind}/day={day}/{stem}-{context.partitionId():05d}.parquet"
            table = pa.concat_tables(tables)
            write_parquet(Path(folder) / name, table)
            told.append({"kind": kind, "file": name, "rows": table.num_rows})
        yield pa.RecordBatch.from_pylist(told, schema=_SCHEMA)

    return write


def split_batch(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    """Yield the rows of each kind and day, with the columns of the kind."""
    whole = pa.Table.from_batches([batch])
    for kind in pc.unique(whole["kind"]).to_pylist():
        schema = convert_schema(build_schema(kind))
        rows = whole.filter(pc.equal(whole["kind"], kind)).select(schema.names).cast(schema)
        if kind == QUARANTINE:  # what cannot be read has no day: the first
            yield (kind, name_day(0)), rows
            continue
        times = rows["time"].to_pylist()
        days = [time // _DAY for time in times]
        for day in sorted(set(days)):
            mask = pa.array([other == day for other in days])
            yield (kind, name_day(day * _DAY)), rows.filter(mask)
