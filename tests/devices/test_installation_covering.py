"""Subscriptions on their way to devices: what is covered stays behind, and for how long."""

from __future__ import annotations

from random import Random
from typing import Any

import cbor2
import pytest
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import ClockSet, Listening
from denwatch.node.covering import Exact, PairWise
from denwatch.protocol.degrees import ARITHMETIC
from denwatch.protocol.subscription import decode, encode
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector

from tests.devices.device_node import (
    DEVICE,
    NODE,
    TOPIC,
    make_secret,
    make_vector,
    meet,
    settle,
)
from tests.devices.installing import check_installed, list_down, make_met


def test_the_same_subscription_is_installed_once() -> None:
    node, watchdog = make_met()
    means = encode(
        SubscriptionVector(1, [Predicate(0, 1, 9, 9), Predicate(1, 3, 4, 9)], ARITHMETIC)
    )
    items = [node.subscribe(means, owner=owner) for owner in ("a", "b", "c")]
    settle(node, watchdog)
    check_installed(node, watchdog, means)
    node.unsubscribe(items[0])
    node.unsubscribe(items[2])
    settle(node, watchdog)
    check_installed(node, watchdog, means)
    node.unsubscribe(items[1])
    settle(node, watchdog)
    check_installed(node, watchdog)


@pytest.mark.parametrize("policy", [Exact(), PairWise()])
def test_what_is_covered_is_passive_and_comes_back(policy: Any) -> None:
    node, watchdog = make_met(DeviceSettings(policy=policy))
    wide = node.subscribe(make_vector(0, 100))
    narrow = make_vector(10, 20)
    node.subscribe(narrow)
    settle(node, watchdog)
    check_installed(node, watchdog, make_vector(0, 100))
    assert node.devices.describe()["passive"] == 1
    covers = [log.fields for log in node.logs if log.kind == "cover"]
    assert [fields["is_active"] for fields in covers] == [True, False]
    assert covers[1]["covered_by"] == [wide.id]
    before = len(list_down(node))
    node.unsubscribe(wide)
    (installs,) = list_down(node)[before:]
    settle(node, watchdog)
    check_installed(node, watchdog, narrow)
    assert watchdog.receive(installs) is False  # it went first, and is old now
    assert node.logs[-1].fields["is_active"] is True


def test_together_they_cover_more() -> None:
    node, watchdog = make_met()
    left, right = make_vector(0, 100), make_vector(101, 200)
    first = node.subscribe(left)
    node.subscribe(right)
    across = make_vector(50, 150)
    node.subscribe(across)
    settle(node, watchdog)
    check_installed(node, watchdog, left, right)
    node.unsubscribe(first)
    settle(node, watchdog)
    check_installed(node, watchdog, right, across)


def test_an_expired_subscription_goes_and_what_it_covered_comes_back() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 100), life=60)
    narrow = make_vector(10, 20)
    node.subscribe(narrow, life=3600)
    settle(node, watchdog)
    node.tick(62)
    settle(node, watchdog)
    check_installed(node, watchdog, narrow)


def test_significance_covers_nothing() -> None:
    node, watchdog = make_met()
    banded = make_vector(0, 100, significance=Significance(quiet=30))
    plain = make_vector(10, 20)
    node.subscribe(banded)
    node.subscribe(plain)
    settle(node, watchdog)
    check_installed(node, watchdog, banded, plain)


DOUBTFUL = {24: {1: 1}}


def make_above(low: int, threshold: int = 128, certain: int = 0) -> bytes:
    return make_vector(low, 255, threshold=threshold, certain=certain)


@pytest.mark.parametrize("hello", [DOUBTFUL, {}], ids=["announced", "silent about it"])
@pytest.mark.parametrize(
    ("first", "second", "value", "width"),
    [
        (make_above(90, 230, 230), make_above(100), 101, 20),
        (make_above(152, 243), make_above(154, 102), 151, 8),
    ],
    ids=["certain", "higher threshold"],
)
def test_no_uncertain_reading_stays_behind(
    first: bytes, second: bytes, value: int, width: int, hello: dict[int, object]
) -> None:
    node, watchdog = make_met(hello=hello)
    for vector in (first, second):
        node.subscribe(vector)
        settle(node, watchdog)
    assert watchdog.read(1, {0: value}, width)
    check_installed(node, watchdog, first, second)


def test_doubt_covers_what_asks_for_no_less() -> None:
    node, watchdog = make_met(hello=DOUBTFUL)
    node.subscribe(make_above(90))
    for vector in (make_above(100), make_above(95, 200), make_above(90, 230, 230)):
        node.subscribe(vector)
    settle(node, watchdog)
    check_installed(node, watchdog, make_above(90))
    assert watchdog.read(1, {0: 80}, 20)


def test_events_without_doubt_are_covered_as_exact_ones() -> None:
    node, watchdog = make_met(hello={24: {2: 1}})
    node.subscribe(make_above(90, 230, 230))
    node.subscribe(make_above(100))
    settle(node, watchdog)
    check_installed(node, watchdog, make_above(90, 230, 230))


