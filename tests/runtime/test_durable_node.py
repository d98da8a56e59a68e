"""A durable node: what waits for the commit, where messages go, and that a peer is met once."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, cast

import cbor2
import pytest
from denwatch.node.core import events
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
from denwatch.node.core.item_store import ItemStore, Removed, Transaction
from denwatch.node.core.items import VOCABULARY, Dot
from denwatch.node.core.mending import list_damage
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.peers.knowledge import SPARED
from denwatch.node.log.records import name_fields
from denwatch.node.mqtt.interface import Close, LinkOpened, LinkReceived, Send
from denwatch.node.mqtt.packets import PingreqPacket
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
    durable_node.tick(1)
    durable_node.commit()
    assert store.read_outbox(10)[0].length == 1


def test_a_flood_of_refusals_is_counted_and_does_not_fill_the_disk() -> None:
    durable_node, _, counts, store = make()
    for link in range(1, 501):
        durable_node.receive_input(LinkOpened(link), 0)
        durable_node.receive_input(LinkReceived(link, b"\xf0\x00"), 0)
        durable_node.commit()
    assert len(counts) == 500
    assert store.read_outbox(1000) == []
    durable_node.tick(1)
    durable_node.commit()
    (row,) = store.read_outbox(1000)
    assert row.length == 1
    assert durable_node.refusals.recent[0].times == 500


class Refusing(Echo):
    """Refuses what devices and people send, as the core does."""

    def __init__(self, item_store: ItemStore, reader: Reader) -> None:
        super().__init__(item_store, reader)
        self.receivers[events.DEVICES] = self.receivers[events.REQUESTS] = self.refuse

    def refuse(self, transaction: Transaction, _: Message) -> None:
        transaction.log("refuse", what="nv", why="tag: wrong", who="dog-1", bytes=1)


@pytest.mark.parametrize(("topic", "lines"), [(events.DEVICES + "dog-1/nv", 1), ("sub/dog-1", 0)])
def test_what_a_device_is_refused_for_is_one_line_however_often(
    topic: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A device's owner reads it; a person is told in a reply."""
    store = MemoryStore("north", EmulatedDisk())
    item_store = ItemStore("north", store.epoch, lambda _: b"", lambda _, time: time)
    node = DurableNode(Refusing(item_store, store), store, None, [].append)
    topic = topic if lines else ROOT + topic
    for now in range(5):
        node.receive_event(Message("", topic, b"x"), now)
    node.tick(100)
    node.commit()
    assert [r.getMessage() for r in caplog.records] == [
        "refused dog-1, nv: tag: wrong (5 times)"
    ] * lines
    assert [each.times for each in node.refusals.recent] == [5] * lines
    assert sum(row.length for row in store.read_outbox(10)) == 5, "each has its record, once"


# One bad event is one refused event -----------------------------------------------------------


class Fragile(Echo):
    """An echo that counts in memory and on the disk, and fails at some messages halfway."""

    def __init__(self, item_store: ItemStore, reader: Reader) -> None:
        super().__init__(item_store, reader)
        self.total = 0
        self.receivers[events.REQUESTS] = self.receive
        self._listeners[events.REPLIES] = self.listen
        self.listening: set[str] = set()

    def restore(self) -> None:
        self.total = int(self._reader.get("echo", b"total") or b"0")

    def listen(self, transaction: Transaction, event: Listening) -> None:  # noqa: ARG002
        (self.listening.add if event.is_up else self.listening.discard)(event.topic)
        if event.topic.endswith("/poison"):
            raise KeyError(event.topic)

    def receive(self, transaction: Transaction, message: Message) -> None:
        self.total += 1
        transaction.write("echo", b"total", b"%d" % self.total)
        if message.payload == b"record":
            transaction.log("trouble", what="echo", detail="\ud800")
        if b"bad" in message.payload:
            raise ValueError("\ud800 is nothing to repeat")
        transaction.publish(events.REPLIES + "medic7", message.payload)


