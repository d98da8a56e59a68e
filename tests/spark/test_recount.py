"""Deliveries, latencies and relays, counted again by DuckDB; the fleet, its ways and traffic."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from denwatch.protocol import notification, subscription
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.spark.analytics.contacts import ContactSpan, Stay, share_contacts
from denwatch.spark.analytics.fleet import (
    COURIER,
    _walk_back,
    describe_bottleneck,
    find_bottlenecks,
    find_near_misses,
)
from denwatch.spark.analytics.outcomes import measure_latency, measure_share
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.cluster_bundle import find_roots
from denwatch.spark.matching import FOREVER, Meanings, match_globally
from denwatch.spark.record_tables import RecordTables
from denwatch.spark.report import analysis
from pyspark.sql import SparkSession

from benchmarks.analyze import query_duckdb
from benchmarks.analyze_site import Site, SiteLogs
from tests.spark.scripted_run import run_script


def test_another_engine_counts_the_same(spark: SparkSession, tmp_path: Path) -> None:
    written = SiteLogs(Site(nodes=4, notes=80, hours=2, subscriptions=9)).write(tmp_path / "logs")
    kept = RecordTables(tmp_path / "records")
    assert sum(kept.update(spark, [tmp_path / "logs"]).values()) == written
    study = Study(Logs(lambda kind: kept.read(spark, kind)))
    assert any(clock.doubt for clock in study.logs.clocks.values()), (
        "the site leaves clocks in doubt"
    )
    plain = query_duckdb(tmp_path / "records")
    ((delivered, latencies),) = plain["delivered"]
    headline, costs = study.headline.first(), study.costs.first()
    assert headline is not None
    assert costs is not None
    assert delivered > 20
    assert headline["delivered"] == delivered
    assert headline["wrong"] == 0
    assert [headline[f"{name}_ms"] for name in ("p50", "p90", "p95", "p99")] == pytest.approx(
        latencies
    )
    assert (costs["relays"], costs["notification_bytes"]) == plain["relays"][0]
    ours = {row["subscriber"]: row for row in study.list_tables()["subscribers"][1]().collect()}
    for subscriber, count, quantiles in plain["subscribers"]:
        assert ours[subscriber]["hit"] + ours[subscriber]["late"] == count
        found = [ours[subscriber][f"{name}_ms"] for name in ("p50", "p90", "p95", "p99")]
        assert found == pytest.approx(quantiles)
    aged = {(r["node"], r["origin"]): r for r in study.list_tables()["staleness"][1]().collect()}
    assert len(aged) == len(plain["staleness"])
    for node, origin, count, quantiles in plain["staleness"]:
        assert aged[node, origin]["notifications"] == count
        assert aged[node, origin]["p90_ms"] == pytest.approx(quantiles[1])


def test_the_fleet_names_nodes_whose_logs_are_missing(spark: SparkSession, tmp_path: Path) -> None:
    SiteLogs(Site(nodes=4, notes=24, hours=2, subscriptions=8)).write(tmp_path / "logs")
    shutil.rmtree(tmp_path / "logs" / "node003")
    kept = RecordTables(tmp_path / "records")
    kept.update(spark, [tmp_path / "logs"])
    study = Study(Logs(lambda kind: kept.read(spark, kind)))
    listed = study.list_tables()
    fleet = {row["node"]: row for row in listed["fleet"][1]().collect()}
    assert [node for node, row in fleet.items() if row["is_log_missing"]] == ["node003"]
    assert fleet["node000"]["runs"] == 2
    assert fleet["node000"]["held"] > 0
    assert fleet["node003"]["last_heard"] is None
    for row in listed["traffic"][1]().collect():
        assert row["transfers"] == row["needed"] + row["redundant"]
        assert row["redundant_bytes"] == 180 * row["redundant"]
    levels = listed["slos"][1]().collect()
    headline = study.headline.first()
    assert headline is not None
    assert sum(row["expected"] for row in levels) == headline["expected"]
    assert sum(row["delivered"] for row in levels) == headline["delivered"]


KILLED = """
import os, signal, sys
from pathlib import Path
from denwatch.spark.report import analysis
from denwatch.spark.session import build_session

analysis._SMALL = 1  # as if these were large logs
def tell(words):
    if words.startswith("3/"):
        os.kill(os.getpid(), signal.SIGKILL)
