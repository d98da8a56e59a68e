"""What should have been delivered against what was, with the cause of what was not.

One row a (notification, subscriber) that match by global matching, or that were delivered. It is a
hit, late or missed, which together are what was expected; withheld, as somebody asked; or wrong:
delivered, and no match. Causes:

| outcome | cause | |
|---|---|---|
| late | replication | contacts would have brought it in time |
| | away | the subscriber was nowhere to be reached in time |
| | partition | no contacts brought it to the subscriber in time |
| withheld | top-k, role, quiet, muted, had | by the node where the subscriber was |
| | withdrawn | unsubscribed before any contact could bring it |
| missed | unacknowledged | handed to the subscriber's session, which never confirmed it |
| | space | a full node gave it up, and contacts would have brought it |
| | replication | contacts would have brought it, and nobody carried it |
| | expired | over before any contact could bring it, or when a node came to deliver it |
| | away | the subscriber was nowhere while it lived |
| | partition | no contacts lead to the subscriber |
| wrong | repeated | delivered once more than once |
| | early, ended | read before the subscription began, or after it ended |
| | unknown | the logs have no such notification, or no such subscription |
| | no match | the subscription does not match it |

Stories are told over several notifications: `stories.py` judges them. What readings were filtered
or dropped at their source never became notifications: see `costs`.
"""

from __future__ import annotations

import pandas as pd
from denwatch.node.backend_api import DecisionReplay, OfferedMatch
from denwatch.spark.analytics.timeline import Logs, is_exact, sort_rows
from denwatch.spark.matching.windows import NOTE_COLUMNS
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

LATE = 60_000  # ms from reading to delivery
WITHHELD = ("top-k", "role", "quiet", "muted", "had", "withdrawn")


def judge_outcomes(
    pairs: DataFrame,
    oracle: DataFrame,
    logs: Logs,
    notes: DataFrame,
    windows: DataFrame,
    late: int = LATE,
) -> DataFrame:
    """Return one row for each pair: outcome, cause, when and where, and what was possible.

    `pairs` is what `describe_pairs` returns and `oracle` what `find_earliest` does with it.
    Columns: notification_id, subscriber, origin, at, degree, outcome, cause, is_open (still worth
    something when the logs end), delivered, node, latency, best, best_node, best_latency, until.
    """
    read = notes.select(
        "notification_id", F.col("at").alias("read_at"), F.col("origin").alias("read_where")
    )
    sent = logs.get("send").selectExpr("note as notification_id", "subscriber").distinct()
    dropped = logs.get("drop").where("what = 'notification' and item is not null")
    dropped = dropped.selectExpr("item as notification_id").distinct()
    facts = (
        pairs.join(oracle, ["notification_id", "subscriber"], "left")
        .withColumn("is_expected", F.lit(True))
        .join(_find_deliveries(logs), ["notification_id", "subscriber"], "full")
        .join(_find_reasons(logs), ["notification_id", "subscriber"], "left")
        .join(sent.withColumn("is_sent", F.lit(True)), ["notification_id", "subscriber"], "left")
        .join(dropped.withColumn("is_dropped", F.lit(True)), "notification_id", "left")
        .join(read, "notification_id", "left")
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
    cause = (
        F.when(F.col("outcome") == "late", _explain_late(late))
        .when(F.col("outcome") == "missed", _explain_missed())
        .when(F.col("outcome") == "wrong", F.col("wrong_cause"))
    )
    is_withheld = (F.col("outcome") == "missed") & F.col("cause").isin(*WITHHELD)
    is_open = f"outcome = 'missed' and reason is null and nvl(until > {logs.end}, true)"
    judged = (
        facts.withColumn("outcome", outcome)
        .join(
            _explain_wrong(facts.where(~expected), windows),
            ["notification_id", "subscriber"],
            "left",
        )
        .withColumn("cause", cause)
        .withColumn("is_open", F.expr(is_open))
        .withColumn("outcome", F.when(is_withheld, "withheld").otherwise(F.col("outcome")))
    )
    columns = (
        *("notification_id", "subscriber", "origin", "at", "degree", "outcome", "cause"),
        *("is_open", "delivered", "node", "latency", "best", "best_node", "best_latency", "until"),
    )
    return judged.select(*columns).unionByName(_find_repeated(logs, notes), True)


def list_delivered(logs: Logs) -> DataFrame:
    """Return the deliveries of notifications; those of stories are judged by themselves."""
    told = logs.get("story").selectExpr("item as note").distinct()
    return logs.get("deliver").join(told, "note", "left_anti")


def _find_deliveries(logs: Logs) -> DataFrame:
    facts = (
        *("min(time) as delivered", "min_by(node, struct(time, node, number)) as node"),
        "flatten(collect_list(subscriptions)) as delivered_for",
    )
    told = list_delivered(logs).groupBy(F.col("note").alias("notification_id"), "subscriber")
    return told.agg(*map(F.expr, facts))


def _find_reasons(logs: Logs) -> DataFrame:
    last = F.expr("max_by(reason, struct(time, node, number)) as reason")
    return (
        logs.get("suppress").groupBy(F.col("note").alias("notification_id"), "subscriber").agg(last)
    )


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
        "notification_id",
        "subscriber",
        "at",
        F.explode_outer("delivered_for").alias("subscription_id"),
    ).join(known, "subscription_id", "left")
    cause = (
        F.when(F.col("at").isNull() | F.col("begins").isNull(), "unknown")
        .when(F.col("at") < F.col("begins"), "early")
        .when(F.col("at") >= F.col("ends"), "ended")
        .otherwise("no match")
    )
    # Of several subscriptions the alphabet decides: early, ended, no match, unknown.
    return named.groupBy("notification_id", "subscriber").agg(F.min(cause).alias("wrong_cause"))


