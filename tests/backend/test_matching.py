"""Global matching on Spark equals the plain oracle, however it is cut, filed and distributed."""

from __future__ import annotations

import random
from pathlib import Path

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.matching import build_index, find_unreadable, match_notes
from backend.matching.index import FOREVER, SharedIndex
from backend.matching.meanings import Meanings
from backend.matching.stabs import build_stabs, find_exact, match_stabs
from edge.client.vocabulary import load_shipped
from edge.dens.core.vocabularies import shorten_hash, write_document
from edge.dens.matching.batch import pack_notifications, pack_subscriptions
from edge.dens.matching.index import FuzzyIndex
from protocol import notification, subscription
from protocol.degrees import MIN
from protocol.vectors import Notification, Predicate, Reading, Subscription
from tests.backend.oracle import Found, Note, Sub, find_matches

NOW = 1_790_000_000_000


def draw_subscription(rng: random.Random, is_plain: bool) -> Subscription:
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
    return Subscription(rng.randint(0, 3), predicates, kind, rng.randint(60, 220), certain)


def draw_note(rng: random.Random, is_exact: bool) -> Notification:
    names = sorted(rng.sample(range(8), rng.randint(2, 6)))
    readings = []
    for name in names:
        wide = not is_exact and rng.random() < 0.2
        top = 65535 if wide else 255
        points = [rng.randint(0, top)] * 4
        if not is_exact and rng.random() < 0.4:
            points = sorted(rng.randint(0, top) for _ in range(4))
        readings.append(Reading(name, (points[0], points[1], points[2], points[3]), wide))
    return Notification(rng.randint(0, 3), readings)


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


def make_index(
    spark: SparkSession, subs: list[Sub], folder: Path, limit: int = 1 << 30
) -> SharedIndex:
    names = ("subscription_id", "owner", "begins", "ends", "vector")
    table = pa.table(dict(zip(names, map(list, zip(*subs, strict=True)), strict=True)))
    return build_index(spark, table, folder=folder, limit=limit)


def make_frame(spark: SparkSession, notes: list[Note]) -> DataFrame:
    return spark.createDataFrame(notes, "note_id bigint, at bigint, doubt bigint, vector binary")


def collect(matches: DataFrame) -> set[Found]:
    rows = matches.collect()
    found = {tuple(row) for row in rows}
    assert len(rows) == len(found), "a match came twice"
    return found  # type: ignore[return-value]  # rows have the columns of Found


def test_it_equals_the_oracle_for_any_partitioning(
    spark: SparkSession, site: tuple[list[Note], list[Sub]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    notes, subs = site
    wanted = find_matches(notes, subs)
    assert len(wanted) > 1000
    frame = make_frame(spark, notes).cache()
    index = make_index(spark, subs, tmp_path / "one")
    assert len(index.shards) == 1
    assert not index.shards[0].stabs
    for parts in (1, 2, 7):
        assert collect(match_notes(frame.repartition(parts), index)) == wanted
    # As if there were very many masks: filed by value, the rest beside it, and cut in shards.
    monkeypatch.setattr("backend.matching.stabs.MIN_MASKS", 1)
    filed = make_index(spark, subs, tmp_path / "filed")
    assert filed.shards[0].stabs
    assert filed.shards[0].rest
    assert collect(match_notes(frame, filed)) == wanted
    cut = make_index(spark, subs, tmp_path / "cut", limit=40_000)
    assert len(cut.shards) > 4
    assert collect(match_notes(frame.repartition(3), cut)) == wanted


def test_lists_by_value_answer_what_the_index_answers() -> None:
    rng = random.Random(3)
    index = FuzzyIndex(64)
    index.add_batch(
        pack_subscriptions([(i, draw_subscription(rng, is_plain=True)) for i in range(500)])
    )
    readings = pack_notifications(
        [draw_note(rng, rng.random() < 0.7) for _ in range(300)], [0] * 300
    )
    exact = find_exact(readings.starts, readings.points, readings.wides)
    built = build_stabs(index, min_masks=1)
    assert built is not None
    assert not len(built.rest)
    mine, theirs = match_stabs(readings, built.stabs, exact), index.match_batch(readings)
    assert 0 < exact.sum() < 300
    for n in np.flatnonzero(exact).tolist():
        rows = []
        for hits in (mine, theirs):
            part = slice(hits.starts[n], hits.starts[n + 1])
            columns = hits.ids, hits.possible, hits.certain, hits.attributes
            rows.append(sorted(zip(*(column[part].tolist() for column in columns), strict=True)))
        assert rows[0] == rows[1]
    assert not np.diff(mine.starts)[~exact].any()


def test_what_cannot_be_read_is_told(spark: SparkSession, tmp_path: Path) -> None:
    good = subscription.encode(Subscription(1, [Predicate(0, 0, 255)]))
    subs = [Sub(1, "a", 0, FOREVER, good), Sub(-2, "b", 0, FOREVER, good[:-1])]
    index = make_index(spark, subs, tmp_path)
    assert list(index.errors) == [-2]
    right = notification.encode(Notification(1, [Reading(0, (5, 5, 5, 5))]))
    notes = make_frame(spark, [Note(7, NOW, 0, right), Note(8, NOW, 0, right + b"\x00")])
    assert {row[:2] for row in collect(match_notes(notes, index))} == {(7, 1)}
    ((note, reason),) = find_unreadable(notes).collect()
    assert note == 8
    assert "bytes that follow" in reason


def test_vocabularies_and_typed_content(spark: SparkSession, tmp_path: Path) -> None:
    """Codes of a vocabulary that means something else do not match; content goes by names."""
    mine = load_shipped("rescue")
    document = write_document(mine)
    other = Meanings({shorten_hash(mine): document})
    assert other.known == [shorten_hash(mine)]
    assert not other.errors
    assert Meanings({b"\x00" * 8: document}).errors
    event = next(iter(mine.events.values()))
    number = next(n for n in range(64) if (found := mine.find_number(n)) and found is event)
    vector = notification.encode(Notification(number, [Reading(0, (5, 5, 5, 5))]))
    fuzzy = subscription.encode(Subscription(number, [Predicate(0, 0, 255)]))
    filters = cbor2.dumps([["event", "=", event.name], ["device", "prefix", "wd"]])
    table = pa.table(
        {
            "subscription_id": [1, 2, 3],
            "owner": ["a", "b", "c"],
            "begins": [0, 0, NOW + 1],
            "ends": [FOREVER] * 3,
            "language": [0, 1, 1],
            "vocabulary": pa.array([shorten_hash(mine)] * 3, pa.binary()),
            "vector": pa.array([fuzzy, filters, filters], pa.binary()),
        }
    )
    index = build_index(spark, table, folder=tmp_path, meanings=other)
    assert index.content == 2
    notes = spark.createDataFrame(
        [
            (7, NOW, 0, vector, shorten_hash(mine), "wd7"),
            (8, NOW, 0, vector, shorten_hash(mine), "x"),
        ],
        "note_id bigint, at bigint, doubt bigint, vector binary, vocabulary binary, device string",
    )
    found = collect(match_notes(notes, index))
    assert {row[:3] for row in found} == {(7, 1, "a"), (8, 1, "a"), (7, 2, "b")}
