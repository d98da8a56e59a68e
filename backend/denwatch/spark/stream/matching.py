"""Matches kept current: only what a batch changes is matched.

A match depends on one notification and one subscription. So what is new or changed on either side
is matched with all of the other side, and everything else stays as it is:

    new notifications        with all subscriptions
    all older notifications  with new and changed subscriptions

which is how a notification meets subscriptions whose records arrive days after its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from denwatch.spark.analytics import timeline
from denwatch.spark.analytics.timeline import Logs, Run, RunClock
from denwatch.spark.matching import (
    FOREVER,
    MATCHES,
    Meanings,
    SharedIndex,
    build_index,
    collect_meanings,
    find_windows,
    match_notes,
)
from denwatch.spark.matching.windows import NOTE_COLUMNS
from denwatch.spark.record_tables import write_parquet
from denwatch.spark.report.analysis import IDS, name_ids, parse_ids
from denwatch.spark.source import build_schema
from denwatch.spark.stream.tables import Batch, add_frame, list_files, read_files, remove_rows
from denwatch.spark.stream.versions import STATE, Building, Manifest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

TABLE = "matches.parquet"
PUBLIC = StructType(
    [
        StructField(field.name, StringType()) if field.name in IDS else field
        for field in MATCHES.fields
    ]
)


class Changes(NamedTuple):
    """What a batch changed."""

    added: DataFrame  # matches, ids as numbers
    rows: int  # of them
    stale: list[str]  # subscribers who lost matches: what was decided for them is void
    notes: DataFrame  # where the added ones' notifications are
    is_renamed: bool = False  # a vocabulary was explained that was not known before


class StreamMatcher:
    """Matches the batches of one stream; the index of all subscriptions stays between them."""

    def __init__(self, work: Path) -> None:
        """`work` is a folder for indexes, which executors on this machine map."""
        self._work = work
        self._meanings: Meanings | None = None
        self._windows: pa.Table | None = None
        self._index: SharedIndex | None = None
        self._clocks: dict[Run, RunClock] = {}
        self._made = 0

    @property
    def meanings(self) -> Meanings:
        """The vocabularies that are explained."""
        return self._meanings or Meanings({})

    def update(self, batch: Batch) -> Changes:
        """Update notifications, subscriptions and matches with the records of a batch."""
        logs = Logs(partial(batch.building.records.read, batch.spark))
        try:
            return self._update(batch, logs)
        finally:
            logs.release()

    def _update(self, batch: Batch, logs: Logs) -> Changes:
        manifest = batch.building.manifest
        moved = set_clocks(manifest, logs.clocks) if "transfer" in batch.written else set()
        logs.clocks = self._clocks = read_clocks(manifest)
        is_renamed = self._update_meanings(batch)
        notes = add_notes(batch, moved)
        windows = self._update_windows(batch, logs, moved)
        if is_renamed:  # codes mean something else: everything is matched again
            lost = list_owners(read_matches(batch.spark, batch.building))
            for path in list_files(batch.building.make("tables", TABLE)):
                path.unlink()
            manifest.matches = 0
            known, is_any = notes.fresh.unionByName(notes.others), True
            windows = windows._replace(changed=windows.changed.slice(0, 0))
        else:
            lost = self._remove(batch, notes, windows.stale)
            known, is_any = notes.fresh, notes.is_any
        found = batch.spark.createDataFrame([], MATCHES)
        if is_any and windows.table.num_rows:
            found = self._match(batch.spark, known, self._get_index(batch.spark))
        if windows.changed.num_rows:
            changed = self._widen(batch.spark, windows.changed)
            index = self._build(batch.spark, changed)
            older = self._match(batch.spark, notes.others, index, _is_possible(changed))
            found, known = found.unionByName(older), known.unionByName(notes.others)
        added = add_frame(name_ids(found), batch.building.make("tables", TABLE), batch.stem)
        manifest.matches += added.rows
        matches = parse_ids(read_files(batch.spark, added.files, PUBLIC))
        return Changes(matches, added.rows, lost, known, is_renamed)

    def _update_meanings(self, batch: Batch) -> bool:
        """Read the vocabularies again; return whether what is known may mean something else."""
        manifest = batch.building.manifest
        if self._meanings is None or "vocabulary" in batch.written:
            self._meanings = collect_meanings(
                batch.building.records.read(batch.spark, "vocabulary")
            )
        known = [hash_.hex() for hash_ in self._meanings.known]
        if known == manifest.meanings:
            return False
        manifest.meanings = known
        self._index = None
        return manifest.batch >= 0

    def _update_windows(self, batch: Batch, logs: Logs, moved: set[Run]) -> WindowChanges:
        is_told = bool(moved or {"subscribe", "unsubscribe"} & batch.written.keys())
        if self._windows is not None and not is_told:
            return WindowChanges(self._windows, self._windows.slice(0, 0), [])
        before = load_windows(batch.building.folder)
        if before is None or is_told:
            changes = update_windows(batch.building, logs, before, moved)
        else:  # another run of the driver has made them
            changes = WindowChanges(before, before.slice(0, 0), [])
        if changes.changed.num_rows or changes.stale or moved or self._windows is None:
            self._index = None
        self._windows = changes.table
        return changes

    def _remove(self, batch: Batch, notes: NoteChanges, stale: list[int]) -> list[str]:
        """Remove the matches of what has changed; return the subscribers concerned."""
        lost: set[str] = set()
        moved = [] if notes.moved is None else notes.moved.select("notification_id").collect()
        for ids, on, end in (
            (stale, "subscription_id", "s"),
            ([row["notification_id"] for row in moved], "notification_id", "n"),
        ):
            if ids:
                keys = pa.array([name_id(id_) for id_ in ids], pa.string())
                folder = batch.building.make("tables", TABLE)
                removed = remove_rows(folder, keys, on, f"{batch.stem}{end}")
                batch.building.manifest.matches -= removed.rows
                lost |= removed.subscribers
        return sorted(lost)

    # Matching -------------------------------------------------------------------------------

    def _match(
        self,
        spark: SparkSession,
        notes: DataFrame,
        index: SharedIndex,
        is_possible: Column | None = None,
    ) -> DataFrame:
        """Match as `Study.matches` does: by what is possible, where clocks are in doubt."""
        wide = timeline.widen_notes(notes, self._clocks)
        found = match_notes(wide if is_possible is None else wide.where(is_possible), index)
        if not any(clock.doubt for clock in self._clocks.values()):
            return found
        return timeline.keep_valid(found, notes, spark.createDataFrame(self._windows))

    def _widen(self, spark: SparkSession, windows: pa.Table) -> pa.Table:
        if not any(clock.doubt for clock in self._clocks.values()):
            return windows
        return timeline.widen_windows(spark.createDataFrame(windows), self._clocks).toArrow()

    def _get_index(self, spark: SparkSession) -> SharedIndex:
        if self._index is None:
            self._index = self._build(spark, self._widen(spark, self._windows))
        return self._index

    def _build(self, spark: SparkSession, table: pa.Table) -> SharedIndex:
        self._made += 1
        for old in self._work.glob("index-*"):  # all but the last: a batch uses at most two
            is_used = self._index is not None and self._index.folder == str(old)
            if int(old.name.removeprefix("index-")) < self._made - 1 and not is_used:
                shutil.rmtree(old)
        folder = self._work / f"index-{self._made}"
        return build_index(spark, table, folder=folder, meanings=self._meanings)


def _is_possible(windows: pa.Table) -> Column:
    """Return whether a notification can be within any of these subscriptions' time."""
    begins = pc.min(windows["begins"]).as_py()
    ends = pc.max(windows["ends"]).as_py()
    latest = F.col("at") + F.col("doubt")
    is_possible: Column = (latest >= begins) & (F.lit(ends == FOREVER) | (F.col("at") < ends))
    return is_possible