def _find_repeated(logs: Logs, notes: DataFrame) -> DataFrame:
    """Return a row for each delivery after the first of the same to the same subscriber."""
    order = F.struct("time", "node", "number")
    many = (
        list_delivered(logs)
        .groupBy(F.col("note").alias("notification_id"), "subscriber")
        .agg(F.sort_array(F.collect_list(order)).alias("all"))
        .where(F.size("all") > 1)
        .select(
            "notification_id",
            "subscriber",
            F.explode(F.expr("slice(all, 2, size(all) - 1)")).alias("one"),
        )
    )
    return many.join(
        notes.select("notification_id", "origin", "at"), "notification_id", "left"
    ).selectExpr(
        *("notification_id", "subscriber", "origin", "at"),
        *("'wrong' as outcome", "'repeated' as cause"),
        *("false as is_open", "one.time as delivered", "one.node as node"),
        "one.time - at as latency",
    )


# Figures: over time, by cause, by subscriber, by node, and the headline -----------------

OUTCOMES = ("hit", "late", "missed", "withheld", "wrong")
EXPECTED = "outcome in ('hit', 'late', 'missed')"  # the one denominator of all shares
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
    return sort_rows(counted.agg(*_count_outcomes()), "time")


def count_causes(outcomes: DataFrame) -> DataFrame:
    """Return how many pairs have which outcome and cause, the most frequent first."""
    counted = outcomes.groupBy("outcome", "cause").agg(
        F.count("*").alias("pairs"), F.count_if(F.col("is_open")).alias("still_open")
    )
    return sort_rows(counted, "outcome", F.desc("pairs"), "cause")


def list_failures(outcomes: DataFrame, most: int) -> DataFrame:
    """Return what was not delivered in time, on purpose or not, the newest first."""
    return (
        outcomes.where("outcome != 'hit'")
        .select(
            *("notification_id", "subscriber", "outcome", "cause", "origin", "at", "node"),
            *("latency", "best_node", "best_latency", "is_open"),
        )
        .orderBy(F.desc("at"), "notification_id", "subscriber")
        .limit(most)
    )


def count_by(outcomes: DataFrame, column: str) -> DataFrame:
    """Return outcomes and latencies for each value of a column: subscriber, origin or node."""
    counted = outcomes.groupBy(column).agg(
        *_count_outcomes(), *measure_latency(outcomes.sparkSession, "latency")
    )
    return sort_rows(counted, column)


def _count_outcomes() -> list[Column]:
    return [F.count_if(F.col("outcome") == name).alias(name) for name in OUTCOMES]


def measure_latency(spark: SparkSession, column: str, prefix: str = "") -> list[Column]:
    """Return quantiles of a column, in ms."""
    return [
        measure_share(spark, column, str(share)).alias(f"{prefix}{name}_ms")
        for name, share in _QUANTILES.items()
    ]


def measure_share(spark: SparkSession, column: str, shares: str) -> Column:
    """Return the quantile of a column for a share, or for an array of them.

    Of very many rows it is approximate: its rank is wrong by at most a ten thousandth.
    """
    if is_exact(spark):
        return F.expr(f"percentile({column}, {shares})")
    type_ = "array<double>" if shares.startswith("array") else "double"
    return F.expr(f"cast(percentile_approx({column}, {shares}, 10000) as {type_})")


