"""Updates over the air, end to end: a real node, the command, and MicroPython as the board.

The board is `.mpy` files in a folder, started through its slots; a reset is the end of a process,
and the next one starts with the files that it left (`board/machine.py`).
"""

# cpython only: it starts processes

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli import device, keys
from denwatch.cli import node as node_command
from denwatch.cli.devices import images
from denwatch.cli.errors import CommandError

from firmware_tests.runtimes import REPOSITORY, find_unix
from firmware_tests.support import require
from simulator.site import READY, ServerProcess, wait_for

STAND_INS = REPOSITORY / "tests" / "watchdog" / "faults" / "board"
SENSE = "patient_temperature from ds18x20 on pin 4 every 1 s"


class FieldBoard:
    """A board whose power may be cut: started again whenever it resets."""

    def __init__(self, folder: Path, config: dict[str, Any], without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._interpreter = require(partial(find_unix, 64))
        library = folder / "lib"
        library.mkdir(parents=True)
        needless = images.list_needless(without)
        device.write_version(library, images.build_role("full", "x64", library, needless))
        (folder / "watchdog.json").write_text(json.dumps(config))
        (folder / "networks").write_text('["tent"]')
        self._code = "import slots; slots.run()"
        if "update" in without:
            self._code = "from denwatch.watchdog.boot import main; main()"
        self.boots = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        environment = {**os.environ, "MICROPYPATH": f"{STAND_INS}:lib:.frozen"}
        while not self._is_over:
            self.boots += 1
            with (self.folder / "output").open("ab") as output:
                self.process = subprocess.Popen(
                    [str(self._interpreter), "-X", "heapsize=400k", "-c", self._code],
                    cwd=self.folder,
                    env=environment,
                    stdout=output,
                    stderr=output,
                )
            self.process.wait()

    def cut_power(self) -> None:
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        self._is_over = True
        self.cut_power()
        self._thread.join()

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")


class UpdateSite:
    """A node, and boards that it updates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = folder / "north"
        node_command.run(
            ["--init", str(self.node), "--name", "north", "--listen", "mqtt://127.0.0.1:0"]
        )
        command = [sys.executable, "-m", "denwatch.cli", "node", str(self.node / "node.toml")]
        self.process = ServerProcess("node", command, folder / "node.log")
        self.boards: dict[str, FieldBoard] = {}
        self.process.launch()
        wait_for("the node", lambda: bool(self._find_port()), READY)

    def _find_port(self) -> str:
        found = re.search(r"ready on mqtt://127.0.0.1:(\d+)", self.process.journal)
        return found[1] if found else ""

    def add(self, name: str, **options: Any) -> FieldBoard:
        """Add a board that the node hears."""
        site = ["--directory", str(self.node)]
        keys.run([*site, "add", "device", name])
        key = self.folder / f"{name}.json"
        url = f"mqtt://127.0.0.1:{self._find_port()}"
        keys.run([*site, "show", name, "--secrets", "--output", str(key), "--url", url])
        output = self.folder / f"{name}.config"
        wifi = self.folder / "wifi.key"
        wifi.write_text("a password")
        wifi.chmod(0o600)
        network = ["--wifi", "tent", "--wifi-password-file", str(wifi)]
        arguments = ["--key", str(key), "--sense", SENSE, *network, "--output", str(output)]
        device.run(["config", *arguments])
        config = json.loads(output.read_text())
        config |= {"link": {"first_delay": 0, "longest_delay": 1}, "patience": 1000}
        self.boards[name] = FieldBoard(self.folder / name, config, **options)
        wait_for(self.describe, lambda: name in self.fleet())
        return self.boards[name]

    def fleet(self) -> dict[str, dict[str, Any]]:
        path = self.node / "updates" / "fleet.json"
        rows = json.loads(path.read_text()) if path.exists() else []
        return {row["device"]: row for row in rows}

    def update(self, *arguments: str) -> int:
        return device.run(["update", *arguments, "--directory", str(self.node)])

    def describe(self) -> str:
        said = [board.output[-1500:] for board in self.boards.values()]
        return f"{self.fleet()} {said} {self.process.journal[-800:]}"

    def close(self) -> None:
        for board in self.boards.values():
            board.close()
        self.process.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[UpdateSite]:
    site = UpdateSite(tmp_path)
    yield site
    site.close()


def test_a_device_is_updated_and_its_configuration_changed(
    site: UpdateSite, capsys: pytest.CaptureFixture[str]
) -> None:
    board = site.add("dog-1")
    before = site.fleet()["dog-1"]
    assert before["code"] == 1
    changes = site.folder / "changes.json"
    changes.write_text('{"capacity": 2048}')
    assert site.update("dog-1", "--changes", str(changes)) == 0, site.describe()
    shown = capsys.readouterr().out
    assert "rolling out" in shown
    assert re.search(r"dog-1: .*\d+ %", shown), shown
    assert shown.rstrip().endswith("dog-1: done")
    after = site.fleet()["dog-1"]
    assert after["image"] != before["image"]
    assert json.loads((board.folder / "a" / "watchdog.json").read_text())["capacity"] == 2048
    assert device.run(["list", "--directory", str(site.node)]) == 0
    shown = capsys.readouterr().out
    assert after["image"][:8] in shown
    assert "x64" in shown
    assert site.update("dog-1") == 0  # and again, into the other slot
    assert (board.folder / "b" / "manifest").exists()
    assert json.loads((board.folder / "b" / "watchdog.json").read_text())["capacity"] == 2048


def test_power_cuts_in_the_middle_of_an_update_do_no_harm(site: UpdateSite) -> None:
    board = site.add("dog-1")
    assert site.update("dog-1", "--no-wait") == 0
    rng = random.Random(7)
    for _ in range(12):
        time.sleep(rng.uniform(0.05, 0.6))
        board.cut_power()
    wait_for(site.describe, lambda: site.fleet()["dog-1"]["update"].get("state") == "done")
    assert board.boots > 12


def test_code_that_fails_is_taken_back_and_the_roll_out_stops(
    site: UpdateSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration with a sensor that the board does not have: it crashes at every start."""
    for name in ("dog-1", "dog-2"):
        site.add(name)
    before = site.fleet()["dog-1"]["image"]
    board = site.boards["dog-1"]
    config = json.loads((board.folder / "watchdog.json").read_text())
    fields = [[0, 2, False, False, 0]]
    bus = {"kind": "i2c", "clock": 1, "data": 2, "address": 72, "fields": fields}
    changed = {"sources": dict.fromkeys(config["sources"], bus), "events": config["events"]}
    changes = site.folder / "changes.json"
    changes.write_text(json.dumps(changed))
    capsys.readouterr()
    assert site.update("--all", "--staged", "1", "--changes", str(changes)) == 1
    shown = capsys.readouterr().out
    assert "dog-1: failed: it went back" in shown, site.describe()
    assert "dog-2: waiting" in shown
    fleet = site.fleet()
    assert fleet["dog-1"]["image"] == before
    assert fleet["dog-2"]["update"]["state"] == "waiting"
    assert site.update("--all", "--staged", "1") == 0  # what works reaches both


def test_code_that_cannot_be_imported_is_left_at_once(site: UpdateSite) -> None:
    board = site.add("dog-1")
    assert site.update("dog-1") == 0
    good = site.fleet()["dog-1"]["image"]
    (board.folder / "a" / "denwatch" / "watchdog" / "boot.mpy").write_bytes(b"rotten")
    board.cut_power()
    wait_for(site.describe, lambda: site.fleet()["dog-1"]["image"] not in ("", good))
    assert "a: " in board.output
    assert site.update("dog-1") == 0, "from the code that was installed over USB"


def test_a_device_without_the_part_says_so(
    site: UpdateSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("dog-1", without=("update",))
    assert site.fleet()["dog-1"]["code"] == 0
    with pytest.raises(CommandError, match="dog-1 cannot be updated over the air"):
        site.update("dog-1")
    with pytest.raises(CommandError, match="no device of 1 can be updated"):
        site.update("--all")
    with pytest.raises(CommandError, match=r"no device dog-9 has said hello \(dog-1\)"):
        site.update("dog-9")
    capsys.readouterr()
    assert device.run(["list", "--directory", str(site.node)]) == 0
    assert "cannot be updated over the air" in capsys.readouterr().out
