"""Global matching on Spark: our job, the best SQL forms, and the matcher alone, on the same tables.

    python -m benchmarks.spark [--json] [--quick] [--save]

Everybody reads the same Parquet files, keeps to two cores, does an eighth of the work before it is
timed (so that start-up and compilation stand apart), and ends with the same three numbers: how many
matches, the sum of their degrees, and a sum over pairs of ids. If they differ, that is an error.
Our index is built before the time runs, once for all notifications, and its seconds are told apart;
the SQL engines file their lists within the query.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.matching import SharedIndex, build_index, match_notes
from backend.matching.index import load_rows, load_shard
from backend.matching.job import match_batch
from backend.matching.kernels import keep_hits
from backend.matching.vectors import decode_notes
from backend.session import build_session
from benchmarks.common import run, say
from benchmarks.spark_log import measure_log
from benchmarks.spark_report import save_report
from benchmarks.spark_sql import DUCKDB, SPARK, list_stabs, match
from benchmarks.spark_work import FEW, MANY, Shape, Work, make_work

Check = tuple[int, int, int]
CORES = 2
_OPTIONS = {"spark.driver.memory": "4g"}


@dataclass
class Timing:
    """What one contender took, in seconds, and what it found."""

    seconds: float
    check: Check


@dataclass
class Round:
    """One workload, and all who did it."""

    work: Work
    build: float = 0.0
    timings: dict[str, Timing] = field(default_factory=dict)

    def over(self, name: str) -> float:
        """Return how many times our job's time a contender took."""
        return self.timings[name].seconds / self.timings["job"].seconds


def time_warm(call: Callable[[Work], Check], work: Work) -> Timing:
    """Call with an eighth of the notifications, then time the call with all of them."""
    call(work.take_first())
    start = time.perf_counter()
    check = call(work)
    return Timing(time.perf_counter() - start, check)


def mix(notes: Any, subscriptions: Any) -> int:
    """Return the sum over pairs of ids that shows which pairs they are."""
    return int((np.fmod(notes, 1000003) * np.fmod(subscriptions, 1009)).sum())


def run_job(spark: SparkSession, work: Work, index: SharedIndex) -> Check:
    """Run our job, its matches counted and summed by Spark."""
    matches = match_notes(spark.read.parquet(str(work.note_files)), index)
    return _collect(
        matches.select("possible", F.expr("note_id % 1000003 * (subscription_id % 1009) as mixed"))
    )


def _collect(found: DataFrame) -> Check:
    row = found.agg(F.count("*"), F.sum("possible"), F.sum("mixed")).collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def run_spark_sql(spark: SparkSession, work: Work) -> Check:
    """Run the SQL form on Spark, the lists broadcast."""
    spark.read.parquet(str(work.note_files)).createOrReplaceTempView("notes")
    spark.read.parquet(str(work.subscription_file)).createOrReplaceTempView("subscriptions")
    spark.sql(list_stabs(SPARK)).createOrReplaceTempView("lists")
    F.broadcast(spark.table("lists")).createOrReplaceTempView("stabs")
    row = spark.sql(match(SPARK)).collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def run_duckdb(work: Work) -> Check:
    """Run the SQL form on DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"set threads = {CORES}")
        for name, path in (
            ("notes", work.note_glob),
            ("subscriptions", str(work.subscription_file)),
        ):
            connection.execute(f"create view {name} as select * from read_parquet('{path}')")
        connection.execute(f"create table stabs as {list_stabs(DUCKDB)}")
        row = connection.execute(match(DUCKDB)).fetchall()[0]
    return int(row[0]), int(row[1]), int(row[2])


def _read_batches(work: Work) -> list[pa.RecordBatch]:
    """Return the notifications in memory, in batches as Spark makes them."""
    columns = ["note_id", "at", "doubt", "vector"]
    table = pq.read_table(work.note_files, columns=columns)
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=50_000)
    return batches


def run_matcher(index: SharedIndex, work: Work) -> Check:
    """Run the node's index in this process on two threads: read, match, keep what is in force."""
    rows = load_rows(index.find("rows.npy"))
    engine = load_shard(index.find(index.shards[0].file))

    def match_one(batch: pa.RecordBatch) -> Check:
        readings, _ = decode_notes(batch.column("vector"))
        hits = engine.match_batch(readings)
        numbers = [np.array(batch.column(name)) for name in ("note_id", "at", "doubt")]
        notes, ids, _, possible, _, _ = keep_hits(
            hits.starts, hits.ids, hits.possible, hits.certain, hits.attributes, *numbers,
            np.full(batch.num_rows, -1, np.int64), rows,
        )  # fmt: skip
        return len(ids), int(possible.sum(dtype=np.int64)), mix(notes, ids)

    return _share(match_one, _read_batches(work))


