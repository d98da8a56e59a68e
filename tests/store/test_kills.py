"""`kill -9` of a real process at random moments: nothing that it reported as committed is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from denwatch.node.store import Store

from tests.store.killed import KEPT

ROOT = Path(__file__).parents[2]


def run_and_kill(path: Path, delay: float) -> tuple[int, int]:
    """Return the epoch and the last number that the process reported before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.killed", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(delay)
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    whole = rest.split("\n")[:-1]  # a torn last line was not said
    return int(first.split()[1]), int(whole[-1]) if whole else 0


def check(path: Path, reported: int, epoch: int) -> int:
    """Open what is left and hold it against itself and what was reported."""
    with Store(path, "north", check="full") as store:
        assert store.epoch == epoch + 1
        number = int.from_bytes(store.get("counter", b"") or b"", "big")
        assert number >= reported
        rows = [int.from_bytes(key, "big") for key, _ in store.scan("row")]
        assert rows == list(range(max(1, number - KEPT + 1), number + 1))
        assert store.next_number == number + 1
        records = b"".join(row.records for row in store.read_outbox(1 << 60))
        assert records == b"".join(n.to_bytes(8, "big") for n in range(1, number + 1))
        return number


def run_campaign(path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    number = 0
    for _ in range(kills):
        epoch, reported = run_and_kill(path, chance.uniform(0, 0.15))
        number = check(path, reported, epoch)
    assert number > kills  # they were killed at work


def test_nothing_reported_is_lost(tmp_path: Path) -> None:
    run_campaign(tmp_path / "n.db", 12, 1)


@pytest.mark.slow
def test_nothing_reported_is_lost_over_many_kills(tmp_path: Path) -> None:
    run_campaign(tmp_path / "n.db", 200, 2)
