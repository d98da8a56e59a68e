"""Services by region: the same answers as a plain search, however rows are distributed."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.notifications import shorten_hash, write_document
from denwatch.node.services import FeasibilityRule
from denwatch.protocol import subscription
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.spark.matching.windows import Meanings
from denwatch.spark.report.pictures import draw_regions
from denwatch.spark.services import (
    METHODS,
    REQUESTS,
    SERVICES,
    find_services,
    list_live,
    list_names,
    read_offers,
    read_requests,
    recommend_services,
    refresh_services,
    search_region,
    sum_regions,
)
from denwatch.spark.source import build_schema
from pyspark.sql import DataFrame, Row, SparkSession

NAMES = [f"event.attribute{number}" for number in range(12)]
NOW = 1_790_000_000_000


class Offer(NamedTuple):
    region: str
    service: str
    has: frozenset[str]
    against: frozenset[str]


class Request(NamedTuple):
    region: str
    request: str
    wants: frozenset[str]
    against: frozenset[str]


def draw_site(seed: int, is_ternary: bool) -> tuple[list[Offer], list[Request]]:
    rng = random.Random(seed)

    def draw(most: int) -> tuple[frozenset[str], frozenset[str]]:
        plus = frozenset(rng.sample(NAMES, rng.randint(0, most)))
        minus = frozenset(rng.sample(NAMES, rng.randint(0, 3)) if is_ternary else ())
        return plus, minus - plus

    offers = [Offer(rng.choice("abc"), f"bed-{number:03}", *draw(8)) for number in range(150)]
    requests = [Request(rng.choice("abcd"), f"{number:016x}", *draw(3)) for number in range(60)]
    return offers, requests


def measure(offer: Offer, request: Request, rule: FeasibilityRule) -> int | None:
    """Return the squared distance of an offer from a request; None if it does not serve it."""
    total = 0
    for name in NAMES:
        mine = (name in offer.has) - (name in offer.against)
        asked = (name in request.wants) - (name in request.against)
        if rule is FeasibilityRule.POSITIVE and mine < asked:
            return None
        if rule is FeasibilityRule.AGREEING and mine * asked < 0:
            return None
        if rule is not FeasibilityRule.AGREEING or asked:
            total += (mine - asked) ** 2
    return total


def search_plainly(
    offers: list[Offer], requests: list[Request], rule: FeasibilityRule, limit: int
) -> set[Any]:
    """Return (region, request, place, service, squared) by looking at everything."""
    found = set()
    for request in requests:
        ranked = sorted(
            (distance, offer.service)
            for offer in offers
            if offer.region == request.region
            and (distance := measure(offer, request, rule)) is not None
        )
        for place, (distance, service) in enumerate(ranked[:limit], 1):
            found.add((request.region, request.request, place, service, distance))
    return found


def make_frames(
    spark: SparkSession, offers: list[Offer], requests: list[Request]
) -> tuple[DataFrame, DataFrame]:
    services = [
        (o.region, o.service, (1, n), sorted(o.has), sorted(o.against))
        for n, o in enumerate(offers)
    ]
    asked = [(w.region, w.request, sorted(w.wants), sorted(w.against)) for w in requests]
    return spark.createDataFrame(services, SERVICES), spark.createDataFrame(asked, REQUESTS)


def collect(found: DataFrame) -> set[Any]:
    rows = found.collect()
    assert len(rows) == len(set(rows))
    return {tuple(row)[:5] for row in rows}


@pytest.mark.parametrize("is_ternary", [False, True], ids=["binary", "ternary"])
def test_the_exact_search_is_the_plain_one_for_any_partitioning(
    spark: SparkSession, is_ternary: bool
) -> None:
    offers, requests = draw_site(3, is_ternary)
    services, asked = make_frames(spark, offers, requests)
    rule = FeasibilityRule.AGREEING if is_ternary else FeasibilityRule.POSITIVE
    for limit, parts, slices in ((1, 1, 1), (3, 1, 4), (1, 5, 3)):
        wanted = search_plainly(offers, requests, rule, limit)
        assert len(wanted) > 30
        found = find_services(
            services.repartition(slices),
            asked.repartition(slices),
            rule=rule,
            limit=limit,
            parts=parts,
        )
        assert collect(found) == wanted, (limit, parts, slices)


def test_svds_serves_whom_it_can_and_answers_alike_for_any_partitioning(
    spark: SparkSession,
) -> None:
    offers, requests = draw_site(4, is_ternary=False)
    services, asked = make_frames(spark, offers, requests)
    best = {
        row[:2]: row[4] for row in search_plainly(offers, requests, FeasibilityRule.POSITIVE, 1)
    }
    by_name = {(offer.region, offer.service): offer for offer in offers}
    by_request = {request.request: request for request in requests}
    answers = [
        collect(
            find_services(
                services.repartition(parts), asked.repartition(3), method="weighted", parts=parts
            )
        )
        for parts in (1, 3)
    ]
    assert answers[0] == answers[1]
    assert {row[:2] for row in answers[0]} == best.keys()
    for region, request, _, service, squared in answers[0]:
        distance = measure(by_name[region, service], by_request[request], FeasibilityRule.POSITIVE)
        assert distance == squared
        assert squared >= best[region, request]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_serves_whom_it_can(method: str) -> None:
    offers, requests = draw_site(5, is_ternary=False)
    best = {
        row[:2]: row[4] for row in search_plainly(offers, requests, FeasibilityRule.POSITIVE, 1)
    }
    for region in "abcd":
        tables = []
        for rows in (offers, requests):
            kept = [row._asdict() for row in rows if row.region == region]
            tables.append(
                pa.Table.from_pylist([{k: _flatten(v) for k, v in row.items()} for row in kept])
            )
        found = search_region(
            tables[0], tables[1], method, FeasibilityRule.POSITIVE, 1, 0
        ).to_pylist()
        assert {(region, row["request"]) for row in found} == {
            key for key in best if key[0] == region
        }
        for row in found:
            least = best[region, row["request"]]
            assert row["squared"] >= least
            if method in ("exact", "exhaustive"):
                assert row["squared"] == least


def _flatten(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


def test_the_picture_shows_each_region() -> None:
    columns = ["region", "services", "requests", "served", "elsewhere", "unserved"]
    rows = [("north", 3, 4, 2, 1, 1), ("south", 1, 0, 0, 0, 0)]
    svg = draw_regions(pd.DataFrame(rows, columns=columns))
    assert svg.count('class="mark') == 3
    assert "north: served 2" in svg
    assert "0 requests, 1 devices" in svg
    assert draw_regions(pd.DataFrame([], columns=columns)) == ""


def test_wrong_questions_are_refused(spark: SparkSession) -> None:
    services, asked = make_frames(spark, *draw_site(4, is_ternary=False))
    with pytest.raises(ValueError, match="no method 'best'; there are exact, basic"):
        find_services(services, asked, method="best")
    with pytest.raises(ValueError, match="at least 1"):
        find_services(services, asked, limit=0)


def test_news_of_services_may_come_in_any_order_and_twice(spark: SparkSession) -> None:
    news = [
        ("north", "bed-1", (1, 1), ["t"], []),
        ("north", "bed-1", (1, 5), ["t", "p"], []),
        ("north", "bed-1", (2, 1), None, []),
        ("north", "bed-2", (1, 9), None, []),
        ("north", "bed-2", (2, 3), ["p"], ["t"]),
        ("south", "bed-1", (1, 2), [], []),
    ]
    rng = random.Random(2)
    nothing = spark.createDataFrame([], SERVICES)
    for cuts in (1, 2, 3):
        shuffled = [*news, *rng.sample(news, 3)]
        rng.shuffle(shuffled)
        state = nothing
        for start in range(cuts):
            batch = spark.createDataFrame(shuffled[start::cuts], SERVICES)
            state = refresh_services(state, batch)
        rows = {(row.region, row.service): (row.has, row.against) for row in state.collect()}
        assert rows == {
            ("north", "bed-1"): (None, []),
            ("north", "bed-2"): (["p"], ["t"]),
            ("south", "bed-1"): ([], []),
        }
        assert {tuple(row[:2]) for row in list_live(state).collect()} == {
            ("north", "bed-2"),
            ("south", "bed-1"),
        }


@pytest.fixture(scope="module")
def vocabulary() -> tuple[bytes, Meanings]:
    shipped = load_shipped("rescue")
    own = shorten_hash(shipped)
    return own, Meanings({own: write_document(shipped)})


def make_hello(node: str, device: str, number: int, senses: list[int] | None, own: bytes) -> Row:
    names = build_schema("device").names
    row: dict[str, Any] = dict.fromkeys(names)
    row |= {"node": node, "epoch": 1, "number": number, "time": NOW, "hybrid": 0}
    row |= {"device": device, "is_up": senses is not None, "senses": senses, "vocabulary": own}
    return Row(**row)


def test_from_logs_to_recommendations(
    spark: SparkSession, vocabulary: tuple[bytes, Meanings]
) -> None:
    own, meanings = vocabulary
    names = list_names(meanings)
    event = next(iter(load_shipped("rescue").events.values()))
    number = event.number
    first, second, third = sorted(a.bit for a in event.attributes.values())[:3]
    called = names[own, number]

    def sense(*bits: int) -> list[int]:
        return [number << 32 | sum(1 << bit for bit in bits)]

    hellos = [
        make_hello("north", "wide", 1, sense(first, second, third), own),
        make_hello("north", "narrow", 2, sense(first), own),
        make_hello("north", "gone", 3, sense(first), own),
        make_hello("north", "gone", 4, None, own),
        make_hello("south", "wide", 1, sense(first, second), own),
    ]
    device = spark.createDataFrame(hellos, build_schema("device"))
    services = list_live(
        refresh_services(spark.createDataFrame([], SERVICES), read_offers(device, names))
    )
    assert {(row.region, row.service): sorted(row.has) for row in services.collect()} == {
        ("north", "wide"): sorted(called[bit] for bit in (first, second, third)),
        ("north", "narrow"): [called[first]],
        ("south", "wide"): sorted(called[bit] for bit in (first, second)),
    }

    def vector(*bits: int) -> bytearray:
        made = SubscriptionVector(number, [Predicate(bit, 0, 9) for bit in bits])
        return bytearray(subscription.encode(made))

    columns = (
        "subscription_id bigint, subscriber string, words string, origin string, begins bigint,"
        " ends bigint, language int, vocabulary binary, vector binary"
    )
    rows = [
        (1, "medic", "one", "south", 0, NOW, 0, bytearray(own), vector(first)),  # over
        (2, "medic", "two", "south", 0, NOW + 1, 0, bytearray(own), vector(first)),
        (3, "chief", "three", "south", 0, NOW + 1, 0, bytearray(own), vector(third)),
        (4, "chief", "four", "south", 0, NOW + 1, 0, bytearray(b"other"), vector(first)),
        (5, "chief", "five", "south", 0, NOW + 1, 0, bytearray(own), bytearray(b"bad")),
    ]
    windows = spark.createDataFrame(rows, columns)
    stays = spark.createDataFrame(
        [("medic", "south", 1, 2), ("medic", "north", 3, 4), ("medic", "west", NOW + 1, NOW + 2)],
        "subscriber string, node string, begin bigint, end bigint",
    )
    requests = read_requests(windows, stays, names, NOW)
    told = recommend_services(services, requests, windows).cache()
    found = {
        row.subscription_id: (row.region, row.service, row.beyond, row.elsewhere)
        for row in told.collect()
    }
    assert found == {
        2: ("north", "narrow", 0, None),
        3: ("south", None, None, "north: wide"),
        4: ("south", None, None, None),
    }
    sums = {
        row.region: (row.services, row.requests, row.served, row.elsewhere, row.unserved)
        for row in sum_regions(services, told).collect()
    }
    assert sums == {"north": (2, 1, 1, 0, 0), "south": (1, 2, 0, 1, 1)}
    # Where the node was shut down in order nobody is called unserved.
    ended = spark.createDataFrame([("south",)], "region string")
    judged = {row.region: row for row in sum_regions(services, told, ended).collect()}
    assert (judged["south"].unserved, judged["south"].unjudged) == (0, 1)
