"""Deliveries, latencies and relays, counted again by DuckDB; the fleet, its ways and traffic."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from denwatch.spark.analytics.contacts import ContactSpan, Stay, share_contacts
from denwatch.spark.analytics.fleet import (
    COURIER,
    _walk_back,
    describe_bottleneck,
    find_bottlenecks,
)
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.tables import RecordTables
from pyspark.sql import SparkSession

from benchmarks.analyze import query_duckdb
from benchmarks.analyze_site import Site, SiteLogs


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
        [(n, "medic", "missed", None, False) for n in (1, 2)],
        "notification_id bigint, subscriber string, outcome string, best bigint, "
        "is_deliberate boolean",
    )
    found: pd.DataFrame = find_bottlenecks(pairs, judged, shared).toPandas()
    assert found.to_numpy().tolist() == [["a", "b", 2, 1]]
    assert "between a and b every 20 min would have made 1 of 2" in describe_bottleneck(found, 2)
