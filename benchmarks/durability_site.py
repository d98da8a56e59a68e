"""What is killed and started again: a `denwatch node`, a Mosquitto, the app; and their folders.

The only file of this benchmark that starts processes. `kill` is SIGKILL.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from denwatch.cli import main as denwatch
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.vocabularies import shorten_hash

ROOT = Path(__file__).parents[1]
APP, PLANNER = "medic", "planner"
WORDS = "east between 1 and 60000 m, event patient"
_READY = 120.0  # s; the first start of a node on a machine compiles its matcher


class ServerProcess(Protocol):
    """A server that can be killed."""

    port: int

    def start(self) -> None:
        """Start it, and do not wait."""

    def wait_until_ready(self) -> None:
        """Return when it takes connections."""

    def kill(self) -> None:
        """End it without a word."""


class Process:
    """One process and its log. `name` is for messages and for the log's file."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self.log = folder / f"{name}.log"
        self._name = name
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start it anew."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def check(self) -> None:
        """Raise if it ended by itself: nothing here is to."""
        if self._process is None or self._process.poll() is not None:
            tail = self.log.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise RuntimeError(f"{self._name} ended by itself:\n{tail}")

    def end(self, how: signal.Signals) -> None:
        """End it with a signal; it must have been alive until then."""
        self.check()
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def discard(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None


class Listener:
    """A server's process, which is ready when its port is open."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    def start(self) -> None:
        """Start it, and do not wait."""
        self.process.start()

    def wait_until_ready(self) -> None:
        """Return when it takes connections."""
        end = time.monotonic() + _READY
        while not _is_open(self.port):
            self.process.check()
            if time.monotonic() > end:
                raise RuntimeError(f"nothing listens on port {self.port} after {_READY:.0f} s")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it without a word."""
        self.process.end(signal.SIGKILL)


@dataclass
class NodeSite:
    """A node's folder, and the keys of those who use it."""

    folder: Path
    server: Listener
    passwords: dict[str, str]
    devices: list[dict[str, Any]]
    vocabulary: bytes

    def list_segments(self) -> list[Path]:
        """Return the files of its log."""
        return sorted((self.folder / "node" / "data" / "log").iterdir())


def make_node_site(folder: Path, devices: int) -> NodeSite:
    """Make a node with some devices and two people, as an operator would."""
    port = find_free_port()
    home = folder / "node"
    url = f"mqtt://127.0.0.1:{port}"
    call("node", "--init", str(home), "--name", "node", "--listen", url)
    config = home / "node.toml"
    text = config.read_text(encoding="utf-8")
    if text.count("shared = []") != 1:
        raise RuntimeError(f"{config}: 'shared = []' is not there once")
    config.write_text(text.replace("shared = []", 'shared = ["bench/#"]'), encoding="utf-8")
    keys = ("keys", "--directory", str(home))
    passwords = {}
    for person in (APP, PLANNER):
        told = call(*keys, "add", "subscriber", person, "--role", "medic")
        passwords[person] = told.split("shown this once: ")[1].split()[0]
    secrets = []
    for number in range(devices):
        call(*keys, "add", "device", f"dog-{number}")
        secrets.append(json.loads(call(*keys, "show", f"dog-{number}", "--secrets")))
    command = [sys.executable, "-m", "denwatch.cli", "node", str(config), "--level", "warning"]
    server = Listener(Process(folder, "node-process", command), port)
    return NodeSite(folder, server, passwords, secrets, shorten_hash(load_shipped("rescue")))


def make_mosquitto(folder: Path, settings: Sequence[str]) -> Listener:
    """Make a Mosquitto that keeps sessions on the disk, with further settings."""
    port = find_free_port()
    data = folder / "mosquitto"
    data.mkdir()
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence true",
        f"persistence_location {data}/",
        "max_queued_messages 0",  # no bound: what is lost is not lost for lack of room
        *(["user root"] if os.geteuid() == 0 else []),
        *settings,
    ]
    config = folder / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [find_mosquitto(), "-c", str(config)]
    return Listener(Process(folder, "mosquitto-process", command), port)


def find_mosquitto() -> str:
    """Return where Mosquitto is; it is often not among the commands of ordinary users."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which("mosquitto", path=path)
    if found is None:
        raise SystemExit("mosquitto is not installed: it is what this benchmark compares with")
    return found


def call(*words: str) -> str:
    """Run a `denwatch` command and return what it printed."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        status = denwatch(list(words))
    if status:
        raise RuntimeError(f"denwatch {' '.join(words)}: exit status {status}")
    return told.getvalue()


def find_free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
