"""Subscriptions on their way to devices: what is sent, differences, restarts, repetitions."""

from __future__ import annotations

from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import Acknowledged, Listening
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.fuzzy import Fuzzy

from tests.devices.device_node import (
    DEVICE,
    TOPIC,
    DeviceNode,
    Keys,
    Watchdog,
    make_vector,
    meet,
    settle,
)
from tests.devices.installing import check_installed, list_down, make_met


def test_what_a_device_senses_is_installed() -> None:
    node, watchdog = make_met()
    fits = [make_vector(0, 9), make_vector(5, 400, event=2, attribute=1)]
    for vector in fits:
        node.subscribe(vector)
    node.subscribe(make_vector(0, 9, attribute=5))  # not sensed
    node.subscribe(make_vector(0, 9, event=3))
    node.subscribe(make_vector(7, 9), vocabulary=b"another.")
    node.subscribe(b'{"content"}', language=1)
    node.subscribe(b"\x41\x00")  # no vector at all
    both = encode(SubscriptionVector(1, [Predicate(0, 1, 1), Predicate(3, 1, 1)]))
    node.subscribe(both)  # one of the two is not sensed
    narrow = encode(SubscriptionVector(2, [Predicate(1, 1, 1)]))
    node.subscribe(narrow)  # it is sensed with 16 bits
    settle(node, watchdog)
    check_installed(node, watchdog, *fits)
    assert watchdog.uplink.counts["refused_vector"] == 0


def test_subscriptions_of_a_vocabulary_that_agrees_go_to_the_device_too() -> None:
    node, watchdog = make_met()
    node.vocabularies.known[b"vocaNEW."] = {1: (0b0011, 0)}
    shared, own = make_vector(0, 9), make_vector(0, 9, attribute=2)
    items = [node.subscribe(shared, vocabulary=hash) for hash in (b"vocaNEW.", b"vocabula")]
    node.subscribe(own, vocabulary=b"vocaNEW.")  # there it is something else
    settle(node, watchdog)
    check_installed(node, watchdog, shared)
    assert watchdog.uplink.counts["installed"] == 1
    node.unsubscribe(items[0])
    settle(node, watchdog)
    check_installed(node, watchdog, shared)
    node.unsubscribe(items[1])
    settle(node, watchdog)
    check_installed(node, watchdog)


def test_a_change_for_many_devices_is_told_to_some_in_each_turn() -> None:
    names = [f"dog-{number}" for number in range(7)]
    keys = Keys(**{name.replace("-", "_"): [7] for name in names})
    node = DeviceNode(DeviceSettings(burst=3), keys)
    for name in names:
        meet(node, Watchdog(name=name))
    node.subscribe(make_vector(0, 9))
    assert len(node.outbox) == 3
    node.subscribe(make_vector(20, 29))
    assert len(node.outbox) == 6
    node.tick()
    assert [len(publish.payload) for publish in node.outbox] == [19 + 12] * 3 + [19 + 24] * 4


def test_a_device_that_speaks_no_language_of_ours_gets_nothing() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    watchdog.language.number = 9
    node.subscribe(make_vector(0, 9))
    meet(node, watchdog)
    assert watchdog.list_installed() == {}
    assert Fuzzy.number == 0


def test_only_the_difference_is_sent() -> None:
    node, watchdog = make_met()
    for low in range(0, 100, 10):
        node.subscribe(make_vector(low, low))
    settle(node, watchdog)
    installed = watchdog.uplink.counts["installed"]
    assert installed == 10
    node.do(Listening(TOPIC + "sv", False))
    meet(node, watchdog)  # the same run: it has them all
    assert watchdog.uplink.counts["installed"] == installed
    node.do(Listening(TOPIC + "sv", False))
    node.subscribe(make_vector(200, 201))
    assert list_down(node) == []
    meet(node, watchdog)
    assert watchdog.uplink.counts["installed"] == installed + 1


