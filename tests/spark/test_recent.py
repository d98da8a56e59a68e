"""For how long a reading is news, as Spark works it out, against the rule second by second."""

from __future__ import annotations

import pytest
from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped
from denwatch.protocol.matching import rate_age
from denwatch.protocol.subscription import encode
from denwatch.spark.analytics.contacts import find_news_life


@pytest.mark.parametrize(
    "words",
    [
        "heart_rate is high, in the last 20 s",
        "heart_rate is high, in the last 30 s fading until 2 min",
        "heart_rate is high, in the last 30 s fading until 1 h, at least 0.9",
        "heart_rate is high, in the last 5 min fading until 10 min, certain 0.8",
    ],
)
def test_news_live_as_long_as_a_node_says(words: str) -> None:
    vector = compile_subscription(parse(words), load_shipped("rescue")).vector
    assert vector.recent is not None
    age = 0
    while rate_age(age, vector.recent) >= max(vector.threshold, vector.certain):
        age += 1
    assert find_news_life(0, encode(vector)) == 1000 * age


def test_without_a_limit_nothing_is_old() -> None:
    vector = compile_subscription(parse("heart_rate is high"), load_shipped("rescue")).vector
    assert find_news_life(0, encode(vector)) is None
    assert find_news_life(1, b"") is None
