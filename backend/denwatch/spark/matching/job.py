"""The job: every notification against every subscription, with the node's index, on Arrow batches.

What a worker does to a batch: read the vectors, ask the index, keep the hits whose subscription was
in force. Each notification is looked at by itself, so the answer does not depend on how they are
distributed. A match costs less to find than to hand to Spark as a row: columns that nobody asks for
are not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from denwatch.node.matching.batch import MatchBatch, NotificationBatch
from denwatch.spark.matching.blocks import Batches, map_blocks
from denwatch.spark.matching.content import match_content
from denwatch.spark.matching.index import (
    NAMES,
    ROWS,
    Shard,
    SharedIndex,
    load_lists,
    load_names,
    load_rows,
    load_shard,
)
from denwatch.spark.matching.kernels import keep_hits
from denwatch.spark.matching.stabs import find_exact, match_stabs
from denwatch.spark.matching.vectors import decode_notes, explain_note
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, ShortType, StringType, StructField, StructType

MATCHES = StructType(
    [
        StructField("note_id", LongType(), nullable=False),
        StructField("subscription_id", LongType(), nullable=False),
        StructField("owner", StringType()),
        StructField("possible", ShortType(), nullable=False),
        StructField("certain", ShortType(), nullable=False),
        StructField("attribute", ShortType(), nullable=False),
    ]
)
ALL_COLUMNS = tuple(MATCHES.names)
_ARROW = {
    "note_id": pa.int64(),
    "subscription_id": pa.int64(),
    "owner": pa.string(),
    "possible": pa.int16(),
    "certain": pa.int16(),
    "attribute": pa.int16(),
}
NEEDED = ("note_id", "at", "doubt", "vector")


def match_notes(
    notes: DataFrame, index: SharedIndex, columns: Sequence[str] = ALL_COLUMNS
) -> DataFrame:
    """Return the matches of notifications: the columns of MATCHES that are asked for, in no order.

    The notifications' columns are note_id, at and doubt (ms) and vector; vocabulary where there are
    several, and device where subscriptions to typed content ask for it.
    """
    chosen = notes.select(*list_inputs(index, notes.columns))
    schema = choose_schema(columns)
    parts = []
    for shard in index.shards:
        part = chosen
        if len(index.shards) > 1:
            part = chosen.where(find_event(F.col("vector")).isin(*shard.events))
        parts.append(map_blocks(part, make_matcher(index, shard, columns), schema))
    if index.content:
        matcher = match_content(index, choose_arrow(columns))
        parts.append(map_blocks(chosen, matcher, schema))
    if not parts:
        return notes.sparkSession.createDataFrame([], schema)
    return reduce(DataFrame.unionAll, parts)


def list_inputs(index: SharedIndex, names: Sequence[str]) -> list[str]:
    """Return the columns of the notifications that an index looks at."""
    optional = []
    if index.content or index.vocabularies > 1:
        optional.append("vocabulary")
    if index.content:
        optional.append("device")
    return [*NEEDED, *(name for name in optional if name in names)]


def choose_schema(columns: Sequence[str]) -> StructType:
    """Return the columns of MATCHES that are asked for, for Spark."""
    return StructType([MATCHES[name] for name in columns])


def choose_arrow(columns: Sequence[str]) -> pa.Schema:
    """Return the columns of MATCHES that are asked for, for Arrow."""
    return pa.schema([(name, _ARROW[name]) for name in columns])


def find_event(vector: Column) -> Column:
    """Return the event of a notification vector."""
    return F.conv(F.hex(F.substring(vector, 1, 1)), 16, 10).cast("int").bitwiseAND(63)


def find_unreadable(notes: DataFrame) -> DataFrame:
    """Return (note_id, reason) of the notifications whose vector cannot be read."""
    return notes.select("note_id", "vector").mapInArrow(
        _explain_batches, "note_id bigint, reason string"
    )


def _explain_batches(batches: Batches) -> Batches:
    for batch in batches:
        _, is_right = decode_notes(batch.column("vector"))
        found = [
            (batch.column("note_id")[row].as_py(), why)
            for row in np.flatnonzero(~is_right).tolist()
            if (why := explain_note(batch.column("vector")[row].as_py() or b"")) is not None
        ]
        ids, reasons = zip(*found, strict=True) if found else ((), ())
        yield pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), pa.array(reasons, pa.string())], ["note_id", "reason"]
        )


def make_matcher(
    index: SharedIndex, shard: Shard, columns: Sequence[str]
) -> Callable[[Batches], Batches]:
    """Return what a task does with its batches."""

    def match_batches(batches: Batches) -> Batches:
        for batch in batches:
            yield from match_batch(batch, index, shard, columns)

    return match_batches


def match_batch(
    batch: pa.RecordBatch, index: SharedIndex, shard: Shard, columns: Sequence[str] = ALL_COLUMNS
) -> Batches:
    """Yield the matches of a batch with the subscriptions of a shard."""
    names = load_names(index.find(NAMES))
    schema = choose_arrow(columns)
    readings, _ = decode_notes(batch.column("vector"))
    note_ids, at, doubt = (copy_numbers(batch, name) for name in ("note_id", "at", "doubt"))
    words = find_words(batch, names.vocabularies)
    rows = load_rows(index.find(ROWS))
    for hits in find_hits(readings, index, shard):
        found = hits.starts, hits.ids, hits.possible, hits.certain, hits.attributes
        kept = keep_hits(*found, note_ids, at, doubt, words, rows)
        made = dict(zip(ALL_COLUMNS, map(pa.array, kept), strict=True))
        if "owner" in columns:
            coded = pa.DictionaryArray.from_arrays(made["owner"], names.owners)
            made["owner"] = coded.cast(pa.string())
        yield pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)


def find_hits(
    readings: NotificationBatch, index: SharedIndex, shard: Shard
) -> Iterator[MatchBatch]:
    """Yield all hits of notifications among the subscriptions of a shard, in one or more parts."""
    if not shard.stabs:
        yield load_shard(index.find(shard.file)).match_batch(readings)
        return
    exact = find_exact(readings.starts, readings.points, readings.wides)
    yield match_stabs(readings, load_lists(index.find(shard.stabs)), exact)
    if shard.rest:
        yield load_shard(index.find(shard.rest)).match_batch(keep_notes(readings, exact))
    if not exact.all():
        yield load_shard(index.find(shard.file)).match_batch(keep_notes(readings, ~exact))


def keep_notes(readings: NotificationBatch, chosen: NDArray[np.bool_]) -> NotificationBatch:
    """Return the same notifications, those that are not chosen without readings."""
    if chosen.all():
        return readings
    counts = np.diff(readings.starts)
    kept = np.repeat(chosen, counts)
    starts = np.concatenate(([0], np.cumsum(counts * chosen)))
    return NotificationBatch(
        starts,
        readings.attributes[kept],
        readings.points[kept],
        readings.wides[kept],
        readings.ages,
    )


def copy_numbers(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Return a column as an array of our own; nulls are 0."""
    column = batch.column(name)
    if column.null_count:
        column = column.fill_null(0)
    return np.array(column.to_numpy(zero_copy_only=False), np.int64)


def find_words(batch: pa.RecordBatch, vocabularies: dict[bytes, int]) -> NDArray[np.int64]:
    """Return the bit of each notification's vocabulary; all bits for one that is not known."""
    words = np.full(batch.num_rows, -1, np.int64)
    if len(vocabularies) > 1 and "vocabulary" in batch.schema.names:
        coded = batch.column("vocabulary").dictionary_encode()
        bits = [vocabularies.get(word.as_py()) for word in coded.dictionary]
        table = np.array([-1 if bit is None else 1 << bit for bit in bits] + [-1], np.int64)
        codes = coded.indices.fill_null(len(bits)).to_numpy(zero_copy_only=False)
        words = table[codes]
    return words
