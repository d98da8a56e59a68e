"""A thousand random stories at real nodes, with readings in any order, crashes between: the oracle.

What is told stands in rows that nobody has fetched; in the end they are what the oracle says of the
complete history.
"""

from __future__ import annotations

from random import Random

import pytest
from denwatch.client.compiler.stories import compile_story
from denwatch.client.language.stories import parse_story
from denwatch.node.core.told_stories import TOLD, decode_told

from simulator.story_oracle import judge
from tests.stories.drawing import (
    MINUTE,
    RESCUE,
    describe_reading,
    describe_story,
    draw_reading,
    draw_words,
)
from tests.subscribers.subscriber_node import START, SubscriberNode


@pytest.mark.parametrize("seed", range(20))
def test_stories_at_a_node_equal_the_oracle(seed: int) -> None:
    rng = Random(seed)
    node = SubscriberNode()
    stories = {}
    for number in range(50):
        words = draw_words(rng)
        reply = node.ask(f"ada{number % 5}", {"story": words, "name": f"s{number}"})
        assert reply["ok"], (words, reply)
        stories[int(reply["id"], 16)] = compile_story(parse_story(words), RESCUE).story, words
    node.now = START + 100 * MINUTE
    drawn = []
    for _ in range(14):
        time = START + rng.randrange(1, 60 * MINUTE)
        doubt = rng.choice((0, 0, 0, 1_000, 2 * MINUTE))
        drawn.append((draw_reading(rng), time, doubt, f"dog-{rng.randrange(5)}"))
    history = []
    for vector, time, doubt, device in drawn:  # in any order of time: they were drawn at random
        item, _ = node.read(vector, at=time, doubt=doubt, device=device)
        history.append((vector, item.id, time, doubt, device))
        if rng.random() < 0.1:
            node = node.reopen()
            node.feeder.made.extend([item] * len(history))  # devices count on
    node.tick()
    told: dict[int, dict[int, tuple[int, int]]] = {id: {} for id in stories}
    for _, value in node.store.scan(TOLD):
        row = decode_told(value)
        told[row.subscription][row.closing] = row.possible, row.certain
    count = 0
    for id, (story, words) in stories.items():
        known = [describe_reading(vector, story, *rest) for vector, *rest in history]
        expected = judge(describe_story(story, START), known, node.now)
        assert told[id] == expected, words
        count += len(expected)
    assert count > 20
