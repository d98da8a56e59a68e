"""The Parquet files of a version's tables: add, read, remove rows, join small files; and the tables
that need nothing else, the records of a batch and the services that devices offer.

A file name contains the batch that wrote the file, so no two files ever share a name. A batch that
is repeated after a crash writes the same names, in a version that starts without them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from denwatch.spark.matching import Meanings
from denwatch.spark.record_tables import get_kind, write_tables
from denwatch.spark.services import SERVICES, list_names, read_offers, refresh_services
from denwatch.spark.source.decoding import build_schema, convert_schema
from denwatch.spark.stream.versions import STATE, Building
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

MANY = 16  # so many small files of a folder are joined
SMALL = 32 << 20  # bytes
_ROW_GROUP = 100_000


class Written(NamedTuple):
    """New files of a table, and how many rows they hold."""

    files: list[Path]
    rows: int


class Batch(NamedTuple):
    """A batch on its way into a version."""

    spark: SparkSession
    building: Building
    stem: str  # how the names of its files begin
    written: dict[str, Written]  # its records, by kind


def list_files(folder: Path, pattern: str = "b*.parquet") -> list[Path]:
    """Return the files of a table, in order; by default those that are never rewritten."""
    return sorted(folder.glob(pattern))


def read_files(spark: SparkSession, files: Iterable[Path], schema: StructType | str) -> DataFrame:
    """Return the rows of some files; an empty frame if there are none."""
    names = [str(path) for path in files]
    if not names:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*names)


def add_frame(frame: DataFrame, folder: Path, stem: str) -> Written:
    """Write a frame as new files of a table, `stem` first in their names."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{stem}"
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(partial))
    files, rows = [], 0
    for number, path in enumerate(list_files(partial, "*.parquet")):
        held = pq.read_metadata(path).num_rows
        if held:
            files.append(path.rename(folder / f"{stem}-{number:05d}.parquet"))
        rows += held
    shutil.rmtree(partial)
    return Written(files, rows)


class RemovedRows(NamedTuple):
    """How many rows were removed, and whose they were."""

    rows: int
    subscribers: set[str]


def remove_rows(folder: Path, keys: pa.Array, on: str, stem: str) -> RemovedRows:
    """Remove the rows whose column `on` has one of the keys.

    Files without such rows stay as they are; the others are rewritten, a batch at a time. The
    driver does this itself: it is rare and concerns few files.
    """
    rows, subscribers = 0, set[str]()
    for number, path in enumerate(list_files(folder)):
        with pq.ParquetFile(path) as file:
            matched = _find_owners(file, keys, on)
            if not matched:
                continue
            rows += sum(map(len, matched))
            subscribers.update(*(column.to_pylist() for column in matched))
            partial = folder / f".{stem}"
            left = 0
            with pq.ParquetWriter(partial, file.schema_arrow, compression="zstd") as writer:
                for batch in file.iter_batches(_ROW_GROUP):
                    kept = batch.filter(pc.invert(pc.is_in(batch.column(on), keys)))
                    left += kept.num_rows
                    writer.write_batch(kept)
        path.unlink()
        if left:
            partial.rename(folder / f"{stem}-{number:05d}.parquet")
        else:
            partial.unlink()
    return RemovedRows(rows, subscribers)


def _find_owners(file: pq.ParquetFile, keys: pa.Array, on: str) -> list[pa.Array]:
    """Return the subscribers of the rows whose column `on` has one of the keys."""
    columns = list(dict.fromkeys((on, "subscriber")))
    found = []
    for batch in file.iter_batches(_ROW_GROUP, columns=columns):
        subscribers = batch.column("subscriber").filter(pc.is_in(batch.column(on), keys))
        if len(subscribers):
            found.append(subscribers)
    return found


def join_small(folders: Iterable[Path], stem: str) -> int:
    """Join the small files of each folder that has many; return in how many folders."""
    joined = 0
    for folder in folders:
        files = [path for path in list_files(folder) if path.stat().st_size < SMALL]
        if len(files) < MANY:
            continue
        partial = folder / f".{stem}"
        schema = pq.read_schema(files[0])
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            for path in files:  # one at a time: a table may be larger than memory
                table: pa.Table = pq.read_table(path, partitioning=None)
                writer.write_table(table.cast(schema), row_group_size=_ROW_GROUP)
        partial.rename(folder / f"{stem}.parquet")
        for path in files:
            path.unlink()
        joined += 1
    return joined


def list_folders(root: Path) -> list[Path]:
    """Return the folders below `root` that contain Parquet files."""
    return sorted(
        Path(place)
        for place, _, names in os.walk(root)
        if any(name.endswith(".parquet") for name in names)
    )


# Records --------------------------------------------------------------------------------
# Workers write the records of a batch by kind and day in one pass, with the layout and columns of
# `denwatch.spark.record_tables`; a file is named after its batch and task.

_SCHEMA = pa.schema([("file", pa.string()), ("rows", pa.int64())])
Batches = Iterator[pa.RecordBatch]


def write_records(records: DataFrame, folder: Path, stem: str) -> dict[str, Written]:
    """Write the records of a batch (all kinds, wide) into a folder; return what was written."""
    rows = records.mapInArrow(_make_writer(folder, stem), "file string, rows bigint").collect()
    written: dict[str, Written] = {}
    for name, count in sorted(rows):
        files, before = written.get(get_kind(name), Written([], 0))
        written[get_kind(name)] = Written([*files, folder / name], before + count)
    return written


def _make_writer(folder: Path, stem: str) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        parts = (part for batch in batches for part in split_batch(batch))
        files = write_tables(folder, parts, f"{stem}-{context.partitionId():05d}")
        listed = [{"file": name, "rows": rows} for name, rows in files.items()]
        yield pa.RecordBatch.from_pylist(listed, schema=_SCHEMA)

    return write


def split_batch(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each kind, with the columns of the kind."""
    for kind in pc.unique(batch["kind"]).to_pylist():
        schema = convert_schema(build_schema(kind))
        rows = batch.filter(pc.equal(batch["kind"], kind)).select(schema.names)
        yield kind, rows.cast(schema)


# Services -------------------------------------------------------------------------------
# What devices offer in each region. A later record of a device replaces an earlier one, in whatever
# order the logs arrive (`refresh_services`), so a batch needs only the table before and its own
# records. When a vocabulary becomes known, attributes get other names and all records are read
# again.

_FOLDER = "services"


def update_offers(batch: Batch, meanings: Meanings, *, is_renamed: bool) -> None:
    """Update the table of services with the device records of a batch."""
    if "device" not in batch.written and not is_renamed:
        return
    folder = batch.building.make(STATE, _FOLDER)
    known = list_files(folder)
    if is_renamed:
        before = read_files(batch.spark, [], SERVICES)
        said = batch.building.records.read(batch.spark, "device")
    else:
        before = read_files(batch.spark, known, SERVICES)
        said = read_files(batch.spark, batch.written["device"].files, build_schema("device"))
    offers = refresh_services(before, read_offers(said, list_names(meanings)))
    add_frame(offers.coalesce(1), folder, batch.stem)
    for path in known:
        path.unlink()


def read_services(spark: SparkSession, building: Building) -> DataFrame:
    """Return all services that were ever offered, withdrawn ones included."""
    return read_files(spark, list_files(building.make(STATE, _FOLDER)), SERVICES)
