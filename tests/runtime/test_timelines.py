"""Three nodes, one in 2020, one years ahead, one right: each lives in its own time, and all agree.

Nothing ends early anywhere, everything ends soon after its time, and people see the clocks of the
machines that they stand at.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from denwatch.node.core.items import DELIVERED, EARLIEST, NOTIFICATION, SUBSCRIPTION
from denwatch.node.replication.clock import LINK

from tests.runtime.clocked_nodes import World

REAL = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60_000
YEAR = 365 * 24 * 60 * MINUTE
NAMES = ("ahead", "lost", "right")
WORDS = "heart_rate is high"


def make() -> World:
    """Return three nodes in a row, which met when they had nothing to tell each other."""
    world = World(REAL, ahead=12 * YEAR, lost=EARLIEST + 5 * SECOND - REAL, right=0)
    world.link("lost", "right")
    world.link("ahead", "right")
    world.wait(3 * SECOND)
    return world


def read_time(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def count_all(world: World, kind: int) -> list[int]:
    return [node.count(kind) for node in world.nodes.values()]


def restart_lost(world: World, away: int) -> None:
    """Let the node without a clock be off for some time, and begin in 2020 again."""
    lost = world.nodes["lost"]
    lost.stop()
    world.nodes = {name: world.nodes[name] for name in ("ahead", "right")}
    world.wait(away)
    lost.error = EARLIEST + 5 * SECOND - world.real
    world.nodes["lost"] = lost
    lost.start()
    world.link("lost", "right")


def test_all_get_what_they_want_and_it_ends_in_time_everywhere() -> None:
    world = make()
    for node in world.nodes.values():
        assert node.ask(WORDS)["ok"]
    world.wait(5 * SECOND)
    assert count_all(world, SUBSCRIPTION) == [3, 3, 3]
    began = world.real
    for node in world.nodes.values():
        node.read(life=60 * MINUTE)
    world.wait(10 * SECOND)
    for node in world.nodes.values():
        assert {note["node"] for note in node.notes} == {node.name}
        assert len({note["id"] for note in node.notes}) == len(node.notes) == 3
        for note in node.notes:  # by the clock of the machine here, wrong as it is
            assert abs(read_time(note["at"]) - (began + node.error)) < 2 * SECOND
    world.wait(began + 59 * MINUTE - world.real, 30 * SECOND)
    assert count_all(world, NOTIFICATION) == [3, 3, 3]
    assert min(count_all(world, DELIVERED)) > 0
    world.wait(3 * MINUTE, 10 * SECOND)
    assert count_all(world, NOTIFICATION) == [0, 0, 0]


@pytest.mark.parametrize("asker", NAMES)
def test_a_subscription_ends_everywhere_when_its_time_is_over(asker: str) -> None:
    world = make()
    began = world.real
    reply = world.nodes[asker].ask(WORDS + ", valid for 10 min")
    life = read_time(reply["expires"]) - world.nodes[asker].read_wall()
    assert abs(life - 10 * MINUTE) < MINUTE
    world.wait(began + life - 2 * SECOND - world.real, 10 * SECOND)
    assert count_all(world, SUBSCRIPTION) == [1, 1, 1]
    for node in world.nodes.values():
        node.read(life=60 * MINUTE)
    world.wait(LINK + 4 * SECOND)
    assert len(world.nodes[asker].notes) == 3  # read just in time
    assert count_all(world, SUBSCRIPTION) == [0, 0, 0]
    for node in world.nodes.values():
        node.read(life=60 * MINUTE)
    world.wait(5 * SECOND)
    assert len(world.nodes[asker].notes) == 3


@pytest.mark.parametrize("away", [2 * SECOND, 20 * MINUTE])
def test_a_node_whose_clock_falls_again_goes_on_in_its_own_time(away: int) -> None:
    world = make()
    lost, right = world.nodes["lost"], world.nodes["right"]
    for node in world.nodes.values():
        node.ask(WORDS)
    world.wait(3 * SECOND)
    began = world.real
    lost.read(life=60 * MINUTE)
    right.read(life=60 * MINUTE)
    world.wait(8 * SECOND)
    before = lost.now
    restart_lost(world, away)
    assert lost.now >= before
    assert lost.read_wall() < before  # the machine's clock did fall
    world.wait(5 * SECOND)
    assert count_all(world, NOTIFICATION) == [2, 2, 2]
    lost.read(life=60 * MINUTE)
    world.wait(10 * SECOND)
    assert [len(node.notes) for node in world.nodes.values()] == [3, 3, 2]
    lost.ask("list")  # its subscriber listens again, and gets what came meanwhile
    world.wait(5 * SECOND)
    assert len({note["id"] for note in lost.notes}) == len(lost.notes) == 3
    world.wait(began + 59 * MINUTE - world.real, 30 * SECOND)
    assert min(count_all(world, NOTIFICATION)) == 3
    world.wait(away + 4 * MINUTE, 30 * SECOND)  # it may be late by the time that it was off
    assert count_all(world, NOTIFICATION) == [0, 0, 0]


def test_twice_lost_its_old_items_are_taken_by_a_node_that_never_met_it() -> None:
    world = World(REAL, lost=EARLIEST + 5 * SECOND - REAL, right=0)
    lost, right = world.nodes["lost"], world.nodes["right"]
    lost.ask(WORDS)
    lost.read(life=60 * MINUTE)
    for _ in range(2):
        world.wait(20 * SECOND)
        lost.stop()
        lost.error = EARLIEST + 5 * SECOND - world.real
        lost.start()
    world.link("lost", "right")
    world.wait(5 * SECOND)
    assert (right.count(SUBSCRIPTION), right.count(NOTIFICATION)) == (1, 1)


@pytest.mark.parametrize("name", ["ahead", "lost"])
def test_a_clock_that_is_set_right_changes_what_people_see_and_nothing_else(name: str) -> None:
    world = make()
    node = world.nodes[name]
    for each in world.nodes.values():
        each.ask(WORDS)
    world.wait(3 * SECOND)
    began = world.real
    for each in world.nodes.values():
        each.read(life=60 * MINUTE)
    world.wait(5 * SECOND)
    assert len(node.notes) == 3
    now, held = node.now, node.medium.copy().spaces
    node.error = 0
    node.tick()
    assert node.now == now
    for space, rows in node.medium.spaces.items():
        assert space == "clock" or rows == held[space]
    assert abs(node.clocks.date(node.now) - world.real) < 2 * SECOND
    (row,) = node.ask("list")["subscriptions"]
    assert abs(read_time(row["created"]) - began) < 10 * SECOND
    for each in world.nodes.values():
        each.read(life=60 * MINUTE)
    world.wait(5 * SECOND)
    assert len(node.notes) == 6
    for note in node.notes[3:]:
        assert abs(read_time(note["at"]) - world.real) < 7 * SECOND
    world.wait(began + 59 * MINUTE - world.real, 30 * SECOND)
    assert count_all(world, NOTIFICATION) == [6, 6, 6]
    world.wait(3 * MINUTE, 10 * SECOND)
    assert count_all(world, NOTIFICATION) == [0, 0, 0]
    # The correction is remembered: after a start with the right clock all is as it was.
    before = node.now
    node.stop()
    node.start()
    assert 0 <= node.now - before < 15 * SECOND
    assert abs(node.clocks.date(node.now) - world.real) < 2 * SECOND
    assert node.clocks.doubt(name, 1, node.now) == 0


def test_the_lag_is_how_long_something_waits_to_be_exchanged() -> None:
    world = make()
    right = world.nodes["right"]
    assert right.peers.find_lag(right.now) == 0
    world.wait(5 * SECOND)
    world.post = lambda *_: None  # type: ignore[method-assign]
    right.ask(WORDS)
    world.wait(40 * SECOND)
    lag = right.peers.find_lag(right.now)
    assert lag is not None
    assert 38 * SECOND <= lag <= 41 * SECOND
    world.cut("lost", "right")
    world.cut("ahead", "right")
    assert right.peers.find_lag(right.now) is None
