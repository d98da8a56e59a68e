"""The earliest arrival and the replay of strategies, against a flood that steps through time."""

from __future__ import annotations

import random

import pytest
from denwatch.spark.analytics.contacts import (
    NEVER,
    ContactGraph,
    ContactSpan,
    Stay,
    find_earliest,
    find_meeting,
    share_contacts,
)
from denwatch.spark.analytics.what_if import Carried, World, list_places, make_strategy, replay
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

NODES = "abcdef"
LAST = 20


def flood(contacts: list[ContactSpan], origin: str, time: int) -> dict[str, int]:
    """The oracle of the oracle: at each moment everything goes over every link that is up."""
    reached = {origin: time}
    for moment in range(time, LAST + 1):
        moved = True
        while moved:
            moved = False
            for one, other, begin, end in contacts:
                if begin <= moment <= end and (one in reached) != (other in reached):
                    reached[other if one in reached else one] = moment
                    moved = True
    return reached


@st.composite
def list_contacts(draw: st.DrawFn) -> list[ContactSpan]:
    contacts = []
    for _ in range(draw(st.integers(0, 14))):
        one, other = draw(st.lists(st.sampled_from(NODES), min_size=2, max_size=2, unique=True))
        begin = draw(st.integers(0, LAST))
        contacts.append(ContactSpan(one, other, begin, draw(st.integers(begin, LAST))))
    return contacts


@st.composite
def list_stays(draw: st.DrawFn) -> list[Stay]:
    stays = []
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, LAST))
        stays.append(Stay(draw(st.sampled_from(NODES)), begin, draw(st.integers(begin, LAST))))
    return sorted(stays, key=lambda stay: stay.begin)


@given(list_contacts(), st.sampled_from(NODES), st.integers(0, LAST))
@settings(max_examples=200, deadline=None)
def test_arrivals_are_those_of_a_flood(contacts: list[ContactSpan], origin: str, time: int) -> None:
    graph = ContactGraph(contacts, NODES)
    arrivals = graph.find_arrivals(origin, time)
    expected = flood(contacts, origin, time)
    assert {n: graph.read(arrivals, n) for n in NODES} == {n: expected.get(n, NEVER) for n in NODES}


@given(list_contacts(), st.integers(0, LAST), st.integers(0, LAST))
@settings(max_examples=100, deadline=None)
def test_nothing_moves_after_the_end(contacts: list[ContactSpan], time: int, until: int) -> None:
    graph = ContactGraph(contacts, NODES)
    arrivals = graph.find_arrivals("a", time, until)
    expected = {n: t for n, t in flood(contacts, "a", time).items() if t <= until}
    assert {n: graph.read(arrivals, n) for n in NODES} == {n: expected.get(n, NEVER) for n in NODES}


def step_to_meeting(
    note: dict[str, int], asked: dict[str, int], stays: list[Stay], until: int
) -> int | None:
    """When somebody gets something, by trying each moment."""
    for moment in range(LAST + 1):
        for node, begin, end in stays:
            is_there = begin <= moment <= min(end, until)
            if is_there and note.get(node, 99) <= moment and asked.get(node, 99) <= moment:
                return moment
    return None


@given(list_contacts(), list_stays(), st.integers(0, 10), st.integers(0, 10), st.integers(0, LAST))
@settings(max_examples=200, deadline=None)
def test_a_meeting_needs_notification_subscription_and_subscriber(
    contacts: list[ContactSpan], stays: list[Stay], time: int, begins: int, until: int
) -> None:
    graph = ContactGraph(contacts, NODES)
    note, asked = graph.find_arrivals("a", time), graph.find_arrivals("b", begins)
    met = find_meeting(graph, note, [asked], stays, until)
    expected = step_to_meeting(
        flood(contacts, "a", time), flood(contacts, "b", begins), stays, until
    )
    assert (None if met is None else met.time) == expected


@given(list_contacts(), list_stays(), st.integers(0, 10))
@settings(max_examples=100, deadline=None)
def test_epidemic_copying_is_as_fast_as_possible_and_nothing_is_faster(
    contacts: list[ContactSpan], stays: list[Stay], time: int
) -> None:
    world = World(contacts, list_places({"x": stays}, {"x": (0, "b")}))
    expected = step_to_meeting(flood(contacts, "a", time), dict.fromkeys(NODES, 0), stays, LAST)
    note = Carried(7, "a", time, LAST, {"x": (255, stays)})
    for name in ("epidemic", "direct", "spray:2", "spray:4", "utility:4"):
        (done,) = replay(world, [note], make_strategy(name))
        got = done.delivered.get("x")
        if name == "epidemic":
            assert (None if got is None else got[0]) == expected
            assert done.relays == len(flood(contacts, "a", time)) - 1
        elif got is not None:
            assert expected is not None
            assert got[0] >= expected
        if name.startswith("spray"):  # the wanted places come on top of the copies
            places = {node for _, node in world.places["x"]}
            assert done.relays <= int(name[-1]) - 1 + len(places)


