"""Nodes whose machines show another year, as real processes: nothing ends early, all is told.

Each process sees a wall clock of its own. `north` is right, `past` is five years behind, `future`
five years ahead; the wrong ones are linked with the right one only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from simulator.site import NodeProcess, Site, wait_for
from tests.node.app import App
from tests.node.clients import Person, Sensor, running_watchdog

pytestmark = pytest.mark.xdist_group("clocks")  # one set of nodes for all

YEARS = 5 * 365 * 86_400.0  # s
ERRORS = {"north": 0.0, "past": -YEARS, "future": YEARS}
WORDS = "east between 1 and 60000 m, event patient, valid for 1 h"
SLACK = 120.0  # s: what a busy machine and a reading without a clock may cost


@dataclass
class Place:
    """The three nodes, somebody at each, and a sensor at each of the wrong ones."""

    nodes: dict[str, NodeProcess]
    passwords: dict[str, str]
    people: dict[str, Person]
    sensors: dict[str, Sensor]

    def emit(self) -> list[int]:
        return [number for sensor in self.sensors.values() for number in sensor.emit(3)]

    def list_emitted(self) -> list[int]:
        return [number for sensor in self.sensors.values() for number in sensor.emitted]

    def list_subscriptions(self, place: str, owner: str) -> list[dict[str, Any]]:
        """Return somebody's subscriptions, as a node has them."""
        with App(self.nodes[place].port, owner, self.passwords[owner], f"at-{place}") as app:
            if app.refused:
                return []  # it has not heard of them yet
            app.subscribe(f"dens/1/reply/{owner}")
            found: list[dict[str, Any]] = app.ask(owner, "list")["subscriptions"]
            return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("clocks")
    with ExitStack() as stack:
        site = Site(folder)
        nodes = {name: site.add_node(name) for name in ERRORS}
        for name, node in nodes.items():
            node.clock_error = ERRORS[name]
        passwords = {f"medic-{name}": site.add_subscriber(f"medic-{name}") for name in nodes}
        sensors = {}
        for k, name in enumerate(("past", "future")):
            device = nodes[name].add_device(f"bed-{name}")
            sensors[name] = Sensor(folder / f"bed-{name}", device, 1 + 1000 * k)
        stack.callback(site.kill)
        site.start()
        people = {}
        for name, node in nodes.items():
            owner = f"medic-{name}"
            people[name] = Person(owner, passwords[owner], node.url, folder)
            stack.enter_context(people[name])
            people[name].subscriber.subscribe(WORDS, name="hour", timeout=60)
        for sensor in sensors.values():
            stack.enter_context(running_watchdog(sensor.config))
        for sensor in sensors.values():
            sensor.wait_for_subscriptions()
        yield Place(nodes, passwords, people, sensors)


def read_time(text: str) -> float:
    """Return a time that a node shows, in s since 1970."""
    return datetime.fromisoformat(text).timestamp()


def test_subscriptions_with_an_end_live_at_every_node_until_then(place: Place) -> None:
    for where, error in ERRORS.items():
        for owner in place.passwords:
            look = partial(place.list_subscriptions, where, owner)
            (found,) = wait_for(f"{where} to know what {owner} wants", look, 60)
            left = read_time(found["expires"]) - (time.time() + error)
            # Spans have one byte: an hour is a little longer.
            assert 3600 - SLACK < left < 4000 + SLACK, (where, owner, left)


def test_notifications_arrive_from_any_year_in_any_year(place: Place) -> None:
    place.emit()
    for where, person in place.people.items():
        person.expect(place.list_emitted())
        for note in person.notes:
            assert note.at is not None
            assert note.expires is not None
            there = time.time() + ERRORS[where]  # by the clock of the node where they stand
            assert abs(note.at / 1000 - there) < SLACK, (where, note)
            assert note.expires / 1000 > there + 3600


def test_a_clock_that_is_put_right_ends_nothing(place: Place) -> None:
    past = place.nodes["past"]
    past.kill()
    past.clock_error = 0.0
    past.start()
    place.people["past"].subscriber.wait_until_connected(60)
    for where in ERRORS:
        for owner in place.passwords:
            assert place.list_subscriptions(where, owner), (where, owner)
    fresh = place.emit()
    for person in place.people.values():
        person.expect(place.list_emitted())
    person = place.people["past"]
    times = {n: note.at for n, note in zip(person.numbers, person.notes, strict=True)}
    assert all(abs((times[number] or 0) / 1000 - time.time()) < SLACK for number in fresh)
