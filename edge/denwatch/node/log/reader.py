"""Reads a segment: bytes in, blocks, records and damages out. Pure; opens no file, hides nothing.

Every byte of a segment is either in an intact block or in a `Damage` with its place, its reason
and, where it can be known, the numbers of the lost records. A segment that is still being written
ends with its last complete block; the next reading continues from a record's number.

The records of a block are checked by column, at the speed of C. Only where a column is wrong are
its records checked one by one, to find which. A record that does not fit the table of kinds becomes
a damage with its number; the others are returned.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import cbor2
from denwatch.node.log import segments
from denwatch.node.log.kinds import KINDS, KINDS_BY_ID
from denwatch.node.log.records import LogRecord, check_columns, check_row, name_fields


class Damage(NamedTuple):
    """Something in a segment that could not be read, and why."""

    offset: int  # first byte that is concerned
    size: int  # bytes
    reason: str
    first: int | None = None  # number of the first record that is lost, if known
    length: int | None = None  # how many are lost, if known


class Block(NamedTuple):
    """An intact block of records, not yet unpacked."""

    segment: segments.Header
    header: segments.BlockHeader
    offset: int
    body: bytes
    skipped: int = 0  # records at its beginning that were read before

    def may_hold(
        self, kinds: int | None = None, since: int | None = None, until: int | None = None
    ) -> bool:
        """Return whether it may have records of these kinds (a mask), since <= time < until."""
        return (
            (kinds is None or bool(self.header.kinds & kinds))
            and (since is None or self.header.latest >= since)
            and (until is None or self.header.earliest < until)
        )


class Contents(NamedTuple):
    """What a segment holds."""

    header: segments.Header | None  # None: see the damages; or nothing was written yet
    blocks: list[Block]
    damages: list[Damage]
    footer: segments.Footer | None
    next: int  # the number of the next record, for reading on
    end: int  # everything before this byte is accounted for
    pending: int  # bytes behind it that are not whole yet; 0 in a closed segment


class _Incomplete(Exception):
    """The bytes end before the part does."""


class _Broken(Exception):
    """The bytes are damaged."""


def build_mask(names: Iterable[str]) -> int:
    """Return the mask of kinds for `Block.may_hold`."""
    mask = 0
    for name in names:
        mask |= 1 << KINDS[name].id
    return mask


def read_segment(data: bytes, *, is_closed: bool, start: int = 0) -> Contents:
    """Return what is in the bytes of a whole file.

    `is_closed`: the file was closed, so it must end with a footer. `start` leaves out the records
    below a number, for reading on in a segment that has grown. By number and not by byte, because
    a node that lost its power may write the same records in other blocks.
    """
    try:
        header, offset = _read_header(data)
    except _Incomplete as error:
        if not is_closed:
            return Contents(None, [], [], None, start, 0, len(data))
        return _refuse(data, str(error))
    except _Broken as error:
        return _refuse(data, str(error))
    walk = _Walk(data, header, offset, start)
    walk.read_blocks()
    if is_closed:
        walk.require_end()
    return Contents(
        header,
        walk.blocks,
        walk.damages,
        walk.footer,
        max(walk.number, start),
        walk.end,
        len(data) - walk.end,
    )


def read_header(data: bytes) -> segments.Header | None:
    """Return the header of a segment from its first bytes (1 kB is enough); None if it has none."""
    try:
        return _read_header(data)[0]
    except (_Incomplete, _Broken):
        return None


def read_footer(tail: bytes) -> segments.Footer | None:
    """Return the footer from the last bytes of a segment; None if more are needed, or there is
    none: then `read_segment` knows why."""
    try:
        length, mark = segments.TRAILER.unpack(tail[-segments.TRAILER.size :])
    except struct.error:
        return None
    start = len(tail) - segments.TRAILER.size - length
    if mark != segments.END or start < 0:
        return None
    try:
        block = _read_block_header(tail, start)
        return _unpack_footer(_check_body(tail, start, block), block)
    except (_Incomplete, _Broken):
        return None


def unpack_body(header: segments.BlockHeader, body: bytes) -> bytes | str:
    """Return the unpacked bytes of a block, or the reason why they cannot be had."""
    if header.packing == segments.PLAIN:
        raw = body
    elif header.packing == segments.DEFLATED:
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(body, header.raw + 1)  # bounded, whatever the data claims
        except zlib.error as error:
            return f"the block cannot be unpacked: {error}"
    else:
        return f"the block is packed in the way {header.packing}, which this version does not know"
    if len(raw) != header.raw:
        return f"the block unpacks to {len(raw)} bytes, not to {header.raw}"
    return raw


class _Walk:
    """One pass over the blocks of a segment."""

    def __init__(self, data: bytes, header: segments.Header, offset: int, start: int) -> None:
        self.data = data
        self.header = header
        self.end = offset  # everything before is read, or known to be damaged
        self.number = header.first  # the next record that is expected
        self.blocks: list[Block] = []
        self.damages: list[Damage] = []
        self.footer: segments.Footer | None = None
        self._start = start
        self._fault = ""  # why the bytes at `end` are no block

    def read_blocks(self) -> None:
        """Read to the end, over all damage that has a whole block behind it."""
        offset = self.end
        while offset < len(self.data) and self.footer is None:
            try:
                block = _read_block_header(self.data, offset)
                size = segments.BLOCK.size + block.stored
                if block.type == segments.FOOTER:
                    size += segments.TRAILER.size
                if offset + size > len(self.data):
                    raise _Incomplete("the segment is cut off within a block")
            except (_Incomplete, _Broken) as error:
                self._fault = self._fault or str(error)
                offset = _find_block(self.data, offset + 1)
                continue
            self._bridge(offset, block)
            self._take(offset, size, block)
            offset = self.end = offset + size

    def require_end(self) -> None:
        """Record what is missing at the end of a closed segment."""
        rest = len(self.data) - self.end
        if self.footer is None:
            reason = self._fault or "the segment is cut off"
            self._note(self.end, rest, f"{reason}; the footer is missing", self.number)
        elif rest:
            self._note(self.end, rest, "bytes behind the end of the segment")
        self.end = len(self.data)

    def _note(
        self, offset: int, size: int, reason: str, first: int | None = None, length: int = -1
    ) -> None:
        """Record a damage, unless it concerns only what was read before."""
        known = None if length < 0 else length
        if first is None or known is None or first + known > self._start or self._start == 0:
            self.damages.append(Damage(offset, size, reason, first, known))

    def _bridge(self, offset: int, block: segments.BlockHeader) -> None:
        """Record what is damaged or missing between the last block and this one."""
        missing = max(block.first - self.number, 0)
        if offset > self.end:
            self._note(self.end, offset - self.end, self._fault, self.number, missing)
        elif missing:
            self._note(offset, 0, "records are missing", self.number, missing)
        self._fault = ""
        self.number += missing

    def _take(self, offset: int, size: int, block: segments.BlockHeader) -> None:
        """Read a block whose header is valid."""
        if block.type == segments.RECORDS:
            self._take_records(offset, size, block)
            return
        try:
            if block.type != segments.FOOTER:
                raise _Broken(f"a block of the type {block.type}, which this version does not know")
            footer = _unpack_footer(_check_body(self.data, offset, block), block)
            length = size - segments.TRAILER.size
            if self.data[offset + length : offset + size] != segments.TRAILER.pack(
                length, segments.END
            ):
                raise _Broken("the trailer behind the footer is damaged")
            self.footer = footer
        except _Broken as error:
            self._note(offset, size, str(error))

    def _take_records(self, offset: int, size: int, block: segments.BlockHeader) -> None:
        next_ = block.first + block.length
        try:
            if block.first < self.number:
                raise _Broken("the block repeats records that were there before")
            if next_ > self._start:
                body = _check_body(self.data, offset, block)
                skipped = max(self._start - block.first, 0)
                self.blocks.append(Block(self.header, block, offset, body, skipped))
        except _Broken as error:
            self._note(offset, size, str(error), block.first, block.length)
        self.number = max(self.number, next_)


def _refuse(data: bytes, reason: str) -> Contents:
    return Contents(None, [], [Damage(0, len(data), reason)], None, 0, len(data), 0)


def _read_header(data: bytes) -> tuple[segments.Header, int]:
    start = data[: len(segments.MAGIC)]
    if not segments.MAGIC.startswith(start):
        raise _Broken("not a segment of a node's log: it begins otherwise")
    if len(data) < segments.PREAMBLE.size:
        raise _Incomplete("empty file" if not data else "cut off within the segment's header")
    _, version, length, crc = segments.PREAMBLE.unpack_from(data)
    if version != segments.FORMAT:
        raise _Broken(
            f"a segment of the format {version}; this version reads the format {segments.FORMAT}"
        )
    end = segments.PREAMBLE.size + length
    if len(data) < end:
        raise _Incomplete("cut off within the segment's header")
    body = data[segments.PREAMBLE.size : end]
    if zlib.crc32(body, zlib.crc32(struct.pack(">HH", version, length))) != crc:
        raise _Broken("the segment's header is damaged: its CRC is wrong")
    values = _load(body, "the segment's header")
    types = (str, int, int, int)
    if type(values) is not list or tuple(map(type, values)) != types:
        raise _Broken("the segment's header is not [node, epoch, first, time]")
    return segments.Header(*values), end


def _read_block_header(data: bytes, offset: int) -> segments.BlockHeader:
    if len(data) - offset < segments.BLOCK.size:
        raise _Incomplete("the segment is cut off within a block's header")
    mark, *values, crc = segments.BLOCK.unpack_from(data, offset)
    if mark != segments.SYNC:
        raise _Broken("the block's mark is damaged")
    if zlib.crc32(data[offset : offset + segments.BLOCK.size - 4]) != crc:
        raise _Broken("the block's header is damaged: its CRC is wrong")
    header = segments.BlockHeader(*values)
    if header.raw > segments.MAX_RAW:
        raise _Broken(f"a block of {header.raw} bytes is too large")
    return header


def _check_body(data: bytes, offset: int, header: segments.BlockHeader) -> bytes:
    start = offset + segments.BLOCK.size
    body = data[start : start + header.stored]
    if zlib.crc32(body) != header.crc:
        raise _Broken("the block is damaged: its CRC is wrong")
    return body


def _find_block(data: bytes, offset: int) -> int:
    """Return where the next mark of a block is; the end if there is none."""
    found = data.find(segments.SYNC, offset)
    return len(data) if found < 0 else found


def _unpack_footer(body: bytes, header: segments.BlockHeader) -> segments.Footer:
    raw = unpack_body(header, body)
    if isinstance(raw, str):
        raise _Broken(raw)
    values = _load(raw, "the footer")
    try:
        next_, counts, index = values
        return segments.Footer(
            next_, dict(counts), [segments.IndexEntry(*entry) for entry in index]
        )
    except (TypeError, ValueError):
        raise _Broken("the footer is not [next, counts, index]") from None


def _load(data: bytes, what: str) -> Any:
    try:
        return cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, RecursionError) as error:
        raise _Broken(f"{what} is no CBOR: {error}") from None


# Records of a block --------------------------------------------------------------------------

Columns = dict[str, Sequence[Any]]
"""`number`, `time` and `hybrid`, then the kind's fields; all of one length."""

