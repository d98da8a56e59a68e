"""A watchdog on a battery: a board that really reboots between two readings, on MicroPython.

Every boot is a process of its own; what outlasts it are its files (`board/machine.py`). A deep
sleep takes no time: the board's clock jumps.
"""

# cpython only: it starts processes

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from firmware_tests.runtimes import REPOSITORY, find_library, find_unix
from firmware_tests.support import require
from simulator.site import wait_for
from tests.watchdog.faults.site import WatchdogSite

BOARD = REPOSITORY / "tests" / "watchdog" / "faults" / "board"
_MAIN = "from denwatch.watchdog.boot import main; main()"


class SleepingSite(WatchdogSite):
    """A site whose watchdog is a board that reboots."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.board = folder / "board"
        self.board.mkdir()
        self.boots = 0
        self.output = ""
        self.config["spool"] = {"file": "spool.bin", "blocks": 4}
        self.config["sleep"] = {"longest": 600_000, "radio": 8_000}
        self.config["wifi"] = [{"name": "away", "password": ""}, {"name": "tent", "password": "x"}]
        self.config["battery"] = {"pin": 35, "full": 6600}
        self.config["sources"] = {"probe": {"kind": "ds18x20", "pin": 4}}
        channel = {"source": "probe", "field": 0, "attribute": 0, "low": 0, "high": 65535}
        self.config["events"] = [
            {"event": 1, "period": 60_000, "channels": [{**channel, "wide": True}]}
        ]
        self.put("networks", ["tent", "away"])

    def put(self, name: str, value: Any) -> None:
        (self.board / name).write_text(json.dumps(value))

    def report(self) -> dict[str, object]:
        return {"output": self.output}

    def boot(self, count: int = 1, until: Callable[[], bool] | None = None) -> list[list[Any]]:
        """Start the board so often, each time until it sleeps or resets, or its power is cut once
        something is true; return what it did."""
        interpreter = require(partial(find_unix, 64))
        (self.board / "watchdog.json").write_text(json.dumps(self.config))
        log = self.board / "log"
        log.unlink(missing_ok=True)
        path = f"{BOARD}:{find_library()}:.frozen"
        for _ in range(count):
            self.put("boots", self.boots)
            self.boots += 1
            with subprocess.Popen(
                [str(interpreter), "-X", "heapsize=1M", "-c", _MAIN],
                cwd=self.board,
                env={**os.environ, "MICROPYPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                if until is not None:
                    wait_for(self.describe, until)
                    process.kill()
                self.output, _ = process.communicate(timeout=120)
                assert until or process.returncode in (2, 3, 4, 5), self.output
        return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SleepingSite]:
    site = SleepingSite(tmp_path)
    yield site
    site.close()


def count(calls: list[list[Any]], *words: Any) -> int:
    return sum(call[: len(words)] == list(words) for call in calls)


def test_a_board_that_sleeps_connects_reads_its_sensor_and_sends(site: SleepingSite) -> None:
    """Three matching readings of six wakes arrive; one epoch for them all."""
    site.put("sixteenths", [100, 400, 50, 401, 60, 402])
    site.subscribe(400, 255)
    site.start_node()
    calls = site.boot()
    assert count(calls, "radio", True) == 1, "the first start looks for a node"
    assert count(calls, "sleep") == 1
    calls = site.boot(5)
    assert count(calls, "sleep") == 5
    assert count(calls, "radio", True) == 3, "a wake without a high degree leaves the radio off"
    assert count(calls, "radio", False) == 3
    wait_for(site.describe, lambda: site.values() == [400, 401, 402])
    assert site.query("select count(distinct epoch) from hellos") == [(1,)], "no epoch a wake"


def test_what_is_not_urgent_waits_for_its_time(site: SleepingSite) -> None:
    site.put("sixteenths", [0, 400])
    site.config["sleep"] = {"longest": 600_000, "radio": 8_000, "urgent": 256, "wait": 240_000}
    site.subscribe(400, 255)
    site.start_node()
    site.boot()
    calls = site.boot(4)
    assert count(calls, "radio", True) == 0
    calls = site.boot(2)
    assert count(calls, "radio", True) == 1
    wait_for(site.describe, lambda: len(site.values()) >= 5)
    ages = site.query("select max(at) - min(at) from notes")[0][0]
    assert isinstance(ages, float)
    assert 230 < ages < 320, "each has its own time"


@pytest.mark.parametrize("room", [2048, -1], ids=["RTC of 2 KB", "no RTC memory"])
def test_more_subscriptions_than_the_clock_has_room_for(site: SleepingSite, room: int) -> None:
    """From 120 on they are kept in the flash, and are there after the sleep."""
    site.put("limits", {"rtc": room, "wdt": 8388})
    site.put("sixteenths", [0, 0, 400])
    site.config["capacity"] = 4096
    vectors = [
        SubscriptionVector(1, [Predicate(0, 400 + i, 65535, 0, wide=True)], threshold=255, handle=i)
        for i in range(1, 200)
    ]
    site.subscriptions.write_text("\n".join(encode(vector).hex() for vector in vectors))
    site.start_node()
    calls = site.boot(2)
    assert count(calls, "watchdog") == 2, "the hardware watchdog is on, as long as the board can"
    assert (site.board / "kept.bin").stat().st_size > 2048
    written = (site.board / "kept.bin").stat().st_mtime_ns
    site.put("sixteenths", [0, 0, 405])
    calls = site.boot()
    assert count(calls, "radio", True) == 1, site.output
    wait_for(site.describe, lambda: site.values() == [405])
    assert site.query("select count(distinct epoch) from hellos") == [(1,)]
    if room > 0:
        assert (site.board / "kept.bin").stat().st_mtime_ns == written, "written once, for it wears"


def test_a_node_that_is_gone_does_not_empty_the_battery(site: SleepingSite) -> None:
    site.put("sixteenths", [400])
    site.put("networks", [])
    site.config["sleep"] = {"longest": 600_000, "radio": 300}
    calls = site.boot(7)
    assert count(calls, "sleep") == 7
    assert count(calls, "radio", True) == 3  # at the 1st, after 2, after 4 more


def test_a_crash_after_the_wake_uses_no_number_twice(site: SleepingSite) -> None:
    """What was kept is of the sleep before: the epoch grows, and the node sends everything."""
    site.put("sixteenths", [400, 401, 402, 403])
    site.subscribe(400, 255)
    site.start_node()
    site.boot()
    kept = (site.board / "rtc").read_bytes()
    site.boot()
    (site.board / "rtc").write_bytes(kept)  # as if the second wake had not come to its sleep
    site.boot(2)
    wait_for(site.describe, lambda: site.values() == [401, 403])
    first = int(str(site.query("select min(epoch) from notes")[0][0]))
    assert site.query("select distinct epoch from notes order by 1") == [(first,), (first + 1,)]


def test_a_program_that_crashes_is_started_again_then_the_board_then_without_sensors(
    site: SleepingSite,
) -> None:
    site.config["sources"] = {"probe": {"kind": "oracle"}}
    site.start_node()
    calls = site.boot(5)
    assert [call[0] for call in calls if "reset" in call[0]] == ["soft reset"] * 2 + ["reset"] * 3
    assert calls[0] == ["watchdog", 30_000], "before anything that can fail"
    assert "ConfigError" in (site.board / "crash.txt").read_text()
    site.boot(until=lambda: bool(site.query("select * from hellos")))
    assert "crashed, 5: ConfigError: kind: oracle" in site.output
