"""The full watchdog, connected, with 200 subscriptions and its spool, in 64 KiB of heap."""

# cpython only: it starts processes

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks.device_transport import ROUNDS, SUBSCRIPTIONS, Bench
from firmware_tests.runtimes import find_unix
from firmware_tests.support import require

HEAP = 64


@pytest.mark.parametrize("rounds", [240, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_an_hour_of_sampling(tmp_path: Path, rounds: int) -> None:
    require(partial(find_unix, 32))
    bench = Bench(tmp_path)
    try:
        bench.start_node()
        worked, output = bench.run_hour(HEAP, rounds)
    finally:
        bench.close()
    assert worked, output
    answer = json.loads(output.splitlines()[-1])
    assert answer["lowest"] > 0
    assert answer["report"]["rounds"] == rounds
    assert answer["report"]["uplink"]["installed"] == SUBSCRIPTIONS
    assert answer["report"]["spool"] == {
        "waiting": 0, "dropped": 0, "undated": 0, "damaged": 0, "errors": 0
    }  # fmt: skip
