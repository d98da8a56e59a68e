"""Outcomes in figures: over time, by cause, by subscriber, by node, and the headline."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OUTCOMES = ("hit", "late", "missed", "wrong")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def choose_step(begin: int, end: int, most: int = 60) -> int:
    """Return a round width in ms that cuts a time into at most so many parts."""
    steps = (
        *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000),
        *(900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000),
    )
    for step in steps:
        if (end - begin) // step < most:
            return step
    days = -(-(end - begin) // (86_400_000 * most))
    return max(1, days) * 86_400_000


def count_over_time(outcomes: DataFrame, begin: int, step: int) -> DataFrame:
    """Return, for each step of the time of reading, how many pairs came to which outcome."""
    bin_ = (F.floor((F.col("at") - begin) / step) * step + begin).cast("bigint")
    counted = outcomes.where("at is not null").groupBy(bin_.alias("time"))
    return counted.agg(*_count_outcomes()).orderBy("time")


def count_causes(outcomes: DataFrame) -> DataFrame:
    """Return how many pairs have which outcome and cause, the most frequent first."""
    return (
        outcomes.groupBy("outcome", "cause", "is_deliberate")
        .agg(F.count("*").alias("pairs"), F.count_if(F.col("is_open")).alias("still_open"))
        .orderBy("outcome", F.desc("pairs"), "cause")
    )


def count_by(outcomes: DataFrame, column: str) -> DataFrame:
    """Return outcomes and latencies for each value of a column: owner, origin or node."""
    return (
        outcomes.groupBy(column)
        .agg(*_count_outcomes(), *measure_latency("latency"))
        .orderBy(column)
    )


def _count_outcomes() -> list[Column]:
    return [F.count_if(F.col("outcome") == name).alias(name) for name in OUTCOMES]


def measure_latency(column: str, prefix: str = "") -> list[Column]:
    """Return exact quantiles of a column, in ms."""
    return [
        F.expr(f"percentile({column}, {share})").alias(f"{prefix}{name}_ms")
        for name, share in _QUANTILES.items()
    ]


def spread_latency(outcomes: DataFrame) -> DataFrame:
    """Return the distribution of latencies: of all deliveries and of the best possible.

    Columns: share (of deliveries, 1 % steps), latency_ms, best_ms: at most so long took that share.
    """
    rows = outcomes.where("outcome in ('hit', 'late')")
    shares = ", ".join(f"{n / 100}" for n in range(101))
    quantiles = rows.agg(
        F.expr(f"percentile(latency, array({shares}))").alias("latency"),
        F.expr(f"percentile(best_latency, array({shares}))").alias("best"),
    )
    zipped = quantiles.where("latency is not null").select(
        F.posexplode(F.arrays_zip("latency", "best")).alias("place", "both")
    )
    return zipped.select(
        (F.col("place") / 100).alias("share"),
        F.col("both.latency").alias("latency_ms"),
        F.col("both.best").alias("best_ms"),
    ).orderBy("share")


def sum_up(outcomes: DataFrame) -> DataFrame:
    """Return the headline, one row.

    `wished` are the pairs that nobody held back on purpose; `possible` those of them that contacts
    could have brought. quality = delivered of possible: 1 is as good as the best replication there
    can be. delay = the sum of the best latencies over that of ours, of what was delivered.
    """
    delivered = F.col("outcome").isin("hit", "late")
    wished = (F.col("outcome") != "wrong") & ~F.col("is_deliberate")
    possible = wished & F.col("best").isNotNull()
    best = F.sum(F.when(delivered, F.col("best_latency")))
    ours = F.sum(F.when(delivered, F.col("latency")))
    return outcomes.agg(
        *_count_outcomes(),
        F.count_if(F.col("is_open")).alias("still_open"),
        F.count_if(wished).alias("wished"),
        F.count_if(possible).alias("possible"),
        F.count_if(delivered).alias("delivered"),
        *measure_latency("case when outcome in ('hit', 'late') then latency end"),
        *measure_latency("case when outcome in ('hit', 'late') then best_latency end", "best_"),
        F.try_divide(F.count_if(delivered), F.count_if(wished)).alias("delivery_ratio"),
        F.try_divide(F.count_if(delivered & possible), F.count_if(possible)).alias("quality"),
        F.when(ours > 0, best / ours).otherwise(F.lit(1.0)).alias("delay_ratio"),
    )
