"""Subscriptions on their way to devices: little room, tables that are shared, many at once."""

from __future__ import annotations

from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import Acknowledged
from denwatch.protocol.vectors import Significance

from tests.devices.device_node import DEVICE, DeviceNode, Keys, Watchdog, make_vector, meet, settle
from tests.devices.installing import check_installed, list_down, make_met


def test_the_best_come_first_where_there_is_no_room_for_all() -> None:
    size = len(make_vector(0, 0)) + 2
    node, watchdog = make_met(capacity=6 + 4 * size)
    vectors = [make_vector(low, low) for low in range(8)]
    for low, vector in enumerate(vectors):
        for _ in range(3 if low >= 6 else 1):
            node.subscribe(vector, score=low / 8)
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, *vectors[4:])
    assert watchdog.uplink.counts["refused_vector"] == 0
    assert node.devices.describe()["omitted"] == 4
    (drop,) = (log.fields for log in node.logs if log.kind == "drop")
    assert "4 have no room on 1 devices" in str(drop["why"])
    best = list(node.item_store.iterate(node.store, 1))[-1]
    node.unsubscribe(best)
    for item in list(node.item_store.iterate(node.store, 1))[-2:]:
        node.unsubscribe(item)
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, *vectors[3:7])


def test_the_room_of_a_device_is_counted_as_it_does() -> None:
    for capacity in range(20, 200, 7):
        node, watchdog = make_met(capacity=capacity)
        for low in range(6):
            node.subscribe(make_vector(low, low), life=90)
            node.subscribe(make_vector(low, low, attribute=1))
            quiet = Significance(quiet=9, bands=b"\x04")
            node.subscribe(make_vector(low, low, event=2, significance=quiet), life=500)
        node.tick()
        settle(node, watchdog)
        assert watchdog.uplink.counts["refused_vector"] == 0
        assert node.devices.is_installed(DEVICE)
        assert watchdog.language.filter.used + 40 > capacity  # and what there is, is used


def test_a_wider_subscription_that_comes_later_replaces_those_before_it() -> None:
    node, watchdog = make_met()
    for low in range(40):
        node.subscribe(make_vector(3 * low, 3 * low))
    settle(node, watchdog)
    wide = make_vector(0, 130)
    node.subscribe(wide)
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, wide)


def test_devices_that_sense_the_same_share_a_table() -> None:
    names = [f"dog-{number}" for number in range(1, 6)]
    keys = Keys(**{name.replace("-", "_"): [7] for name in names})
    node = DeviceNode(keys=keys)
    dogs = [Watchdog(name=name) for name in names[:4]] + [Watchdog({1: (1, 0)}, name=names[4])]
    for watchdog in dogs:
        meet(node, watchdog)
    node.subscribe(make_vector(0, 9))
    assert len(node.outbox) == 5
    assert node.devices.describe()["vectors"] == 2  # two kinds of devices
    outbox = node.outbox[:]
    for watchdog in dogs:
        node.outbox[:] = [p for p in outbox if f"/{watchdog.name}/" in p.topic]
        settle(node, watchdog)
        assert len(watchdog.list_installed()) == 1
    for watchdog in dogs[:4]:
        node.run(lambda turn, watchdog=watchdog: node.devices.forget_device(turn, watchdog.name))  # type: ignore[misc]
    assert node.devices.describe()["vectors"] == 1


def test_a_device_with_less_room_gets_the_best_of_the_same_table() -> None:
    node = DeviceNode(keys=Keys(dog_1=[7], dog_2=[7]))
    watchdog = Watchdog()
    meet(node, watchdog)
    vectors = [make_vector(low, low) for low in range(5)]
    items = [node.subscribe(vector, score=low / 8) for low, vector in enumerate(vectors)]
    settle(node, watchdog)
    small = Watchdog(name="dog-2", capacity=6 + 2 * (len(vectors[0]) + 2))
    meet(node, small)
    assert node.devices.describe()["vectors"] == 5  # one table, two choices
    check_installed(node, small, *vectors[3:])
    node.unsubscribe(items[0])  # it had no room there
    node.unsubscribe(items[4])
    node.tick()
    outbox = node.outbox[:]
    node.outbox[:] = [p for p in outbox if "/dog-2/" in p.topic]
    settle(node, small)
    check_installed(node, small, *vectors[2:4])
    node.outbox[:] = [p for p in outbox if "/dog-1/" in p.topic]
    settle(node, watchdog)
    check_installed(node, watchdog, *vectors[1:4])


def test_a_subscription_that_goes_before_it_is_placed_leaves_nothing() -> None:
    node = DeviceNode(DeviceSettings(placing=1))
    items = [node.subscribe(make_vector(low, low)) for low in range(3)]
    watchdog = Watchdog()
    meet(node, watchdog)
    for item in items:
        node.unsubscribe(item)
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog)
    assert node.devices.describe()["waiting"] == 0


def test_new_sensors_mean_other_subscriptions() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 9))
    other = make_vector(0, 9, attribute=3)
    node.subscribe(other)
    settle(node, watchdog)
    watchdog.senses = {1: (0b1000, 0)}
    watchdog.restart()
    meet(node, watchdog)
    check_installed(node, watchdog, other)


def test_many_subscriptions_are_placed_a_part_at_a_time() -> None:
    node = DeviceNode(DeviceSettings(placing=10))
    vectors = [make_vector(low, low) for low in range(35)]
    for vector in vectors:
        node.subscribe(vector)
    watchdog = Watchdog()
    meet(node, watchdog)
    assert node.devices.describe()["waiting"] == 35
    node.tick()
    settle(node, watchdog)
    assert len(watchdog.list_installed()) == 10
    for _ in range(3):
        node.tick()
        settle(node, watchdog)
    check_installed(node, watchdog, *vectors)
    node.reopen()
    meet(node, watchdog)
    node.tick()
    settle(node, watchdog)
    assert watchdog.uplink.counts["removed"] == 0  # what waits is not taken for unwanted
    for _ in range(3):
        node.tick()
        settle(node, watchdog)
    check_installed(node, watchdog, *vectors)


def test_behind_a_broker_every_hello_installs_everything() -> None:
    node, watchdog = make_met(DeviceSettings(has_listeners=False))
    vector = make_vector(0, 9)
    node.subscribe(vector)
    lost = list_down(node)[0]
    node.outbox.clear()
    node.do(Acknowledged(lost.topic, lost.token))  # the broker had it, and forgot
    assert watchdog.list_installed() == {}
    watchdog.connect()
    settle(node, watchdog)
    check_installed(node, watchdog, vector)
    node.reopen()
    node.subscribe(make_vector(30, 31))  # the device has not noticed that the node was away
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, vector, make_vector(30, 31))