def make_fragile() -> tuple[DurableNode, list[Count], MemoryStore, list[Fragile]]:
    store = MemoryStore("north", EmulatedDisk())
    built: list[Fragile] = []
    counts: list[Count] = []

    def build() -> Fragile:
        item_store = ItemStore("north", store.epoch, lambda _: b"", lambda _, time: time)
        built.append(Fragile(item_store, store))
        built[-1].restore()
        return built[-1]

    server = MqttServer(OpenRules())
    node = DurableNode(build(), store, server, counts.append, rebuild=build)
    node.restore(0)
    return node, counts, store, built


def ask(node: DurableNode, payload: bytes, now: int, sender: str = "medic7") -> None:
    node.receive_event(Message(sender, events.REQUESTS + sender, payload), now)


def read_refusals(store: MemoryStore) -> list[dict[str, object]]:
    store.commit()
    found = []
    for row in store.read_outbox(1000):
        stream = io.BytesIO(row.records)
        found += [name_fields(cbor2.load(stream)) for _ in range(row.length)]
    return [fields for fields in found if fields.keys() >= {"why", "who"}]


@pytest.mark.parametrize("payload", [b"bad", b"record"])
def test_an_event_at_which_the_core_fails_is_refused_and_the_rest_goes_on(payload: bytes) -> None:
    node, counts, store, built = make_fragile()
    connect(node, events.REPLIES + "medic7")
    ask(node, b"one", 1)
    acknowledged = []
    node.receive_event(
        Message("medic7", events.REQUESTS + "medic7", payload), 2, lambda: acknowledged.append(2)
    )
    ask(node, b"two", 3)  # in the same group
    effects = node.commit()
    sent = list_sent(list(effects.outputs))
    assert sent.count(b"one") == 1
    assert sent.count(b"two") == 1
    assert b'{"ok": false, "error": "the node could not handle this: defect: ' in sent
    assert len(effects.committed) == 1, "refused is acknowledged: it does not come again"
    assert store.get("echo", b"total") == b"2", "the failed event left nothing"
    assert node.node is built[1]
    assert built[1].total == 2, "memory is that of the disk"
    assert built[1].listening == {events.REPLIES + "medic7"}, "the new core knows who listens"
    [refusal] = read_refusals(store)
    assert refusal["who"] == "medic7"
    assert refusal["what"] == events.REQUESTS + "medic7"
    assert "Error in " in str(refusal["why"])
    assert [count.name for count in counts] == ["events_failed"]


def test_without_the_rule_the_failure_leaves_the_node() -> None:
    node, _, _, _ = make_fragile()
    node._rebuild = None
    with pytest.raises(ValueError, match="nothing to repeat"):
        ask(node, b"bad", 1)


def test_who_makes_the_core_fail_again_and_again_is_refused_unread_for_longer_and_longer() -> None:
    node, counts, _, built = make_fragile()
    connect(node, events.REPLIES + "medic7")
    waits = []
    now = 0
    for _ in range(3):
        while len(built) < 2 + 3 * len(waits) + 2:
            ask(node, b"bad", now)
        before = len(built)
        start = now
        while True:
            now += 1000
            ask(node, b"harmless", now)
            if built[-1].total > len(waits):
                break
        assert len(built) == before, "nothing was built again meanwhile"
        waits.append(now - start)
    assert waits[0] == 60_000
    assert waits[1] == 2 * waits[0]
    assert waits[2] == 4 * waits[0]
    assert b"in quarantine for" in list_sent(list(node.commit().outputs))
    assert Count("events_unread") in counts


def test_others_are_heard_while_somebody_is_in_quarantine() -> None:
    node, _, _, built = make_fragile()
    for _ in range(3):
        ask(node, b"bad", 1)
    ask(node, b"unread", 2)
    ask(node, b"read", 2, sender="medic8")
    assert built[-1].total == 1


