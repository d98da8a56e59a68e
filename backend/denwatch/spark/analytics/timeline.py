"""One timeline for all nodes: by how much each node's clock differs, as the logs themselves prove.

A node's times are its own clock's, which may be wrong by years. But what one node has received,
the other has sent before and finds acknowledged after: each transfer that both sides logged bounds
the difference of their clocks from one side, and transfers both ways from both. Clocks that may be
equal by these bounds are taken as equal; only what is proven wrong is corrected, to the middle of
what is possible. What most nodes say is taken as the truth.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from denwatch.spark.matching.windows import FOREVER
from denwatch.spark.session import is_local
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

Run = tuple[str, int]  # a node, and which of its runs
LINK = 30_000  # ms that a frame may have been on its way, if no answer says better: as on nodes
APPROXIMATE = "spark.denwatch.approximate"  # a setting of the session
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
    is_same = F.expr(
        "sent.is_out and not taken.is_out and sent.item = taken.item"
        " and sent.node = taken.peer and sent.peer = taken.node"
    )
    rows = (
        transfer.alias("sent")
        .join(transfer.alias("taken"), is_same)
        .groupBy("sent.node", "sent.epoch", "taken.node", "taken.epoch")
        .agg(F.expr("min(sent.time - taken.time)"))  # acknowledged after it was taken
        .collect()
    )
    return [Bound((row[0], row[1]), (row[2], row[3]), row[4]) for row in rows]


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
    frame: DataFrame, clocks: Mapping[Run, RunClock], own: Sequence[str], items: Sequence[str] = ()
) -> DataFrame:
    """Return records in the common timeline.

    `own` are columns in the clock of the node that wrote the record, `items` those in the clock of
    the item's origin; 0 stays 0, which means never.
    """
    offsets = {run: clock.offset for run, clock in clocks.items() if clock.offset}
    columns = frame.columns
    for names, node, run in ((own, "node", "epoch"), (items, "origin", "run")):
        if names and offsets:
            shifted = {name: F.expr(f"if({name} = 0, 0, {name} - of_clock)") for name in names}
            frame = _join_clocks(frame, offsets, node, run).withColumns(shifted).select(columns)
    return frame


def _join_clocks(frame: DataFrame, numbers: Mapping[Run, int], node: str, run: str) -> DataFrame:
    """Return a frame with a number of each row's run in the column `of_clock`; 0 for other runs.

    A join, not a condition for each run: a site may have had hundreds.
    """
    rows = [(*key, number) for key, number in numbers.items()]
    schema = f"{node} string, {run} bigint, of_clock bigint"
    table = frame.sparkSession.createDataFrame(rows, schema)
    table = table.coalesce(1) if is_single(frame.sparkSession) else F.broadcast(table)
    return frame.join(table, [node, run], "left").fillna(0, ["of_clock"])


def is_single(spark: SparkSession) -> bool:
    """Return whether small logs are analysed in one partition, where nothing is shuffled."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def is_exact(spark: SparkSession) -> bool:
    """Return whether quantiles are exact; of very many rows they are not (`analysis.tune_queries`).

    An exact one keeps every different value of a group in memory.
    """
    return spark.conf.get(APPROXIMATE, "false") != "true"


def keep_rows(frame: DataFrame) -> DataFrame:
    """Return a table that is computed when it is first used, and then kept.

    Spark plans a query on a cached table with all that the table was made of, and one on a table of
    tables with all of those: half of the time of a small analysis. A local checkpoint is a leaf of
    every later plan. It is lost with its executor, so a cluster gets a cached table.
    """
    session = frame.sparkSession
    if is_single(session) and is_local(str(session.sparkContext.master)):
        return frame.localCheckpoint(eager=False)
    return frame.cache()


