"""The scripts for people with a board, on unix MicroPython: they print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from itertools import zip_longest
from pathlib import Path

import pytest
from denwatch.cli.devices.images import link_library

from firmware_tests.runtimes import REPOSITORY, find_unix
from firmware_tests.support import require

SCRIPTS = sorted((REPOSITORY / "firmware_tests" / "device").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
@pytest.mark.parametrize("bits", [64, 32])
def test_script_prints_what_it_promises(script: Path, bits: int, tmp_path: Path) -> None:
    """The sources, laid out as in a device's lib/."""
    require(partial(find_unix, bits))
    link_library(tmp_path)
    done = subprocess.run(
        [str(find_unix(bits)), str(script)],
        env={**os.environ, "MICROPYPATH": f"{tmp_path}:.frozen"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("time: ")]
    assert done.returncode == 0, done.stdout
    expected = script.with_suffix(".expected").read_text(encoding="utf-8").splitlines()
    pairs = zip_longest(lines, expected, fillvalue="")
    # N stands for a number that every board has its own of.
    lines = [re.sub(r"\d+$", "N", line) if wanted.endswith("N") else line for line, wanted in pairs]
    assert lines == expected