_PAIR = b"\x82"
_LAST = b"\x48the last"
# The decoder ignores bytes behind a value. As the first of a pair, the value must end exactly where
# the second begins.


class _KindRows(NamedTuple):
    """The rows of one kind, their numbers, and when they are checked, their columns."""

    numbers: list[int]
    rows: list[list[Any]]
    columns: list[tuple[Any, ...]]


def decode_records(
    block: Block, kinds: Iterable[str] | None = None
) -> tuple[list[LogRecord], list[Damage]]:
    """Return the records of a block in order, all or those of some kinds, and what is damaged."""
    sheets, damages = _decode_sheets(block, kinds)
    segment, schema = block.segment, block.header.schema
    records = [
        LogRecord(
            schema,
            segment.node,
            segment.epoch,
            number,
            row[1],
            row[2],
            KINDS_BY_ID[row[0]].name,
            name_fields(row),
        )
        for sheet in sheets.values()
        for number, row in zip(sheet.numbers, sheet.rows, strict=True)
    ]
    if len(sheets) > 1:
        records.sort(key=lambda record: record.number)
    return records, damages


def decode_columns(
    block: Block, kinds: Iterable[str] | None = None
) -> tuple[dict[str, Columns], list[Damage]]:
    """Return the records of a block as columns by kind, which is what Arrow wants, and damages."""
    sheets, damages = _decode_sheets(block, kinds)
    tables: dict[str, Columns] = {}
    for id_, sheet in sheets.items():
        kind = KINDS_BY_ID[id_]
        names = ("time", "hybrid", *(field.name for field in kind.fields))
        columns = sheet.columns[1 : 1 + len(names)]
        columns += [(None,) * len(sheet.rows)] * (len(names) - len(columns))
        table: Columns = {"number": sheet.numbers}
        table.update(zip(names, columns, strict=True))
        tables[kind.name] = table
    return tables, damages


