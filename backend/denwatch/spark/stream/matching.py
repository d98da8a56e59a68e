"""Matches kept current: only what a batch changes is matched.

A match depends on one notification and one subscription. So what is new or changed on either side
is matched with all of the other side, and everything else stays as it is:

    new notifications        with all subscriptions
    all older notifications  with new and changed subscriptions

which is how a notification meets subscriptions whose records arrive days after its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from denwatch.spark.analytics.logs import Logs
from denwatch.spark.analytics.timeline import Clock, Run
from denwatch.spark.analytics.validity import keep_valid, widen_notes, widen_windows
from denwatch.spark.matching import (
    FOREVER,
    MATCHES,
    Meanings,
    SharedIndex,
    build_index,
    collect_meanings,
    match_notes,
)
from denwatch.spark.report.tables import IDS, name_ids
from denwatch.spark.stream.files import add_frame, list_files, read_files, remove_rows
from denwatch.spark.stream.notes import (
    NoteChanges,
    WindowChanges,
    add_notes,
    load_windows,
    read_clocks,
    read_offsets,
    set_clocks,
    update_windows,
)
from denwatch.spark.stream.records import Written, name_stem
from denwatch.spark.stream.versions import Building
from denwatch.spark.tables import Tables
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

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


class Matcher:
    """Matches the batches of one stream; the index of all subscriptions stays between them."""

    def __init__(self, work: Path) -> None:
        """`work` is a folder for indexes, which executors on this machine map."""
        self._work = work
        self._meanings: Meanings | None = None
        self._windows: pa.Table | None = None
        self._index: SharedIndex | None = None
        self._clocks: dict[Run, Clock] = {}
        self._made = 0

    @property
    def meanings(self) -> Meanings:
        """The vocabularies that are explained."""
        return self._meanings or Meanings({})

    def update(
        self, spark: SparkSession, building: Building, written: dict[str, Written], number: int
    ) -> Changes:
        """Bring notifications, subscriptions and matches to what the records say."""
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
            tables = Tables(building.folder / "records")
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
        """Match everything with everything: words have got another meaning."""
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
        """Take out the matches of what is not as it was; return whose they were."""
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
    tables = Tables(building.folder / "records")
    return Logs(lambda kind: tables.read(spark, kind).drop("day"))


def _is_possible(windows: pa.Table) -> Column:
    """Return whether a notification can be within any of these subscriptions' time."""
    begins = pc.min(windows["begins"]).as_py()
    ends = pc.max(windows["ends"]).as_py()
    latest = F.col("at") + F.col("doubt")
    is_possible: Column = (latest >= begins) & (F.lit(ends == FOREVER) | (F.col("at") < ends))
    return is_possible


def list_owners(matches: DataFrame) -> list[str]:
    """Return whose matches they are."""
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
