"""Processes that die under load and come back: the node, and the broker that it is attached to.

A watchdog reads patients all the time, somebody with the subscriber library wants to know of each.
Whatever dies, at whatever moment, each patient is told of once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from simulator.site import NodeProcess, ServerProcess, Site, make_mosquitto
from tests.node.app import App
from tests.node.clients import Person, Sensor, running_watchdog

pytestmark = pytest.mark.xdist_group("restart")  # one node for all

WORDS = "east between 1 and 60000 m, event patient"
BATCH = 10


@dataclass
class Place:
    """A node, perhaps behind a broker, with one sensor and one person."""

    node: NodeProcess
    port: int
    password: str
    sensor: Sensor
    person: Person
    broker: ServerProcess | None

    def kill_under_load(self, rng: random.Random, kill: Callable[[], None]) -> None:
        """Let something die while readings come, and more come while it is dead."""
        self.sensor.emit(BATCH)
        time.sleep(rng.uniform(0.0, 0.6))  # any moment will do
        kill()
        self.sensor.emit(BATCH)

    def restart_broker(self) -> None:
        """Kill the broker and start it again a second later."""
        assert self.broker is not None
        self.broker.kill()
        time.sleep(1)
        self.broker.start()


@pytest.fixture(params=["own server", "mosquitto"], scope="module")
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("restart")
    with ExitStack() as stack:
        node = Site(folder).add_node("north")
        port, broker = node.port, None
        if request.param == "mosquitto":
            broker = make_mosquitto(folder)
            stack.callback(broker.kill)
            broker.start()
            port = broker.port
            node.arguments = ("--broker", f"mqtt://127.0.0.1:{port}")
        password = node.add_subscriber("medic7")
        device = node.add_device("bed-1")
        device["nodes"][0]["url"] = f"mqtt://127.0.0.1:{port}"
        sensor = Sensor(folder / "bed-1", device)
        node.start()
        stack.callback(node.kill)
        url = f"mqtt://127.0.0.1:{port}"
        person = Person("medic7", password if broker is None else None, url, folder)
        stack.enter_context(running_watchdog(sensor.config))
        stack.enter_context(person)
        person.subscriber.subscribe(WORDS, name="all", timeout=60)
        sensor.wait_for_subscriptions()
        yield Place(node, port, password, sensor, person, broker)


def test_a_node_that_is_killed_under_load_loses_nothing_and_tells_nothing_twice(
    place: Place,
) -> None:
    rng = random.Random(7)
    for _ in range(2):
        place.kill_under_load(rng, place.node.kill)
        place.node.start()
        place.person.expect(place.sensor.emitted, 90)
    place.sensor.emit(BATCH)
    place.person.expect(place.sensor.emitted)


def test_what_was_acknowledged_is_there_after_a_kill_at_once(place: Place) -> None:
    if place.broker is not None:
        pytest.skip("behind a broker, its acknowledgement is not the node's; replies are")
    app = App(place.port, "medic7", place.password, "quick").wait()
    for k in range(20):
        assert app.publish("dens/1/sub/medic7", f"heart_rate above {200 + k} bpm, named quick{k}")
    place.node.kill()
    app.close()
    place.node.start()
    with App(place.port, "medic7", place.password, "quick") as app:
        app.subscribe("dens/1/reply/medic7")
        names = {entry["name"] for entry in app.ask("medic7", "list")["subscriptions"]}
        assert {f"quick{k}" for k in range(20)} <= names
        for k in range(20):
            assert app.ask("medic7", f"unsubscribe quick{k}")["ok"]


def test_a_broker_that_is_killed_under_load_costs_nothing(place: Place) -> None:
    if place.broker is None:
        pytest.skip("there is no broker")
    rng = random.Random(8)
    for _ in range(2):
        place.kill_under_load(rng, place.restart_broker)
        place.person.expect(place.sensor.emitted, 90)
    place.sensor.emit(BATCH)
    place.person.expect(place.sensor.emitted)
