"""What a device sends of a reading: what somebody asks for, asked or covered, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.items import Item
from denwatch.protocol.matching import match
from denwatch.protocol.notification import decode as decode_note
from denwatch.protocol.subscription import decode, encode
from denwatch.protocol.timecode import encode_duration
from denwatch.protocol.vectors import (
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from tests.devices.device_node import Watchdog, make_vector, meet, settle
from tests.devices.installing import check_installed, make_met

READING = {0: 50, 1: 60, 2: 70}


def make(*ranges: tuple[int, int, int], restrictors: bytes = b"") -> bytes:
    predicates = [Predicate(bit, low, high) for bit, low, high in ranges]
    return encode(SubscriptionVector(1, predicates, restrictors=restrictors))


def read_last(watchdog: Watchdog) -> list[int]:
    """Return the attributes of the last notification."""
    note = decode_note(list(watchdog.put.values())[-1])
    return [reading.attribute for reading in note.readings]


def test_only_what_is_named_is_sent() -> None:
    node, watchdog = make_met()
    node.subscribe(make_vector(0, 100))
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0]
    other = node.subscribe(make((1, 200, 255)))
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0, 1]
    node.unsubscribe(other)
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0]


def test_a_covered_subscriber_keeps_its_values() -> None:
    node, watchdog = make_met()
    wide, narrow = make((0, 0, 100)), make((0, 40, 60), (2, 0, 99))
    node.subscribe(wide)
    covered = node.subscribe(narrow)
    settle(node, watchdog)
    assert node.devices.describe()["passive"] == 1
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0, 2]
    found = match(decode(narrow), decode_note(list(watchdog.put.values())[-1]))
    assert found is not None
    assert found.matched
    node.unsubscribe(covered)
    settle(node, watchdog)
    check_installed(node, watchdog, wide)  # nothing is left that only names
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0]


def test_the_whole_reading_is_sent_to_who_asks_for_it() -> None:
    node, watchdog = make_met()
    vector = make_vector(0, 100)
    node.subscribe(vector)
    curious = node.subscribe(vector, owner="curious", whole=True)
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0, 1, 2]
    node.unsubscribe(curious)  # the vector stays, for the other
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0]


def test_a_node_may_ask_for_whole_readings() -> None:
    node, watchdog = make_met(DeviceSettings(is_whole=True))
    node.subscribe(make_vector(0, 100))
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0, 1, 2]
    assert not watchdog.read(1, {0: 200, 1: 60})  # what nobody wants is not sent all the same


def test_a_covered_subscription_gets_old_readings() -> None:
    node, watchdog = make_met()
    late = make((0, 40, 60), (1, 0, 99), restrictors=b"\0\x10")
    node.subscribe(make((0, 0, 100)))
    node.subscribe(late)
    settle(node, watchdog)
    assert node.devices.describe()["passive"] == 1  # whoever has it has the first attribute now
    watchdog.now = 10_000
    assert not watchdog.read(1, {1: 60})
    watchdog.now = 20_000
    assert watchdog.read(1, {0: 50, 2: 9})
    note = decode_note(list(watchdog.put.values())[-1])
    assert [(r.attribute, r.age > 0) for r in note.readings] == [(0, False), (1, True)]
    found = match(decode(late), note)
    assert found is not None
    assert found.matched


def test_names_survive_restarts_of_node_and_device() -> None:
    node, watchdog = make_met()
    node.subscribe(make((0, 0, 100)))
    node.subscribe(make((0, 40, 60), (2, 0, 99)))
    settle(node, watchdog)
    node.reopen()
    watchdog.restart()
    meet(node, watchdog)
    settle(node, watchdog)
    assert watchdog.read(1, READING)
    assert read_last(watchdog) == [0, 2]


def find_wanted(
    vectors: Iterable[bytes], history: dict[int, tuple[int, int]], now: int
) -> set[bytes]:
    """Return the vectors that want a reading, from all that was ever read."""
    readings = [
        Reading(bit, (value,) * 4, age=encode_duration((now - at) // 1000))
        for bit, (at, value) in sorted(history.items())
    ]
    note = NotificationVector(1, readings)
    found = {vector: match(decode(vector), note) for vector in vectors}
    return {vector for vector, hit in found.items() if hit is not None and hit.matched}


@pytest.mark.parametrize("seed", range(12))
def test_whoever_asked_gets_what_it_asked_for(seed: int) -> None:
    """Subscriptions come and go; a reading that some want is sent so that the same ones match."""
    rng = Random(seed)
    node, watchdog = make_met()
    live: dict[bytes, Item] = {}
    history: dict[int, tuple[int, int]] = {}
    hits = 0
    for _ in range(40):
        if live and rng.random() < 0.3:
            node.unsubscribe(live.pop(rng.choice(sorted(live))))
        else:
            ranges = []
            for bit in sorted(rng.sample(range(3), rng.randint(1, 3))):
                low = rng.randrange(0, 120, 40)
                ranges.append((bit, low, low + 40 * rng.randint(1, 3)))
            codes = bytes(rng.choice((0, 0, 8, 16)) for _ in ranges)
            vector = make(*ranges, restrictors=codes if any(codes) else b"")
            if vector not in live:
                live[vector] = node.subscribe(vector)
        node.tick()
        settle(node, watchdog)
        for _ in range(3):
            watchdog.now += rng.randrange(1, 9) * 1000
            values = {bit: rng.randrange(255) for bit in range(3) if rng.random() < 0.6}
            if not values:
                continue
            history |= {bit: (watchdog.now, value) for bit, value in values.items()}
            wanted = find_wanted(live, history, watchdog.now)
            assert watchdog.read(1, values) == bool(wanted)
            if wanted:
                note = decode_note(list(watchdog.put.values())[-1])
                for vector in live:
                    found = match(decode(vector), note)
                    assert (found is not None and found.matched) == (vector in wanted)
                hits += len(wanted)
    assert watchdog.uplink.counts["refused_vector"] == 0
    assert hits > 20
