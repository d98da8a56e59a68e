"""TLS with the certificates that `denwatch node --init` makes: who gets in, and who does not.

Two nodes that are peers over TLS; the subscriber library, Mosquitto's clients and a watchdog on
MicroPython at the first one. It also listens on an address that its certificate is not for.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import ConnectionState

from firmware_tests.runtimes import find_unix
from simulator.site import NodeProcess, Site, find_free_port, run_denwatch, wait_for
from tests.node.app import App
from tests.node.clients import Person, Sensor, running_watchdog

pytestmark = pytest.mark.xdist_group("tls")  # one pair of nodes for all

WORDS = "east between 1 and 60000 m, event patient"
COUNTS = ("connects", "connects_refused")
NOT_TRUSTED = "its certificate is not trusted"


@dataclass
class Place:
    """Two nodes, and the files of two authorities: the site's and somebody else's."""

    folder: Path
    north: NodeProcess
    south: NodeProcess
    stray: str  # where the first one listens, too, without a certificate for it
    ca: Path
    other_ca: Path
    passwords: dict[str, str]
    devices: dict[str, dict[str, Any]]
    watcher: App

    def count(self, what: str) -> int:
        """Return how often something happened at the first node's server, as it says from now."""
        topic = f"$SYS/broker/counts/{what}"
        before = len(self.watcher.find(topic))
        wait_for("two reports", lambda: len(self.watcher.find(topic)) >= before + 2)
        return int(self.watcher.find(topic)[-1])

    def wait_for_peers(self, names: list[str]) -> None:
        """Wait until these are the peers of the first node."""
        topic = "dens/1/status/north"
        wait_for(
            f"{names} to be the peers",
            lambda: (found := self.watcher.find(topic)) and json.loads(found[-1])["peers"] == names,
            60,
        )

    def person(self, name: str, url: str, ca: Path) -> Person:
        folder = self.folder / f"{name}-{ca.parents[1].name}-{url[-5:]}"
        folder.mkdir()
        return Person(name, self.passwords[name], url, folder, ca)

    def device(self, name: str, url: str, ca: Path) -> dict[str, Any]:
        """Return a device's part of watchdog.json, with the authority in the form of boards."""
        entry = self.devices[name]["nodes"][0]
        assert entry["ca"] == "ca.der"
        return {"device": name, "nodes": [{**entry, "url": url, "ca": str(ca.with_suffix(".der"))}]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("tls")
    stray = f"mqtts://127.0.0.2:{find_free_port()}"
    with ExitStack() as stack:
        site = Site(folder)
        north = site.add_node("north", "--listen", stray, url="mqtts://127.0.0.1")
        south = site.add_node("south", url="mqtts://127.0.0.1")
        run_denwatch("node", "--init", str(folder / "foreign"), "--name", "foreign")
        passwords = {name: site.add_subscriber(name) for name in ("medic7", "medic8", "watcher")}
        devices = {name: north.add_device(name) for name in ("bed-1", "bed-2", "bed-3")}
        stack.enter_context(site)
        ca, other = (folder / name / "tls" / "ca.pem" for name in ("north", "foreign"))
        watcher = App(north.port, "watcher", passwords["watcher"], "watch", str(ca))
        stack.enter_context(watcher)
        watcher.subscribe("dens/1/status/north", *(f"$SYS/broker/counts/{c}" for c in COUNTS))
        yield Place(folder, north, south, stray, ca, other, passwords, devices, watcher)


def test_library_watchdog_on_micropython_and_peers_verify_each_other(place: Place) -> None:
    device = place.device("bed-1", place.north.url, place.ca)
    sensor = Sensor(place.folder / "bed-1", device)
    with (
        place.person("medic7", place.north.url, place.ca) as near,
        place.person("medic8", place.south.url, place.ca) as far,
        running_watchdog(sensor.config, find_unix(32)),
    ):
        near.subscriber.subscribe(WORDS, name="near", timeout=60)
        far.subscriber.subscribe(WORDS, name="far", timeout=60)
        with App(
            place.north.port, "medic8", place.passwords["medic8"], "look", str(place.ca)
        ) as app:
            app.subscribe("dens/1/reply/medic8")
            wait_for("the other node's news", lambda: app.ask("medic8", "list")["subscriptions"])
        sensor.wait_for_subscriptions()
        numbers = sensor.emit(3)
        near.expect(numbers)
        far.expect(numbers)
        near.subscriber.unsubscribe("near")
        far.subscriber.unsubscribe("far")


def test_mosquittos_clients_get_in_with_the_authoritys_certificate(place: Place) -> None:
    account = ["-p", str(place.north.port), "-u", "watcher", "-P", place.passwords["watcher"]]
    account += ["--cafile", str(place.ca), "-q", "1"]
    listening = subprocess.Popen(
        ["mosquitto_sub", *account, "-C", "1", "-W", "30", "-t", "dens/1/status/north"],
        stdout=subprocess.PIPE,
        text=True,
    )
    told, _ = listening.communicate(timeout=60)
    assert json.loads(told)["node"] == "north"
    message = ["-t", "dens/1/sub/watcher", "-m", "heart_rate above 150 bpm, named pulse"]
    subprocess.run(["mosquitto_pub", *account, *message], check=True, timeout=60)
    with App(place.north.port, "watcher", place.passwords["watcher"], ca=str(place.ca)) as app:
        app.subscribe("dens/1/reply/watcher")
        names = [entry["name"] for entry in app.ask("watcher", "list")["subscriptions"]]
        assert names == ["pulse"]


@pytest.mark.parametrize("mistake", ["another authority", "another host"])
def test_who_cannot_verify_the_node_tells_it_nothing(place: Place, mistake: str) -> None:
    url, ca = (
        (place.north.url, place.other_ca)
        if mistake == "another authority"
        else (place.stray, place.ca)
    )
    host, _, port = url.removeprefix("mqtts://").partition(":")
    before = [place.count(what) for what in COUNTS]

    with place.person("medic7", url, ca) as person:
        wait_for("the library's refusal", lambda: NOT_TRUSTED in person.subscriber.status.reason)
        assert person.subscriber.status.state is not ConnectionState.ONLINE

    account = ["-h", host, "-p", port, "-u", "medic7", "-P", place.passwords["medic7"]]
    message = ["--cafile", str(ca), "-q", "1", "-t", "dens/1/sub/medic7", "-m", "list"]
    done = subprocess.run(
        ["mosquitto_pub", *account, *message], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "TLS error" in done.stderr

    name = "bed-2" if mistake == "another authority" else "bed-3"
    sensor = Sensor(place.folder / name, place.device(name, url, ca))
    with running_watchdog(sensor.config, find_unix(32)):
        report = wait_for(
            "the watchdog's attempts",
            lambda: (found := sensor.read_report()).get("link", {}).get("failed", 0) and found,
            60,
        )
    assert report["link"]["connected"] == 0
    assert [place.count(what) for what in COUNTS] == before


def test_plain_text_at_the_port_of_tls_gets_no_answer(place: Place) -> None:
    connect = bytes.fromhex("101000044d5154540402003c000474657374")
    with closing(socket.create_connection(("127.0.0.1", place.north.port), 10)) as plain:
        plain.sendall(connect)
        told = b""
        try:
            while piece := plain.recv(4096):
                told += piece
        except ConnectionResetError:
            pass
    assert not told.startswith(b"\x20"), "a CONNACK"
    place.north.check_running()


def test_a_node_does_not_talk_to_a_peer_that_it_cannot_verify(place: Place) -> None:
    right, wrong = 'ca = "tls/ca.pem"', f"ca = {json.dumps(str(place.other_ca))}"
    place.wait_for_peers(["south"])
    place.south.stop()
    place.south.configure((right, wrong))
    place.south.start()
    wait_for("its trouble", lambda: "certificate verify failed" in place.south.journal)
    place.wait_for_peers([])
    place.south.stop()
    place.south.configure((wrong, right))
    place.south.start()
    place.wait_for_peers(["south"])
