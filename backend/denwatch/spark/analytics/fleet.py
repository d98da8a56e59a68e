"""What an operator looks at first: which node needs help, which way is missing, who is not served.

| table | one row | |
|---|---|---|
| fleet | a node | last heard, what it holds, what it lost, its clock; whether its log is missing |
| bottlenecks | a way between two nodes | missed deliveries that a courier on it would have made |
| slos | a role, an event and a period | deliveries in time, and the change since the last period |
| near | a subscription | readings that almost matched, and a threshold that takes them |
| traffic | a link and its direction | transfers that led to a delivery, and those that did not |
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pandas as pd
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.spark.analytics.contacts import SharedContacts, limit_time
from denwatch.spark.analytics.costs import find_copies
from denwatch.spark.analytics.outcomes import EXPECTED, choose_step, measure_share
from denwatch.spark.analytics.timeline import Logs, sort_rows
from denwatch.spark.cluster_bundle import make_scratch
from denwatch.spark.matching import match_globally
from denwatch.spark.matching.windows import Meanings
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

COURIER = 20 * 60_000  # ms between two visits of a courier
SAMPLE, _ASKED = 20_000, 5_000  # notifications and subscriptions looked at for near misses
_PERIODS = 8
_Frames = Iterator[pd.DataFrame]


def describe_fleet(logs: Logs) -> DataFrame:
    """Return one row a node, those included that only others name: their logs are missing.

    Columns: node, is_log_missing (what was missed there is uncertain), last_heard, runs, records,
    held (notifications at the end), unconfirmed (sent to subscribers, never acknowledged), dropped,
    refused, devices, silent_devices, battery_mv (the lowest of its devices, as each said last) and
    weakest_device, clock_ms (ahead of the others), clock_doubt_ms.
    """
    session = logs.runs.sparkSession
    named = logs.get("contact").select(F.col("peer").alias("node"))
    named = named.union(logs.get("note").select("origin")).distinct()
    runs = logs.runs.groupBy("node").agg(
        F.max("ends").alias("last_heard"),
        F.count("*").alias("runs"),
        F.sum("records").alias("records"),
    )
    held = find_copies(logs).where("end is null").groupBy("node").agg(F.count("*").alias("held"))
    got = logs.get("deliver").select("note", "subscriber", F.lit(True).alias("is_got")).distinct()
    sent = logs.get("send").select("note", "subscriber", "node").distinct()
    waiting = sent.join(got, ["note", "subscriber"], "left").where("is_got is null")
    said, place = logs.get("device"), F.struct("epoch", "number")
    battery = F.get_json_object("settings", "$.battery_mv").cast("bigint")
    is_known = F.col("battery").isNotNull()
    devices = said.withColumn("battery", battery).groupBy("node", "device")
    latest = devices.agg(
        F.max_by("is_up", place).alias("is_there"),
        F.max_by("battery", F.when(is_known, place)).alias("battery"),
    )
    clocks = [(*run, *clock) for run, clock in logs.clocks.items()]
    offsets = session.createDataFrame(
        clocks, "node string, epoch bigint, offset bigint, doubt bigint"
    )
    facts = (
        runs,
        held,
        waiting.groupBy("node").agg(F.count("*").alias("unconfirmed")),
        logs.get("drop").groupBy("node").agg(F.count("*").alias("dropped")),
        logs.get("refuse").groupBy("node").agg(F.expr("sum(nvl(times, 1)) as refused")),
        latest.groupBy("node").agg(
            F.count("*").alias("devices"),
            F.count_if(~F.col("is_there")).alias("silent_devices"),
            F.min("battery").alias("battery_mv"),
            F.min_by("device", F.when(is_known, F.struct("battery", "device"))).alias(
                "weakest_device"
            ),
        ),
        offsets.groupBy("node").agg(
            F.max_by("offset", "epoch").alias("clock_ms"),
            F.max_by("doubt", "epoch").alias("clock_doubt_ms"),
        ),
    )
    nodes = named.union(logs.runs.select("node")).distinct()
    joined = reduce(lambda left, right: left.join(right, "node", "left"), facts, nodes)
    counts = ["runs", "records", "held", "unconfirmed", "dropped", "refused", "devices"]
    described = (
        joined.withColumn("is_log_missing", F.col("last_heard").isNull())
        .fillna(0, [*counts, "silent_devices"])
        .select(
            *("node", "is_log_missing", "last_heard", *counts, "silent_devices"),
            *("battery_mv", "weakest_device", "clock_ms", "clock_doubt_ms"),
        )
    )
    return sort_rows(described, "node")


# Missing ways ---------------------------------------------------------------------------
# For each delivery that no contacts could have made: would a courier have made it, who goes between
# the node that read and a node where the subscriber was, at the same times all day? What it would
# bring on beyond that node is not counted: the true gain is not less.

_WAYS = "first string, second string, is_recovered boolean"


def find_bottlenecks(pairs: DataFrame, outcomes: DataFrame, shared: SharedContacts) -> DataFrame:
    """Return ways between nodes: first, second, missed, recovered (by a courier).

    `missed` are those with the node that read at one end and the subscriber at the other.
    """
    lost = outcomes.where("outcome = 'missed' and best is null")
    rows = pairs.join(lost, ["notification_id", "subscriber"], "left_semi")

    def work(batches: _Frames) -> _Frames:
        graph, contacts, stays, _, end, find = shared.load()
        begin = min((contact.begin for contact in contacts), default=0)

        def visit(time: int) -> int:
            """Return when the courier comes next."""
            return begin + -(-(time - begin) // COURIER) * COURIER

        def judge(row: Any) -> Iterator[tuple[str, str, bool]]:
            limit = limit_time(row.until, end)
            found: dict[str, bool] = {}
            known = [find(each["origin"], int(each["begins"])) for each in row.asked]
            for stay in stays.get(row.subscriber, ()):
                if stay.node == row.origin:
                    continue
                here = min((graph.read(times, row.origin) for times in known), default=end + 1)
                there = min((graph.read(times, stay.node) for times in known), default=end + 1)
                asked = min(there, visit(here) if here <= end else end + 1)
                time = max(visit(int(row.born)), asked, stay.begin)
                is_there = time <= min(stay.end, limit)
                found[stay.node] = found.get(stay.node, False) or is_there
            for node, is_recovered in found.items():
                first, second = sorted((row.origin, node))
                yield first, second, is_recovered

        for batch in batches:
            ways = [way for row in batch.itertuples(index=False) for way in judge(row)]
            yield pd.DataFrame(ways, columns=["first", "second", "is_recovered"])

    ways = rows.select("subscriber", "origin", "born", "until", "asked").mapInPandas(work, _WAYS)
    counts = "count(*) as missed", "count_if(is_recovered) as recovered"
    return ways.groupBy("first", "second").agg(*map(F.expr, counts))


def describe_bottleneck(table: pd.DataFrame, missed: int) -> str:
    """Return the first way in words; "" if it would recover nothing."""
    if table.empty or not table["recovered"].iloc[0]:
        return ""
    best = table.iloc[0]
    return (
        f"A courier between {best['first']} and {best['second']} every {COURIER // 60_000} min"
        f" would have made {int(best['recovered']):,} of {missed:,} missed deliveries."
    )


# Service levels -------------------------------------------------------------------------


def measure_levels(
    outcomes: DataFrame, logs: Logs, windows: DataFrame, begin: int, end: int
) -> DataFrame:
    """Return one row a role, event and period: what was expected, and what came in time.

    Columns: role, event, period (its begin), expected, delivered, in_time, share, p95_ms,
    share_before and change (against the period before).
    """
    step = choose_step(begin, end, _PERIODS)
    period = (F.floor((F.col("at") - begin) / step) * step + begin).cast("bigint")
    roles = windows.groupBy("subscriber").agg(F.min_by("role", "begins").alias("role"))
    events = (
        logs.get("note").groupBy(F.col("item").alias("notification_id")).agg(F.first("event", True))
    )
    named = events.toDF("notification_id", "event")
    rows = outcomes.where(f"{EXPECTED} and at is not null")
    order = Window.partitionBy("role", "event").orderBy("period")
    levels = (
        rows.join(roles, "subscriber", "left")
        .join(named, "notification_id", "left")
        .groupBy("role", "event", period.alias("period"))
        .agg(
            F.count("*").alias("expected"),
            F.count("delivered").alias("delivered"),
            F.count_if(F.col("outcome") == "hit").alias("in_time"),
            measure_share(outcomes.sparkSession, "latency", "0.95").alias("p95_ms"),
        )
        .withColumn("share", F.try_divide("in_time", "expected"))
        .withColumn("share_before", F.lag("share").over(order))
        .withColumn("change", F.col("share") - F.col("share_before"))
    )
    return sort_rows(levels, "role", "event", "period")


# Near misses ----------------------------------------------------------------------------


def find_near_misses(
    notes: DataFrame, windows: DataFrame, matches: DataFrame, meanings: Meanings
) -> DataFrame:
    """Return subscriptions that readings almost fitted: to some degree, and below the threshold.

    Columns: subscription_id, subscriber, words, threshold, readings (that almost matched), nearest
    (the highest degree of them, 0 to 255: a threshold at which it would have matched), matched. A
    sample of both is looked at.
    """
    lower = F.udf(_lower_threshold, "struct<threshold: int, vector: binary>", useArrow=True)
    fuzzy = windows.where(F.col("language") == FUZZY)
    fuzzy = fuzzy.orderBy(F.xxhash64("subscription_id"), "subscription_id").limit(_ASKED)
    asked = fuzzy.withColumn("lowered", lower("vector")).where("lowered is not null")
    open_ = asked.withColumn("vector", F.col("lowered.vector"))
    some = notes.orderBy(F.xxhash64("notification_id"), "notification_id").limit(SAMPLE)
    found, _ = match_globally(some, open_, meanings, folder=make_scratch())
    true = matches.select("notification_id", "subscription_id", F.lit(True).alias("is_match"))
    near = found.select("notification_id", "subscription_id", "possible").join(
        true, ["notification_id", "subscription_id"], "left"
    )
    facts = (
        *("count_if(is_match is null) as readings", "count(is_match) as matched"),
        "max(if(is_match is null, possible, null)) as nearest",
    )
    counted = near.groupBy("subscription_id").agg(*map(F.expr, facts)).where("readings > 0")
    columns = (
        *("subscription_id", "subscriber", "words"),
        *("threshold", "readings", "nearest", "matched"),
    )
    named = counted.join(asked, "subscription_id")
    found = named.withColumn("threshold", F.col("lowered.threshold")).select(*columns)
    return sort_rows(found, F.desc("readings"), "subscription_id")


def _lower_threshold(vector: bytes) -> tuple[int, bytes] | None:
    """Return the threshold of a subscription, and its vector with the lowest one."""
    try:
        wanted = codec.decode(bytes(vector or b""))
    except ProtocolError:
        return None
    threshold = max(wanted.threshold, wanted.certain)
    wanted.threshold, wanted.certain = 1, 0
    return threshold, codec.encode(wanted)


# Redundant traffic ----------------------------------------------------------------------
# A transfer was needed if it lies on the way of a notification from where it was read to where it
# was delivered: backwards from each delivery, every node has it from the peer who brought it first.

_NEEDED = "item bigint, sender string, receiver string"


def measure_traffic(logs: Logs) -> DataFrame:
    """Return one row a link and direction: sender, receiver, transfers, needed, redundant, bytes.

    `redundant` led to no delivery so far; `again` were there already when they came. What a
    strategy spends on chance is redundant, too: without it fewer would arrive.
    """
    note = logs.get("note")
    came = note.groupBy("item").agg(F.expr("collect_list(struct(time, node, source)) as came"))
    ends = logs.get("deliver").groupBy(F.col("note").alias("item"))
    ways = came.join(ends.agg(F.expr("collect_set(node) as ends")), "item")
    needed = ways.mapInPandas(_walk_back, _NEEDED).withColumn("is_needed", F.lit(True))
    moved = (
        logs.get("transfer")
        .where("not is_out and what = 'notification'")
        .select("item", F.col("peer").alias("sender"), F.col("node").alias("receiver"), "bytes")
    )
    again = (
        logs.get("duplicate")
        .where("what = 'notification'")
        .groupBy(F.col("source").alias("sender"), F.col("node").alias("receiver"))
        .agg(F.count("*").alias("again"))
    )
    facts = (
        *("count(*) as transfers", "count(is_needed) as needed"),
        *("count_if(is_needed is null) as redundant", "sum(bytes) as bytes"),
        "sum(if(is_needed is null, bytes, 0)) as redundant_bytes",
    )
    return (
        moved.join(needed, ["item", "sender", "receiver"], "left")
        .groupBy("sender", "receiver")
        .agg(*map(F.expr, facts))
        .join(again, ["sender", "receiver"], "left")
        .fillna(0, ["again"])
    )


def _walk_back(batches: _Frames) -> _Frames:
    for batch in batches:
        rows = []
        for row in batch.itertuples(index=False):
            first: dict[str, str] = {}
            for each in sorted(row.came, key=lambda one: (one["time"], one["node"])):
                first.setdefault(each["node"], each["source"])
            edges = set()
            for node in row.ends:
                while first.get(node) and (first[node], node) not in edges:
                    edges.add((first[node], node))
                    node = first[node]
            rows += [(int(row.item), *edge) for edge in sorted(edges)]
        yield pd.DataFrame(rows, columns=["item", "sender", "receiver"])
