"""Segments on the disk for the tests of the backend, from the log's own pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cbor2
from denwatch.node.log import encode_record, write_name
from denwatch.node.log.segments import (
    Footer,
    Header,
    IndexEntry,
    count_kinds,
    pack_footer,
    pack_header,
    pack_records,
)

NOW = 1_790_000_000_000
Entry = tuple[str, dict[str, Any]]


def attach(number: int) -> Entry:
    return "attach", {"subscriber": f"medic{number}", "is_up": number % 2 == 0}


def pack_segment(
    groups: list[list[Entry]],
    node: str = "north",
    epoch: int = 1,
    first: int = 1,
    *,
    is_closed: bool = True,
    time: int = NOW,
) -> bytes:
    """Return a segment whose blocks are the groups; record n has the time `time` + n."""
    data = pack_header(Header(node, epoch, first, time))
    number = first
    counts: dict[int, int] = {}
    index = []
    for group in groups:
        entries = enumerate(group, number)
        encoded = [encode_record(kind, fields, time + at) for at, (kind, fields) in entries]
        rows = [cbor2.loads(record) for record in encoded]
        block, head = pack_records(b"".join(encoded), rows, number)
        count_kinds(counts, rows)
        times = head.earliest, head.latest
        index.append(IndexEntry(len(data), number, len(rows), *times, head.kinds))
        data += block
        number += len(group)
    return data + pack_footer(Footer(number, counts, index)) if is_closed else data


def write_segment(
    folder: Path, groups: list[list[Entry]], node: str = "north", epoch: int = 1, first: int = 1,
    *, is_closed: bool = True, time: int = NOW,
) -> Path:  # fmt: skip
    """Write a segment under its right name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / write_name(node, epoch, first, ".dlog" if is_closed else ".open")
    path.write_bytes(pack_segment(groups, node, epoch, first, is_closed=is_closed, time=time))
    return path


def make_blocks(count: int, size: int, first: int = 1) -> list[list[Entry]]:
    """Return blocks of `attach` records that tell their own number."""
    return [[attach(first + b * size + i) for i in range(size)] for b in range(count)]
