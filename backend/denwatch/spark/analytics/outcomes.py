"""What should have been delivered against what was: hit, late, missed or wrong, with the cause.

One row a (notification, subscriber) that match by global matching, or that were delivered. Causes:

| outcome | cause | |
|---|---|---|
| late | replication | contacts would have brought it in time |
| | away | the subscriber was nowhere to be reached in time |
| | partition | no contacts brought it to the subscriber in time |
| missed | top-k, role, quiet, expired | held back by the node where the subscriber was |
| | unacknowledged | handed to the subscriber's session, which never confirmed it |
| | space | a full node gave it up, and contacts would have brought it |
| | replication | contacts would have brought it, and nobody carried it |
| | withdrawn | unsubscribed before any contact could bring it |
| | expired | over before any contact could bring it |
| | away | the subscriber was nowhere while it lived |
| | partition | no contacts lead to the subscriber |
| wrong | repeated | delivered once more than once |
| | early, ended | read before the subscription began, or after it ended |
| | unknown | the logs have no such notification, or no such subscription |
| | no match | the subscription does not match it |

What readings were filtered or dropped at their source never became notifications: see `sources`.
"""

from __future__ import annotations

from denwatch.spark.analytics.logs import Logs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LATE = 60_000  # ms from reading to delivery
DELIBERATE = ("top-k", "role", "quiet", "withdrawn")  # as somebody wished: no fault of the network


def judge_outcomes(
    pairs: DataFrame,
    oracle: DataFrame,
    logs: Logs,
    notes: DataFrame,
    windows: DataFrame,
    late: int = LATE,
) -> DataFrame:
    """Return one row a pair: outcome, cause, when and where, and what would have been possible.

    `pairs` is what `describe_pairs` returns and `oracle` what `find_earliest` does with it.
    Columns: note_id, owner, origin, at, degree, outcome, cause, is_deliberate, is_open (still worth
    something when the logs end), delivered, node, latency, best, best_node, best_latency, until.
    """
    read = notes.select(
        "note_id", F.col("at").alias("read_at"), F.col("origin").alias("read_where")
    )
    facts = (
        pairs.join(oracle, ["note_id", "owner"], "left")
        .withColumn("is_expected", F.lit(True))
        .join(_find_deliveries(logs), ["note_id", "owner"], "full")
        .join(_find_reasons(logs), ["note_id", "owner"], "left")
        .join(_find_sent(logs), ["note_id", "owner"], "left")
        .join(_find_dropped(logs), "note_id", "left")
        .join(read, "note_id", "left")
        .withColumn("at", F.coalesce("at", "read_at"))
        .withColumn("origin", F.coalesce("origin", "read_where"))
        .withColumn("latency", F.col("delivered") - F.col("at"))
        .withColumn("best_latency", F.col("best") - F.col("at"))
    )
    expected, got = F.col("is_expected").isNotNull(), F.col("delivered").isNotNull()
    outcome = (
        F.when(expected & got & (F.col("latency") > late), "late")
        .when(expected & got, "hit")
        .when(expected, "missed")
        .otherwise("wrong")
    )
    judged = (
        facts.withColumn("outcome", outcome)
        .join(_explain_wrong(facts.where(~expected), windows), ["note_id", "owner"], "left")
        .withColumn(
            "cause",
            F.when(F.col("outcome") == "late", _explain_late(late))
            .when(F.col("outcome") == "missed", _explain_missed())
            .when(F.col("outcome") == "wrong", F.col("wrong_cause")),
        )
        .withColumn("is_deliberate", F.coalesce(F.col("cause").isin(*DELIBERATE), F.lit(False)))
        .withColumn(
            "is_open",
            (F.col("outcome") == "missed")
            & F.col("reason").isNull()
            & (F.col("until").isNull() | (F.col("until") > logs.end)),
        )
    )
    columns = (
        *("note_id", "owner", "origin", "at", "degree", "outcome", "cause", "is_deliberate"),
        *("is_open", "delivered", "node", "latency", "best", "best_node", "best_latency", "until"),
    )
    return judged.select(*columns).unionByName(_find_repeated(logs, notes), True)


