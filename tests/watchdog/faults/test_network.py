"""Faults between watchdog and node, with real processes: nothing is lost, nothing comes twice."""

# cpython only: it starts processes

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watchdog.faults.plant import Plant, wait_for


@pytest.fixture(params=["cpython", "micropython"])
def plant(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Plant]:
    plant = Plant(tmp_path, request.param)
    plant.start_node()
    plant.start_dog()
    plant.wait_subscribed()
    yield plant
    plant.close()


def test_a_day_without_faults(plant: Plant) -> None:
    plant.read(*range(1, 60))
    plant.check()


def test_the_node_is_killed(plant: Plant) -> None:
    plant.read(*range(1, 30))
    wait_for(plant.values, "the first readings")
    plant.kill("node")
    plant.read(*range(30, 60))
    time.sleep(1)
    plant.start_node()
    plant.read(*range(60, 80))
    plant.check()


def test_the_broker_is_killed_and_forgets_what_it_took(plant: Plant) -> None:
    plant.read(*range(1, 30))
    plant.kill("node")
    plant.read(*range(30, 60))
    time.sleep(0.7)
    plant.kill("broker")
    plant.read(*range(60, 80))
    plant.start_broker()
    plant.start_node()
    plant.check()


def test_the_network_is_cut_and_stalls(plant: Plant) -> None:
    plant.read(*range(1, 30))
    plant.proxy.cut()
    plant.read(*range(30, 60))
    time.sleep(0.5)
    plant.proxy.mode = "pass"
    plant.wait_delivered()
    plant.proxy.mode = "stall"
    plant.read(*range(60, 90))
    wait_for(lambda: plant.count("link", "lost") >= 2, plant.describe)
    plant.proxy.mode = "pass"
    plant.check()


def test_the_server_is_slow(plant: Plant) -> None:
    plant.proxy.piece = 40
    plant.proxy.delay = 0.02
    plant.read(*range(1, 60))
    plant.check()


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
    plant = Plant(tmp_path)
    try:
        plant.start_node()
        plant.start_dog(_HASTY)
        plant.wait_subscribed()
        plant.kill("node")
        plant.read(*range(1, 30))
        wait_for(lambda: plant.report().get("matched") == 29, plant.describe)
        wait_for(lambda: plant.count("spool", "waiting") == 0, plant.describe)
        plant.kill("broker")
        plant.start_broker()
        plant.start_node()
        wait_for(lambda: plant.count("uplink", "installed") > 1, plant.describe)  # it is there
        plant.read(*range(30, 40))
        wait_for(lambda: set(range(30, 40)) <= set(plant.values()), plant.describe)
        assert not set(range(1, 30)) & set(plant.values())
    finally:
        plant.close()
