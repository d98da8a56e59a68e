"""One timeline for all nodes: by how much each node's clock differs, as the logs themselves prove.

A node's times are its own clock's, which may be wrong by years. But what one node has received,
the other has sent before and finds acknowledged after: each transfer that both sides logged bounds
the difference of their clocks from one side, and transfers both ways from both. Clocks that may be
equal by these bounds are taken as equal; only what is proven wrong is corrected, to the middle of
what is possible. What most nodes say is taken as the truth.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
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


class Clock(NamedTuple):
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


def solve_clocks(bounds: Iterable[Bound], runs: Iterable[Run] = ()) -> dict[Run, Clock]:
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
    clocks: dict[Run, Clock] = {}
    for start in everyone:
        if start not in clocks:
            found = _walk(edges, start)
            middle = median_low(clock.offset for clock in found.values())
            clocks |= {run: Clock(c.offset - middle, c.doubt) for run, c in found.items()}
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


def _walk(edges: Mapping[Run, list[tuple[int, int, Run]]], start: Run) -> dict[Run, Clock]:
    found: dict[Run, Clock] = {}
    queue: list[tuple[int, Run, int, int]] = [(0, start, 0, 0)]
    while queue:
        _, run, offset, doubt = heapq.heappop(queue)
        if run in found:
            continue
        found[run] = Clock(offset, doubt)
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
