"""The servers that the node's benchmark runs, each a process of its own on a free port."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_READY = 300.0  # s; a node reads a million notifications at its start
_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_inflight_messages 100
max_queued_messages 0
"""
_AMQTT = """\
import asyncio, sys
from amqtt.broker import Broker
async def main():
    broker = Broker({{"listeners": {{"default": {{"type": "tcp", "bind": "127.0.0.1:{port}"}}}},
        "plugins": {{"amqtt.plugins.authentication.AnonymousAuthPlugin":
            {{"allow_anonymous": True}}}}}})
    await broker.start()
    await asyncio.Event().wait()
asyncio.run(main())
"""


def find_free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A process that listens; `started_in` is the time until it did, in s."""

    def __init__(self, command: Sequence[str], port: int, journal: Path) -> None:
        self.port = port
        self._journal = journal
        began = time.perf_counter()
        with journal.open("w", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._wait(began + _READY)
        self.started_in = time.perf_counter() - began

    def _wait(self, end: float) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self._process.poll() is not None or time.perf_counter() > end:
                raise SystemExit(f"a server did not start:\n{self._journal.read_text()}")
            time.sleep(0.02)

    def read_memory(self) -> float:
        """Return the process's resident memory in MB."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def read_seconds(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def read_waiting(self) -> float:
        """Return for how long its main thread was ready to run and had no processor, in s."""
        path = Path(f"/proc/{self._process.pid}/schedstat")
        return int(path.read_text(encoding="ascii").split()[1]) / 1e9

    def stop(self) -> None:
        """End it in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def run_mosquitto(folder: Path) -> Iterator[Server]:
    """Run Mosquitto in memory, its queues unlimited."""
    port = find_free_port()
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO.format(port=port), encoding="utf-8")
    path = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with _running([path, "-c", str(config)], port, folder / "mosquitto.log") as server:
        yield server


@contextlib.contextmanager
def run_amqtt(folder: Path) -> Iterator[Server]:
    """Run amqtt in memory."""
    port = find_free_port()
    command = [sys.executable, "-W", "ignore", "-c", _AMQTT.format(port=port)]
    with _running(command, port, folder / "amqtt.log") as server:
        yield server


@contextlib.contextmanager
def run_node(config: Path, port: int) -> Iterator[Server]:
    """Run a node as `denwatch node` does."""
    command = [sys.executable, "-m", "denwatch.cli", "node", str(config)]
    with _running(command, port, config.parent / "node.log") as server:
        yield server


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, journal: Path) -> Iterator[Server]:
    server = Server(command, port, journal)
    try:
        yield server
    finally:
        server.stop()
