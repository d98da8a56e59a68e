"""When each subscription was in force, from what the nodes logged of it.

Many nodes log one subscription: where it was made, and wherever it was carried. It begins when it
was made, and ends when it expires or when the first node took it away. All times here are as the
nodes' clocks had them; whoever knows the clocks' errors corrects the columns before this.
"""

from __future__ import annotations

from denwatch.spark.matching.index import FOREVER
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_NOTE = (
    *("origin", "run", "sequence", "device", "device_epoch", "device_sequence"),
    *("at", "doubt", "expires", "vocabulary", "vector"),
)
_SAME = ("owner", "role", "words", "language", "vocabulary", "vector", "created", "expires")


def find_windows(subscribe: DataFrame, unsubscribe: DataFrame) -> DataFrame:
    """Return one row a subscription, from the records of these kinds.

    Columns: subscription_id, origin, run, sequence, owner, role, words, language, vocabulary,
    vector, options, begins, ends (ms, FOREVER if it has not ended) and end_reason (null: in force).
    """
    order = F.struct("source", "time", "node", "epoch", "number")  # its own node's record first
    made = subscribe.groupBy(F.col("item").alias("subscription_id")).agg(
        *(F.min_by(F.col(name), order).alias(name) for name in ("origin", "run", "sequence")),
        *(F.min_by(F.col(name), order).alias(name) for name in (*_SAME, "options")),
    )
    # An expiry that a node notes late is still the expiry.
    gone = (
        unsubscribe.where(F.col("reason") != "expired")
        .groupBy(F.col("item").alias("subscription_id"))
        .agg(
            F.min("time").alias("removed"),
            F.min_by("reason", F.struct("time", "node", "number")).alias("why"),
        )
    )
    expires = F.when(F.col("expires") > 0, F.col("expires")).otherwise(F.lit(FOREVER))
    removed = F.coalesce(F.col("removed"), F.lit(FOREVER))
    is_removed = F.col("removed").isNotNull() & (F.col("removed") < expires)
    reason = F.when(is_removed, F.col("why")).when(F.col("expires") > 0, F.lit("expired"))
    return (
        made.join(gone, "subscription_id", "left")
        .withColumn("begins", F.col("created"))
        .withColumn("ends", F.least(expires, removed))
        .withColumn("end_reason", reason)
        .drop("created", "expires", "removed", "why")
    )


def find_notes(note: DataFrame) -> DataFrame:
    """Return one row a notification, from the records of the kind: it was logged wherever it came.

    Columns: note_id, origin, run, sequence, device, device_epoch, device_sequence, at, doubt,
    expires, vocabulary, vector.
    """
    order = F.struct("source", "time", "node", "epoch", "number")
    return note.groupBy(F.col("item").alias("note_id")).agg(
        *(F.min_by(F.col(name), order).alias(name) for name in _NOTE)
    )
