"""The negative space alone, large enough that blocks split, grow and are packed again."""

from __future__ import annotations

import numpy as np
import pytest
from denwatch.node.covering.boxes import Metric, Rows
from denwatch.node.covering.space import BLOCK, NegativeSpace

from tests.covering.checks import paint

SIDES = {1: 8192, 2: 96, 3: 24, 4: 12}


def draw_boxes(rng: np.random.Generator, count: int, dimensions: int, size: int) -> Rows:
    side = SIDES[dimensions]
    rows = np.empty((count, 2 * dimensions), np.int32)
    rows[:, ::2] = rng.integers(0, side, (count, dimensions))
    rows[:, 1::2] = np.minimum(rows[:, ::2] + rng.integers(0, size, (count, dimensions)), side - 1)
    return rows


def make_space(dimensions: int, *, merging: bool = False) -> NegativeSpace:
    whole = np.array([[0, SIDES[dimensions] - 1] * dimensions], np.int32)
    return NegativeSpace(whole, merging=merging)


@pytest.mark.parametrize("merging", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_cuts_leave_the_exact_complement(dimensions: int, merging: bool) -> None:
    rng = np.random.default_rng(dimensions)
    shape = (SIDES[dimensions],) * dimensions
    space = make_space(dimensions, merging=merging)
    covered = np.zeros(shape, np.int64)
    most = 0
    for number, box in enumerate(draw_boxes(rng, 600, dimensions, 4)):
        assert space.meets(box[None]) == bool((paint(box[None], shape) > covered).any())
        space.cut(box)
        covered |= paint(box[None], shape)
        most = max(most, space.count)
        if number % 50 == 0 or number > 595:
            assert len(space.rectangles()) == space.count
            assert (paint(space.rectangles(), shape) == 1 - covered).all()
    assert most > 2 * BLOCK  # or the test saw one block only


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_a_space_that_empties_is_packed_and_can_be_filled_again(dimensions: int) -> None:
    rng = np.random.default_rng(7)
    shape = (SIDES[dimensions],) * dimensions
    space = make_space(dimensions)
    for box in draw_boxes(rng, 500, dimensions, 3):
        space.cut(box)
    taken = space.rectangles()
    middle = np.array([1, SIDES[dimensions] - 2] * dimensions, np.int32)
    space.cut(middle)
    rest = space.rectangles()
    assert (paint(rest, shape) <= 1).all()
    space.cut(np.array([0, SIDES[dimensions] - 1] * dimensions, np.int32))
    assert space.count == 0
    assert not space.meets(taken)
    space.release(taken)
    assert sorted(space.rectangles().tolist()) == sorted(taken.tolist())
    assert space.meets(taken[-1:])


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_limited_cuts_keep_their_budget_and_remove_what_they_say(
    dimensions: int, metric: Metric
) -> None:
    rng = np.random.default_rng(11)
    shape = (SIDES[dimensions],) * dimensions
    space = make_space(dimensions)
    for box in draw_boxes(rng, 80, dimensions, 12):
        before, count = paint(space.rectangles(), shape), space.count
        sections, spent = space.cut_within(box, 10, metric)
        assert spent <= 10
        assert space.count <= count + 10
        removed = paint(sections, shape)
        assert (paint(space.rectangles(), shape) == before - removed).all()
        assert (removed <= paint(box[None], shape)).all()
        space.release(sections)
        assert (paint(space.rectangles(), shape) == before).all()
        space.cut(box)


@pytest.mark.parametrize(
    ("metric", "first"),
    [
        (Metric.RATIO, [30, 34, 4, 5]),  # 10 points for 2 pieces
        (Metric.BENEFIT, [24, 29, 4, 5]),  # 12 points, though for 3 pieces
        (Metric.COST, [35, 35, 4, 5]),  # 2 pieces, and it came before the other with 2
    ],
)
def test_each_metric_cuts_what_it_values(metric: Metric, first: list[int]) -> None:
    rows = [[0, 29, 0, 9], [35, 35, 0, 9], [30, 34, 0, 9], [36, 36, 0, 5]]
    space = NegativeSpace(np.array(rows, np.int32))
    sections, spent = space.cut_within(np.array([24, 40, 4, 5], np.int32), 3, metric)
    free = [36, 36, 4, 5]  # leaves one piece, so it costs nothing under any metric
    assert sorted(sections.tolist()) == sorted([first, free])
    assert spent == (3 if metric is Metric.BENEFIT else 2)
