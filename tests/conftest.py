"""Settings for all tests: hypothesis without deadlines, and the same examples on every CI run."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "denwatch", deadline=None, max_examples=100, derandomize="CI" in os.environ
)
settings.load_profile("denwatch")
