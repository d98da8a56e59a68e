"""What a session is told, and what a cluster is sent."""

from __future__ import annotations

import tarfile

from pyspark.sql import SparkSession

from backend.session import is_local, pack_code


def test_only_local_masters_share_our_disk() -> None:
    assert is_local("local")
    assert is_local("local[*]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://host:7077")


def test_executors_get_our_packages_and_no_caches() -> None:
    with tarfile.open(pack_code()) as archive:
        names = set(archive.getnames())
    assert {"protocol/matching.py", "edge/dens/matching/index.py", "backend/daemon.py"} <= names
    assert not any("__pycache__" in name for name in names)


def test_a_session_keeps_time_in_utc_and_warms_its_workers(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == "backend.daemon"
    assert spark.sparkContext.master == "local[2]"
