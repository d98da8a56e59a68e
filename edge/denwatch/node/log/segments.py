"""Segments of the log: their bytes as they are written, their names, and which of several to read.

The byte tables are in `README.md`. Every part has its length and a CRC, and a block starts with a
mark by which the next block is found after damage. Blocks state which records, times and kinds they
contain, so that a reader skips what it does not need without unpacking it.

`north-0000000003-00000000000000000412.dlog` begins with record 412 and was written in the third run
of the node "north"; `.open` instead of `.dlog` is still being written. `~2` before the ending
distinguishes segments that would have the same name after damage. Names are for sorting and
finding: the segment's header decides. Pure.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import cbor2
from denwatch.node.log.kinds import SCHEMA

FORMAT = 1
MAGIC = b"\x89DLG\r\n\x1a\n"  # not text, and broken by whatever converts line ends
SYNC = b"\xd5DB\x1f"
END = b"DLGE"
PREAMBLE = struct.Struct(">8sHHI")  # magic, format, length of the CBOR behind it, CRC of both
BLOCK = struct.Struct(">4sBBHIIIQqqQII")
TRAILER = struct.Struct(">I4s")  # length of the footer's block, mark

RECORDS = 1
FOOTER = 2
PLAIN = 0
DEFLATED = 1
MAX_RAW = 16 << 20  # bytes of a block, unpacked
_WORTH_PACKING = 200  # bytes


class Header(NamedTuple):
    """The header of a segment."""

    node: str
    epoch: int
    first: int  # number of the first record
    time: int  # when it was begun, ms


class BlockHeader(NamedTuple):
    """The header of a block."""

    type: int
    packing: int
    schema: int
    stored: int  # bytes that follow
    raw: int  # bytes, unpacked
    length: int  # records
    first: int
    earliest: int
    latest: int
    kinds: int  # bit n is set: there are records of the kind n
    crc: int  # of the bytes that follow


class IndexEntry(NamedTuple):
    """One block in the footer's index."""

    offset: int
    first: int
    length: int
    earliest: int
    latest: int
    kinds: int


class Footer(NamedTuple):
    """The footer of a closed segment: what is in it."""

    next: int  # the number after the last record
    counts: dict[int, int]  # records by kind
    blocks: list[IndexEntry]

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(self.counts.values())

    @property
    def earliest(self) -> int:
        """The time of the earliest record; 0 if there is none."""
        return min((entry.earliest for entry in self.blocks), default=0)

    @property
    def latest(self) -> int:
        """The time of the latest record; 0 if there is none."""
        return max((entry.latest for entry in self.blocks), default=0)


def pack_header(header: Header) -> bytes:
    """Return the beginning of a segment."""
    body = cbor2.dumps(list(header))
    crc = zlib.crc32(body, zlib.crc32(struct.pack(">HH", FORMAT, len(body))))
    return PREAMBLE.pack(MAGIC, FORMAT, len(body), crc) + body


def pack_records(data: bytes, rows: list[list[Any]], first: int) -> tuple[bytes, BlockHeader]:
    """Return a block of records: `data` is their CBOR one after another, `rows` the same decoded.

    The block's header is returned too, for the footer's index.
    """
    times = [row[1] for row in rows]
    kinds = 0
    for kind in {row[0] for row in rows}:
        kinds |= 1 << kind
    raw = pack_array_head(len(rows)) + data
    return _pack_block(RECORDS, raw, len(rows), first, min(times), max(times), kinds)


def pack_footer(footer: Footer) -> bytes:
    """Return the end of a segment: the footer's block, and the trailer that finds it."""
    raw = cbor2.dumps([footer.next, footer.counts, [list(entry) for entry in footer.blocks]])
    block, _ = _pack_block(
        FOOTER, raw, footer.records, footer.next, footer.earliest, footer.latest, 0
    )
    return block + TRAILER.pack(len(block), END)


def _pack_block(
    type_: int, raw: bytes, length: int, first: int, earliest: int, latest: int, kinds: int
) -> tuple[bytes, BlockHeader]:
    packed = zlib.compress(raw, 1) if len(raw) > _WORTH_PACKING else raw
    packing = DEFLATED if len(packed) < len(raw) else PLAIN
    body = packed if packing == DEFLATED else raw
    header = BlockHeader(
        type_,
        packing,
        SCHEMA,
        len(body),
        len(raw),
        length,
        first,
        earliest,
        latest,
        kinds,
        zlib.crc32(body),
    )
    head = BLOCK.pack(SYNC, *header, 0)[:-4]
    return head + struct.pack(">I", zlib.crc32(head)) + body, header


def pack_array_head(length: int) -> bytes:
    """Return the CBOR head of an array of so many elements."""
    return b"\x9a" + length.to_bytes(4, "big")


def count_kinds(counts: dict[int, int], rows: Iterable[list[Any]]) -> None:
    """Add the rows to the counts by kind."""
    for row in rows:
        counts[row[0]] = counts.get(row[0], 0) + 1


# Names ---------------------------------------------------------------------------------------

OPEN = ".open"
CLOSED = ".dlog"
_SHAPE = re.compile(r"(?P<node>.+)-(?P<epoch>\d{10,})-(?P<first>\d{20,})(~\d+)?\.(open|dlog)")


class SegmentName(NamedTuple):
    """What the name of a segment contains."""

    node: str
    epoch: int
    first: int
    is_closed: bool


class SegmentSpan(NamedTuple):
    """The records that one file contains, by its header and footer (or its blocks)."""

    file: str
    header: Header
    next: int


class SegmentChoice(NamedTuple):
    """A file to read, from one record on. `reason` is set if records are left out: why."""

    file: str
    start: int
    reason: str = ""


def write_name(node: str, epoch: int, first: int, ending: str = OPEN, again: int = 0) -> str:
    """Return the name of a segment."""
    twin = f"~{again}" if again else ""
    return f"{quote(node, safe='')}-{epoch:010d}-{first:020d}{twin}{ending}"


def read_name(name: str) -> SegmentName | None:
    """Return what a name says; None if it is not that of a segment."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        return None
    return SegmentName(
        unquote(found["node"]), int(found["epoch"]), int(found["first"]), name.endswith(CLOSED)
    )


def choose_segments(spans: Iterable[SegmentSpan]) -> list[SegmentChoice]:
    """Return which files to read from which record on, so that every record is read once.

    The same segment may be there twice: copied, collected from two places, or once open and once
    closed. Of records that several files hold, the file that begins first and reaches furthest is
    read; a file that adds nothing is returned too, with the reason, starting after its end.
    """
    choices: list[SegmentChoice] = []
    reached: dict[tuple[str, int], tuple[int, str]] = {}
    order = sorted(spans, key=lambda s: (s.header.node, s.header.epoch, s.header.first, -s.next))
    for span in order:
        run = span.header.node, span.header.epoch
        end, holder = reached.get(run, (0, ""))
        if span.header.first >= end:
            choices.append(SegmentChoice(span.file, span.header.first))
        elif span.next <= end:
            choices.append(
                SegmentChoice(span.file, span.next, f"all its records are in {holder} as well")
            )
        else:
            reason = f"records {span.header.first} to {end - 1} are in {holder} as well"
            choices.append(SegmentChoice(span.file, end, reason))
        if span.next > end:
            reached[run] = span.next, span.file
    return choices
