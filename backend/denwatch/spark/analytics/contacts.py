"""Who could reach whom, and when: contacts of nodes and stays of subscribers, as spans of time.

A link is logged by both ends, and each may see it come and go a little sooner or later, or crash
before its end, or have its log lost. A span is all the time in which either says that it was there;
what went over a link, or was delivered, proves that it was there too. Spans hold from `begin` until
just before `end`: at the moment of its end a link carries nothing more.
"""

from __future__ import annotations

from denwatch.spark.analytics.arrival import Contact, Stay, group_stays
from denwatch.spark.analytics.logs import Logs
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def find_contacts(logs: Logs) -> DataFrame:
    """Return the contacts: first, second (by name), begin, end; no two of a pair overlap."""
    key = ["node", "epoch", "peer", "contact"]
    ended = logs.get("contact_end").select(*key, F.col("time").alias("end"))
    began = logs.get("contact").select(*key, F.col("time").alias("begin"))
    sides = (
        began.join(ended, key, "full")
        .join(logs.runs.select("node", "epoch", "ends"), ["node", "epoch"], "left")
        .select(
            "node",
            "peer",
            F.coalesce("begin", "contact").alias("begin"),
            F.coalesce("end", "ends").alias("end"),
        )
    )
    proven = logs.get("transfer").where("not is_out")
    moment = F.col("time").alias("begin"), (F.col("time") + 1).alias("end")
    proven = proven.select("node", "peer", *moment)
    spans = sides.unionByName(proven.distinct()).select(
        F.least("node", "peer").alias("first"),
        F.greatest("node", "peer").alias("second"),
        "begin",
        F.greatest("begin", "end").alias("end"),
    )
    return join_spans(spans, ["first", "second"])


def find_stays(logs: Logs) -> DataFrame:
    """Return where subscribers were: subscriber, node, begin, end; no two of a pair overlap.

    Who came and did not leave stays until the run is over, or the logs are.
    """
    last = F.when(F.col("is_over"), F.col("ends")).otherwise(F.lit(logs.end))
    moves = Window.partitionBy("node", "epoch", "subscriber").orderBy("number")
    stays = (
        logs.get("attach")
        .withColumn("end", F.lead("time").over(moves))
        .where("is_up")
        .join(logs.runs.select("node", "epoch", last.alias("last")), ["node", "epoch"], "left")
        .select(
            "subscriber",
            "node",
            F.col("time").alias("begin"),
            F.coalesce("end", "last").alias("end"),
        )
    )
    proven = logs.get("deliver").select(
        F.col("owner").alias("subscriber"),
        "node",
        F.col("time").alias("begin"),
        (F.col("time") + 1).alias("end"),
    )
    return join_spans(stays.unionByName(proven), ["subscriber", "node"])


def join_spans(spans: DataFrame, key: list[str]) -> DataFrame:
    """Return spans (begin, end) of each key, with those that touch or overlap made one."""
    order = Window.partitionBy(*key).orderBy("begin", "end")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max("end").over(before)
    return (
        spans.withColumn("is_new", (reached.isNull() | (F.col("begin") > reached)).cast("int"))
        .withColumn("island", F.sum("is_new").over(order))
        .groupBy(*key, "island")
        .agg(F.min("begin").alias("begin"), F.max("end").alias("end"))
        .drop("island")
    )


def collect_contacts(contacts: DataFrame) -> list[Contact]:
    """Return contacts as the pure parts want them: with the last moment in which they hold."""
    rows = contacts.orderBy("begin", "end", "first", "second").collect()
    return [
        Contact(row["first"], row["second"], row["begin"], max(row["begin"], row["end"] - 1))
        for row in rows
    ]


def collect_stays(stays: DataFrame) -> dict[str, list[Stay]]:
    """Return the stays of each subscriber, with the last moment of each."""
    rows = stays.select("subscriber", "node", "begin", "end").collect()
    return dict(group_stays((row[0], row[1], row[2], max(row[2], row[3] - 1)) for row in rows))


def summarise_links(logs: Logs, contacts: DataFrame) -> DataFrame:
    """Return the contact graph: one row a pair of nodes that ever met.

    Columns: first, second, contacts, up_ms, longest_gap_ms, bytes, notes, subscriptions, marks. The
    bytes are those that each side says it sent.
    """
    order = Window.partitionBy("first", "second").orderBy("begin")
    spans = contacts.withColumn("gap", F.col("begin") - F.lag("end").over(order))
    pairs = spans.groupBy("first", "second").agg(
        F.count("*").alias("contacts"),
        F.sum(F.col("end") - F.col("begin")).alias("up_ms"),
        F.max("gap").alias("longest_gap_ms"),
    )
    pair = (F.least("node", "peer").alias("first"), F.greatest("node", "peer").alias("second"))
    sent = (
        logs.get("contact_end")
        .groupBy(*pair)
        .agg(F.sum(F.expr("digest_out + known_out + items_out")).alias("bytes"))
    )
    moved = logs.get("transfer").where("not is_out").groupBy(*pair)
    kinds = {"notes": "notification", "subscriptions": "subscription", "marks": "delivered"}
    items = moved.agg(
        *(F.count_if(F.col("what") == what).alias(name) for name, what in kinds.items())
    )
    joined = pairs.join(sent, ["first", "second"], "left").join(items, ["first", "second"], "left")
    return joined.fillna(0, ["bytes", *kinds]).orderBy("first", "second")
