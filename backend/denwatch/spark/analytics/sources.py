"""What stayed at its source: readings that no vector wanted, and what that saved on the air.

A device that counts its samples says so in its log records, and these counts are taken. Of one that
does not, the least is worked out that it must have saved: it samples at least as often as its two
closest notifications lie apart, so what is missing in between was filtered at the source.
"""

from __future__ import annotations

from denwatch.spark.analytics.logs import Logs
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_FRAME = 19  # bytes of authentication around the vectors of a frame
_LEAST_PERIOD = 1_000  # ms; closer notifications say more of queues than of sampling


def measure_sources(logs: Logs) -> DataFrame:
    """Return one row a device: what it sent, saved and lost.

    Columns: device, node, sent, bytes_sent, filtered, bytes_saved, dropped (lost to a full memory),
    is_counted (by the device itself; else `filtered` is at least so many).
    """
    read = logs.get("note").where("source = ''")
    order = Window.partitionBy("device").orderBy("at", "device_epoch", "device_sequence")
    apart = read.withColumn("gap", F.col("at") - F.lag("at").over(order))
    size = F.length("vector") + _FRAME
    sent = apart.groupBy("device").agg(
        F.max_by("node", "time").alias("node"),
        F.count("*").alias("sent"),
        F.sum(size).alias("bytes_sent"),
        (F.max("at") - F.min("at")).alias("span"),
        F.min(F.when(F.col("gap") >= _LEAST_PERIOD, F.col("gap"))).alias("period"),
    )
    told = (
        logs.get("source")
        .groupBy("device")
        .agg(
            *(F.max(name).alias(f"told_{name}") for name in ("sampled", "sent", "bytes_saved")),
            F.max("dropped").alias("dropped"),
        )
    )
    least = F.floor(F.try_divide("span", "period")) + 1 - F.col("sent")
    filtered = F.coalesce(F.col("told_sampled") - F.col("told_sent"), F.greatest(F.lit(0), least))
    mean = F.try_divide("bytes_sent", "sent")
    return (
        sent.join(told, "device", "full")
        .withColumn("is_counted", F.col("told_sampled").isNotNull())
        .withColumn("filtered", F.coalesce(filtered, F.lit(0)).cast("bigint"))
        .withColumn(
            "bytes_saved",
            F.coalesce("told_bytes_saved", F.col("filtered") * mean, F.lit(0)).cast("bigint"),
        )
        .fillna(0, ["sent", "bytes_sent", "dropped"])
        .select(
            *("device", "node", "sent", "bytes_sent", "filtered", "bytes_saved", "dropped"),
            "is_counted",
        )
        .orderBy("device")
    )


def count_refusals(logs: Logs) -> DataFrame:
    """Return what nodes turned away, and why: node, what, why, times, bytes."""
    return (
        logs.get("refuse")
        .groupBy("node", "what", "why")
        .agg(F.count("*").alias("times"), F.sum("bytes").alias("bytes"))
        .orderBy(F.desc("times"), "node", "what", "why")
    )
