"""Logs behind one of Hadoop's file systems, as Spark's own client reads them: here `file:`."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.spark.record_tables import RecordTables
from denwatch.spark.source.storage import StorageError, fetch_logs
from pyspark.sql import SparkSession

from tests.spark.logs import make_blocks, write_segment


def test_only_new_segments_are_copied_and_decoded(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "there"
    write_segment(logs / "north", make_blocks(2, 10))
    growing = write_segment(logs / "south", make_blocks(1, 5), "south", is_closed=False)
    uri = logs.as_uri()
    kept = RecordTables(tmp_path / "records")

    def bring() -> tuple[int, int]:
        folders, copied = fetch_logs(spark, [uri], tmp_path / "here")
        return copied, kept.update(spark, folders)["attach"]

    assert bring() == (2, 25)
    assert bring() == (0, 25)
    growing.unlink()  # it was closed, with more in it
    write_segment(logs / "south", make_blocks(2, 5), "south")
    assert bring() == (1, 30)
    assert not list((tmp_path / "here").rglob("*.open"))


def test_a_storage_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    uri = (tmp_path / "elsewhere").as_uri()
    with pytest.raises(StorageError, match=r"elsewhere: .*FileNotFoundException"):
        fetch_logs(spark, [uri], tmp_path / "here")
    with pytest.raises(StorageError, match=r"teleport://x/logs: .*teleport"):
        fetch_logs(spark, ["teleport://x/logs"], tmp_path / "here")
