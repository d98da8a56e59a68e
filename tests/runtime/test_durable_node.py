"""A durable node: what waits for the commit, where messages go, and that a peer is met once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from denwatch.node.core.events import (
    PEERS,
    ROOT,
    Count,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Reader,
)
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.node import Node, Protocols
from denwatch.node.mqtt.interface import LinkOpened, LinkReceived, Send
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.store import StoreError

from simulator.memory_store import EmulatedDisk, Faults, MemoryStore
from simulator.open_server import OpenRules

CONNECT = bytes.fromhex("10 0f 0004 4d515454 04 02 003c 0003 617070".replace(" ", ""))


class Echo(Node):
    """Answers, writes and logs; remembers whom it met."""

    def __init__(self, item_store: ItemStore, reader: Reader) -> None:
        super().__init__(item_store, reader, Protocols())
        self.met: list[tuple[str, bool]] = []
        self.receivers[ROOT + "echo/"] = self.receive

    def receive(self, transaction: Transaction, message: Message) -> None:
        transaction.write("echo", b"last", message.payload)
        transaction.log("trouble", what="echo", detail=message.payload.decode())
        transaction.count("echoes")
        transaction.publish(message.topic.replace("/in", "/out"), message.payload, qos=0)

    def _meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        self.met.append((peer, is_up))
        if is_up:
            transaction.publish(PEERS + peer, b"hello")


def make(
    faults: Faults | None = None, has_server: bool = True
) -> tuple[DurableNode, Echo, list[Count], MemoryStore]:
    store = MemoryStore("north", EmulatedDisk(), faults=faults)
    item_store = ItemStore("north", store.epoch, lambda _: b"", lambda _, time: time)
    part = Echo(item_store, store)
    counts: list[Count] = []
    server = MqttServer(OpenRules()) if has_server else None
    durable_node = DurableNode(part, store, server, counts.append)
    durable_node.restore(0)
    return durable_node, part, counts, store


def connect(durable_node: DurableNode, topic: str) -> None:
    """Let an app connect and subscribe to one topic."""
    durable_node.receive_input(LinkOpened(1), 0)
    name = topic.encode()
    subscribe = b"\x00\x01" + len(name).to_bytes(2, "big") + name + b"\x00"
    durable_node.receive_input(
        LinkReceived(1, CONNECT + b"\x82" + bytes([len(subscribe)]) + subscribe), 0
    )


def publish(topic: str, payload: bytes) -> bytes:
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + b"\x00\x07" + payload
    return b"\x32" + bytes([len(body)]) + body


def list_sent(outputs: list[object]) -> bytes:
    return b"".join(output.data for output in outputs if isinstance(output, Send))


def test_an_answer_and_its_puback_come_with_the_commit_and_not_before() -> None:
    durable_node, _, counts, store = make()
    connect(durable_node, ROOT + "echo/out")
    durable_node.commit()
    durable_node.receive_input(LinkReceived(1, publish(ROOT + "echo/in", b"hi")), 5)
    assert store.get("echo", b"last") == b"hi"  # applied, for whoever reads next
    sent = list_sent(list(durable_node.commit().outputs))
    assert b"\x40\x02\x00\x07" in sent  # PUBACK of packet 7
    assert sent.count(b"hi") == 1
    assert counts == [Count("echoes")]
    assert durable_node.commit().outputs == []


@pytest.mark.parametrize("trouble", ["full", "failed"])
def test_a_commit_that_fails_lets_nothing_out(trouble: str) -> None:
    faults = Faults()
    durable_node, _, _, store = make(faults)
    connect(durable_node, ROOT + "echo/out")
    durable_node.commit()
    faults.plan("commit", 1, trouble)
    durable_node.receive_input(LinkReceived(1, publish(ROOT + "echo/in", b"hi")), 5)
    with pytest.raises(StoreError):
        durable_node.commit()
    again = MemoryStore("north", store.crash())
    assert again.get("echo", b"last") is None


def test_records_of_the_log_are_in_the_same_commit() -> None:
    durable_node, _, _, store = make()
    durable_node.receive_event(Message("", ROOT + "echo/in", b"one"), 5)
    assert store.read_outbox(10) == []
    durable_node.commit()
    assert [row.length for row in store.read_outbox(10)] == [1]


def test_a_peer_with_two_links_is_met_once_and_left_once() -> None:
    durable_node, part, _, _ = make()
    steps: list[Callable[[], None]] = [
        lambda: durable_node.receive_event(PeerUp("south"), 1),
        lambda: durable_node._feed(Listening(PEERS + "south", True), 2),
        lambda: durable_node.receive_event(PeerDown("south"), 3),
        lambda: durable_node._feed(Listening(PEERS + "south", False), 4),
        lambda: durable_node.receive_event(PeerDown("south"), 5),
    ]
    seen = []
    for step in steps:
        step()
        seen.append(list(part.met))
    up, down = ("south", True), ("south", False)
    assert seen == [[up], [up], [up], [up, down], [up, down]]
    assert durable_node.peers == {}


def test_frames_for_a_peer_go_over_the_link_that_we_opened() -> None:
    durable_node, _, _, _ = make()
    durable_node.receive_event(PeerUp("south"), 1)
    assert durable_node.commit().outgoing == [Publish(PEERS + "south", b"hello")]
    durable_node._feed(Listening(PEERS + "west", True), 2)
    assert durable_node.commit().outgoing == []


def test_without_a_server_everything_goes_to_the_broker() -> None:
    durable_node, _, _, _ = make(has_server=False)
    done: list[str] = []
    durable_node.receive_event(
        Message("", ROOT + "echo/in", b"x"), 1, lambda: done.append("acknowledged")
    )
    effects = durable_node.commit()
    assert effects.outgoing == [Publish(ROOT + "echo/out", b"x", 0)]
    assert done == []
    for committed in effects.committed:
        committed()
    assert done == ["acknowledged"]
    assert durable_node.list_users() == []


def test_what_the_server_refuses_is_in_the_log() -> None:
    durable_node, _, counts, store = make()
    durable_node.receive_input(LinkOpened(1), 0)
    durable_node.receive_input(LinkReceived(1, b"\xf0\x00"), 0)
    durable_node.commit()
    assert counts == [Count("refused_by_server")]
    assert store.read_outbox(10)[0].length == 1


def test_a_flood_of_refusals_is_counted_and_does_not_fill_the_disk() -> None:
    durable_node, _, counts, store = make()
    for link in range(1, 501):
        durable_node.receive_input(LinkOpened(link), 0)
        durable_node.receive_input(LinkReceived(link, b"\xf0\x00"), 0)
    durable_node.commit()
    assert len(counts) == 500
    assert sum(row.length for row in store.read_outbox(1000)) == 20
