"""The fixed corpus of 10,000 subscriptions and 10,000 publications, asked of the papers' engines.

The exact engines must give the index's answers, hit for hit. They are interpreted and slow, so a
handful of the publications is asked; DENWATCH_SLOW=1 asks one in a hundred, some minutes.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.vectors import NotificationVector

from papers import FIP, FNIF, FNIFC, FNIFS
from tests.matching.samples import make_corpus

STRIDE = 100 if os.environ.get("DENWATCH_SLOW") else 2500
AGE = 40


@cache
def ask_index() -> list[tuple[NotificationVector, list[SubscriptionMatch]]]:
    """Return the publications asked, and what the index answers."""
    subscriptions, publications = make_corpus()
    index = FuzzyIndex(attributes=32)
    for id, s in enumerate(subscriptions):
        index.add(id, s)
    return [(n, index.match(n, AGE)) for n in publications[::STRIDE]]


@pytest.mark.parametrize("make", [FNIF, FNIFS, FNIFC, FIP])
def test_the_engine_answers_as_the_index_does(make: type[FNIF | FNIFC | FIP]) -> None:
    engine = make()
    for id, s in enumerate(make_corpus()[0]):
        engine.add(id, s)
    found = 0
    for n, expected in ask_index():
        hits = engine.match(n, AGE)
        assert hits == expected
        found += len(hits)
    assert found > 100
