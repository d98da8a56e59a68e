"""Matches kept current: only what a batch changes is matched.

A match depends on one notification and one subscription. So what is new or changed on either side
is matched with all of the other side, and everything else stays as it is:

    new notifications        with all subscriptions
    all older notifications  with new and changed subscriptions

which is how a notification meets subscriptions whose records arrive days after its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from denwatch.spark.analytics.timeline import (
    Logs,
    Run,
    RunClock,
    correct_times,
    keep_valid,
    widen_notes,
    widen_windows,
)
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
from denwatch.spark.report.analysis import IDS, name_ids
from denwatch.spark.source import build_schema
from denwatch.spark.stream.tables import (
    Written,
    add_frame,
    list_files,
    name_stem,
    read_files,
    remove_rows,
)
from denwatch.spark.stream.versions import STATE, Building, Manifest
from denwatch.spark.tables import RecordTables, write_parquet
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

    def update(
        self, spark: SparkSession, building: Building, written: dict[str, Written], number: int
    ) -> Changes:
        """Update notifications, subscriptions and matches with the records of a batch."""
        logs = _open_logs(spark, building)
        try:
            return self._update(spark, building, written, number, logs)
        finally:
            logs.release()

    def _update(
        self,
        spark: SparkSession,
        building: Building,
        written: dict[str, Written],
        number: int,
        logs: Logs,
    ) -> Changes:
        manifest = building.manifest
        moved = set_clocks(manifest, logs.clocks) if "transfer" in written else set()
        self._clocks = read_clocks(manifest)
        logs.offsets = read_offsets(manifest)
        is_new_meaning = self._update_meanings(spark, building, "vocabulary" in written)
        notes = add_notes(spark, building, written, number, moved)
        windows = self._update_windows(building, logs, moved, written)
        if is_new_meaning:
            found = self._match_all(spark, building, notes, number)
            return found._replace(is_renamed=True)
        return self._match_changes(spark, building, notes, windows, number)

    def _update_meanings(self, spark: SparkSession, building: Building, is_told: bool) -> bool:
        """Read the vocabularies again; return whether what is known may mean something else."""
        if self._meanings is None or is_told:
            tables = RecordTables(building.folder / "records")
            self._meanings = collect_meanings(tables.read(spark, "vocabulary"))
        known = [hash_.hex() for hash_ in self._meanings.known]
        if known == building.manifest.meanings:
            return False
        is_first = building.manifest.batch < 0
        building.manifest.meanings = known
        self._index = None
        return not is_first

    def _update_windows(
        self,
        building: Building,
        logs: Logs,
        moved: set[tuple[str, int]],
        written: dict[str, Written],
    ) -> WindowChanges:
        is_told = "subscribe" in written or "unsubscribe" in written
        if is_told or moved or self._windows is None:
            before = load_windows(building.folder)
            if before is None or is_told or moved:
                changes = update_windows(building, logs, moved)
            else:  # another run of the driver has made them
                changes = WindowChanges(before, before.slice(0, 0), [])
            if changes.changed.num_rows or changes.stale or moved or self._windows is None:
                self._index = None
            self._windows = changes.table
            return changes
        return WindowChanges(self._windows, self._windows.slice(0, 0), [])

    # Matching -------------------------------------------------------------------------------

    def _match_all(
        self, spark: SparkSession, building: Building, notes: NoteChanges, number: int
    ) -> Changes:
        """Match everything again: a vocabulary became known and codes mean something else."""
        folder = building.make("tables", TABLE)
        lost = list_owners(read_matches(spark, building))
        for path in list_files(folder):
            path.unlink()
        together = notes.fresh.unionByName(notes.others)
        if notes.moved is not None:
            together = together.unionByName(notes.moved)
        found = spark.createDataFrame([], MATCHES)
        if self._windows is not None and self._windows.num_rows:
            found = self._match(spark, together, self._get_index(spark))
        building.manifest.matches = 0
        return self._add(spark, building, found, number, lost, together)

    def _match_changes(
        self,
        spark: SparkSession,
        building: Building,
        notes: NoteChanges,
        windows: WindowChanges,
        number: int,
    ) -> Changes:
        lost = self._remove(building, notes, windows.stale, number)
        known = notes.fresh
        found = spark.createDataFrame([], MATCHES)
        if notes.moved is not None:
            known = known.unionByName(notes.moved)
        if (notes.rows or notes.moved is not None) and windows.table.num_rows:
            found = self._match(spark, known, self._get_index(spark))
        if windows.changed.num_rows:
            changed = self._widen(spark, windows.changed)
            index = self._build(spark, changed)
            older = self._match(spark, notes.others, index, _is_possible(changed))
            found = found.unionByName(older)
            known = known.unionByName(notes.others)
        return self._add(spark, building, found, number, lost, known)

    def _remove(
        self, building: Building, notes: NoteChanges, stale: list[int], number: int
    ) -> list[str]:
        """Remove the matches of what has changed; return the subscribers concerned."""
        lost: set[str] = set()
        stem = name_stem(number)
        if stale:
            lost |= self._remove_keys(building, stale, "subscription_id", f"{stem}s")
        if notes.moved is not None:
            moved = notes.moved.select("note_id").toArrow()["note_id"].to_pylist()
            lost |= self._remove_keys(building, moved, "note_id", f"{stem}n")
        return sorted(lost)

    def _remove_keys(self, building: Building, ids: list[int], on: str, stem: str) -> set[str]:
        keys = pa.array([name_id(id_) for id_ in ids], pa.string())
        removed = remove_rows(building.make("tables", TABLE), keys, on, stem)
        building.manifest.matches -= removed.rows
        return removed.owners

    def _add(
        self,
        spark: SparkSession,
        building: Building,
        found: DataFrame,
        number: int,
        lost: list[str],
        notes: DataFrame,
    ) -> Changes:
        folder = building.make("tables", TABLE)
        known = set(list_files(folder))
        rows = add_frame(name_ids(found), folder, name_stem(number))
        building.manifest.matches += rows
        fresh = [path for path in list_files(folder) if path not in known]
        return Changes(parse_ids(read_files(spark, fresh, PUBLIC)), rows, lost, notes)

    def _match(
        self,
        spark: SparkSession,
        notes: DataFrame,
        index: SharedIndex,
        is_possible: Column | None = None,
    ) -> DataFrame:
        """Match as `Study.matches` does: by what is possible, where clocks are in doubt."""
        wide = widen_notes(notes, self._clocks)
        found = match_notes(wide if is_possible is None else wide.where(is_possible), index)
        if not any(clock.doubt for clock in self._clocks.values()):
            return found
        assert self._windows is not None, "subscriptions are worked out before"
        return keep_valid(found, notes, spark.createDataFrame(self._windows))

    def _widen(self, spark: SparkSession, windows: pa.Table) -> pa.Table:
        if not any(clock.doubt for clock in self._clocks.values()):
            return windows
        return widen_windows(spark.createDataFrame(windows), self._clocks).toArrow()

    def _get_index(self, spark: SparkSession) -> SharedIndex:
        if self._index is None:
            assert self._windows is not None, "subscriptions are worked out before"
            self._index = self._build(spark, self._widen(spark, self._windows))
        return self._index

    def _build(self, spark: SparkSession, table: pa.Table) -> SharedIndex:
        self._made += 1
        for old in self._work.glob("index-*"):  # all but the last: a batch uses at most two
            if int(old.name.removeprefix("index-")) < self._made - 1 and not self._is_used(old):
                shutil.rmtree(old)
        folder = self._work / f"index-{self._made}"
        return build_index(spark, table, folder=folder, meanings=self._meanings)

    def _is_used(self, folder: Path) -> bool:
        return self._index is not None and self._index.folder == str(folder)


def _open_logs(spark: SparkSession, building: Building) -> Logs:
    tables = RecordTables(building.folder / "records")
    return Logs(lambda kind: tables.read(spark, kind).drop("day"))


def _is_possible(windows: pa.Table) -> Column:
    """Return whether a notification can be within any of these subscriptions' time."""
    begins = pc.min(windows["begins"]).as_py()
    ends = pc.max(windows["ends"]).as_py()
    latest = F.col("at") + F.col("doubt")
    is_possible: Column = (latest >= begins) & (F.lit(ends == FOREVER) | (F.col("at") < ends))
    return is_possible


