"""The field's own truth: worked out by hand for a day of three nodes, and by another flood."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from denwatch.client.vocabulary.loading import load_shipped

from simulator.calendar import START
from simulator.day import Day, Plan
from simulator.device import Sense
from simulator.flood import Flood, Wanted
from simulator.population import STEADY, SUBSCRIPTIONS, PlannedSubscription, make_cast
from simulator.verdict import Judge
from simulator.witness import Span, WatchedWorld

MINUTE = 60_000
HIGH = PlannedSubscription("patient temperature is high")


def read_high(rng: Random, event: int, level: int, last: int) -> int:  # noqa: ARG001
    return last


def test_a_day_of_three_nodes_worked_out_by_hand() -> None:
    """The device at a reads something high every minute; b carries it to c at 150 to 155 s."""
    world = WatchedWorld(1, load_shipped("rescue"))
    for name in "abc":
        world.add_node(name)
    world.add_person("near", "a")
    world.add_person("far", "c")
    for person in ("near", "far"):
        world.ask(person, {"subscribe": HIGH.words, "name": "fever"})
    world.add_device("dog", "a", [Sense(1, (0,), period=MINUTE)], read_high)
    meetings = (("b", "c", 5, 10), ("a", "b", 20, 30), ("a", "b", 130, 140), ("b", "c", 150, 155))
    for first, second, begin, end in meetings:
        world.calendar.enter(START + 1_000 * begin, world.meet, first, second, True)
        world.calendar.enter(START + 1_000 * end, world.meet, first, second, False)
    world.run(4 * MINUTE)
    world.close()
    world.witness.close(world.now)
    judge = Judge(
        world.witness,
        world.devices,
        world.vocabulary,
        {HIGH.words: HIGH},
        delay=5,
        end=world.now,
        late=MINUTE,
    )
    found = {}
    for (note, owner), verdict in judge.judge().items():
        read = (judge.read_at[note] - START) / 1_000
        delivered = None if verdict.delivered is None else (verdict.delivered - START) // 1_000
        best = None if verdict.best is None else (verdict.best - START) / 1_000
        found[round(read), owner] = (verdict.outcome, verdict.cause, delivered, best)
    # Nothing was wanted at 0 s; what was read at 180 s and 240 s never left a.
    assert found == {
        (60, "near"): ("hit", None, 60, 60.005),
        (120, "near"): ("hit", None, 120, 120.005),
        (180, "near"): ("hit", None, 180, 180.005),
        (60, "far"): ("late", "partition", 150, 150.0),
        (120, "far"): ("hit", None, 150, 150.0),
        (180, "far"): ("missed", "partition", None, None),
    }


def test_a_flood_goes_over_links_of_one_moment_and_not_over_those_that_end() -> None:
    contacts = [Span("a", "b", 10, 20), Span("b", "c", 20, 30), Span("c", "d", 20, 25)]
    births = {1: ("a", 5), 2: ("d", 0), 3: ("a", 20)}
    wanted = {"x": [Wanted(1, (2,)), Wanted(3, (2,))]}
    found = Flood(births).run(contacts, [Span("x", "c", 0, 40)], wanted)
    # 3 is made at the moment in which a and b part.
    assert found == {(1, "x"): (20, "c", "contact")}


def test_who_comes_late_waits_for_nobody_but_themselves() -> None:
    found = Flood({1: ("a", 5), 2: ("a", 0)}).run(
        [], [Span("x", "b", 0, 9), Span("x", "a", 12, 40)], {"x": [Wanted(1, (2,))]}
    )
    assert found == {(1, "x"): (12, "a", "person")}


def test_a_cast_is_of_all_kinds_and_of_its_seed() -> None:
    cast = make_cast(3, 50, 6 * 60 * MINUTE, 12, 10, MINUTE)
    assert cast == make_cast(3, 50, 6 * 60 * MINUTE, 12, 10, MINUTE)
    assert cast != make_cast(4, 50, 6 * 60 * MINUTE, 12, 10, MINUTE)
    kinds = Counter(
        "asks" if act.subscription else "ends" if act.end else "goes"
        for part in cast.people
        for act in part.acts
    )
    assert kinds == {"asks": 15, "ends": 3, "goes": 6}
    assert len({subscription.words for subscription in (*SUBSCRIPTIONS, *STEADY)}) == len(
        SUBSCRIPTIONS
    ) + len(STEADY)


def test_nobody_judges_a_day_that_nobody_watched() -> None:
    with pytest.raises(TypeError, match="watched"):
        Day(Plan(1, 3, MINUTE)).judge(MINUTE)
