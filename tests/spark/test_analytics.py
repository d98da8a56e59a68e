"""Analyses on small frames, worked out by hand: clocks, spans, causes, copies, advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
from denwatch.spark.analytics.contacts import join_spans
from denwatch.spark.analytics.costs import count_replicas
from denwatch.spark.analytics.fleet import describe_fleet
from denwatch.spark.analytics.outcomes import choose_step, judge_outcomes
from denwatch.spark.analytics.subscriptions import _list_terms
from denwatch.spark.analytics.timeline import Bound, Logs, Run, solve_clocks
from denwatch.spark.analytics.what_if import Evidence, advise
from denwatch.spark.source import build_schema
from pyspark.sql import DataFrame, SparkSession

A: Run = ("a", 1)
B: Run = ("b", 1)
C: Run = ("c", 1)


def solve_offsets(bounds: Iterable[Bound], runs: Iterable[Run] = ()) -> dict[Run, int]:
    return {run: clock.offset for run, clock in solve_clocks(bounds, runs).items()}


# Clocks ---------------------------------------------------------------------------------------


def test_clocks_that_may_be_equal_are_taken_as_equal() -> None:
    assert solve_offsets([Bound(A, B, 40), Bound(B, A, 5)]) == {A: 0, B: 0}


def test_a_clock_that_is_proven_wrong_is_corrected_to_the_middle() -> None:
    # c is 3,600 s ahead: what it sends seems acknowledged 3,600 s too late, and the other way.
    bounds = [
        Bound(A, B, 0),
        Bound(B, A, 0),
        Bound(C, A, 3_600_010),
        Bound(A, C, -3_599_990),
    ]
    assert solve_offsets(bounds) == {A: 0, B: 0, C: 3_600_000}


def test_one_sided_proof_moves_a_clock_only_as_far_as_it_must() -> None:
    assert solve_offsets([Bound(A, B, -500), Bound(A, C, 0), Bound(C, A, 0)]) == {
        A: 0,
        B: 500,
        C: 0,
    }


def test_runs_of_one_node_share_its_timeline_and_strangers_are_right() -> None:
    later: Run = ("c", 2)
    bounds = [Bound(C, A, 1_000), Bound(A, C, -1_000), Bound(B, A, 0), Bound(A, B, 0)]
    found = solve_offsets(bounds, [later, ("d", 1)])
    assert found == {A: 0, B: 0, C: 1_000, later: 1_000, ("d", 1): 0}


# Spans ----------------------------------------------------------------------------------------


def test_spans_that_touch_or_overlap_become_one(spark: SparkSession) -> None:
    rows = [("x", 0, 5), ("x", 3, 4), ("x", 5, 9), ("x", 11, 12), ("y", 6, 6), ("y", 1, 2)]
    spans = spark.createDataFrame(rows, "key string, begin bigint, end bigint")
    found = {tuple(row) for row in join_spans(spans, ["key"]).collect()}
    assert found == {("x", 0, 9), ("x", 11, 12), ("y", 1, 2), ("y", 6, 6)}


def test_steps_are_round_and_not_too_many() -> None:
    assert choose_step(0, 50_000) == 1_000
    assert choose_step(0, 1_300_000) == 30_000
    assert choose_step(0, 90 * 86_400_000) == 2 * 86_400_000


# Causes ---------------------------------------------------------------------------------------


class Case:
    """A pair that matched, or was delivered, and what the logs say of it."""

    def __init__(self, outcome: str, cause: str | None, **facts: Any) -> None:
        self.outcome, self.cause, self.facts = outcome, cause, facts


CASES = (
    Case("hit", None, delivered=160, best=130),
    Case("late", "replication", delivered=161, best=130),
    Case("late", "away", delivered=190, best=190, awaited="person"),
    Case("late", "partition", delivered=190, best=190, awaited="contact"),
    Case("withheld", "role", reason="role", best=100),
    Case("withheld", "quiet", reason="quiet", best=100),
    Case("missed", "unacknowledged", is_sent=True, best=100),
    Case("missed", "space", is_dropped=True, best=100),
    Case("missed", "replication", best=100),
    Case("missed", "expired", until=150, open_best=170),
    Case("missed", "expired", until=150, withdrawn=160, open_best=170),
    Case("withheld", "withdrawn", until=150, withdrawn=150, open_best=170),
    Case("missed", "away", is_present=False),
    Case("missed", "partition"),
    Case("wrong", "early", delivered=160, subscription=(120, 900)),
    Case("wrong", "ended", delivered=160, subscription=(0, 100)),
    Case("wrong", "no match", delivered=160, subscription=(0, 900)),
    Case("wrong", "unknown", delivered=160),
)
AT = 100


def make_logs(spark: SparkSession, rows: dict[str, list[dict[str, Any]]]) -> Logs:
    """Records of some kinds; what a record does not say is null."""

    def read(kind: str) -> DataFrame:
        schema = build_schema(kind)
        filled = [tuple(row.get(name) for name in schema.names) for row in rows.get(kind, [])]
        return spark.createDataFrame(filled, schema)

    return Logs(read)


def test_each_cause_follows_from_what_the_logs_say(spark: SparkSession) -> None:
    pairs, oracle, windows, notes = [], [], [], []
    kinds: dict[str, list[dict[str, Any]]] = {"deliver": [], "send": [], "suppress": [], "drop": []}
    for number, case in enumerate(CASES):
        facts = case.facts
        notes.append((number, "a", AT))
        record = {"node": "n", "epoch": 1, "number": number, "note": number, "subscriber": "x"}
        if case.outcome != "wrong":
            until, gone = facts.get("until"), facts.get("withdrawn")
            pairs.append((number, "x", "a", AT, AT, 255, until, gone))
            oracle.append(
                (
                    number,
                    "x",
                    facts.get("best"),
                    "n" if "best" in facts else None,
                    facts.get("awaited"),
                    facts.get("open_best", facts.get("best")),
                    facts.get("is_present", True),
                )
            )
        if "subscription" in facts:
            windows.append((number, *facts["subscription"]))
        if "delivered" in facts:
            time = facts["delivered"]
            kinds["deliver"].append({**record, "time": time, "subscriptions": [number]})
        if "reason" in facts:
            kinds["suppress"].append({**record, "time": 120, "reason": facts["reason"]})
        if "is_sent" in facts:
            kinds["send"].append({**record, "time": 120})
        if "is_dropped" in facts:
            kinds["drop"].append({**record, "time": 120, "what": "notification", "item": number})
    frames = (
        spark.createDataFrame(
            pairs,
            "notification_id bigint, subscriber string, origin string, born bigint, at bigint, "
            "degree int, until bigint, withdrawn bigint",
        ),
        spark.createDataFrame(
            oracle,
            "notification_id bigint, subscriber string, best bigint, best_node string, "
            "awaited string, open_best bigint, is_present boolean",
        ),
        make_logs(spark, kinds),
        spark.createDataFrame(notes, "notification_id bigint, origin string, at bigint"),
        spark.createDataFrame(windows, "subscription_id bigint, begins bigint, ends bigint"),
    )
    found = {row["notification_id"]: row for row in judge_outcomes(*frames, late=60).collect()}
    told = [(found[n]["outcome"], found[n]["cause"]) for n in range(len(CASES))]
    assert told == [(case.outcome, case.cause) for case in CASES]
    assert len(found) == len(CASES)


def test_the_fleet_names_the_device_with_the_lowest_battery(spark: SparkSession) -> None:
    said = (
        ("n", "bed", 1, True, '{"battery_mv": 2400}'),
        ("n", "bed", 2, True, '{"battery_mv": 3300}'),  # a new battery
        ("n", "cup", 3, True, '{"battery_mv": 2900, "wakes": 7}'),
        ("n", "cup", 4, False, None),
        ("n", "door", 5, True, None),  # has none, or does not say
        ("m", "lamp", 1, True, None),
    )
    names = ("node", "device", "number", "is_up", "settings")
    rows = [dict(zip(names, row, strict=True), epoch=1, time=row[2]) for row in said]
    table = describe_fleet(make_logs(spark, {"device": rows})).collect()
    told = {row["node"]: (row["battery_mv"], row["weakest_device"]) for row in table}
    assert told == {"n": (2900, "cup"), "m": (None, None)}
    assert [row["silent_devices"] for row in table] == [0, 1]


def test_what_is_delivered_twice_is_wrong_once(spark: SparkSession) -> None:
    base = {"epoch": 1, "note": 5, "subscriber": "x", "subscriptions": [1]}
    logs = make_logs(
        spark,
        {
            "deliver": [
                {**base, "node": "n", "number": 1, "time": 110},
                {**base, "node": "m", "number": 1, "time": 130},
            ]
        },
    )
    pairs = spark.createDataFrame(
        [(5, "x", "a", AT, AT, 255, None, None)],
        "notification_id bigint, subscriber string, origin string, born bigint, at bigint, "
        "degree int, until bigint, withdrawn bigint",
    )
    oracle = spark.createDataFrame(
        [(5, "x", AT, "n", "nothing", AT, True)],
        "notification_id bigint, subscriber string, best bigint, best_node string, awaited string, "
        "open_best bigint, is_present boolean",
    )
    notes = spark.createDataFrame(
        [(5, "a", AT)], "notification_id bigint, origin string, at bigint"
    )
    windows = spark.createDataFrame(
        [(1, 0, 900)], "subscription_id bigint, begins bigint, ends bigint"
    )
    found = judge_outcomes(pairs, oracle, logs, notes, windows).orderBy("delivered").collect()
    told = [(row["outcome"], row["cause"], row["node"], row["latency"]) for row in found]
    assert told == [("hit", None, "n", 10), ("wrong", "repeated", "m", 30)]


# Copies ---------------------------------------------------------------------------------------


def test_replicas_are_counted_at_moments(spark: SparkSession) -> None:
    rows = [(1, "a", 0, 25), (1, "b", 10, None), (2, "a", 20, 30)]
    copies = spark.createDataFrame(
        rows, "notification_id bigint, node string, begin bigint, end bigint"
    )
    found = count_replicas(copies, 0, 40, 10).collect()
    told = [(r["time"], r["notifications"], r["copies"], r["most"], r["mean"]) for r in found]
    assert told == [
        (0, 1, 1, 1, 1.0),
        (10, 1, 2, 2, 2.0),
        (20, 2, 3, 2, 1.5),
        (30, 1, 1, 1, 1.0),
        (40, 1, 1, 1, 1.0),
    ]


# Advice ---------------------------------------------------------------------------------------


def make_blocks(*rows: tuple[str, float, int, int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What strategies do with 200 pairs: (name, share, p90_ms, relays), evenly over 40 blocks."""
    made = []
    for name, share, p90, relays in rows:
        for block in [None, *range(40)]:
            wanted = 200 if block is None else 5
            facts = {"strategy": name, "block": block, "wanted": wanted, "p90_ms": p90}
            delivered = round(share * 200)
            if block is not None:  # 1 in each block, and the rest in the first ones
                delivered = delivered // 40 + (block < delivered % 40)
            part = relays if block is None else relays // 40
            made.append(facts | {"delivered": delivered, "relays": part, "bytes": 100 * part})
    table = pd.DataFrame(made)
    table["ratio"] = table["delivered"] / table["wanted"]
    table["copies_per_delivery"] = table["relays"] / table["delivered"].clip(lower=1)
    is_whole = table["block"].isna()
    return table[is_whole].drop(columns="block"), table[~is_whole]


