"""Index and `JoinMatcher` together find what the definition of a match finds, old readings too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from denwatch.node.matching import columns
from denwatch.node.matching.columns import ColumnIndex
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.joins import JoinMatcher
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import (
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from tests.protocol.samples import Dice


def draw_subscription(dice: Dice) -> SubscriptionVector:
    bits = [bit for bit in range(3) if dice.chance(2)] or [dice.below(3)]
    predicates = []
    for bit in bits:
        low = dice.below(150)
        predicates.append(Predicate(bit, low, low + 100, 150, negated=dice.chance(5)))
    codes = bytes(0 if dice.chance(2) else 1 + dice.below(30) for _ in bits)
    return SubscriptionVector(1, predicates, restrictors=codes if any(codes) else b"")


def draw_notification(dice: Dice) -> NotificationVector:
    readings = [Reading(bit, (dice.below(256),) * 4) for bit in range(3) if not dice.chance(4)]
    if dice.chance(3):  # uncertain
        readings = [Reading(bit, (9, 90, 120, 200)) for bit in range(3) if not dice.chance(4)]
    readings = readings or [Reading(0, (9,) * 4)]
    for reading in readings[1:] if dice.chance(2) else readings[:-1]:
        reading.age = 0 if dice.chance(3) else 1 + dice.below(30)
    return NotificationVector(1, readings)


@pytest.mark.parametrize("few", [0, 1 << 30])
@pytest.mark.parametrize("make_index", [FuzzyIndex, ColumnIndex])
@pytest.mark.parametrize("seed", range(3))
def test_both_together_are_right(
    seed: int, make_index: Callable[[], Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "FEW", few)
    dice = Dice(seed)
    index, joins = make_index(), JoinMatcher()
    subscriptions = {id: draw_subscription(dice) for id in range(60)}
    for id, subscription in subscriptions.items():
        index.add(id, subscription)
        joins.add(id, subscription)
    for id in (3, 4, 5):
        index.remove(id)
        joins.discard(id)
        del subscriptions[id]
    assert len(joins) == sum(bool(s.restrictors) for s in subscriptions.values())
    joined = 0
    for _ in range(200):
        notification = draw_notification(dice)
        right = {}
        for id, subscription in subscriptions.items():
            found = match(subscription, notification)
            if found is not None and found.matched:
                right[id] = found.possible, found.certain
        hits = index.match(notification) + joins.match(notification)
        assert {hit.id: (hit.possible, hit.certain) for hit in hits} == right
        assert len(hits) == len(right)  # none of them twice
        joined += len(joins.match(notification))
    assert joined > 50


def test_who_is_removed_twice_was_not_there() -> None:
    joins = JoinMatcher()
    joins.add(1, SubscriptionVector(1, [Predicate(0, 1, 2)], restrictors=b"\x05"))
    joins.add(1, SubscriptionVector(1, [Predicate(0, 1, 2)]))  # replaced by one without
    assert len(joins) == 0
    with pytest.raises(KeyError):
        joins.remove(1)
