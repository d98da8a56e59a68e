"""Each rule of delivery removed once: the check that guards it must fail."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
from denwatch.node.core import pending
from denwatch.node.core.delivery import Delivery
from denwatch.node.core.subscriptions import SubscriberSettings, Subscriptions

from tests.subscribers.subscriber_node import SubscriberNode
from tests.subscribers.test_model import SETTINGS, Run

HIGH: dict[str, float] = {"heart_rate": 180}
SOME: dict[str, float] = {"heart_rate": 125}


def play(*events: tuple[Any, ...], options: SubscriberSettings = SETTINGS) -> None:
    run = Run(SubscriberNode(settings=options))
    for event in events:
        run.step(event)
    run.finish()


ACKNOWLEDGED = (
    ("subscribe", "m", 0),
    ("attach", "m"),
    ("read", HIGH, 0, 500),
    ("ack", "m", 0),
    ("restart",),
    ("attach", "m"),
)
WAITING = (
    ("subscribe", "m", 0),
    ("read", SOME, 0, 500),
    ("read", HIGH, 0, 500),
    ("restart",),
    ("attach", "m"),
)
MARKED_BEFORE = (
    ("subscribe", "m", 0),
    ("carry", HIGH, 0),
    ("mark", "m", 0),
    ("attach", "m"),
)
LATE = (
    ("read", HIGH, 0, 500),
    ("learn", "m", 0, -5),
    ("attach", "m"),
)
OLD = (
    ("tick", 1000),
    ("subscribe", "m", 0),
    ("attach", "m"),
    ("read", HIGH, -900, 500),
)
CROWD = (
    ("subscribe", "m", 0),
    *((("read", HIGH, 0, 500),) * 6),
    ("attach", "m"),
)
CASES = {
    "an acknowledgement is written down": (
        ACKNOWLEDGED, pending.Pending, "settle", lambda *_: True,
    ),
    "what waits is known after a restart": (
        WAITING, pending.Pending, "restore", lambda *_: 0,
    ),
    "better ones go first": (
        WAITING, heapq, "heappush", lambda heap, entry: heap.append(entry),
    ),
    "what others delivered is not delivered": (
        MARKED_BEFORE, Delivery, "settle_elsewhere", lambda *_, **__: None,
    ),
    "late subscriptions are matched": (
        LATE, pending.Pending, "catch_up", lambda *_: (),
    ),
    "a subscription asks for nothing before it": (
        OLD, Subscriptions, "is_valid", lambda *_: True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_with_the_rule_all_is_well_and_without_it_fails(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, target, name, without = CASES[case]
    play(*events)
    monkeypatch.setattr(target, name, without)
    with pytest.raises(AssertionError):
        play(*events)


def test_the_window_is_guarded() -> None:
    play(*CROWD)
    wide = SubscriberSettings(window=99, catch_up=2, is_announcing=False)
    with pytest.raises(AssertionError):
        play(*CROWD, options=wide)
