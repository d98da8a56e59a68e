"""When a subscription counts for a notification: the node's own rule, over the logs' clocks.

A node asks whether the subscription was there when the reading was made. Times of one run are of
one clock and are compared as they are. Of two runs, whatever is possible counts: each clock may be
wrong by its doubt, and the reading's own doubt comes on top where the subscription begins.

So times are widened before matching, which compares begins - doubt <= at < ends for millions, and
afterwards what was widened within one run is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping

from denwatch.spark.analytics.timeline import Clock, Run
from denwatch.spark.matching.index import FOREVER
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def widen_windows(windows: DataFrame, clocks: Mapping[Run, Clock]) -> DataFrame:
    """Return subscriptions with the longest windows that their clocks allow."""
    doubt = _find_doubt(clocks)
    ends = F.when(F.col("ends") == FOREVER, F.col("ends")).otherwise(F.col("ends") + doubt)
    return windows.withColumns({"begins": F.col("begins") - doubt, "ends": ends})


def widen_notes(notes: DataFrame, clocks: Mapping[Run, Clock]) -> DataFrame:
    """Return notifications as early as their clocks allow, with a doubt up to the latest."""
    doubt = _find_doubt(clocks)
    return notes.withColumns({"at": F.col("at") - doubt, "doubt": F.col("doubt") + 2 * doubt})


def keep_valid(matches: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return matches of widened times without those of one run that its one clock rules out.

    `notes` and `windows` have their own times.
    """
    read = notes.select("note_id", "at", "doubt", F.struct("origin", "run").alias("note_run"))
    asked = windows.select(
        "subscription_id", "begins", "ends", F.struct("origin", "run").alias("own_run")
    )
    is_exact = F.expr("begins - doubt <= at and at < ends")
    return (
        matches.join(read, "note_id")
        .join(asked, "subscription_id")
        .where((F.col("note_run") != F.col("own_run")) | is_exact)
        .select(*matches.columns)
    )


def _find_doubt(clocks: Mapping[Run, Clock]) -> Column:
    found = F.lit(0)
    for (node, run), clock in sorted(clocks.items()):
        if clock.doubt:
            is_it = (F.col("origin") == node) & (F.col("run") == run)
            found = F.when(is_it, clock.doubt).otherwise(found)
    return found.cast("bigint")
