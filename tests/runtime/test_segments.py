"""Old segments go, the open one and everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

from edge.dens.runtime.segments import remove_old_segments

DAY = 86_400


def test_only_closed_segments_that_are_old_enough_go(tmp_path: Path) -> None:
    ages = {"a.dlog": 9, "b.dlog": 6, "c.open": 30, "notes.txt": 30}
    for name, days in ages.items():
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (100 * DAY - days * DAY,) * 2)
    assert remove_old_segments(tmp_path, 0, 100 * DAY) == []
    assert remove_old_segments(tmp_path, 7, 100 * DAY) == ["a.dlog"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.dlog", "c.open", "notes.txt"]