def run_worker(index: SharedIndex, work: Work) -> Check:
    """Run what our job's workers run, in this process on two threads, without Spark."""

    def match_one(batch: pa.RecordBatch) -> Check:
        totals = [0, 0, 0]
        for shard in index.shards:
            for found in match_batch(batch, index, shard):
                notes, ids = (found.column(i).to_numpy() for i in (0, 1))
                possible = found.column(3).to_numpy().sum(dtype=np.int64)
                for i, value in enumerate((len(ids), int(possible), mix(notes, ids))):
                    totals[i] += value
        return totals[0], totals[1], totals[2]

    return _share(match_one, _read_batches(work))


def _share(work: Callable[[pa.RecordBatch], Check], batches: list[pa.RecordBatch]) -> Check:
    with ThreadPoolExecutor(CORES) as pool:
        found = list(pool.map(work, batches))
    return sum(f[0] for f in found), sum(f[1] for f in found), sum(f[2] for f in found)


def compare(spark: SparkSession, work: Work, names: tuple[str, ...]) -> Round:
    """Let the named contenders do a workload."""
    done = Round(work)
    start = time.perf_counter()
    index = build_index(spark, pq.read_table(work.subscription_file))
    done.build = time.perf_counter() - start
    calls: dict[str, Callable[[Work], Check]] = {
        "job": lambda part: run_job(spark, part, index),
        "matcher": lambda part: run_matcher(index, part),
        "worker": lambda part: run_worker(index, part),
        "duckdb": run_duckdb,
        "spark_sql": lambda part: run_spark_sql(spark, part),
    }
    for name in names:
        timing = done.timings[name] = time_warm(calls[name], work)
        say(f"  {name}: {timing.seconds:.2f} s, {timing.check[0]:,} matches")
        if timing.check != done.timings["job"].check:
            raise AssertionError(f"{name} found something else: {done.timings}")
    return done


ALL_NAMES = ("job", "matcher", "worker", "duckdb", "spark_sql")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything and return the headline figures."""
    size = (20_000, 50_000) if options.quick else (100_000, 1_000_000)
    rng = np.random.default_rng(options.seed)
    start = time.perf_counter()
    spark = build_session(f"local[{CORES}]", name="benchmark", options=_OPTIONS)
    started = time.perf_counter() - start
    say(f"Spark started in {started:.1f} s")
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="denwatch-spark-") as folder:

        def make(shape: Shape, subscriptions: int, notes: int) -> Work:
            place = Path(folder) / f"{len(rounds)}"
            say(f"{shape.name}: {subscriptions:,} subscriptions, {notes:,} notifications")
            return make_work(shape, subscriptions, notes, place, rng)

        rounds.append(compare(spark, make(MANY, *size), ALL_NAMES))
        tenths = [(size[0], size[1] // 10), (size[0] // 10, size[1])]
        rounds.append(compare(spark, make(FEW, *tenths[0]), ALL_NAMES))
        rounds += [compare(spark, make(MANY, *tenth), ("job", "matcher")) for tenth in tenths]
        log = measure_log(spark, Path(folder) / "log", 40_000 if options.quick else 400_000)
        spark.stop()
        one = measure_one_core(rounds[0].work)
    result = summarise(rounds, log, one, started)
    if options.save:
        save_report(rounds, result)
    return result


def measure_one_core(work: Work) -> float:
    """Return the seconds of our job on one core."""
    spark = build_session("local[1]", name="benchmark", options=_OPTIONS)
    index = build_index(spark, pq.read_table(work.subscription_file))
    timing = time_warm(lambda part: run_job(spark, part, index), work)
    spark.stop()
    say(f"one core: {timing.seconds:.2f} s")
    return timing.seconds


def summarise(rounds: list[Round], log: float, one: float, started: float) -> dict[str, Any]:
    """Return one flat dictionary: the headline is many small masks, the harder case."""
    many, few, fewer_notes, fewer_subscriptions = rounds
    job = many.timings["job"].seconds
    return {
        "over_spark_sql": round(many.over("spark_sql"), 2),
        "over_duckdb": round(many.over("duckdb"), 2),
        "over_matcher_alone": round(1 / many.over("worker"), 3),
        "over_node_index_alone": round(1 / many.over("matcher"), 3),
        "pairs_per_s": round(many.work.pairs / job),
        "log_records_per_s": round(log),
        "matches": many.timings["job"].check[0],
        "matches_per_s": round(many.timings["job"].check[0] / job),
        "few_over_spark_sql": round(few.over("spark_sql"), 2),
        "few_over_duckdb": round(few.over("duckdb"), 2),
        "few_over_matcher_alone": round(1 / few.over("worker"), 3),
        "few_over_node_index_alone": round(1 / few.over("matcher"), 3),
        "tenth_of_notes": round(job / fewer_notes.timings["job"].seconds, 2),
        "tenth_of_subscriptions": round(job / fewer_subscriptions.timings["job"].seconds, 2),
        "two_cores_over_one": round(one / job, 2),
        "index_seconds": round(many.build, 2),
        "session_seconds": round(started, 1),
    }


def main() -> None:
    """Run from the command line."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
