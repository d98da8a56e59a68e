"""Old segments go, the open one and everything else stays."""

from __future__ import annotations

from pathlib import Path

from denwatch.node.log.segments import Header, pack_header
from denwatch.node.runtime.process import remove_old_segments

DAY = 86_400_000


def test_only_closed_segments_that_are_old_enough_go(tmp_path: Path) -> None:
    for name, days in {"a.dlog": 9, "b.dlog": 6, "c.open": 30, "d.dlog": 8}.items():
        header = Header("north", 1, 1, 100 * DAY - days * DAY)
        (tmp_path / name).write_bytes(pack_header(header) + bytes(2000))
    (tmp_path / "foreign.dlog").write_bytes(b"not a segment")
    assert remove_old_segments(tmp_path, 0, 100 * DAY) == []
    assert remove_old_segments(tmp_path, 7, 100 * DAY) == ["a.dlog", "d.dlog"]
    left = ["b.dlog", "c.open", "foreign.dlog"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
