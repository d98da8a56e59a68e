"""The far end for real: a DENS node with its own server, and a watchdog that reads a file.

What a note is about is its number, which the watchdog reads as a patient's position; so the same
counting works here and with the scripted node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.vocabularies import shorten_hash

from tests.client.plant import wait_for
from tests.client.victim import NAME
from tests.watchdog.faults.plant import REPOSITORY, find_free_port, is_open

PASSWORD = "correct horse battery staple"
PATIENCE = 120.0  # the first start compiles the matcher


class RealPlace:
    """A node and a watchdog; the node can be killed and started again."""

    words = "east between 1 and 60000 m, event patient"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = find_free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.password: str | None = PASSWORD
        self.total = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._denwatch("node", "--init", "north", "--name", "north", "--listen", self.url)
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o600)
        keys = ("keys", "--directory", "north", "add")
        self._denwatch(*keys, "subscriber", NAME, "--role", "medic", "--password-file", "password")
        self._denwatch(*keys, "device", "dog-1")
        shown = self._denwatch("keys", "--directory", "north", "show", "dog-1", "--secrets")
        self._readings = folder / "readings.csv"
        self._readings.write_text("value\n")
        (folder / "dog.json").write_text(json.dumps(self._configure(json.loads(shown))))
        self.start_node()
        self._start("dog", "watchdog", "dog.json")

    def _configure(self, config: dict[str, object]) -> dict[str, object]:
        source = {"kind": "csv", "path": str(self._readings), "columns": ["value"], "scales": [1]}
        channel = {"source": "file", "field": 0, "attribute": 12, "low": 0, "high": 65535}
        vocabulary = shorten_hash(load_shipped("rescue"))
        return {
            **config,
            "vocabulary": vocabulary.hex(),
            "spool": {"file": str(self.folder / "spool"), "blocks": 64},
            "sources": {"file": source},
            "events": [{"event": 1, "period": 5, "channels": [{**channel, "wide": True}]}],
            "hold": 50,
            "patience": 700,
            "link": {"keep_alive": 2, "timeout": 2, "first_delay": 0, "longest_delay": 1},
        }

    def _denwatch(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "denwatch.cli", *arguments],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        cache = str(REPOSITORY / ".cache" / "numba")
        return {"NUMBA_CACHE_DIR": cache, **os.environ, "PYTHONPATH": str(REPOSITORY)}

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "denwatch.cli", *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdout=log,
                stderr=log,
            )

    def start_node(self) -> None:
        self._start("node", "node", "north/node.toml")
        wait_for(lambda: is_open(self.port), "the node", PATIENCE)

    def kill_node(self) -> None:
        process = self._processes.pop("node")
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def emit(self, count: int) -> list[int]:
        """Let the watchdog read so many new numbers; return them."""
        numbers = list(range(self.total + 1, self.total + count + 1))
        self.total += count
        with self._readings.open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers))
        time.sleep(0.005 * count)
        return numbers
