"""The source within Spark: batches, pruning, quarantine, and streams that go on where they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from denwatch.spark.record_tables import RecordTables
from denwatch.spark.source import (
    ALL,
    QUARANTINE,
    KindError,
    is_start_timeout,
    read_kind,
    stream_kind,
)
from denwatch.spark.source.datasource import (
    GoneError,
    LogStreamReader,
    PrunedLogReader,
    apply_filters,
)
from denwatch.spark.source.decoding import Wanted
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.logs import NOW, attach, make_blocks, write_segment

DAY = 86_400_000


def test_a_batch_reads_all_nodes_and_prunes(spark: SparkSession, tmp_path: Path) -> None:
    write_segment(tmp_path / "n", make_blocks(2, 5))
    write_segment(tmp_path / "s", make_blocks(1, 3), node="south", is_closed=False)
    (tmp_path / "s" / "readme.txt").write_text("not ours")
    folders = [tmp_path / "n", tmp_path / "s"]
    found = read_kind(spark, folders, "attach", columns=["number", "node", "time"])
    assert found.columns == ["node", "number", "time"]
    assert found.count() == 13
    late = found.where(f"node = 'north' and time >= {NOW + 9}").collect()
    assert sorted(row.number for row in late) == [9, 10]
    assert read_kind(spark, folders, "note").count() == 0
    (foreign,) = read_kind(spark, folders, QUARANTINE).collect()
    assert (foreign["class"], Path(foreign.file).name) == ("foreign", "readme.txt")
    wide = read_kind(spark, folders, ALL).groupBy("kind").count().collect()
    assert {row.kind: row["count"] for row in wide} == {"attach": 13, "quarantine": 1}
    with pytest.raises(KindError, match="has no columns"):
        read_kind(spark, folders, "attach", columns=["colour"])


def test_filters_leave_out_files_and_blocks(tmp_path: Path) -> None:
    from denwatch.spark.source import build_schema
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual

    write_segment(tmp_path, make_blocks(3, 5))
    write_segment(tmp_path, make_blocks(1, 3), node="south")
    reader = PrunedLogReader({"path": str(tmp_path), "kind": "attach"}, build_schema("attach"))
    filters = [EqualTo(("node",), "north"), GreaterThan(("time",), NOW + 5)]
    assert list(reader.pushFilters(filters)) == filters  # Spark looks again
    (task,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(task)] == [5, 5]
    wanted = apply_filters(Wanted(), [In(("node",), ("a", "b")), LessThanOrEqual(("time",), 7)])
    assert wanted == Wanted(until=8, nodes=frozenset("ab"))


class Stream:
    """The stream's reader driven as Spark drives it."""

    def __init__(self, folder: Path, **options: str) -> None:
        from denwatch.spark.source import build_schema

        chosen = {"path": str(folder), "kind": ALL, **options}
        self.reader = LogStreamReader(chosen, build_schema(ALL))
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def plan(self) -> dict[str, Any]:
        return self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())

    def read(self, end: dict[str, Any]) -> list[tuple[str, int | None]]:
        rows = []
        for task in self.reader.partitions(self.offset, end):
            for batch in self.reader.read(task):
                rows += [(row["kind"], row["number"]) for row in batch.to_pylist()]
        return sorted(rows, key=str)

    def step(self) -> list[tuple[str, int | None]]:
        end = self.plan()
        rows = self.read(end)
        self.offset = end
        return rows


def test_a_stream_reads_each_record_once_in_whatever_order_segments_come(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    assert stream.step() == []
    write_segment(tmp_path, make_blocks(1, 3, first=11), first=11)
    assert [number for _, number in stream.step()] == [11, 12, 13]
    path = write_segment(tmp_path, make_blocks(1, 4), is_closed=False)
    assert [number for _, number in stream.step()] == [1, 2, 3, 4]
    end = stream.plan()
    assert end == stream.offset
    path.unlink()  # it grew, and was closed
    write_segment(tmp_path, make_blocks(2, 4))
    end = stream.plan()
    assert [number for _, number in stream.read(end)] == [5, 6, 7, 8]
    assert [number for _, number in stream.read(end)] == [5, 6, 7, 8]  # again, after a crash
    stream.offset = end
    (tmp_path / "holiday.jpg").write_bytes(b"\xff\xd8")
    write_segment(tmp_path / "copy", make_blocks(2, 4))
    assert stream.step() == [("quarantine", None)] * 2
    assert stream.step() == []


def test_a_stream_keeps_to_its_limit_and_says_what_is_gone(tmp_path: Path) -> None:
    path = write_segment(tmp_path, make_blocks(3, 4))
    stream = Stream(tmp_path, max_records="5")
    sizes = [len(stream.step()) for _ in range(4)]
    assert sizes == [5, 5, 2, 0]
    other = Stream(tmp_path)
    end = other.plan()
    path.unlink()
    with pytest.raises(GoneError, match=r"records 1-12 of 1@north"):
        other.read(end)


def test_spark_streams_with_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    write_segment(logs, make_blocks(2, 3))

    def run(attempts: int = 10) -> list[int]:
        stream = stream_kind(spark, [logs], "attach", max_records=4)
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        try:
            assert query.awaitTermination(240)
        except StreamingQueryException as error:
            if not attempts or not is_start_timeout(error):  # the machine is too busy
                raise
            return run(attempts - 1)
        return sorted(row.number for row in spark.read.parquet(str(out)).collect())

    assert run() == [1, 2, 3, 4, 5, 6]
    write_segment(logs, make_blocks(1, 2, first=7), first=7, is_closed=False)
    assert run() == list(range(1, 9))


def test_tables_can_be_made_again_and_again(spark: SparkSession, tmp_path: Path) -> None:
    logs, tables = tmp_path / "logs", RecordTables(tmp_path / "tables")
    assert tables.read(spark, "attach").count() == 0
    open_ = write_segment(logs, make_blocks(1, 3), is_closed=False)
    two_days = [[attach(1), attach(2)]]
    write_segment(logs, two_days, node="south", time=NOW - NOW % DAY + DAY - 2)
    assert tables.update(spark, [logs]) == {"attach": 5}
    assert tables.update(spark, [logs]) == {"attach": 5}
    stored = spark.read.parquet(str(tmp_path / "tables" / "kind=attach"))
    assert stored.where("node = 'south'").select("day").distinct().count() == 2
    open_.unlink()  # it was closed meanwhile, with more in it, and one copy was damaged
    write_segment(logs, make_blocks(3, 3))
    shutil.copytree(logs, tmp_path / "more")
    (tmp_path / "more" / "broken.dlog").write_bytes(b"\x89DLG\r\n\x1a\n\x00\x09")
    stray = next((tmp_path / "tables" / "kind=attach").iterdir()) / "stray.parquet"
    stray.write_bytes(b"left by a crash")
    counts = tables.update(spark, [logs, tmp_path / "more"])
    assert counts == {"attach": 11, QUARANTINE: 3}
    assert not stray.exists()
    rows = tables.read(spark, "attach").select("node", "number").collect()
    assert len(rows) == len(set(rows)) == 11
    reasons = {row["class"] for row in tables.read(spark, QUARANTINE).collect()}
    assert reasons == {"duplicate", "damage"}