def test_a_device_that_promised_exact_readings_is_remembered_for_another() -> None:
    node, watchdog = make_met()
    high, low = make_above(90, 243), make_above(100)
    node.subscribe(high)
    node.subscribe(low)
    settle(node, watchdog)
    check_installed(node, watchdog, high)
    watchdog.tell(1, {0: 122}, doubt=1)
    settle(node, watchdog)
    node.tick()
    settle(node, watchdog)
    check_installed(node, watchdog, high, low)
    node.reopen()  # that is remembered
    watchdog.restart()
    meet(node, watchdog)
    check_installed(node, watchdog, high, low)


def test_what_an_older_version_stored_of_a_device_may_have_doubt() -> None:
    node, watchdog = make_met()
    (device,) = node.devices.list_devices()
    assert not device.may_doubt(1)
    space = node.medium.spaces["device"]
    fields = cbor2.loads(space[watchdog.name.encode()])
    space[watchdog.name.encode()] = cbor2.dumps(fields[:-3])
    node.reopen()
    (device,) = node.devices.list_devices()
    assert device.may_doubt(1)


def test_a_vector_is_valid_as_long_as_its_subscription_lives() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 5), life=1000)
    (frame,) = list_down(node)
    assert 1000 <= read_validity(frame.payload) <= 1125
    settle(node, watchdog)
    watchdog.now += 1_130_000
    watchdog.manager.expire(watchdog.now)
    assert watchdog.list_installed() == {}


def test_a_vector_stays_as_long_as_anything_that_it_covers() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 100), life=1000)
    settle(node, watchdog)
    node.subscribe(make_vector(10, 20), life=3600)
    (frame,) = list_down(node)
    assert read_validity(frame.payload) >= 3600
    settle(node, watchdog)
    installed = watchdog.uplink.counts["installed"]
    for minute in range(10):  # the first extension is exact, the second has a reserve
        node.tick(60)
        node.subscribe(make_vector(10 + minute, 30 + minute), life=3600)
        settle(node, watchdog)
    assert watchdog.uplink.counts["installed"] <= installed + 2
    node.do(Listening(TOPIC + "sv", False))
    watchdog.now += 3600_000
    watchdog.manager.expire(watchdog.now)
    assert watchdog.read(1, {0: 25})  # out of reach, and still nothing is missed


def test_more_people_who_ask_the_same_extend_it() -> None:
    node, watchdog = make_met()
    for minute in range(20):
        node.subscribe(make_vector(0, 9), life=600)
        settle(node, watchdog)
        assert minute == 0 or watchdog.uplink.counts["installed"] > 1
        node.tick(60)
    assert watchdog.uplink.counts["installed"] <= 5
    node.subscribe(make_vector(0, 9))
    settle(node, watchdog)
    watchdog.now += 364 * 86_400_000
    watchdog.manager.expire(watchdog.now)
    assert len(watchdog.list_installed()) == 1


def test_a_clock_that_is_set_changes_no_life() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 9), life=600)
    node.subscribe(make_vector(3, 4), life=700)
    settle(node, watchdog)
    for offset in (400 * 86_400_000, -300 * 86_400_000):
        node.subscribe(make_vector(100, 100 + offset % 7))
        assert node.do(ClockSet(offset)) == []
        node.outbox.clear()
        assert node.tick(2) == []
        node.tick(40)
        settle(node, watchdog)
    assert watchdog.uplink.counts["installed"] <= 5
    assert node.devices.is_installed(DEVICE)


def read_validity(frame: bytes) -> int:
    from denwatch.protocol.frames import DOWN, Link, open_frame, split_vectors
    from denwatch.protocol.timecode import decode_duration

    link = Link(DEVICE, NODE, 7, make_secret(7))
    (vector,) = split_vectors(open_frame(link, DOWN, frame).body)
    return decode_duration(decode(vector).validity)


def list_asked(seed: int) -> list[bytes]:
    """Return 42 subscriptions as people make them: some with thresholds, some for certain."""
    rng = Random(seed)
    asked = []
    for _ in range(42):
        predicates = []
        for attribute in sorted(rng.sample(range(3), rng.choice((1, 1, 1, 2, 2, 3)))):
            low = rng.randrange(20, 236)
            ends = rng.choice(((low, 255), (0, low // 2), (low, min(255, low + 40))))
            predicates.append(Predicate(attribute, *ends, rng.choice((255, 255, 200, 230))))
        certain = rng.choice((0,) * 7 + (204,))
        threshold = max(certain, rng.choice((128,) * 6 + (179, 102)))
        vector = SubscriptionVector(1, predicates, threshold=threshold, certain=certain)
        asked.append(encode(vector))
    return asked


def test_doubt_costs_few_more_vectors() -> None:
    exact, doubtful = 0, 0
    for seed in range(6):
        counts = []
        for hello in ({24: {}}, DOUBTFUL):
            node, watchdog = make_met(hello=hello, capacity=4096)
            for vector in list_asked(seed):
                node.subscribe(vector)
            settle(node, watchdog)
            counts.append(len(watchdog.list_installed()))
        exact, doubtful = exact + counts[0], doubtful + counts[1]
        assert counts[0] <= counts[1] < 42
    assert doubtful <= 1.6 * exact
