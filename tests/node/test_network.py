"""Three nodes on links that are cut and healed: what people asked for, and what they are told.

The links are veth pairs between network namespaces, or relays where there are none (a skipped test
says so). Everything else is real, too: processes, TLS, watchdogs, the subscriber library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from typing import Any

import pytest

from simulator.site import wait_for
from tests.node.app import App
from tests.node.clients import Person, Sensor, running_watchdog
from tests.node.namespaces import LinkedSite

pytestmark = pytest.mark.xdist_group("network")  # one set of nodes for all

ALPHA, BRAVO, CHARLIE = PLACES = ("alpha", "bravo", "charlie")
ALL = "east between 1 and 60000 m, event patient"
SOME = "east between 1 and 60000 m and heart_rate above 140 bpm, event patient"


class World:
    """The site with a sensor at its first and its last node."""

    def __init__(self, site: LinkedSite, sensors: dict[str, Sensor]) -> None:
        self.site = site
        self.links = site.links
        self.sensors = sensors
        self._watchers: dict[str, App] = {}

    def person(self, name: str, place: str) -> Person:
        """Return somebody with the subscriber library, at a node."""
        past = [number for sensor in self.sensors.values() for number in sensor.emitted]
        return self.site.person(name, place, past)

    def watch(self, place: str) -> App:
        """Return a client that gets a node's status, every second."""
        if place not in self._watchers:
            self._watchers[place] = self.site.app("watcher", place)
            self._watchers[place].subscribe(f"dens/1/status/{place}")
        return self._watchers[place]

    def read_status(self, place: str) -> dict[str, Any]:
        """Return the newest status of a node; nothing before the first one."""
        found = self.watch(place).find(f"dens/1/status/{place}")
        status: dict[str, Any] = json.loads(found[-1]) if found and found[-1] else {}
        return status

    def wait_for_queue(self, place: str, count: int) -> None:
        """Wait until so many deliveries wait at a node, or more."""
        wait_for(
            f"{count} in the queue of {place}",
            lambda: self.read_status(place).get("queue", 0) >= count,
            60,
        )

    def wait_until_all_have_all(self) -> None:
        """Wait until nothing waits for anybody at any node."""
        wait_for(
            "empty queues",
            lambda: all(self.read_status(place).get("queue") == 0 for place in PLACES),
            60,
        )

    def wait_until_nobody_asks(self) -> None:
        """Wait until no device has a subscription any more."""
        for sensor in self.sensors.values():
            sensor.wait_for_subscriptions(0)

    def wait_for_peers(self, place: str, *peers: str) -> None:
        wait_for(
            f"{place} to have the peers {peers}",
            lambda: self.read_status(place).get("peers") == sorted(peers),
            60,
        )

    def close(self) -> None:
        for app in self._watchers.values():
            app.close()


