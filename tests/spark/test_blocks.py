"""Matches cross to Spark in blocks, and come out as the rows that went in."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from denwatch.spark.matching.job import (
    BLOCK,
    TASK_ROWS,
    RowGroup,
    count_tasks,
    map_blocks,
    pack_batch,
)
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, ShortType, StringType, StructField, StructType

SCHEMA = StructType(
    [
        StructField("number", LongType(), nullable=False),
        StructField("word", StringType()),
        StructField("degree", ShortType(), nullable=False),
    ]
)
SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 0, 5)


def make_batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    words = [None if n % 3 == 0 else f"ward {n}" for n in numbers]
    degrees = pa.array([n % 256 for n in numbers], pa.int16())
    columns = [pa.array(numbers, pa.int64()), pa.array(words, pa.string()), degrees]
    return pa.RecordBatch.from_arrays(columns, SCHEMA.names)


@pytest.mark.parametrize("rows", SIZES)
def test_blocks_hold_all_values_in_order(rows: int) -> None:
    batch = make_batch(7, rows)
    packed = pack_batch(batch)
    assert packed.num_rows == -(-rows // BLOCK)
    for column, blocks in zip(batch.columns, packed.columns, strict=True):
        assert [value for block in blocks.to_pylist() for value in block] == column.to_pylist()
    # What was cut off before is not brought back.
    part = batch.slice(rows // 2)
    assert pack_batch(part).column(0).flatten().to_pylist() == part.column(0).to_pylist()


def test_rows_that_come_out_went_in(spark: SparkSession) -> None:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield make_batch(number * 10_000, SIZES[number])

    found = map_blocks(spark.range(0, len(SIZES), 1, 3), make, SCHEMA)
    assert found.columns == SCHEMA.names
    assert [field.dataType for field in found.schema] == [field.dataType for field in SCHEMA]
    wanted = [
        tuple(row.values())
        for number, rows in enumerate(SIZES)
        for row in make_batch(number * 10_000, rows).to_pylist()
    ]
    assert sorted(map(tuple, found.collect())) == sorted(wanted)
    # What is not asked for may be left out, and what is left is still the same.
    words = {row[0] for row in found.where("degree = 7").select("word").collect()}
    assert words == {row[1] for row in wanted if row[2] == 7}


@pytest.mark.parametrize(
    ("rows", "cores", "tasks"),
    [
        ([], 2, 2),
        ([10], 4, 4),
        ([TASK_ROWS, TASK_ROWS], 2, 2),
        ([TASK_ROWS, TASK_ROWS, 1], 2, 4),
        ([TASK_ROWS] * 100, 16, 112),
    ],
)
def test_every_core_has_equally_many_tasks(rows: list[int], cores: int, tasks: int) -> None:
    parts = [RowGroup("a.parquet", group, size) for group, size in enumerate(rows)]
    assert count_tasks(parts, cores) == tasks
