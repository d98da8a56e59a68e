"""The logs as Parquet tables, by kind and day: decoded once, then read by whoever wants.

    tables/kind=note/day=2026-11-16/<segment>.parquet
    tables/kind=quarantine/day=2026-11-16/<segment>.parquet
    tables/plan.json

Every file comes from one piece of one segment and is named after it, so that a run that is done
again replaces files instead of adding any; a segment that has not changed is not read again.
`plan.json` is written last, and files that it does not name are removed: after a crash at any point
the next run ends with the same tables. Workers write the files themselves: the folder must be one
that all of them see, as it must for the logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.segments import write_name
from denwatch.spark.source import decoding
from denwatch.spark.source.decoding import ALL, QUARANTINE
from denwatch.spark.source.listing import Piece, Quarantined, list_segments, plan_reading
from pyspark.sql import DataFrame, SparkSession

PLAN = "plan.json"
FORMAT = 2  # of the plan and the tables; another one is built anew
_DAY = 86_400_000
_ROW_GROUP = 100_000
_TASKS, _TASK_PIECES = 4, 256  # for each core, at least; pieces of a task, at most


class RecordTables:
    """A folder of tables."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()

    def read(self, spark: SparkSession, kind: str) -> DataFrame:
        """Return the records of a kind; none if none were logged."""
        found = self.folder / f"kind={kind}"
        if not found.is_dir():
            return spark.createDataFrame([], decoding.build_schema(kind))
        return spark.read.schema(decoding.build_schema(kind)).parquet(str(found)).drop("day")

    def read_quarantine(self) -> pd.DataFrame:
        """Return what could not be read; a driver has it all, to show it."""
        schema = decoding.convert_schema(decoding.build_schema(QUARANTINE))
        files = sorted((self.folder / f"kind={QUARANTINE}").rglob("*.parquet"))
        parts = [pq.read_table(file, schema=schema, partitioning=None) for file in files]
        return pa.concat_tables([schema.empty_table(), *parts]).to_pandas()

    def update(self, spark: SparkSession, folders: Iterable[str | Path]) -> dict[str, int]:
        """Bring the tables to what the folders of logs hold; return the rows of each kind."""
        plan = plan_reading(list_segments(folders))
        old = self._load_plan()
        entries: dict[str, dict[str, Any]] = {}
        fresh: list[Piece] = []
        for piece in plan.pieces:
            name = _name_piece(piece)
            status = Path(piece.path).stat()
            stamp = [piece.path, piece.start, piece.stop, status.st_size, status.st_mtime_ns]
            if name in old and old[name]["stamp"] == stamp:
                entries[name] = old[name]
            else:
                entries[name] = {"stamp": stamp, "files": {}}
                fresh.append(piece)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, files in _write_pieces(spark, self.folder, fresh):
            entries[name]["files"] = files
        entries["problems"] = {"stamp": [], "files": self._write_problems(plan.problems)}
        self._save_plan(entries)
        self._remove_others(entries)
        counts: dict[str, int] = {}
        for entry in entries.values():
            for name, rows in entry["files"].items():
                counts[get_kind(name)] = counts.get(get_kind(name), 0) + rows
        return counts

    def _write_problems(self, problems: Sequence[Quarantined]) -> dict[str, int]:
        """Write what the listing found; one that is not read has no day: the first."""
        schema = decoding.convert_schema(decoding.build_schema(QUARANTINE))
        batch = decoding.build_problems(list(problems), schema)
        return write_tables(self.folder, [(QUARANTINE, batch)], "problems")

    def _load_plan(self) -> dict[str, dict[str, Any]]:
        try:
            plan = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        entries: dict[str, dict[str, Any]] = plan["pieces"] if plan["format"] == FORMAT else {}
        return entries

    def _save_plan(self, entries: dict[str, dict[str, Any]]) -> None:
        text = json.dumps({"format": FORMAT, "pieces": entries})
        replace_file(self.folder / PLAN, text.encode())

    def _remove_others(self, entries: dict[str, dict[str, Any]]) -> None:
        named = {name for entry in entries.values() for name in entry["files"]}
        for path in self.folder.glob("kind=*/day=*/*"):
            if path.relative_to(self.folder).as_posix() not in named:
                path.unlink()


def _name_piece(piece: Piece) -> str:
    """Return a name for a piece's files: the same when its segment is closed, or lies elsewhere."""
    return write_name(piece.node, piece.epoch, piece.start, ending="")


def _write_pieces(
    spark: SparkSession, folder: Path, pieces: list[Piece]
) -> Iterator[tuple[str, dict[str, int]]]:
    if not pieces:
        return
    context = spark.sparkContext
    tasks = min(len(pieces), max(_TASKS * context.defaultParallelism, len(pieces) // _TASK_PIECES))
    slices = context.parallelize(pieces, tasks)
    yield from slices.map(lambda piece: write_piece(piece, folder)).collect()


def write_piece(piece: Piece, folder: Path) -> tuple[str, dict[str, int]]:
    """Write the files of a piece; return its name, and the rows of each file."""
    name = _name_piece(piece)
    schemas = {
        kind: decoding.convert_schema(decoding.build_schema(kind)) for kind in (*KINDS, QUARANTINE)
    }
    batches = decoding.read_tables(piece, decoding.Wanted(ALL), schemas)
    return name, write_tables(folder, batches, name, piece.begun)


def write_tables(
    folder: Path, batches: Iterable[tuple[str, pa.RecordBatch]], stem: str, undated: int = 0
) -> dict[str, int]:
    """Write (kind, records) by kind and day; return the rows of each file.

    What is damaged has no time and goes to the day of `undated` (ms).
    """
    parts: dict[str, list[pa.RecordBatch]] = {}
    for kind, batch in batches:
        is_dated = kind != QUARANTINE
        times = batch["time"].to_pylist() if is_dated else [undated] * batch.num_rows
        days = [time // _DAY for time in times]
        for day in sorted(set(days)):
            name = f"kind={kind}/day={name_day(day * _DAY)}/{stem}.parquet"
            rows = batch.filter(pa.array([other == day for other in days]))
            parts.setdefault(name, []).append(rows)
    for name, found in sorted(parts.items()):
        write_parquet(folder / name, pa.Table.from_batches(found))
    return {name: sum(rows.num_rows for rows in found) for name, found in sorted(parts.items())}


def get_kind(name: str) -> str:
    """Return the kind whose records a file has."""
    return name.split("/")[0].removeprefix("kind=")


def name_day(ms: int) -> str:
    """Return the day of a time; clocks that are wrong by millennia get the last one there is."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return "9999-12-31" if ms > 0 else "0001-01-01"


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a file, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table, temporary, compression="zstd", row_group_size=_ROW_GROUP)
    temporary.replace(path)


def replace_file(path: Path, data: bytes) -> None:
    """Write any other file, all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