def sort_rows(frame: DataFrame, *columns: str | Column, is_large: bool = False) -> DataFrame:
    """Return a table in an order; a large one is in order in each of its parts.

    Spark sorts several partitions as a whole by looking at all of them first, in a job of its own.
    """
    if is_single(frame.sparkSession):
        return frame.orderBy(*columns)
    return (frame if is_large else frame.repartition(1)).sortWithinPartitions(*columns)


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

    def get(self, kind: str) -> DataFrame:
        """Return the records of a kind, in the common timeline."""
        if kind not in self._kinds:
            own = ("time", *_OWN_TIMES.get(kind, ()))
            items = _ITEM_TIMES.get(kind, ())
            frame = self._read(kind)
            frame = frame.coalesce(1) if is_single(frame.sparkSession) else frame
            self._kinds[kind] = keep_rows(correct_times(frame, self.clocks, own, items))
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
        facts = "min(time) as begins", "max(time) as ends", "count(*) as records"
        is_stopped = F.bool_or("is_stop").alias("is_stopped")
        runs = together.groupBy("node", "epoch").agg(*map(F.expr, facts), is_stopped)
        later = F.max("epoch").over(Window.partitionBy("node")) > F.col("epoch")
        return keep_rows(runs.withColumn("is_over", later | F.col("is_stopped")).drop("is_stopped"))

    @property
    def stopped(self) -> DataFrame:
        """The nodes whose last run ended in order, in the column `region`."""
        last = self.runs.groupBy("node").agg(F.max("epoch").alias("epoch"))
        stops = self.get("stop").join(last, ["node", "epoch"], "left_semi")
        return stops.select(F.col("node").alias("region"))

    @property
    def span(self) -> tuple[int, int]:
        """The times of the first and the last record of all; 0 if there is none."""
        return self._extent[:2]

    @cached_property
    def nodes(self) -> int:
        """How many nodes wrote these logs."""
        return self._extent[2]

    @cached_property
    def _extent(self) -> tuple[int, int, int]:
        facts = "coalesce(min(begins), 0)", "coalesce(max(ends), 0)", "count(distinct node)"
        begin, end, nodes = self.runs.agg(*map(F.expr, facts)).collect()[0]
        return int(begin), int(end), int(nodes)

    @property
    def begin(self) -> int:
        """The time of the first record of all."""
        return self.span[0]

    @property
    def end(self) -> int:
        """The time of the last record of all."""
        return self.span[1]

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
    ends = F.expr(f"if(ends = {FOREVER}, ends, ends + of_clock)")
    return _widen(windows, clocks, begins=F.expr("begins - of_clock"), ends=ends)


def widen_notes(notes: DataFrame, clocks: Mapping[Run, RunClock]) -> DataFrame:
    """Return notifications as early as their clocks allow, with a doubt up to the latest."""
    doubt = F.expr("doubt + 2 * of_clock")
    return _widen(notes, clocks, at=F.expr("at - of_clock"), doubt=doubt)


def _widen(frame: DataFrame, clocks: Mapping[Run, RunClock], **columns: Column) -> DataFrame:
    """Return columns changed by the doubt of the clock of each row's origin."""
    doubts = {run: clock.doubt for run, clock in clocks.items() if clock.doubt}
    if not doubts:
        return frame
    joined = _join_clocks(frame, doubts, "origin", "run")
    return joined.withColumns(columns).select(frame.columns)


def keep_valid(matches: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return matches of widened times without those of one run that its one clock rules out.

    `notes` and `windows` have their own times.
    """
    read = notes.select(
        "notification_id", "at", "doubt", F.struct("origin", "run").alias("note_run")
    )
    asked = windows.select(
        "subscription_id", "begins", "ends", F.struct("origin", "run").alias("own_run")
    )
    is_exact = F.expr("begins - doubt <= at and at < ends")
    return (
        matches.join(read, "notification_id")
        .join(asked, "subscription_id")
        .where((F.col("note_run") != F.col("own_run")) | is_exact)
        .select(*matches.columns)
    )
