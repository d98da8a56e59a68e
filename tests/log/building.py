"""Segments for the tests of reading, built from the format's own pieces."""

from __future__ import annotations

from typing import Any

import cbor2
from denwatch.node.log import Contents, Damage, LogRecord, decode_records, encode_record
from denwatch.node.log.segments import (
    Footer,
    Header,
    IndexEntry,
    count_kinds,
    pack_footer,
    pack_header,
    pack_records,
)

from tests.log.samples import NOW

HEADER = Header("north", 3, 11, NOW)
Entry = tuple[str, dict[str, Any]]


def build_block(entries: list[Entry], first: int) -> bytes:
    encoded = [encode_record(kind, fields, NOW + i) for i, (kind, fields) in enumerate(entries)]
    rows = [cbor2.loads(record) for record in encoded]
    return pack_records(b"".join(encoded), rows, first)[0]


def build_segment(groups: list[list[Entry]], is_closed: bool = True) -> tuple[bytes, list[int]]:
    """Return a segment, and where each of its parts ends: header, blocks, footer."""
    data = pack_header(HEADER)
    ends = [len(data)]
    number = HEADER.first
    counts: dict[int, int] = {}
    index: list[IndexEntry] = []
    for group in groups:
        encoded = [
            encode_record(kind, fields, NOW + time)
            for time, (kind, fields) in enumerate(group, number)
        ]
        rows = [cbor2.loads(record) for record in encoded]
        block, head = pack_records(b"".join(encoded), rows, number)
        count_kinds(counts, rows)
        times = head.earliest, head.latest
        index.append(IndexEntry(len(data), number, len(rows), *times, head.kinds))
        data += block
        number += len(group)
        ends.append(len(data))
    if is_closed:
        data += pack_footer(Footer(number, counts, index))
        ends.append(len(data))
    return data, ends


def read_all(contents: Contents) -> tuple[list[LogRecord], list[Damage]]:
    """Return all records of a segment, and all damages."""
    records: list[LogRecord] = []
    damages = list(contents.damages)
    for block in contents.blocks:
        found, broken = decode_records(block)
        records += found
        damages += broken
    return records, damages
