"""Who walks to another node is found there, also by strategies that have few copies to give."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import NOTES, Listening
from denwatch.node.core.items import DELIVERED

from tests.runtime.clocked_nodes import World

START = 1_800_000_000_000
LIFE = 3_600_000


@pytest.mark.parametrize("strategy", ["epidemic", "spray:2", "utility", "utility:2"])
def test_a_note_reaches_who_silently_walked_to_another_node(strategy: str) -> None:
    """The last copy is kept for where its subscriber is, which only the walk's mark tells."""
    world = World(START, strategy, a=0, b=0, c=0, d=0)
    a, b, c = (world.nodes[name] for name in "abc")
    assert c.ask("heart_rate > 100")["ok"]
    for one, other in (("c", "b"), ("c", "a")):
        world.link(one, other)
        world.wait(5_000)
        world.cut(one, other)
    b.do(Listening(NOTES + "medic-c", True))
    a.read(LIFE)
    world.link("a", "d")
    world.wait(10_000)
    world.cut("a", "d")
    world.link("a", "b")
    world.wait(20_000)
    assert [note["values"]["heart_rate"]["value"] for note in b.notes] == [180]


def test_a_walk_is_told_once_and_staying_is_not() -> None:
    world = World(START, "utility", a=0, b=0)
    world.link("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    assert a.ask("heart_rate > 100")["ok"]
    world.wait(5_000)
    for is_up in (True, False, True, False, True):
        b.do(Listening(NOTES + "medic-a", is_up))
        world.wait(3_000)
    assert (a.count(DELIVERED), b.count(DELIVERED)) == (1, 1)
