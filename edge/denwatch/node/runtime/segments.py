"""Removes log segments that are old enough, so that a node's disk does not fill with its past.

Old is judged by the time in a segment's own header, which is the node's timeline: a machine's clock
that is set right after years must not make everything look old at once.
"""

from __future__ import annotations

from pathlib import Path

from denwatch.node.log import read_header
from denwatch.node.log.segments import CLOSED

_DAY = 86_400_000  # ms
_HEAD = 1024  # bytes that hold a header


def remove_old_segments(folder: Path, keep_days: int, now: int) -> list[str]:
    """Remove closed segments begun so many days before `now`; return their names."""
    if not keep_days:
        return []
    removed = []
    for path in sorted(folder.glob(f"*{CLOSED}")):
        with path.open("rb") as file:
            header = read_header(file.read(_HEAD))
        if header is not None and now - header.time > keep_days * _DAY:
            path.unlink()
            removed.append(path.name)
    return removed
