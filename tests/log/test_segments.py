"""Reading segments: whole, cut at every byte, flipped in every bit, foreign, and of the future."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import cbor2
import pytest
from denwatch.node.log import (
    SCHEMA,
    Block,
    Contents,
    build_mask,
    decode_columns,
    decode_records,
    read_footer,
    read_header,
    read_segment,
)
from denwatch.node.log.segments import (
    BLOCK,
    FORMAT,
    MAGIC,
    PREAMBLE,
    SYNC,
    pack_array_head,
    pack_header,
    pack_records,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.log.building import HEADER, Entry, build_block, build_segment, read_all
from tests.log.samples import CATALOGUE, NOW, make_note

GROUPS: list[list[Entry]] = [
    CATALOGUE,
    [("note", make_note(i)) for i in range(40)],
    [("attach", {"subscriber": "m", "is_up": True})],
]
SMALL: list[list[Entry]] = [
    [("attach", {"subscriber": f"m{i}", "is_up": True}), ("stop", {"reason": "x" * i})]
    for i in range(3)
]


def test_a_whole_segment() -> None:
    data, ends = build_segment(GROUPS)
    contents = read_segment(data, is_closed=True)
    assert contents.header == HEADER
    assert contents.damages == []
    assert (contents.end, contents.pending) == (len(data), 0)
    records, damages = read_all(contents)
    assert damages == []
    entries = [entry for group in GROUPS for entry in group]
    assert [record.number for record in records] == list(range(11, 11 + len(entries)))
    assert [record.kind for record in records] == [kind for kind, _ in entries]
    for record, (_, fields) in zip(records, entries, strict=True):
        said = {name: value for name, value in record.fields.items() if value is not None}
        assert said == fields
        assert (record.node, record.epoch, record.schema) == ("north", 3, SCHEMA)
        assert record.time == NOW + record.number
    footer = contents.footer
    assert footer is not None
    assert footer.next == contents.next == 11 + len(entries)
    assert footer.records == len(entries)
    assert [entry.offset for entry in footer.blocks] == ends[:-2]
    assert (footer.earliest, footer.latest) == (NOW + 11, NOW + 10 + len(entries))


def test_header_and_footer_can_be_read_alone() -> None:
    data, ends = build_segment(GROUPS)
    assert read_header(data[:100]) == HEADER
    assert read_footer(data[ends[-2] :]) == read_segment(data, is_closed=True).footer
    assert read_footer(data[-20:]) is None
    assert read_footer(b"") is None
    assert read_footer(data[:-1]) is None
    assert read_header(b"hello world, this is nothing") is None


def test_cut_at_every_byte_while_open() -> None:
    """Whole blocks are there, the rest waits; nothing is damage."""
    data, ends = build_segment(SMALL)
    for size in range(len(data)):
        contents = read_segment(data[:size], is_closed=False)
        records, damages = read_all(contents)
        assert damages == []
        whole = sum(1 for end in ends[1:-1] if end <= size)
        assert len(records) == 2 * whole
        assert contents.footer is None
        assert contents.end == max([0, *(end for end in ends[:-1] if end <= size)])
        assert contents.pending == size - contents.end
        if size >= ends[0]:
            assert contents.next == 11 + 2 * whole


def test_cut_at_every_byte_when_closed() -> None:
    """Whole blocks are there, and every cut is damage with its place, even between blocks."""
    data, ends = build_segment(SMALL)
    for size in range(len(data)):
        contents = read_segment(data[:size], is_closed=True)
        whole = sum(1 for end in ends[1:-1] if end <= size)
        assert len(read_all(contents)[0]) == 2 * whole
        assert len(contents.damages) == 1
        damage = contents.damages[0]
        assert damage.offset + damage.size == size
        assert damage.offset == max([0, *(end for end in ends[:-1] if end <= size)])
        if size == 0:
            assert damage.reason == "empty file"
        elif size < ends[0]:
            assert damage.reason == "cut off within the segment's header"
        else:
            assert damage.first == 11 + 2 * whole
            assert "the footer is missing" in damage.reason


def list_lost(contents: Contents) -> set[int]:
    """Return the numbers that the damages name."""
    return {
        number
        for damage in contents.damages
        if damage.first is not None
        for number in range(damage.first, damage.first + (damage.length or 0))
    }


@given(st.integers(min_value=0), st.integers(0, 7))
def test_a_flipped_bit_is_found_and_costs_one_block(place: int, bit: int) -> None:
    data, ends = build_segment(SMALL)
    place %= len(data)
    broken = bytearray(data)
    broken[place] ^= 1 << bit
    contents = read_segment(bytes(broken), is_closed=True)
    records, damages = read_all(contents)
    assert damages
    assert all(damage.reason for damage in damages)
    numbers = {record.number for record in records}
    if place < ends[0]:
        assert not records
    elif place < ends[-2]:
        assert len(numbers) == 4
        assert numbers | list_lost(contents) == set(range(11, 17))
        assert damages[0].offset <= place < damages[0].offset + damages[0].size
    else:
        assert numbers == set(range(11, 17))


@given(st.binary(max_size=300))
def test_rubbish_behind_or_within_never_breaks_the_reader(rubbish: bytes) -> None:
    data, ends = build_segment(SMALL)
    behind = read_segment(data + rubbish, is_closed=True)
    assert len(read_all(behind)[0]) == 6
    assert bool(behind.damages) == bool(rubbish)
    within = read_segment(data[: ends[1]] + rubbish + data[ends[1] :], is_closed=True)
    assert len(read_all(within)[0]) == 6
    assert [(d.offset, d.size, d.length) for d in within.damages] == (
        [(ends[1], len(rubbish), 0)] if rubbish else []
    )


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_an_answer(data: bytes, is_closed: bool) -> None:
    contents = read_segment(data, is_closed=is_closed)
    assert contents.blocks == []
    assert contents.damages or not is_closed


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_behind_a_header_give_an_answer(data: bytes, is_closed: bool) -> None:
    contents = read_segment(pack_header(HEADER) + SYNC + data, is_closed=is_closed)
    assert contents.blocks == []
    assert contents.damages or not is_closed


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"PAR1" + bytes(100), "not a segment of a node's log"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a segment of a node's log"),
        (MAGIC.replace(b"\r\n", b"\n") + bytes(100), "not a segment of a node's log"),
        (
            PREAMBLE.pack(MAGIC, FORMAT + 1, 3, 0) + b"???",
            f"a segment of the format {FORMAT + 1}; this version reads the format {FORMAT}",
        ),
    ],
)
def test_foreign_files_and_the_future_are_named(data: bytes, reason: str) -> None:
    contents = read_segment(data, is_closed=True)
    assert contents.header is None
    assert [(d.offset, d.size) for d in contents.damages] == [(0, len(data))]
    assert contents.damages[0].reason.startswith(reason)


def test_a_future_or_foreign_file_is_damage_while_open_too() -> None:
    future = PREAMBLE.pack(MAGIC, FORMAT + 1, 3, 0) + b"???"
    assert "format" in read_segment(future, is_closed=False).damages[0].reason
    assert read_segment(b"GIF89a", is_closed=False).damages


def test_a_missing_block_is_noticed() -> None:
    data, ends = build_segment(SMALL)
    contents = read_segment(data[: ends[1]] + data[ends[2] :], is_closed=True)
    assert [(d.reason, d.first, d.length) for d in contents.damages] == [
        ("records are missing", 13, 2)
    ]
    assert len(read_all(contents)[0]) == 4


def test_a_repeated_block_is_noticed_and_not_read_twice() -> None:
    data, ends = build_segment(SMALL)
    contents = read_segment(data[: ends[2]] + data[ends[1] :], is_closed=True)
    assert [(d.first, d.length) for d in contents.damages] == [(13, 2)]
    assert "repeats" in contents.damages[0].reason
    assert [r.number for r in read_all(contents)[0]] == list(range(11, 17))


def test_reading_on_from_a_number() -> None:
    """Also if the blocks were written anew with other borders."""
    data, ends = build_segment(SMALL)
    first = read_segment(data[: ends[2] + 5], is_closed=False)
    assert first.next == 15
    rest = read_segment(data, is_closed=True, start=first.next)
    assert [r.number for r in read_all(rest)[0]] == [15, 16]
    other, _ = build_segment([[entry for group in SMALL for entry in group]])
    contents = read_segment(other, is_closed=True, start=14)
    records, damages = read_all(contents)
    assert [r.number for r in records] == [14, 15, 16]
    assert records == read_all(read_segment(data, is_closed=True, start=14))[0]
    assert damages == []
    assert read_segment(data, is_closed=True, start=17).blocks == []


def test_damage_is_reported_once_when_reading_on() -> None:
    data, ends = build_segment(SMALL)
    broken = bytearray(data)
    broken[ends[0] + BLOCK.size + 3] ^= 1
    first = read_segment(bytes(broken[: ends[2]]), is_closed=False)
    assert len(first.damages) == 1
    assert read_segment(bytes(broken), is_closed=True, start=first.next).damages == []


def test_blocks_say_what_they_may_hold() -> None:
    data, _ = build_segment(GROUPS)
    blocks = read_segment(data, is_closed=True).blocks
    notes = build_mask(["note"])
    assert [block.may_hold(notes) for block in blocks] == [True, True, False]
    times = blocks[1].header
    assert blocks[1].may_hold(since=times.latest, until=times.latest + 1)
    assert not blocks[1].may_hold(since=times.latest + 1)
    assert not blocks[1].may_hold(until=times.earliest)


def test_columns_are_the_records_turned() -> None:
    data, _ = build_segment(GROUPS)
    for block in read_segment(data, is_closed=True).blocks:
        records, _ = decode_records(block)
        tables, damages = decode_columns(block)
        assert damages == []
        assert set(tables) == {record.kind for record in records}
        for kind, columns in tables.items():
            wanted = [record for record in records if record.kind == kind]
            assert list(columns["number"]) == [record.number for record in wanted]
            assert list(columns["time"]) == [record.time for record in wanted]
            for name in wanted[0].fields:
                assert list(columns[name]) == [record.fields[name] for record in wanted]


def test_only_some_kinds() -> None:
    data, _ = build_segment(GROUPS)
    block = read_segment(data, is_closed=True).blocks[0]
    records, _ = decode_records(block, ["attach", "note"])
    assert [record.kind for record in records] == ["note", "note", "attach", "attach"]
    assert set(decode_columns(block, ["attach"])[0]) == {"attach"}


def make_block(rows: list[Any], packing: int | None = None, length: int | None = None) -> Block:
    """Return a block whose CRC is right, whatever it holds."""
    good = [[1, NOW, 0, "1"]] * (len(rows) if length is None else length)
    body = b"".join(cbor2.dumps(row) for row in rows)
    block, header = pack_records(body, good, 1)
    if packing is not None:
        header = header._replace(packing=packing)
    return Block(HEADER, header, 0, block[BLOCK.size :])


def test_records_that_fit_no_kind_are_damages_with_their_numbers() -> None:
    good = [14, NOW, 0, "m", True]
    rows = [
        good,
        [63, NOW, 0],
        "text",
        [],
        [14, NOW, 0, 5, True],
        {14: 1},
        [True, NOW, 0, "x"],
        [[1], NOW, 0],
        good,
    ]
    records, damages = decode_records(make_block(rows))
    assert [record.number for record in records] == [1, 9]
    assert [damage.first for damage in damages] == [2, 3, 4, 5, 6, 7, 8]
    assert "kind 63 is not known" in damages[0].reason
    assert "subscriber is 5, not text" in damages[3].reason
    tables, again = decode_columns(make_block(rows))
    assert tables["attach"]["number"] == [1, 9]
    assert again == damages


def test_a_block_that_cannot_be_unpacked_is_one_damage() -> None:
    for block, reason in (
        (make_block([[14, NOW, 0, "m", True]], packing=9), "packed in the way 9"),
        (make_block([[14, NOW, 0, "m", True]], packing=1), "cannot be unpacked"),
        (make_block([[14, NOW, 0, "m", True]], length=5), "no CBOR"),
    ):
        records, damages = decode_records(block)
        assert records == []
        assert len(damages) == 1
        assert reason in damages[0].reason
        assert damages[0].length == block.header.length


def test_bytes_behind_the_last_record_are_damage() -> None:
    row = [14, NOW, 0, "m", True]
    records, damages = decode_records(make_block([row, row], length=1))
    assert records == []
    assert len(damages) == 1


CBOR = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(st.lists(CBOR, min_size=1, max_size=5))
def test_any_cbor_in_a_block_gives_an_answer(rows: list[Any]) -> None:
    records, damages = decode_records(make_block(rows))
    assert len(records) + len(damages) == len(rows)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_in_a_block_give_an_answer(body: bytes, length: int) -> None:
    raw = pack_array_head(length) + body
    header = make_block([[1, NOW, 0, "1"]]).header
    header = header._replace(packing=0, raw=len(raw), stored=len(raw), length=length)
    block = Block(HEADER, header, 0, raw)
    records, damages = decode_records(block)
    assert len(records) + sum(damage.length or 0 for damage in damages) == length
    assert decode_columns(block)[1] == damages


def test_a_block_that_unpacks_to_more_than_it_says() -> None:
    block = make_block([[14, NOW, 0, "m" * 1000, True]])
    bomb = zlib.compress(pack_array_head(1) + bytes(50 << 20))
    header = block.header._replace(packing=1, stored=len(bomb))
    _, damages = decode_records(Block(HEADER, header, 0, bomb))
    assert "unpacks to" in damages[0].reason


def test_unknown_block_types_are_skipped_and_named() -> None:
    data, ends = build_segment(SMALL)
    head = bytearray(build_block(SMALL[0], 13)[: BLOCK.size])
    body = build_block(SMALL[0], 13)[BLOCK.size :]
    head[4] = 77
    head[-4:] = struct.pack(">I", zlib.crc32(bytes(head[:-4])))
    contents = read_segment(data[: ends[1]] + bytes(head) + body + data[ends[1] :], is_closed=True)
    assert "type 77" in contents.damages[0].reason
    assert len(read_all(contents)[0]) == 6
