"""A subscription language that is installed as a package: from a plain client to a sensor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulator.site import REPOSITORY, Site, wait_for
from tests.node.app import App
from tests.node.clients import Sensor, running_watchdog

QUERY = "FROM patient WHERE pulse > 100.5 OR (heart_rate >= 90 AND east < 4)"


def install(package: Path, folder: Path) -> None:
    """Install a package into a folder, as beside a node, without asking anybody for others."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    built = folder.with_name("built")
    built.mkdir()
    for path in package.iterdir():
        if path.is_file():
            (built / path.name).write_bytes(path.read_bytes())  # its build leaves files there
    subprocess.run([*pip, "--no-build-isolation", "--target", str(folder), str(built)], check=True)


def test_an_installed_language_filters_at_the_sensor(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    install(REPOSITORY / "examples/where_language", plugins)
    paths = os.pathsep.join([str(plugins), *filter(None, [os.environ.get("PYTHONPATH")])])
    site = Site(tmp_path / "site")
    node = site.add_node("north", prefix=("env", f"PYTHONPATH={paths}"))
    password = site.add_subscriber("medic7")
    sensor = Sensor(tmp_path / "bed-1", node.add_device("bed-1"))
    with site, App(node.port, "medic7", password) as app:
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        refused = app.ask("medic7", "FROM patient WHERE pules > 100")
        assert (refused["ok"], refused["at"], refused["suggestions"]) == (False, 20, ["pulse"])
        reply = app.ask("medic7", QUERY)
        assert reply["ok"], reply
        assert reply["understood"] == (
            "FROM patient WHERE (heart_rate > 100.5 OR (heart_rate >= 90 AND east < 4))"
        )
        assert not reply["approximations"]
        with running_watchdog(sensor.config):
            sensor.wait_for_subscriptions()
            for rate in (80, 120, 95, 95, 101):
                sensor.emit(1, rate)
            wait_for("three notes", lambda: len(app.notes("medic7")) >= 3)
        assert [note["values"]["east"]["value"] for note in app.notes("medic7")] == [2, 3, 5]
        sensors = app.ask("medic7", '{"where": "device = \'bed-1\'", "name": "bed"}')
        assert (sensors["ok"], sensors["at"]) == (False, 1)
        listed = app.ask("medic7", "list")
        assert [each["words"] for each in listed["subscriptions"]] == [QUERY]
