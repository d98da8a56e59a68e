"""What subscriptions ask for: their attributes and terms, and the minimal set that covers all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.syntax import (
    Constraint,
    CrispComparison,
    CrispRange,
    NamedTerm,
    PredicateNode,
    iterate_predicates,
)
from denwatch.node.covering import Approximate, Covering, Domains
from denwatch.node.covering.boxes import ATTRIBUTES_PER_EVENT, box_vector
from denwatch.node.covering.entries import CoveringEntry, sort_widest_first
from denwatch.node.matching import compiling
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.vectors import SubscriptionVector
from denwatch.spark.analytics.timeline import keep_rows, sort_rows
from denwatch.spark.matching.job import find_event
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

TERMS = "subscription_id bigint, attribute string, term string"
_UNREAD = "(in other words)"  # content filters, and what a newer language says


def count_terms(windows: DataFrame, matches: DataFrame) -> DataFrame:
    """Return attributes and terms: subscriptions, subscribers, and matches of those.

    `windows` and `matches` are those of `denwatch.spark.matching`. The most asked for come first.
    """
    words = windows.select("subscription_id", "words", "language")
    said = words.mapInPandas(_read_words, TERMS)
    matched = matches.groupBy("subscription_id").agg(F.count("*").alias("matches"))
    counted = (
        said.join(windows.select("subscription_id", "subscriber"), "subscription_id")
        .join(matched, "subscription_id", "left")
        .groupBy("attribute", "term")
        .agg(
            F.expr("count(distinct subscription_id) as subscriptions"),
            F.expr("count(distinct subscriber) as subscribers"),
            F.expr("nvl(sum(matches), 0) as matches"),
        )
    )
    return sort_rows(counted, F.desc("subscriptions"), F.desc("matches"), "attribute", "term")


def _read_words(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        rows = [
            (int(row.subscription_id), *pair)
            for row in batch.itertuples(index=False)
            for pair in _list_terms(row.words, row.language)
        ]
        yield pd.DataFrame(rows, columns=["subscription_id", "attribute", "term"])


def _list_terms(words: str, language: int) -> list[tuple[str, str]]:
    if language != FUZZY:
        return [(_UNREAD, "")]
    try:
        condition = parse(words).condition
    except LanguageError:
        return [(_UNREAD, "")]
    found = [_describe(predicate) for predicate in iterate_predicates(condition)]
    return list(dict.fromkeys(found))


def _describe(predicate: PredicateNode) -> tuple[str, str]:
    said = _name(predicate.constraint)
    hedges = " ".join(predicate.hedges)
    parts = ("not" if predicate.negated else "", hedges, said)
    name = predicate.attribute.text.rpartition(".")[2]
    return name, " ".join(part for part in parts if part)


def _name(constraint: Constraint) -> str:
    if isinstance(constraint, NamedTerm):
        return constraint.name.text
    if isinstance(constraint, CrispComparison):
        return str(constraint.operator.value)
    return "between" if isinstance(constraint, CrispRange) else type(constraint).__name__.lower()


# The minimal set of subscriptions -------------------------------------------------------
# Three steps, each on fewer rows than the one before, none on the driver:
#
# 1. Of subscriptions with the same bytes, the one with the lowest id stays.
# 2. Those with the same feature mask are compared, in chunks of at most `CHUNK`.
# 3. The remaining ones of an event are compared, with masks nested, in chunks of at most `FAR`. Of
#    more than that a few may stay that another chunk covers: the set is less small, and as right.
#
# A subscription that a step drops is covered by those that the step keeps, and these may later be
# dropped only for others that cover them. So everything dropped is covered by what is active in the
# end. Chunks are made by the bytes of vectors: the answer does not depend on how rows are spread.

SAME, COVERED, UNREADABLE = "same", "covered", "unreadable"
CHUNK, FAR = 2_000, 20_000  # subscriptions that are compared at once: of one mask, of one event
_PLACED = "subscription_id bigint, vocabulary binary, vector binary, why string"
_WIDE = (0, 65_535)


def find_minimal(
    windows: DataFrame, at: int, *, chunk: int = CHUNK, far_chunk: int = FAR
) -> DataFrame:
    """Return which of the subscriptions in force at a time (ms) have to be sent to everybody.

    Columns: subscription_id, event, bytes, is_active, why (for passive ones: same, the bytes of
    another, or covered; for active ones empty, or unreadable: nothing is known to cover it).
    """
    live = windows.where(
        (F.col("begins") <= at) & (F.col("ends") > at) & (F.col("language") == FUZZY)
    ).select("subscription_id", "vocabulary", "vector")
    vector = Window.partitionBy("vocabulary", "vector")
    is_first = F.col("subscription_id") == F.min("subscription_id").over(vector)
    unique = live.withColumn("why", F.when(is_first, "").otherwise(SAME))
    once = unique.where("why = ''").withColumns(
        {"first": F.substring("vector", 1, 1), "features": F.substring("vector", 7, 2)}
    )
    near = keep_rows(_place_chunks(once, ["vocabulary", "first", "features"], chunk))
    left = near.where("why = ''").withColumn("first", F.substring("vector", 1, 1))
    far = _place_chunks(left, ["vocabulary", "first"], far_chunk)
    placed = (
        unique.where(F.col("why") == SAME).unionByName(near.where("why <> ''")).unionByName(far)
    )
    return placed.select(
        "subscription_id",
        find_event(F.col("vector")).alias("event"),
        F.length("vector").alias("bytes"),
        F.col("why").isin("", UNREADABLE).alias("is_active"),
        "why",
    )


def _place_chunks(rows: DataFrame, key: list[str], most: int) -> DataFrame:
    """Compare the rows of each key, cut into chunks of about so many by the bytes of vectors."""
    chunks = F.ceil(F.count("*").over(Window.partitionBy(*key)) / most)
    cut = rows.withColumn("chunk", F.pmod(F.xxhash64("vector"), chunks))
    return cut.groupBy(*key, "chunk").applyInPandas(_place, _PLACED)


def _place(frame: pd.DataFrame) -> pd.DataFrame:
    """Find the covered ones among subscriptions with one vocabulary and event."""
    rows = sorted(
        (int(row.subscription_id), bytes(row.vocabulary or b""), bytes(row.vector or b""))
        for row in frame.itertuples(index=False)
    )
    vectors: dict[int, SubscriptionVector] = {}
    for key, _, data in rows:
        try:
            vectors[key] = codec.decode(data)
        except ProtocolError:
            continue
    active = set(choose_active(vectors))
    placed = [
        (*row, UNREADABLE if row[0] not in vectors else "" if row[0] in active else COVERED)
        for row in rows
    ]
    return pd.DataFrame(placed, columns=["subscription_id", "vocabulary", "vector", "why"])


def choose_active(vectors: dict[int, SubscriptionVector]) -> Iterable[int]:
    """Return the ids of subscriptions that cover all others, the widest asked first."""
    wide = {
        ATTRIBUTES_PER_EVENT * vector.event + predicate.attribute: _WIDE
        for vector in vectors.values()
        for predicate in vector.predicates
        if predicate.wide
    }
    domains = Domains(special=wide)
    boxes = {key: box_vector(vector) for key, vector in vectors.items()}
    keys = sorted(boxes)
    entries = [CoveringEntry.make(order, boxes[key], domains) for order, key in enumerate(keys)]
    compiling.declare_ready()  # here are many, and Spark has the compiler
    table: Covering[int] = Covering(domains, Approximate())
    for entry in sort_widest_first(entries):
        key = keys[entry.order]
        table.subscribe(key, boxes[key])
    return table.active()


def sum_minimal(places: DataFrame) -> DataFrame:
    """Return one row an event: subscriptions, sent, bytes, and bytes saved to each device."""
    sums = (
        *("count(*) as subscriptions", "count_if(is_active) as sent"),
        *(f"count_if(why = '{SAME}') as same", f"count_if(why = '{COVERED}') as covered"),
        *("sum(bytes) as bytes", "sum(if(is_active, 0, bytes)) as bytes_saved"),
    )
    return sort_rows(places.groupBy("event").agg(*map(F.expr, sums)), "event")
