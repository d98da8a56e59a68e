"""Copies: how many nodes held what, what that cost, and how old what they learnt was."""

from __future__ import annotations

from denwatch.spark.analytics.logs import Logs
from denwatch.spark.analytics.summaries import measure_latency
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def find_copies(logs: Logs) -> DataFrame:
    """Return one row a copy of a notification: note_id, node, begin, end (null: still held).

    A copy ends when its node lets it go, whatever the reason, or drops it for room.
    """
    came = logs.get("note").groupBy(F.col("item").alias("note_id"), "node")
    gone = logs.get("purge").where("what = 'notification'").select("item", "node", "time")
    dropped = logs.get("drop").where("what = 'notification'").select("item", "node", "time")
    ends = gone.unionByName(dropped).groupBy(F.col("item").alias("note_id"), "node")
    return came.agg(F.min("time").alias("begin")).join(
        ends.agg(F.max("time").alias("end")), ["note_id", "node"], "left"
    )


def count_replicas(copies: DataFrame, begin: int, end: int, step: int) -> DataFrame:
    """Return, at each step of time, notifications held anywhere and copies in all.

    Columns: time, notes, copies, mean (copies of a notification), most.
    """
    times = copies.sparkSession.range(begin, end + 1, step).select(F.col("id").alias("time"))
    is_held = (F.col("begin") <= F.col("time")) & (
        F.col("end").isNull() | (F.col("end") > F.col("time"))
    )
    held = times.join(copies, is_held, "left")
    each = held.groupBy("time", "note_id").agg(F.count("note_id").alias("copies"))
    return (
        each.groupBy("time")
        .agg(
            F.count_if(F.expr("copies > 0")).alias("notes"),
            F.sum("copies").alias("copies"),
            F.max("copies").alias("most"),
        )
        .withColumn("mean", F.coalesce(F.try_divide("copies", "notes"), F.lit(0.0)))
        .orderBy("time")
    )


def measure_staleness(logs: Logs) -> DataFrame:
    """Return, by node and origin, how old notifications were when the node learnt of them.

    Columns: node, origin, notes, quantiles of the age, and last_ms: the age of the newest, at the
    end of the logs.
    """
    first = Window.partitionBy("node", "item").orderBy("time", "number")
    came = logs.get("note").withColumn("place", F.row_number().over(first)).where("place = 1")
    return (
        came.withColumn("age", F.col("time") - F.col("at"))
        .groupBy("node", "origin")
        .agg(
            F.count("*").alias("notes"),
            *measure_latency("age"),
            (F.lit(logs.end) - F.max("at")).alias("last_ms"),
        )
        .orderBy("node", "origin")
    )


def measure_costs(logs: Logs, deliveries: int) -> DataFrame:
    """Return what replication cost, one row.

    `relays` are notifications handed from node to node, `overhead` those that were not needed for
    the deliveries, for each delivery (in the sense of the ONE simulator: relayed less delivered by
    delivered). Bytes are those of whole contacts: comparing, marks and subscriptions included.
    """
    moved = (
        logs.get("transfer")
        .where("not is_out")
        .agg(
            F.count_if(F.expr("what = 'notification'")).alias("relays"),
            F.sum(F.expr("case when what = 'notification' then bytes else 0 end")).alias(
                "note_bytes"
            ),
            F.sum("bytes").alias("item_bytes"),
        )
    )
    links = logs.get("contact_end").agg(
        F.sum(F.expr("digest_out + known_out + items_out")).alias("link_bytes"),
        F.sum(F.expr("digest_out + known_out")).alias("comparing_bytes"),
    )
    needed = _count_remote(logs)
    told = F.lit(deliveries)
    return (
        moved.crossJoin(links)
        .crossJoin(needed)
        .fillna(0)
        .withColumn("deliveries", told)
        .withColumn("copies_per_delivery", F.try_divide("relays", told))
        .withColumn("bytes_per_delivery", F.try_divide("link_bytes", told))
        .withColumn("overhead", F.try_divide(F.col("relays") - F.col("remote"), told))
    )


def _count_remote(logs: Logs) -> DataFrame:
    """Return how many deliveries needed a hand-over: elsewhere than where it was read."""
    read = logs.get("note").where("source = ''").select(F.col("item").alias("note"), "origin")
    done = logs.get("deliver").select("note", "owner", "node").distinct()
    away = done.join(read.distinct(), "note").where("node != origin")
    return away.agg(F.count("*").alias("remote"))