def _decode_sheets(
    block: Block, kinds: Iterable[str] | None
) -> tuple[dict[int, _KindRows], list[Damage]]:
    wanted = None if kinds is None else set(kinds)
    rows = _load_rows(block)
    if isinstance(rows, str):
        first = block.header.first + block.skipped
        length = block.header.length - block.skipped
        return {}, [_describe(block, rows, first, length)]
    sheets, damages = _sort_rows(block, rows)
    kept: dict[int, _KindRows] = {}
    for id_, sheet in sheets.items():
        if wanted is not None and KINDS_BY_ID[id_].name not in wanted:
            continue
        sheet.columns.extend(zip_longest(*sheet.rows))
        if not check_columns(id_, sheet.columns):
            sheet = _keep_valid(block, sheet, damages)
        if sheet.rows:
            kept[id_] = sheet
    damages.sort(key=lambda damage: damage.first or 0)
    return kept, damages


def _load_rows(block: Block) -> list[Any] | str:
    raw = unpack_body(block.header, block.body)
    if isinstance(raw, str):
        return raw
    try:
        rows, last = cbor2.loads(_PAIR + raw + _LAST)
    except (cbor2.CBORDecodeError, ValueError, RecursionError) as error:
        return f"the block is no CBOR: {error}"
    if type(rows) is not list or len(rows) != block.header.length or last != _LAST[1:]:
        return f"the block does not hold {block.header.length} records"
    return rows


