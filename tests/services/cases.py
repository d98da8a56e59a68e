"""What the tests draw: vectors, sets of items, requests, and one of each finder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from denwatch.node.services import (
    BasicSvdFinder,
    ExactFinder,
    ExhaustiveFinder,
    FeasibilityRule,
    Finder,
    RandomFinder,
    ServiceRequest,
    Side,
    SumFinder,
    WeightedSvdFinder,
)
from hypothesis import strategies as st

FINDERS: dict[str, Callable[[int], Finder]] = {
    "exact": ExactFinder,
    "exhaustive": ExhaustiveFinder,
    "bsvds": BasicSvdFinder,
    "rwsvds": lambda width: WeightedSvdFinder(width, np.random.default_rng(3)),
    "sums": SumFinder,
    "rand": RandomFinder,
}

WIDTHS = st.sampled_from([1, 2, 3, 5, 8, 63, 64, 65, 130])


@st.composite
def draw_vector(draw: st.DrawFn, width: int, ternary: bool) -> tuple[int, ...]:
    """Draw a vector; wide ones repeat a short pattern, so that feasible pairs stay common."""
    allowed = (-1, 0, 1) if ternary else (0, 1)
    short = draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=min(width, 5)))
    vector = [0] * width
    for at, value in enumerate(short):
        vector[draw(st.integers(0, width - 1)) if width > 8 else at] = value
    return tuple(vector)


@st.composite
def draw_case(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]], ServiceRequest]:
    """Draw a width, the vectors of some items, and a request."""
    width = draw(WIDTHS)
    ternary = draw(st.booleans())
    vectors = draw(st.lists(draw_vector(width, ternary), max_size=24))
    request = ServiceRequest(
        draw(draw_vector(width, draw(st.booleans()) or ternary)),
        draw(st.sampled_from(list(FeasibilityRule))),
        draw(st.sampled_from(list(Side))),
        draw(st.sampled_from([1, 1, 2, 5, None])),
    )
    return width, vectors, request
