"""Bad events at real nodes: a subscriber and a member send what no node can use; both go on.

Each message is refused and acknowledged, so that it does not come again, and the node that got it
is the same process as before and serves others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import PEERS, Message, PeerUp, Publish
from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    REVOCATION,
    SUBSCRIPTION,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.replication.dot_sets import Run, Spans
from denwatch.node.replication.wire import ITEMS, ItemBatch, encode_item_batch
from denwatch.node.security import open_keyring
from denwatch.node.security.cards import seal_box
from denwatch.node.security.credentials import hash_password
from denwatch.node.security.notices import make_revocation, make_sealed
from denwatch.node.security.site import read_conflicts
from denwatch.protocol import cbor, notification
from denwatch.protocol.vectors import NotificationVector, Reading
from paho.mqtt.enums import CallbackAPIVersion

from simulator.hosted_node import HostedNode, HostSettings
from simulator.site import NodeProcess, Site, wait_for
from tests.node.app import App
from tests.replication.network import StatedPending

pytestmark = pytest.mark.xdist_group("bad_events")

HOUR = 3_600_000
RESCUE = shorten_hash(load_shipped("rescue"))


@dataclass
class Place:
    """A node, the folder of a member whose keys were stolen, and two subscribers."""

    node: NodeProcess
    stolen: Path
    bad: str
    good: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("bad"))
    node = site.add_node("north")
    stolen = site.add_node("south").folder
    bad, good = node.add_subscriber("eve"), node.add_subscriber("medic7")
    node.start()
    yield Place(node, stolen, bad, good)
    node.check_running()
    node.stop()


def check_serving(place: Place, pid: int) -> None:
    """Check that the node is the same process, in the same run, and answers."""
    place.node.check_running()
    assert place.node.pid == pid
    assert "a defect ended this run" not in place.node.journal
    with App(place.node.port, "medic7", place.good) as app:
        app.subscribe("dens/1/reply/medic7")
        assert app.ask("medic7", "list")["ok"]


@pytest.mark.parametrize(
    "request_",
    [
        '{"list":true,"request":"\\ud800"}',
        '{"prefer":[["\\ud800","b"]]}',
        '{"unsubscribe":"\\udfff"}',
        '{"subscribe":"gas is high","name":"\\ud800"}',
        '{"probe":["\\ud800"]}',
        '{"subscribe":"gas is \\ud800"}',
        '{"content":[["event","=","\\ud800"]]}',
    ],
)
def test_a_subscriber_cannot_stop_a_node(place: Place, request_: str) -> None:
    pid = place.node.pid
    with App(place.node.port, "eve", place.bad) as app:
        app.subscribe("dens/1/reply/eve")
        for _ in range(8):
            reply = app.ask("eve", request_)
            assert not reply["ok"]
            assert "defect" not in reply["error"]
            assert "quarantine" not in reply["error"], "it is refused by the schema"
    check_serving(place, pid)


class Member:
    """A member's keys in the wrong hands: exchanges items as a node does, and makes up its own."""

    def __init__(self, place: Place) -> None:
        keyring = open_keyring(place.stolen)
        self.host = HostedNode(
            "south", keyring, settings=HostSettings(subscribers=None, devices=None)
        )
        self.host.pending = StatedPending()
        self.host.wall_error = 0
        self.host._starts = int(time.time())  # another run each time
        self.host.start(self._now())
        self._keyring = keyring
        credentials = keyring.make_credentials("north")
        assert credentials is not None
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "south-stolen")
        self._client.username_pw_set(*credentials)
        self._client.on_connect = self._begin
        self._client.on_message = self._receive
        self._client.connect("127.0.0.1", place.node.port, 20)

    def _now(self) -> int:
        return int(time.time() * 1000)

    def _begin(self, *_: Any) -> None:
        self._client.subscribe(PEERS + "south", 1)
        self._send(self.host.handle(PeerUp("north"), self._now()))

    def _receive(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        event = Message("north", PEERS + "south", bytes(message.payload))
        self._send(self.host.handle(event, self._now()))

    def _send(self, published: list[Publish]) -> None:
        for publish in published:
            self._client.publish(publish.topic, publish.payload, 1)

    def say(self, kind: int, body: bytes) -> None:
        """Make an item, sign it, and give it to the node."""
        store = self.host.item_store
        store._sequence += 1
        dot = Dot("south", store.epoch, store._sequence)
        item = store.sign(Item(dot, kind, self._now() + HOUR, body))
        self._send(
            self.host.act(lambda transaction: store.accept(transaction, item, ""), self._now())
        )

    def seal(self, data: bytes) -> bytes:
        """Return a registration as a notice that the node can open."""
        secrets = self._keyring._agree("north", "notices")
        return make_sealed("north", seal_box(secrets[0], b"south\nnorth", data))

    def call_dead(self, dead: tuple[tuple[Run, Spans], ...]) -> None:
        """Say that items are removed for ever."""
        body = encode_item_batch(ItemBatch(dead, (), ()))
        channel = self.host.peers.sessions["north"].channel
        self._send(
            self.host.act(lambda transaction: channel.send(transaction, ITEMS, body), self._now())
        )

    def exchange(self, seconds: float) -> None:
        """Let both sides talk for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._client.loop(0.05)

    def close(self) -> None:
        self._client.disconnect()


def make_subscription(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "owner": "eve",
        "role": "",
        "words": "gas",
        "created": int(time.time() * 1000),
        "language": 0,
        "vocabulary": RESCUE,
        "vector": bytes.fromhex("410000008000000191ffab"),
        "options": {},
        **changes,
    }
    return encode_body(SubscriptionBody(**fields))


BAD_ITEMS: dict[str, tuple[int, bytes]] = {
    "a preference that is no list": (SUBSCRIPTION, make_subscription(options={"prefer": 5})),
    "a receipt of an epoch beyond 32 bits": (
        DELIVERED,
        encode_body(DeliveredBody("medic7", [["north", 1 << 32, 1]])),
    ),
    "a receipt of a number beyond 64 bits": (
        DELIVERED,
        encode_body(DeliveredBody("medic7", [["north", 1, 1 << 64]])),
    ),
    "a receipt of a node with a long name": (
        DELIVERED,
        encode_body(DeliveredBody("medic7", [["n" * 300, 1, 1]])),
    ),
    "a long owner": (SUBSCRIPTION, make_subscription(owner="o" * 65_000)),
    "a time beyond 64 bits": (SUBSCRIPTION, make_subscription(created=1 << 70)),
}


def test_a_member_cannot_stop_a_node(place: Place) -> None:
    pid = place.node.pid
    member = Member(place)
    try:
        wait_for("the member's link", lambda: member.exchange(0.2) or "north" in linked(member))
        for kind, body in BAD_ITEMS.values():
            member.say(kind, body)
            member.exchange(0.3)
        member.say(SUBSCRIPTION, make_subscription(options={"name": "right"}))
        member.exchange(1.0)
    finally:
        member.close()
    check_serving(place, pid)
    with App(place.node.port, "eve", place.bad) as app:
        app.subscribe("dens/1/reply/eve")
        found = wait_for("the good item", lambda: app.ask("eve", "list")["subscriptions"])
        assert [row["name"] for row in found] == ["right"]
    assert "defect" not in place.node.journal


# A member speaks for itself alone ---------------------------------------------------------------


@pytest.fixture
def member(place: Place) -> Iterator[Member]:
    made = Member(place)
    try:
        wait_for("the member's link", lambda: made.exchange(0.2) or "north" in linked(made))
        yield made
    finally:
        made.close()


BOTH = ("north", "south")
PULSE = notification.encode(NotificationVector(1, [Reading(1, (200,) * 4)])).hex()


def list_conflicts(place: Place) -> str:
    return "\n".join(read_conflicts(place.node.folder))


def test_a_member_takes_over_no_name_of_another_node(place: Place, member: Member) -> None:
    pid = place.node.pid
    chosen = "mallorys-own-choice-7"
    entry = [
        2,
        "medic7",
        65_535,
        "operator",
        [[1, hash_password(chosen.encode(), bytes(range(16)), 14)]],
    ]
    member.say(REVOCATION, member.seal(cbor.encode(entry)))
    wait_for(
        "the conflict", lambda: member.exchange(0.2) or "medic7 belongs to" in list_conflicts(place)
    )
    check_serving(place, pid)  # with the password that medic7 was given
    app = App(place.node.port, "medic7", chosen, "thief").wait()
    assert app.refused
    app.close()
    [row] = [
        line
        for line in place.node.keys("list").splitlines()
        if line.startswith("subscriber  medic7")
    ]
    assert row.split() == ["subscriber", "medic7", "1", "medic"]


def test_a_member_revokes_no_name_of_another_node(place: Place, member: Member) -> None:
    pid = place.node.pid
    member.say(REVOCATION, make_revocation("subscriber", "eve"))
    wait_for(
        "the conflict", lambda: member.exchange(0.2) or "eve belongs to" in list_conflicts(place)
    )
    check_serving(place, pid)
    with App(place.node.port, "eve", place.bad) as app:
        app.subscribe("dens/1/reply/eve")
        assert app.ask("eve", "list")["ok"]


def make_reading(device: str, vector: str) -> bytes:
    now = int(time.time() * 1000)
    return encode_body(NotificationBody(device, 1, 1, now, 10, RESCUE, bytes.fromhex(vector)))


def find_run(member: Member, origin: str) -> Run | None:
    """Return the run of a node's subscriptions, as the member knows them."""
    runs = [run for run in member.host.item_store.live[SUBSCRIPTION] if run[0] == origin]
    return runs[-1] if runs else None


def test_a_member_makes_no_readings_and_receipts_for_others(place: Place, member: Member) -> None:
    place.node.add_device("bed-1")
    with App(place.node.port, "medic7", place.good) as app:
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        made = app.ask("medic7", "heart rate above 100")
        run = wait_for(
            "the subscription", lambda: member.exchange(0.2) or find_run(member, "north")
        )
        member.say(NOTIFICATION, make_reading("bed-1", PULSE))
        member.say(NOTIFICATION, make_reading("stray", PULSE))  # of nobody: this one is believed
        wait_for("a reading of nobody", lambda: member.exchange(0.2) or app.notes("medic7"))
        first = max(member.host.item_store.live[SUBSCRIPTION][run]) + 1
        receipt = DeliveredBody("medic7", [[*run, first + number] for number in range(60)])
        member.say(DELIVERED, encode_body(receipt))
        member.say(NOTIFICATION, make_reading("stray2", PULSE))  # when it is there, so is the lie
        wait_for("another one", lambda: member.exchange(0.2) or len(app.notes("medic7")) == 2)
        for number in range(3):
            assert app.ask("medic7", f"patient: pulse about {150 + number}", "report")["ok"]
        wait_for("what was called received", lambda: len(app.notes("medic7")) == 5)
        assert "bed-1" not in {note["device"] for note in app.notes("medic7")}
        app.ask("medic7", json.dumps({"unsubscribe": made["id"]}))
    place.node.check_running()


def test_a_member_ends_nothing_of_others(place: Place, member: Member) -> None:
    with App(place.node.port, "eve", place.bad) as app:
        app.subscribe("dens/1/reply/eve")
        assert app.ask("eve", '{"subscribe": "heart rate above 100", "name": "own"}')["ok"]
        member.say(SUBSCRIPTION, make_subscription(options={"name": "made up"}))

        def list_names() -> set[str]:
            member.exchange(0.2)
            return {row["name"] for row in app.ask("eve", "list")["subscriptions"]}

        wait_for("both", lambda: {"own", "made up"} <= list_names())
        runs = [wait_for("a run", lambda name=name: find_run(member, name)) for name in BOTH]
        live = member.host.item_store.live[SUBSCRIPTION]
        member.call_dead(
            tuple((run, tuple((each, each) for each in sorted(live[run]))) for run in runs)
        )
        wait_for("the end of its own", lambda: "made up" not in list_names())
        assert "own" in list_names()
    place.node.check_running()


def linked(member: Member) -> list[str]:
    """Return with whom the member has an open exchange."""
    return [name for name, one in member.host.peers.sessions.items() if one.phase == "open"]
