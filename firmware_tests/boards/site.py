"""A whole path for an emulated board: serial port, `denwatch bridge`, a real node, a subscriber.

All but the board are the commands that people use, as processes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from denwatch.cli import device, keys
from denwatch.cli import node as node_command

from firmware_tests.boards.emulator import BoardModel, EmulatedBoard
from firmware_tests.runtimes import REPOSITORY

# A converter that goes through its whole range in about 16 readings.
_SENSE = "patient_temperature from adc on pin 4 with 25 °C at 0 and 50.5 °C at 65535 every 1 s"
_WANTED = "patient_temperature is very high"
_LIMIT = 900.0  # seconds, on a loaded machine


def run_watchdog(model: BoardModel, folder: Path, count: int) -> tuple[list[float], dict[str, Any]]:
    """Run a board until a subscriber has got so many notifications.

    Returns the temperatures that arrived and the board's last report.
    """
    site = BoardSite(folder)
    try:
        with EmulatedBoard(model) as board:
            board.exec("import machine; machine.mount()")
            board.put("watchdog.json", json.dumps(site.write_config()).encode())
            board.exec("from denwatch.watchdog.boot import main")
            board.start("main('watchdog.json', 5)")
            site.start_bridge(board.port)
            notes = site.subscribe(count)
            report = site.wait_for_report(count)
    finally:
        site.close()
    return [note["values"]["patient_temperature"]["value"] for note in notes], report


class BoardSite:
    """A node with a subscriber and a device, and a bridge."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        node = folder / "north"
        site = ["--directory", str(node)]
        medic = ["add", "subscriber", "medic7", "--role", "medic"]
        node_command.run(["--init", str(node), "--name", "north", "--listen", "mqtt://127.0.0.1:0"])
        keys.run([*site, "add", "device", "dog-1"])
        keys.run([*site, *medic, "--output", str(folder / "medic7.key")])
        self._start("node", str(node / "node.toml"))
        self._url = "mqtt://" + self._wait("node", r"ready on mqtt://(\S+)")
        self._key = folder / "dog-1.json"
        show = ["show", "dog-1", "--secrets", "--output", str(self._key), "--url", self._url]
        keys.run([*site, *show])

    def write_config(self) -> dict[str, Any]:
        """Return the device's configuration, for a link over its serial port."""
        path = self._folder / "watchdog.json"
        where = ["--radio", "serial:0", "--spool", "file:spool.bin:8", "--output", str(path)]
        device.run(["config", "--key", str(self._key), "--sense", _SENSE, *where])
        config: dict[str, Any] = json.loads(path.read_text())
        return config | {"clock": False, "capacity": 2048}

    def start_bridge(self, port: str) -> None:
        """Bridge a board's serial port."""
        self._start("bridge", "--serial", port, str(self._key))

    def subscribe(self, count: int) -> list[dict[str, Any]]:
        """Subscribe, and return so many notifications."""
        self._start(
            "subscribe",
            *(_WANTED, "--as", "medic7", "--node", self._url, "--json", "--count", str(count)),
            *("--password-file", str(self._folder / "medic7.key"), "--timeout", "60"),
            *("--store", str(self._folder / "medic7.db"), "--for", str(_LIMIT)),
        )
        try:
            status = self._processes[-1].wait(_LIMIT + 60)
        except subprocess.TimeoutExpired:
            status = -1
        if status:
            raise RuntimeError(self.describe())
        lines = [
            json.loads(line) for line in self._read("subscribe").splitlines() if line[:1] == "{"
        ]
        return [line for line in lines if "values" in line]

    def wait_for_report(self, count: int) -> dict[str, Any]:
        """Return a report of the board, once the node has acknowledged so many notifications."""
        deadline = time.monotonic() + _LIMIT
        while time.monotonic() < deadline:
            for text in reversed(re.findall(r'(\{"epoch".*\})\r?\n', self._read("bridge"))):
                report: dict[str, Any] = json.loads(text)
                if report["matched"] >= count and report["uplink"]["acknowledged"]:
                    return report
            time.sleep(0.5)
        raise RuntimeError(self.describe())

    def describe(self) -> str:
        """Return what the processes said last."""
        names = ("node", "bridge", "subscribe")
        return "\n".join(f"{name}: {self._read(name)[-2000:]}" for name in names)

    def close(self) -> None:
        """End everything."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "denwatch.cli", name, *arguments]
            self._processes.append(
                subprocess.Popen(
                    command, cwd=REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            )

    def _read(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _wait(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + _LIMIT
        while time.monotonic() < deadline:
            found = re.search(pattern, self._read(name))
            if found:
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(self.describe())
