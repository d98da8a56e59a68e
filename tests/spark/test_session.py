"""What a session is told, and what a cluster is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from argparse import Namespace
from pathlib import Path

import pytest
from denwatch.cli.errors import CommandError
from denwatch.cli.spark import explain_failure, read_conf, read_settings, require_shared
from denwatch.spark.cluster_bundle import (
    ArchiveError,
    check_archive,
    find_unseen,
    list_settings,
    pack_code,
)
from denwatch.spark.session import drop_noise, filter_errors, is_local, list_place
from pyspark.sql import SparkSession

from tests.spark.cluster import pack_environment


def test_only_local_masters_share_our_disk() -> None:
    assert is_local("local")
    assert is_local("local[*]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://host:7077")


def test_executors_get_our_packages_and_compiled_kernels_and_no_other_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from denwatch.spark.matching.job import warm_up

    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR", str(tmp_path)))
    warm_up()
    with tarfile.open(pack_code(tmp_path)) as archive:
        names = set(archive.getnames())
    assert {
        "denwatch/protocol/matching.py",
        "denwatch/node/matching/index.py",
        "denwatch/spark/daemon.py",
    } <= names
    caches = {Path(name).suffix for name in names if "__pycache__" in name}
    assert caches <= {".nbi", ".nbc"}


def test_a_cluster_on_loopback_finds_the_driver_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR", ""))
    assert list_place("spark://127.0.0.1:7077", None)["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in list_place("spark://head:7077", None)
    assert "spark.archives" not in list_place("local[2]", None)


def test_an_environment_is_looked_at_before_it_is_sent(tmp_path: Path) -> None:
    good = pack_environment(tmp_path / "good.tar.gz")
    settings = list_settings(good)
    assert settings["spark.archives"].endswith(f",{good}#environment")
    assert settings["spark.executorEnv.PATH"].startswith("environment/bin:")
    with pytest.raises(ArchiveError, match="no such file"):
        check_archive(tmp_path / "none.tar.gz")
    (tmp_path / "bad.tar.gz").write_bytes(b"hello")
    with pytest.raises(ArchiveError, match="not a tar archive"):
        check_archive(tmp_path / "bad.tar.gz")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with pytest.raises(ArchiveError, match="no bin/python"):
        check_archive(tmp_path / "empty.tar.gz")


def test_settings_of_spark_are_read_from_the_command_line() -> None:
    assert read_conf(["spark.a=b=c"]) == {"spark.a": "b=c"}
    for wrong in ("spark.a", "a=b"):
        with pytest.raises(CommandError, match="KEY=VALUE"):
            read_conf([wrong])


def test_the_page_and_the_event_log_of_spark_can_be_had(tmp_path: Path) -> None:
    asked = Namespace(conf=["spark.a=b"], ui=True, events=str(tmp_path / "events"))
    assert read_settings(asked) == {
        "spark.a": "b",
        "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    assert (tmp_path / "events").is_dir(), "Spark does not start without it"
    assert read_settings(Namespace(conf=[], ui=False, events=None)) == {}


def test_of_a_failure_the_line_is_told_that_says_something() -> None:
    worker = """[PYTHON_DATA_SOURCE_ERROR] Failed to create: Traceback (most recent call last):
      File "x.py", line 3, in read
        import pyarrow
    ModuleNotFoundError: No module named 'pyarrow'
    SQLSTATE: 38000; line 1
    at org.apache.spark.Something"""
    assert explain_failure(ValueError(worker)) == "ModuleNotFoundError: No module named 'pyarrow'"
    assert explain_failure(ValueError("[NO_TABLE] none\nmore")) == "[NO_TABLE] none"
    assert explain_failure(ValueError("")) == "ValueError"


def test_a_session_keeps_time_in_utc_and_warms_its_workers(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == "denwatch.spark.daemon"
    assert spark.sparkContext.master == "local[2]"
    require_shared(spark, [Path("/there/is/nothing")])  # one machine shares with itself
    unseen = find_unseen(spark, ["/", "/there/is/nothing"])
    assert [path for _, path in unseen] == ["/there/is/nothing"]


def test_only_noise_is_left_out_of_errors(capfd: pytest.CaptureFixture[str]) -> None:
    said = "import sys; sys.stderr.write('WARNING: Using incubator modules: x\\nreal trouble\\n')"
    with filter_errors():
        process = subprocess.Popen([sys.executable, "-c", said])
    assert process.wait(60) == 0
    told = ""
    while not told.endswith("real trouble\n"):
        told += capfd.readouterr().err
    assert told == "real trouble\n"


def test_only_the_complaint_of_an_idle_process_is_dropped() -> None:
    head = b"Traceback (most recent call last):\n"
    frame = b'  File "/x/pyspark/daemon.py", line 95\n'
    closed, other = b"BrokenPipeError: [Errno 32] Broken pipe\n", b"ValueError: no\n"
    elsewhere = b'  File "/x/ours.py", line 1\n'
    assert list(drop_noise([b"a\n", head, frame, b"    flush()\n", closed, b"b\n"])) == [
        b"a\n",
        b"b\n",
    ]
    for kept in (
        [head, frame, other],
        [head, elsewhere, frame, closed],
        [head, head, frame],
        [head],
        [closed],
    ):
        assert list(drop_noise(kept)) == kept
