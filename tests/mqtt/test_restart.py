"""Restarts: a kill at any step, committed or not, loses nothing acknowledged; QoS 2 stays once."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message, Write
from denwatch.node.mqtt.interface import Limits, Send
from denwatch.node.mqtt.records import (
    INBOUND,
    QUEUE,
    RETAINED,
    SESSIONS,
    SPACES,
    SUBSCRIPTIONS,
    QueueRecord,
    StoredRecordError,
    make_queue_key,
    make_session_key,
    read_queue_key,
    read_queue_value,
    write_queue_value,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mqtt import wire
from tests.mqtt.wire import Got, World


def test_sessions_queues_and_retained_messages_survive() -> None:
    world = World()
    link = world.connect("c", clean=False, user="medic7")
    world.send(link, wire.subscribe(1, ("t", 1), ("u/#", 2)), wire.unsubscribe(2, "t"))
    world.send(link, wire.subscribe(3, ("t", 2)), wire.publish("x", b"once", 2, 7))
    world.publish("t", b"qos 1", 1)
    world.publish("u/v", b"qos 2", 2)
    world.publish("kept", b"retained", retain=True)
    one, two = (got for got in world.take(link) if got.kind == "publish")
    world.send(link, wire.pubrec(two.id))
    world.restart()
    link = world.open()
    world.send(link, wire.connect("c", False, user="medic7"))
    assert world.take(link) == [
        Got("connack", payload=b"\x01\x00"),
        Got("pubrel", two.id),
        Got("publish", 1 if two.id != 1 else 2, "t", b"qos 1", 1, False, True),
    ]
    assert one.payload == b"qos 1"
    world.take_events()
    world.send(link, wire.publish("x", b"once", 2, 7, duplicate=True), wire.pubrel(7))
    assert world.take(link) == [Got("pubrec", 7), Got("pubcomp", 7)]
    assert world.take_events(Message) == [], "it counted before the restart"
    world.send(link, wire.subscribe(4, ("kept", 1)))
    assert world.take_messages(link) == [("kept", b"retained", 1)]


def test_clean_sessions_leave_no_trace_in_the_store() -> None:
    world = World()
    link = world.connect("c")
    world.send(link, wire.subscribe(1, ("t", 2)), wire.publish("t", b"x", 2, 1))
    assert world.store.count() == 0
    world.restart()
    assert not world.server.sessions.all


def test_the_numbers_of_the_queue_go_on_after_a_restart() -> None:
    world = World()
    link = world.connect("c", clean=False)
    world.send(link, wire.subscribe(1, ("t", 1)), wire.DISCONNECT)
    for i in range(4):
        world.publish("t", b"%d" % i)
        world.restart()
    link = world.connect("c", clean=False)
    assert world.take_messages(link) == [("t", b"%d" % i, 1) for i in range(4)]


def test_a_session_whose_row_was_damaged_keeps_what_waits() -> None:
    world = World()
    link = world.connect("c", clean=False)
    world.send(link, wire.subscribe(1, ("t", 1)), wire.DISCONNECT)
    world.publish("t", b"1")
    world.store.write(Write(SESSIONS, make_session_key("", "c"), None))
    world.restart()
    link = world.connect("c", clean=False)
    assert world.take_messages(link) == [("t", b"1", 1)]


@pytest.mark.parametrize(
    ("space", "key", "value"),
    [
        (SESSIONS, b"no separator", b"\x01"),
        (SESSIONS, b"u\0c", b"\x63"),
        (SUBSCRIPTIONS, b"t", b"\x01"),
        (QUEUE, b"short", b""),
        (INBOUND, b"u\0c", b"\x01"),
        (RETAINED, b"t", b"\x09x"),
        (QUEUE, make_queue_key(make_session_key("", "here"), 1), b"\x01\x00\x00\x00\x09t"),
        (QUEUE, make_queue_key(make_session_key("", "here"), 1), b"\x00\x00\x00\x00\x01t"),
    ],
)
def test_a_record_of_somebody_else_is_named(space: str, key: bytes, value: bytes) -> None:
    world = World()
    world.connect("here", clean=False)
    world.store.write(Write(space, key, value))
    with pytest.raises(StoredRecordError, match=space):
        world.restart()


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    st.binary(max_size=50),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 65535),
    st.integers(1, 2**63),
    st.sampled_from([(0, b"", ""), (5, b"p", ""), (0, b"", "$share/g/t"), (5, b"p", "$share/g/t")]),
)
def test_queue_records_round_trip(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    released: bool,
    number: int,
    order: int,
    more: tuple[int, bytes, str],
) -> None:
    record = QueueRecord(topic, payload, qos, retain, released, number, *more)
    key = make_queue_key(make_session_key("", "c"), order)
    assert read_queue_value(key, write_queue_value(record)) == record
    assert read_queue_key(key) == (b"\0c", order)


class Node:
    """A world whose steps may be cut: the store and what the node took change together, or not."""

    def __init__(self, limits: Limits) -> None:
        self.world = World(limits=limits)
        self.taken: list[bytes] = []  # payloads that the node committed
        self.cut = ""  # "before": nothing is committed; "after": nothing is sent

    def step(self, link: int, data: bytes) -> list[Got]:
        """Take bytes; return what the client got."""
        return self.perform(self.world.server.receive(link, data, self.world.now), link)

    def perform(self, outputs: list[object], link: int) -> list[Got]:
        if self.cut != "before":
            for output in outputs:
                if isinstance(output, Write):
                    self.world.store.write(output)
                elif isinstance(output, Message):
                    self.taken.append(output.payload)
        got: list[Got] = []
        for output in outputs:
            if isinstance(output, Send) and not self.cut:
                inbox = self.world.inbox.setdefault(output.link, [])
                inbox.extend(wire.parse(output.data))
        got = self.world.inbox.pop(link, [])
        if self.cut:
            self.cut = ""
            self.world.restart()
            raise ConnectionError
        return got


class Client:
    """A client as the standard wants it, whose own memory survives everything."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.name, self.link = node, name, 0
        self.unsent: list[tuple[bytes, int]] = []  # (payload, qos), the first is in flight
        self.released = False  # PUBREC came for it
        self.number = 1
        self.received: list[bytes] = []
        self.inbound: set[int] = set()  # QoS 2 ids
        self.is_subscribed = False

    def join(self) -> None:
        if self.link:
            self.leave()
        self.link = self.node.world.open()
        self.read(self.node.step(self.link, wire.connect(self.name, clean=False)))
        if not self.is_subscribed:
            self.read(self.node.step(self.link, wire.subscribe(65535, ("t", 2))))
            self.is_subscribed = True
        self.push(again=True)

    def leave(self) -> None:
        link, self.link = self.link, 0
        self.node.perform(self.node.world.server.lost(link, 0), link)

    def push(self, again: bool = False) -> None:
        if self.unsent and self.link:
            payload, qos = self.unsent[0]
            if self.released:
                data = wire.pubrel(self.number)
            else:
                data = wire.publish("t", payload, qos, self.number, duplicate=again)
            self.read(self.node.step(self.link, data))

    def read(self, packets: list[Got]) -> None:
        """Answer what came, until nothing comes."""
        for got in packets:
            if got.kind == "publish" and got.qos == 1:
                self.received.append(got.payload)
                self.read(self.node.step(self.link, wire.puback(got.id)))
            elif got.kind == "publish":
                if got.id not in self.inbound:
                    self.received.append(got.payload)
                    self.inbound.add(got.id)
                self.read(self.node.step(self.link, wire.pubrec(got.id)))
            elif got.kind == "pubrel":
                self.inbound.discard(got.id)
                self.read(self.node.step(self.link, wire.pubcomp(got.id)))
            elif got.kind == "pubrec" and not self.released:
                self.released = True
                self.read(self.node.step(self.link, wire.pubrel(got.id)))
            elif got.kind in ("puback", "pubcomp") and self.unsent and got.id == self.number:
                self.unsent.pop(0)
                self.released = False
                self.number = self.number % 100 + 1
                self.push()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "send 1", "send 2", "read", "cut before", "cut after"]),
        st.integers(0, 1),
    ),
    max_size=40,
)


