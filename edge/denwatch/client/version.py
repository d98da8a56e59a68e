"""Which version of denwatch this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache  # a node asks with every status, and may have no file left to look it up
def find_version() -> str:
    """Return the version that is installed."""
    try:
        return version("denwatch")
    except PackageNotFoundError:
        return "(not installed)"
