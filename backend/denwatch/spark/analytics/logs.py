"""The records of all nodes as analyses want them: by kind, in one timeline, with ends of runs.

An analysis gets a `Logs` and asks for kinds; where they come from (segments, Parquet, a test) is
the caller's. The only file that knows which columns of a kind are times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce

from denwatch.spark.analytics.timeline import Clock, Run, correct_times, find_bounds, solve_clocks
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

Reader = Callable[[str], DataFrame]

# Times in the clock of the item's origin; all others are in the writing node's.
_ITEM_TIMES = {"subscribe": ("created", "expires"), "note": ("at", "expires")}
_OWN_TIMES = {"contact": ("contact",), "contact_end": ("contact", "began")}
_LIVELY = (  # kinds that tell how long a run lasted
    *("start", "stop", "contact", "contact_end", "note", "transfer", "subscribe", "unsubscribe"),
    *("attach", "send", "deliver", "suppress", "device", "purge", "learn_delivered"),
)


class Logs:
    """All nodes' records. Frames are kept: asking twice for a kind reads it once."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._kinds: dict[str, DataFrame] = {}

    @cached_property
    def clocks(self) -> dict[Run, Clock]:
        """What transfers prove of the clock of each run."""
        return solve_clocks(find_bounds(self._read("transfer")))

    @cached_property
    def offsets(self) -> dict[Run, int]:
        """By how many ms the clock of each run was ahead."""
        return {run: clock.offset for run, clock in self.clocks.items()}

    def get(self, kind: str) -> DataFrame:
        """Return the records of a kind, in the common timeline."""
        if kind not in self._kinds:
            own = ("time", *_OWN_TIMES.get(kind, ()))
            items = _ITEM_TIMES.get(kind, ())
            self._kinds[kind] = correct_times(self._read(kind), self.offsets, own, items).cache()
        return self._kinds[kind]

    @cached_property
    def runs(self) -> DataFrame:
        """One row a run of a node: node, epoch, begins, ends (its last record), records, is_over.

        A run is over if its node stopped in order or started again; of others nobody knows.
        """
        parts = [
            self.get(kind).select("node", "epoch", "time", F.lit(kind == "stop").alias("is_stop"))
            for kind in _LIVELY
        ]
        together = reduce(DataFrame.unionByName, parts)
        runs = together.groupBy("node", "epoch").agg(
            F.min("time").alias("begins"),
            F.max("time").alias("ends"),
            F.count("*").alias("records"),
            F.bool_or("is_stop").alias("is_stopped"),
        )
        later = F.max("epoch").over(Window.partitionBy("node")) > F.col("epoch")
        return runs.withColumn("is_over", later | F.col("is_stopped")).drop("is_stopped").cache()

    @cached_property
    def end(self) -> int:
        """The time of the last record of all; 0 if there is none."""
        row = self.runs.agg(F.max("ends").alias("end")).first()
        return 0 if row is None or row["end"] is None else int(row["end"])

    @cached_property
    def begin(self) -> int:
        """The time of the first record of all; 0 if there is none."""
        row = self.runs.agg(F.min("begins").alias("begin")).first()
        return 0 if row is None or row["begin"] is None else int(row["begin"])

    def release(self) -> None:
        """Forget what is kept."""
        for frame in self._kinds.values():
            frame.unpersist()
        self._kinds = {}
