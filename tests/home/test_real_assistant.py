"""A real Home Assistant at a real node: what it discovers, shows, and calls unavailable.

`make home-assistant` runs it. DENWATCH_HOME_ASSISTANT is the Python that has Home Assistant.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.site import REPOSITORY, Site, find_free_port, wait_for
from tests.home.test_node import DEVICE, USER

PYTHON = os.environ.get("DENWATCH_HOME_ASSISTANT", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs Home Assistant: make home-assistant")
DOGS = ("dog-1", "dog-2", "dog-3", "dog-4")
READINGS = (
    "gas carbon_monoxide=120 carbon_dioxide=800 oxygen=19 methane=0.1 hydrogen_sulfide=1 "
    "ammonia=4 air_temperature=21.5±1 detector=ok",
    "fire fire_temperature=100 smoke=20 heat_flux=1 burning=smouldering spread_rate=0.1 "
    "visibility=10 people_inside=2",
    "road access=open surface=dry water_depth=3 max_weight=10 traffic_speed=30 delay=5 "
    "visibility=100",
)
PATIENCE = 180.0


class RunningAssistant:
    """The process, asked for its entities."""

    def __init__(self, folder: Path, port: int, password: str) -> None:
        self._log = (folder / "assistant.txt").open("ab")
        command = [PYTHON, str(Path(__file__).with_name("assistant.py")), str(folder / "config")]
        self._process = subprocess.Popen(
            [*command, str(port), "home", password, str(find_free_port())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self) -> dict[str, Any]:
        """Return all entities, by their ids."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("entities: "):
                entities: dict[str, Any] = json.loads(line.removeprefix("entities: "))
                return entities
        raise AssertionError("Home Assistant ended; see assistant.txt")

    def wait(self, what: str, check: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the entities as soon as they are as they should be."""
        last: list[dict[str, Any]] = [{}]

        def look() -> bool:
            last[0] = self.ask()
            return bool(check(last[0]))

        def describe() -> str:
            return f"{what}: {json.dumps({key: e['state'] for key, e in last[0].items()})}"

        wait_for(describe, look, PATIENCE)
        return last[0]

    def stop(self) -> None:
        """End it in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0
        self._log.close()


class AssistantSite(Site):
    """A node, its devices, and Home Assistant."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.node = self.add_node("north")
        self.node.configure(
            ("enabled = false", "enabled = true"), (f'{USER}user = ""', f'{USER}user = "home"')
        )
        self.add_subscriber("home", "observer")
        self.keys = {name: self.add_device(name) for name in DOGS}
        self.devices: dict[str, subprocess.Popen[str]] = {}

    def start_device(self, name: str) -> None:
        """Let a device publish, and stay."""
        command = [sys.executable, "-c", DEVICE, str(self.keys[name]), *READINGS]
        device = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert device.stdout is not None
        assert device.stdout.readline() == "published\n"
        self.devices[name] = device

    def kill_device(self, name: str) -> None:
        """Cut its power."""
        device = self.devices.pop(name)
        device.kill()
        device.wait()

    def start_assistant(self) -> RunningAssistant:
        """Start Home Assistant with what it knew before."""
        (self.folder / "home").mkdir(exist_ok=True)
        return RunningAssistant(self.folder / "home", self.node.port, self.passwords["home"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AssistantSite]:
    with AssistantSite(tmp_path_factory.mktemp("assistant")) as site:
        for name in DOGS:
            site.start_device(name)
        yield site
        for name in list(site.devices):
            site.kill_device(name)


def count_known(entities: dict[str, Any], dog: str = "") -> int:
    """Return how many sensors of a device, or of all, have a value."""
    return sum(
        entity["state"] not in ("unknown", "unavailable")
        for key, entity in entities.items()
        if key.startswith("sensor.") and dog in (entity["device"], "")
    )


def test_what_home_assistant_shows(site: AssistantSite) -> None:
    """One long walk: each start of Home Assistant is expensive."""
    every = len(DOGS) * sum(len(words.split()) - 1 for words in READINGS)
    assert every > 64
    assistant = site.start_assistant()
    # All was published before it came: the first values are those that are sent again.
    seen = assistant.wait("a value of every sensor", lambda found: count_known(found) == every)
    monoxide = seen["sensor.dog_1_gas_carbon_monoxide"]
    assert float(monoxide["state"]) == 120
    assert monoxide["attributes"]["unit_of_measurement"] == "ppm"
    assert monoxide["attributes"]["device_class"] == "carbon_monoxide"
    assert monoxide["attributes"]["state_class"] == "measurement"
    assert (monoxide["digits"], monoxide["device"], monoxide["via"]) == (0, "dog-1", "north")
    doubtful = seen["sensor.dog_1_gas_air_temperature"]
    assert (float(doubtful["state"]), doubtful["digits"]) == (21.5, 1)
    assert float(doubtful["attributes"]["low"]) < 21.5 < float(doubtful["attributes"]["high"])
    assert seen["sensor.dog_1_gas_detector"]["state"] == "ok"
    assert seen["binary_sensor.north_connection"]["state"] == "on"
    print(json.dumps({key: seen[key] for key in sorted(seen) if "dog_1_gas_c" in key}, indent=1))

    site.kill_device("dog-2")
    seen = assistant.wait("dog-2 to go", lambda found: not count_known(found, "dog-2"))
    assert seen["sensor.dog_2_gas_oxygen"]["state"] == "unavailable"
    assert count_known(seen, "dog-1") == every // len(DOGS)
    site.start_device("dog-2")
    assistant.wait("dog-2 to be back", lambda found: count_known(found) == every)

    site.node.kill()
    assistant.wait("the node to go", lambda found: not count_known(found))
    for name in DOGS:  # these do not come back by themselves, as watchdogs do
        site.kill_device(name)
    site.node.start()
    seen = assistant.wait(
        "the node to be back without its devices",
        lambda found: found["binary_sensor.north_connection"]["state"] == "on",
    )
    assistant.wait("nobody's values to be shown", lambda found: not count_known(found))
    for name in DOGS:
        site.start_device(name)
    assistant.wait("the devices to be back", lambda found: count_known(found) == every)

    assistant.stop()
    assistant = site.start_assistant()
    seen = assistant.wait("the same after its restart", lambda found: count_known(found) == every)
    assert float(seen["sensor.dog_1_gas_carbon_monoxide"]["state"]) == 120
    assistant.stop()
    said = (site.folder / "home" / "assistant.txt").read_text(errors="replace")
    assert "Traceback" not in said, said
