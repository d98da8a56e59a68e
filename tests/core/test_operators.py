"""What a node takes from operators: items by their signatures, a plan if it is configured so."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from denwatch.node.core.events import NOTES, OPERATORS, PLANS, Listening, Message, Publish, Tick
from denwatch.node.core.items import (
    NOTIFICATION,
    REVOCATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    encode_body,
)
from denwatch.node.core.operator_protocol import (
    OperatorProtocol,
    Plan,
    decode_frame,
    encode_items,
    encode_plan,
)
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.security import Access, Keyring, site
from denwatch.node.security.access import OPERATOR
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

from simulator.disk import FieldMedium
from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys
from tests.security.sites import make_registry
from tests.subscribers.subscriber_node import patient

NOW = 1_800_000_000_000
PLAN = Plan("utility:11", "it delivers more", NOW)


class OperatedNode(HostedNode):
    """The node `south` with subscribers, peers and operators."""

    keys: HmacKeys

    def __init__(self, medium: FieldMedium | None = None, *, follows: bool = False) -> None:
        settings = HostSettings(
            subscribers=SubscriberSettings(),
            devices=None,
            peers=PeerSettings(strategy="spray:2"),
            follows_plan=follows,
        )
        super().__init__("south", HmacKeys("south"), settings=settings)
        self.medium = medium or self.medium
        self.start(NOW)

    @property
    def operators(self) -> OperatorProtocol:
        assert self.node.protocols.operators is not None
        return self.node.protocols.operators

    def operate(self, payload: bytes, node: str = "south") -> list[Publish]:
        return self.handle(Message("ops", OPERATORS + node, payload), NOW)

    def list_refusals(self) -> list[Any]:
        return [log.fields["why"] for log in self.logs if log.kind == "refuse"]

    def read(self, sequence: int = 1, temperature: float = 40.0) -> Item:
        """Return a notification that north made and signed."""
        body = NotificationBody(
            "bed-1",
            1,
            sequence,
            NOW - 1_000,
            0,
            self.vocabularies.own_hash,
            notification.encode(patient(patient_temperature=temperature)),
        )
        item = Item(Dot("north", 1, sequence), NOTIFICATION, NOW + 60_000, encode_body(body))
        return replace(item, signature=HmacKeys("north").sign(item.signed))


def test_a_notification_that_is_handed_over_is_delivered_once() -> None:
    node = OperatedNode()
    node.handle(Listening(NOTES + "medic7", True), NOW)
    asked = b"patient_temperature is high, at least 0.5"
    node.handle(Message("medic7", "dens/1/sub/medic7", asked), NOW - 5_000)
    frame = encode_items([node.read()])
    sent = [p.topic for p in node.operate(frame)]
    assert sent == [NOTES + "medic7"]
    (note,) = [log.fields for log in node.logs if log.kind == "note"]
    assert (note["source"], note["origin"]) == ("ops", "north")
    assert note["signature"] == node.read().signature
    assert node.operate(frame) == []
    assert node.list_refusals() == []


def test_a_subscription_comes_before_what_it_is_for() -> None:
    """Both in one frame, the notification first: the subscriber is elsewhere known and now here."""
    north = OperatedNode()
    asked = b"patient_temperature is high, at least 0.5"
    north.handle(Message("medic7", "dens/1/sub/medic7", asked), NOW - 5_000)
    (made,) = north.item_store.iterate(north.store, SUBSCRIPTION)
    item = Item(Dot("north", 1, 9), SUBSCRIPTION, made.expires, made.body)
    item = replace(item, signature=HmacKeys("north").sign(item.signed))
    node = OperatedNode()
    node.handle(Listening(NOTES + "medic7", True), NOW)
    sent = node.operate(encode_items([node.read(), item]))
    assert [p.topic for p in sent] == [NOTES + "medic7"]
    (logged,) = [log.fields for log in node.logs if log.kind == "subscribe"]
    assert logged["signature"] == item.signature


def test_what_nobody_signed_changes_nothing() -> None:
    node = OperatedNode()
    good = node.read()
    node.keys.unknown.add("stranger")
    stranger = replace(good, dot=Dot("stranger", 1, 1))
    forged = replace(good, expires=good.expires + 1)
    own = replace(good, dot=Dot("south", 1, 7))
    revoked = replace(good, kind=REVOCATION)
    revoked = replace(revoked, signature=HmacKeys("north").sign(revoked.signed))
    node.handle(Tick(), NOW)
    before = {space: dict(rows) for space, rows in node.medium.spaces.items()}
    node.operate(encode_items([stranger, forged, own, revoked]))
    assert node.medium.spaces == before
    assert sorted(node.list_refusals()) == [
        "a revocation does not come from operators",
        "a wrong signature",
        "an item of ours that we never made",
        "an unknown origin",
    ]
    node.operate(encode_items([good]), node="north")
    node.operate(b"\xff")
    assert node.medium.spaces == before
    assert len(node.list_refusals()) == 6


def test_a_notification_that_is_over_is_not_taken() -> None:
    node = OperatedNode()
    late = node.read()
    after = late.expires + 30 * 86_400_000  # of a clock that was never compared little is known
    node.handle(Message("ops", OPERATORS + "south", encode_items([late])), after)
    assert node.item_store.count(NOTIFICATION) == 0
    assert node.list_refusals() == []


def test_a_plan_is_shown_and_not_followed_unless_told_to() -> None:
    node = OperatedNode()
    assert node.operators.describe() is None
    strategy = node.peers.forwarding.strategy
    (shown,) = node.operate(encode_plan(PLAN))
    assert (shown.topic, shown.retain) == (PLANS + "south", True)
    assert json.loads(shown.payload) == {
        "node": "south",
        "by": "ops",
        "why": "it delivers more",
        "strategy": "utility:11",
        "at": NOW,
        "followed": False,
    }
    assert node.peers.forwarding.strategy is strategy
    assert node.operate(encode_plan(PLAN)) == []  # it has it
    again = OperatedNode(node.medium)
    assert again.operators.describe() == {"strategy": "utility:11", "at": NOW, "followed": False}


def test_a_plan_is_followed_also_after_a_restart() -> None:
    node = OperatedNode(follows=True)
    node.operate(encode_plan(PLAN))
    forwarding = node.peers.forwarding
    copy = forwarding.get_copy(Dot("south", 1, 5))
    assert (forwarding.strategy.copies, copy.copies) == (11, 11)
    (log,) = [log.fields for log in node.logs if log.kind == "plan"]
    assert log == {"strategy": "utility:11", "by": "ops", "is_followed": True}
    again = OperatedNode(node.medium, follows=True)
    assert again.peers.forwarding.strategy.copies == 11
    again.operate(encode_plan(replace(PLAN, strategy="epidemic")))
    again.handle(Tick(), NOW)
    assert again.peers.forwarding.strategy.copies == 0
    again.operate(encode_plan(replace(PLAN, strategy="teleport")))
    assert again.peers.forwarding.strategy.copies == 0
    assert "teleport" in again.list_refusals()[-1]


def test_only_the_role_of_operators_may_speak_to_nodes() -> None:
    registry, _ = site.add_subscriber(make_registry("south"), "ops", OPERATOR)
    registry, _ = site.add_subscriber(registry, "medic7", "medic")
    access = Access(Keyring(registry), b"k" * 32)
    assert access.may_publish("ops", "dens/1/operator/south")
    assert not access.may_publish("ops", "dens/1/operator/north")
    assert not access.may_publish("ops", "dens/1/plan/south")
    assert access.may_publish("ops", "dens/1/sub/ops")
    assert not access.may_publish("medic7", "dens/1/operator/south")
    assert access.may_subscribe("medic7", "dens/1/plan/+")


_ROWS = st.lists(
    st.one_of(st.text(max_size=3), st.integers(-(1 << 70), 1 << 70), st.binary(max_size=4)),
    max_size=8,
)


@given(st.one_of(st.binary(max_size=40), st.tuples(st.sampled_from(["items", "plan"]), _ROWS)))
def test_a_frame_is_read_or_refused(found: bytes | tuple[str, list[Any]]) -> None:
    data = found if isinstance(found, bytes) else cbor2.dumps([found[0], [found[1]]])
    with suppress(ProtocolError):
        assert isinstance(decode_frame(data), list | Plan)


@pytest.mark.parametrize("cut", range(1, 30))
def test_every_cut_frame_fails(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_frame(encode_plan(PLAN)[:-cut])
