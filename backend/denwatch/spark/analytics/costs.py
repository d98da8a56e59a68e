"""Copies: how many nodes held what, what that cost, and how old what they learnt was."""

from __future__ import annotations

from denwatch.spark.analytics.outcomes import measure_latency
from denwatch.spark.analytics.timeline import Logs, sort_rows
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def find_copies(logs: Logs) -> DataFrame:
    """Return one row a copy: notification_id, node, begin, end (null: still held).

    A copy ends when its node lets it go, whatever the reason, or drops it for room.
    """
    came = logs.get("note").groupBy(F.col("item").alias("notification_id"), "node")
    gone = logs.get("purge").where("what = 'notification'").select("item", "node", "time")
    dropped = logs.get("drop").where("what = 'notification'").select("item", "node", "time")
    ends = gone.unionByName(dropped).groupBy(F.col("item").alias("notification_id"), "node")
    return came.agg(F.min("time").alias("begin")).join(
        ends.agg(F.max("time").alias("end")), ["notification_id", "node"], "left"
    )


def count_replicas(copies: DataFrame, begin: int, end: int, step: int) -> DataFrame:
    """Return, at each step of time, notifications held anywhere and copies in all.

    Columns: time, notifications, copies, mean (copies of a notification), most.
    """
    times = copies.sparkSession.range(begin, end + 1, step).select(F.col("id").alias("time"))
    last = F.least(F.coalesce(F.col("end") - 1, F.lit(end)), F.lit(end))
    first = F.greatest(F.ceil((F.col("begin") - begin) / step), F.lit(0)).cast("bigint")
    until = F.floor((last - begin) / step).cast("bigint")
    steps = copies.select("notification_id", first.alias("first"), until.alias("until"))
    held = steps.where("first <= until").selectExpr(
        "notification_id", "explode(sequence(first, until)) as place"
    )
    held = held.selectExpr("notification_id", f"place * {step} + {begin} as time")
    each = held.groupBy("time", "notification_id").agg(F.count("*").alias("copies"))
    counts = "count(*) as notifications", "sum(copies) as copies", "max(copies) as most"
    sums = each.groupBy("time").agg(*map(F.expr, counts))
    filled = times.join(sums, "time", "left").fillna(0, ["notifications", "copies", "most"])
    mean = "nvl(try_divide(copies, notifications), 0.0D) as mean"
    return sort_rows(filled.selectExpr("*", mean), "time")


def measure_staleness(logs: Logs) -> DataFrame:
    """Return, by node and origin, how old notifications were when the node learnt of them.

    Columns: node, origin, notifications, quantiles of the age, and last_ms: the age of the newest,
    at the end of the logs.
    """
    first = Window.partitionBy("node", "item").orderBy("time", "number")
    came = logs.get("note").withColumn("place", F.row_number().over(first)).where("place = 1")
    ages = came.withColumn("age", F.col("time") - F.col("at")).groupBy("node", "origin")
    return ages.agg(
        F.count("*").alias("notifications"),
        *measure_latency(came.sparkSession, "age"),
        (F.lit(logs.end) - F.max("at")).alias("last_ms"),
    )


def measure_costs(logs: Logs, headline: DataFrame) -> DataFrame:
    """Return what replication cost, one row; `headline` has the deliveries.

    `relays` are notifications handed from node to node, `overhead` those that were not needed for
    the deliveries, for each delivery (in the sense of the ONE simulator: relayed less delivered by
    delivered). Bytes are those of whole contacts: comparing, marks and subscriptions included.
    """
    moved = (
        logs.get("transfer")
        .where("not is_out")
        .selectExpr(
            "count_if(what = 'notification') as relays",
            "sum(if(what = 'notification', bytes, 0)) as notification_bytes",
            "sum(bytes) as item_bytes",
        )
    )
    links = logs.get("contact_end").selectExpr(
        "sum(digest_out + known_out + items_out) as link_bytes",
        "sum(digest_out + known_out) as comparing_bytes",
    )
    read = logs.get("note").where("source = ''").select(F.col("item").alias("note"), "origin")
    done = logs.get("deliver").select("note", "subscriber", "node").distinct()
    away = done.join(read.distinct(), "note").where("node != origin")
    remote = away.agg(F.count("*").alias("remote"))  # deliveries that needed a hand-over
    deliveries = headline.select(F.col("delivered").alias("deliveries"))
    return (
        moved.crossJoin(links)
        .crossJoin(remote)
        .crossJoin(deliveries)
        .fillna(0)
        .selectExpr(
            "*",
            "try_divide(relays, deliveries) as copies_per_delivery",
            "try_divide(link_bytes, deliveries) as bytes_per_delivery",
            "try_divide(relays - remote, deliveries) as overhead",
        )
    )


# Readings filtered at the source --------------------------------------------------------
# A device that counts its samples reports the counts in its log records. For one that does not, the
# least that it must have saved is estimated: it samples at least as often as its two closest
# notifications are apart, so what is missing in between was filtered at the source.

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
    seen = (
        *("max_by(node, time) as node", "count(*) as sent", "max(at) - min(at) as span"),
        f"sum(length(vector) + {_FRAME}) as bytes_sent",
        f"min(if(gap >= {_LEAST_PERIOD}, gap, null)) as period",
    )
    sent = apart.groupBy("device").agg(*map(F.expr, seen))
    counted = (
        *("max(sampled) as told_sampled", "max(sent) as told_sent", "max(dropped) as dropped"),
        "max(bytes_saved) as told_bytes_saved",
    )
    told = logs.get("source").groupBy("device").agg(*map(F.expr, counted))
    least = F.floor(F.try_divide("span", "period")) + 1 - F.col("sent")
    filtered = F.coalesce(F.col("told_sampled") - F.col("told_sent"), F.greatest(F.lit(0), least))
    mean = F.try_divide("bytes_sent", "sent")
    measured = (
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
    )
    return sort_rows(measured, "device")


def count_refusals(logs: Logs) -> DataFrame:
    """Return what nodes refused, and why: node, what, why, times, bytes."""
    counted = (
        logs.get("refuse")
        .groupBy("node", "what", "why")
        .agg(F.sum(F.coalesce("times", F.lit(1))).alias("times"), F.sum("bytes").alias("bytes"))
    )
    return sort_rows(counted, F.desc("times"), "node", "what", "why")
