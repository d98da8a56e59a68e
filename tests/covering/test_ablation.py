"""Take one safety rule away, and the checks must notice: they are not vacuous."""

from __future__ import annotations

import numpy as np
import pytest
from denwatch.node.covering import Approximate, BoxedSubscription, Covering, Domains, Exact
from denwatch.node.covering.entries import CoveringEntry
from denwatch.node.covering.table import CoveringState, SpaceSet

from tests.covering import checks
from tests.covering.oracle import Box, World
from tests.covering.strategies import Step, Story

WORLD = World([(0, 9), (0, 3)])


def make_step(mask: int, box: Box) -> Step:
    return Step((mask, (box,), (box,)))


LEFT, RIGHT, MIDDLE = (make_step(3, {0: ends}) for ends in ((0, 5), (4, 9), (2, 7)))


def play(steps: list[Step], policy: Exact | Approximate) -> None:
    for table, model in checks.tell(Story(WORLD, tuple(steps)), policy):
        checks.check_passive_is_covered(table, model)
        checks.check_rectangles_are_disjoint(table, model)
        checks.check_rectangles_hold_the_complement(table, model)


UNION = [LEFT, RIGHT, MIDDLE, Step(None, 0)]
PAIR = [LEFT, make_step(3, {0: (1, 2)}), Step(None, 0)]


@pytest.mark.parametrize("policy", [Exact(), Approximate(), Approximate(k=0)])
@pytest.mark.parametrize("steps", [UNION, PAIR])
def test_with_all_rules_the_stories_are_sound(
    steps: list[Step], policy: Exact | Approximate
) -> None:
    play(steps, policy)


@pytest.mark.parametrize("policy", [Exact(), Approximate()])
def test_without_release_the_checks_fail(
    policy: Exact | Approximate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpaceSet, "remove", lambda *_: {})
    with pytest.raises(AssertionError):
        play(UNION, policy)


def test_without_memory_of_the_coverer_the_checks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With k = 0 nothing is cut, so only the coverer's name says that its ward needs a look."""
    place = CoveringState._place

    def forget(self: CoveringState, entry: CoveringEntry) -> None:
        place(self, entry)
        self._covered.clear()

    monkeypatch.setattr(CoveringState, "_place", forget)
    outside, inside = {0: (1, 8), 1: (1, 2)}, {0: (2, 3), 1: (1, 1)}
    steps = [make_step(3, outside), make_step(3, inside), Step(None, 0)]
    with pytest.raises(AssertionError):
        play(steps, Approximate(k=0))


def test_without_the_mask_rule_the_checks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription to more features does not serve one to fewer of them."""
    story = [make_step(3, {0: (0, 9)}), make_step(1, {0: (2, 4)})]
    play(story, Exact(pairs=False))

    def look_in_the_wrong_space(ledger: CoveringState, entry: CoveringEntry) -> bool:
        assert ledger.spaces is not None
        rows = np.full((len(entry.rows), 4), [0, 9, 0, 3], np.int32)
        rows[:, : entry.rows.shape[1]] = entry.rows
        return ledger.spaces.get(3).meets(rows)

    monkeypatch.setattr(CoveringState, "_adds_something", look_in_the_wrong_space)
    with pytest.raises(AssertionError, match="passive but not covered"):
        play(story, Exact(pairs=False))


def test_own_overlap_is_given_back_once() -> None:
    """Two overlapping boxes of one subscription: the rectangles stay disjoint afterwards."""
    table = Covering[str](Domains((0, 9)), Exact())
    table.subscribe("keep", BoxedSubscription(3, ({0: (9, 9)},)))
    table.subscribe("twice", BoxedSubscription(3, ({0: (1, 5)}, {0: (3, 7), 1: (2, 4)})))
    table.unsubscribe("twice")
    grid = checks.paint(table.rectangles(3), (10, 10))
    assert (grid[:9] == 1).all()
    assert (grid[9] == 0).all()
