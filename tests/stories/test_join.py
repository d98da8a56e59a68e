"""The join of a story equals the oracle, whatever the order in which readings arrive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from denwatch.client.compiler.stories import ABSENCE, COUNT, KINDS, SEQUENCE, TOGETHER, Story
from denwatch.node.matching.story_join import OwnTime, StoryEntry, StoryJoin, Telling

from simulator.story_oracle import Happened, Tale, judge

MINUTE = 60_000
NOW = 10_000_000


def draw_story(rng: Random) -> tuple[Story, Tale]:
    kind = rng.choice((SEQUENCE, TOGETHER, ABSENCE, COUNT))
    parts = rng.choice((2, 2, 3)) if kind in (SEQUENCE, TOGETHER) else 1
    windows = []
    for _ in range(parts - 1 if kind == SEQUENCE else 1):
        full = rng.randrange(1, 20) * MINUTE // 2
        zero = rng.choice((full, full * 3 // 2, full * 3))
        if kind == ABSENCE:
            zero = rng.choice((full, full // 2, 0))
        windows.append((full, zero))
    near = None
    if kind != ABSENCE and rng.random() < 0.4:
        metres = rng.randrange(20, 300)
        near = metres * 1000, rng.choice((metres, 2 * metres)) * 1000
    count = rng.randrange(2, 5) if kind == COUNT else 0
    threshold = rng.choice((1, 100, 128, 200, 255))
    story = Story(kind, (b"",) * parts, tuple(windows), near, count, threshold)
    metres_near = None if near is None else (near[0] / 1000, near[1] / 1000)
    tale = Tale(KINDS[kind], parts, tuple(windows), metres_near, count, threshold, since=0)
    return story, tale


def draw_history(rng: Random, parts: int, size: int) -> list[Happened]:
    history = []
    for id in range(1, size + 1):
        fits = {}
        for part in range(parts):
            if rng.random() < 0.6:
                possible = rng.randrange(100, 256)
                fits[part] = possible, rng.randrange(possible + 1)
        place = None
        if rng.random() < 0.9:
            place = rng.randrange(300), rng.randrange(300), rng.choice((0, 0, 15))
        time = rng.randrange(1, 90) * MINUTE + rng.randrange(3)
        doubt = rng.choice((0, 0, 0, 1000, 3 * MINUTE))
        said = rng.choice((None, time, time + 1000, time - 7 * MINUTE, time + 50 * MINUTE))
        history.append(Happened(id, time, doubt, f"dog-{rng.randrange(6)}", fits, place, said))
    return history


def list_entries(one: Happened) -> list[StoryEntry]:
    own = None if one.said is None else OwnTime((f"node-{one.id}", 1), one.said, 0)
    return [
        StoryEntry(one.time, one.id, part, one.doubt, one.device, degrees, one.place, own=own)
        for part, degrees in one.fits.items()
    ]


def replay(join: StoryJoin, history: list[Happened], now: int) -> dict[int, tuple[int, int]]:
    """Return what is told in the end."""
    told: dict[int, tuple[int, int]] = {}

    def take(tellings: list[Telling]) -> None:
        for telling in tellings:
            if telling.degrees[0]:
                told[telling.id] = telling.degrees
            else:
                told.pop(telling.id, None)

    for one in history:
        take(join.add(list_entries(one)))
    take(join.tick(now))
    return told


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_stories_equal_the_oracle(seed: int) -> None:
    rng = Random(seed)
    told = 0
    for _ in range(100):
        story, tale = draw_story(rng)
        history = draw_history(rng, len(story.parts), rng.randrange(2, 14))
        rng.shuffle(history)
        expected = judge(tale, history, NOW)
        assert replay(StoryJoin(story, 0), history, NOW) == expected, (tale, history)
        told += len(expected)
    assert told > 50


def test_nodes_whose_clocks_doubt_the_order_tell_it_by_the_same_reading() -> None:
    rng = Random(5)
    differ = 0
    for _ in range(200):
        parts = rng.choice((1, 2, 3))
        kind = COUNT if parts == 1 else TOGETHER
        window = (60 * MINUTE, 60 * MINUTE)
        story = Story(kind, (b"",) * parts, (window,), None, 3 if kind == COUNT else 0, 128)
        history = []
        for id in range(1, 8):
            time = rng.randrange(MINUTE)
            fits = {rng.randrange(parts): (255, 255)}
            history.append(Happened(id, time, MINUTE, f"dog-{id}", fits, None, time))
        told = []
        for has_order in (True, True, False):
            seen = [
                replace(
                    one,
                    time=one.time + rng.randrange(-MINUTE, MINUTE),
                    said=one.said if has_order else None,
                )
                for one in history
            ]
            rng.shuffle(seen)
            told.append(replay(StoryJoin(story, 0), seen, NOW).keys())
        assert told[0] == told[1], (story, history)
        differ += told[0] != told[2]
    assert differ > 50, "without an order that all share they would tell it twice"
