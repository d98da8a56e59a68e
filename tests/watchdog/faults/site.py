"""Real processes for a fault: Mosquitto, the small node, a watchdog, a network between them.

A reading is a line of a CSV file that the watchdog follows; its number is the value, so that the
node's database tells which readings arrived, and how often.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from benchmarks.small_node import DEVICE, KEY_ID, NODE, SECRET, TOPIC
from firmware_tests.runtimes import MissingRuntimeError, find_library, find_unix
from simulator.site import (
    REPOSITORY,
    ServerProcess,
    SiteError,
    find_mosquitto,
    make_mosquitto,
    wait_for,
)
from tests.watchdog.faults.proxy import Proxy

_RUN = "from denwatch.watchdog.app import main; main({config!r}, 0.2)"


def require_mosquitto() -> None:
    """Skip the test where there is no Mosquitto; CI must have one."""
    try:
        find_mosquitto()
    except SiteError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


class WatchdogSite:
    """A broker, the small node behind it, and a watchdog that reaches it over a bad network."""

    def __init__(
        self, folder: Path, runtime: str = "cpython", blocks: int = 16, broker_options: str = ""
    ) -> None:
        self.folder = folder
        self.runtime = runtime
        require_mosquitto()
        broker = make_mosquitto(folder, broker_options)
        self.port = broker.port
        self.processes = {"broker": broker}
        self.sent: list[int] = []
        self.files = 0
        self.subscriptions = folder / "subscriptions"
        self.subscribe(0)
        self.tls_port = 0
        self.start_broker()
        self.proxy = Proxy(self.port)
        self.config: dict[str, object] = {
            "device": DEVICE,
            "vocabulary": "00" * 8,
            "nodes": [
                {
                    "name": NODE,
                    "url": f"mqtt://127.0.0.1:{self.proxy.port}",
                    "key_id": KEY_ID,
                    "key": SECRET.hex(),
                }
            ],
            "spool": {"file": str(folder / "spool"), "blocks": blocks},
            "capacity": 1024,
            "hold": 200,
            "patience": 700,
            "link": {"keep_alive": 2, "timeout": 2, "first_delay": 0, "longest_delay": 1},
        }
        self.new_readings()

    def subscribe(self, low: int, threshold: int = 1) -> None:
        """What the node asks for: values from `low`, with a slope below it."""
        predicate = Predicate(0, low, 65535, 0, wide=True)
        vector = encode(SubscriptionVector(1, [predicate], threshold=threshold, handle=1))
        self.subscriptions.write_text(vector.hex())

    # Processes

    def start(self, name: str, command: list[str]) -> None:
        path = {"MICROPYPATH": f"{find_library()}:{REPOSITORY}:.frozen"}
        log = self.folder / f"{name}.log"
        self.processes[name] = ServerProcess(name, command, log, environment=path)
        self.processes[name].launch()

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def start_broker(self) -> None:
        self.processes["broker"].start()

    def start_node(self) -> None:
        command = [sys.executable, "-m", "benchmarks.small_node"]
        files = [str(self.folder / "db"), str(self.subscriptions)]
        self.start("node", [*command, str(self.port), *files])

    def start_watchdog(self, program: str = _RUN) -> None:
        path = self.folder / "watchdog.json"
        path.write_text(json.dumps(self.config))
        code = program.format(config=str(path))
        interpreter = sys.executable
        if self.runtime == "micropython":
            try:
                interpreter = str(find_unix(64))
            except MissingRuntimeError as error:
                pytest.skip(str(error))
        self.start("watchdog", [interpreter, "-c", code])

    def stop_watchdog(self) -> None:
        self.processes["watchdog"].end(signal.SIGINT)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        self.proxy.close()

    # Readings

    def new_readings(self) -> None:
        """Start a new file: a watchdog that starts again shall not read the old one."""
        self.files += 1
        self.readings = self.folder / f"readings-{self.files}.csv"
        self.readings.write_text("value\n")
        self.config["sources"] = {
            "file": {"kind": "csv", "path": str(self.readings), "columns": ["value"], "scales": [1]}
        }
        channel = {"source": "file", "field": 0, "attribute": 0, "low": 0, "high": 65535}
        self.config["events"] = [{"event": 1, "period": 5, "channels": [{**channel, "wide": True}]}]

    def read(self, *values: int) -> None:
        self.sent += values
        with self.readings.open("a") as file:
            file.write("".join(f"{value}\n" for value in values))

    # What is known

    def report(self) -> dict[str, object]:
        """Return the watchdog's last report, empty if there is none."""
        lines = self.processes["watchdog"].journal.splitlines()
        for line in reversed(lines):
            if line.startswith("{") and line.endswith("}"):
                return dict(json.loads(line))
        return {}

    def count(self, part: str, name: str) -> int:
        """Return one of the watchdog's counters."""
        counts = self.report().get(part)
        return int(counts[name]) if isinstance(counts, dict) else 0

    def query(self, text: str) -> list[tuple[object, ...]]:
        if not (self.folder / "db").exists():
            return []
        database = sqlite3.connect(self.folder / "db", timeout=10)
        try:
            return database.execute(text).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            database.close()

    def values(self) -> list[int]:
        return [row[0] for row in self.query("select value from notes order by epoch, sequence")]  # type: ignore[misc]

    def wait_subscribed(self) -> None:
        """Wait until the watchdog that runs has what the node asks for."""
        wait_for(self.describe, lambda: self.count("uplink", "installed") > 0)

    def wait_delivered(self) -> None:
        wait_for(self.describe, lambda: set(self.values()) >= set(self.sent))

    def check(self) -> None:
        """Everything arrived, once, in the order in which it was read."""
        self.wait_delivered()
        assert self.values() == self.sent

    def describe(self) -> str:
        missing = sorted(set(self.sent) - set(self.values()))
        return f"{len(missing)} missing: {missing[:9]}; {self.report()}"


def publish(port: int, topic: str, payload: bytes, folder: Path) -> None:
    """Publish bytes as anybody on the broker could."""
    path = folder / "payload"
    path.write_bytes(payload)
    command = ["mosquitto_pub", "-p", str(port), "-q", "1", "-t", TOPIC + topic, "-f", str(path)]
    subprocess.run(command, check=True, timeout=30)
