"""Who does the work of the Spark benchmark: our job in two ways, the matcher alone, SQL engines.

Each is prepared with the subscriptions (index built, lists filed) and is then given notifications;
all end with the same three numbers: how many matches, the sum of their degrees, and a sum over
pairs of ids. Nothing here measures time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from denwatch.spark.matching import SharedIndex, build_index, match_files, match_notes
from denwatch.spark.matching.job import list_parts, match_batch, read_parts
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_sql import DUCKDB, SPARK, SPARK_FORMS, Form, file_subscriptions, match
from benchmarks.spark_work import Work

Check = tuple[int, int, int]
Contender = Callable[[Work], Check]
CORES = 2
MIXED = "(notification_id & 1048575) * (subscription_id & 1023)"
_ADAPTIVE = "spark.sql.adaptive.enabled"
COLUMNS = ("notification_id", "subscription_id", "possible")  # what the three numbers are made of


def prepare_index(spark: SparkSession, work: Work, *, is_filed: bool = True) -> SharedIndex:
    """Return our index; `is_filed` as it decides itself, else the node's bit rows alone."""
    table = pq.read_table(work.subscription_file)
    return build_index(spark, table, max_list=None if is_filed else 0)


def prepare_job(spark: SparkSession, index: SharedIndex) -> Contender:
    """Return our job: workers read the notifications' files."""
    return lambda work: _collect(match_files(spark, [work.note_files], index, COLUMNS))


def prepare_rows(spark: SparkSession, index: SharedIndex) -> Contender:
    """Return our job where Spark reads the notifications and hands over rows."""

    def run(work: Work) -> Check:
        notes = spark.read.parquet(str(work.note_files))
        return _collect(match_notes(notes, index, COLUMNS))

    return run


def prepare_table(spark: SparkSession, index: SharedIndex, folder: Path) -> Contender:
    """Return our job with all columns of a match, written as a Parquet table."""

    def run(work: Work) -> Check:
        path = str(folder / "matches")
        match_files(spark, [work.note_files], index).write.mode("overwrite").parquet(path)
        return _collect(spark.read.parquet(path))

    return run


def _collect(matches: DataFrame) -> Check:
    row = matches.selectExpr("count(*)", "sum(possible)", f"sum({MIXED})").collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def prepare_alone(index: SharedIndex) -> Contender:
    """Return the same work in this process on two threads, without Spark.

    The same files are read, the same columns are made, and then summed.
    """

    def run(work: Work) -> Check:
        with ThreadPoolExecutor(CORES) as pool:
            found = list(pool.map(match_part, list_parts([work.note_files])))
        return _add(found)

    def match_part(part: Any) -> Check:
        batches = read_parts([part], index)
        return _add([_sum(m) for b in batches for s in index.shards for m in _match(b, s)])

    def _match(batch: pa.RecordBatch, shard: Any) -> Iterator[pa.RecordBatch]:
        return match_batch(batch, index, shard, COLUMNS)

    return run


def _sum(matches: pa.RecordBatch) -> Check:
    notes, subscriptions, possible = (column.to_numpy() for column in matches.columns)
    mixed = (notes & 1048575) * (subscriptions & 1023)
    return matches.num_rows, int(possible.sum(dtype=np.int64)), int(mixed.sum())


def _add(found: list[Check]) -> Check:
    return sum(f[0] for f in found), sum(f[1] for f in found), sum(f[2] for f in found)


def prepare_spark_sql(spark: SparkSession, work: Work, form: Form) -> Contender:
    """Return a form of SQL on Spark; the filed subscriptions are a Parquet table.

    With adaptive execution, which a session of ours on one machine does without.
    """
    spark.read.parquet(str(work.subscription_file)).createOrReplaceTempView("subscriptions")
    number = SPARK_FORMS.index(form)
    path = str(work.subscription_file.with_name(f"filed-{number}"))
    spark.sql(file_subscriptions(form, SPARK)).write.mode("overwrite").parquet(path)

    def run(part: Work) -> Check:
        spark.read.parquet(str(part.note_files)).createOrReplaceTempView("notes")
        spark.read.parquet(path).createOrReplaceTempView("filed")
        ours = spark.conf.get(_ADAPTIVE)
        spark.conf.set(_ADAPTIVE, "true")
        try:
            row = spark.sql(match(form, SPARK)).collect()[0]
        finally:
            spark.conf.set(_ADAPTIVE, ours)
        return int(row[0]), int(row[1]), int(row[2])

    return run


def prepare_duckdb(work: Work, form: Form) -> Contender:
    """Return a form of SQL on DuckDB; the filed subscriptions are a table in its memory."""
    connection = duckdb.connect()
    connection.execute(f"set threads = {CORES}")
    path = work.subscription_file
    connection.execute(f"create view subscriptions as select * from read_parquet('{path}')")
    connection.execute(f"create table filed as {file_subscriptions(form, DUCKDB)}")

    def run(part: Work) -> Check:
        source = f"read_parquet('{part.note_glob}')"
        connection.execute(f"create or replace view notes as select * from {source}")
        with _stop_with(connection.interrupt):
            row = connection.execute(match(form, DUCKDB)).fetchall()[0]
        return int(row[0]), int(row[1]), int(row[2])

    return run


_STOPPERS: list[Callable[[], None]] = []


@contextmanager
def _stop_with(stop: Callable[[], None]) -> Iterator[None]:
    _STOPPERS.append(stop)
    try:
        yield
    finally:
        _STOPPERS.remove(stop)


def run_limited(spark: SparkSession, call: Callable[[], Check], seconds: float) -> Check | None:
    """Return what a call returns, None if it was stopped after so many seconds."""
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        spark.sparkContext.cancelAllJobs()
        for stopper in list(_STOPPERS):
            stopper()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        return call()
    except Exception:  # what a stopped query raises differs between engines
        if is_late.is_set():
            return None
        raise
    finally:
        timer.cancel()
        with suppress(RuntimeError):
            timer.join()
