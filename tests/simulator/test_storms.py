"""Storms in their short form, over real processes; the long ones are `make storms`.

docs/simulator.md shows the command; `test_a_node_outlives_a_small_storm` runs what it runs.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from firmware_tests.support import refuse
from simulator.storms.__main__ import run_storm
from simulator.storms.faults import FAILING, Faults, FaultsMissing, Number, flip_bit
from simulator.storms.known_defects import KNOWN_BREAKS
from simulator.storms.storms import STORMS, Storm

# In one worker: each has a node of its own, and they are about what a machine can bear.
pytestmark = pytest.mark.xdist_group("storms")
QUICK = ("half-open-tls", "full-disk", "power-cuts", "altered-reading", "clock-2107")


def make_faults(folder: Path, data: Path) -> Faults:
    """Return faults, or skip where there is no compiler, which CI has."""
    try:
        return Faults(folder, data)
    except FaultsMissing as error:
        refuse(str(error))


def check_storm(storm: Storm, folder: Path, *, is_short: bool) -> None:
    if storm.has_faults:
        make_faults(folder, folder)
    report = run_storm(storm, folder, is_short=is_short)
    assert not report.new, report.broken
    assert not report.mended, f"{report.mended}: mended, take it off the list of known defects"


@pytest.mark.parametrize("storm", [s for s in STORMS if s.name in QUICK], ids=lambda s: s.name)
def test_a_node_outlives_a_small_storm(storm: Storm, tmp_path: Path) -> None:
    check_storm(storm, tmp_path, is_short=True)


@pytest.mark.slow
@pytest.mark.parametrize("storm", STORMS, ids=lambda s: s.name)
def test_a_node_outlives_a_storm(storm: Storm, tmp_path: Path) -> None:
    check_storm(storm, tmp_path, is_short=False)


def test_known_defects_are_of_storms_that_exist() -> None:
    assert {known.storm for known in KNOWN_BREAKS} <= {storm.name for storm in STORMS}
    assert set(QUICK) <= {storm.name for storm in STORMS}


# The faults themselves ------------------------------------------------------------------------


def run_below(faults: Faults, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*faults.prefix, sys.executable, "-c", script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


WRITE = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for text in sys.argv[2:]:
    os.write(file, text.encode())
    if text.isupper():
        os.fsync(file)
"""


def test_what_is_not_synced_is_lost_and_what_is_synced_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    faults = make_faults(tmp_path, data)
    path = data / "file"
    path.write_bytes(b"before-")
    faults.begin_notes()
    assert run_below(faults, WRITE, str(path), "ONE", "two", "three").returncode == 0
    assert path.read_bytes() == b"ONEtwothree"
    assert faults.lose_unsynced() == 2
    assert path.read_bytes() == b"ONEore-"


def test_a_lying_sync_keeps_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    faults = make_faults(tmp_path, data)
    faults.begin_notes()
    faults.set(Number.SYNCS, 1)
    assert run_below(faults, WRITE, str(data / "file"), "ONE", "TWO").returncode == 0
    assert faults.lose_unsynced() == 2
    assert (data / "file").read_bytes() == b""


def test_each_fault_reaches_a_program(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    faults = make_faults(tmp_path, data)
    path = str(data / "file")
    faults.set(Number.WRITES, 1)
    assert "No space left" in run_below(faults, WRITE, path, "one", "two").stderr
    assert (data / "file").read_bytes() == b"one"
    faults.calm()
    faults.set(Number.ROOM, 4)
    assert "No space left" in run_below(faults, WRITE, path, "four", "more").stderr
    faults.calm()
    faults.set(Number.SYNCS, FAILING)
    assert "Input/output error" in run_below(faults, WRITE, path, "ONE").stderr
    faults.calm()
    faults.set(Number.TEAR, 1)
    assert run_below(faults, WRITE, path, "abc", "defg", "h").returncode == -9
    assert (data / "file").read_bytes().startswith(b"abcde")
    faults.calm()
    faults.set(Number.READS, 0)
    reading = "import os, sys; os.read(os.open(sys.argv[1], os.O_RDONLY), 1)"
    assert "Input/output error" in run_below(faults, reading, path).stderr
    faults.calm()
    faults.set(Number.OPENS, 24)
    assert "Too many open files" in run_below(faults, reading, path).stderr
    faults.calm()
    faults.set(Number.CLOCK, 10**9)
    ahead = run_below(faults, "import time; print(int(time.time()))").stdout
    assert int(ahead) > 2_700_000_000
    faults.calm()
    elsewhere = run_below(faults, WRITE, str(tmp_path / "other"), "one")
    assert elsewhere.returncode == 0, elsewhere.stderr


def test_sqlite_meets_the_faults(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    faults = make_faults(tmp_path, data)
    script = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("CREATE TABLE t (a)")
connection.execute("INSERT INTO t VALUES (1)")
"""
    faults.set(Number.WRITES, 3)
    assert "full" in run_below(faults, script, str(data / "a.db")).stderr
    faults.calm()
    assert run_below(faults, script, str(data / "b.db")).returncode == 0
    assert faults.get(Number.DONE_SYNCS) > 0
    rows = sqlite3.connect(data / "b.db").execute("SELECT a FROM t").fetchall()
    assert rows == [(1,)]


def test_a_flipped_bit_is_one_bit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    flip_bit(path, 1, 1)
    assert path.read_bytes() == b"a`c"
