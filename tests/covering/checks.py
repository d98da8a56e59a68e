"""The promises of the table, as named functions over the table and the model of the world."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
from denwatch.node.covering import Covering, Policy
from denwatch.node.covering.boxes import Rows

from tests.covering.oracle import Model
from tests.covering.strategies import Story, make_subscription


def tell(story: Story, policy: Policy) -> Iterator[tuple[Covering[int], Model]]:
    """Play a story on a table; yield it after every step with a model that knows its active set.

    The model's active set is the table's: it is there to judge soundness, not to predict.
    """
    table: Covering[int] = Covering(story.domains, policy)
    model = Model(story.world)
    for number, step in enumerate(story.steps):
        if step.plain is not None:
            model.subscribe(number, step.plain)
            table.subscribe(number, make_subscription(step.plain))
        elif model.plain:
            ids = list(model.plain)
            target = ids[step.pick % len(ids)]
            passive = set(table.passive()) - {target}
            model.unsubscribe(target)
            back = table.unsubscribe(target)
            assert set(back) == passive - set(table.passive())
        model.active = set(table.active())
        yield table, model


def check_every_id_is_kept(table: Covering[int], model: Model) -> None:
    assert sorted([*table.active(), *table.passive()]) == sorted(model.plain)
    assert len(table) == len(model.plain)


def check_passive_is_covered(table: Covering[int], model: Model) -> None:
    covered = model.cover(model.active)
    for i in table.passive():
        assert not model.possible[i] & ~covered, f"{i} is passive but not covered"


def list_points(table: Covering[int], mask: int) -> list[tuple[int, ...]]:
    """Return every point of the negative rectangles, with repetition."""
    return [
        point
        for row in table.rectangles(mask).tolist()
        for point in product(
            *(range(low, high + 1) for low, high in zip(row[::2], row[1::2], strict=True))
        )
    ]


def check_rectangles_are_disjoint(table: Covering[int], model: Model) -> None:
    for mask in {plain[0] for plain in model.plain.values()}:
        points = list_points(table, mask)
        assert len(points) == len(set(points))


def check_rectangles_are_the_complement(table: Covering[int], model: Model) -> None:
    covered = model.cover(model.active)
    for mask in {plain[0] for plain in model.plain.values()}:
        assert set(list_points(table, mask)) == model.world.list_points(mask, covered)


def check_rectangles_hold_the_complement(table: Covering[int], model: Model) -> None:
    covered = model.cover(model.active)
    for mask in {plain[0] for plain in model.plain.values()}:
        assert set(list_points(table, mask)) >= model.world.list_points(mask, covered)


def paint(rows: Rows, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return how many of the boxes hold each cell of a grid that starts at 0."""
    grid = np.zeros(shape, np.int64)
    for row in rows.tolist():
        grid[tuple(slice(lo, hi + 1) for lo, hi in zip(row[::2], row[1::2], strict=True))] += 1
    return grid