def test_a_device_that_started_anew_gets_everything() -> None:
    node, watchdog = make_met()
    vectors = [make_vector(low, low) for low in range(50)]
    for vector in vectors:
        node.subscribe(vector)
    settle(node, watchdog)
    check_installed(node, watchdog, *vectors)
    watchdog.restart()
    assert watchdog.list_installed() == {}
    meet(node, watchdog)
    check_installed(node, watchdog, *vectors)
    assert watchdog.uplink.counts["installed"] == 50


def test_frames_have_at_most_so_many_vectors_and_bytes() -> None:
    node, watchdog = DeviceNode(DeviceSettings(batch=20, frame_bytes=120)), Watchdog()
    long = encode(SubscriptionVector(1, [Predicate(a, 1, 1) for a in range(3)]))  # 17 bytes
    for value in range(30):
        predicates = [Predicate(a, value, value) for a in range(3)]
        node.subscribe(encode(SubscriptionVector(1, predicates)))
    node.do(watchdog.say_hello())
    (frame,) = list_down(node)
    assert len(frame.payload) == 19 + 6 * (len(long) + 1)
    settle(node, watchdog)
    assert watchdog.uplink.counts["installed"] == 30
    for item in list(node.item_store.iterate(node.store, 1)):
        node.unsubscribe(item)
    settle(node, watchdog)
    check_installed(node, watchdog)


def test_after_a_restart_of_the_node_stale_vectors_are_removed() -> None:
    node, watchdog = make_met()
    old = node.subscribe(make_vector(0, 5))
    kept = make_vector(7, 9)
    node.subscribe(kept)
    settle(node, watchdog)
    node.do(Listening(TOPIC + "sv", False))
    node.unsubscribe(old)
    node.reopen()
    node.do(Listening(TOPIC + "sv", True))
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, kept)


def test_numbers_rise_over_restarts_even_if_the_epoch_does_not() -> None:
    node, watchdog = make_met()
    for low in range(3):
        node.subscribe(make_vector(low, low))
        settle(node, watchdog)
    node.medium.epoch -= 1
    node.reopen()
    node.subscribe(make_vector(9, 9))
    meet(node, watchdog)
    node.tick()
    settle(node, watchdog)
    assert len(watchdog.list_installed()) == 4
    assert watchdog.uplink.counts["refused_replay"] == 0


def test_what_is_not_acknowledged_is_sent_again_with_a_fresh_number() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 5))
    (first,) = list_down(node)
    node.subscribe(make_vector(7, 9))
    assert len(list_down(node)) == 1  # one frame is under way at a time
    node.tick(19)
    assert len(list_down(node)) == 1
    node.tick(1)
    second = list_down(node)[1]
    assert second.token == first.token + 1
    node.outbox.clear()
    node.tick(39)
    assert list_down(node) == []  # it is more patient each time
    node.tick(1)
    (third,) = list_down(node)
    assert watchdog.receive(third)
    assert not watchdog.receive(first)
    assert not watchdog.receive(second)
    node.do(Acknowledged(TOPIC + "sv", first.token))  # late, and of no use
    assert not node.devices.is_installed(DEVICE)
    node.do(Acknowledged(TOPIC + "sv", third.token))
    check_installed(node, watchdog, make_vector(0, 5), make_vector(7, 9))


def test_a_removal_that_may_have_arrived_is_not_forgotten() -> None:
    node, watchdog = make_met()
    vector = make_vector(0, 5)
    item = node.subscribe(vector)
    settle(node, watchdog)
    node.unsubscribe(item)
    (removal,) = list_down(node)
    watchdog.receive(removal)  # its acknowledgement is lost with the connection
    node.outbox.clear()
    node.do(Listening(TOPIC + "sv", False))
    node.subscribe(vector)
    assert watchdog.list_installed() == {}
    meet(node, watchdog)
    check_installed(node, watchdog, vector)
