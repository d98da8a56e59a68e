"""The definition in `protocol.matching` agrees with real numbers, as far as it rounds exactly."""

from __future__ import annotations

from denwatch.protocol import degrees
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Predicate, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.oracle import find_degree, find_slope, judge
from tests.matching.samples import notifications, subscriptions


def test_every_slope_is_the_logarithmic_scale_rounded() -> None:
    assert [find_slope(code) for code in range(255)] == [
        degrees.slope(code) / 256 for code in range(255)
    ]


def test_every_degree_of_every_slope_is_the_real_one_rounded() -> None:
    for code in range(256):
        p = Predicate(0, 100, 110, code)
        for x in range(256):
            assert find_degree(p, x) == degrees.fuzzify(x, 100, 110, code, code, 0)


@given(
    subscriptions(exact=True, attributes=5),
    notifications(attributes=5, doubtful_wide=False),
    st.integers(0, 9000),
)
@settings(max_examples=300, deadline=None)
def test_a_match_is_the_real_one_rounded(
    s: SubscriptionVector, n: NotificationVector, age: int
) -> None:
    verdict = judge(s, n, age)
    found = match(s, n, age)
    if verdict is None or found is None:
        assert verdict is None
        assert found is None
        return
    if verdict.matched is not None:
        assert found.matched == verdict.matched
    assert abs(found.possible - verdict.possible) <= verdict.tolerance
    assert abs(found.certain - verdict.certain) <= verdict.tolerance
    if verdict.attribute is not None:
        assert s.predicates[found.predicate].attribute == verdict.attribute
