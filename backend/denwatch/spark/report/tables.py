"""The tables of a study on the disk, as CSV and Parquet. The only file of the report that writes.

Small tables come to the driver and are one file each; large ones (one row a match) are written by
Spark as a directory of Parquet alone, so that nothing depends on the driver's memory.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StructType

LARGE = (
    "outcomes",
    "matches",
    "notes",
    "subscriptions",
    "decisions",
    "covering",
    "contacts",
    "stays",
    "services",
)
IDS = ("note_id", "subscription_id")


def name_ids(frame: DataFrame) -> DataFrame:
    """Return a table with ids as people see them, in hexadecimal."""
    named = {name: F.lower(F.lpad(F.hex(name), 16, "0")) for name in IDS if name in frame.columns}
    return frame.withColumns(named) if named else frame


def save_table(frame: DataFrame, folder: Path, name: str) -> pd.DataFrame | None:
    """Write a table; return it if it is small."""
    frame = name_ids(frame)
    if name in LARGE:
        _write_large(frame, folder / f"{name}.parquet")
        return None
    table: pd.DataFrame = frame.toPandas()
    flat = table.copy()
    for field in frame.schema:
        if isinstance(field.dataType, ArrayType | StructType):
            flat[field.name] = [
                None if v is None else json.dumps(list(v)) for v in flat[field.name]
            ]
    _replace(folder / f"{name}.csv", flat.to_csv(index=False).encode())
    partial = folder / f".{name}.parquet"
    table.to_parquet(partial, index=False)
    partial.replace(folder / f"{name}.parquet")
    return table


def _write_large(frame: DataFrame, path: Path) -> None:
    """Write a directory of Parquet; it has its name only when it is whole."""
    dropped = [field.name for field in frame.schema if isinstance(field.dataType, BinaryType)]
    partial = path.with_name(f".{path.name}")
    frame.drop(*dropped).write.mode("overwrite").parquet(str(partial))
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    partial.rename(path)


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(data)
    partial.replace(path)


def save_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    _replace(path, text.encode())