def _sort_rows(block: Block, rows: list[Any]) -> tuple[dict[int, _KindRows], list[Damage]]:
    """Group the rows by kind; what is not a row, or of an unknown kind, is damage."""
    sheets: dict[int, _KindRows] = {}
    damages: list[Damage] = []
    first = block.header.first
    for number, row in enumerate(rows[block.skipped :], first + block.skipped):
        kind = row[0] if type(row) is list and row else None
        sheet = sheets.get(kind) if type(kind) is int else None
        if sheet is None:
            if type(kind) is not int or kind not in KINDS_BY_ID:
                damages.append(_describe(block, str(check_row(row)), number, 1))
                continue
            sheet = sheets[kind] = _KindRows([], [], [])
        sheet.numbers.append(number)
        sheet.rows.append(row)
    return sheets, damages


def _keep_valid(block: Block, sheet: _KindRows, damages: list[Damage]) -> _KindRows:
    """Return the valid rows, and add the others to the damages."""
    kept = _KindRows([], [], [])
    for number, row in zip(sheet.numbers, sheet.rows, strict=True):
        reason = check_row(row)
        if reason is None:
            kept.numbers.append(number)
            kept.rows.append(row)
        else:
            damages.append(_describe(block, reason, number, 1))
    kept.columns.extend(zip_longest(*kept.rows))
    return kept


def _describe(block: Block, reason: str, first: int, length: int) -> Damage:
    size = segments.BLOCK.size + block.header.stored
    return Damage(block.offset, size, reason, first, length)
