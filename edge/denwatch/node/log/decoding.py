"""Unpacking a block: its records one by one, or as columns by kind. Pure.

The records of a block are checked by column, at the speed of C; only where a column is not as it
should be are its records looked at one by one, to say which are wrong. A record that does not fit
the table of kinds becomes a damage with its number; the others are handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import cbor2
from denwatch.node.log.kinds import KINDS_BY_ID
from denwatch.node.log.reader import Block, Damage, unpack_body
from denwatch.node.log.records import Record, check_columns, check_row, name_fields
from denwatch.node.log.segment import BLOCK

Columns = dict[str, Sequence[Any]]
"""`number`, `time` and `hybrid`, then the kind's fields; all of one length."""

_PAIR = b"\x82"
_LAST = b"\x48the last"
# The decoder passes over bytes behind a value; as the first of a pair, the value must end where
# the second begins.


class _Sheet(NamedTuple):
    """The rows of one kind, their numbers, and when they are checked, their columns."""

    numbers: list[int]
    rows: list[list[Any]]
    columns: list[tuple[Any, ...]]


def decode_records(
    block: Block, kinds: Iterable[str] | None = None
) -> tuple[list[Record], list[Damage]]:
    """Return the records of a block in order, all or those of some kinds, and what is damaged."""
    sheets, damages = _decode_sheets(block, kinds)
    segment, schema = block.segment, block.header.schema
    records = [
        Record(
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
) -> tuple[dict[int, _Sheet], list[Damage]]:
    wanted = None if kinds is None else set(kinds)
    rows = _load_rows(block)
    if isinstance(rows, str):
        first = block.header.first + block.skipped
        length = block.header.length - block.skipped
        return {}, [_describe(block, rows, first, length)]
    sheets, damages = _sort_rows(block, rows)
    kept: dict[int, _Sheet] = {}
    for id_, sheet in sheets.items():
        if wanted is not None and KINDS_BY_ID[id_].name not in wanted:
            continue
        sheet.columns.extend(zip_longest(*sheet.rows))
        if not check_columns(id_, sheet.columns):
            sheet = _sift(block, sheet, damages)
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


def _sort_rows(block: Block, rows: list[Any]) -> tuple[dict[int, _Sheet], list[Damage]]:
    """Put the rows into sheets by kind; what is no row, or of no known kind, is damage."""
    sheets: dict[int, _Sheet] = {}
    damages: list[Damage] = []
    first = block.header.first
    for number, row in enumerate(rows[block.skipped :], first + block.skipped):
        kind = row[0] if type(row) is list and row else None
        sheet = sheets.get(kind) if type(kind) is int else None
        if sheet is None:
            if type(kind) is not int or kind not in KINDS_BY_ID:
                damages.append(_describe(block, str(check_row(row)), number, 1))
                continue
            sheet = sheets[kind] = _Sheet([], [], [])
        sheet.numbers.append(number)
        sheet.rows.append(row)
    return sheets, damages


def _sift(block: Block, sheet: _Sheet, damages: list[Damage]) -> _Sheet:
    """Return the rows that are right, and note the others."""
    kept = _Sheet([], [], [])
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
    size = BLOCK.size + block.header.stored
    return Damage(block.offset, size, reason, first, length)
