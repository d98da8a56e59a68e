"""A site for the console's tests: two real nodes with a link that can be cut, and devices."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denwatch.client.publisher import Publisher, PublisherError, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped

from demo.bridges import Bridges
from firmware_tests.runtimes import find_unix
from simulator.site import (
    ENVIRONMENT,
    READY,
    REPOSITORY,
    NodeProcess,
    Site,
    find_free_ports,
    wait_for,
)
from tests.node.clients import running_watchdog, write_patients

PEOPLE = ("medic7", "medic8")
SENSED = ("patient_temperature", "heart_rate", "oxygen_saturation", "east", "north")
BETWEEN, BESIDE = "between the nodes", "to the console"
RESCUE = load_shipped("rescue")
_CONSOLE = "import sys; from denwatch.cli.console import run; sys.exit(run(sys.argv[1:]))"


@dataclass
class World:
    """Nodes north and south, people, devices; `bridges` cut what is between."""

    folder: Path
    north: NodeProcess
    south: NodeProcess
    bridges: Bridges
    beside: int  # the port of a bridge to north
    passwords: dict[str, str]
    devices: Mapping[str, Mapping[str, Any]]
    _publishers: dict[str, Publisher] = field(default_factory=dict)

    def publish(self, device: str, words: str) -> None:
        """Send a reading as a device at north."""
        reading = parse_reading(f"patient {words}", RESCUE)
        if device in self._publishers:
            try:
                self._publishers[device].publish([reading])
                return
            except PublisherError:  # it was silent for too long: nobody polls it meanwhile
                self._publishers.pop(device).close()
        path = self.folder / f"{device}.json"
        path.write_text(json.dumps(self.devices[device]), encoding="utf-8")
        event = RESCUE.events["patient"]
        sensed = [event.attributes[name] for name in SENSED]
        features = sum(1 << attribute.bit for attribute in sensed)
        wides = sum(1 << attribute.bit for attribute in sensed if attribute.wide)
        publisher = Publisher(read_key(path), RESCUE, {event.number: (features, wides)})
        publisher.connect()
        self._publishers[device] = publisher
        publisher.publish([reading])

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()


@contextlib.contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """Run two nodes; south calls north over a bridge."""
    with contextlib.ExitStack() as stack:
        bridges = Bridges()
        stack.callback(bridges.close)
        between, beside = find_free_ports(2)
        site = Site(folder)
        north = site.add_node("north")
        bridges.add(BETWEEN, between, north.port)
        bridges.add(BESIDE, beside, north.port)
        passwords = {name: site.add_subscriber(name) for name in PEOPLE}
        names = ("bed-1", "bed-2", "bed-3", "bed-4")
        devices = {name: north.add_device(name) for name in names}
        via = f"mqtt://127.0.0.1:{between}"
        south = site.add_node("south", via=via, addresses=["127.0.0.1"])
        stack.enter_context(site)
        world = World(folder, north, south, bridges, beside, passwords, devices)
        stack.callback(world.close)
        yield world


class Ward:
    """A watchdog on MicroPython at a bed: a test writes what it reads."""

    def __init__(self, folder: Path, device: Mapping[str, Any]) -> None:
        self.names = ("patient_temperature", "heart_rate", "east", "north")
        quiet = dict.fromkeys(self.names, 0.0) | {"patient_temperature": 36.8, "heart_rate": 80.0}
        self._config = write_patients(folder, device, [quiet])
        self._readings = folder / "readings.csv"

    def running(self) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        """Run it."""
        return running_watchdog(self._config, find_unix(64))

    def read(self, *values: float) -> None:
        """Let it read temperature, heart rate, east and north."""
        with self._readings.open("a", encoding="utf-8") as file:
            file.write(",".join(f"{value:.2f}" for value in values) + "\n")

    def wait_for_subscription(self) -> None:
        """Wait until it has been told what to look for."""
        log = self._config.parent / "watchdog.log"

        def is_told() -> bool:
            for line in reversed(log.read_text(encoding="utf-8").splitlines()):
                with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line, no report
                    return int(json.loads(line)["subscriptions"]["added"]) > 0
            return False

        wait_for("a subscription at the bed", is_told, 60)


@contextlib.contextmanager
def running_console(folder: Path, *words: str) -> Iterator[str]:
    """Run a console; yield the address that it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / "console.txt"
    command = [sys.executable, "-c", _CONSOLE, "--listen", "127.0.0.1:0"]
    command += ["--store", str(folder / "store"), *words]
    with journal.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=REPOSITORY, env=ENVIRONMENT
        )

    def find_address() -> str:
        told = journal.read_text(encoding="utf-8")
        assert process.poll() is None, f"the console ended:\n{told}"
        found = re.search(r"is at (\S+)\n", told)
        return found[1] if found else ""

    try:
        yield wait_for("the console", find_address, READY)
    finally:
        process.terminate()
        try:
            status = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    assert (status, find_end(journal)) == (0, "stopped; subscriptions stay")


def find_end(journal: Path) -> str:
    """Return the last line that a console wrote: whatever went wrong would stand behind it."""
    return journal.read_text(encoding="utf-8").splitlines()[-1]


def write_password(folder: Path, password: str) -> Path:
    """Write a password as the console reads it."""
    path = folder / "password"
    path.touch(0o600)
    path.write_text(password, encoding="utf-8")
    return path
