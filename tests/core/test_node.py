"""The walk of items through a node: what is reported, in which order, however it came in."""

from __future__ import annotations

import pytest
from denwatch.node.core.item_store import Added, Removed, Transaction
from denwatch.node.core.items import DELIVERED, SUBSCRIPTION, Dot, Item
from denwatch.node.core.pending import Pending
from denwatch.protocol import subscription
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    make_notification,
    make_receipts,
    make_subscription,
    patient,
)

NOTE, RECEIPT = Dot("b", 1, 1), Dot("b", 1, 2)


def make_node() -> SubscriberNode:
    node = SubscriberNode()
    node.ask("m", "heart_rate above 100")
    node.attach("m")
    return node


def bring_together(node: SubscriberNode, *items: Item) -> int:
    """Let items come in one frame of a peer; return how many notifications were sent for them."""

    def accept(transaction: Transaction) -> None:
        for item in items:
            node.item_store.accept(transaction, item, "b")

    actions = node.node.perform(accept, node.now)
    return sum(getattr(action, "topic", "") == "dens/1/note/m" for action in actions)


def make_pair(node: SubscriberNode) -> tuple[Item, Item]:
    note = make_notification(node, patient(heart_rate=130), NOTE, at=START)
    return note, make_receipts("m", [NOTE], RECEIPT, START + DAY)


def test_a_notification_alone_is_sent() -> None:
    node = make_node()
    assert bring_together(node, make_pair(node)[0]) == 1


def test_a_receipt_before_its_notification_in_one_frame_keeps_it_back() -> None:
    node = make_node()
    note, receipt = make_pair(node)
    assert bring_together(node, receipt, note) == 0
    assert node.subscribers.wanted(node.store, NOTE) == {}


def test_without_the_row_of_the_receipt_it_would_be_delivered_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pending, "note_done", lambda *_: None)
    node = make_node()
    note, receipt = make_pair(node)
    assert bring_together(node, receipt, note) == 1


def list_kinds(seen: list[Added | Removed]) -> list[tuple[str, int]]:
    return [
        ("removed", change.item.kind)
        if isinstance(change, Removed)
        else ("added", change.items[0].kind)
        for change in seen
    ]


def test_changes_are_reported_in_their_order() -> None:
    node = SubscriberNode()
    seen: list[Added | Removed] = []
    node.node.watch = seen.append
    node.ask("m", {"subscribe": "heart_rate above 100", "name": "fast"})
    node.ask("m", {"subscribe": "heart_rate above 120", "name": "fast"})
    what = ("added", "removed", "added")
    assert list_kinds(seen) == [(each, SUBSCRIPTION) for each in what]


def test_what_follows_from_a_report_is_reported_too() -> None:
    """A subscription comes from another node while its subscriber is here: that becomes an item."""
    node = SubscriberNode()
    node.attach("m")
    seen: list[Added | Removed] = []
    node.node.watch = seen.append
    vector = subscription.encode(SubscriptionVector(1, [Predicate(0, 10, 20)]))
    item = make_subscription(node, "m", vector, Dot("b", 1, 5), created=START)
    bring_together(node, item)
    assert list_kinds(seen) == [("added", SUBSCRIPTION), ("added", DELIVERED)]