def test_many_names_together_cannot_make_it_build_all_the_time() -> None:
    node, _, _, built = make_fragile()
    for number in range(300):
        ask(node, b"bad", number, sender=f"crowd{number % 15}")
    assert len(built) - 1 == 10 + 15, "after ten of all of them, one each"


def test_a_listener_at_whom_the_new_core_fails_again_is_left_out() -> None:
    node, _, _, built = make_fragile()
    node._feed(Listening(events.REPLIES + "medic7", True), 1)
    node._feed(Listening(events.REPLIES + "poison", True), 1)
    node._feed(Listening(events.REPLIES + "medic8", True), 1)
    assert node.node is built[1]
    assert built[1].listening == {events.REPLIES + "medic7", events.REPLIES + "medic8"}
    node._feed(Listening(events.REPLIES + "medic8", False), 2)
    ask(node, b"bad", 3)
    assert built[-1].listening == {events.REPLIES + "medic7"}


# One bad part of a tick is one skipped part ----------------------------------------------------


class Due(Fragile):
    """A core whose ticks fail: in some parts, and at items with some bodies when they expire."""

    failing: set[str]
    poison = b"poison"

    def restore(self) -> None:
        super().restore()
        self.item_store.restore(self._reader)

    def _tick(self, transaction: Transaction, part: str) -> None:
        self.total += 1
        transaction.write("echo", b"total", b"%d" % self.total)
        transaction.write("echo", part.encode(), b"%d" % transaction.now)
        super()._tick(transaction, part)
        if part in self.failing:
            raise KeyError(part)

    def _report_removed(self, transaction: Transaction, change: Removed) -> None:
        if change.item.body == self.poison:
            raise ValueError(change.item.body)
        super()._report_removed(transaction, change)


def make_due(*failing: str) -> tuple[DurableNode, list[Count], MemoryStore, set[str]]:
    store = MemoryStore("north", EmulatedDisk())
    counts: list[Count] = []
    parts = set(failing)

    def build() -> Due:
        item_store = ItemStore("north", store.epoch, lambda _: b"", lambda _, time: time)
        core = Due(item_store, store)
        core.failing = parts
        core.restore()
        return core

    node = DurableNode(build(), store, MqttServer(OpenRules()), counts.append, rebuild=build)
    return node, counts, store, parts


def read_total(store: MemoryStore, part: str) -> int:
    return int(store.get("echo", part.encode()) or b"0")


def test_a_part_of_a_tick_that_fails_is_skipped_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, counts, store, failing = make_due("devices")
    done = []
    for now in range(1_000, 61_000, 250):
        node.tick(now)
        node.commit()
        assert read_total(store, "peers") == now, "what comes after it is done every time"
        assert read_total(store, "devices") == 0, "what it wrote is rolled back"
        done.append(sum(count.name == "ticks_failed" for count in counts))
    assert done[0] == 1
    assert done[-1] == 6, "after 1, 2, 4, 8, 16, 32 s"
    assert counts.count(Count("ticks_failed", label="devices")) == 6
    assert "skipping devices for 1 s: defect: KeyError in node.py:" in caplog.text
    failing.clear()
    node.tick(200_000)
    node.tick(200_250)
    assert read_total(store, "devices") == 200_250
    assert int(store.get("echo", b"total") or b"") == cast("Due", node.node).total


