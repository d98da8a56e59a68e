"""Reading a piece of a segment: Arrow batches of a kind, and what is damaged. Runs in the workers.

A batch is a block of the log. Blocks that cannot hold what is asked for are not unpacked. A damage
belongs to the piece that has its first record, or to its file's first piece if it has no number, so
that whatever way a file is cut, each is told once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from denwatch.node.log import Block, Columns, Damage, build_mask, decode_columns, read_segment
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.segments import CLOSED, OPEN
from denwatch.spark.source.columns import ALL, QUARANTINE, build_batch, build_column
from denwatch.spark.source.listing import DAMAGE, Piece, Problem

LOWEST, HIGHEST = -(1 << 63), 1 << 63


class Wanted(NamedTuple):
    """What to read: a kind, `all` or `quarantine`, and since <= time < until."""

    kind: str
    since: int | None = None
    until: int | None = None


def read_piece(
    piece: Piece, wanted: Wanted, schema: pa.Schema, *, is_strict: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a piece; `schema` may have fewer columns than the kind.

    A file that cannot be read any more is a problem like others, or an error if `is_strict`.
    """
    schemas = dict.fromkeys((*KINDS, QUARANTINE), schema)
    for _, batch in read_tables(piece, wanted, schemas, is_strict=is_strict):
        yield batch


def load_piece(piece: Piece) -> bytes:
    """Return the bytes of a piece's file: also if it was closed, and so renamed, meanwhile."""
    path = Path(piece.path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if path.suffix != OPEN:
            raise
        return path.with_suffix(CLOSED).read_bytes()


def read_tables(
    piece: Piece, wanted: Wanted, schemas: Mapping[str, pa.Schema], *, is_strict: bool = False
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (kind, batch) of a piece, each with the schema of its kind."""
    kinds = None if wanted.kind in (ALL, QUARANTINE) else [wanted.kind]
    mask = None if kinds is None else build_mask(kinds)
    # Damage has no time: what is in quarantine is told whatever time is asked for.
    times = (None, None) if wanted.kind in (ALL, QUARANTINE) else (wanted.since, wanted.until)
    try:
        data = load_piece(piece)
    except OSError as error:
        if is_strict:
            raise
        if wanted.kind in (ALL, QUARANTINE):
            yield QUARANTINE, build_problems([_describe_lost(piece, error)], schemas[QUARANTINE])
        return
    contents = read_segment(data, is_closed=piece.is_closed, start=piece.start)
    problems = _keep_own(piece, contents.damages)
    for block in contents.blocks:
        if block.header.first >= piece.stop or not block.may_hold(mask, *times):
            continue
        tables, damages = decode_columns(block, kinds)
        problems += _keep_own(piece, damages)
        if wanted.kind != QUARANTINE:
            for kind, columns in tables.items():
                batch = _build(piece, block, kind, columns, wanted, schemas[kind])
                if batch.num_rows:
                    yield kind, batch
    if problems and wanted.kind in (ALL, QUARANTINE):
        yield QUARANTINE, build_problems(problems, schemas[QUARANTINE])


def _describe_lost(piece: Piece, error: OSError) -> Problem:
    lost = piece.start, piece.stop - piece.start
    reason = f"cannot be read: {error.strerror}"
    return Problem(piece.path, DAMAGE, reason, 0, 0, piece.node, piece.epoch, *lost)


def _build(
    piece: Piece, block: Block, kind: str, columns: Columns, wanted: Wanted, schema: pa.Schema
) -> pa.RecordBatch:
    numbers = columns["number"]
    length = len(numbers)
    if length and numbers[-1] >= piece.stop:
        length = bisect_left(numbers, piece.stop)
    made: dict[str, object] = {"node": block.segment.node, "epoch": block.segment.epoch}
    names = set(schema.names)
    for name, values in columns.items():
        if name in names:
            made[name] = build_column(kind, name, values[:length])
    batch = build_batch(schema, kind, length, made)
    if wanted.since is None and wanted.until is None:
        return batch
    since = LOWEST if wanted.since is None else wanted.since
    until = HIGHEST if wanted.until is None else wanted.until
    return batch.filter(pa.array([since <= time < until for time in columns["time"][:length]]))


def _keep_own(piece: Piece, damages: Iterable[Damage]) -> list[Problem]:
    """Return the damages that this piece has to tell of."""
    kept = []
    for damage in damages:
        if damage.first is None:
            is_own = piece.is_first
        else:
            is_behind = damage.first >= piece.stop and piece.is_last
            is_own = piece.start <= damage.first < piece.stop or is_behind
        if is_own:
            place = damage.offset, damage.size, piece.node, piece.epoch
            lost = damage.first, damage.length
            kept.append(Problem(piece.path, DAMAGE, damage.reason, *place, *lost))
    return kept


def build_problems(problems: list[Problem], schema: pa.Schema) -> pa.RecordBatch:
    """Return problems as rows of the quarantine, or of `all`."""
    made: dict[str, object] = {}
    for name in Problem._fields:
        column = name.rstrip("_")
        if column in schema.names:
            type_ = schema.field(column).type
            made[column] = pa.array([getattr(problem, name) for problem in problems], type_)
    return build_batch(schema, QUARANTINE, len(problems), made)