@pytest.fixture(
    scope="module", params=["best links", pytest.param("relays", marks=pytest.mark.slow)]
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("network")
    with ExitStack() as stack:
        site = LinkedSite(folder, PLACES, has_relays=request.param == "relays")
        stack.callback(site.close)
        site.add_people("watcher", "medic", "chief", "walker", "ferried", "broad", "narrow", "last")
        sensors = {}
        for k, place in enumerate((ALPHA, CHARLIE)):
            device = site.add_watchdog(f"bed-{place}", place)
            sensors[place] = Sensor(folder / f"bed-{place}", device, 1 + 1000 * k)
        site.start()
        world = World(site, sensors)
        stack.callback(world.close)
        for sensor in sensors.values():
            stack.enter_context(running_watchdog(sensor.config))
        for place in PLACES:
            world.wait_for_peers(place, *(other for other in PLACES if other != place))
        yield world


@pytest.fixture(autouse=True)
def _heal(world: World) -> Iterator[None]:
    """Leave no link cut, also after a failure."""
    yield
    for one, other in combinations(PLACES, 2):
        world.links.heal(one, other)


def test_links_are_interfaces_of_network_namespaces(world: World) -> None:
    if world.site.excuse:
        pytest.skip(f"{world.site.excuse}; the links of these tests are relays")
    assert world.links.kind == "namespaces"


def list_names(app: App, person: str) -> set[str]:
    """Return the names of somebody's subscriptions, as a node has them."""
    app.subscribe(f"dens/1/reply/{person}")
    return {entry["name"] for entry in app.ask(person, "list")["subscriptions"]}


def wait_for_names(apps: list[App], person: str, names: set[str]) -> None:
    wait_for(
        f"{person} to have {names}",
        lambda: all(list_names(app, person) == names for app in apps),
        60,
    )


def test_subscriptions_and_their_ends_reach_every_node(world: World) -> None:
    links = world.links
    with ExitStack() as stack:
        medic, chief = (
            [stack.enter_context(world.site.app(name, place)) for place in PLACES]
            for name in ("medic", "chief")
        )
        for name in ("first", "second", "third"):
            list_names(medic[0], "medic")
            assert medic[0].ask("medic", f"heart_rate above 200 bpm, named {name}")["ok"]
        wait_for_names(medic, "medic", {"first", "second", "third"})

        links.cut(ALPHA, CHARLIE)
        links.cut(BRAVO, CHARLIE)
        assert medic[0].ask("medic", "unsubscribe first")["ok"]
        assert medic[0].ask("medic", "heart_rate above 210 bpm, named fourth")["ok"]
        assert medic[2].ask("medic", "unsubscribe second")["ok"]  # at the other side
        list_names(chief[2], "chief")
        assert chief[2].ask("chief", "heart_rate above 220 bpm, named other")["ok"]
        wait_for_names(medic[:2], "medic", {"second", "third", "fourth"})
        wait_for_names(chief[:2], "chief", set())
        assert list_names(medic[2], "medic") == {"first", "third"}

        links.heal(ALPHA, CHARLIE)
        links.heal(BRAVO, CHARLIE)
        wait_for_names(medic, "medic", {"third", "fourth"})
        wait_for_names(chief, "chief", {"other"})

        assert medic[1].ask("medic", "unsubscribe third")["ok"]
        assert medic[1].ask("medic", "unsubscribe fourth")["ok"]
        assert chief[0].ask("chief", "unsubscribe other")["ok"]  # made elsewhere
        wait_for_names(medic, "medic", set())
        wait_for_names(chief, "chief", set())
    world.wait_until_nobody_asks()


def test_a_ferry_carries_what_no_path_does_and_copies_end_with_the_delivery(world: World) -> None:
    links, sensor = world.links, world.sensors[ALPHA]
    with world.person("ferried", CHARLIE) as person:
        person.subscriber.subscribe(ALL, name="all", timeout=60)
        sensor.wait_for_subscriptions()
        links.cut(ALPHA, CHARLIE)
        links.cut(BRAVO, CHARLIE)
        numbers = sensor.emit(5)
        world.wait_for_queue(BRAVO, 5)
        assert person.numbers == []

        links.cut(ALPHA, BRAVO)
        links.heal(BRAVO, CHARLIE)
        person.expect(numbers)
        world.wait_for_queue(ALPHA, 5)  # it cannot know; its status may be of a second ago

        links.heal(ALPHA, BRAVO)
        links.heal(ALPHA, CHARLIE)
        world.wait_until_all_have_all()

    # An app without a memory, at the node where the notes were made, is told the next one only.
    with world.site.app("ferried", ALPHA) as app:
        app.subscribe("dens/1/note/ferried", "dens/1/reply/ferried")
        (number,) = sensor.emit(1)
        wait_for("the next note", lambda: app.notes("ferried"))
        assert [note["values"]["east"]["value"] for note in app.notes("ferried")] == [number]
        assert app.ask("ferried", "unsubscribe all")["ok"]
    world.wait_until_nobody_asks()
    person.check(numbers)


def test_a_walking_subscriber_gets_each_note_once(world: World) -> None:
    links = world.links
    alpha, charlie = world.sensors[ALPHA], world.sensors[CHARLIE]
    with world.person("walker", ALPHA) as person:
        person.subscriber.subscribe(ALL, name="all", timeout=60)
        alpha.wait_for_subscriptions()
        charlie.wait_for_subscriptions()
        numbers = [*alpha.emit(4), *charlie.emit(4)]
        person.expect(numbers)

        links.cut(ALPHA, CHARLIE)
        links.cut(BRAVO, CHARLIE)
        numbers += charlie.emit(4)
        person.walk(world.links.find_url(CHARLIE))
        person.expect(numbers)
        numbers += alpha.emit(4)  # nobody is there any more
        world.wait_for_queue(BRAVO, 4)
        person.walk(world.links.find_url(BRAVO))
        person.expect(numbers)

        numbers += charlie.emit(4)
        links.heal(BRAVO, CHARLIE)
        links.heal(ALPHA, CHARLIE)
        person.expect(numbers)
        person.subscriber.unsubscribe("all", timeout=60)
    world.wait_until_nobody_asks()
    world.wait_until_all_have_all()
    person.check(numbers)


def test_a_covered_subscription_goes_to_devices_when_the_covering_one_ends(world: World) -> None:
    sensor = world.sensors[ALPHA]

    def count(*path: str) -> int:
        found: Any = sensor.read_report()
        for name in path:
            found = found.get(name, {})
        return found or 0

    with (
        world.person("broad", CHARLIE) as broad,
        world.person("narrow", BRAVO) as narrow,
        world.site.app("narrow", ALPHA) as app,
    ):
        added, sent = count("subscriptions", "added"), count("matched")
        broad.subscriber.subscribe(ALL, name="all", timeout=60)
        sensor.wait_for_subscriptions(1)
        narrow.subscriber.subscribe(SOME, name="some", timeout=60)
        wait_for_names([app], "narrow", {"some"})
        calm, ill = sensor.emit(3, 80), sensor.emit(3, 160)
        broad.expect([*calm, *ill])
        narrow.expect(ill)
        wait_for("a report of all six", lambda: count("matched") == sent + 6)
        # The covered one did not go there, only a vector that names its heart_rate.
        assert count("subscriptions", "added") == added + 2
        sensor.wait_for_subscriptions(2)

        broad.subscriber.unsubscribe("all", timeout=60)
        wait_for("the covered one", lambda: count("subscriptions", "added") == added + 3, 60)
        sensor.wait_for_subscriptions(1)
        sensor.emit(3, 80)
        ill += sensor.emit(3, 160)
        narrow.expect(ill)
        wait_for("a report of three more", lambda: count("matched") == sent + 9)
        narrow.subscriber.unsubscribe("some", timeout=60)
    world.wait_until_nobody_asks()


def test_a_node_that_is_gone_for_good_does_not_stop_the_others(world: World) -> None:
    sensor = world.sensors[ALPHA]
    world.site.nodes[BRAVO].kill()
    with world.person("last", CHARLIE) as person:
        person.subscriber.subscribe(ALL, name="all", timeout=60)
        sensor.wait_for_subscriptions()
        person.expect(sensor.emit(3))
        world.wait_for_peers(ALPHA, CHARLIE)
        world.wait_for_peers(CHARLIE, ALPHA)
