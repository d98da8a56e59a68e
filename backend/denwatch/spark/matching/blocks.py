"""Matches on their way from Python to Spark: many to a row, as arrays, and made rows there.

Every row that Spark takes from Python passes through a chain of iterators and is copied: 50 ns for
a match of three numbers. An element of an array takes half of that, in code that Spark generates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, StructField, StructType

BLOCK = 256  # matches that cross in one row

Batches = Iterator[pa.RecordBatch]


def map_blocks(
    rows: DataFrame, function: Callable[[Batches], Batches], schema: StructType
) -> DataFrame:
    """Return what a function makes of Arrow batches, as `mapInArrow` does."""
    arrays = [StructField(f.name, ArrayType(f.dataType, f.nullable), False) for f in schema]
    blocks = rows.mapInArrow(make_packer(function), StructType(arrays))
    first, *others = schema.names
    spread = blocks.selectExpr(*others, f"posexplode({first}) as (place, {first})")
    return spread.selectExpr(first, *(f"{name}[place] as {name}" for name in others))


def make_packer(function: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return a function with the same rows in blocks."""
    return lambda batches: map(pack_batch, function(batches))


def pack_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same columns, cut into lists; no value is copied."""
    cuts = np.append(np.arange(0, batch.num_rows, BLOCK), batch.num_rows)
    offsets = pa.array(cuts, pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(lists, batch.schema.names)
