"""The compiled arithmetic is the protocol's, over whole domains where they are small."""

from __future__ import annotations

import numpy as np
from denwatch.node.matching import evaluation
from denwatch.protocol import cuts, degrees
from denwatch.protocol.vectors import Predicate
from hypothesis import given, settings
from hypothesis import strategies as st

_codes = st.integers(0, 255)
_hedges = st.sampled_from([code for code in range(16) if code & 3 or not code])


def test_tables_are_the_protocols() -> None:
    for code in [code for code in range(16) if code & 3 or not code]:
        for degree in range(256):
            assert evaluation.HEDGE[code, degree] == degrees.hedge(degree, code)
            assert evaluation.LOWEST[code, degree] == cuts.invert_hedge(code, degree)


def test_every_reach_is_the_protocols() -> None:
    for code in range(256):
        for degree in range(1, 256):
            for wide in (0, 1):
                expected = degrees.reach(code, degree, wide)
                assert evaluation.reach(code, degree, wide) == expected


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    wide = draw(st.booleans())
    last = 65535 if wide else 255
    low, high = sorted(draw(st.tuples(st.integers(0, last), st.integers(0, last))))
    left, right = draw(_codes), draw(_codes)
    return Predicate(0, low, high, left, right, draw(st.booleans()), draw(_hedges), wide)


@given(predicates(), st.data())
@settings(max_examples=300, deadline=None)
def test_possible_and_certain_are_the_protocols(p: Predicate, data: st.DataObject) -> None:
    value = st.integers(0, p.last)
    points = data.draw(
        st.one_of(value.map(lambda x: [x] * 4), st.lists(value, min_size=4, max_size=4))
    )
    a, b, c, d = sorted(points)
    found = evaluation.measure(
        p.low, p.high, p.left, p.right, p.hedge, int(p.negated), int(p.wide), a, b, c, d
    )
    assert tuple(found) == cuts.measure(p, (a, b, c, d))


def test_what_is_outside_on_either_side_is_what_is_outside_on_one() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20_000):
        low, high = sorted(rng.integers(0, 256, 2).tolist())
        left, right = rng.choice([*range(256), 255, 255], 2).tolist()
        step = int(rng.choice([3, 12, 120]))
        near = low if rng.random() < 0.5 else high
        points = np.cumsum([near - step, *rng.integers(0, step, 3)]).clip(0, 255).tolist()
        expected = 255 - cuts.measure(Predicate(0, low, high, left, right), tuple(points))[1]
        if points[0] < points[3]:
            assert evaluation.leave_either(low, high, left, right, *points) == expected


@given(
    st.integers(0, 6),
    st.lists(st.integers(0, 255), min_size=1, max_size=16),
    st.lists(st.integers(1, 255), min_size=16, max_size=16),
    st.integers(0, 255),
)
@settings(max_examples=400, deadline=None)
def test_aggregates_and_levels_are_the_protocols(
    kind: int, values: list[int], weights: list[int], t: int
) -> None:
    n = len(values)
    array, loads = np.array(values, np.int64), np.array(weights, np.int64)
    expected = degrees.aggregate(kind, bytearray(values), 0, n, bytes(weights), 0)
    assert evaluation.aggregate(kind, array, 0, n, loads) == expected
    scratch = np.empty(16, np.int64)
    for i in range(n):
        expected = cuts.find_level(kind, n, t, bytes(weights), i)
        assert evaluation.find_level(kind, n, t, loads, i, scratch) == expected