def list_owners(matches: DataFrame) -> list[str]:
    """Return the subscribers of some matches."""
    return sorted(row["subscriber"] for row in matches.select("subscriber").distinct().collect())


def read_matches(spark: SparkSession, building: Building) -> DataFrame:
    """Return all matches, ids as people see them."""
    return read_files(spark, list_files(building.make("tables", TABLE)), PUBLIC)


def name_id(id_: int) -> str:
    """Return an id as people see it."""
    return f"{id_ & 0xFFFF_FFFF_FFFF_FFFF:016x}"


# Notifications and subscriptions --------------------------------------------------------
# What a batch adds and changes. A notification is the same in every node's log, so its first record
# is enough. A subscription changes when a record ends it or a clock is corrected: all subscriptions
# fit into the driver's memory and are compared with those of the version before.

NOTES, WINDOWS = "notes", "windows.parquet"  # in the version's folder `state`
NOTE = StructType(
    [
        StructField("notification_id", LongType()),
        *(field for name in NOTE_COLUMNS for field in build_schema("note") if field.name == name),
    ]
)


class NoteChanges(NamedTuple):
    """Notifications in the common timeline: those to be matched anew, and the others."""

    fresh: DataFrame  # never seen before, or moved
    moved: DataFrame | None  # seen before, but their clock was corrected since
    others: DataFrame
    is_any: bool  # whether there are fresh ones


