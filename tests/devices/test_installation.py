"""Subscriptions on their way to devices: what is sent, differences, restarts, repetitions."""

from __future__ import annotations

from denwatch.node.core.device_registry import DeviceSettings
from denwatch.node.core.events import Acknowledged, Listening
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.fuzzy import Fuzzy

from tests.devices.device_node import (
    DOG,
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
    site, watchdog = make_met()
    fits = [make_vector(0, 9), make_vector(5, 400, event=2, attribute=1)]
    for vector in fits:
        site.subscribe(vector)
    site.subscribe(make_vector(0, 9, attribute=5))  # not sensed
    site.subscribe(make_vector(0, 9, event=3))
    site.subscribe(make_vector(7, 9), vocabulary=b"another.")
    site.subscribe(b'{"content"}', language=1)
    site.subscribe(b"\x41\x00")  # no vector at all
    both = encode(SubscriptionVector(1, [Predicate(0, 1, 1), Predicate(3, 1, 1)]))
    site.subscribe(both)  # one of the two is not sensed
    narrow = encode(SubscriptionVector(2, [Predicate(1, 1, 1)]))
    site.subscribe(narrow)  # it is sensed with 16 bits
    settle(site, watchdog)
    check_installed(site, watchdog, *fits)
    assert watchdog.uplink.counts["refused_vector"] == 0


def test_subscriptions_of_a_vocabulary_that_agrees_go_to_the_device_too() -> None:
    site, watchdog = make_met()
    site.vocabularies.known[b"vocaNEW."] = {1: (0b0011, 0)}
    shared, own = make_vector(0, 9), make_vector(0, 9, attribute=2)
    items = [site.subscribe(shared, vocabulary=hash) for hash in (b"vocaNEW.", b"vocabula")]
    site.subscribe(own, vocabulary=b"vocaNEW.")  # there it is something else
    settle(site, watchdog)
    check_installed(site, watchdog, shared)
    assert watchdog.uplink.counts["installed"] == 1
    site.unsubscribe(items[0])
    settle(site, watchdog)
    check_installed(site, watchdog, shared)
    site.unsubscribe(items[1])
    settle(site, watchdog)
    check_installed(site, watchdog)


def test_a_change_for_many_devices_is_told_to_some_in_each_turn() -> None:
    names = [f"dog-{number}" for number in range(7)]
    keys = Keys(**{name.replace("-", "_"): [7] for name in names})
    site = DeviceNode(DeviceSettings(burst=3), keys)
    for name in names:
        meet(site, Watchdog(name=name))
    site.subscribe(make_vector(0, 9))
    assert len(site.outbox) == 3
    site.subscribe(make_vector(20, 29))
    assert len(site.outbox) == 6
    site.tick()
    assert [len(publish.payload) for publish in site.outbox] == [19 + 12] * 3 + [19 + 24] * 4


def test_a_device_that_speaks_no_language_of_ours_gets_nothing() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    watchdog.language.number = 9
    site.subscribe(make_vector(0, 9))
    meet(site, watchdog)
    assert watchdog.list_installed() == {}
    assert Fuzzy.number == 1


def test_only_the_difference_is_sent() -> None:
    site, watchdog = make_met()
    for low in range(0, 100, 10):
        site.subscribe(make_vector(low, low))
    settle(site, watchdog)
    installed = watchdog.uplink.counts["installed"]
    assert installed == 10
    site.do(Listening(TOPIC + "sv", False))
    meet(site, watchdog)  # the same run: it has them all
    assert watchdog.uplink.counts["installed"] == installed
    site.do(Listening(TOPIC + "sv", False))
    site.subscribe(make_vector(200, 201))
    assert list_down(site) == []
    meet(site, watchdog)
    assert watchdog.uplink.counts["installed"] == installed + 1


def test_a_device_that_started_anew_gets_everything() -> None:
    site, watchdog = make_met()
    vectors = [make_vector(low, low) for low in range(50)]
    for vector in vectors:
        site.subscribe(vector)
    settle(site, watchdog)
    check_installed(site, watchdog, *vectors)
    watchdog.restart()
    assert watchdog.list_installed() == {}
    meet(site, watchdog)
    check_installed(site, watchdog, *vectors)
    assert watchdog.uplink.counts["installed"] == 50


def test_frames_have_at_most_so_many_vectors_and_bytes() -> None:
    site, watchdog = DeviceNode(DeviceSettings(batch=20, frame_bytes=120)), Watchdog()
    long = encode(SubscriptionVector(1, [Predicate(a, 1, 1) for a in range(3)]))  # 17 bytes
    for value in range(30):
        predicates = [Predicate(a, value, value) for a in range(3)]
        site.subscribe(encode(SubscriptionVector(1, predicates)))
    site.do(watchdog.say_hello())
    (frame,) = list_down(site)
    assert len(frame.payload) == 19 + 6 * (len(long) + 1)
    settle(site, watchdog)
    assert watchdog.uplink.counts["installed"] == 30
    for item in list(site.item_store.iterate(site.store, 1)):
        site.unsubscribe(item)
    settle(site, watchdog)
    check_installed(site, watchdog)


def test_after_a_restart_of_the_node_stale_vectors_are_removed() -> None:
    site, watchdog = make_met()
    old = site.subscribe(make_vector(0, 5))
    kept = make_vector(7, 9)
    site.subscribe(kept)
    settle(site, watchdog)
    site.do(Listening(TOPIC + "sv", False))
    site.unsubscribe(old)
    site.reopen()
    site.do(Listening(TOPIC + "sv", True))
    site.tick()
    settle(site, watchdog)
    check_installed(site, watchdog, kept)


def test_numbers_rise_over_restarts_even_if_the_epoch_does_not() -> None:
    site, watchdog = make_met()
    for low in range(3):
        site.subscribe(make_vector(low, low))
        settle(site, watchdog)
    site.medium.epoch -= 1
    site.reopen()
    site.subscribe(make_vector(9, 9))
    meet(site, watchdog)
    site.tick()
    settle(site, watchdog)
    assert len(watchdog.list_installed()) == 4
    assert watchdog.uplink.counts["refused_replay"] == 0


def test_what_is_not_acknowledged_is_sent_again_with_a_fresh_number() -> None:
    site, watchdog = make_met()
    site.subscribe(make_vector(0, 5))
    (first,) = list_down(site)
    site.subscribe(make_vector(7, 9))
    assert len(list_down(site)) == 1  # one frame is under way at a time
    site.tick(19)
    assert len(list_down(site)) == 1
    site.tick(1)
    second = list_down(site)[1]
    assert second.token == first.token + 1
    site.outbox.clear()
    site.tick(39)
    assert list_down(site) == []  # it is more patient each time
    site.tick(1)
    (third,) = list_down(site)
    assert watchdog.receive(third)
    assert not watchdog.receive(first)
    assert not watchdog.receive(second)
    site.do(Acknowledged(TOPIC + "sv", first.token))  # late, and of no use
    assert not site.devices.is_installed(DOG)
    site.do(Acknowledged(TOPIC + "sv", third.token))
    check_installed(site, watchdog, make_vector(0, 5), make_vector(7, 9))


def test_a_removal_that_may_have_arrived_is_not_forgotten() -> None:
    site, watchdog = make_met()
    vector = make_vector(0, 5)
    item = site.subscribe(vector)
    settle(site, watchdog)
    site.unsubscribe(item)
    (removal,) = list_down(site)
    watchdog.receive(removal)  # its acknowledgement is lost with the connection
    site.outbox.clear()
    site.do(Listening(TOPIC + "sv", False))
    site.subscribe(vector)
    assert watchdog.list_installed() == {}
    meet(site, watchdog)
    check_installed(site, watchdog, vector)
