"""The whole path on real processes, at the node's own server and behind Mosquitto.

Words in an app, a vector on a watchdog, a reading, a note with its reason; then everything that
must not pass: wrong names, others' topics, forged, replayed and truncated frames.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.notifications import shorten_hash
from denwatch.protocol import frames, notification
from denwatch.protocol.frames import encode_message
from denwatch.protocol.vectors import NotificationVector, Reading

from firmware_tests.runtimes import find_unix
from simulator.site import NodeProcess, Site, make_mosquitto, wait_for
from tests.node.app import App
from tests.node.clients import running_watchdog, write_patients

FEVER = [{"patient_temperature": 36.8, "heart_rate": 80.0}] * 20
FEVER += [{"patient_temperature": 40.5, "heart_rate": 130.0}] * 5
WORDS = "patient_temperature is very high and heart_rate is not normal"


@dataclass
class Place:
    """Where clients connect: the node itself, or the broker that it is attached to."""

    node: NodeProcess
    port: int
    has_names: bool
    passwords: dict[str, str]
    devices: dict[str, dict[str, Any]]

    def app(self, name: str, **options: Any) -> App:
        password = self.passwords.get(name, "") if self.has_names else ""
        return App(self.port, name if self.has_names else "", password, **options)

    def read_status(self, app: App) -> dict[str, Any]:
        """Return a status that was made after this was called."""
        topic = f"dens/1/status/{self.node.name}"
        before = len(app.find(topic))
        wait_for("two statuses", lambda: len(app.find(topic)) >= before + 2)
        found: dict[str, Any] = json.loads(app.find(topic)[-1])
        return found


@pytest.fixture(scope="module", params=["own server", "mosquitto"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    with ExitStack() as stack:
        site = Site(folder)
        node = site.add_node("north")
        port = node.port
        if request.param == "mosquitto":
            broker = make_mosquitto(folder)
            stack.callback(broker.kill)
            broker.start()
            port = broker.port
            node.arguments = ("--broker", f"mqtt://127.0.0.1:{port}")
        passwords = {name: node.add_subscriber(name) for name in ("medic7", "medic8", "watcher")}
        passwords["clerk"] = node.add_subscriber("clerk", "observer")
        names = ("bed-1", "bed-2", "forger", "quiet", "erased")
        devices = {name: node.add_device(name) for name in names}
        for device in devices.values():
            device["nodes"][0]["url"] = f"mqtt://127.0.0.1:{port}"
        stack.enter_context(site)
        yield Place(node, port, request.param == "own server", passwords, devices)


class Radio:
    """A device made of raw frames: sends what a test wants, right or wrong."""

    def __init__(self, place: Place, name: str) -> None:
        entry = place.devices[name]["nodes"][0]
        self.name = name
        self.link = frames.Link(name, entry["name"], entry["key_id"], bytes.fromhex(entry["key"]))
        place.passwords[name] = entry["password"]
        self.app = place.app(name, client_id=f"radio-{name}")
        self.app.wait()
        self.topic = f"dens/1/wd/{name}/"
        self.answer = frames.HelloAnswer(1, 0, 0)
        self.app.subscribe(self.topic + "sv", self.topic + "ack")

    def hello(self, epoch: int, counter: int = 1) -> None:
        self.send_hello(epoch, counter)
        wait_for("the answer to a hello", lambda: self.find_answer([epoch, counter]))

    def send_hello(self, epoch: int, counter: int) -> None:
        vocabulary = load_shipped("rescue")
        number = vocabulary.events["patient"].number
        body = encode_message(
            "hello",
            {
                "device": self.name,
                "epoch": epoch,
                "vocabulary": shorten_hash(vocabulary),
                "senses": {number: [3, 0]},
                "capacity": 4096,
                "languages": [0],
            },
        )
        frame = frames.Frame(frames.MESSAGE, epoch, counter, body)
        self.app.publish(self.topic + "hello", frames.seal(self.link, frames.UP, frame))

    def find_answer(self, hello: list[int]) -> bool:
        """Note the answer to a hello, if it has come."""
        for message in self.app.find(self.topic + "ack"):
            frame = frames.open_frame(self.link, frames.DOWN, message)
            if frames.decode_message(frame.body)[1].get("hello") == hello:
                self.answer = frames.HelloAnswer(hello[0], frame.epoch, frame.sequence)
                return True
        return False

    def make_frame(self, epoch: int, sequence: int, link: frames.Link | None = None) -> bytes:
        number = load_shipped("rescue").events["patient"].number
        readings = [Reading(0, (200,) * 4), Reading(1, (180,) * 4)]
        note = NotificationVector(number, readings, sequence & 0xFFFF, 0)
        batch = frames.DeviceBatch(epoch, sequence, [notification.encode(note)])
        frame = frames.pack_batch(batch, self.answer.device_epoch, sequence)
        return frames.seal(link or self.link, frames.UP, frame, self.answer)

    def send(self, payload: bytes) -> None:
        self.app.publish(self.topic + "nv", payload)


def test_words_reach_a_sensor_on_micropython_and_its_reading_comes_back(
    place: Place, tmp_path: Path
) -> None:
    with place.app("medic7") as app:
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        reply = app.ask("medic7", WORDS)
        assert reply["ok"], reply
        config = write_patients(tmp_path / "bed-1", place.devices["bed-1"], [*FEVER])
        with running_watchdog(config, find_unix(32)):
            notes = wait_for(
                "five notes", lambda: len(app.notes("medic7")) >= 5 and app.notes("medic7")
            )
        assert len({note["id"] for note in notes}) == 5
        for note in notes:
            assert note["event"] == "patient"
            assert note["device"] == "bed-1"
            assert note["degree"] == 1.0
            assert note["values"]["patient_temperature"] == {"value": 40.5, "unit": "°C"}
            assert note["why"]["attribute"] in ("patient_temperature", "heart_rate")
        assert app.ask("medic7", f"unsubscribe {reply['id']}")["removed"] == [reply["id"]]


def test_plain_mosquitto_clients_are_a_rescue_app(place: Place) -> None:
    account = ["-p", str(place.port)]
    if place.has_names:
        account += ["-u", "medic8", "-P", place.passwords["medic8"]]
    listening = subprocess.Popen(
        ["mosquitto_sub", *account, "-q", "1", "-C", "2", "-t", "dens/1/reply/medic8"],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)
    for words in ("heart_rate above 150 bpm", "hart_rate above 150 bpm"):
        topic = ["-q", "1", "-t", "dens/1/sub/medic8", "-m", words]
        subprocess.run(["mosquitto_pub", *account, *topic], check=True)
    told, _ = listening.communicate(timeout=30)
    good, bad = map(json.loads, told.splitlines())
    assert good["ok"]
    assert good["understood"] == "heart_rate at least 151 bpm"
    assert not bad["ok"]
    assert bad["at"] == 1
    assert "heart_rate" in bad["suggestions"]


def test_a_role_that_may_not_see_patients_is_told_so(place: Place) -> None:
    with place.app("clerk") as app:
        app.subscribe("dens/1/reply/clerk")
        reply = app.ask("clerk", "heart_rate above 150 bpm")
        assert not reply["ok"]
        assert "role observer may not see patient" in reply["error"]


def test_wrong_frames_are_refused_counted_and_change_nothing(place: Place) -> None:
    with place.app("watcher") as app:
        app.subscribe("dens/1/status/north", "dens/1/note/watcher", "dens/1/reply/watcher")
        assert app.ask("watcher", "heart_rate above 100 bpm, named watch")["ok"]
        radio = Radio(place, "forger")
        radio.hello(1)
        radio.send(radio.make_frame(1, 1))
        wait_for("the good note", lambda: _list_forger(app))

        good = radio.make_frame(1, 2)
        strange = frames.Link("forger", "north", radio.link.key_id, bytes(range(1, 33)))
        unknown = frames.Link("forger", "north", 999, bytes(range(1, 33)))
        wrong = {
            "forged": radio.make_frame(1, 2, strange),
            "unknown key": radio.make_frame(1, 2, unknown),
            "truncated": good[:-3],
            "bit flipped": good[:12] + bytes([good[12] ^ 1]) + good[13:],
            "turned around": frames.seal(
                radio.link, frames.DOWN, frames.Frame(frames.MESSAGE, 1, 2, b"")
            ),
            "empty": b"",
        }
        before = place.read_status(app)
        for payload in wrong.values():
            radio.send(payload)
        radio.send(radio.make_frame(1, 1))  # replayed: acknowledged again, taken never again
        after = place.read_status(app)
        refused = _sum(after["counts"], "device_refused") - _sum(before["counts"], "device_refused")
        assert refused == len(wrong)
        assert after["notifications"] == before["notifications"]
        assert after["counts"]["device_notes"] == before["counts"]["device_notes"]
        assert len(_list_forger(app)) == 1
        radio.send(good)  # the true one still passes
        wait_for("the second note", lambda: len(_list_forger(app)) == 2)
        assert app.ask("watcher", "unsubscribe watch")["ok"]
        radio.app.close()


def _list_forger(app: App) -> list[dict[str, Any]]:
    """Return the notes of this test; readings of a moment ago match a new subscription, too."""
    return [note for note in app.notes("watcher") if note["device"] == "forger"]


def _sum(counts: dict[str, int], name: str) -> int:
    return sum(count for key, count in counts.items() if key.partition(".")[0] == name)


def test_strangers_and_others_topics_are_refused(place: Place) -> None:
    if not place.has_names:
        pytest.skip("behind a broker, names and topics are the broker's (denwatch keys acl)")
    assert App(place.port, "medic7", "wrong").wait().refused
    assert App(place.port, "nobody", "x").wait().refused
    assert App(place.port).wait().refused
    with place.app("medic8", client_id="nosy") as app:
        assert app.subscribe("dens/1/note/medic7", "dens/1/#", "#") == [128, 128, 128]
        assert not app.publish("dens/1/sub/medic7", "heart_rate above 1 bpm")
    with place.app("medic7", client_id="other") as app:
        app.subscribe("dens/1/reply/medic7")
        listed = app.ask("medic7", "list")
        assert all(entry["words"] != "heart_rate above 1 bpm" for entry in listed["subscriptions"])


def test_a_device_that_is_revoked_is_out_at_once(place: Place) -> None:
    radio = Radio(place, "quiet")
    with place.app("watcher", client_id="revoking") as app:
        app.subscribe("dens/1/status/north")
        before = place.read_status(app)["counts"].get("device_notes", 0)
        radio.hello(1)
        radio.send(radio.make_frame(1, 1))
        assert place.read_status(app)["counts"]["device_notes"] == before + 1
        place.node.keys("revoke", "quiet")
        place.read_status(app)
        radio.send(radio.make_frame(1, 2))
        assert place.read_status(app)["counts"]["device_notes"] == before + 1
    radio.app.close()


def test_a_device_that_begins_anew_is_refused_in_words_until_it_is_forgotten(place: Place) -> None:
    """Its board was erased, and is none that takes the node's hint of its last number."""
    radio = Radio(place, "erased")
    radio.hello(5)
    old = radio.make_frame(5, 1)
    with place.app("watcher", client_id="forgetting") as app:
        app.subscribe("dens/1/status/north")
        radio.send_hello(1, 1)

        def find_refused() -> list[dict[str, Any]]:
            refused = place.read_status(app)["refused"]
            return [each for each in refused if each["who"] == "erased"]

        wait_for("the refusal in the status", find_refused)
        (refused,) = find_refused()
        assert refused["what"] == "hello"
        assert refused["why"] == "replay: hello (1, 1) is not after the last one"
        assert f"refused erased, hello: {refused['why']}" in place.node.journal
        place.node.keys("forget", "erased")
        wait_for("that it is forgotten", lambda: "erased begins anew" in place.node.journal)
        radio.app.close()
        radio = Radio(place, "erased")
        before = place.read_status(app)["counts"].get("device_notes", 0)
        radio.hello(1, 2)
        radio.send(old)  # recorded before: bound to an answer that is not the last
        assert place.read_status(app)["counts"].get("device_notes", 0) == before
        radio.send(radio.make_frame(1, 1))
        assert place.read_status(app)["counts"]["device_notes"] == before + 1
    radio.app.close()
