"""Removes log segments that are old enough, so that a node's disk does not fill with its past."""

from __future__ import annotations

from pathlib import Path

from edge.dens.log.names import CLOSED

_DAY = 86_400  # s


def remove_old_segments(folder: Path, keep_days: int, now: float) -> list[str]:
    """Remove closed segments last written so many days before `now` (s); return their names."""
    if not keep_days:
        return []
    removed = []
    for path in sorted(folder.glob(f"*{CLOSED}")):
        if now - path.stat().st_mtime > keep_days * _DAY:
            path.unlink()
            removed.append(path.name)
    return removed
