"""The random source that tests pass to finders whose answer must not depend on it."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def rng() -> np.random.Generator:
    """Return a generator, one for all: hypothesis refuses a fixture for each test."""
    return np.random.default_rng(20)