class WindowChanges(NamedTuple):
    """All subscriptions, and which of them are not as they were."""

    table: pa.Table
    changed: pa.Table  # new, or different
    stale: list[int]  # ids of those that were there before, and are different or gone


def read_clocks(manifest: Manifest) -> dict[Run, RunClock]:
    """Return what is known of clocks that are not simply right."""
    return {(node, run): RunClock(ahead, doubt) for node, run, ahead, doubt in manifest.clocks}


def set_clocks(manifest: Manifest, clocks: Mapping[Run, RunClock]) -> set[Run]:
    """Note what is known of clocks; return the runs of which something else is known than before.

    What was read or asked there may now be matched otherwise.
    """
    before = read_clocks(manifest)
    manifest.clocks = [[*run, *clock] for run, clock in sorted(clocks.items()) if any(clock)]
    after = read_clocks(manifest)
    return {run for run in before.keys() | after.keys() if before.get(run) != after.get(run)}


def add_notes(batch: Batch, moved: set[Run]) -> NoteChanges:
    """Add the notifications of a batch."""
    folder, manifest = batch.building.make(STATE, NOTES), batch.building.manifest
    before = read_files(batch.spark, list_files(folder), NOTE)
    files: list[Path] = []
    if "note" in batch.written:
        records = read_files(batch.spark, batch.written["note"].files, build_schema("note"))
        seen = records.select(F.col("item").alias("notification_id"), *NOTE_COLUMNS)
        new = seen.dropDuplicates(["notification_id"])
        if manifest.batch >= 0:
            new = new.join(before.select("notification_id"), "notification_id", "left_anti")
        files = add_frame(new, folder, batch.stem).files
    _note_latest(manifest, files)
    fresh = _correct(read_files(batch.spark, files, NOTE), manifest)
    if not moved:
        return NoteChanges(fresh, None, _correct(before, manifest), bool(files))
    runs = batch.spark.createDataFrame(sorted(moved), "origin string, run bigint")
    same, other = (
        _correct(before.join(F.broadcast(runs), ["origin", "run"], how), manifest)
        for how in ("left_semi", "left_anti")
    )
    return NoteChanges(fresh.unionByName(same), same, other, True)


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
    clocks = read_clocks(manifest)
    by_node: dict[str, int] = {}
    for (node, run), at in latest.items():
        offset = clocks[node, run].offset if (node, run) in clocks else 0
        by_node[node] = max(by_node.get(node, 0), at - offset)
    manifest.newest = median_low(by_node.values()) if by_node else 0


def read_notes(spark: SparkSession, building: Building) -> DataFrame:
    """Return all notifications, in the common timeline."""
    files = list_files(building.make(STATE, NOTES))
    return _correct(read_files(spark, files, NOTE), building.manifest)


def _correct(notes: DataFrame, manifest: Manifest) -> DataFrame:
    return timeline.correct_times(notes, read_clocks(manifest), (), ("at", "expires"))


def load_windows(folder: Path) -> pa.Table | None:
    """Return the subscriptions of a version; None if there were none yet."""
    path = folder / STATE / WINDOWS
    return pq.read_table(path) if path.exists() else None


def update_windows(
    building: Building, logs: Logs, before: pa.Table | None, moved: set[Run]
) -> WindowChanges:
    """Compute the subscriptions again; return which changed or belong to moved runs."""
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
