"""The oracle on Spark: for each notification and subscriber, the earliest delivery possible.

The contacts go to every worker once; notifications are worked on apart, so the answer does not
depend on how they are distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd
from denwatch.spark.analytics.arrival import NEVER, Contact, Graph, Stay, Times, find_meeting
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ORACLE = (
    "note_id bigint, owner string, best bigint, best_node string, awaited string, "
    "open_best bigint, is_present boolean"
)
NEEDED = ("note_id", "owner", "origin", "born", "until", "asked")


def find_earliest(
    pairs: DataFrame,
    contacts: Sequence[Contact],
    stays: Mapping[str, Sequence[Stay]],
    end: int,
) -> DataFrame:
    """Return, for (notification, subscriber) pairs, when it could have been delivered.

    `pairs` has note_id, owner, origin (where it was read), born (since when it is there), until
    (from when it is worth nothing; null for no end) and asked, an array of (origin, begins) of
    the matching subscriptions. `end` is where the logs end.

    Columns: best (null: at no time), best_node, awaited (what the best still waits for: nothing,
    contact, subscription, person), open_best (if it were worth something for ever), is_present
    (whether the subscriber was anywhere while it was worth something).
    """
    names = sorted({stay.node for kept in stays.values() for stay in kept})
    work = _build_work(Graph(contacts, names), stays, end)
    return pairs.select(*NEEDED).repartition("origin", "note_id").mapInPandas(work, ORACLE)


def _build_work(
    graph: Graph, stays: Mapping[str, Sequence[Stay]], end: int
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def work(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        @lru_cache(maxsize=4_096)
        def find(origin: str, time: int) -> Times:
            return graph.find_arrivals(origin, time, end)

        for batch in batches:
            rows = [_judge(graph, stays, end, find, row) for row in batch.itertuples(index=False)]
            names = [column.split()[0] for column in ORACLE.split(", ")]
            found = pd.DataFrame(rows, columns=names)
            yield found.astype({"best": "Int64", "open_best": "Int64"})

    return work


def _judge(
    graph: Graph,
    stays: Mapping[str, Sequence[Stay]],
    end: int,
    find: Callable[[str, int], Times],
    row: tuple[object, ...],
) -> tuple[object, ...]:
    note_id, owner, origin, born, until, asked = row
    assert isinstance(owner, str)
    limit = limit_time(until, end)
    here = stays.get(owner, ())
    note = find(str(origin), int(born))  # type: ignore[call-overload]
    known = [find(each["origin"], int(each["begins"])) for each in asked]  # type: ignore[attr-defined]
    best = find_meeting(graph, note, known, here, limit)
    free = find_meeting(graph, note, known, here, NEVER)
    is_present = any(stay.begin <= limit and stay.end >= int(born) for stay in here)  # type: ignore[call-overload]
    if best is None:
        return note_id, owner, None, None, None, free and free.time, is_present
    return note_id, owner, best.time, best.node, best.awaited, free and free.time, is_present


def limit_time(until: Any, end: int) -> int:
    """Return the last moment in which something counts; null, in any of its forms: of the logs."""
    return end if pd.isna(until) else min(end, int(until) - 1)


def describe_pairs(matches: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return one row a (notification, subscriber) that match, with what the oracle needs.

    `notes` has note_id, origin, at, doubt, born and expires; `windows` is what
    `spark.matching.find_windows` returns. Further columns: at, degree, certain, subscriptions,
    withdrawn (when the last of them was taken back, if all were).
    """
    # What expired or was replaced is still delivered for what it matched before.
    is_gone = F.col("end_reason").isNotNull() & ~F.col("end_reason").isin("expired", "replaced")
    refresh = F.get_json_object("options", "$.expiry").cast("double") * 1000
    asked = windows.select(
        "subscription_id",
        F.struct("origin", "begins").alias("asked"),
        F.when(is_gone, F.col("ends")).alias("gone"),
        refresh.cast("bigint").alias("refresh"),
    )
    fresh = F.col("at") + F.col("doubt") + F.col("refresh")
    return (
        matches.join(asked, "subscription_id")
        .join(notes, "note_id")
        .groupBy("note_id", "owner")
        .agg(
            F.first("origin").alias("origin"),
            F.first("born").alias("born"),
            F.first("at").alias("at"),
            F.max("possible").alias("degree"),
            F.max("certain").alias("certain"),
            F.sort_array(F.collect_set("subscription_id")).alias("subscriptions"),
            F.sort_array(F.collect_set("asked")).alias("asked"),
            F.first("expires").alias("expires"),
            # Only if all have an end there is one; the last one counts.
            F.when(F.count("gone") == F.count("*"), F.max("gone")).alias("withdrawn"),
            F.when(F.count("refresh") == F.count("*"), F.max(fresh)).alias("stale"),
        )
        .withColumn("expires", F.expr("least(nullif(expires, 0), stale)"))
        .withColumn("until", F.least("expires", "withdrawn"))
        .drop("stale")
    )
