"""Broken input: what can be read is, everything else is in quarantine with its reason."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from denwatch.node.log.segments import BLOCK, SYNC
from denwatch.spark.record_tables import RecordTables
from denwatch.spark.report.analysis import describe_quarantine
from denwatch.spark.source import QUARANTINE, build_schema, read_kind
from denwatch.spark.source.decoding import Wanted, build_problems, convert_schema, read_piece
from denwatch.spark.source.listing import Piece, list_segments, plan_reading
from pyspark.sql import SparkSession

from tests.spark.logs import NOW, make_blocks, pack_segment, write_segment

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]


def read(folders: list[Path], kind: str) -> list[Row]:
    """Read without Spark."""
    plan = plan_reading(list_segments(folders))
    schema = convert_schema(build_schema(kind))
    rows: list[Row] = []
    if kind == QUARANTINE and plan.problems:
        rows += build_problems(plan.problems, schema).to_pylist()
    for piece in plan.pieces:
        rows += read_all(piece, kind)
    return rows


def read_all(piece: Piece, kind: str, *, is_strict: bool = False) -> list[Row]:
    schema = convert_schema(build_schema(kind))
    batches = read_piece(piece, Wanted(kind), schema, is_strict=is_strict)
    rows: list[Row] = pa.Table.from_batches(batches, schema).to_pylist()
    return rows


def find_block(data: bytes, number: int) -> int:
    """Return where the so-manieth block begins, from 0."""
    place = -1
    for _ in range(number + 1):
        place = data.index(SYNC, place + 1)
    return place


def forge_block(data: bytes, number: int, **fields: int) -> bytes:
    """Return a segment with other numbers in a block's header, and a CRC that fits them."""
    names = ("type", "packing", "schema", "stored", "raw", "length")
    place = find_block(data, number)
    mark, *values, _ = BLOCK.unpack_from(data, place)
    for name, value in fields.items():
        values[names.index(name)] = value
    head = BLOCK.pack(mark, *values, 0)[:-4]
    head += struct.pack(">I", zlib.crc32(head))
    return data[:place] + head + data[place + len(head) :]


def break_everything(folder: Path) -> dict[str, tuple[str, str]]:
    """Write one of each; return by file what the quarantine must say: class, words of the reason.

    What can be read of all this: 1..20 of north, 1..4 and 9..12 of south, 1..8 of west, 1..3 of
    east, and 1..4 of far, whose clock is wrong by 50 years.
    """
    write_segment(folder / "north", make_blocks(4, 5))
    shutil.copytree(folder / "north", folder / "copy")
    south = write_segment(folder / "south", make_blocks(3, 4), node="south")
    data = bytearray(south.read_bytes())
    data[find_block(bytes(data), 1) + BLOCK.size + 5] ^= 1
    south.write_bytes(data)
    west = write_segment(folder / "west", make_blocks(3, 4), node="west")
    cut = west.read_bytes()
    west.write_bytes(cut[: find_block(cut, 2) + 11])
    east = write_segment(folder / "east", make_blocks(2, 3), node="east", is_closed=False)
    east.write_bytes(east.read_bytes()[:-9])  # the last block is on its way
    write_segment(folder / "far", make_blocks(1, 4), node="far", time=NOW - 50 * 31_556_952_000)
    newer = bytearray(pack_segment(make_blocks(1, 2), node="new"))
    newer[9] = 7
    others = {
        "new-0000000001-00000000000000000001.dlog": bytes(newer),
        "none-0000000001-00000000000000000001.dlog": b"",
        "begun-0000000001-00000000000000000001.open": b"",
        "packed-0000000001-00000000000000000001.dlog.gz": gzip.compress(cut),
        "named-0000000001-00000000000000000001.dlog": gzip.compress(cut),
        "holiday.jpg": b"\xff\xd8\xff\xe0 a photograph",
    }
    (folder / "other").mkdir()
    for name, content in others.items():
        (folder / "other" / name).write_bytes(content)
    (folder / "other" / "lost.dlog").symlink_to(folder / "nowhere")
    (folder / "other" / "again").symlink_to(folder / "other")  # a circle
    return {
        "north-0000000001-00000000000000000001.dlog": ("duplicate", "all its records are in"),
        south.name: ("damage", "the block is damaged: its CRC is wrong"),
        west.name: ("damage", "cut off within a block's header; the footer is missing"),
        "new-0000000001-00000000000000000001.dlog": ("damage", "format 7; this version reads"),
        "none-0000000001-00000000000000000001.dlog": ("damage", "empty file"),
        "packed-0000000001-00000000000000000001.dlog.gz": ("foreign", "packed with gzip"),
        "named-0000000001-00000000000000000001.dlog": ("foreign", "packed with gzip"),
        "holiday.jpg": ("foreign", "begins otherwise"),
        "lost.dlog": ("foreign", "a link to nothing"),
    }