def test_a_budget_of_copies_is_shared_in_halves() -> None:
    contacts = [ContactSpan("a", node, time, time) for time, node in enumerate("bcdef", 1)]
    note = Carried(1, "a", 0, LAST, {"x": (255, [Stay("f", 0, LAST)])})
    places = {"x": [(0, "f")]}
    for copies, relays in ((1, 1), (2, 2), (4, 3), (8, 4), (16, 5)):
        # 8 copies: b gets 4, c 2, d 1, then a waits for f.
        (done,) = replay(World(contacts, places), [note], make_strategy(f"spray:{copies}"))
        assert done.relays == relays, copies
        assert done.delivered == {"x": (5, "f")}


def test_direct_delivery_is_by_the_origin_alone() -> None:
    contacts = [ContactSpan("a", "b", 1, 2), ContactSpan("b", "c", 3, 4)]
    note = Carried(1, "a", 0, LAST, {"x": (255, [Stay("c", 0, LAST)])})
    world = World(contacts, {"x": [(0, "b"), (3, "c")]})
    (direct,) = replay(world, [note], make_strategy("direct"))
    assert (direct.relays, direct.delivered) == (1, {})
    (epidemic,) = replay(world, [note], make_strategy("epidemic"))
    assert (epidemic.relays, epidemic.delivered) == (2, {"x": (3, "c")})


def test_a_subscriber_who_comes_during_a_contact_is_served() -> None:
    world = World([ContactSpan("a", "b", 1, 9)], {"x": [(0, "c"), (5, "b")]})
    note = Carried(1, "a", 0, LAST, {"x": (255, [Stay("b", 5, LAST)])})
    (done,) = replay(world, [note], make_strategy("direct"))
    assert done.delivered == {"x": (5, "b")}


@pytest.mark.parametrize("name", ["spray:3", "utility:4", "epidemic"])
def test_notifications_replayed_apart_fare_as_they_do_together(name: str) -> None:
    rng = random.Random(7)
    contacts = make_contacts(rng, 40)
    stays = {f"s{n}": make_stays(rng) for n in range(4)}
    world = World(contacts, list_places(stays, {}))
    notes = [
        Carried(
            n, rng.choice(NODES), rng.randrange(10), LAST, {o: (200, s) for o, s in stays.items()}
        )
        for n in range(12)
    ]
    together = replay(world, notes, make_strategy(name))
    apart = [replay(world, [note], make_strategy(name))[0] for note in notes]
    assert together == apart
    assert sum(done.relays for done in together)


def make_contacts(rng: random.Random, count: int) -> list[ContactSpan]:
    contacts = []
    for _ in range(count):
        one, other = rng.sample(NODES, 2)
        begin = rng.randrange(LAST)
        contacts.append(ContactSpan(one, other, begin, min(LAST, begin + rng.randrange(4))))
    return contacts


def make_stays(rng: random.Random) -> list[Stay]:
    begins = sorted(rng.sample(range(LAST), 2))
    return [Stay(rng.choice(NODES), begin, begin + rng.randrange(5)) for begin in begins]


def test_on_spark_the_oracle_is_the_same_for_any_partitioning(spark: SparkSession) -> None:
    rng = random.Random(3)
    contacts = make_contacts(rng, 25)
    stays = {f"s{n}": make_stays(rng) for n in range(5)}
    rows, expected = [], {}
    for number in range(40):
        subscriber, origin, home = rng.choice(list(stays)), rng.choice(NODES), rng.choice(NODES)
        born, begins = rng.randrange(10), rng.randrange(10)
        until = rng.choice([None, rng.randrange(LAST)])
        rows.append((number, subscriber, origin, born, until, [(home, begins)]))
        floods = flood(contacts, origin, born), flood(contacts, home, begins)
        limit = LAST if until is None else until - 1
        expected[number] = (
            step_to_meeting(*floods, stays[subscriber], limit),
            step_to_meeting(*floods, stays[subscriber], LAST),
        )
    schema = (
        "notification_id bigint, subscriber string, origin string, born bigint, until bigint, "
        "asked array<struct<origin: string, begins: bigint>>"
    )
    pairs = spark.createDataFrame(rows, schema)
    shared = share_contacts(spark, contacts, stays, {}, LAST)
    for parts in (1, 5):
        found = find_earliest(pairs.repartition(parts), shared).collect()
        assert {
            row["notification_id"]: (row["best"], row["open_best"]) for row in found
        } == expected
