"""The Parquet files of one table in a version: taken in, looked through, taken out, made fewer.

Every file has a name that says in which batch it was made, so that no two files ever have one; the
same batch, done again after a crash, makes the same names in a version that begins without them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

MANY = 16  # small files in one folder are made one
SMALL = 32 << 20  # bytes
_ROW_GROUP = 100_000


def list_files(folder: Path, pattern: str = "b*.parquet") -> list[Path]:
    """Return the files of a table, in order; by default those that stay once they are made."""
    return sorted(folder.glob(pattern))


def read_files(spark: SparkSession, files: Iterable[Path], schema: StructType | str) -> DataFrame:
    """Return what files hold; none are an empty frame."""
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


class Removed(NamedTuple):
    """What was taken out: how many rows, and whose."""

    rows: int
    owners: set[str]


def remove_rows(folder: Path, keys: pa.Array, on: str, stem: str) -> Removed:
    """Take out the rows whose `on` is among the keys.

    Files without any stay as they are; the others are written anew without them. This is done here,
    a part of a file at a time: it is rare, and what is changed is little.
    """
    rows, owners = 0, set[str]()
    for number, path in enumerate(list_files(folder)):
        with pq.ParquetFile(path) as file:
            hit = _find_hit(file, keys, on)
            if not hit:
                continue
            rows += sum(map(len, hit))
            owners.update(*(column.to_pylist() for column in hit))
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
    return Removed(rows, owners)


def _find_hit(file: pq.ParquetFile, keys: pa.Array, on: str) -> list[pa.Array]:
    """Return the owners of the rows whose `on` is among the keys."""
    columns = list(dict.fromkeys((on, "owner")))
    found = []
    for batch in file.iter_batches(_ROW_GROUP, columns=columns):
        owners = batch.column("owner").filter(pc.is_in(batch.column(on), keys))
        if len(owners):
            found.append(owners)
    return found


def join_small(folders: Iterable[Path], stem: str) -> int:
    """Make many small files of a folder one, a folder after the other; return how many did."""
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
    """Return the folders below one that hold tables."""
    return sorted(
        Path(place)
        for place, _, names in os.walk(root)
        if any(name.endswith(".parquet") for name in names)
    )
