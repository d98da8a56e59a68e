"""The long form of the power cuts: thousands, in every operation of long and crowded lives."""

# cpython only: the long form runs once

from __future__ import annotations

import pytest

from tests.watchdog.cuts import run_campaign


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_thousands_of_cuts(cached: bool) -> None:
    quiet = run_campaign(range(100, 140), cached=cached)
    crowded = run_campaign(range(100, 105), crowded=True, cached=cached, steps=200)
    assert quiet > 1000
    assert crowded > 2500
