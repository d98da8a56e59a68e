"""The driver of the cluster's tests: a process of its own, as there is one Spark in each.

    python -m tests.spark.cluster_driver MASTER ARCHIVE LOGS

Matches the same notifications on two workers and on one, with several numbers of partitions, and
asks the logs by the command. Prints a JSON object for two workers and one for one.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from denwatch.cli import spark as commands
from denwatch.protocol import notification, subscription
from denwatch.spark.cluster_bundle import find_unseen
from denwatch.spark.matching import build_index, match_notes
from denwatch.spark.matching.value_index import MAX_LIST
from denwatch.spark.matching.windows import FOREVER
from denwatch.spark.session import build_session, list_common
from pyspark.sql import SparkSession

from tests.spark.logs import NOW
from tests.spark.oracle import Note, Sub
from tests.spark.test_matching import draw_note, draw_subscription

SHARDED = 25_000  # bytes of an index: a few shards
QUERY = "select device, count(*) as records from log_note group by device order by device"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for processes that live for seconds
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}


def make_site(seed: int = 11) -> tuple[list[Note], list[Sub]]:
    """Return notifications and subscriptions, the same for the same seed."""
    rng = random.Random(seed)
    subs = [
        Sub(
            number,
            f"medic{rng.randint(0, 9)}",
            begins := NOW + rng.randint(0, 1_000),
            rng.choice((FOREVER, begins + rng.randint(1, 1_000))),
            subscription.encode(draw_subscription(rng, rng.random() < 0.7)),
        )
        for number in range(220)
    ]
    notes = [
        Note(
            number,
            NOW + rng.randint(0, 1_500),
            rng.choice((0, 50)),
            notification.encode(draw_note(rng, rng.random() < 0.6)),
        )
        for number in range(300)
    ]
    return notes, subs


def match_all(
    spark: SparkSession, partitions: tuple[int, ...], limit: int = 1 << 30
) -> dict[str, list[Any]]:
    """Return all matches in order, for each number of partitions."""
    notes, subs = make_site()
    names = ("subscription_id", "subscriber", "begins", "ends", "vector")
    table = pa.table(dict(zip(names, map(list, zip(*subs, strict=True)), strict=True)))
    folder = tempfile.mkdtemp(prefix="denwatch-test-")
    index = build_index(spark, table, folder=folder, limit=limit, max_list=MAX_LIST)
    schema = "notification_id bigint, at bigint, doubt bigint, vector binary"
    frame = spark.createDataFrame(notes, schema)
    return {
        f"{len(index.shards)} shards, {parts} parts": sorted(
            map(list, match_notes(frame.repartition(parts), index).collect())
        )
        for parts in partitions
    }


def describe_workers(spark: SparkSession) -> list[Any]:
    """Return what the workers of all executors say of themselves."""
    return spark.sparkContext.parallelize(range(8), 8).map(describe_worker).distinct().collect()


def describe_worker(_: int) -> tuple[str, str, bool, int, int]:
    """Return where a worker has our code and itself from, and what it had to compile."""
    import os

    import denwatch.spark
    from denwatch.spark.matching.kernels import keep_hits

    stats = keep_hits.stats  # type: ignore[attr-defined]  # numba's
    compiled, loaded = sum(stats.cache_misses.values()), sum(stats.cache_hits.values())
    return str(Path.cwd()), denwatch.spark.__file__, "PACKED" in os.environ, compiled, loaded


def run(master: str, archive: str, logs: str) -> None:
    """Match on two workers; then ask by the command on one, and match within its session."""
    options = QUICK | {"spark.cores.max": "2", "spark.driver.extraJavaOptions": _quicken_driver()}
    spark = build_session(master, name="cluster test", options=options, archive=archive)
    found = match_all(spark, (1, 5)) | match_all(spark, (3,), SHARDED)
    told = {"matches": found, "workers": describe_workers(spark)}
    told["unseen"] = find_unseen(spark, [logs, "/there/is/nothing"])
    spark.stop()
    print(json.dumps(told), flush=True)
    ask = commands.ask

    def match_and_ask(session: SparkSession, *rest: Any) -> Any:
        one.update(matches=match_all(session, (2,)), workers=describe_workers(session))
        return ask(session, *rest)

    one: dict[str, Any] = {}
    out = io.StringIO()
    settings = [
        f"--conf={key}={value}" for key, value in (QUICK | {"spark.cores.max": "1"}).items()
    ]
    with patch.object(commands, "ask", match_and_ask), contextlib.redirect_stdout(out):
        arguments = ["--master", master, "--archive", archive, "--format", "json", *settings]
        one["code"] = commands.run_sql([logs, QUERY, *arguments])
    one["rows"] = [json.loads(line) for line in out.getvalue().splitlines()]
    print(json.dumps(one), flush=True)


def _quicken_driver() -> str:
    return f"{list_common()['spark.driver.extraJavaOptions']} {QUICK_JAVA}"


if __name__ == "__main__":
    run(*sys.argv[1:])
