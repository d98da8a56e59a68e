"""`import denwatch.spark` as a notebook does it: beside a folder `backend/` of somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import denwatch.spark
import pytest
from denwatch.spark.cluster_bundle import find_roots
from pyspark.sql import SparkSession

from tests.spark.logs import make_blocks, write_segment
from tests.spark.scripted_run import run_script

FOREIGN = ("backend", "protocol", "edge", "spark")


def run_beside_foreign_folders(folder: Path, code: str) -> str:
    """Run code in a folder that has packages with the names of our roots."""
    for name in FOREIGN:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('somebody else\\'s')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(find_roots())}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '')\n{code}"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_imports_beside_other_folders_named_backend(tmp_path: Path) -> None:
    code = (
        "import denwatch.spark\n"
        "assert 'pyspark' not in sys.modules, 'names are imported when they are used'\n"
        "from denwatch.spark import analyze, build_session, match_globally, read_kind, tables\n"
        "print(denwatch.spark.__file__)"
    )
    printed = run_beside_foreign_folders(tmp_path, code)
    assert Path(printed.strip()) == Path(denwatch.spark.__file__)


def test_every_public_name_is_there() -> None:
    assert set(denwatch.spark.__all__) <= set(dir(denwatch.spark))
    for name in denwatch.spark.__all__:
        assert getattr(denwatch.spark, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'desk'"):
        denwatch.spark.desk  # noqa: B018 - looking it up is the test


def test_logs_are_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    write_segment(tmp_path, make_blocks(2, 3))
    assert denwatch.spark.read_kind(spark, [tmp_path], "attach").count() == 6
    assert denwatch.spark.read_kind(spark, [tmp_path.as_uri()], "attach").count() == 6


def test_every_table_is_a_data_frame_with_one_type_of_ids(
    spark: SparkSession, tmp_path: Path
) -> None:
    from denwatch.spark import tables

    run_script(tmp_path)
    found = tables(spark, tmp_path.as_uri())  # as from any storage
    assert {"outcomes", "matches", "stories", "quarantine", "log_note"} <= set(found)
    assert found.describe()["matches"] == "all matches of global matching"
    notes = {row["item"] for row in found["log_note"].collect()}
    matched = {row["notification_id"] for row in found["matches"].collect()}
    assert matched
    assert matched <= notes
    assert found["log_suppress"].schema["subscriptions"].dataType.simpleString() == "array<string>"
    ids = ("notification_id", "subscription_id", "story_id", "closing")
    for name in ("stories", "failures", "services"):
        types = {f.name: f.dataType.simpleString() for f in found[name].schema}
        assert {types[column] for column in ids if column in types} == {"string"}, name
