"""The benchmarks can be run as the README says; the wire's figures, which do not depend on the
machine, keep their promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import MEASUREMENTS, PAPERS, find_module

ROOT = Path(__file__).parents[1]


def run_module(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_wire_keeps_its_sizes() -> None:
    result = json.loads(run_module("benchmarks.wire", "--json").splitlines()[-1])
    assert result["sv_bytes_3"] <= 17
    assert result["nv_bytes_3"] <= 11
    assert result["xml_over_sv_min"] >= 50


@pytest.mark.parametrize("name", [*MEASUREMENTS, *(f"papers.{paper}" for paper in PAPERS)])
def test_every_benchmark_explains_itself(name: str) -> None:
    assert "--quick" in run_module(find_module(name), "--help")
