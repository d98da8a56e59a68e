"""Runs test files on the unix port of MicroPython, 64 or 32 bit, with any heap.

Only this file starts the unix MicroPython.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from firmware_tests.outcome import Outcome, read_outcome
from firmware_tests.runtimes import LIBRARY, REPOSITORY, find_library, find_unix

# Generous: a loaded machine must not look like a failing test.
TIME_LIMIT = 600


def run_code(
    code: str,
    bits: int,
    root: Path = REPOSITORY,
    heap: str | None = None,
    prefix: tuple[str, ...] = (),
) -> tuple[str, int]:
    """Run a program with `root` and the device's unittest on the path; (output, exit code)."""
    command = [*prefix, str(find_unix(bits))]
    if heap is not None:
        command += ["-X", f"heapsize={heap}"]
    environment = {**os.environ, "MICROPYPATH": f"{LIBRARY}:{find_library()}:{root}:.frozen"}
    try:
        done = subprocess.run(
            [*command, "-c", code],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{_decode(error.stdout)}\nstopped after {TIME_LIMIT} s", 1
    return _decode(done.stdout), done.returncode


def run_module(module: str, bits: int, root: Path = REPOSITORY, heap: str | None = None) -> Outcome:
    """Run one test file by its dotted name, for example `tests.protocol.test_fuzzify`."""
    code = f"import unittest; unittest.main({module!r})"
    return read_outcome(*run_code(code, bits, root, heap))


def read_version(bits: int) -> str:
    """Return for example `1.25`."""
    code = "import sys; print('%d.%d' % sys.implementation.version[:2])"
    return run_code(code, bits)[0].strip()


def _decode(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")
