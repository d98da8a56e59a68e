"""Faults between watchdog and node, with real processes: nothing is lost, nothing comes twice."""

# cpython only: it starts processes

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.site import wait_for
from tests.watchdog.faults.site import WatchdogSite


@pytest.fixture(params=["cpython", "micropython"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WatchdogSite]:
    site = WatchdogSite(tmp_path, request.param)
    site.start_node()
    site.start_watchdog()
    site.wait_subscribed()
    yield site
    site.close()


def test_a_day_without_faults(site: WatchdogSite) -> None:
    site.read(*range(1, 60))
    site.check()


def test_the_node_is_killed(site: WatchdogSite) -> None:
    site.read(*range(1, 30))
    wait_for("the first readings", site.values)
    site.kill("node")
    site.read(*range(30, 60))
    time.sleep(1)
    site.start_node()
    site.read(*range(60, 80))
    site.check()


def test_the_broker_is_killed_and_forgets_what_it_took(site: WatchdogSite) -> None:
    site.read(*range(1, 30))
    site.kill("node")
    site.read(*range(30, 60))
    time.sleep(0.7)
    site.kill("broker")
    site.read(*range(60, 80))
    site.start_broker()
    site.start_node()
    site.check()


def test_the_network_is_cut_and_stalls(site: WatchdogSite) -> None:
    site.read(*range(1, 30))
    site.proxy.cut()
    site.read(*range(30, 60))
    time.sleep(0.5)
    site.proxy.mode = "pass"
    site.wait_delivered()
    site.proxy.mode = "stall"
    site.read(*range(60, 90))
    wait_for(site.describe, lambda: site.count("link", "lost") >= 2)
    site.proxy.mode = "pass"
    site.check()


def test_the_server_is_slow(site: WatchdogSite) -> None:
    site.proxy.piece = 40
    site.proxy.delay = 0.02
    site.read(*range(1, 60))
    site.check()


# Takes the server's PUBACK for the node's word.
_HASTY = """
import asyncio
from denwatch.watchdog import app

class Hasty(app.Watchdog):
    async def send(self):
        while True:
            message = self.uplink.next_message(self.clock()) if self.link.server else None
            if message is None:
                await asyncio.sleep(0.05)
            elif await self.link.publish(*message):
                self.spool.acknowledge(*self.uplink._sent, self.clock())
                self.uplink._sent = (0, 0)

app.Watchdog = Hasty
app.main({config!r}, 0.2)
"""


def test_ablation_a_broker_is_believed(tmp_path: Path) -> None:
    """Without the node's acknowledgement the killed broker takes readings with it."""
    site = WatchdogSite(tmp_path)
    try:
        site.start_node()
        site.start_watchdog(_HASTY)
        site.wait_subscribed()
        site.kill("node")
        site.read(*range(1, 30))
        wait_for(site.describe, lambda: site.report().get("matched") == 29)
        wait_for(site.describe, lambda: site.count("spool", "waiting") == 0)
        site.kill("broker")
        site.start_broker()
        site.start_node()
        wait_for(site.describe, lambda: site.count("uplink", "installed") > 1)  # it is there
        site.read(*range(30, 40))
        wait_for(site.describe, lambda: set(range(30, 40)) <= set(site.values()))
        assert not set(range(1, 30)) & set(site.values())
    finally:
        site.close()
