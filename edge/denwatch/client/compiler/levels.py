"""Which levels of a predicate's set decide about a match: what a fit has to keep."""

from __future__ import annotations

from collections.abc import Callable

from denwatch.client.compiler.drafts import list_inner_levels
from denwatch.client.compiler.structure import Leaf, Tree, find_polarities


def find_levels(
    tree: Tree,
    thresholds: Callable[[int], tuple[int, int]],
    overall: tuple[int, int],
    is_lattice: bool,
) -> dict[Leaf, list[int]]:
    """Return the levels of each leaf's set, the decisive one first.

    `thresholds` answers a predicate's own (possible, certain). The overall ones concern a single
    predicate only in a lattice, where degrees are compared and never added or multiplied.
    """
    whole = [max(overall), *overall]
    levels = {}
    for leaf, signs in find_polarities(tree).items():
        own = thresholds(leaf.index)
        wanted: list[int] = []
        if is_lattice and True in signs:
            wanted += whole
        if is_lattice and False in signs:
            wanted += [256 - level for level in whole if level]
        wanted += [max(own), *own]
        levels[leaf] = list_inner_levels((level for level in wanted if level), leaf.negated)
    return levels