def spread_latency(outcomes: DataFrame) -> DataFrame:
    """Return the distribution of latencies: of all deliveries and of the best possible.

    Columns: share (of deliveries, 1 % steps), latency_ms, best_ms: at most so long took that share.
    """
    rows = outcomes.where("outcome in ('hit', 'late')")
    shares = ", ".join(f"{n / 100}" for n in range(101))
    quantiles = rows.agg(
        measure_share(rows.sparkSession, "latency", f"array({shares})").alias("latency"),
        measure_share(rows.sparkSession, "best_latency", f"array({shares})").alias("best"),
    )
    zipped = quantiles.where("latency is not null").select(
        F.posexplode(F.arrays_zip("latency", "best")).alias("place", "both")
    )
    columns = "place / 100 as share", "both.latency as latency_ms", "both.best as best_ms"
    return sort_rows(zipped.selectExpr(*columns), "share")


def sum_up(outcomes: DataFrame) -> DataFrame:
    """Return the headline, one row.

    `expected` are delivered and missed: what nobody asked to withhold; `possible` are those of them
    that the contacts could have carried. quality = delivered / possible: 1 is as good
    as any replication can be. delay_ratio = the sum of the best latencies / the sum of ours, over
    what was delivered.
    """
    delivered = F.col("outcome").isin("hit", "late")
    expected = F.expr(EXPECTED)
    possible = expected & F.col("best").isNotNull()
    best = F.sum(F.when(delivered, F.col("best_latency")))
    ours = F.sum(F.when(delivered, F.col("latency")))
    spark = outcomes.sparkSession
    return outcomes.agg(
        *_count_outcomes(),
        F.count_if(F.col("is_open")).alias("still_open"),
        F.count_if(expected).alias("expected"),
        F.count_if(possible).alias("possible"),
        F.count_if(delivered).alias("delivered"),
        *measure_latency(spark, "case when outcome in ('hit', 'late') then latency end"),
        *measure_latency(
            spark, "case when outcome in ('hit', 'late') then best_latency end", "best_"
        ),
        F.try_divide(F.count_if(delivered), F.count_if(expected)).alias("delivery_ratio"),
        F.try_divide(F.count_if(delivered & possible), F.count_if(possible)).alias("quality"),
        F.when(ours > 0, best / ours).otherwise(F.lit(1.0)).alias("delay_ratio"),
    )


# Decisions ------------------------------------------------------------------------------
# Top-k and the other decisions of a node, replayed for each subscriber by the node's own code
# (`DecisionReplay`) for notifications offered in any order and at any time: when they were read,
# which is what a network without delays would have done, or when they were really offered, which
# must give the node's own decisions. Roles are not in the logs: everybody may see everything here.
# Nor is what people prefer of all their subscriptions: each is decided about by itself.

ASKED_COLUMNS = (  # of a subscription
    *("origin", "run", "sequence", "role", "words", "begins", "ends", "language"),
    *("vocabulary", "vector", "options"),
)
DECISIONS = (
    "notification_id bigint, subscription_id bigint, subscriber string, offered bigint,"
    " verdict string"
)


def replay_decisions(offers: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return for each match what a node decides: delivered, top-k, expired or quiet.

    `offers` has the matches (notification_id, subscription_id, subscriber, possible, certain,
    attribute) and `offered`, when the node had to decide (ms); of one subscriber's, earlier ones go
    first, of those at one time the smaller id. `notes` and `windows` are those of
    `denwatch.spark.matching`.
    """
    note, asked = F.struct(*NOTE_COLUMNS), F.struct(*ASKED_COLUMNS)
    joined = offers.join(
        notes.select("notification_id", note.alias("note")), "notification_id"
    ).join(windows.select("subscription_id", asked.alias("asked")), "subscription_id")
    return joined.groupBy("subscriber").applyInPandas(_decide_all, DECISIONS)


def _decide_all(frame: pd.DataFrame) -> pd.DataFrame:
    """Replay the decisions about one subscriber's matches."""
    subscriber = str(frame["subscriber"].iloc[0])
    replay = DecisionReplay(subscriber)
    rows: list[tuple[int, int, str, int, str]] = []
    frame = frame.sort_values(["offered", "notification_id", "subscription_id"], kind="stable")
    for (offered, notification_id), group in frame.groupby(
        ["offered", "notification_id"], sort=False
    ):
        columns = ["subscription_id", "possible", "certain", "attribute"]
        numbers = group[columns].astype(int).to_numpy().tolist()
        matches = [
            OfferedMatch(id_, possible, certain, attribute, asked)
            for (id_, possible, certain, attribute), asked in zip(
                numbers, group["asked"], strict=True
            )
        ]
        verdicts = replay.decide(int(offered), group["note"].iloc[0], matches)
        rows += [
            (int(notification_id), key, subscriber, int(offered), why)
            for key, why in verdicts.items()
        ]
    return pd.DataFrame(
        rows, columns=["notification_id", "subscription_id", "subscriber", "offered", "verdict"]
    )
