"""Notifications and subscriptions as the stream knows them: what a batch adds, and what it changes.

A notification is the same in every node's log, so the first record of it is enough. A subscription
changes when a record says that it ended, or that a clock was wrong: all of them fit into the
driver's memory, and are held against those of the version before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from denwatch.spark.analytics.logs import Logs
from denwatch.spark.analytics.timeline import Clock, Run, correct_times
from denwatch.spark.matching import find_windows
from denwatch.spark.source import build_schema
from denwatch.spark.stream.files import add_frame, list_files, read_files
from denwatch.spark.stream.records import Written, name_stem
from denwatch.spark.stream.versions import Building, Manifest
from denwatch.spark.tables import write_parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

NOTES, WINDOWS = "notes", "windows.parquet"  # in the version's folder `state`
STATE = "state"
_COLUMNS = (
    *("origin", "run", "sequence", "device", "device_epoch", "device_sequence"),
    *("at", "doubt", "expires", "vocabulary", "vector"),
)
NOTE = StructType(
    [
        StructField("note_id", LongType()),
        *(field for name in _COLUMNS for field in build_schema("note") if field.name == name),
    ]
)


class NoteChanges(NamedTuple):
    """Notifications in the common timeline: those to be matched anew, and the others."""

    fresh: DataFrame  # never seen before
    moved: DataFrame | None  # seen before, but their clock was corrected since
    others: DataFrame
    rows: int  # of the fresh ones


class WindowChanges(NamedTuple):
    """All subscriptions, and which of them are not as they were."""

    table: pa.Table
    changed: pa.Table  # new, or different
    stale: list[int]  # ids of those that were there before, and are different or gone


def read_clocks(manifest: Manifest) -> dict[Run, Clock]:
    """Return what is known of clocks that are not simply right."""
    return {(node, run): Clock(ahead, doubt) for node, run, ahead, doubt in manifest.clocks}


def read_offsets(manifest: Manifest) -> dict[Run, int]:
    """Return by how much clocks are off."""
    return {run: clock.offset for run, clock in read_clocks(manifest).items()}


def set_clocks(manifest: Manifest, clocks: Mapping[Run, Clock]) -> set[Run]:
    """Note what is known of clocks; return the runs of which something else is known than before.

    What was read or asked there may now be matched otherwise.
    """
    before = read_clocks(manifest)
    manifest.clocks = [[*run, *clock] for run, clock in sorted(clocks.items()) if any(clock)]
    after = read_clocks(manifest)
    return {run for run in before.keys() | after.keys() if before.get(run) != after.get(run)}


def add_notes(
    spark: SparkSession,
    building: Building,
    written: dict[str, Written],
    number: int,
    moved: set[Run],
) -> NoteChanges:
    """Take in the notifications of a batch."""
    folder = building.make(STATE, NOTES)
    before = read_files(spark, list_files(folder), NOTE)
    offsets = read_offsets(building.manifest)
    rows = 0
    fresh_files: list[Path] = []
    if "note" in written:
        records = read_files(spark, written["note"].files, build_schema("note"))
        seen = records.select(F.col("item").alias("note_id"), *_COLUMNS)
        fresh = seen.dropDuplicates(["note_id"])
        if building.manifest.batch >= 0:
            fresh = fresh.join(before.select("note_id"), "note_id", "left_anti")
        known = set(list_files(folder))
        rows = add_frame(fresh, folder, name_stem(number))
        fresh_files = [path for path in list_files(folder) if path not in known]
    fresh = _correct(read_files(spark, fresh_files, NOTE), offsets)
    _note_latest(building.manifest, fresh_files)
    if not moved:
        return NoteChanges(fresh, None, _correct(before, offsets), rows)
    is_moved = _is_of(moved)
    shifted = _correct(before.where(is_moved), offsets)
    return NoteChanges(fresh, shifted, _correct(before.where(~is_moved), offsets), rows)


def _note_latest(manifest: Manifest, files: list[Path]) -> None:
    """Note how far the readings of each node have come.

    Of all nodes the middle one counts: a clock that is a year ahead must not make everything late.
    """
    latest = {(node, run): at for node, run, at in manifest.latest}
    for path in files:
        table = pq.read_table(path, columns=["origin", "run", "at"])
        found = table.group_by(["origin", "run"]).aggregate([("at", "max")])
        for row in found.to_pylist():
            key = row["origin"], row["run"]
            latest[key] = max(latest.get(key, 0), row["at_max"])
    manifest.latest = [[*run, at] for run, at in sorted(latest.items())]
    offsets = read_offsets(manifest)
    by_node: dict[str, int] = {}
    for (node, run), at in latest.items():
        by_node[node] = max(by_node.get(node, 0), at - offsets.get((node, run), 0))
    manifest.newest = median_low(by_node.values()) if by_node else 0


def read_notes(spark: SparkSession, building: Building) -> DataFrame:
    """Return all notifications, in the common timeline."""
    files = list_files(building.make(STATE, NOTES))
    return _correct(read_files(spark, files, NOTE), read_offsets(building.manifest))


def _correct(notes: DataFrame, offsets: dict[Run, int]) -> DataFrame:
    return correct_times(notes, offsets, (), ("at", "expires"))


def _is_of(runs: Iterable[Run]) -> Column:
    found = F.lit(False)
    for node, run in sorted(runs):
        found = found | ((F.col("origin") == node) & (F.col("run") == run))
    return found


def load_windows(folder: Path) -> pa.Table | None:
    """Return the subscriptions of a version; None if there were none yet."""
    path = folder / STATE / WINDOWS
    return pq.read_table(path) if path.exists() else None


def update_windows(building: Building, logs: Logs, moved: set[Run]) -> WindowChanges:
    """Work the subscriptions out anew, and say which are not as they were, or of moved runs."""
    before = load_windows(building.folder)
    frame = find_windows(logs.get("subscribe"), logs.get("unsubscribe"))
    table = frame.toArrow().sort_by("subscription_id")
    building.make(STATE)
    write_parquet(building.folder / STATE / WINDOWS, table)
    if before is None:
        return WindowChanges(table, table, [])
    old = {row["subscription_id"]: row for row in before.to_pylist()}
    rows = table.to_pylist()
    changed = [
        row["subscription_id"]
        for row in rows
        if old.get(row["subscription_id"]) != row or (row["origin"], row["run"]) in moved
    ]
    gone = old.keys() - {row["subscription_id"] for row in rows}
    stale = sorted(gone | (old.keys() & set(changed)))
    mask = pc.is_in(table["subscription_id"], pa.array(changed, pa.int64()))
    return WindowChanges(table, table.filter(mask), stale)
