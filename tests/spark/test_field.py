"""The analysis of an emulated day's logs says what really happened, to the millisecond.

The truth is the emulator's own, from what it saw and not from logs: `simulator.verdict`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

import pytest
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.record_tables import RecordTables
from pyspark.sql import SparkSession

from simulator.day import Day, Plan
from simulator.verdict import Verdict

LATE = 60_000
HOUR = 3_600_000
# A crew of twelve for an hour, and a whole site for six.
SMALL = Plan(2, 12, HOUR, "spray:4", people=8, devices=6, period=60_000, is_watched=True)
WHOLE = Plan(7, 50, 6 * HOUR, "spray:8", is_watched=True)

Truth = dict[tuple[int, str], Verdict]


class Judged(NamedTuple):
    truth: Truth
    rows: list[Any]
    headline: Any
    read_at: dict[int, int]


def run_day(plan: Plan, spark: SparkSession, folder: Path) -> Judged:
    logs = folder / "logs"
    logs.mkdir()
    day = Day(replace(plan, logs=str(logs)))
    day.run()
    tables = RecordTables(folder / "tables")
    assert "quarantine" not in tables.update(spark, [logs])
    study = Study(Logs(lambda kind: tables.read(spark, kind)), late=LATE)
    truth = {
        (_sign(note), subscriber): each for (note, subscriber), each in day.judge(LATE).items()
    }
    read_at = {_sign(note): time for note, time in day.read_at.items()}
    return Judged(truth, study.outcomes.collect(), study.headline.first(), read_at)


def _sign(id: int) -> int:
    """Ids have 64 bits; Spark counts the first as a sign."""
    return id - (id >> 63 << 64)


def check_day(judged: Judged) -> None:
    """Every notification for every person: outcome, cause, times and places are the same."""
    found = {(row["notification_id"], row["subscriber"]): _read(row) for row in judged.rows}
    assert len(found) == len(judged.rows)
    assert found == judged.truth
    for row in judged.rows:
        assert row["at"] == judged.read_at[row["notification_id"]]
        if row["delivered"] is not None:
            assert row["latency"] == row["delivered"] - judged.read_at[row["notification_id"]]


def _read(row: Any) -> Verdict:
    return Verdict(*(row[name] for name in Verdict._fields))


def check_headline(judged: Judged) -> None:
    """The figures that the report begins with, from the truth by plain sums."""
    truth, head = judged.truth, judged.headline
    counts = Counter(each.outcome for each in truth.values())
    named = ("hit", "late", "missed", "withheld", "wrong")
    assert {name: head[name] for name in named} == {name: counts[name] for name in named}
    expected = [each for each in truth.values() if each.outcome in ("hit", "late", "missed")]
    assert head["expected"] == len(expected) == head["delivered"] + head["missed"]
    delivered = [each for each in expected if each.delivered is not None]
    possible = [each for each in expected if each.best is not None]
    assert head["delivery_ratio"] == pytest.approx(len(delivered) / len(expected), abs=1e-12)
    reached = [each for each in possible if each.delivered is not None]
    assert head["quality"] == pytest.approx(len(reached) / len(possible), abs=1e-12)
    latencies = sorted(
        each.delivered - judged.read_at[note]
        for (note, _), each in truth.items()
        if each.delivered is not None and each.outcome != "wrong"
    )
    shares = quantiles(latencies, n=100, method="inclusive")
    assert head["p50_ms"] == pytest.approx(shares[49])
    assert head["p95_ms"] == pytest.approx(shares[94])


def test_a_small_day_is_judged_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    judged = run_day(SMALL, spark, tmp_path)
    causes = {(each.outcome, each.cause) for each in judged.truth.values()}
    # Otherwise the day would be no test: every reason that a day without faults can have.
    assert {
        ("hit", None),
        *(("late", cause) for cause in ("away", "partition", "replication")),
        *(("missed", cause) for cause in ("partition", "replication", "expired")),
        *(("withheld", cause) for cause in ("withdrawn", "top-k")),
    } <= causes
    check_day(judged)
    check_headline(judged)


@pytest.mark.slow
def test_fifty_nodes_and_six_hours_are_judged_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    judged = run_day(WHOLE, spark, tmp_path)
    assert len(judged.truth) > 1_000
    check_day(judged)
    check_headline(judged)
