"""The columns of the log's records in Spark and Arrow. The only file that maps the log's types.

Ids are 64 bits without a sign in the log and BIGINT here, the same bits: `lower(hex(id))` is the
name that people see. Times are BIGINT milliseconds. A map is its JSON. A kind's columns are those
that every record has and then its fields; the kind `all` has the columns of all kinds side by side,
with what is damaged as rows of the kind `quarantine`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from denwatch.node.log import kinds
from denwatch.node.log.kinds import KINDS
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
            arrays.append(column if column.type == field.type else column.cast(field.type))
        elif column is None:
            arrays.append(pa.nulls(length, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(column, field.type), length))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
