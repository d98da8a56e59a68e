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

import pyarrow as pa
import pyarrow.parquet as pq
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.segments import write_name
from denwatch.spark.source.decoding import (
    ALL,
    QUARANTINE,
    Wanted,
    build_problems,
    build_schema,
    convert_schema,
    read_tables,
)
from denwatch.spark.source.listing import Piece, Quarantined, list_segments, plan_reading
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

PLAN = "plan.json"
FORMAT = 1  # of the plan and the tables; another one is built anew
_DAY = 86_400_000
_ROW_GROUP = 100_000


class RecordTables:
    """A folder of tables."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()

    def read(self, spark: SparkSession, kind: str) -> DataFrame:
        """Return the records of a kind, with their `day`; none if none were logged."""
        # A schema of its own: the one of the kind is shared by all who read it.
        schema = StructType([*build_schema(kind).fields, StructField("day", DateType())])
        found = self.folder / f"kind={kind}"
        if not found.is_dir():
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(found))

    def count(self) -> dict[str, int]:
        """Return how many rows each kind has."""
        counts: dict[str, int] = {}
        for entry in self._load_plan().values():
            for name, rows in entry["files"].items():
                kind = name.split("/")[0].removeprefix("kind=")
                counts[kind] = counts.get(kind, 0) + rows
        return counts

    def update(self, spark: SparkSession, folders: Iterable[str | Path]) -> dict[str, int]:
        """Bring the tables to what the folders of logs hold; return the rows of each kind."""
        plan = plan_reading(list_segments(folders))
        old = self._load_plan()
        entries: dict[str, dict[str, Any]] = {}
        fresh: list[Piece] = []
        for piece in plan.pieces:
            name = _name_piece(piece)
            stamp = _stamp_piece(piece)
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
        return self.count()

    def _write_problems(self, problems: Sequence[Quarantined]) -> dict[str, int]:
        """Write what the listing found; one that is not read has no day: the first."""
        if not problems:
            return {}
        schema = convert_schema(build_schema(QUARANTINE))
        batch = build_problems(list(problems), schema)
        name = f"kind={QUARANTINE}/day=1970-01-01/problems.parquet"
        write_parquet(self.folder / name, pa.Table.from_batches([batch]))
        return {name: batch.num_rows}

    def _load_plan(self) -> dict[str, dict[str, Any]]:
        try:
            plan = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        entries: dict[str, dict[str, Any]] = plan["pieces"] if plan["format"] == FORMAT else {}
        return entries

    def _save_plan(self, entries: dict[str, dict[str, Any]]) -> None:
        temporary = self.folder / f".{PLAN}"
        temporary.write_text(json.dumps({"format": FORMAT, "pieces": entries}), encoding="utf-8")
        temporary.replace(self.folder / PLAN)

    def _remove_others(self, entries: dict[str, dict[str, Any]]) -> None:
        named = {name for entry in entries.values() for name in entry["files"]}
        for path in self.folder.glob("kind=*/day=*/*"):
            if path.relative_to(self.folder).as_posix() not in named:
                path.unlink()


def _name_piece(piece: Piece) -> str:
    """Return a name for a piece's files: the same when its segment is closed, or lies elsewhere."""
    return write_name(piece.node, piece.epoch, piece.start, ending="")


def _stamp_piece(piece: Piece) -> list[Any]:
    status = Path(piece.path).stat()
    return [piece.path, piece.start, piece.stop, status.st_size, status.st_mtime_ns]


def _write_pieces(
    spark: SparkSession, folder: Path, pieces: list[Piece]
) -> Iterator[tuple[str, dict[str, int]]]:
    if not pieces:
        return
    context = spark.sparkContext
    slices = context.parallelize(pieces, len(pieces))
    yield from slices.map(lambda piece: write_piece(piece, folder)).collect()


def write_piece(piece: Piece, folder: Path) -> tuple[str, dict[str, int]]:
    """Write the files of a piece; return its name, and the rows of each file."""
    name = _name_piece(piece)
    parts: dict[tuple[str, str], list[pa.Table]] = {}
    schemas = {kind: convert_schema(build_schema(kind)) for kind in (*KINDS, QUARANTINE)}
    for kind, batch in read_tables(piece, Wanted(ALL), schemas):
        for day, table in _split_days(kind, piece, batch):
            parts.setdefault((kind, day), []).append(table)
    files: dict[str, int] = {}
    for (kind, day), tables in sorted(parts.items()):
        path = f"kind={kind}/day={day}/{name}.parquet"
        table = pa.concat_tables(tables)
        write_parquet(folder / path, table)
        files[path] = table.num_rows
    return name, files


def _split_days(kind: str, piece: Piece, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each day: of the record, or of the segment for what is damaged."""
    table = pa.Table.from_batches([batch])
    if kind == QUARANTINE:
        yield name_day(piece.begun), table
        return
    days = [time // _DAY for time in batch.column("time").to_pylist()]
    for day in sorted(set(days)):
        name = name_day(day * _DAY)
        yield name, table.filter(pa.array([other == day for other in days]))


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
