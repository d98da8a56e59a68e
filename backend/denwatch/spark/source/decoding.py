"""The columns of the log's records in Spark and Arrow. The only file that maps the log's types.

Ids are 64 bits without a sign in the log and BIGINT here, the same bits: `lower(hex(id))` is the
name that people see. Times are BIGINT milliseconds. A map is its JSON. A kind's columns are those
that every record has and then its fields; the kind `all` has the columns of all kinds side by side,
with what is damaged as rows of the kind `quarantine`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from denwatch.node import log
from denwatch.node.log import Block, Columns, Damage, kinds
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.segments import CLOSED, OPEN
from denwatch.spark.source.listing import DAMAGE, Piece, Quarantined
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

ALL = "all"
QUARANTINE = "quarantine"
FIXED = ("node", "epoch", "number", "time", "hybrid")

_TYPES: dict[str, spark.DataType] = {
    kinds.TEXT: spark.StringType(),
    kinds.INT: spark.LongType(),
    kinds.ID: spark.LongType(),
    kinds.REAL: spark.DoubleType(),
    kinds.BYTES: spark.BinaryType(),
    kinds.BOOL: spark.BooleanType(),
    kinds.IDS: spark.ArrayType(spark.LongType()),
    kinds.TEXTS: spark.ArrayType(spark.StringType()),
    kinds.MAP: spark.StringType(),
}
_TEXT, _LONG = spark.StringType(), spark.LongType()
_FIXED: dict[str, spark.DataType] = dict.fromkeys(FIXED, _LONG) | {"node": _TEXT}
_QUARANTINE: dict[str, spark.DataType] = {
    "file": _TEXT,
    "class": _TEXT,  # damage, duplicate or foreign
    "reason": _TEXT,
    "offset": _LONG,  # first byte
    "size": _LONG,  # bytes
    "node": _TEXT,
    "epoch": _LONG,
    "first": _LONG,  # number of the first record that is lost or left out, if known
    "length": _LONG,  # how many, if known
}


_LAST_TIME = 253_402_300_800_000  # ms: the year 10000, which no TIMESTAMP of Spark's reaches
_ID_BITS = (1 << 64) - 1


class KindError(ValueError):
    """There is no such kind of record."""


@cache
def build_schema(kind: str) -> spark.StructType:
    """Return the columns of a kind, of `quarantine`, or of `all`."""
    if kind == QUARANTINE:
        columns = dict(_QUARANTINE)
    elif kind == ALL:
        columns = {**_FIXED, "kind": _TEXT}
        for name in KINDS:
            columns |= {field.name: _TYPES[field.type] for field in KINDS[name].fields}
        columns |= {name: type_ for name, type_ in _QUARANTINE.items() if name not in _FIXED}
    elif kind in KINDS:
        columns = _FIXED | {field.name: _TYPES[field.type] for field in KINDS[kind].fields}
    else:
        known = ", ".join((*KINDS, QUARANTINE, ALL))
        raise KindError(f"there is no kind {kind!r} in a node's log; there are {known}")
    return spark.StructType([spark.StructField(name, type_) for name, type_ in columns.items()])


@cache
def _to_arrow(schema_json: str) -> pa.Schema:
    schema = spark.StructType.fromJson(json.loads(schema_json))
    return to_arrow_schema(schema, timezone="UTC")


def convert_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a schema."""
    return _to_arrow(schema.json())


@cache
def _find_types(kind: str) -> dict[str, str]:
    fixed = dict.fromkeys(FIXED, kinds.INT) | {"node": kinds.TEXT}
    return fixed | {field.name: field.type for field in KINDS[kind].fields}


def build_column(kind: str, name: str, values: Sequence[Any]) -> pa.Array:
    """Return a column of a kind's records as Arrow has it."""
    type_ = _find_types(kind)[name]
    if type_ == kinds.ID:
        return pa.array(values, pa.uint64()).view(pa.int64())
    if type_ == kinds.IDS:
        return pa.array(values, pa.list_(pa.uint64())).cast(pa.list_(pa.int64()), safe=False)
    if type_ == kinds.INT:
        return pa.array(values, pa.int64())
    if type_ == kinds.MAP:
        return pa.array([None if value is None else write_map(value) for value in values])
    return pa.array(values)


