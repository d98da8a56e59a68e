"""Subscriptions on their way to devices: covering, differences, restarts, leases, room."""

from __future__ import annotations

from typing import Any

import pytest

from edge.dens.core.devices import DeviceSettings
from edge.dens.core.interface import Acknowledged, ClockSet, Listening, Publish
from edge.dens.covering import Exact, PairWise
from edge.watchdog.fuzzy import Fuzzy
from protocol.degrees import ARITHMETIC
from protocol.subscription import decode, encode
from protocol.vectors import Predicate, Significance, Subscription
from tests.devices.plant import DOG, TOPIC, Dog, Keys, Site, make_vector, meet, settle


def strip(vector: bytes) -> bytes:
    return vector[:2] + b"\0\0" + vector[4:5] + b"\0" + vector[6:]


def check_installed(site: Site, dog: Dog, *vectors: bytes) -> None:
    """The device has these vectors, under the handles that the node thinks."""
    assert site.part.is_installed(dog.name)
    installed = dog.list_installed()
    assert sorted(installed.values()) == sorted(strip(vector) for vector in vectors)
    rows = site.disk.scan("device.table", dog.name.encode() + b"\0")
    assert {int.from_bytes(key[-2:], "big"): body for key, body in rows} == installed


def list_down(site: Site) -> list[Publish]:
    return [publish for publish in site.outbox if publish.topic == TOPIC + "sv"]


def make_met(settings: DeviceSettings | None = None, **options: Any) -> tuple[Site, Dog]:
    site, dog = Site(settings), Dog(**options)
    meet(site, dog)
    return site, dog


def test_what_a_device_senses_is_installed() -> None:
    site, dog = make_met()
    fits = [make_vector(0, 9), make_vector(5, 400, event=2, attribute=1)]
    for vector in fits:
        site.subscribe(vector)
    site.subscribe(make_vector(0, 9, attribute=5))  # not sensed
    site.subscribe(make_vector(0, 9, event=3))
    site.subscribe(make_vector(7, 9), vocabulary=b"another.")
    site.subscribe(b'{"content"}', language=1)
    site.subscribe(b"\x41\x00")  # no vector at all
    both = encode(Subscription(1, [Predicate(0, 1, 1), Predicate(3, 1, 1)]))
    site.subscribe(both)  # one of the two is not sensed
    narrow = encode(Subscription(2, [Predicate(1, 1, 1)]))
    site.subscribe(narrow)  # it is sensed with 16 bits
    settle(site, dog)
    check_installed(site, dog, *fits)
    assert dog.uplink.counts["refused_vector"] == 0


def test_subscriptions_of_a_vocabulary_that_agrees_go_to_the_device_too() -> None:
    site, dog = make_met()
    site.vocabularies.known[b"vocaNEW."] = {1: (0b0011, 0)}
    shared, own = make_vector(0, 9), make_vector(0, 9, attribute=2)
    items = [site.subscribe(shared, vocabulary=hash) for hash in (b"vocaNEW.", b"vocabula")]
    site.subscribe(own, vocabulary=b"vocaNEW.")  # there it is something else
    settle(site, dog)
    check_installed(site, dog, shared)
    assert dog.uplink.counts["installed"] == 1
    site.unsubscribe(items[0])
    settle(site, dog)
    check_installed(site, dog, shared)
    site.unsubscribe(items[1])
    settle(site, dog)
    check_installed(site, dog)


def test_a_change_for_many_devices_is_told_to_some_in_each_turn() -> None:
    names = [f"dog-{number}" for number in range(7)]
    keys = Keys(**{name.replace("-", "_"): [7] for name in names})
    site = Site(DeviceSettings(burst=3), keys)
    for name in names:
        meet(site, Dog(name=name))
    site.subscribe(make_vector(0, 9))
    assert len(site.outbox) == 3
    site.subscribe(make_vector(20, 29))
    assert len(site.outbox) == 6
    site.tick()
    assert [len(publish.payload) for publish in site.outbox] == [19 + 12] * 3 + [19 + 24] * 4


def test_a_device_that_speaks_no_language_of_ours_gets_nothing() -> None:
    site, dog = Site(), Dog()
    dog.language.number = 9
    site.subscribe(make_vector(0, 9))
    meet(site, dog)
    assert dog.list_installed() == {}
    assert Fuzzy.number == 1


def test_the_same_wish_is_installed_once() -> None:
    site, dog = make_met()
    means = encode(Subscription(1, [Predicate(0, 1, 9, 9), Predicate(1, 3, 4, 9)], ARITHMETIC))
    items = [site.subscribe(means, owner=owner) for owner in ("a", "b", "c")]
    settle(site, dog)
    check_installed(site, dog, means)
    site.unsubscribe(items[0])
    site.unsubscribe(items[2])
    settle(site, dog)
    check_installed(site, dog, means)
    site.unsubscribe(items[1])
    settle(site, dog)
    check_installed(site, dog)


