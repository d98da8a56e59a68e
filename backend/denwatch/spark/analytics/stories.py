"""The global truth of stories: what all logs together tell, against what was told and delivered.

For every story, all notifications of all nodes that fit its parts are joined by the node's own join
(`denwatch.node.matching.story_join`), in the common timeline, with nothing forgotten. One row a
story and the reading that closes it:

| outcome | means |
|---|---|
| hit | it is true, and the subscriber has it |
| told | it is true, some node told it, and nobody has confirmed it yet |
| missed | it is true, and no node had all of its parts, in time |
| wrong | it was told, and is not true: a silence that was broken by what came later |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from denwatch.client.compiler.stories import KINDS, Story, decode_story
from denwatch.node.core.items import name_story
from denwatch.node.matching.story_join import (
    OwnTime,
    Place,
    StoryEntry,
    StoryJoin,
    Telling,
    find_place,
)
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.matching import match
from denwatch.spark.analytics.timeline import Logs, Run
from denwatch.spark.matching.windows import Meanings
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

STORY = 2  # the language
_UNBOUNDED = 1 << 40  # entries
_BEGINNING = -1  # in the place of a part
_ENTRIES = (
    "subscription_id bigint, notification_id bigint, part int, at bigint, doubt bigint,"
    " device string, possible int, certain int, place array<double>, origin string, run bigint,"
    " said bigint"
)
_TRUE = (
    "story_id bigint, subscription_id bigint, subscriber string, kind string, closing bigint,"
    " at bigint, possible int, certain int, parts array<bigint>"
)
Asked = tuple[int, str, bytes, bytes, int, int]  # id, subscriber, vocabulary, story, begins, ends


def judge_stories(
    logs: Logs, notes: DataFrame, windows: DataFrame, meanings: Meanings
) -> DataFrame:
    """Return one row a story that is true, or was told: its degrees, and what became of it.

    Columns: story_id, subscription_id, subscriber, kind, closing (0: a silence since the
    beginning), at, possible, certain, parts, outcome, told (by how many nodes), delivered (when).
    """
    columns = "subscription_id", "subscriber", "vocabulary", "vector", "begins", "ends"
    rows = windows.where(F.col("language") == STORY).select(*columns).collect()
    asked: list[Asked] = []
    for row in rows:
        try:
            decode_story(bytes(row["vector"]))
        except ProtocolError:
            continue
        data = bytes(row["vocabulary"]), bytes(row["vector"])
        asked.append((row["subscription_id"], row["subscriber"], *data, row["begins"], row["ends"]))
    session = notes.sparkSession
    true = session.createDataFrame([], _TRUE)
    if asked:
        documents = meanings.documents
        end = logs.end
        ahead = {run: clock.offset for run, clock in logs.clocks.items() if clock.offset}
        fitting = notes.mapInPandas(_make_fitter(asked, documents, ahead), _ENTRIES)
        # A silence has no entries, so every story has a row of its own. Without nulls: pandas would
        # make floats of ids.
        begun = [(each[0], 0, _BEGINNING, 0, 0, "", 0, 0, None, "", 0, 0) for each in asked]
        whole = fitting.unionByName(session.createDataFrame(begun, _ENTRIES))
        true = whole.groupBy("subscription_id").applyInPandas(_make_joiner(asked, end), _TRUE)
    told = logs.get("story").groupBy(F.col("item").alias("story_id"))
    facts = ("subscription", "subscriber", "what", "at", "possible", "certain")
    said = told.agg(
        *(F.first(name).alias(f"said_{name}") for name in facts),
        F.countDistinct("node").alias("told"),
    )
    delivered = logs.get("deliver").groupBy(F.col("note").alias("story_id"))
    got = delivered.agg(F.min("time").alias("delivered"))
    outcome = (
        F.when(F.col("kind").isNull(), "wrong")
        .when(F.col("delivered").isNotNull(), "hit")
        .when(F.col("told").isNotNull(), "told")
        .otherwise("missed")
    )
    joined = true.join(said, "story_id", "full").join(got, "story_id", "left")
    return joined.withColumn("outcome", outcome).select(
        "story_id",
        F.coalesce("subscription_id", "said_subscription").alias("subscription_id"),
        F.coalesce("subscriber", "said_subscriber").alias("subscriber"),
        F.coalesce("kind", "said_what").alias("kind"),
        "closing",
        F.coalesce("at", "said_at").alias("at"),
        F.coalesce("possible", F.col("said_possible").cast("int")).alias("possible"),
        F.coalesce("certain", F.col("said_certain").cast("int")).alias("certain"),
        "parts",
        "outcome",
        F.coalesce("told", F.lit(0)).alias("told"),
        "delivered",
    )


_Frames = Iterator[pd.DataFrame]


def _make_fitter(
    asked: list[Asked], documents: dict[bytes, str], ahead: dict[Run, int]
) -> Callable[[_Frames], _Frames]:
    """Return what finds, for batches of notifications, the parts that they fit.

    `ahead` is by how much the clock of a run was: nodes go by its own time which reading is last.
    """

    def fit(batches: _Frames) -> _Frames:
        stories = [(each, decode_story(each[3])) for each in asked]
        meanings = Meanings(dict(documents))
        for batch in batches:
            rows = [
                found
                for note in batch.to_dict("records")
                for found in _fit_note(note, stories, meanings, ahead)
            ]
            yield pd.DataFrame(rows, columns=[each.split()[0] for each in _ENTRIES.split(", ")])

    return fit


def _fit_note(
    note: dict[Any, Any],
    stories: list[tuple[Asked, Story]],
    meanings: Meanings,
    ahead: dict[Run, int],
) -> Iterator[tuple[Any, ...]]:
    try:
        vector = notification.decode(bytes(note["vector"] or b""))
    except ProtocolError:
        return
    vocabulary = bytes(note["vocabulary"])
    at, doubt = int(note["at"]), int(note["doubt"])
    run = note["origin"], int(note["run"])
    place = find_place(meanings.find_event(vocabulary, vector.event), vector)
    for (id, _, own, _, begins, ends), story in stories:
        if not begins - doubt <= at < ends:
            continue
        for part, wanted in enumerate(story.vectors):
            if wanted.event != vector.event:
                continue
            if own != vocabulary and not meanings.agree(
                own, vocabulary, wanted.event, wanted.features
            ):
                continue
            found = match(wanted, vector)
            if found is not None and found.matched:
                degrees = found.possible, found.certain
                where = None if place is None else list(place)
                row = id, note["notification_id"], part, at, doubt, note["device"]
                yield *row, *degrees, where, *run, at + ahead.get(run, 0)


def _make_joiner(asked: list[Asked], end: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return what joins the entries of one story."""
    by_id = {each[0]: each for each in asked}

    def join(entries: pd.DataFrame) -> pd.DataFrame:
        id, subscriber, _, data, begins, ends = by_id[int(entries["subscription_id"].iloc[0])]
        story = decode_story(data)
        joined = StoryJoin(story, begins, _UNBOUNDED)
        told: dict[int, Telling] = {}
        by_note: dict[int, list[StoryEntry]] = {}
        for row in entries[entries["part"] != _BEGINNING].to_dict("records"):
            note = int(row["notification_id"]) & (1 << 64) - 1
            where = row["place"]
            place: Place | None = None if where is None else (where[0], where[1], where[2])
            degrees = int(row["possible"]), int(row["certain"])
            when = int(row["at"]), note, int(row["part"]), int(row["doubt"])
            own = OwnTime((row["origin"], int(row["run"])), int(row["said"]), int(row["doubt"]))
            entry = StoryEntry(*when, row["device"], degrees, place, own=own)
            by_note.setdefault(note, []).append(entry)
        for each in by_note.values():
            told |= {telling.id: telling for telling in joined.add(each)}
        told |= {telling.id: telling for telling in joined.tick(min(end, ends))}
        rows = [
            (
                _sign(name_story(id & (1 << 64) - 1, telling.id).id),
                id,
                subscriber,
                KINDS[story.kind],
                _sign(telling.id),
                telling.at,
                *telling.degrees,
                [_sign(entry.id) for entry in telling.entries],
            )
            for telling in told.values()
            if telling.degrees[0]
        ]
        return pd.DataFrame(rows, columns=[each.split()[0] for each in _TRUE.split(", ")])

    return join


def _sign(id: int) -> int:
    """Return a number of 64 bits as Spark has it."""
    return id - (id >> 63 << 64)
