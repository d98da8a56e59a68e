"""What is in force for a notification by the logs is what the node's own rule says."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from denwatch.node.core.items import Dot
from denwatch.node.core.subscriptions import Subscriptions
from denwatch.spark.analytics.timeline import (
    LINK,
    Bound,
    Run,
    RunClock,
    correct_times,
    keep_valid,
    solve_clocks,
    widen_notes,
    widen_windows,
)
from denwatch.spark.matching.windows import FOREVER
from pyspark.sql import SparkSession

RUNS: tuple[Run, ...] = (("north", 1), ("north", 2), ("south", 1))
CLOCKS = {RUNS[0]: RunClock(0, 0), RUNS[1]: RunClock(0, 7), RUNS[2]: RunClock(0, 30)}


class NodeClock:
    """A node that knows as much of the runs' clocks as the logs tell."""

    def localise(self, dot: Dot, time: int) -> int:
        return time + CLOCKS[dot.origin, dot.epoch].doubt

    def doubt(self, origin: str, epoch: int, now: int) -> int:  # noqa: ARG002
        return CLOCKS[origin, epoch].doubt


def ask_node(sub: tuple[Any, ...], note: tuple[Any, ...]) -> bool:
    """Ask the node's own function."""
    id_, origin, run, begins, ends = sub
    id, note_origin, note_run, at, doubt = note
    registry = SimpleNamespace(clock=NodeClock(), vocabularies=None)
    asked = SimpleNamespace(
        dot=Dot(origin, run, id_), run=(origin, run), created=begins,
        expires=0 if ends == FOREVER else ends, vocabulary=b"", event=0, features=1,
    )  # fmt: skip
    read = SimpleNamespace(
        dot=Dot(note_origin, note_run, id), run=(note_origin, note_run), at=at, doubt=doubt,
        vocabulary=b"",
    )  # fmt: skip
    return Subscriptions.is_valid(cast(Any, registry), cast(Any, asked), cast(Any, read), now=0)


def test_widening_and_keeping_is_the_rule_of_the_node(spark: SparkSession) -> None:
    rng = random.Random(6)
    subs = [
        (n, *rng.choice(RUNS), begins := 1_000 + rng.randint(0, 60),
         rng.choice((FOREVER, begins + rng.randint(1, 60))))
        for n in range(60)
    ]  # fmt: skip
    notes = [
        (n, *rng.choice(RUNS), 1_000 + rng.randint(-50, 150), rng.choice((0, 5))) for n in range(80)
    ]
    windows = spark.createDataFrame(
        subs, "subscription_id bigint, origin string, run bigint, begins bigint, ends bigint"
    )
    read = spark.createDataFrame(
        notes, "notification_id bigint, origin string, run bigint, at bigint, doubt bigint"
    )
    wide = widen_windows(windows, CLOCKS).drop("origin", "run")
    early = widen_notes(read, CLOCKS).drop("origin", "run")
    # What matching does with times; all vectors match here.
    matches = early.crossJoin(wide).where("begins - doubt <= at and at < ends")
    found = keep_valid(matches.select("notification_id", "subscription_id"), read, windows)
    wanted = {(note[0], sub[0]) for note in notes for sub in subs if ask_node(sub, note)}
    assert {tuple(row) for row in found.collect()} == wanted
    exact = {
        (note[0], sub[0]) for note in notes for sub in subs if sub[3] - note[4] <= note[3] < sub[4]
    }
    assert exact < wanted  # doubt adds, and takes nothing away


def test_the_doubt_of_clocks_is_what_transfers_leave_open() -> None:
    a, b, c = RUNS[0], RUNS[2], ("west", 1)
    both = [Bound(a, b, 40), Bound(b, a, 5)]
    assert solve_clocks(both) == {a: RunClock(0, 0), b: RunClock(0, 23)}
    # One way only: as nodes do, a frame is taken to be half a minute under way at most.
    assert solve_clocks([*both, Bound(c, b, 3)])[c] == RunClock(0, 23 + LINK // 2)
    later = ("north", 2)  # a restart: the node's timeline goes on
    assert solve_clocks(both, [later])[later] == RunClock(0, 0)


def test_a_site_with_hundreds_of_runs_is_planned_and_corrected(spark: SparkSession) -> None:
    runs = [(f"node-{n // 10}", n % 10 + 1) for n in range(700)]
    clocks = {run: RunClock(n + 1, 2 * n + 1) for n, run in enumerate(runs)}
    columns = (
        "notification_id bigint, origin string, run bigint, at bigint, doubt bigint, expires bigint"
    )
    rows = [(n, *run, 10_000, 5, 0 if n % 2 else 20_000) for n, run in enumerate(runs)]
    rows.append((700, "elsewhere", 1, 10_000, 5, 20_000))  # nothing is known of its clock
    notes = correct_times(spark.createDataFrame(rows, columns), clocks, (), ("at", "expires"))
    wide = widen_notes(notes, clocks)
    assert wide.columns == notes.columns == [word.split()[0] for word in columns.split(", ")]
    found = {row["notification_id"]: row for row in wide.collect()}
    for n in (0, 1, 699):
        at, doubt = 10_000 - (n + 1), 2 * n + 1
        expires = 0 if n % 2 else 20_000 - (n + 1)
        assert found[n][3:] == (at - doubt, 5 + 2 * doubt, expires)
    assert found[700][3:] == (10_000, 5, 20_000)
    asked = spark.createDataFrame(
        [(1, *runs[699], 1_000, FOREVER)],
        "subscription_id bigint, origin string, run bigint, begins bigint, ends bigint",
    )
    assert widen_windows(asked, clocks).first()[3:] == (1_000 - 1_399, FOREVER)  # type: ignore[index]