@pytest.mark.parametrize("policy", [Exact(), PairWise()])
def test_what_is_covered_is_passive_and_comes_back(policy: Any) -> None:
    site, dog = make_met(DeviceSettings(policy=policy))
    wide = site.subscribe(make_vector(0, 100))
    narrow = make_vector(10, 20)
    site.subscribe(narrow)
    settle(site, dog)
    check_installed(site, dog, make_vector(0, 100))
    assert site.part.describe()["passive"] == 1
    covers = [log.fields for log in site.logs if log.kind == "cover"]
    assert [fields["is_active"] for fields in covers] == [True, False]
    assert covers[1]["covered_by"] == [wide.id]
    before = len(list_down(site))
    site.unsubscribe(wide)
    (installs,) = list_down(site)[before:]
    settle(site, dog)
    check_installed(site, dog, narrow)
    assert dog.receive(installs) is False  # it went first, and is old now
    assert site.logs[-1].fields["is_active"] is True


def test_together_they_cover_more() -> None:
    site, dog = make_met()
    left, right = make_vector(0, 100), make_vector(101, 200)
    first = site.subscribe(left)
    site.subscribe(right)
    across = make_vector(50, 150)
    site.subscribe(across)
    settle(site, dog)
    check_installed(site, dog, left, right)
    site.unsubscribe(first)
    settle(site, dog)
    check_installed(site, dog, right, across)


def test_an_expired_subscription_goes_and_what_it_covered_comes_back() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 100), life=60)
    narrow = make_vector(10, 20)
    site.subscribe(narrow, life=3600)
    settle(site, dog)
    site.tick(62)
    settle(site, dog)
    check_installed(site, dog, narrow)


def test_significance_covers_nothing() -> None:
    site, dog = make_met()
    banded = make_vector(0, 100, significance=Significance(quiet=30))
    plain = make_vector(10, 20)
    site.subscribe(banded)
    site.subscribe(plain)
    settle(site, dog)
    check_installed(site, dog, banded, plain)


def test_a_device_with_doubt_gets_everything_from_its_first_doubtful_reading_on() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 100))
    narrow = make_vector(10, 20)
    site.subscribe(narrow)
    settle(site, dog)
    assert len(dog.list_installed()) == 1
    dog.tell(1, {0: 22}, doubt=1)
    settle(site, dog)
    site.tick()
    settle(site, dog)
    check_installed(site, dog, make_vector(0, 100), narrow)
    site.start()  # that is remembered
    dog.restart()
    meet(site, dog)
    check_installed(site, dog, make_vector(0, 100), narrow)


def test_only_the_difference_is_sent() -> None:
    site, dog = make_met()
    for low in range(0, 100, 10):
        site.subscribe(make_vector(low, low))
    settle(site, dog)
    installed = dog.uplink.counts["installed"]
    assert installed == 10
    site.handle(Listening(TOPIC + "sv", False))
    meet(site, dog)  # the same run: it has them all
    assert dog.uplink.counts["installed"] == installed
    site.handle(Listening(TOPIC + "sv", False))
    site.subscribe(make_vector(200, 201))
    assert list_down(site) == []
    meet(site, dog)
    assert dog.uplink.counts["installed"] == installed + 1


def test_a_device_that_started_anew_gets_everything() -> None:
    site, dog = make_met()
    vectors = [make_vector(low, low) for low in range(50)]
    for vector in vectors:
        site.subscribe(vector)
    settle(site, dog)
    check_installed(site, dog, *vectors)
    dog.restart()
    assert dog.list_installed() == {}
    meet(site, dog)
    check_installed(site, dog, *vectors)
    assert dog.uplink.counts["installed"] == 50


def test_frames_have_at_most_so_many_vectors_and_bytes() -> None:
    site, dog = Site(DeviceSettings(batch=20, frame_bytes=120)), Dog()
    long = encode(Subscription(1, [Predicate(a, 1, 1) for a in range(3)]))  # 17 bytes
    for value in range(30):
        predicates = [Predicate(a, value, value) for a in range(3)]
        site.subscribe(encode(Subscription(1, predicates)))
    site.handle(dog.say_hello())
    (frame,) = list_down(site)
    assert len(frame.payload) == 19 + 6 * (len(long) + 1)
    settle(site, dog)
    assert dog.uplink.counts["installed"] == 30
    for item in list(site.holdings.iterate(1)):
        site.unsubscribe(item)
    settle(site, dog)
    check_installed(site, dog)