COMPARED = make_blocks(
    ("direct", 0.6, 50_000, 40),
    ("spray:4", 0.97, 90_000, 200),
    ("spray:8", 0.98, 40_000, 300),
    ("utility:8", 0.98, 39_000, 280),
    ("epidemic", 0.98, 38_000, 2_000),
)
HOURS = 3 * 3_600_000


def test_the_cheapest_that_delivers_enough_soon_enough_is_advised() -> None:
    advice = advise(*COMPARED, Evidence("epidemic", 200, 190, HOURS))
    assert advice.best == "utility:8"
    assert (
        "You use epidemic; utility:8 would give +0 deliveries (±0) of 200 for -0.2 MB"
        in advice.text
    )
    assert "delivers 98.0%, the logs say 95.0%: it is wrong by 3.0%" in advice.text


def test_more_deliveries_are_advised_with_their_interval() -> None:
    advice = advise(*COMPARED, Evidence("direct", 200, 120, HOURS))
    assert advice.best == "utility:8"
    assert "would give +76 deliveries" in advice.text
    row = advice.table.set_index("strategy").loc["utility:8"]
    assert 0 < row["gain_low"] < row["gain"] < row["gain_high"]


def test_a_gain_within_the_error_of_the_replay_is_not_advised() -> None:
    advice = advise(*COMPARED, Evidence("spray:4", 200, 120, HOURS))
    assert advice.best == "spray:4"
    assert advice.text.startswith("Stay with spray:4.")
    assert "wrong by 37.0%" in advice.text


