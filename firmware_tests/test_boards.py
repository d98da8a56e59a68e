"""The whole watchdog on emulated boards, against a real node: `make boards` builds and runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from firmware_tests.boards.emulator import MODELS, BoardModel, find_firmware
from firmware_tests.boards.site import run_watchdog
from firmware_tests.support import require

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.architecture)
def test_a_board_sends_what_somebody_wants(model: BoardModel, tmp_path: Path) -> None:
    """Four notifications reach an app, and the board kept back what nobody asked for."""
    require(partial(find_firmware, model))
    values, report = run_watchdog(model, tmp_path, 4)
    assert len(values) == 4
    assert all(value > 38.5 for value in values), values
    assert report["rounds"] > report["matched"]
    assert report["restarts"] == 0
