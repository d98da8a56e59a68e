"""Which version of denwatch this is, and of which commit."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_HERE = Path(__file__).resolve().parent


@cache  # a node asks with every status, and may have no file left to look it up
def find_version() -> str:
    """Return the version that is installed."""
    try:
        return version("denwatch")
    except PackageNotFoundError:
        return "(not installed)"


def find_commit() -> str:
    """Return the commit of what runs: written at the build, or the checkout's; else nothing.

    A checkout that differs from its commit has "+" behind it.
    """
    built = _HERE / "commit.txt"
    if built.exists():
        return built.read_text(encoding="utf-8").strip()
    repository = _HERE.parents[2]
    if not (repository / ".git").exists():
        return ""
    words = ("describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=12")
    command = ["git", "-C", str(repository), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
