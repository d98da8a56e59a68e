"""The index, the plain matcher and the papers' engines of the same semantics give one answer."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.node.matching.index import FuzzyIndex
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector
from hypothesis import given, settings
from hypothesis import strategies as st

from papers import FIP, FNIF, FNIFC, FNIFS
from papers.baselines import PlainMatcher
from tests.matching.samples import notifications, subscriptions


@pytest.mark.parametrize("engine", [FNIF, FNIFS, FNIFC, FIP, PlainMatcher])
@given(
    subs=st.lists(subscriptions(attributes=4), min_size=1, max_size=10),
    notes=st.lists(notifications(attributes=4), min_size=1, max_size=3),
    age=st.integers(0, 900),
)
@settings(max_examples=40, deadline=None)
def test_one_answer(
    engine: Any, subs: list[SubscriptionVector], notes: list[NotificationVector], age: int
) -> None:
    index, other = FuzzyIndex(), engine()
    for id, s in enumerate(subs):
        index.add(id, s)
        other.add(id, s)
    for n in notes:
        assert index.match(n, age) == other.match(n, age)
    index.remove(0)
    other.remove(0)
    assert index.match(notes[0], age) == other.match(notes[0], age)
