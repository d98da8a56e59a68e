"""The walk of items through a node: what is reported, in which order, however it came in."""

from __future__ import annotations

import pytest
from denwatch.node.core.items import DELIVERED, SUBSCRIPTION, Dot, Item
from denwatch.node.core.pending import Pending
from denwatch.node.core.transaction import Added, Removed, Transaction
from denwatch.protocol import subscription
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from tests.subscribers.world import (
    DAY,
    START,
    World,
    make_marks,
    make_note,
    make_subscription,
    patient,
)

NOTE, RECEIPT = Dot("b", 1, 1), Dot("b", 1, 2)


def make_world() -> World:
    world = World()
    world.ask("m", "heart_rate above 100")
    world.attach("m")
    return world


def bring_together(world: World, *items: Item) -> int:
    """Let items come in one frame of a peer; return how many notifications were sent for them."""

    def accept(transaction: Transaction) -> None:
        for item in items:
            world.item_store.accept(transaction, item, "b")

    actions = world.node.perform(accept, world.now)
    return sum(getattr(action, "topic", "") == "dens/1/note/m" for action in actions)


def make_pair(world: World) -> tuple[Item, Item]:
    note = make_note(world, patient(heart_rate=130), NOTE, at=START)
    return note, make_marks("m", [NOTE], RECEIPT, START + DAY)


def test_a_notification_alone_is_sent() -> None:
    world = make_world()
    assert bring_together(world, make_pair(world)[0]) == 1


def test_a_receipt_before_its_notification_in_one_frame_keeps_it_back() -> None:
    world = make_world()
    note, receipt = make_pair(world)
    assert bring_together(world, receipt, note) == 0
    assert world.subscribers.wanted(world.store, NOTE) == {}


def test_without_the_row_of_the_receipt_it_would_be_delivered_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pending, "note_done", lambda *_: None)
    world = make_world()
    note, receipt = make_pair(world)
    assert bring_together(world, receipt, note) == 1


def list_kinds(seen: list[Added | Removed]) -> list[tuple[str, int]]:
    return [
        ("removed", change.item.kind)
        if isinstance(change, Removed)
        else ("added", change.items[0].kind)
        for change in seen
    ]


def test_changes_are_reported_in_their_order() -> None:
    world = World()
    seen: list[Added | Removed] = []
    world.node.watch = seen.append
    world.ask("m", {"subscribe": "heart_rate above 100", "name": "fast"})
    world.ask("m", {"subscribe": "heart_rate above 120", "name": "fast"})
    what = ("added", "removed", "added")
    assert list_kinds(seen) == [(each, SUBSCRIPTION) for each in what]


def test_what_follows_from_a_report_is_reported_too() -> None:
    """A subscription comes from another node while its subscriber is here: that becomes an item."""
    world = World()
    world.attach("m")
    seen: list[Added | Removed] = []
    world.node.watch = seen.append
    vector = subscription.encode(SubscriptionVector(1, [Predicate(0, 10, 20)]))
    item = make_subscription(world, "m", vector, Dot("b", 1, 5), created=START)
    bring_together(world, item)
    assert list_kinds(seen) == [("added", SUBSCRIPTION), ("added", DELIVERED)]