def list_owners(matches: DataFrame) -> list[str]:
    """Return the subscribers of some matches."""
    return sorted(row["owner"] for row in matches.select("owner").distinct().collect())


def read_matches(spark: SparkSession, building: Building) -> DataFrame:
    """Return all matches, ids as people see them."""
    return read_files(spark, list_files(building.make("tables", TABLE)), PUBLIC)


def parse_ids(frame: DataFrame) -> DataFrame:
    """Return a table with ids as numbers again."""
    numbers = {
        name: F.conv(F.col(name), 16, -10).cast("bigint") for name in IDS if name in frame.columns
    }
    return frame.withColumns(numbers)


def name_id(id_: int) -> str:
    """Return an id as people see it."""
    return f"{id_ & 0xFFFF_FFFF_FFFF_FFFF:016x}"


# Notifications and subscriptions --------------------------------------------------------
# What a batch adds and changes. A notification is the same in every node's log, so its first record
# is enough. A subscription changes when a record ends it or a clock is corrected: all subscriptions
# fit into the driver's memory and are compared with those of the version before.

NOTES, WINDOWS = "notes", "windows.parquet"  # in the version's folder `state`
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


def read_clocks(manifest: Manifest) -> dict[Run, RunClock]:
    """Return what is known of clocks that are not simply right."""
    return {(node, run): RunClock(ahead, doubt) for node, run, ahead, doubt in manifest.clocks}


def read_offsets(manifest: Manifest) -> dict[Run, int]:
    """Return by how much clocks are off."""
    return {run: clock.offset for run, clock in read_clocks(manifest).items()}


def set_clocks(manifest: Manifest, clocks: Mapping[Run, RunClock]) -> set[Run]:
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
    """Add the notifications of a batch."""
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
    """Compute the subscriptions again; return which changed or belong to moved runs."""
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
