"""The minimal set of subscriptions: what is dropped is covered, by brute force over values."""

from __future__ import annotations

import random
from itertools import product

import pytest
from denwatch.protocol import subscription
from denwatch.protocol.degrees import ARITHMETIC, MIN
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.spark.analytics.subscriptions import find_minimal, sum_minimal
from denwatch.spark.matching.windows import FOREVER
from pyspark.sql import DataFrame, SparkSession

NOW = 1_790_000_000_000
COLUMNS = (
    "subscription_id bigint, begins bigint, ends bigint, language int, vocabulary binary,"
    " vector binary"
)
VOCABULARY = b"rescue01"


def draw_subscription(rng: random.Random, attributes: int, event: int) -> SubscriptionVector:
    names = sorted(rng.sample(range(attributes), rng.randint(1, 2)))
    predicates = []
    for name in names:
        low = rng.randint(0, 220)
        gamma = rng.choice((90, 150, 255))
        high = rng.randint(low, min(255, low + 120))
        predicates.append(Predicate(name, low, high, gamma, gamma, rng.random() < 0.1))
    kind = rng.choice((MIN, MIN, MIN, ARITHMETIC))
    return SubscriptionVector(event, predicates, kind, rng.choice((100, 128, 200)))


def make_windows(spark: SparkSession, vectors: dict[int, bytes]) -> DataFrame:
    rows = [
        (key, 0, FOREVER, 0, bytearray(VOCABULARY), bytearray(vector))
        for key, vector in vectors.items()
    ]
    return spark.createDataFrame(rows, COLUMNS)


def list_points(vector: SubscriptionVector, rng: random.Random) -> list[tuple[int, ...]]:
    """Return values to try: all of one attribute; of two, the edges of sets and some at random."""
    if len(vector.predicates) == 1:
        return [(value,) for value in range(256)]
    sides = []
    for p in vector.predicates:
        near = {p.low, p.high, (p.low + p.high) // 2}
        near |= {edge + step for edge in (p.low, p.high) for step in (-20, -5, -1, 1, 5, 20)}
        sides.append(sorted(value for value in near if 0 <= value <= 255))
    points = list(product(*sides))
    return points + [tuple(rng.randint(0, 255) for _ in sides) for _ in range(100)]


def is_match(vector: SubscriptionVector, note: NotificationVector) -> bool:
    answer = match(vector, note)
    return answer is not None and bool(answer.matched)


def test_whatever_matches_a_dropped_subscription_matches_one_that_is_sent(
    spark: SparkSession,
) -> None:
    rng = random.Random(7)
    vectors = {
        number: draw_subscription(rng, attributes=3, event=number % 2) for number in range(240)
    }
    encoded = {number: subscription.encode(vector) for number, vector in vectors.items()}
    encoded[900], encoded[901] = encoded[0], b"\x40bad"
    windows = make_windows(spark, encoded)
    answers = []
    for chunk, far, parts in ((1_000, 1_000, 1), (10, 1_000, 1), (10, 30, 1), (10, 30, 5)):
        rows = find_minimal(windows.repartition(parts), NOW, chunk=chunk, far_chunk=far).collect()
        assert sorted(row.subscription_id for row in rows) == sorted(encoded)
        answers.append({row.subscription_id: row for row in rows})
    assert answers[2] == answers[3]  # the same for any partitioning
    counts = [sum(row.is_active for row in found.values()) for found in answers]
    assert counts[0] <= counts[1] < counts[2], "what is not compared as a whole is less small"
    for found in answers[:3]:
        assert (found[900].is_active, found[900].why) == (False, "same")
        assert (found[901].is_active, found[901].why) == (True, "unreadable")
        active = [vectors[key] for key, row in found.items() if row.is_active and key in vectors]
        dropped = [vectors[key] for key, row in found.items() if row.why == "covered"]
        assert len(dropped) > 50
        tried = 0
        for vector in dropped:
            others = [
                one
                for one in active
                if one.event == vector.event and not one.features & ~vector.features
            ]
            for values in list_points(vector, rng):
                readings = [
                    Reading(p.attribute, (value,) * 4)
                    for p, value in zip(vector.predicates, values, strict=True)
                ]
                note = NotificationVector(vector.event, readings)
                if is_match(vector, note):
                    tried += 1
                    assert any(is_match(one, note) for one in others), (vector, values)
        assert tried > 1_000


def test_only_what_is_in_force_and_in_one_vocabulary_covers(spark: SparkSession) -> None:
    everything = subscription.encode(SubscriptionVector(1, [Predicate(0, 0, 255)]))
    little = subscription.encode(SubscriptionVector(1, [Predicate(0, 10, 20)]))
    wide, other = bytearray(everything), bytearray(b"weather1")
    rows = [
        (1, 0, NOW, 0, bytearray(VOCABULARY), wide),  # over
        (2, NOW + 1, FOREVER, 0, bytearray(VOCABULARY), wide),  # not yet
        (3, 0, FOREVER, 1, bytearray(VOCABULARY), wide),  # another language
        (4, 0, FOREVER, 0, other, wide),
        (5, 0, FOREVER, 0, bytearray(VOCABULARY), bytearray(little)),
        (6, 0, FOREVER, 0, other, bytearray(little)),
    ]
    found = find_minimal(spark.createDataFrame(rows, COLUMNS), NOW)
    told = {row.subscription_id: (row.is_active, row.why) for row in found.collect()}
    assert told == {4: (True, ""), 5: (True, ""), 6: (False, "covered")}
    (event,) = sum_minimal(found).collect()
    size = len(everything)
    assert event.asDict() == {
        "event": 1, "subscriptions": 3, "sent": 2, "same": 0, "covered": 1,
        "bytes": 3 * size, "bytes_saved": size,
    }  # fmt: skip


@pytest.mark.slow
def test_twenty_thousand_subscriptions(spark: SparkSession) -> None:
    rng = random.Random(8)
    vectors = {
        number: subscription.encode(draw_subscription(rng, attributes=6, event=number % 4))
        for number in range(20_000)
    }
    places = find_minimal(make_windows(spark, vectors).repartition(4), NOW).cache()
    rows = sum_minimal(places).collect()
    assert sum(row.subscriptions for row in rows) == 20_000
    assert all(0 < row.sent < row.subscriptions / 10 for row in rows)
    assert all(row.sent + row.same + row.covered == row.subscriptions for row in rows)
