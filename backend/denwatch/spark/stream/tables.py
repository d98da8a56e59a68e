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
from denwatch.spark.services import SERVICES, list_names, read_offers, refresh_services
from denwatch.spark.source.decoding import QUARANTINE, build_schema, convert_schema
from denwatch.spark.stream.versions import STATE, Building
from denwatch.spark.tables import RecordTables, name_day, write_parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

MANY = 16  # so many small files of a folder are joined
SMALL = 32 << 20  # bytes
_ROW_GROUP = 100_000


def list_files(folder: Path, pattern: str = "b*.parquet") -> list[Path]:
    """Return the files of a table, in order; by default those that are never rewritten."""
    return sorted(folder.glob(pattern))


def read_files(spark: SparkSession, files: Iterable[Path], schema: StructType | str) -> DataFrame:
    """Return the rows of some files; an empty frame if there are none."""
    names = [str(path) for path in files]
    if not names:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*names)


def add_frame(frame: DataFrame, folder: Path, stem: str) -> int:
    """Write a frame as new files of a table, `stem` first in their names; return its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{stem}"
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(partial))
    rows = 0
    for number, path in enumerate(list_files(partial, "*.parquet")):
        held = pq.read_metadata(path).num_rows
        if held:
            path.rename(folder / f"{stem}-{number:05d}.parquet")
        rows += held
    shutil.rmtree(partial)
    return rows


class RemovedRows(NamedTuple):
    """How many rows were removed, and whose they were."""

    rows: int
    owners: set[str]


def remove_rows(folder: Path, keys: pa.Array, on: str, stem: str) -> RemovedRows:
    """Remove the rows whose column `on` has one of the keys.

    Files without such rows stay as they are; the others are rewritten, a batch at a time. The
    driver does this itself: it is rare and concerns few files.
    """
    rows, owners = 0, set[str]()
    for number, path in enumerate(list_files(folder)):
        with pq.ParquetFile(path) as file:
            matched = _find_owners(file, keys, on)
            if not matched:
                continue
            rows += sum(map(len, matched))
            owners.update(*(column.to_pylist() for column in matched))
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
    return RemovedRows(rows, owners)


def _find_owners(file: pq.ParquetFile, keys: pa.Array, on: str) -> list[pa.Array]:
    """Return the subscribers of the rows whose column `on` has one of the keys."""
    columns = list(dict.fromkeys((on, "owner")))
    found = []
    for batch in file.iter_batches(_ROW_GROUP, columns=columns):
        owners = batch.column("owner").filter(pc.is_in(batch.column(on), keys))
        if len(owners):
            found.append(owners)
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
# `denwatch.spark.tables`; a file is named after its batch and task.

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
        listed = []
        for (kind, day), tables in sorted(parts.items()):
            name = f"kind={kind}/day={day}/{stem}-{context.partitionId():05d}.parquet"
            table = pa.concat_tables(tables)
            write_parquet(Path(folder) / name, table)
            listed.append({"kind": kind, "file": name, "rows": table.num_rows})
        yield pa.RecordBatch.from_pylist(listed, schema=_SCHEMA)

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


# Services -------------------------------------------------------------------------------
# What devices offer in each region. A later record of a device replaces an earlier one, in whatever
# order the logs arrive (`refresh_services`), so a batch needs only the table before and its own
# records. When a vocabulary becomes known, attributes get other names and all records are read
# again.

_FOLDER = "services"


def update_offers(
    spark: SparkSession,
    building: Building,
    written: dict[str, Written],
    number: int,
    meanings: Meanings,
    *,
    is_renamed: bool,
) -> None:
    """Update the table of services with the device records of a batch."""
    if "device" not in written and not is_renamed:
        return
    folder = building.make(STATE, _FOLDER)
    known = list_files(folder)
    if is_renamed:
        before = read_files(spark, [], SERVICES)
        said = RecordTables(building.folder / "records").read(spark, "device").drop("day")
    else:
        before = read_files(spark, known, SERVICES)
        said = read_files(spark, written["device"].files, build_schema("device"))
    offers = refresh_services(before, read_offers(said, list_names(meanings)))
    add_frame(offers.coalesce(1), folder, name_stem(number))
    for path in known:
        path.unlink()


def read_services(spark: SparkSession, building: Building) -> DataFrame:
    """Return all services that were ever offered, withdrawn ones included."""
    return read_files(spark, list_files(building.make(STATE, _FOLDER)), SERVICES)
