"""Faults of the device and of what it is told, with real processes: counted, and without effect."""

# cpython only: it starts processes

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.protocol import frames

from tests.watchdog.faults.plant import Plant, publish, wait_for
from tests.watchdog.nodes import Node, make_key, make_vector


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    plant = Plant(tmp_path)
    yield plant
    plant.close()


def start(plant: Plant) -> None:
    plant.start_node()
    plant.start_dog()
    plant.wait_subscribed()


def test_the_watchdog_is_killed_with_a_full_heart(plant: Plant) -> None:
    """What it saved goes out after its restart, with its own numbers and its true time."""
    start(plant)
    plant.kill("node")
    before = time.time()
    plant.read(*range(1, 41))
    wait_for(lambda: plant.report().get("matched") == 40, plant.describe)
    time.sleep(1.3)  # longer than they stand in memory
    plant.kill("dog")
    assert plant.values() == []
    plant.new_readings()
    plant.start_dog()
    time.sleep(1)
    plant.start_node()
    plant.wait_subscribed()
    plant.read(*range(41, 51))
    plant.check()
    assert plant.query("select distinct epoch from notes order by 1") == [(1,), (2,)]
    (oldest, newest) = plant.query("select min(at), max(at) from notes where epoch = 1")[0]
    assert isinstance(oldest, float)
    assert isinstance(newest, float)
    assert before - 3 < oldest <= newest < before + 15
    assert plant.query("select what from events") != [], "the server tells that it is gone"


def test_a_clock_is_absent(plant: Plant) -> None:
    start(plant)
    plant.kill("node")
    plant.read(1, 2, 3)
    wait_for(lambda: plant.report().get("matched") == 3, plant.describe)
    plant.stop_dog()
    plant.config["clock"] = False
    plant.new_readings()
    plant.start_dog()
    plant.start_node()
    plant.check()
    wait_for(lambda: plant.count("spool", "undated") == 3, plant.describe)


def test_the_flash_is_full(tmp_path: Path) -> None:
    """What is dropped is counted, is the least, and all the rest arrives."""
    plant = Plant(tmp_path, blocks=3)
    try:
        plant.subscribe(60000)  # degrees fall below this value
        start(plant)
        plant.proxy.cut()
        wait_for(lambda: plant.report().get("server") is None, plant.describe)
        urgent = list(range(61000, 61010))
        plant.read(*urgent)
        plant.read(*range(30000, 30340))
        wait_for(lambda: plant.report().get("matched") == 350, plant.describe)
        wait_for(lambda: plant.count("spool", "dropped") > 0, plant.describe)
        plant.proxy.mode = "pass"
        wait_for(lambda: plant.values() and not plant.count("spool", "waiting"), plant.describe)
        values = plant.values()
        assert len(values) == len(set(values))
        assert set(urgent) <= set(values)
        # Every loss is counted; what was dropped while its frame was under way may have arrived.
        assert 0 <= plant.count("spool", "dropped") - (350 - len(values)) <= 16
    finally:
        plant.close()


def test_frames_that_nobody_may_send(plant: Plant) -> None:
    """Corrupted, unknown, forged, replayed, too long, too many: counted, and nothing changes."""
    start(plant)
    node = Node(epoch=1000)
    vector = make_vector(77, low=9)

    def tell(payload: bytes, counter: str, topic: str = "sv") -> None:
        before = plant.count("uplink", counter)
        publish(plant.port, topic, payload, plant.folder)
        wait_for(lambda: plant.count("uplink", counter) > before, f"{counter} {plant.describe()}")

    good = node.subscribe(vector)
    tell(good[:-1] + bytes([good[-1] ^ 1]), "refused_tag")
    tell(bytes([good[0] ^ 0xC0]) + good[1:], "refused_version")
    tell(Node(make_key(key_id=8)).subscribe(vector), "refused_key")
    tell(Node(make_key(secret=bytes(range(1, 33)))).acknowledge(9, 9), "refused_tag", "ack")
    tell(b"", "refused_frame")
    tell(node.subscribe(b"\x41\x20\x00"), "refused_vector")
    tell(node.subscribe(bytes([0xC1]) + vector[1:]), "refused_vector")
    remove = node.remove(1)
    tell(node.subscribe(make_vector(77, low=9)), "refused_vector")  # not wide, as it is sensed
    tell(remove, "refused_replay")
    publish(plant.port, "sv", b"\x41" + bytes(6000), plant.folder)
    wait_for(lambda: plant.count("link", "too_long") == 1, plant.describe)
    # After all of it the first subscription stands, and the watchdog works.
    plant.read(*range(1, 20))
    plant.check()
    assert plant.count("uplink", "installed") == 1


def test_a_flood_of_subscriptions(plant: Plant) -> None:
    start(plant)
    node = Node(epoch=1000)
    wide = bytes.fromhex(plant.subscriptions.read_text())
    for batch in range(8):
        vectors = []
        for i in range(30):
            handle = 100 + 30 * batch + i
            low = 1000 + handle
            vectors.append(
                wide[:2]
                + handle.to_bytes(2, "big")
                + wide[4:-5]
                + low.to_bytes(2, "big")
                + wide[-3:]
            )
        frame = node.seal(frames.SUBSCRIPTIONS, frames.join_vectors(vectors))
        publish(plant.port, "sv", frame, plant.folder)
    plant.read(*range(1, 40))
    wait_for(lambda: plant.count("uplink", "refused_vector") > 0, plant.describe)
    plant.check()
    total = plant.count("uplink", "installed") + plant.count("uplink", "refused_vector")
    assert total == 241
