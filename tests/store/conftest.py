"""Every test that takes `place` runs on the disk and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.places import DiskPlace, MemoryPlace, Place


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place = DiskPlace(tmp_path) if request.param == "disk" else MemoryPlace()
    yield made
    made.clean()
