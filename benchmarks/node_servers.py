"""The servers that the node's benchmark runs, each a process of its own on a free port."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from denwatch.node.matching.compiling import is_installed

from simulator.site import ServerProcess, find_free_port, find_mosquitto, wait_for

_KERNELS = "the compiled matcher is ready"
_PATIENCE = 600.0  # s
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


class MeasuredServer(ServerProcess):
    """A server's process; `started_in` is the time until it listened, in s."""

    started_in = 0.0

    def start(self) -> None:
        """Start the server, wait until it listens, and measure how long that takes."""
        began = time.perf_counter()
        super().start()
        self.started_in = time.perf_counter() - began

    def wait_for_kernels(self) -> None:
        """Wait until a node with many subscriptions matches them by compiled code, if it can."""
        if is_installed():
            wait_for("the compiled matcher", lambda: _KERNELS in self.journal, _PATIENCE)

    def read_memory(self) -> float:
        """Return the process's resident memory in MB."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def read_seconds(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def read_waiting(self) -> float:
        """Return for how long its main thread was ready to run and had no processor, in s."""
        path = Path(f"/proc/{self.pid}/schedstat")
        return int(path.read_text(encoding="ascii").split()[1]) / 1e9


def run_mosquitto(folder: Path) -> AbstractContextManager[MeasuredServer]:
    """Run Mosquitto in memory, its queues unlimited."""
    port = find_free_port()
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO.format(port=port), encoding="utf-8")
    return _run("mosquitto", [find_mosquitto(), "-c", str(config)], folder, port)


def run_amqtt(folder: Path) -> AbstractContextManager[MeasuredServer]:
    """Run amqtt in memory."""
    port = find_free_port()
    command = [sys.executable, "-W", "ignore", "-c", _AMQTT.format(port=port)]
    return _run("amqtt", command, folder, port)


def run_node(config: Path, port: int) -> AbstractContextManager[MeasuredServer]:
    """Run a node as `denwatch node` does."""
    command = [sys.executable, "-m", "denwatch.cli", "node", str(config)]
    return _run("node", command, config.parent, port)


@contextmanager
def _run(name: str, command: Sequence[str], folder: Path, port: int) -> Iterator[MeasuredServer]:
    server = MeasuredServer(name, command, folder / f"{name}.log", port)
    try:
        server.start()
        yield server
    finally:
        server.end(signal.SIGTERM)
