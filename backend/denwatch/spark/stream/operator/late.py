"""Which items are to be handed to which node, so that a subscriber still gets what was missed.

A match is worth it if it was missed, by nobody's wish, and still counts for somebody. It goes to
the node where its subscriber was last, if that can be reached, else to any that can: nodes pass it
on. What goes are the notification and the subscription as their origins signed them, each only if
the logs do not say that the node has it. The node verifies both, takes each once, and delivers as
if a peer had brought them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.spark.stream.matching import parse_ids
from denwatch.spark.tables import Tables
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CAUSES = ("replication", "partition", "away", "space")  # misses that a hand-over can mend
Read = Callable[[Mapping[str, Any]], Item]
MOST = 10_000  # items found at a time: the others follow when these are there


class Handover(NamedTuple):
    """One item for one node."""

    node: str
    item: Item


def find_handovers(
    spark: SparkSession, version: Path, reachable: Iterable[str], now: int
) -> list[Handover]:
    """Return what the reachable nodes lack of what subscribers still wait for.

    `version` is one of the stream's with its outcomes; `now` (ms) leaves out what is over by now.
    """
    nodes = sorted(set(reachable))
    path = version / "tables" / "outcomes.parquet"
    if not nodes or not path.exists():
        return []
    waiting = (
        parse_ids(spark.read.parquet(str(path)))
        .where(F.col("is_open") & F.col("cause").isin(*CAUSES))
        .where(F.col("until").isNull() | (F.col("until") > now))
        .select("note_id", "owner")
        .limit(MOST)
    )
    wanted = waiting.join(_find_places(spark, version, nodes), "owner", "left").withColumn(
        "target", F.coalesce("place", F.lit(nodes[0]))
    )
    notes = wanted.select(F.col("note_id").alias("item"), "target").distinct()
    matches = parse_ids(spark.read.parquet(str(version / "tables" / "matches.parquet")))
    asked = (
        wanted.join(matches.select("note_id", "owner", "subscription_id"), ["note_id", "owner"])
        .select(F.col("subscription_id").alias("item"), "target")
        .distinct()
    )
    records = Tables(version / "records")
    return [
        *_collect(asked, records.read(spark, "subscribe"), read_subscription),
        *_collect(notes, records.read(spark, "note"), read_note),
    ]


def _find_places(spark: SparkSession, version: Path, nodes: list[str]) -> DataFrame:
    """Return the reachable node where each subscriber was last."""
    stays = spark.read.parquet(str(version / "tables" / "stays.parquet"))
    last = F.max_by("node", F.struct("end", "begin", "node")).alias("place")
    here = stays.where(F.col("node").isin(*nodes))
    return here.groupBy(F.col("subscriber").alias("owner")).agg(last)


def _collect(wanted: DataFrame, records: DataFrame, read: Read) -> list[Handover]:
    """Return the wanted items that are signed, and that their targets have not logged."""
    known = records.select("item", F.col("node").alias("target"))
    lacking = wanted.join(known, ["item", "target"], "left_anti")
    signed = records.where("signature is not null").dropDuplicates(["item"])
    rows = lacking.join(signed, "item").orderBy("target", "origin", "run", "sequence").collect()
    return [Handover(row["target"], read(row.asDict())) for row in rows]


def read_note(row: Mapping[str, Any]) -> Item:
    """Return a notification as its origin made it, from a record of the log."""
    body = NotificationBody(
        row["device"],
        row["device_epoch"],
        row["device_sequence"],
        row["at"],
        row["doubt"],
        bytes(row["vocabulary"]),
        bytes(row["vector"]),
    )
    return _make_item(row, NOTIFICATION, encode_body(body))


def read_subscription(row: Mapping[str, Any]) -> Item:
    """Return a subscription as its origin made it, from a record of the log."""
    body = SubscriptionBody(
        row["owner"],
        row["role"],
        row["words"],
        row["created"],
        row["language"],
        bytes(row["vocabulary"]),
        bytes(row["vector"]),
        json.loads(row["options"]),
    )
    return _make_item(row, SUBSCRIPTION, encode_body(body))


def _make_item(row: Mapping[str, Any], kind: int, body: bytes) -> Item:
    dot = Dot(row["origin"], row["run"], row["sequence"])
    return Item(dot, kind, row["expires"], body, bytes(row["signature"]))
