"""`kill -9` of the driver at any moment, while logs arrive: nothing twice, nothing lost.

A plain reader looks at the tables all the while. So many starts of Spark take minutes: what happens
at each point of a batch, and to a writer that is killed, is in test_stream.py and
test_stream_versions.py, which run every time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.scripted_run import run_script
from tests.spark.streams import (
    NUMBERED,
    Arrival,
    Watch,
    check_equal,
    write_batch,
)

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 900.0  # s; a start of Spark on a busy machine
_COMMAND = (
    "import sys; from denwatch.cli.spark import run_stream; sys.exit(run_stream(sys.argv[1:]))"
)


class Driver:
    """The command in a process group of its own, which is killed as one."""

    def __init__(self, logs: Path, out: Path, journal: Path, *words: str) -> None:
        command = [sys.executable, "-c", _COMMAND, str(logs), "--out", str(out), *words]
        command += ["--master", "local[2]", "--strategies", "epidemic"]
        self._journal = journal
        self._file = journal.open("wb")
        self._process = subprocess.Popen(
            command,
            stdout=self._file,
            stderr=self._file,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            start_new_session=True,
        )

    def wait_for(self, words: str, seconds: float = PATIENCE) -> None:
        """Wait until it has said something."""
        end = time.monotonic() + seconds
        while words not in self.journal:
            assert self._process.poll() is None, f"it ended:\n{self.journal}"
            assert time.monotonic() < end, f"no {words!r} in {seconds:.0f} s:\n{self.journal}"
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut does: Python, Java and all workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._file.close()

    def finish(self) -> None:
        """Wait for its own end, which must be a good one."""
        status = self._process.wait(PATIENCE)
        self._file.close()
        assert status == 0, self.journal

    @property
    def journal(self) -> str:
        return self._journal.read_text(encoding="utf-8", errors="replace")


def _kill_at_random(tmp_path: Path, kills: int, rng: random.Random) -> tuple[Path, Watch]:
    """Let logs arrive while drivers are killed; return the tables, with all logs in them."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    arrival = Arrival(tmp_path / "whole", logs, rng, pieces=max(2, kills))
    arrival.step()
    with Watch(out) as watch:
        for number in range(kills):
            driver = Driver(logs, out, tmp_path / f"journal-{number}.txt", "--every", "200ms")
            try:
                driver.wait_for("following")
                # Some are killed before their first batch, some within it, some while they judge.
                time.sleep(rng.uniform(0, 3))
                if rng.random() < 0.7:
                    driver.wait_for("batch ")
                    for _ in range(3):
                        if not arrival.is_over:
                            arrival.step()
                    time.sleep(rng.uniform(0, 12))
            finally:
                driver.kill()
            if not arrival.is_over:
                arrival.step()
        while not arrival.is_over:
            arrival.step()
        last = Driver(logs, out, tmp_path / "journal-last.txt", "--once")
        last.finish()
    return out, watch


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 10])
def test_a_killed_driver_leaves_the_tables_of_the_batch(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    seed = 1116 if "CI" in os.environ else random.randrange(1 << 30)
    print(f"seed {seed}")
    run_script(tmp_path / "whole")
    out, watch = _kill_at_random(tmp_path, kills, random.Random(seed))
    assert watch.twice == []
    assert watch.looks > 0
    write_batch(spark, tmp_path / "whole", tmp_path / "batch")
    check_equal(out, tmp_path / "batch")
    with_spark = spark.read.parquet(str(out / "records"))
    batch = ds.dataset(  # beside its files lies the plan of what was written
        str(tmp_path / "batch" / "records"), partitioning="hive", exclude_invalid_files=True
    )
    assert with_spark.count() == batch.count_rows()
    assert with_spark.groupBy("kind", *NUMBERED).count().where(F.col("count") > 1).count() == 0
    assert not list((out / "versions").glob(".partial-*"))
