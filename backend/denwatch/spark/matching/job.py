"""The Spark job of global matching: every notification against every subscription.

A worker decodes the vectors of a batch, queries the node's index, and keeps the matches whose
subscription was in force. Each notification is matched by itself, so the result does not depend on
how they are distributed. Passing a match to Spark as a row costs more than finding it, so only the
requested columns are built.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from denwatch.node.backend_api import describe_content, load_languages
from denwatch.node.matching import index as node_index
from denwatch.node.matching.joins import JoinMatcher
from denwatch.node.matching.plugins import Matcher
from denwatch.node.matching.search import MatchBatch, NotificationBatch
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.spark.matching import index as files
from denwatch.spark.matching import kernels
from denwatch.spark.matching.index import CONTENTS, NAMES, ROWS, Shard, SharedIndex
from denwatch.spark.matching.value_index import ValueIndex, find_exact, match_values
from denwatch.spark.matching.windows import Meanings
from denwatch.spark.source.decoding import convert_schema
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, ShortType, StringType, StructField, StructType

MATCHES = StructType(
    [
        StructField("notification_id", LongType(), nullable=False),
        StructField("subscription_id", LongType(), nullable=False),
        StructField("subscriber", StringType()),
        StructField("possible", ShortType(), nullable=False),
        StructField("certain", ShortType(), nullable=False),
        StructField("attribute", ShortType(), nullable=False),
    ]
)
ALL_COLUMNS = tuple(MATCHES.names)
NEEDED = ("notification_id", "at", "doubt", "vector")


def match_notes(
    notes: DataFrame, index: SharedIndex, columns: Sequence[str] = ALL_COLUMNS
) -> DataFrame:
    """Return the matches of notifications: the columns of MATCHES that are asked for, in no order.

    The notifications' columns are notification_id, at and doubt (ms) and vector; vocabulary where
    there are several, and device where subscriptions to typed content ask for it.
    """
    chosen = notes.select(*list_inputs(index, notes.columns))
    schema = choose_schema(columns)
    parts = []
    for unit in list_units(index):
        part = chosen
        if unit is not None and len(index.shards) > 1:
            part = chosen.where(find_event(F.col("vector")).isin(*unit.events))
        match = partial(match_batches, index=index, unit=unit, columns=columns)
        parts.append(map_blocks(part, match, schema))
    if not parts:
        return notes.sparkSession.createDataFrame([], schema)
    return reduce(DataFrame.unionAll, parts)


def list_units(index: SharedIndex) -> list[Shard | None]:
    """Return what notifications are matched with: each shard, and None for typed content."""
    return [*index.shards, *([None] if index.content else [])]


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
    return convert_schema(choose_schema(columns))


def find_event(vector: Column) -> Column:
    """Return the event of a vector: it is in the first byte."""
    return F.conv(F.hex(F.substring(vector, 1, 1)), 16, 10).cast("int").bitwiseAND(63)


def match_batches(
    batches: Batches, index: SharedIndex, unit: Shard | None, columns: Sequence[str]
) -> Batches:
    """Yield the matches of batches with the subscriptions of one of `list_units`."""
    for batch in batches:
        if unit is None:
            yield match_content(batch, index, columns)
        else:
            yield from match_batch(batch, index, unit, columns)


def match_batch(
    batch: pa.RecordBatch, index: SharedIndex, shard: Shard, columns: Sequence[str] = ALL_COLUMNS
) -> Batches:
    """Yield the matches of a batch with the subscriptions of a shard."""
    names = files.load_names(index.find(NAMES))
    schema = choose_arrow(columns)
    readings, _ = kernels.decode_notes(batch.column("vector"))
    notification_ids, at, doubt = (
        copy_numbers(batch, name) for name in ("notification_id", "at", "doubt")
    )
    words = find_words(batch, names.vocabularies)
    rows = files.load_rows(index.find(ROWS))
    for hits in find_matches(readings, index, shard):
        found = hits.starts, hits.ids, hits.possible, hits.certain, hits.attributes
        *kept, degrees = kernels.keep_hits(*found, notification_ids, at, doubt, words, rows)
        made = dict(zip(ALL_COLUMNS, map(pa.array, (*kept, *degrees)), strict=True))
        if "subscriber" in columns:
            coded = pa.DictionaryArray.from_arrays(made["subscriber"], names.subscribers)
            made["subscriber"] = coded.cast(pa.string())
        yield pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)


def find_matches(
    readings: NotificationBatch, index: SharedIndex, shard: Shard
) -> Iterator[MatchBatch]:
    """Yield all matches of notifications with the subscriptions of a shard, in batches."""
    if not shard.by_value:
        yield files.load_shard(index.find(shard.file)).match_batch(readings)
        return
    exact = find_exact(readings.starts, readings.points, readings.wides)
    yield match_values(readings, files.load_lists(index.find(shard.by_value)), exact)
    if shard.rest:
        yield files.load_shard(index.find(shard.rest)).match_batch(keep_notes(readings, exact))
    if not exact.all():
        yield files.load_shard(index.find(shard.file)).match_batch(keep_notes(readings, ~exact))


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


# Blocks ---------------------------------------------------------------------------------
# Matches cross from Python to Spark many to a row, as arrays, and become rows there. Every row that
# Spark receives from Python passes through a chain of iterators and is copied: 50 ns for a match of
# three numbers. An element of an array takes half of that, in code that Spark generates.

BLOCK = 256  # matches that cross in one row

Batches = Iterator[pa.RecordBatch]


def map_blocks(
    rows: DataFrame, function: Callable[[Batches], Batches], schema: StructType
) -> DataFrame:
    """Return what a function makes of Arrow batches, as `mapInArrow` does."""
    arrays = [StructField(f.name, ArrayType(f.dataType, f.nullable), False) for f in schema]
    blocks = rows.mapInArrow(lambda b: map(pack_batch, function(b)), StructType(arrays))
    first, *others = schema.names
    spread = blocks.selectExpr(*others, f"posexplode({first}) as (place, {first})")
    return spread.selectExpr(first, *(f"{name}[place] as {name}" for name in others))


def pack_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same columns, cut into lists; no value is copied."""
    cuts = np.append(np.arange(0, batch.num_rows, BLOCK), batch.num_rows)
    offsets = pa.array(cuts, pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(lists, batch.schema.names)


# Typed content, and old readings ---------------------------------------------------------
# Workers use the node's own matchers of all languages, of the fuzzy one `JoinMatcher`. Such
# subscriptions are few; a notification is matched by the names and values that its vocabulary gives
# it.


@lru_cache(maxsize=2)
def load_content(path: Path) -> tuple[dict[int, Matcher[Any, Any]], Meanings]:
    """Return the matchers with the subscriptions by row, and the vocabularies that name values."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    matchers: dict[int, Matcher[Any, Any]] = {FUZZY: JoinMatcher()}
    for row, (id_, data) in stored["filters"].items():
        language = load_languages().find(id_)
        if id_ not in matchers:
            matchers[id_] = language.make_matcher()
        matchers[id_].add(int(row), language.decode(bytes.fromhex(data)))
    documents = {bytes.fromhex(key): text for key, text in stored["documents"].items()}
    return matchers, Meanings(documents)


def match_content(
    batch: pa.RecordBatch, index: SharedIndex, columns: Sequence[str]
) -> pa.RecordBatch:
    """Return the matches of a batch with subscriptions to typed content, or by old readings."""
    matchers, meanings = load_content(index.find(CONTENTS))
    rows = files.load_rows(index.find(ROWS))
    subscribers = files.load_names(index.find(NAMES)).subscribers
    found: list[dict[str, Any]] = []
    words = find_words(batch, files.load_names(index.find(NAMES)).vocabularies)
    for note, word in zip(batch.to_pylist(), words.tolist(), strict=True):
        if len(matchers) == 1 and not (note["vector"] or b"\0\0")[1:2] > b"\x0f":
            continue  # nobody asks for typed content, and it has no old readings
        try:
            vector = notification.decode(note["vector"] or b"")
        except ProtocolError:
            continue
        latest = note["at"] + (note["doubt"] or 0)
        event = meanings.find_event(note.get("vocabulary") or b"", vector.event)
        content = describe_content(vector, event, note.get("device") or "")
        hits = [
            hit
            for id_, matcher in matchers.items()
            for hit in matcher.match(vector if id_ == FUZZY else content)
        ]
        for hit in hits:
            if not int(rows[hit.id, 4]) & word:
                continue
            id_, begins, ends, subscriber = rows[hit.id, :4].tolist()
            if begins <= latest and note["at"] < ends:
                degrees = hit.possible, hit.certain, hit.attribute
                match = note["notification_id"], id_, subscribers[subscriber].as_py(), *degrees
                found.append(dict(zip(ALL_COLUMNS, match, strict=True)))
    return pa.RecordBatch.from_pylist(found, schema=choose_arrow(columns))


# Parquet files --------------------------------------------------------------------------
# A row that Spark reads and passes to Python takes half a microsecond of a core, matching it takes
# two. Where notifications are already in Parquet files, a task gets the numbers of its row groups
# and reads them itself, as the Arrow batches that matching needs. Every worker must see the files,
# as for logs. The result does not depend on how the files are cut.

BATCH_ROWS = 50_000  # notifications that are matched at a time
TASK_ROWS = 500_000  # a task costs Spark 20 ms, and matching so many some 600


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file."""

    path: str
    group: int
    rows: int


def match_files(
    spark: SparkSession,
    paths: Iterable[str | Path],
    index: SharedIndex,
    columns: Sequence[str] = ALL_COLUMNS,
    *,
    tasks: int | None = None,
) -> DataFrame:
    """Return the matches of the notifications in Parquet files; see `match_notes`."""
    schema = choose_schema(columns)
    parts = list_parts(paths)
    if not parts or not (index.shards or index.content):
        return spark.createDataFrame([], schema)
    shares = share_parts(parts, tasks or count_tasks(parts, spark.sparkContext.defaultParallelism))
    # All of a shard before the next, so that a worker has only one in its memory.
    work = [(unit, share) for unit in list_units(index) for share in shares]

    def match_work(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                unit, share = work[number]
                yield from match_batches(read_parts(share, index), index, unit, columns)

    return map_blocks(spark.range(0, len(work), 1, len(work)), match_work, schema)  # one to a task


def list_parts(paths: Iterable[str | Path]) -> list[RowGroup]:
    """Return every row group of the files; a folder stands for the files in it."""
    parts: list[RowGroup] = []
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
            footer = pq.read_metadata(file)
            sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
            parts += [RowGroup(str(file.resolve()), g, rows) for g, rows in enumerate(sizes)]
    return parts


def count_tasks(parts: Sequence[RowGroup], cores: int) -> int:
    """Return how many tasks to make: something for every core, equally often."""
    rows = sum(part.rows for part in parts)
    return cores * max(1, math.ceil(rows / (cores * TASK_ROWS)))


def share_parts(parts: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """Return the parts of each task: neighbours, about equally many rows, none empty."""
    total = sum(part.rows for part in parts)
    shares: list[list[RowGroup]] = []
    seen = 0
    for part in parts:
        if not shares or seen * tasks >= total * len(shares):
            shares.append([])
        shares[-1].append(part)
        seen += part.rows
    return shares


def read_parts(parts: Iterable[RowGroup], index: SharedIndex) -> Batches:
    """Yield the notifications of some row groups, with the columns that the index looks at."""
    for part in parts:
        with pq.ParquetFile(part.path, memory_map=True) as file:
            names = list_inputs(index, file.schema_arrow.names)
            yield from file.iter_batches(BATCH_ROWS, [part.group], names, use_threads=False)


# Compiling ahead ------------------------------------------------------------------------


def warm_up() -> None:
    """Compile all kernels before workers are forked."""
    node_index.warm_up()
    data = np.array([0x80, 0, 0, 0, 0, 0, 0, 1, 7], np.uint8)
    ends = np.array([0, 9], np.int64)
    counts = np.zeros(1, np.int64)
    kernels.count_readings(data, ends, counts)
    starts = np.zeros(2, np.int64)
    points = np.zeros((1, 4), np.int32)
    attributes, wides = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    kernels.read_notes(data, ends, counts, starts, attributes, points, wides)
    readings = NotificationBatch(starts, attributes, points, wides, np.zeros(1, np.int64))
    nothing = ValueIndex(np.zeros(257, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    match_values(readings, nothing, find_exact(starts, points, wides))
    one, byte, attribute = np.zeros(1, np.int64), np.zeros(1, np.uint8), np.zeros(1, np.int32)
    hits = starts, np.zeros(1, np.uint64), byte, byte, attribute
    kernels.keep_hits(*hits, one, one, one, one, np.zeros((1, 5), np.int64))
