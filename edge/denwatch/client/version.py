"""Which version of denwatch this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def find_version() -> str:
    """Return the version that is installed."""
    try:
        return version("denwatch")
    except PackageNotFoundError:
        return "(not installed)"
