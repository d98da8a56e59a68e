"""The nodes' logs in Spark: `read_kind` and `stream_kind`; the format is called `denwatch`.

    notes = read_kind(spark, ["logs/north", "logs/south"], "note", columns=["item", "at"])
    lost = read_kind(spark, ["logs"], QUARANTINE)

`listing` finds segments, `decoding` has the types and reads them, `datasource` is what Spark calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from denwatch.spark.source.datasource import FORMAT, LogSource, is_start_timeout, join_folders
from denwatch.spark.source.decoding import ALL, QUARANTINE, KindError, build_schema
from denwatch.spark.source.storage import copy_logs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

__all__ = ["ALL", "FORMAT", "QUARANTINE", "KindError", "LogSource", "build_schema"]
__all__ += ["is_start_timeout", "read_kind", "stream_kind"]

Folder = str | Path
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def choose_columns(kind: str, columns: Sequence[str] | None) -> StructType:
    """Return the schema of some columns of a kind, in the order of the kind."""
    schema = build_schema(kind)
    if columns is None:
        return schema
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise KindError(f"{kind} has no columns {sorted(unknown)}; it has {schema.names}")
    return StructType([field for field in schema if field.name in columns])


def read_kind(
    spark: SparkSession,
    folders: Iterable[Folder],
    kind: str,
    *,
    columns: Sequence[str] | None = None,
    since: int | None = None,
    until: int | None = None,
) -> DataFrame:
    """Return the records of a kind in some folders: all, or since <= time < until (ms).

    What URIs of other storage name is copied first, for this process.
    """
    reader = spark.read.format(FORMAT).option("kind", kind).schema(choose_columns(kind, columns))
    reader = reader.option("pushdown", spark.conf.get(_PUSHDOWN, "false"))
    for name, value in (("since", since), ("until", until)):
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(join_folders(copy_logs(spark, folders)))


def stream_kind(
    spark: SparkSession,
    folders: Iterable[Folder],
    kind: str = ALL,
    *,
    max_records: int | None = None,
) -> DataFrame:
    """Return the records of a kind as a stream; of `all` kinds if none is named."""
    reader = spark.readStream.format(FORMAT).option("kind", kind).schema(build_schema(kind))
    if max_records is not None:
        reader = reader.option("max_records", max_records)
    return reader.load(join_folders(folders))