def run_and_check(operations: list[tuple[str, int]]) -> None:
    node = Node(Limits(window=2, queue=1000))
    clients = [Client(node, "a"), Client(node, "b")]
    sent: dict[bytes, int] = {}

    def attempt(act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except ConnectionError:
            for client in clients:
                client.link = 0

    for client in clients:
        client.join()
    for what, which in operations:
        client = clients[which]
        if what == "join":
            attempt(client.join)
        elif what == "leave" and client.link:
            attempt(client.leave)
        elif what.startswith("send"):
            payload = b"%d" % len(sent)
            sent[payload] = int(what[-1])
            client.unsent.append((payload, sent[payload]))
            if len(client.unsent) == 1:
                attempt(client.push)
        elif what == "read" and client.link:
            attempt(lambda c=client: c.read(node.world.inbox.pop(c.link, [])))
        elif what.startswith("cut"):
            node.cut = what[4:]
    node.cut = ""
    for _ in range(2):
        for client in clients:
            client.join()
    for client in clients:
        client.read(node.world.inbox.pop(client.link, []))
    for payload, qos in sent.items():
        assert payload in node.taken, "lost"
        if qos == 2:
            assert node.taken.count(payload) == 1, "taken twice"
        for client in clients:
            assert payload in client.received, "not delivered"
            if qos == 2:
                assert client.received.count(payload) == 1, "delivered twice"
    queued = [delivery for space in (QUEUE, INBOUND) for delivery in node.world.store.scan(space)]
    assert queued == [], "what was acknowledged stays in the store"
    assert node.world.server.sessions.bytes == 0
    assert set(node.world.store.spaces) <= set(SPACES)


@settings(max_examples=150)
@given(OPERATIONS)
def test_kills_at_any_step_lose_nothing_and_repeat_nothing_of_qos_2(
    operations: list[tuple[str, int]],
) -> None:
    run_and_check(operations)


CUT = [("cut after", 0), ("send 2", 0), ("join", 0), ("join", 1)]


def test_ablation_inbound_ids_that_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    run_and_check(CUT)
    monkeypatch.setattr(
        "denwatch.node.mqtt.sessions.Sessions.receive_qos2",
        lambda _, session, number: session.inbound.__setitem__(number, None),
    )
    with pytest.raises(AssertionError, match=r"twice|deletes"):
        run_and_check(CUT)


def test_ablation_queues_that_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [("leave", 1), ("send 1", 0), ("cut after", 0), ("send 1", 0)]
    run_and_check(away)
    for name in ("_store", "_delete"):
        monkeypatch.setattr(f"denwatch.node.mqtt.sessions.Sessions.{name}", lambda *_: None)
    with pytest.raises(AssertionError, match="not delivered"):
        run_and_check(away)


def test_ablation_sending_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that sends first and is killed before its commit: the rule it must keep."""
    cut = [("cut before", 0), ("send 1", 0), ("join", 0), ("join", 1)]
    run_and_check(cut)

    def send_first(node: Node, outputs: list[object], link: int) -> list[Got]:
        for output in outputs:
            if isinstance(output, Send) and output.link == link:
                node.world.inbox.setdefault(link, []).extend(wire.parse(output.data))
        got = node.world.inbox.pop(link, [])
        if node.cut:
            node.cut = ""
            node.world.restart()
            return got  # the client has its PUBACK; the transaction is gone
        return perform(node, outputs, link) or got

    perform = Node.perform
    monkeypatch.setattr(Node, "perform", send_first)
    with pytest.raises(AssertionError, match=r"lost|not delivered"):
        run_and_check(cut)