def check_all(records: list[Row], bad: list[Row], wanted: dict[str, tuple[str, str]]) -> None:
    numbers: dict[str, list[int]] = {}
    for row in records:
        numbers.setdefault(row["node"], []).append(row["number"])
    assert {node: sorted(found) for node, found in numbers.items()} == {
        "north": list(range(1, 21)),
        "south": [1, 2, 3, 4, 9, 10, 11, 12],
        "west": list(range(1, 9)),
        "east": [1, 2, 3],
        "far": [1, 2, 3, 4],
    }
    told = {Path(row["file"]).name: row for row in bad}
    assert len(bad) == len(told), "each is told once"
    assert set(told) == set(wanted)
    for name, (class_, words) in wanted.items():
        assert told[name]["class"] == class_, name
        assert words in told[name]["reason"], name
    south, west = (
        told[f"{node}-0000000001-00000000000000000001.dlog"] for node in ("south", "west")
    )
    assert (south["first"], south["length"]) == (5, 4)
    assert (west["first"], west["length"]) == (9, None)


@pytest.mark.slow
def test_everything_broken_at_once_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    wanted = break_everything(tmp_path / "logs")
    records = [row.asDict() for row in read_kind(spark, [tmp_path / "logs"], "attach").collect()]
    bad = [row.asDict() for row in read_kind(spark, [tmp_path / "logs"], QUARANTINE).collect()]
    check_all(records, bad, wanted)
    tables = RecordTables(tmp_path / "tables")
    for _ in range(2):
        counts = tables.update(spark, [tmp_path / "logs"])
        assert counts == {"attach": 43, QUARANTINE: len(wanted)}
    records = [row.asDict() for row in tables.read(spark, "attach").collect()]
    bad = [row.asDict() for row in tables.read(spark, QUARANTINE).collect()]
    check_all(records, bad, wanted)


def test_everything_broken_at_once_without_spark(tmp_path: Path) -> None:
    wanted = break_everything(tmp_path)
    check_all(read([tmp_path], "attach"), read([tmp_path], QUARANTINE), wanted)


def test_people_are_told_how_much_of_what(tmp_path: Path) -> None:
    break_everything(tmp_path)
    columns = build_schema(QUARANTINE).names
    bad = pd.DataFrame(read([tmp_path], QUARANTINE), columns=columns)
    words = describe_quarantine(bad)
    assert words.startswith(
        "9 parts of the logs in quarantine: 4 damaged, 1 there twice, 4 foreign;"
        " 4 records are known to be lost; the first: "
    )
    assert describe_quarantine(bad[:0]) == "nothing in quarantine"


@pytest.mark.parametrize(
    ("fields", "lost", "words"),
    [
        ({"stored": 0xFFFFFFFF}, 4, "cut off within a block"),
        ({"raw": 0xFFFFFFFF}, 4, "too large"),
        ({"raw": 1 << 20}, 4, "unpacks to"),
        ({"length": 0xFFFFFFF0}, None, "does not hold 4294967280 records"),
        ({"packing": 9}, 4, "packed in the way 9"),
        ({"type": 9}, None, "type 9"),
    ],
)
def test_lengths_that_lie_cost_only_their_block(
    tmp_path: Path, fields: dict[str, int], lost: int | None, words: str
) -> None:
    path = write_segment(tmp_path, make_blocks(3, 4), is_closed=False)
    path.write_bytes(forge_block(path.read_bytes(), 1, **fields))
    numbers = [row["number"] for row in read([tmp_path], "attach")]
    assert set(numbers) >= {1, 2, 3, 4}
    assert not set(numbers) & {5, 6, 7, 8}
    bad = read([tmp_path], QUARANTINE)
    assert any(words in row["reason"] for row in bad), bad
    if lost is not None:
        assert numbers == [1, 2, 3, 4, 9, 10, 11, 12]
        assert sum(row["length"] or 0 for row in bad) == lost


