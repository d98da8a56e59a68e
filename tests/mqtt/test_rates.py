"""Token buckets."""

from __future__ import annotations

import pytest
from denwatch.node.mqtt.budgets import RateLimit
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=200), st.integers(1, 50), st.integers(1, 9)
)
def test_no_client_gets_more_than_burst_and_rate(steps: list[int], rate: int, burst: int) -> None:
    limit = RateLimit(rate, burst)
    now = 1_000_000
    granted: list[int] = []
    for step in steps:
        now += step
        if limit.take("a", now) == 0:
            granted.append(now)
    for i, start in enumerate(granted):
        for j in range(i, len(granted)):
            allowed = burst + rate * (granted[j] - start) / 1000
            assert j - i + 1 <= allowed + 1e-6


@given(st.integers(1, 50), st.integers(1, 9))
def test_who_waits_as_told_is_served(rate: int, burst: int) -> None:
    limit = RateLimit(rate, burst)
    now = 0
    for _ in range(burst + 20):
        wait = limit.take("a", now)
        if wait:
            now += wait
            assert limit.take("a", now) == 0


def test_clients_do_not_share_and_the_clock_may_stand() -> None:
    limit = RateLimit(1, 2)
    assert [limit.take("a", 0) > 0 for _ in range(3)] == [False, False, True]
    assert limit.take("b", 0) == 0
    assert limit.take("a", -5000) > 0  # a clock that falls gives nothing
    limit.forget("a")
    assert limit.take("a", 0) == 0


def test_idle_clients_are_forgotten() -> None:
    limit = RateLimit(10, 1)
    for i in range(20_000):
        limit.take(f"client {i}", i * 10)
    assert len(limit) < 3_000


def test_a_limit_of_nothing_is_refused() -> None:
    for rate, burst in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(ValueError, match="rate"):
            RateLimit(rate, burst)
