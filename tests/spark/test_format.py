"""`spark.read.format("denwatch")` in somebody's own session, as a notebook has it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.node.log.kinds import KINDS
from denwatch.spark.cluster_bundle import find_roots
from denwatch.spark.source import ALL, QUARANTINE, LogSource, build_schema, read_kind
from denwatch.spark.source.datasource import (
    LogReader,
    OptionError,
    PrunedLogReader,
    apply_filters,
    find_folders,
    read_folders,
)
from denwatch.spark.source.decoding import TIMES, Wanted, build_readable_schema, describe_column
from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from simulator.site import REPOSITORY
from tests.spark.logs import NOW, make_blocks, write_segment
from tests.spark.scripted_run import run_script

# A session without any of our settings: the format is found because a package says so.
NOTEBOOK = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
logs = sys.argv[1]
told = {}
frame = spark.read.format("denwatch").option("kind", "attach").load(logs)
told["types"] = dict(frame.dtypes)
told["rows"] = frame.where("node = 'north' and time >= timestamp '2001-01-01'").count()
read = spark.read.format("denwatch").option("kind", "attach")
told["list"] = read.load([f"{logs}/n", f"{logs}/s"]).count()
told["pattern"] = read.load(f"{logs}/[ns]").count()
told["uri"] = read.load(f"file://{logs}/s").count()
spark.sql(f"create temporary view a using denwatch options (path '{logs}', kind 'attach')")
told["comments"] = {row.col_name: row.comment for row in spark.sql("describe a").collect()}
told["first"] = spark.sql("select date_format(min(time), 'yyyy') y from a").first().y
query = (
    spark.readStream.format("denwatch").load(logs).writeStream.format("memory")
    .queryName("live").trigger(availableNow=True).start()
)
query.awaitTermination()
told["stream"] = spark.sql("select kind, count(*) n from live group by kind").first().n
print(json.dumps(told))
"""


def run_python(code: str, folder: Path, *arguments: str) -> str:
    """Run code as a notebook would, in a folder, with the packages as they are installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(find_roots())}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_session_of_somebody_else_reads_logs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_segment(logs / "n", make_blocks(2, 5))
    write_segment(logs / "s", make_blocks(1, 3), node="south")
    told = json.loads(run_python(NOTEBOOK, tmp_path, str(logs)).splitlines()[-1])
    assert told["types"] == {
        "node": "string",
        "epoch": "bigint",
        "number": "bigint",
        "time": "timestamp",
        "hybrid": "bigint",
        "subscriber": "string",
        "is_up": "boolean",
    }
    assert (told["rows"], told["list"], told["pattern"], told["uri"]) == (10, 13, 13, 3)
    assert told["comments"] == {
        field.name: field.metadata["comment"] for field in build_readable_schema("attach")
    }
    assert told["stream"] == 13
    assert int(str(told["first"])) > 2000


def test_the_notebook_of_the_page_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from pyspark.*?)```", page, re.S)
    run_script(tmp_path / "logs")
    write_segment(tmp_path / "logs" / "south", make_blocks(1, 3), node="extra")
    write_segment(tmp_path / "logs" / "north", make_blocks(1, 4), node="other")
    printed = run_python(code, tmp_path)
    (attached,) = re.findall(r"\|\s*attach\|\s*(\d+)\|", printed)
    folders = [tmp_path / "logs" / "north", tmp_path / "logs" / "south"]
    assert int(attached) == read_kind(spark, folders, "attach").count() >= 7
    assert describe_column("address") in printed


def test_the_tables_of_the_page_are_there(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from denwatch.spark import build_session.*?)```", page, re.S)
    run_script(tmp_path / "logs")
    printed = run_python(code, tmp_path)
    counts = dict(re.findall(r"\|\s*(hit|late|missed|withheld|wrong)\|\s*(\d+)\|", printed))
    assert counts == {"hit": "4", "late": "5", "missed": "4", "withheld": "2", "wrong": "1"}
    assert "tables, such as matches: all matches of global matching" in printed


def test_every_column_of_every_kind_has_a_comment() -> None:
    for kind in (*KINDS, QUARANTINE, ALL):
        schema = build_readable_schema(kind)
        assert schema.names == build_schema(kind).names
        for field in schema:
            assert field.metadata["comment"] == describe_column(field.name)
            assert isinstance(field.dataType, TimestampType) == (field.name in TIMES)


def test_ids_are_what_people_see(spark: SparkSession, tmp_path: Path) -> None:
    run_script(tmp_path)
    notes = spark.read.format("denwatch").option("kind", "note").load(str(tmp_path))
    shown = {(row.node, row.number): row for row in notes.collect()}
    raw = {(row.node, row.number): row for row in read_kind(spark, [tmp_path], "note").collect()}
    assert shown.keys() == raw.keys()
    assert shown
    for key, row in raw.items():
        assert shown[key].item == f"{row.item % (1 << 64):016x}"
        assert shown[key].at.timestamp() == pytest.approx(row.at / 1000, abs=1e-3)
    sent = spark.read.format("denwatch").option("kind", "send").load(str(tmp_path)).first()
    assert sent is not None
    assert all(len(each) == 16 for each in sent.subscriptions)


def test_a_clock_beyond_all_calendars_has_no_time() -> None:
    import pyarrow as pa
    from denwatch.spark.source.decoding import convert_column

    times = pa.array([0, NOW, 1 << 60, -(1 << 60), None], pa.int64())
    shown = convert_column(times, pa.timestamp("us", tz="UTC")).to_pylist()
    assert [time is None for time in shown] == [False, False, True, True, True]


def test_a_reader_prunes_only_where_the_session_allows_it(tmp_path: Path) -> None:
    schema = build_readable_schema("attach")
    options = {"path": str(tmp_path), "kind": "attach"}
    assert type(LogSource(options).reader(schema)) is LogReader
    assert type(LogSource(options | {"pushdown": "true"}).reader(schema)) is PrunedLogReader


def test_a_filter_by_timestamp_leaves_out_nothing_that_fits() -> None:
    from datetime import UTC, datetime

    from pyspark.sql.datasource import GreaterThan, LessThan

    moment = datetime.fromtimestamp(NOW / 1000, UTC).replace(microsecond=1500)
    ms = int(moment.timestamp()) * 1000 + 1
    wanted = apply_filters(Wanted(), [LessThan(("time",), moment), GreaterThan(("time",), moment)])
    assert (wanted.since, wanted.until) == (ms + 1, ms + 1)
    assert apply_filters(Wanted(), [LessThan(("time",), 7)]).until == 7


def test_paths_are_folders_lists_patterns_and_files(tmp_path: Path) -> None:
    for name in ("a", "b", "c d"):
        (tmp_path / name).mkdir()
    assert find_folders(str(tmp_path / "[ab]")) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert find_folders((tmp_path / "c d").as_uri()) == [str(tmp_path / "c d")]
    both = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert read_folders({"paths": json.dumps(both)}) == both
    assert read_folders({"path": ",".join(both)}) == both
    with pytest.raises(OptionError, match="no file or folder matches"):
        find_folders(str(tmp_path / "x*"))
    with pytest.raises(OptionError, match="read_kind and tables copy what is behind s3a: first"):
        find_folders("s3a://bucket/logs")
    with pytest.raises(OptionError, match="which folders"):
        read_folders({})
