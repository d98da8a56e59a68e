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


def name_column(field: str) -> str:
    """Return the column of a field: the word of the glossary where the log has an older one."""
    return "subscriber" if field == "owner" else field


@cache
def build_schema(kind: str) -> spark.StructType:
    """Return the columns of a kind, of `quarantine`, or of `all`."""
    if kind == QUARANTINE:
        columns = dict(_QUARANTINE)
    elif kind == ALL:
        columns = {**_FIXED, "kind": _TEXT}
        for name in KINDS:
            columns |= _list_columns(name)
        columns |= {name: type_ for name, type_ in _QUARANTINE.items() if name not in _FIXED}
    elif kind in KINDS:
        columns = _FIXED | _list_columns(kind)
    else:
        known = ", ".join((*KINDS, QUARANTINE, ALL))
        raise KindError(f"there is no kind {kind!r} in a node's log; there are {known}")
    return spark.StructType([spark.StructField(name, type_) for name, type_ in columns.items()])


def _list_columns(kind: str) -> dict[str, spark.DataType]:
    return {name_column(field.name): _TYPES[field.type] for field in KINDS[kind].fields}


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
    return fixed | {name_column(field.name): field.type for field in KINDS[kind].fields}


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


# Columns as people read them ------------------------------------------------------------
# `spark.read.format("denwatch")` has times as TIMESTAMP and ids as hexadecimal text, as wherever a
# person sees them, and a comment on each column. The analysis asks the same source for BIGINT
# instead: the reader serves each column in the type that the schema names.

TIMES = ("time", "at", "expires", "created", "began")
_SHOWN_TYPES: dict[str, spark.DataType] = {
    kinds.ID: spark.StringType(),
    kinds.IDS: spark.ArrayType(spark.StringType()),
}
_COMMENTS = {
    "node": "the node that wrote the record",
    "epoch": "which run of the node: it counts its starts",
    "number": "of the record; a node numbers its records without gaps over all runs",
    "time": "when it was written, by the clock of the node",
    "hybrid": "hybrid logical time: orders records of nodes that met",
    "kind": "the kind of record",
    "item": "id of the subscription or notification",
    "note": "id of the notification",
    "subscription": "id of the subscription",
    "subscriptions": "ids of the subscriptions that it matches",
    "notes": "ids of the notifications",
    "parts": "ids of the notifications that tell the story, in the order of its parts",
    "origin": "the node where the item entered the network",
    "run": "which run of the origin made the item",
    "sequence": "number of the item in that run",
    "subscriber": "the subscriber",
    "role": "the subscriber's role",
    "words": "the subscription as it was written",
    "language": "id of the subscription language",
    "vocabulary": "hash of the vocabulary that the vector belongs to",
    "vector": "the subscription or notification vector",
    "created": "when the subscription was made",
    "expires": "when the item ends by itself",
    "options": "options of the subscription, as JSON",
    "source": "where it came from: empty for a subscriber or device, else the peer",
    "event": "the event of the vocabulary",
    "features": "mask of the attributes in the vector",
    "signature": "Ed25519 signature of the origin",
    "reason": "why, in words",
    "why": "why, in words",
    "what": "what it happened to",
    "who": "who was refused",
    "address": "network address of who was refused",
    "times": "how often",
    "device": "the device",
    "device_epoch": "which run of the device",
    "device_sequence": "number of the reading in that run",
    "at": "when the reading was taken, or the delivery acknowledged",
    "doubt": "by how many ms `at` may be wrong",
    "degree": "how well it fits, 0 to 255",
    "possible": "possibility of the match, 0 to 255",
    "certain": "necessity of the match, 0 to 255",
    "score": "rank of the notification for the subscriber",
    "attempt": "how often it has been sent, this time included",
    "detail": "more about it",
    "is_up": "true: came; false: left",
    "peer": "the other node",
    "contact": "number of the contact with that peer",
    "is_initiator": "whether this node opened the link",
    "began": "when the contact began",
    "outcome": "how the contact ended",
    "bytes": "size in bytes",
    "copies": "copies that may still be made of it",
    "is_out": "true: sent; false: received",
    "senses": "ids of the attributes that the device measures",
    "capacity": "subscriptions that the device has room for",
    "firmware": "version of the device's program",
    "settings": "settings in force, as JSON",
    "software": "version of the node's program",
    "strategy": "how notifications are replicated",
    "offset": "ms added to the clock; in quarantine: the first byte",
    "bound": "by how many ms the clock may be wrong",
    "sampled": "readings taken",
    "sent": "readings sent",
    "dropped": "readings dropped because the spool was full",
    "bytes_sent": "bytes of the readings sent",
    "bytes_saved": "bytes of the readings that nobody asked for",
    "link": "the device or peer",
    "is_active": "true: sent to the link; false: covered by others",
    "covered_by": "ids of the subscriptions that cover it",
    "hash": "hash of the vocabulary",
    "document": "the vocabulary",
    "name": "whose rights ended",
    "by": "who decided it",
    "is_followed": "whether the node follows it",
    "file": "the file that was not read, or not all of it",
    "class": "damage, duplicate or foreign",
    "size": "bytes that were not read",
    "first": "number of the first record that is lost, if known",
    "length": "how many records are lost, if known",
}
_COUNTED = {  # `digest_out`, `items_in` …: what a contact carried
    "digest": "bytes of fingerprints",
    "known": "bytes of lists of what is known",
    "items": "bytes of items",
    "subscriptions": "subscriptions",
    "notes": "notifications",
    "delivered": "receipts",
    "others": "other items",
}
_WAYS = {"out": "sent", "in": "received"}


def describe_column(name: str) -> str:
    """Return the comment of a column."""
    found = _COMMENTS.get(name)
    if found is None:
        what, _, way = name.rpartition("_")
        found = f"{_COUNTED[what]} {_WAYS[way]}"
    return found


def list_ids(kind: str) -> list[str]:
    """Return the columns of a kind that have ids, or lists of them."""
    return [name for name, type_ in _find_types(kind).items() if type_ in _SHOWN_TYPES]


@cache
def build_readable_schema(kind: str) -> spark.StructType:
    """Return the columns of a kind with the types and comments that a person expects."""
    types = {
        name_column(field.name): field.type for each in KINDS.values() for field in each.fields
    }
    fields = []
    for field in build_schema(kind):
        shown = _SHOWN_TYPES.get(types.get(field.name, ""), field.dataType)
        if field.name in TIMES:
            shown = spark.TimestampType()
        comment = {"comment": describe_column(field.name)}
        fields.append(spark.StructField(field.name, shown, metadata=comment))
    return spark.StructType(fields)


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
    for field, values in columns.items():
        name = name_column(field)
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
