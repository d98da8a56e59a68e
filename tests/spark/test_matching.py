"""Global matching on Spark equals the plain oracle, however it is cut, filed and distributed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.notifications import shorten_hash, write_document
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol import notification, subscription
from denwatch.protocol.degrees import MIN
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.spark.matching import (
    build_index,
    find_notes,
    find_windows,
    match_files,
    match_globally,
    match_notes,
)
from denwatch.spark.matching.index import SharedIndex
from denwatch.spark.matching.job import list_parts, share_parts
from denwatch.spark.matching.value_index import (
    MAX_LIST,
    VALUES,
    build_value_index,
    find_exact,
    find_max_list,
    match_values,
)
from denwatch.spark.matching.windows import FOREVER, Meanings
from denwatch.spark.source import read_kind
from pyspark.sql import DataFrame, SparkSession

from tests.spark.logs import NOW, write_segment
from tests.spark.oracle import Note, Sub, find_matches


def draw_subscription(rng: random.Random, is_plain: bool) -> SubscriptionVector:
    names = sorted(rng.sample(range(8), rng.randint(1, 3)))
    predicates = []
    for name in names:
        low = rng.randint(0, 200)
        high = rng.randint(low, min(255, low + 80))
        gamma = rng.randint(60, 255)
        negated = rng.random() < 0.1
        predicates.append(Predicate(name, low, high, gamma, gamma, negated))
    kind = MIN if is_plain else rng.randint(0, 5)
    certain = 0 if is_plain else rng.choice((0, 90))
    dice = random.Random(repr(predicates))  # what is drawn besides leaves the rest as it was
    codes = bytes(dice.choice((0, 20, 60)) for _ in names) if dice.random() < 0.3 else b""
    return SubscriptionVector(
        *(rng.randint(0, 3), predicates, kind, rng.randint(60, 220), certain),
        restrictors=codes if any(codes) else b"",
    )


def draw_note(rng: random.Random, is_exact: bool) -> NotificationVector:
    names = sorted(rng.sample(range(8), rng.randint(2, 6)))
    readings = []
    for name in names:
        wide = not is_exact and rng.random() < 0.2
        top = 65535 if wide else 255
        points = [rng.randint(0, top)] * 4
        if not is_exact and rng.random() < 0.4:
            points = sorted(rng.randint(0, top) for _ in range(4))
        readings.append(Reading(name, (points[0], points[1], points[2], points[3]), wide))
    dice = random.Random(repr(readings))
    for reading in readings[1:] if dice.random() < 0.2 else ():
        reading.age = dice.choice((0, 10, 20, 50))
    return NotificationVector(rng.randint(0, 3), readings)


@pytest.fixture(scope="module")
def site() -> tuple[list[Note], list[Sub]]:
    rng = random.Random(5)
    subs = [
        Sub(
            rng.getrandbits(64) - (1 << 63),
            f"medic{rng.randint(0, 9)}",
            begins := NOW + rng.randint(0, 1000),
            rng.choice((FOREVER, begins + rng.randint(1, 1000))),
            subscription.encode(draw_subscription(rng, rng.random() < 0.7)),
        )
        for _ in range(300)
    ]
    notes = [
        Note(
            rng.getrandbits(64) - (1 << 63),
            NOW + rng.randint(0, 1500),
            rng.choice((0, 50)),
            notification.encode(draw_note(rng, rng.random() < 0.6)),
        )
        for _ in range(400)
    ]
    # The edges of a window: at its begin, within the doubt before it, at its end.
    wanted = subs[0]._replace(begins=NOW, ends=NOW + 10)
    subs[0] = wanted
    return notes, subs


def make_index(spark: SparkSession, subs: list[Sub], folder: Path, **options: int) -> SharedIndex:
    names = ("subscription_id", "subscriber", "begins", "ends", "vector")
    table = pa.table(dict(zip(names, map(list, zip(*subs, strict=True)), strict=True)))
    return build_index(spark, table, folder=folder, **options)  # type: ignore[arg-type]


def make_frame(spark: SparkSession, notes: list[Note]) -> DataFrame:
    return spark.createDataFrame(
        notes, "notification_id bigint, at bigint, doubt bigint, vector binary"
    )


def collect(matches: DataFrame) -> set[tuple[Any, ...]]:
    rows = matches.collect()
    found = {tuple(row) for row in rows}
    assert len(rows) == len(found), "a match came twice"
    return found


def test_it_equals_the_oracle_for_any_partitioning(
    spark: SparkSession, site: tuple[list[Note], list[Sub]], tmp_path: Path
) -> None:
    notes, subs = site
    wanted = find_matches(notes, subs)
    assert len(wanted) > 1000
    frame = make_frame(spark, notes).cache()
    index = make_index(spark, subs, tmp_path / "one", max_list=0)
    assert len(index.shards) == 1
    assert not index.shards[0].by_value
    for parts in (1, 2, 7):
        assert collect(match_notes(frame.repartition(parts), index)) == wanted
    # Filed by value, the rest beside it, and cut in shards.
    filed = make_index(spark, subs, tmp_path / "filed", max_list=MAX_LIST)
    assert filed.shards[0].by_value
    assert filed.shards[0].rest
    assert collect(match_notes(frame, filed)) == wanted
    cut = make_index(spark, subs, tmp_path / "cut", limit=8_000, max_list=MAX_LIST)
    assert len(cut.shards) > 4
    assert collect(match_notes(frame.repartition(3), cut)) == wanted


def write_files(folder: Path, notes: list[Note], rows: int) -> list[Path]:
    """Write notifications into three files with row groups of so many rows; return where."""
    names = ("notification_id", "at", "doubt", "vector")
    columns = dict(zip(names, map(list, zip(*notes, strict=True)), strict=True))
    table = pa.table(columns | {"other": [1] * len(notes)})
    folder.mkdir()
    third = -(-len(notes) // 3)
    for i in range(3):
        part = table.slice(i * third, third)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=rows)
    return [folder / "0.parquet", folder / "1.parquet", folder / "2.parquet"]


def test_files_that_workers_read_give_the_same(
    spark: SparkSession, site: tuple[list[Note], list[Sub]], tmp_path: Path
) -> None:
    """However files and tasks are cut, with shards and without, and for chosen columns."""
    notes, subs = site
    wanted = find_matches(notes, subs)
    whole = make_index(spark, subs, tmp_path / "whole", max_list=MAX_LIST)
    cut = make_index(spark, subs, tmp_path / "cut", limit=20_000)
    assert len(cut.shards) > 1
    files = write_files(tmp_path / "files", notes, rows=50)
    assert len(list_parts(files)) == 9
    assert collect(match_files(spark, [tmp_path / "files"], whole)) == wanted
    assert collect(match_files(spark, files, whole, tasks=1)) == wanted
    assert collect(match_files(spark, files, cut, tasks=2)) == wanted
    fewer = match_files(spark, files, whole, ("possible", "subscription_id", "notification_id"))
    assert collect(fewer) == {(row[3], row[1], row[0]) for row in wanted}
    same = match_notes(
        make_frame(spark, notes), whole, ("possible", "subscription_id", "notification_id")
    )
    assert collect(same) == collect(fewer)
    assert not collect(match_files(spark, [], whole))


def test_tasks_get_neighbours_and_equal_shares(tmp_path: Path) -> None:
    rng = random.Random(1)
    note = notification.encode(NotificationVector(1, [Reading(0, (5, 5, 5, 5))]))
    notes = [Note(i, NOW, 0, note) for i in range(90)]
    parts = list_parts(write_files(tmp_path / "files", notes, rows=10))
    assert sum(part.rows for part in parts) == 90
    for tasks in (1, 2, 3, 9, 20, rng.randint(4, 8)):
        shares = share_parts(parts, tasks)
        assert [part for share in shares for part in share] == parts
        assert len(shares) == min(tasks, 9)
        rows = [sum(part.rows for part in share) for share in shares]
        assert max(rows) - min(rows) <= 10


@pytest.mark.parametrize("size", [0, 1, 2, 5, 300])
def test_lists_by_value_answer_what_the_index_answers(size: int) -> None:
    """Also for fewer readings than are looked ahead, and events that nobody asks for."""
    rng = random.Random(3)
    index = FuzzyIndex(64)
    index.add_batch(
        pack_subscriptions([(i, draw_subscription(rng, is_plain=True)) for i in range(500)])
    )
    notes = [draw_note(rng, rng.random() < 0.7) for _ in range(size)]
    strangers = [NotificationVector(9, note.readings) for note in notes[::3]]
    readings = pack_notifications([*notes, *strangers], [0] * (len(notes) + len(strangers)))
    exact = find_exact(readings.starts, readings.points, readings.wides)
    built = build_value_index(index, max_list=MAX_LIST)
    assert built is not None
    assert not len(built.rest)
    mine, theirs = match_values(readings, built.lists, exact), index.match_batch(readings)
    assert size < 300 or 0 < exact.sum() < size
    for n in np.flatnonzero(exact).tolist():
        rows = []
        for hits in (mine, theirs):
            part = slice(hits.starts[n], hits.starts[n + 1])
            columns = hits.ids, hits.possible, hits.certain, hits.attributes
            rows.append(sorted(zip(*(column[part].tolist() for column in columns), strict=True)))
        assert rows[0] == rows[1]
    assert not np.diff(mine.starts)[~exact].any()


def test_lists_may_be_longer_the_more_masks_an_event_has() -> None:
    counts = np.zeros(32 * VALUES, np.int64)
    counts[:300] = 7
    assert find_max_list(counts, masks=10) == 40
    counts[20 * VALUES] = 1  # a second event
    assert find_max_list(counts, masks=10) == 30
    assert find_max_list(counts, masks=18_000) == MAX_LIST


@pytest.mark.parametrize(("same", "is_filed"), [(10, True), (100, False)])
def test_long_lists_of_one_mask_are_left_to_the_bit_rows(same: int, is_filed: bool) -> None:
    index = FuzzyIndex(16)
    wanted = SubscriptionVector(0, [Predicate(0, 10, 20)])
    index.add_batch(pack_subscriptions([(i, wanted) for i in range(same)]))
    assert (build_value_index(index) is not None) is is_filed


def test_what_cannot_be_read_is_told(spark: SparkSession, tmp_path: Path) -> None:
    good = subscription.encode(SubscriptionVector(1, [Predicate(0, 0, 255)]))
    subs = [Sub(1, "a", 0, FOREVER, good), Sub(-2, "b", 0, FOREVER, good[:-1])]
    index = make_index(spark, subs, tmp_path)
    assert list(index.errors) == [-2]
    right = notification.encode(NotificationVector(1, [Reading(0, (5, 5, 5, 5))]))
    notes = make_frame(spark, [Note(7, NOW, 0, right), Note(8, NOW, 0, right + b"\x00")])
    assert {row[:2] for row in collect(match_notes(notes, index))} == {(7, 1)}


def test_vocabularies_and_typed_content(spark: SparkSession, tmp_path: Path) -> None:
    """Codes that mean something else do not match; typed content goes by names."""
    mine, other = load_shipped("rescue"), load_shipped("weather")
    own, foreign, unknown = shorten_hash(mine), shorten_hash(other), b"\x09" * 8
    meanings = Meanings({own: write_document(mine), foreign: write_document(other), unknown: None})
    assert meanings.known == sorted((own, foreign))
    assert list(Meanings({unknown: write_document(mine)}).errors) == [unknown]
    event = next(iter(mine.events.values()))
    number = next(n for n in range(64) if mine.find_number(n) is event)
    vector = notification.encode(NotificationVector(number, [Reading(0, (5, 5, 5, 5))]))
    fuzzy = subscription.encode(SubscriptionVector(number, [Predicate(0, 0, 255)]))
    content = cbor2.dumps([["event", "=", event.name], ["device", "prefix", "wd"]])
    table = pa.table(
        {
            "subscription_id": [1, 2, 3],
            "subscriber": ["a", "b", "c"],
            "begins": [0, 0, NOW + 1],
            "ends": [FOREVER] * 3,
            "language": [0, 1, 1],
            "vocabulary": pa.array([own] * 3, pa.binary()),
            "vector": pa.array([fuzzy, content, content], pa.binary()),
        }
    )
    index = build_index(spark, table, folder=tmp_path, meanings=meanings)
    assert index.content == 2
    rows = [(7, own, "wd7"), (8, own, "x"), (9, foreign, "wd7"), (10, unknown, "wd7")]
    notes = spark.createDataFrame(
        [(note, NOW, 0, vector, vocabulary, device) for note, vocabulary, device in rows],
        "notification_id bigint, at bigint, doubt bigint, vector binary, vocabulary binary, "
        "device string",
    )
    found = collect(match_notes(notes, index))
    # Of a vocabulary that nobody logged, nothing is held against a note.
    assert {row[:3] for row in found} == {(7, 1, "a"), (8, 1, "a"), (10, 1, "a"), (7, 2, "b")}
    notes.write.parquet(str(tmp_path / "notes"))
    assert collect(match_files(spark, [tmp_path / "notes"], index)) == found
    pairs = collect(match_notes(notes, index, ("subscription_id", "notification_id")))
    assert pairs == {(row[1], row[0]) for row in found}


def make_subscribe(item: int, source: str, expires: int) -> tuple[str, dict[str, Any]]:
    vector = subscription.encode(SubscriptionVector(1, [Predicate(0, 0, 255)]))
    fields = {"item": item, "origin": "north", "run": 1, "sequence": item, "owner": "medic7"}
    fields |= {"role": "medic", "words": "any", "language": 0, "vocabulary": b"", "vector": vector}
    fields |= {"created": NOW, "expires": expires, "options": {"top": 3}, "source": source}
    return "subscribe", fields


def make_note(item: int, at: int, source: str) -> tuple[str, dict[str, Any]]:
    vector = notification.encode(NotificationVector(1, [Reading(0, (5, 5, 5, 5))]))
    fields = {"item": item, "origin": "north", "run": 1, "sequence": item, "device": "wd7"}
    fields |= {"device_epoch": 1, "device_sequence": item, "at": at, "doubt": 10, "expires": 0}
    fields |= {"vocabulary": b"", "vector": vector, "source": source}
    return "note", fields


def test_from_logs_to_matches(spark: SparkSession, tmp_path: Path) -> None:
    """One subscription expires, one is taken away, one stays; nodes tell of each other's."""
    gone = {"owner": "medic7"}
    north = [
        *(make_subscribe(item, "", expires) for item, expires in ((1, NOW + 100), (2, 0), (3, 0))),
        *(make_note(10 + i, NOW + at, "") for i, at in enumerate((-11, -10, 99, 100, 500))),
        ("unsubscribe", {"item": 1, "reason": "expired", **gone}),
    ]
    south = [
        *(make_subscribe(item, "north", 0) for item in (2, 3)),
        *(make_note(10 + i, NOW + at, "north") for i, at in ((2, 99), (4, 500))),
        ("unsubscribe", {"item": 2, "reason": "removed", **gone}),
    ]
    write_segment(tmp_path / "log", [north], time=NOW)
    write_segment(tmp_path / "log", [south], node="south", time=NOW + 295)
    kinds = {
        kind: read_kind(spark, [tmp_path / "log"], kind)
        for kind in ("subscribe", "unsubscribe", "note", "vocabulary")
    }
    windows = find_windows(kinds["subscribe"], kinds["unsubscribe"])
    told = {
        row.subscription_id: (row.begins, row.ends, row.end_reason) for row in windows.collect()
    }
    assert told == {
        1: (NOW, NOW + 100, "expired"),
        2: (NOW, NOW + 300, "removed"),
        3: (NOW, FOREVER, None),
    }
    notes = find_notes(kinds["note"])
    assert notes.count() == 5
    matches, index = match_globally(notes, windows, kinds["vocabulary"], folder=tmp_path / "index")
    assert not index.errors
    pairs = sorted(row[:2] for row in collect(matches))
    all_three, late = [1, 2, 3], [2, 3]
    wanted: dict[int, list[int]] = {10: [], 11: all_three, 12: all_three, 13: late, 14: [3]}
    assert pairs == [(note, sub) for note, subs in wanted.items() for sub in subs]
