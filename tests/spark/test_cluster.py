"""A cluster gives the same answers as one machine, and gets all that it needs from the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster import pack_environment, start_cluster
from tests.spark.cluster_driver import SHARDED, make_site, match_all
from tests.spark.oracle import find_matches
from tests.spark.scripted_run import READINGS, run_script

ROOT = Path(__file__).parents[2]


class Told(NamedTuple):
    two: dict[str, Any]  # of two workers
    one: dict[str, Any]
    errors: str
    folder: Path


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("cluster")
    run_script(folder / "logs")
    archive = pack_environment(folder / "environment.tar.gz")
    home = folder / "home"
    home.mkdir()
    with start_cluster(folder) as master:
        command = [sys.executable, "-m", "tests.spark.cluster_driver"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, master, str(archive), str(folder / "logs")],
            capture_output=True,
            text=True,
            cwd=home,
            env=environment,
            timeout=1_800,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    two, one = map(json.loads, done.stdout.splitlines())
    return Told(two, one, done.stderr, folder)


def test_matches_are_the_same_on_one_machine_and_on_one_or_two_workers(
    told: Told, spark: SparkSession
) -> None:
    notes, subs = make_site()
    wanted = sorted(map(list, find_matches(notes, subs)))
    assert len(wanted) > 500
    here = match_all(spark, (1, 2, 7)) | match_all(spark, (2,), SHARDED)
    assert [len(found) for found in (told.two["matches"], told.one["matches"], here)] == [3, 1, 4]
    for sharded in (told.two["matches"], here):
        assert any(not name.startswith("1 shards") for name in sharded)
    for found in (told.two["matches"], told.one["matches"], here):
        for name, rows in found.items():
            assert rows == wanted, name


def test_executors_run_the_code_and_the_environment_that_the_command_sent(told: Told) -> None:
    for answer, number in ((told.two, 2), (told.one, 1)):
        homes = {home for home, *_ in answer["workers"]}
        assert len(homes) == number
        for home, file, is_packed, *_ in answer["workers"]:
            assert str(told.folder / "worker-") in home
            assert file == f"{home}/denwatch/denwatch/spark/__init__.py"
            assert is_packed
    assert len({Path(home).parents[1] for home, *_ in told.two["workers"]}) == 2


def test_executors_load_the_kernels_that_came_with_the_code(told: Told) -> None:
    for _, _, _, compiled, loaded in told.two["workers"]:
        assert (compiled, loaded > 0) == (0, True)


def test_the_command_asks_the_cluster(told: Told) -> None:
    assert told.one["code"] == 0
    assert [row["device"] for row in told.one["rows"]] == ["bed-1", "bed-2"]
    for row in told.one["rows"]:
        sent = sum(r.number is not None for r in READINGS if r.device == row["device"])
        assert row["records"] >= sent  # and once more wherever it was carried


def test_what_executors_do_not_see_is_found(told: Told) -> None:
    assert [path for _, path in told.two["unseen"]] == ["/there/is/nothing"]


def test_nothing_is_said_and_nothing_is_left_behind(told: Told) -> None:
    assert told.errors == ""
    assert list((told.folder / "home").iterdir()) == []


@pytest.mark.slow
def test_an_analysis_loses_a_worker_and_ends_with_the_same_tables(tmp_path: Path) -> None:
    run_script(tmp_path / "logs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "denwatch.cli", "analyze", str(tmp_path / "logs"), "--out"]
    here = [*command, str(tmp_path / "here"), "--master", "local[2]"]
    subprocess.run(here, cwd=tmp_path, env=environment, check=True)
    workers: list[subprocess.Popen[bytes]] = []
    with start_cluster(tmp_path, 2, workers) as master:
        running = subprocess.Popen(
            [*command, str(tmp_path / "there"), "--master", master],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        told = []
        for line in running.stderr:
            told.append(line)
            if " 2/4 computing " in line:  # the first table is written, others are to come
                workers[0].kill()  # its executor ends with it
        assert running.wait() == 0, "".join(told)
        assert workers[0].wait() != 0
    names = {path.name for path in (tmp_path / "here" / "tables").glob("*.csv")}
    assert {"headline.csv", "causes.csv", "regions.csv"} <= names
    for name in names:
        texts = ((tmp_path / out / "tables" / name).read_text() for out in ("here", "there"))
        first, second = (sorted(text.splitlines()) for text in texts)
        assert first == second, name
    for name in ("outcomes", "matches", "decisions"):
        frames = (
            pd.read_parquet(tmp_path / out / "tables" / f"{name}.parquet")
            for out in ("here", "there")
        )
        rows = [sorted(map(repr, frame.to_numpy().tolist())) for frame in frames]
        assert rows[0] == rows[1], name