def test_an_item_at_which_a_tick_fails_again_is_set_aside_and_the_rest_expires(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, counts, store, _ = make_due()
    bodies = [b"one", Due.poison, b"two"]
    for body in bodies:
        actions = node.node.perform(
            lambda t, body=body: node.node.item_store.originate(t, VOCABULARY, 5_000, body), 1
        )
        store.apply([action for action in actions if isinstance(action, events.Write)], ())
    bad = Dot("north", store.epoch, 2)
    for now in range(1_000, 12_000, 250):
        node.tick(now)
        node.commit()
    assert node.node.item_store.count(VOCABULARY) == 0
    assert counts.count(Count("ticks_failed", label="expiry")) == 2
    assert counts.count(Count("items_set_aside", label="vocabulary")) == 1
    assert f"set aside the vocabulary {bad.id:016x} of north" in caplog.text
    [kept] = list_damage(store)
    assert (kept.space, kept.key) == ("item.vocabulary", bad.key)
    assert not list(list_damage(store, is_fresh=True)), "its dot stays seen"
    assert node.node.item_store.context.holds(*bad), "no peer sends it again"
    assert store.get(SPARED, bad.key), "and nobody is told that it is dead"


def test_setting_items_aside_ends_where_it_does_not_help() -> None:
    node, counts, _, _ = make_due()
    for number in range(60):
        actions = node.node.perform(
            lambda t: node.node.item_store.originate(t, VOCABULARY, 5_000, Due.poison), number
        )
        node.store.apply([action for action in actions if isinstance(action, events.Write)], ())
    for now in range(6_000, 3_000_000, 1_000):
        node.tick(now)
    assert counts.count(Count("items_set_aside", label="vocabulary")) == 10


def test_a_clock_that_is_set_to_no_avail_ends_nothing() -> None:
    node, counts, _, _ = make_due()
    node.node.protocols = Protocols(peers=cast("Any", object()))
    node.set_clock(5_000, 1_000)
    assert counts == [Count("ticks_failed", label="clockset")]
    node.tick(1_250)
    assert read_total(cast("MemoryStore", node.store), "peers") == 1_250


def test_what_the_process_does_at_a_tick_is_skipped_likewise_but_not_a_full_disk() -> None:
    node, counts, _, _ = make_due()
    calls = []

    def fail(error: Exception) -> None:
        calls.append(error)
        raise error

    for now in (1_000, 1_500, 2_000, 3_000, 4_000):
        node.attempt("status", lambda: fail(KeyError("x")), now)
    assert len(calls) == 3
    assert counts == [Count("ticks_failed", label="status")] * 3
    for error in (StoreError("broken"), OSError(28, "full")):
        with pytest.raises(type(error)):
            node.attempt("keys", lambda error=error: fail(error), 5_000)


def test_without_the_rule_a_tick_that_fails_ends_the_run() -> None:
    node, _, _, _ = make_due("devices")
    node._rebuild = None
    with pytest.raises(KeyError):
        node.tick(1)


def test_a_flood_of_one_client_does_not_hide_another(caplog: pytest.LogCaptureFixture) -> None:
    node, _, _, _ = make_due()
    for number in range(50):
        node._warn(number, "eve", f"refused eve {number}")
    node._warn(60, "medic7", "refused medic7")
    for number in range(1_000):
        node._warn(70, f"stranger{number}", f"refused stranger{number}")
    lines = [record.getMessage() for record in caplog.records]
    assert sum("eve" in line for line in lines) == 10
    assert "refused medic7" in lines
    assert len(lines) < 130, "strangers with many names share what is left"


def test_a_link_whose_bytes_make_the_server_fail_is_closed_and_others_stay() -> None:
    node, _, store, _ = make_fragile()
    connect(node, events.REPLIES + "medic7")
    assert node.server is not None
    node.server._handlers[PingreqPacket] = lambda *_: 1 // 0
    node.receive_input(LinkOpened(2), 1)
    node.receive_input(LinkReceived(2, CONNECT.replace(b"app", b"bad") + b"\xc0\x00"), 1)
    ask(node, b"one", 2)
    outputs = node.commit().outputs
    assert [output.link for output in outputs if isinstance(output, Close)] == [2]
    assert b"one" in list_sent(list(outputs))
    node.tick(3)
    node.commit()
    assert "defect: ZeroDivisionError in " in str(read_refusals(store)[0]["why"])


NV = events.DEVICES + "dog/nv"


class Frames(Fragile):
    """Receives a device's frames; `groups` are how they came."""

    groups: list[tuple[bytes, ...]]

    def __init__(self, item_store: ItemStore, reader: Reader) -> None:
        super().__init__(item_store, reader)
        self.groups = []
        self.receivers[events.DEVICES] = self.receive_frames

    def receive_frames(self, transaction: Transaction, message: Message) -> None:
        self.groups.append((message.payload, *message.others))
        for payload in self.groups[-1]:
            self.receive(transaction, message._replace(payload=payload, others=()))


def make_frames() -> tuple[DurableNode, list[Count], MemoryStore, list[Frames]]:
    store = MemoryStore("north", EmulatedDisk())
    built: list[Frames] = []
    counts: list[Count] = []

    def build() -> Frames:
        item_store = ItemStore("north", store.epoch, lambda _: b"", lambda _, time: time)
        built.append(Frames(item_store, store))
        built[-1].restore()
        return built[-1]

    node = DurableNode(build(), store, MqttServer(OpenRules()), counts.append, rebuild=build)
    node.restore(0)
    connect(node, events.REPLIES + "medic7")
    node.commit()
    return node, counts, store, built


def test_frames_of_a_device_that_came_together_are_one_event_and_others_are_not() -> None:
    node, _, store, built = make_frames()
    topics = [NV, NV, events.REQUESTS + "app", NV, NV, NV, NV.replace("dog", "cat"), NV]
    packets = [publish(topic, b"%d" % number) for number, topic in enumerate(topics)]
    node.receive_input(LinkReceived(1, b"".join(packets)), 1)
    sent = list_sent(list(node.commit().outputs))
    assert sent.count(b"\x40\x02\x00\x07") == len(topics), "a PUBACK for each"
    assert built[0].groups == [(b"0", b"1"), (b"3", b"4", b"5"), (b"6",), (b"7",)]
    assert store.get("echo", b"total") == b"8"


def test_of_frames_that_came_together_only_the_one_at_which_the_core_fails_is_refused() -> None:
    node, counts, store, built = make_frames()
    packets = [publish(NV, payload) for payload in (b"a", b"bad", b"c")]
    node.receive_input(LinkReceived(1, b"".join(packets)), 1)
    sent = list_sent(list(node.commit().outputs))
    assert sent.count(b"\x40\x02\x00\x07") == 3
    assert store.get("echo", b"total") == b"2", "what failed left nothing, the others are stored"
    assert len(built) == 3, "after all of them failed together, and after the bad one"
    assert built[1].groups == [(b"a",), (b"bad",)]
    assert built[2].groups == [(b"c",)]
    assert built[2].listening == {events.REPLIES + "medic7"}
    assert [refusal["what"] for refusal in read_refusals(store)] == [NV]
    assert [count.name for count in counts] == ["events_failed"]


def test_turns_that_follow_at_once_share_a_commit_but_not_for_long() -> None:
    node, _, _, store = make()
    connect(node, ROOT + "echo/out")
    node.commit()

    def end_turn(payload: bytes, now: int, has_more: bool) -> tuple[bytes, bool]:
        """Return what is sent after a turn, and whether another one follows."""
        node.receive_event(Message("", ROOT + "echo/in", payload), now)
        node.budget.is_turn_over = has_more
        effects = node.end_turn(now)
        on_disk = store.medium.spaces.get("echo", {}).get(b"last")
        is_sent = bool(effects.outputs)
        assert is_sent == (on_disk == payload), "sent if, and only if, it is on the disk"
        assert not node.budget.is_turn_over
        return list_sent(list(effects.outputs)), effects.has_more

    assert b"one" in end_turn(b"one", 100, has_more=False)[0]
    assert end_turn(b"two", 200, has_more=True) == (b"", True)
    assert end_turn(b"three", 204, has_more=True) == (b"", True)
    sent, has_more = end_turn(b"four", 205, has_more=False)
    assert all(word in sent for word in (b"two", b"three", b"four"))
    assert not has_more
    assert end_turn(b"five", 300, has_more=True) == (b"", True)
    sent, has_more = end_turn(b"six", 308, has_more=True)  # somebody always has more
    assert b"five" in sent
    assert has_more, "the rest goes on after the commit"