@pytest.mark.parametrize("cut", range(0, 900, 61))
def test_a_segment_cut_anywhere_gives_its_whole_blocks(tmp_path: Path, cut: int) -> None:
    whole = pack_segment(make_blocks(6, 5))
    path = tmp_path / "north-0000000001-00000000000000000001.dlog"
    path.write_bytes(whole[:cut])
    numbers = [row["number"] for row in read([tmp_path], "attach")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) % 5 == 0
    bad = read([tmp_path], QUARANTINE)
    assert len(bad) == (cut < len(whole))
    open_ = path.with_suffix(".open")
    path.rename(open_)  # one that is still written may end anywhere
    assert [row["number"] for row in read([tmp_path], "attach")] == numbers
    assert read([tmp_path], QUARANTINE) == []


def test_of_two_copies_the_whole_one_is_read(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        write_segment(tmp_path / folder, make_blocks(3, 4))
    for folder in ("a", "c"):
        path = next((tmp_path / folder).iterdir())
        data = bytearray(path.read_bytes())
        data[find_block(bytes(data), 1) + BLOCK.size + 5] ^= 1
        path.write_bytes(data)
    assert len(read([tmp_path], "attach")) == 12
    bad = read([tmp_path], QUARANTINE)
    assert {row["class"] for row in bad} == {"duplicate"}
    assert {Path(row["file"]).parent.name for row in bad} == {"a", "c"}


def test_a_segment_that_is_closed_while_it_is_read_is_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path, make_blocks(2, 3), is_closed=False)
    (piece,) = plan_reading(list_segments([tmp_path])).pieces
    path.unlink()
    closed = write_segment(tmp_path, make_blocks(4, 3))
    assert [row["number"] for row in read_all(piece, "attach")] == list(range(1, 7))
    assert read_all(piece, QUARANTINE) == []
    closed.unlink()  # and gone for good
    assert read_all(piece, "attach") == []
    (lost,) = read_all(piece, QUARANTINE)
    assert (lost["first"], lost["length"]) == (1, 6)
    assert "No such file" in lost["reason"]
    with pytest.raises(FileNotFoundError):
        read_all(piece, "attach", is_strict=True)


_NOBODY = 65_534
_READ_AS_NOBODY = f"""
import json, os, sys
from denwatch.spark.source.listing import list_segments
if os.geteuid() == 0:
    os.seteuid({_NOBODY})
listing = list_segments(sys.argv[1:])
print(json.dumps([[p.file, p.class_, p.reason] for p in listing.problems]))
print(len(listing.segments))
"""


@pytest.fixture
def seen_folder() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_may_not_be_read_is_told(seen_folder: Path) -> None:
    """Root may read everything, so another process without its rights looks."""
    tmp_path = seen_folder
    write_segment(tmp_path / "open", make_blocks(1, 2))
    hidden = write_segment(tmp_path / "file", make_blocks(1, 2), node="south")
    write_segment(tmp_path / "folder", make_blocks(1, 2), node="west")
    hidden.chmod(0)
    (tmp_path / "folder").chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _READ_AS_NOBODY, str(tmp_path)],
            capture_output=True, text=True, cwd=ROOT, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        (tmp_path / "folder").chmod(0o755)
    problems, segments = map(json.loads, done.stdout.splitlines())
    reason = "cannot be read: Permission denied"
    assert sorted(problems) == [
        [str(hidden), "damage", reason],
        [str(tmp_path / "folder"), "damage", reason],
    ]
    assert segments == 1
