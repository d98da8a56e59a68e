"""Uncertain readings through real processes: a sensor with an accuracy, a node, a plain client.

Each case once lost readings, judged them wrongly, or filled the sensor with subscriptions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.site import Site, wait_for
from tests.node.app import App
from tests.node.clients import Sensor, running_watchdog, write_patients

ACCURACY = {"heart_rate": 20, "patient_temperature": 0.8}
_SCALE = 100  # steps of the replayed sensor in one unit


class DoubtfulSensor(Sensor):
    """A watchdog whose pulse and temperature are accurate to so much."""

    def __init__(self, folder: Path, device: dict[str, Any]) -> None:
        self.config = write_patients(folder, device, [dict.fromkeys(ACCURACY, 30.0)])
        config = json.loads(self.config.read_text(encoding="utf-8"))
        for name, channel in zip(ACCURACY, config["events"][0]["channels"], strict=True):
            channel |= {"typical": 0, "worst": round(ACCURACY[name] * _SCALE)}
        self.config.write_text(json.dumps(config), encoding="utf-8")
        self._path = folder / "readings.csv"

    def read(self, heart_rate: float, temperature: float) -> None:
        """Let it read one patient."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{heart_rate},{temperature}\n")


Watched = tuple[App, DoubtfulSensor]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Return somebody who asks, and the sensor."""
    folder = tmp_path_factory.mktemp("doubt")
    site = Site(folder)
    node = site.add_node("north")
    password = site.add_subscriber("medic7")
    sensor = DoubtfulSensor(folder / "bed-1", node.add_device("bed-1"))
    with site, App(node.port, "medic7", password) as app, running_watchdog(sensor.config):
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        yield app, sensor


def ask(watched: Watched, *requests: str, installed: int) -> None:
    """Subscribe instead of what was subscribed before; wait until the sensor has so many."""
    app, sensor = watched
    for each in app.ask("medic7", "list")["subscriptions"]:
        assert app.ask("medic7", json.dumps({"unsubscribe": each["id"]}))["ok"]
    sensor.wait_for_subscriptions(0)
    app.messages.clear()
    for request in requests:
        reply = app.ask("medic7", request)
        assert reply["ok"], reply
    sensor.wait_for_subscriptions(installed)


def read(watched: Watched, heart_rate: float = 30, temperature: float = 30) -> dict[str, Any]:
    """Return the notification of one reading."""
    app, sensor = watched
    before = len(app.notes("medic7"))
    sensor.read(heart_rate, temperature)
    wait_for("a notification", lambda: len(app.notes("medic7")) > before)
    return app.notes("medic7")[before]


def test_who_asks_for_certainty_covers_nobody_who_does_not(watched: Watched) -> None:
    ask(watched, "heart_rate above 90, certain 0.9", "heart_rate above 100", installed=2)
    for _ in range(5):
        assert read(watched, heart_rate=101)["possible"] == 1


def test_a_higher_threshold_covers_no_lower_one(watched: Watched) -> None:
    high = "patient_temperature above 38, at least 0.95"
    ask(watched, high, "patient_temperature above 38.2, at least 0.4", installed=2)
    assert 0.4 <= read(watched, temperature=37.9)["possible"] < 0.95


def test_covering_goes_on_where_readings_are_uncertain(watched: Watched) -> None:
    options = ("", ", at least 0.7", ", certain 0.9")
    requests = [f"heart_rate above {90 + k // 3}{options[k % 3]}" for k in range(42)]
    ask(watched, *requests, installed=1)
    assert read(watched, heart_rate=85)["possible"] == pytest.approx(0.7, abs=0.01)  # of 91


def test_typed_content_is_installed_and_sees_what_is_possible(watched: Watched) -> None:
    content = {"content": [["event", "=", "patient"], ["heart_rate", ">", 100]]}
    ask(watched, json.dumps(content), installed=1)
    note = read(watched, heart_rate=95)
    assert 0.5 <= note["possible"] < 1
    assert note["certain"] == 0


def test_alternatives_over_one_attribute_are_judged_together(watched: Watched) -> None:
    ask(watched, "heart_rate at most 100 or heart_rate at least 101, certain 0.9", installed=1)
    assert read(watched, heart_rate=100)["certain"] == 1
