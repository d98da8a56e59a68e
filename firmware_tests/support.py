"""What the pytest files of this folder share: a missing tool, and a file's run as a test.

A runtime that is missing skips the test and names the tool; where CI is set it fails, because
there every promised runtime must have run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn, TypeVar

import pytest

from firmware_tests.device_files import DeviceFile
from firmware_tests.outcome import Outcome
from firmware_tests.runtimes import MissingRuntimeError

T = TypeVar("T")


def require(find: Callable[[], T]) -> T:
    """Return what `find` finds; skip the test if the runtime is missing, fail it in CI."""
    try:
        return find()
    except MissingRuntimeError as error:
        refuse(str(error))


def refuse(reason: str) -> NoReturn:
    """Skip here, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def check_file(
    file: DeviceFile,
    run: Callable[[str], Outcome],
    record_property: Callable[[str, object], None],
) -> None:
    """Run one device file; its skips are recorded, and conftest prints them at the end."""
    if file.cpython_only is not None:
        pytest.skip(f"CPython only: {file.cpython_only}")
    outcome = run(file.module)
    for test, reason in outcome.skips:
        record_property("device_skip", f"{file.path}: {test}: {reason}")
    assert outcome.is_ok, outcome.output
    if outcome.passed == 0:
        pytest.skip(f"every test skipped: {outcome.skips[0][1]}")
