"""Which files are read, and that every record and every damage is told once. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from denwatch.spark.source import listing
from denwatch.spark.source.decoding import (
    ALL,
    QUARANTINE,
    KindError,
    Wanted,
    build_problems,
    build_schema,
    convert_schema,
    name_column,
    read_piece,
)
from denwatch.spark.source.listing import list_segments, plan_reading

from tests.log.samples import CATALOGUE
from tests.spark.logs import NOW, attach, make_blocks, pack_segment, write_segment

Row = dict[str, Any]


def read(folder: Path, kind: str, **times: int) -> list[Row]:
    plan = plan_reading(list_segments([folder]))
    schema = convert_schema(build_schema(kind))
    rows: list[Row] = []
    if kind == QUARANTINE and plan.problems:
        rows += build_problems(plan.problems, schema).to_pylist()
    for piece in plan.pieces:
        batches = read_piece(piece, Wanted(kind, **times), schema)
        rows += pa.Table.from_batches(batches, schema).to_pylist()
    return rows


def test_every_kind_comes_back_with_its_fields(tmp_path: Path) -> None:
    write_segment(tmp_path, [list(CATALOGUE)])
    for number, (kind, fields) in enumerate(CATALOGUE, 1):
        row = next(row for row in read(tmp_path, kind) if row["number"] == number)
        assert (row["node"], row["epoch"], row["time"]) == ("north", 1, NOW + number)
        for name, value in ((name_column(field), fields[field]) for field in fields):
            if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 63:
                value -= 1 << 64
            if isinstance(value, list):
                value = [v - (1 << 64) if isinstance(v, int) and v >> 63 else v for v in value]
            if isinstance(value, dict):
                assert '"top": 3' in row[name]
            else:
                assert row[name] == value, (kind, name)
    wide = read(tmp_path, ALL)
    assert [row["kind"] for row in sorted(wide, key=lambda r: r["number"])] == [
        kind for kind, _ in CATALOGUE
    ]


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KindError, match=r"no kind 'notes'.*note, match"):
        build_schema("notes")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_segment_may_be_cut_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(listing, "PIECE_RECORDS", size)
    path = write_segment(tmp_path, make_blocks(6, 5))
    data = bytearray(path.read_bytes())
    third = data.index(b"\xd5DB\x1f", data.index(b"\xd5DB\x1f", data.index(b"\xd5DB\x1f") + 1) + 1)
    data[third + 70] ^= 1  # in the body of the third block
    path.write_bytes(data)
    numbers = [row["number"] for row in read(tmp_path, "attach")]
    assert numbers == [*range(1, 11), *range(16, 31)]
    (lost,) = read(tmp_path, QUARANTINE)
    assert (lost["class"], lost["first"], lost["length"]) == ("damage", 11, 5)
    assert "CRC" in lost["reason"]


def test_an_open_segment_is_read_to_its_last_whole_block(tmp_path: Path) -> None:
    path = write_segment(tmp_path, make_blocks(3, 4), is_closed=False)
    path.write_bytes(path.read_bytes()[:-3])
    assert [row["number"] for row in read(tmp_path, "attach")] == list(range(1, 9))
    assert read(tmp_path, QUARANTINE) == []


def test_a_closed_segment_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = write_segment(tmp_path, make_blocks(3, 4))
    footer = path.read_bytes().rindex(b"\xd5DB\x1f")
    path.write_bytes(path.read_bytes()[: footer - 3])
    assert [row["number"] for row in read(tmp_path, "attach")] == list(range(1, 9))
    (lost,) = read(tmp_path, QUARANTINE)
    assert lost["first"] == 9
    assert "footer is missing" in lost["reason"]


def test_what_is_no_segment_is_told_and_not_read(tmp_path: Path) -> None:
    data = bytearray(pack_segment(make_blocks(1, 2)))
    data[9] = 2
    (tmp_path / "north-0000000001-00000000000000000001.dlog").write_bytes(data)
    (tmp_path / "north-0000000001-00000000000000000009.dlog").write_bytes(b"GIF89a")
    (tmp_path / "north-0000000001-00000000000000000099.open").write_bytes(b"")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "notes.txt").write_text("shopping")
    found = {Path(row["file"]).name[-8:]: row for row in read(tmp_path, QUARANTINE)}
    assert set(found) == {"001.dlog"[-8:], "009.dlog"[-8:], "otes.txt"}
    assert "the format 2" in found["001.dlog"]["reason"]
    assert found["009.dlog"]["class"] == found["otes.txt"]["class"] == "foreign"
    assert read(tmp_path, "attach") == []


def test_records_collected_twice_are_read_once(tmp_path: Path) -> None:
    write_segment(tmp_path / "a", make_blocks(4, 5))
    write_segment(tmp_path / "b", make_blocks(2, 5), is_closed=False)
    write_segment(tmp_path / "c", make_blocks(4, 5, first=16), first=16)
    write_segment(tmp_path / "c", make_blocks(1, 5), epoch=2)
    numbers = sorted((row["epoch"], row["number"]) for row in read(tmp_path, "attach"))
    assert numbers == [*((1, n) for n in range(1, 36)), *((2, n) for n in range(1, 6))]
    left = {row["first"]: row for row in read(tmp_path, QUARANTINE)}
    assert {row["class"] for row in left.values()} == {"duplicate"}
    assert (left[1]["length"], left[16]["length"]) == (10, 5)
    assert "all its records are in" in left[1]["reason"]


def test_times_are_kept_to_the_millisecond(tmp_path: Path) -> None:
    write_segment(tmp_path, [[attach(1), attach(2), attach(3)], [attach(4)]])
    rows = read(tmp_path, "attach", since=NOW + 2, until=NOW + 4)
    assert [row["number"] for row in rows] == [2, 3]


def test_a_record_of_a_newer_kind_is_quarantined_alone(tmp_path: Path) -> None:
    import cbor2
    from denwatch.node.log.segments import Header, pack_header, pack_records

    rows: list[list[Any]] = [[14, NOW, 0, "medic1", True], [60, NOW, 0, "?"], [14, NOW, 0, "x", 3]]
    block, _ = pack_records(b"".join(cbor2.dumps(row) for row in rows), rows, 1)
    name = "north-0000000001-00000000000000000001.open"
    (tmp_path / name).write_bytes(pack_header(Header("north", 1, 1, NOW)) + block)
    assert [row["number"] for row in read(tmp_path, "attach")] == [1]
    found = {row["first"]: row["reason"] for row in read(tmp_path, QUARANTINE)}
    assert "kind 60 is not known" in found[2]
    assert "is_up" in found[3]