session = build_session("local[2]", is_brief=True, options={"spark.driver.memory": "1g"})
analysis.analyze(session, [Path("logs")], Path("out"), strategies=("direct",), tell=tell)
"""


@pytest.mark.slow
def test_an_analysis_that_was_killed_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_script(tmp_path / "logs")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(find_roots())}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "out" / ".work").is_dir()
    monkeypatch.setattr(analysis, "_SMALL", 1)
    told: list[str] = []
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    logs = [tmp_path / "logs"]
    try:
        analysis.analyze(spark, logs, tmp_path / "out", strategies=("direct",), tell=told.append)
        # Eleven large tables, one query for all others, and what joins broadcast.
        assert scheduler.numTotalJobs() - before <= 60, "a table sorts with a job of its own"
    finally:
        analysis.tune_queries(spark, 1)
        spark.catalog.clearCache()
    kept = [line.split()[1] for line in told if "of a run that was stopped" in line]
    assert kept == ["matches", "outcomes"]
    assert not (tmp_path / "out" / ".work").exists()
    monkeypatch.setattr(analysis, "_SMALL", 300_000)
    analysis.analyze(spark, logs, tmp_path / "whole", strategies=("direct",))
    for name in (*analysis.LARGE, "headline", "causes", "slos", "fleet", "links", "strategies"):
        one, other = (
            pd.read_parquet(tmp_path / out / "tables" / f"{name}.parquet").astype(str)
            for out in ("out", "whole")
        )
        columns = sorted(one.columns)
        assert columns == sorted(other.columns), name
        rows = [sorted(map(tuple, table[columns].to_numpy())) for table in (one, other)]
        assert rows[0] == rows[1], name


def test_readings_that_almost_fit_are_near_misses(spark: SparkSession) -> None:
    wanted = SubscriptionVector(1, [Predicate(0, 100, 120, 200)], threshold=250)
    vector = subscription.encode(wanted)
    schema = (
        "subscription_id bigint, subscriber string, words string, begins bigint, ends bigint,"
        " language int, vocabulary binary, vector binary"
    )
    row = (7, "medic", "about 110", 0, FOREVER, 0, bytearray(b"12345678"), bytearray(vector))
    windows = spark.createDataFrame([row], schema)
    notes, degrees = [], {}
    for number, value in enumerate((110, 99, 90, 0)):
        reading = NotificationVector(1, [Reading(0, (value,) * 4)], number)
        found = match(wanted, reading)
        degrees[number] = found.possible if found else 0
        data = bytearray(notification.encode(reading))
        notes.append((number, 5, 0, bytearray(b"12345678"), data, "device"))
    names = "notification_id bigint, at bigint, doubt bigint, vocabulary binary, vector binary"
    told = spark.createDataFrame(notes, f"{names}, device string")
    near = [number for number, degree in degrees.items() if 0 < degree < 250]
    assert near, "otherwise this is no test"
    matches, _ = match_globally(told, windows, Meanings({}))
    (found_row,) = find_near_misses(told, windows, matches, Meanings({})).collect()
    assert found_row["threshold"] == 250
    assert found_row["readings"] == len(near)
    assert found_row["nearest"] == max(degrees[number] for number in near)
    assert found_row["matched"] == sum(degree >= 250 for degree in degrees.values()) == 1


def test_a_table_by_pair_of_many_nodes_stays_off_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "_FIRST", 2)
    rows = [("a", "b", 1, 0), ("a", "c", 5, 5), ("b", "c", 9, 3)]
    ways = spark.createDataFrame(rows, "first string, second string, missed int, recovered int")
    small = analysis.save_tables({"bottlenecks": lambda: ways}, tmp_path, is_wide=True)
    assert small["bottlenecks"]["recovered"].tolist() == [5, 3]
    assert (tmp_path / "bottlenecks.parquet").is_dir()
    assert len(pd.read_parquet(tmp_path / "bottlenecks.parquet")) == 3
    assert "recovered" in describe_columns(tmp_path / "bottlenecks.csv")


def describe_columns(path: Path) -> str:
    """Return the first line of a CSV file."""
    return path.read_text().splitlines()[0]


def test_quantiles_of_very_many_records_are_close(spark: SparkSession) -> None:
    rows = spark.range(1_000).selectExpr("id as age")
    exact = rows.agg(*measure_latency(spark, "age")).collect()[0]
    analysis.tune_queries(spark, 6_000_000)
    try:
        close = rows.agg(*measure_latency(spark, "age")).collect()[0]
        some = rows.agg(measure_share(spark, "age", "array(0.1, 0.9)").alias("both")).collect()[0]
    finally:
        analysis.tune_queries(spark, 1)
    assert list(close) == pytest.approx(list(exact), abs=1)
    assert list(close) != list(exact), "exact ones lie between two values"
    assert all(isinstance(value, float) for value in (*close, *some["both"]))


def test_only_transfers_on_the_way_of_a_delivery_were_needed() -> None:
    def came(*rows: tuple[int, str, str]) -> list[dict[str, object]]:
        return [dict(zip(("time", "node", "source"), row, strict=True)) for row in rows]

    # Read at a; b has it from a, c from b (and again from a, later), d from c. Delivered at c.
    ways = came((1, "a", ""), (2, "b", "a"), (3, "c", "b"), (4, "c", "a"), (5, "d", "c"))
    batch = pd.DataFrame({"item": [7], "came": [ways], "ends": [["c"]]})
    (found,) = _walk_back(iter([batch]))
    assert found.to_numpy().tolist() == [[7, "a", "b"], [7, "b", "c"]]


def test_a_courier_is_counted_for_what_only_it_could_bring(
    spark: SparkSession,
) -> None:
    # Two readings at a for somebody who stays at b; nobody ever goes there, or not in time.
    shared = share_contacts(
        spark,
        [ContactSpan("a", "c", 0, 10)],
        {"medic": [Stay("b", 0, 2 * COURIER)]},
        {"medic": (0, "b")},
        2 * COURIER,
    )
    schema = (
        "notification_id bigint, subscriber string, origin string, born bigint, until bigint, "
        "asked array<struct<origin: string, begins: bigint>>"
    )
    rows = [(1, "medic", "a", 5, None, [("b", 0)]), (2, "medic", "a", 5, 100, [("b", 0)])]
    pairs = spark.createDataFrame(rows, schema)
    judged = spark.createDataFrame(
        [(n, "medic", "missed", None) for n in (1, 2)],
        "notification_id bigint, subscriber string, outcome string, best bigint",
    )
    found: pd.DataFrame = find_bottlenecks(pairs, judged, shared).toPandas()
    assert found.to_numpy().tolist() == [["a", "b", 2, 1]]
    assert "between a and b every 20 min would have made 1 of 2" in describe_bottleneck(found, 2)
