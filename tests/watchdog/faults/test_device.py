"""Faults of the device and of what it is told, with real processes: counted, and without effect."""

# cpython only: it starts processes

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.protocol import frames

from simulator.site import wait_for
from tests.watchdog.faults.site import WatchdogSite, publish
from tests.watchdog.nodes import Node, make_key, make_vector


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WatchdogSite]:
    site = WatchdogSite(tmp_path)
    yield site
    site.close()


def start(site: WatchdogSite) -> None:
    site.start_node()
    site.start_watchdog()
    site.wait_subscribed()


def test_the_watchdog_is_killed_with_a_full_heart(site: WatchdogSite) -> None:
    """What it saved goes out after its restart, with its own numbers and its true time."""
    start(site)
    site.kill("node")
    before = time.time()
    site.read(*range(1, 41))
    wait_for(site.describe, lambda: site.report().get("matched") == 40)
    time.sleep(1.3)  # longer than they stand in memory
    site.kill("watchdog")
    assert site.values() == []
    site.new_readings()
    site.start_watchdog()
    time.sleep(1)
    site.start_node()
    site.wait_subscribed()
    site.read(*range(41, 51))
    site.check()
    first = int(str(site.query("select min(epoch) from notes")[0][0]))
    assert site.query("select distinct epoch from notes order by 1") == [(first,), (first + 1,)]
    (oldest, newest) = site.query(f"select min(at), max(at) from notes where epoch = {first}")[0]
    assert isinstance(oldest, float)
    assert isinstance(newest, float)
    assert before - 3 < oldest <= newest < before + 15
    assert site.query("select what from events") != [], "the server tells that it is gone"


def test_a_clock_is_absent(site: WatchdogSite) -> None:
    start(site)
    site.kill("node")
    site.read(1, 2, 3)
    wait_for(site.describe, lambda: site.report().get("matched") == 3)
    site.stop_watchdog()
    site.config["clock"] = False
    site.new_readings()
    site.start_watchdog()
    site.start_node()
    site.check()
    wait_for(site.describe, lambda: site.count("spool", "undated") == 3)


def test_the_flash_is_full(tmp_path: Path) -> None:
    """What is dropped is counted, is the least, and all the rest arrives."""
    site = WatchdogSite(tmp_path, blocks=3)
    try:
        site.subscribe(60000)  # degrees fall below this value
        start(site)
        site.proxy.cut()
        wait_for(site.describe, lambda: site.report().get("server") is None)
        urgent = list(range(61000, 61010))
        site.read(*urgent)
        site.read(*range(30000, 30340))
        wait_for(site.describe, lambda: site.report().get("matched") == 350)
        wait_for(site.describe, lambda: site.count("spool", "dropped") > 0)
        site.proxy.mode = "pass"
        wait_for(site.describe, lambda: site.values() and not site.count("spool", "waiting"))
        values = site.values()
        assert len(values) == len(set(values))
        assert set(urgent) <= set(values)
        # Every loss is counted; what was dropped while its frame was under way may have arrived.
        assert 0 <= site.count("spool", "dropped") - (350 - len(values)) <= 16
    finally:
        site.close()


def test_frames_that_nobody_may_send(site: WatchdogSite) -> None:
    """Corrupted, unknown, forged, replayed, too long, too many: counted, and nothing changes."""
    start(site)
    node = Node(epoch=1000)
    vector = make_vector(77, low=9)

    def tell(payload: bytes, counter: str, topic: str = "sv") -> None:
        before = site.count("uplink", counter)
        publish(site.port, topic, payload, site.folder)
        wait_for(f"{counter} {site.describe()}", lambda: site.count("uplink", counter) > before)

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
    publish(site.port, "sv", b"\x41" + bytes(6000), site.folder)
    wait_for(site.describe, lambda: site.count("link", "too_long") == 1)
    # After all of it the first subscription stands, and the watchdog works.
    site.read(*range(1, 20))
    site.check()
    assert site.count("uplink", "installed") == 1


def test_a_flood_of_subscriptions(site: WatchdogSite) -> None:
    start(site)
    node = Node(epoch=1000)
    wide = bytes.fromhex(site.subscriptions.read_text())
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
        publish(site.port, "sv", frame, site.folder)
    site.read(*range(1, 40))
    wait_for(site.describe, lambda: site.count("uplink", "refused_vector") > 0)
    site.check()
    total = site.count("uplink", "installed") + site.count("uplink", "refused_vector")
    assert total == 241
