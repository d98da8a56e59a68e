"""Versions of tables under `kill -9`: a writer without Spark, killed often, and a plain reader."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from denwatch.spark.stream.versions import VersionError, Versions

REPOSITORY = Path(__file__).resolve().parents[2]
# Each batch is three files; one of the batch before is replaced, as when small files are joined.
_WRITER = """
import sys
from pathlib import Path
from denwatch.spark.stream.versions import Versions

versions = Versions(Path(sys.argv[1]), keep=0.3)
print("ready", flush=True)
for _ in range(400):
    with versions.build() as building:
        number = building.manifest.batch + 1
        for part in "abc":
            (building.make("records", part) / f"b{number}").write_text(str(number))
        if number:
            (building.folder / "records" / "a" / f"b{number - 1}").rename(
                building.folder / "records" / "a" / f"j{number - 1}"
            )
        building.manifest.batch = number
"""


def _read(out: Path) -> dict[str, list[int]]:
    """Return the batches that a reader finds in each part, of one version."""
    version = (out / "current").resolve()
    return {
        part: sorted(int(path.read_text()) for path in (version / "records" / part).iterdir())
        for part in "abc"
        if (version / "records" / part).is_dir()
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_writer_leaves_whole_versions(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    last, looks = -1, 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        end = time.monotonic() + rng.uniform(0, 0.6)
        while time.monotonic() < end:
            try:
                found = _read(tmp_path)
            except FileNotFoundError:
                continue  # it was kept for a third of a second only, on purpose
            looks += 1
            for batches in found.values():  # every batch once, none missing, all parts alike
                assert batches == list(range(len(batches)))
            assert len({len(batches) for batches in found.values()}) <= 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        held = Versions(tmp_path)
        batch = held.read_manifest().batch
        held.close()
        assert batch >= last, "what was seen is gone"
        last = batch
        assert all(batches == list(range(batch + 1)) for batches in _read(tmp_path).values())
    assert looks > 0
    assert last > 0
    assert not list((tmp_path / "versions").glob(".partial-*"))


def test_a_second_writer_is_told_so(tmp_path: Path) -> None:
    first = Versions(tmp_path)
    with pytest.raises(VersionError, match="another"):
        Versions(tmp_path)
    first.close()
    Versions(tmp_path).close()