def convert_column(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a column in another type: ms as a timestamp, ids as hexadecimal text."""
    if pa.types.is_timestamp(type_):
        # A clock that is wrong by so much that no timestamp shows it has no time.
        times = [t if t is not None and abs(t) < _LAST_TIME else None for t in column.to_pylist()]
        return pa.array(times, pa.timestamp("ms", tz="UTC")).cast(type_)
    if pa.types.is_string(type_) and pa.types.is_int64(column.type):
        return pa.array([_write_id(value) for value in column.to_pylist()], type_)
    if pa.types.is_list(type_) and pa.types.is_string(type_.value_type):
        ids = [v and [_write_id(each) for each in v] for v in column.to_pylist()]
        return pa.array(ids, type_)
    return column.cast(type_)


def _write_id(value: int | None) -> str | None:
    return None if value is None else f"{value & _ID_BITS:016x}"


def write_map(value: dict[str, Any]) -> str:
    """Return a map as JSON; bytes become hexadecimal."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=_write_other)


def _write_other(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def build_batch(
    schema: pa.Schema, kind: str, length: int, columns: dict[str, pa.Array | object]
) -> pa.RecordBatch:
    """Return a batch with the schema's columns: given ones, constants repeated, nulls elsewhere."""
    arrays = []
    for field in schema:
        column = kind if field.name == "kind" else columns.get(field.name)
        if isinstance(column, pa.Array):
            arrays.append(
                column if column.type == field.type else convert_column(column, field.type)
            )
        elif column is None:
            arrays.append(pa.nulls(length, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(column, field.type), length))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Pieces of a segment --------------------------------------------------------------------
# Workers read a block of the log as one batch, and skip blocks that cannot contain requested
# records. Damage belongs to the piece with its first record, or to the first piece of its file if
# it has no number: however a file is cut, it is reported once.

LOWEST, HIGHEST = -(1 << 63), 1 << 63


class Wanted(NamedTuple):
    """What to read: a kind, `all` or `quarantine`, since <= time < until, of which nodes."""

    kind: str = ALL
    since: int = LOWEST
    until: int = HIGHEST
    nodes: frozenset[str] | None = None  # None: all

    @property
    def has_problems(self) -> bool:
        """Whether what cannot be read is wanted, too."""
        return self.kind in (ALL, QUARANTINE)


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
    chosen = None if wanted.has_problems else [wanted.kind]
    mask = None if chosen is None else log.build_mask(chosen)
    # Damage has no time: what is in quarantine is told whatever time is asked for.
    times = (None, None) if wanted.has_problems else (wanted.since, wanted.until)
    try:
        data = load_piece(piece)
    except OSError as error:
        if is_strict:
            raise
        if wanted.has_problems:
            yield QUARANTINE, build_problems([_describe_lost(piece, error)], schemas[QUARANTINE])
        return
    contents = log.read_segment(data, is_closed=piece.is_closed, start=piece.start)
    problems = _keep_own(piece, contents.damages)
    for block in contents.blocks:
        if block.header.first >= piece.stop or not block.may_hold(mask, *times):
            continue
        tables, damages = log.decode_columns(block, chosen)
        problems += _keep_own(piece, damages)
        if wanted.kind != QUARANTINE:
            for kind, columns in tables.items():
                batch = _build(piece, block, kind, columns, wanted, schemas[kind])
                if batch.num_rows:
                    yield kind, batch
    if problems and wanted.has_problems:
        yield QUARANTINE, build_problems(problems, schemas[QUARANTINE])


def _describe_lost(piece: Piece, error: OSError) -> Quarantined:
    lost = piece.start, piece.stop - piece.start
    reason = f"cannot be read: {error.strerror}"
    return Quarantined(piece.path, DAMAGE, reason, 0, 0, piece.node, piece.epoch, *lost)


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
    if (wanted.since, wanted.until) == (LOWEST, HIGHEST):
        return batch
    times = columns["time"][:length]
    return batch.filter(pa.array([wanted.since <= time < wanted.until for time in times]))


def _keep_own(piece: Piece, damages: Iterable[Damage]) -> list[Quarantined]:
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
            kept.append(Quarantined(piece.path, DAMAGE, damage.reason, *place, *lost))
    return kept


def build_problems(problems: list[Quarantined], schema: pa.Schema) -> pa.RecordBatch:
    """Return problems as rows of the quarantine, or of `all`."""
    made: dict[str, object] = {}
    for name in Quarantined._fields:
        column = name.rstrip("_")
        if column in schema.names:
            type_ = schema.field(column).type
            made[column] = pa.array([getattr(problem, name) for problem in problems], type_)
    return build_batch(schema, QUARANTINE, len(problems), made)