def _find_deliveries(logs: Logs) -> DataFrame:
    first = F.struct("time", "node", "number")
    return (
        logs.get("deliver")
        .groupBy(F.col("note").alias("note_id"), "owner")
        .agg(
            F.min("time").alias("delivered"),
            F.min_by("node", first).alias("node"),
            F.flatten(F.collect_list("subscriptions")).alias("delivered_for"),
        )
    )


def _find_reasons(logs: Logs) -> DataFrame:
    last = F.struct("time", "node", "number")
    return (
        logs.get("suppress")
        .groupBy(F.col("note").alias("note_id"), "owner")
        .agg(F.max_by("reason", last).alias("reason"))
    )


def _find_sent(logs: Logs) -> DataFrame:
    sent = logs.get("send").select(F.col("note").alias("note_id"), "owner").distinct()
    return sent.withColumn("is_sent", F.lit(True))


def _find_dropped(logs: Logs) -> DataFrame:
    dropped = logs.get("drop").where("what = 'notification' and item is not null")
    dropped = dropped.select(F.col("item").alias("note_id")).distinct()
    return dropped.withColumn("is_dropped", F.lit(True))


def _explain_late(late: int) -> Column:
    return (
        F.when(F.coalesce(F.col("best_latency"), F.lit(0)) <= late, "replication")
        .when(F.col("awaited") == "person", "away")
        .otherwise("partition")
    )


def _explain_missed() -> Column:
    is_possible = F.col("best").isNotNull()
    is_withdrawn = F.col("withdrawn") == F.col("until")
    return (
        F.when(F.col("reason").isNotNull(), F.col("reason"))
        .when(F.col("is_sent"), "unacknowledged")
        .when(is_possible & F.col("is_dropped"), "space")
        .when(is_possible, "replication")
        .when(F.col("open_best").isNotNull() & is_withdrawn, "withdrawn")
        .when(F.col("open_best").isNotNull(), "expired")
        .when(~F.col("is_present"), "away")
        .otherwise("partition")
    )


def _explain_wrong(wrong: DataFrame, windows: DataFrame) -> DataFrame:
    """Return why something was delivered that matches nothing: by the best of its subscriptions."""
    known = windows.select(F.col("subscription_id"), "begins", "ends")
    named = wrong.select(
        "note_id", "owner", "at", F.explode_outer("delivered_for").alias("subscription_id")
    ).join(known, "subscription_id", "left")
    cause = (
        F.when(F.col("at").isNull() | F.col("begins").isNull(), "unknown")
        .when(F.col("at") < F.col("begins"), "early")
        .when(F.col("at") >= F.col("ends"), "ended")
        .otherwise("no match")
    )
    # Of several subscriptions the alphabet decides: early, ended, no match, unknown.
    return named.groupBy("note_id", "owner").agg(F.min(cause).alias("wrong_cause"))


def _find_repeated(logs: Logs, notes: DataFrame) -> DataFrame:
    """Return a row for each delivery after the first of the same to the same subscriber."""
    order = F.struct("time", "node", "number")
    many = (
        logs.get("deliver")
        .groupBy(F.col("note").alias("note_id"), "owner")
        .agg(F.sort_array(F.collect_list(order)).alias("all"))
        .where(F.size("all") > 1)
        .select("note_id", "owner", F.explode(F.expr("slice(all, 2, size(all) - 1)")).alias("one"))
    )
    return many.join(notes.select("note_id", "origin", "at"), "note_id", "left").select(
        "note_id",
        "owner",
        "origin",
        "at",
        F.lit("wrong").alias("outcome"),
        F.lit("repeated").alias("cause"),
        F.lit(False).alias("is_deliberate"),
        F.lit(False).alias("is_open"),
        F.col("one.time").alias("delivered"),
        F.col("one.node").alias("node"),
        (F.col("one.time") - F.col("at")).alias("latency"),
    )
