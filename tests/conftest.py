"""Settings for all tests: hypothesis without deadlines, and the same examples on every CI run."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

# Whoever has logged in on this machine is nobody here.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="denwatch-config-")
os.environ.pop("DENWATCH_PROFILE", None)

settings.register_profile(
    "denwatch", deadline=None, max_examples=100, derandomize="CI" in os.environ
)
settings.load_profile("denwatch")
