"""One timeline for all nodes: by how much each node's clock differs, as the logs themselves prove.

A node's times are its own clock's, which may be wrong by years. But what one node has received,
the other has sent before and finds acknowledged after: each transfer that both sides logged bounds
the difference of their clocks from one side, and transfers both ways from both. Clocks that may be
equal by these bounds are taken as equal; only what is proven wrong is corrected, to the middle of
what is possible. What most nodes say is taken as the truth.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, reduce
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from denwatch.spark.matching.windows import FOREVER
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

Run = tuple[str, int]  # a node, and which of its runs
LINK = (
    30_000  # ms; how long a frame may have been on its way, if no answer says better: as on nodes
)
_SAME_NODE = 1 << 50  # ms; how little is known of a restart: anything else is better


class Bound(NamedTuple):
    """The clock of `first` is ahead of that of `second` by at most this many ms."""

    first: Run
    second: Run
    most: int


class RunClock(NamedTuple):
    """By how many ms the clock of a run is ahead of the common timeline, and how wrong that is."""

    offset: int
    doubt: int


def find_bounds(transfer: DataFrame) -> list[Bound]:
    """Return what transfers prove; `transfer` has the records of that kind."""
    sent = transfer.where("is_out").select(
        "item",
        F.col("node").alias("sender"),
        F.col("epoch").alias("sender_run"),
        F.col("peer").alias("receiver"),
        F.col("time").alias("acknowledged"),
    )
    received = transfer.where("not is_out").select(
        "item",
        F.col("node").alias("receiver"),
        F.col("epoch").alias("receiver_run"),
        F.col("peer").alias("sender"),
        F.col("time").alias("taken"),
    )
    rows = (
        sent.join(received, ["item", "sender", "receiver"])
        .groupBy("sender", "sender_run", "receiver", "receiver_run")
        .agg(F.min(F.col("acknowledged") - F.col("taken")).alias("most"))
        .collect()
    )
    return [
        Bound(
            (row["sender"], row["sender_run"]), (row["receiver"], row["receiver_run"]), row["most"]
        )
        for row in rows
    ]


def solve_offsets(bounds: Iterable[Bound], runs: Iterable[Run] = ()) -> dict[Run, int]:
    """Return by how many ms the clock of each run is ahead of the common timeline."""
    return {run: clock.offset for run, clock in solve_clocks(bounds, runs).items()}


def solve_clocks(bounds: Iterable[Bound], runs: Iterable[Run] = ()) -> dict[Run, RunClock]:
    """Return the clocks of runs.

    Runs are reached over the surest comparisons first; what was never compared is taken as right.
    """
    most = {(bound.first, bound.second): bound.most for bound in bounds}
    everyone = sorted({run for pair in most for run in pair} | set(runs))
    edges: dict[Run, list[tuple[int, int, Run]]] = {run: [] for run in everyone}
    for one, other in {(min(pair), max(pair)) for pair in most}:
        ahead, width = _compare(most.get((one, other)), most.get((other, one)))
        edges[one].append((width, -ahead, other))
        edges[other].append((width, ahead, one))
    for one, other in pairwise(everyone):
        if one[0] == other[0]:  # a node's timeline goes on over its restarts
            edges[one].append((_SAME_NODE, 0, other))
            edges[other].append((_SAME_NODE, 0, one))
    clocks: dict[Run, RunClock] = {}
    for start in everyone:
        if start not in clocks:
            found = _walk(edges, start)
            middle = median_low(clock.offset for clock in found.values())
            clocks |= {run: RunClock(c.offset - middle, c.doubt) for run, c in found.items()}
    return clocks


def _compare(most: int | None, most_back: int | None) -> tuple[int, int]:
    """Return by how much the first of two clocks is ahead, and how wide the doubt is."""
    low = None if most_back is None else -most_back
    if low is not None and most is not None:
        low, high = min(low, most), max(low, most)
        ahead = 0 if low <= 0 <= high else (low + high) // 2
        return ahead, high - low
    if most is not None:
        return min(0, most), _SAME_NODE - 1
    assert low is not None, "a pair that was compared has a bound"
    return max(0, low), _SAME_NODE - 1


def _walk(edges: Mapping[Run, list[tuple[int, int, Run]]], start: Run) -> dict[Run, RunClock]:
    found: dict[Run, RunClock] = {}
    queue: list[tuple[int, Run, int, int]] = [(0, start, 0, 0)]
    while queue:
        _, run, offset, doubt = heapq.heappop(queue)
        if run in found:
            continue
        found[run] = RunClock(offset, doubt)
        for width, ahead, other in edges[run]:
            if other not in found:
                more = 0 if width == _SAME_NODE else (min(width, LINK) + 1) // 2
                heapq.heappush(queue, (width, other, offset + ahead, doubt + more))
    return found


def correct_times(
    frame: DataFrame, offsets: Mapping[Run, int], own: Iterable[str], items: Iterable[str] = ()
) -> DataFrame:
    """Return records in the common timeline.

    `own` are columns in the clock of the node that wrote the record, `items` those in the clock of
    the item's origin; 0 stays 0, which means never.
    """
    wrong = {run: offset for run, offset in offsets.items() if offset}
    if not wrong:
        return frame
    columns: dict[str, Column] = {}
    for names, node, run in ((own, "node", "epoch"), (items, "origin", "run")):
        for name in names:
            shifted = F.col(name)
            for (wrong_node, wrong_run), offset in sorted(wrong.items()):
                is_it = (F.col(node) == wrong_node) & (F.col(run) == wrong_run) & (F.col(name) != 0)
                shifted = F.when(is_it, F.col(name) - offset).otherwise(shifted)
            columns[name] = shifted
    return frame.withColumns(columns)


# Records --------------------------------------------------------------------------------
# An analysis gets a `Logs` and reads kinds from it; where they come from (segments, Parquet, a
# test) is up to the caller. Only this file knows which columns of a kind are times.

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
    def clocks(self) -> dict[Run, RunClock]:
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


# Validity -------------------------------------------------------------------------------
# Whether a subscription was in force for a notification, by the node's own rule: it existed when
# the reading was made. Times of one run are of one clock and are compared as they are. Between
# two runs everything possible counts: each clock may be wrong by its doubt, and the reading's own
# doubt is added where the subscription begins. So times are widened before matching, which
# compares begins - doubt <= at < ends for millions, and matches within one run are checked again
# afterwards.


def widen_windows(windows: DataFrame, clocks: Mapping[Run, RunClock]) -> DataFrame:
    """Return subscriptions with the longest windows that their clocks allow."""
    doubt = _find_doubt(clocks)
    ends = F.when(F.col("ends") == FOREVER, F.col("ends")).otherwise(F.col("ends") + doubt)
    return windows.withColumns({"begins": F.col("begins") - doubt, "ends": ends})


def widen_notes(notes: DataFrame, clocks: Mapping[Run, RunClock]) -> DataFrame:
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


def _find_doubt(clocks: Mapping[Run, RunClock]) -> Column:
    found = F.lit(0)
    for (node, run), clock in sorted(clocks.items()):
        if clock.doubt:
            is_it = (F.col("origin") == node) & (F.col("run") == run)
            found = F.when(is_it, clock.doubt).otherwise(found)
    return found.cast("bigint")
