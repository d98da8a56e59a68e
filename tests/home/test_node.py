"""A real node with discovery on, as docs/home-assistant.md says: what its account hears."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli.publish import find_coverage
from denwatch.client.publisher import Publisher, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped
from denwatch.node.mqtt.records import RETAINED
from denwatch.node.store import Store

from simulator.site import REPOSITORY, Site, wait_for
from tests.home.oracle import check_discovery
from tests.mqtt import wire
from tests.node.app import App

USER = (
    "# The subscriber as which Home Assistant connects here; nobody else may read these topics.\n"
)
READINGS = ["gas carbon_monoxide=120 oxygen=19", "patient heart_rate=160"]


class HomeSite(Site):
    """A node, Home Assistant's account, a medic, and a device that senses gas and a patient."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.node = self.add_node("north")
        self.node.configure(
            ("enabled = false", "enabled = true"), (f'{USER}user = ""', f'{USER}user = "home"')
        )
        self.add_subscriber("home", "observer")
        self.add_subscriber("medic7")
        self.key = self.add_device("dog-1")

    def app(self, name: str) -> App:
        return App(self.node.port, name, self.passwords[name]).wait()

    def publish(self) -> None:
        vocabulary = load_shipped("rescue")
        readings = [parse_reading(words, vocabulary) for words in READINGS]
        senses = find_coverage(readings, vocabulary)
        with Publisher(read_key(self.key), vocabulary, senses, timeout=30) as publisher:
            publisher.run(2.0)  # it is announced within a second
            publisher.publish(readings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeSite]:
    with HomeSite(tmp_path_factory.mktemp("home")) as site:
        yield site


def find_configs(app: App) -> dict[str, dict[str, Any]]:
    """Return the announcements that stand."""
    found: dict[str, dict[str, Any]] = {}
    for topic, payload in list(app.messages):
        if topic.endswith("/config"):
            found.pop(topic, None)
            if payload:
                found[topic] = json.loads(payload)
    return found


def test_discovery_states_and_presence_reach_home_assistants_account(site: HomeSite) -> None:
    with site.app("home") as app:
        # As Home Assistant subscribes.
        granted = app.subscribe(
            "homeassistant/+/+/config", "homeassistant/+/+/+/config", "dens/1/home/#"
        )
        assert granted == [1, 1, 1]
        assert app.publish("homeassistant/status", "online")
        site.publish()
        wait_for("a reading", lambda: app.find(GAS + "carbon_monoxide"))
        configs = find_configs(app)
        for topic, payload in configs.items():
            check_discovery(topic, payload)
        states = {c["state_topic"] for c in configs.values()}
        assert states == {"dens/1/status/north", GAS + "carbon_monoxide", GAS + "oxygen"}
        assert b"online" in app.find(PRESENCE)
        (told,) = app.find(GAS + "carbon_monoxide")
        assert json.loads(told)["value"] == 120
        assert not any(b"heart" in payload for _, payload in app.messages)
        assert not any("patient" in topic for topic, _ in app.messages)


def test_whoever_subscribes_later_gets_the_last_value_and_after_a_restart_too(
    site: HomeSite,
) -> None:
    site.publish()
    for _ in range(2):
        with site.app("home") as app:
            app.subscribe(GAS + "carbon_monoxide")
            wait_for("the last value", lambda app=app: app.find(GAS + "carbon_monoxide"))
            assert json.loads(app.find(GAS + "carbon_monoxide")[0])["value"] == 120
        site.node.stop()
        site.node.start()


def test_a_device_that_is_killed_is_offline(site: HomeSite) -> None:
    with site.app("home") as app:
        app.subscribe(PRESENCE)
        command = [sys.executable, "-c", DEVICE, str(site.key), *READINGS]
        device = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert device.stdout is not None
        assert device.stdout.readline() == "published\n"
        wait_for("it to be there", lambda: app.find(PRESENCE)[-1:] == [b"online"])
        device.kill()
        device.wait()
        wait_for("it to be gone", lambda: app.find(PRESENCE)[-1:] == [b"offline"])


def test_a_person_whose_link_is_silent_is_away_after_the_keep_alive(site: HomeSite) -> None:
    status = "dens/1/status/north"

    def count() -> int:
        shown = app.find(status)
        return int(json.loads(shown[-1])["attached"]) if shown else -1

    with site.app("home") as app:
        app.subscribe(status)
        wait_for("nobody", lambda: count() == 0)
        with socket.create_connection(("127.0.0.1", site.node.port)) as silent:
            password = site.passwords["medic7"]
            silent.sendall(wire.connect("silent", True, 2, None, "medic7", password))
            silent.sendall(wire.subscribe(1, ("dens/1/note/medic7", 1)))
            wait_for("a person", lambda: count() == 1)
            wait_for("nobody again, though the socket is open", lambda: count() == 0)


PRESENCE = "dens/1/home/north/dog-1/available"
# A device that stays, so that it can be killed.
DEVICE = """
import sys
from pathlib import Path
from denwatch.cli.publish import find_coverage, find_doubts
from denwatch.client.publisher import Publisher, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped

vocabulary = load_shipped("rescue")
readings = [parse_reading(words, vocabulary) for words in sys.argv[2:]]
key, senses = read_key(Path(sys.argv[1])), find_coverage(readings, vocabulary)
with Publisher(key, vocabulary, senses, doubts=find_doubts(readings), timeout=120) as publisher:
    publisher.run(2)  # it is announced within a second
    publisher.publish(readings)
    print("published", flush=True)
    publisher.run(3600)
"""
GAS = "dens/1/home/north/dog-1/gas/"


def test_nobody_else_may_hear_it_or_say_it(site: HomeSite) -> None:
    with site.app("medic7") as app:
        assert app.subscribe("homeassistant/#", "dens/1/home/#", GAS + "oxygen") == [128] * 3
    with site.app("medic7") as app:
        assert not app.publish("homeassistant/sensor/forged/config", "{}")
    with site.app("home") as app:
        assert not app.publish(GAS + "oxygen", '{"value": 1}')


def test_the_announcements_stay_over_a_restart_until_it_is_switched_off(site: HomeSite) -> None:
    site.publish()
    site.node.stop()
    site.node.start()
    with site.app("home") as app:
        app.subscribe("homeassistant/#")
        wait_for("what is retained", lambda: len(find_configs(app)) == 3)
        site.node.stop()
    assert len(list_retained(site)) == 3
    site.node.configure(("enabled = true", "enabled = false"))
    site.node.start()
    site.node.stop()
    assert list_retained(site) == []
    site.node.configure(("enabled = false", "enabled = true"))
    site.node.start()


def list_retained(site: HomeSite) -> list[str]:
    """Return what a stopped node keeps for Home Assistant."""
    store = Store(site.node.folder / "data" / "node.db", "north")
    try:
        return [key.decode() for key, _ in store.scan(RETAINED, b"homeassistant/")]
    finally:
        store.close()


def test_mosquittos_rules_know_home_assistant(site: HomeSite) -> None:
    rules = site.node.keys("acl")
    assert "topic write homeassistant/#\ntopic read homeassistant/status\n" in rules
    assert "topic write dens/1/home/north/#\n" in rules
    assert "user home\ntopic read homeassistant/#\ntopic read dens/1/home/#\n" in rules