def test_after_a_restart_of_the_node_stale_vectors_are_removed() -> None:
    site, dog = make_met()
    old = site.subscribe(make_vector(0, 5))
    kept = make_vector(7, 9)
    site.subscribe(kept)
    settle(site, dog)
    site.handle(Listening(TOPIC + "sv", False))
    site.unsubscribe(old)
    site.start()
    site.handle(Listening(TOPIC + "sv", True))
    site.tick()
    settle(site, dog)
    check_installed(site, dog, kept)


def test_numbers_rise_over_restarts_even_if_the_epoch_does_not() -> None:
    site, dog = make_met()
    for low in range(3):
        site.subscribe(make_vector(low, low))
        settle(site, dog)
    site.epoch -= 1
    site.start()
    site.subscribe(make_vector(9, 9))
    meet(site, dog)
    site.tick()
    settle(site, dog)
    assert len(dog.list_installed()) == 4
    assert dog.uplink.counts["refused_replay"] == 0


def test_what_is_not_acknowledged_is_sent_again_with_a_fresh_number() -> None:
    site, dog = make_met()
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
    assert dog.receive(third)
    assert not dog.receive(first)
    assert not dog.receive(second)
    site.handle(Acknowledged(TOPIC + "sv", first.token))  # late, and of no use
    assert not site.part.is_installed(DOG)
    site.handle(Acknowledged(TOPIC + "sv", third.token))
    check_installed(site, dog, make_vector(0, 5), make_vector(7, 9))


def test_a_removal_that_may_have_arrived_is_not_forgotten() -> None:
    site, dog = make_met()
    vector = make_vector(0, 5)
    item = site.subscribe(vector)
    settle(site, dog)
    site.unsubscribe(item)
    (removal,) = list_down(site)
    dog.receive(removal)  # its acknowledgement is lost with the connection
    site.outbox.clear()
    site.handle(Listening(TOPIC + "sv", False))
    site.subscribe(vector)
    assert dog.list_installed() == {}
    meet(site, dog)
    check_installed(site, dog, vector)


def test_a_vector_is_valid_as_long_as_its_subscription_lives() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 5), life=1000)
    (frame,) = list_down(site)
    assert 1000 <= _read_validity(frame.payload) <= 1125
    settle(site, dog)
    dog.now += 1_130_000
    dog.manager.expire(dog.now)
    assert dog.list_installed() == {}


def test_a_vector_stays_as_long_as_anything_that_it_covers() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 100), life=1000)
    settle(site, dog)
    site.subscribe(make_vector(10, 20), life=3600)
    (frame,) = list_down(site)
    assert _read_validity(frame.payload) >= 3600
    settle(site, dog)
    installed = dog.uplink.counts["installed"]
    for minute in range(10):  # the first extension is exact, the second has a reserve
        site.tick(60)
        site.subscribe(make_vector(10 + minute, 30 + minute), life=3600)
        settle(site, dog)
    assert dog.uplink.counts["installed"] <= installed + 2
    site.handle(Listening(TOPIC + "sv", False))
    dog.now += 3600_000
    dog.manager.expire(dog.now)
    assert dog.read(1, {0: 25})  # out of reach, and still nothing is missed


def test_more_people_who_ask_the_same_extend_it() -> None:
    site, dog = make_met()
    for minute in range(20):
        site.subscribe(make_vector(0, 9), life=600)
        settle(site, dog)
        assert minute == 0 or dog.uplink.counts["installed"] > 1
        site.tick(60)
    assert dog.uplink.counts["installed"] <= 5
    site.subscribe(make_vector(0, 9))
    settle(site, dog)
    dog.now += 364 * 86_400_000
    dog.manager.expire(dog.now)
    assert len(dog.list_installed()) == 1


def test_a_clock_that_is_set_changes_no_life() -> None:
    site, dog = make_met()
    site.subscribe(make_vector(0, 9), life=600)
    site.subscribe(make_vector(3, 4), life=700)
    settle(site, dog)
    for offset in (400 * 86_400_000, -300 * 86_400_000):
        site.subscribe(make_vector(100, 100 + offset % 7))
        assert site.handle(ClockSet(offset)) == []
        site.outbox.clear()
        assert site.tick(2) == []
        site.tick(40)
        settle(site, dog)
    assert dog.uplink.counts["installed"] <= 5
    assert site.part.is_installed(DOG)


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
    best = list(site.holdings.iterate(1))[-1]
    site.unsubscribe(best)
    for item in list(site.holdings.iterate(1))[-2:]:
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


def _read_validity(frame: bytes) -> int:
    from protocol.frames import split_vectors
    from protocol.timecode import decode_duration

    (vector,) = split_vectors(frame[11:-8])
    return decode_duration(decode(vector).validity)
