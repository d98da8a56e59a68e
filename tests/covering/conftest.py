"""Every test of covering runs with the numpy kernels, and again with the compiled ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from denwatch.node.matching import compiling


@pytest.fixture(params=["numpy", "compiled"], autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which kernels a negative space uses."""
    was_ready = compiling.is_ready()
    compiling.declare_ready(request.param == "compiled")
    yield request.param
    compiling.declare_ready(was_ready)