@pytest.mark.parametrize(("expected", "span"), [(99, HOURS), (200, 67_000)])
def test_little_evidence_is_none(expected: int, span: int) -> None:
    advice = advise(*COMPARED, Evidence("epidemic", expected, expected, span))
    assert advice.best == ""
    assert advice.text.startswith("No advice:")


def test_fair_weather_does_not_speak_for_fewer_copies() -> None:
    fair = make_blocks(("direct", 1.0, 1_000, 10), ("spray:8", 1.0, 90_000, 300))
    assert advise(*fair, Evidence("spray:8", 200, 200, HOURS)).best == ""


def test_without_anything_to_deliver_there_is_no_advice() -> None:
    advice = advise(*make_blocks(("direct", 0, 0, 0)), Evidence("", 0, 0, HOURS))
    assert advice.best == ""
    assert "nothing to compare" in advice.text


# Words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("patient_temperature is very high", [("patient_temperature", "very high")]),
        (
            "heart_rate is not normal and patient.age > 60",
            [("heart_rate", "not normal"), ("age", ">")],
        ),
        ("heart_rate is high or heart_rate is high", [("heart_rate", "high")]),
        ("\x00 nonsense (", [("(in other words)", "")]),
    ],
)
def test_terms_are_read_from_words(words: str, expected: list[tuple[str, str]]) -> None:
    assert _list_terms(words, 0) == expected
