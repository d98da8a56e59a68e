"""Subscriptions on their way to devices: little room, tables that are shared, many at once."""

from __future__ import annotations

from denwatch.node.core.device_registry import DeviceSettings
from denwatch.node.core.events import Acknowledged
from denwatch.protocol.vectors import Significance

from tests.devices.installing import check_installed, list_down, make_met
from tests.devices.plant import DOG, Dog, Keys, Site, make_vector, meet, settle


def test_the_best_come_first_where_there_is_no_room_for_all() -> None:
    size = len(make_vector(0, 0)) + 2
    site, dog = make_met(capacity=6 + 4 * size)
    vectors = [make_vector(low, low) for low in range(8)]
    for low, vector in enumerate(vectors):
        for _ in range(3 if low >= 6 else 1):
            site.subscribe(vector, score=low)
    site.tick()
    settle(site, dog)
    check_installed(site, dog, *vectors[4:])
    assert dog.uplink.counts["refused_vector"] == 0
    assert site.part.describe()["omitted"] == 4
    (drop,) = (log.fields for log in site.logs if log.kind == "drop")
    assert "4 have no room on 1 devices" in str(drop["why"])
    best = list(site.item_store.iterate(site.disk, 1))[-1]
    site.unsubscribe(best)
    for item in list(site.item_store.iterate(site.disk, 1))[-2:]:
        site.unsubscribe(item)
    site.tick()
    settle(site, dog)
    check_installed(site, dog, *vectors[3:7])


def test_the_room_of_a_device_is_counted_as_it_does() -> None:
    for capacity in range(20, 200, 7):
        site, dog = make_met(capacity=capacity)
        for low in range(6):
            site.subscribe(make_vector(low, low), life=90)
            site.subscribe(make_vector(low, low, attribute=1))
            quiet = Significance(quiet=9, bands=b"\x04")
            site.subscribe(make_vector(low, low, event=2, significance=quiet), life=500)
        site.tick()
        settle(site, dog)
        assert dog.uplink.counts["refused_vector"] == 0
        assert site.part.is_installed(DOG)
        assert dog.language.filter.used + 40 > capacity  # and what there is, is used


def test_a_wider_wish_that_comes_later_replaces_those_before_it() -> None:
    site, dog = make_met()
    for low in range(40):
        site.subscribe(make_vector(3 * low, 3 * low))
    settle(site, dog)
    wide = make_vector(0, 130)
    site.subscribe(wide)
    site.tick()
    settle(site, dog)
    check_installed(site, dog, wide)


def test_devices_that_sense_the_same_share_a_table() -> None:
    names = [f"dog-{number}" for number in range(1, 6)]
    keys = Keys(**{name.replace("-", "_"): [7] for name in names})
    site = Site(keys=keys)
    dogs = [Dog(name=name) for name in names[:4]] + [Dog({1: (1, 0)}, name=names[4])]
    for dog in dogs:
        meet(site, dog)
    site.subscribe(make_vector(0, 9))
    assert len(site.outbox) == 5
    assert site.part.describe()["vectors"] == 2  # two kinds of devices
    outbox = site.outbox[:]
    for dog in dogs:
        site.outbox[:] = [p for p in outbox if f"/{dog.name}/" in p.topic]
        settle(site, dog)
        assert len(dog.list_installed()) == 1
    for dog in dogs[:4]:
        site.run(lambda turn, dog=dog: site.part.forget_device(turn, dog.name))  # type: ignore[misc]
    assert site.part.describe()["vectors"] == 1


def test_a_device_with_less_room_gets_the_best_of_the_same_table() -> None:
    site = Site(keys=Keys(dog_1=[7], dog_2=[7]))
    dog = Dog()
    meet(site, dog)
    vectors = [make_vector(low, low) for low in range(5)]
    items = [site.subscribe(vector, score=low) for low, vector in enumerate(vectors)]
    settle(site, dog)
    small = Dog(name="dog-2", capacity=6 + 2 * (len(vectors[0]) + 2))
    meet(site, small)
    assert site.part.describe()["vectors"] == 5  # one table, two choices
    check_installed(site, small, *vectors[3:])
    site.unsubscribe(items[0])  # it had no room there
    site.unsubscribe(items[4])
    site.tick()
    outbox = site.outbox[:]
    site.outbox[:] = [p for p in outbox if "/dog-2/" in p.topic]
    settle(site, small)
    check_installed(site, small, *vectors[2:4])
    site.outbox[:] = [p for p in outbox if "/dog-1/" in p.topic]
    settle(site, dog)
    check_installed(site, dog, *vectors[1:4])


def test_a_wish_that_goes_before_it_is_placed_leaves_nothing() -> None:
    site = Site(DeviceSettings(placing=1))
    items = [site.subscribe(make_vector(low, low)) for low in range(3)]
    dog = Dog()
    meet(site, dog)
    for item in items:
        site.unsubscribe(item)
    site.tick()
    settle(site, dog)
    check_installed(site, dog)
    assert site.part.describe()["waiting"] == 0


def test_new_sensors_mean_other_wishes() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 9))
    other = make_vector(0, 9, attribute=3)
    site.subscribe(other)
    settle(site, dog)
    dog.senses = {1: (0b1000, 0)}
    dog.restart()
    meet(site, dog)
    check_installed(site, dog, other)


def test_many_subscriptions_are_placed_a_part_at_a_time() -> None:
    site = Site(DeviceSettings(placing=10))
    vectors = [make_vector(low, low) for low in range(35)]
    for vector in vectors:
        site.subscribe(vector)
    dog = Dog()
    meet(site, dog)
    assert site.part.describe()["waiting"] == 35
    site.tick()
    settle(site, dog)
    assert len(dog.list_installed()) == 10
    for _ in range(3):
        site.tick()
        settle(site, dog)
    check_installed(site, dog, *vectors)
    site.start()
    meet(site, dog)
    site.tick()
    settle(site, dog)
    assert dog.uplink.counts["removed"] == 0  # what waits is not taken for unwanted
    for _ in range(3):
        site.tick()
        settle(site, dog)
    check_installed(site, dog, *vectors)


def test_behind_a_broker_every_hello_installs_everything() -> None:
    site, dog = make_met(DeviceSettings(has_listeners=False))
    vector = make_vector(0, 9)
    site.subscribe(vector)
    lost = list_down(site)[0]
    site.outbox.clear()
    site.handle(Acknowledged(lost.topic, lost.token))  # the broker had it, and forgot
    assert dog.list_installed() == {}
    dog.connect()
    settle(site, dog)
    check_installed(site, dog, vector)
    site.start()
    site.subscribe(make_vector(30, 31))  # the device has not noticed that the node was away
    site.tick()
    settle(site, dog)
    check_installed(site, dog, vector, make_vector(30, 31))
