"""Real processes around a subscriber: a broker on a free port, and the far end behind it.

A test asks for a `Place` (one broker, one node); what runs there as the node is decided here alone,
so that the same scenarios can be run against another one.
"""

from __future__ import annotations

import getpass
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.client.node import FakeNode, build_note
from tests.watchdog.faults.plant import find_free_port, find_mosquitto, is_open

PATIENCE = 30.0


class Place:
    """A broker and a node; both can be taken away and come back."""

    words = "patient_temperature is very high"
    password: str | None = None

    def __init__(
        self,
        folder: Path,
        name: str = "tent",
        *,
        resends: bool = True,
        access: str = "allow_anonymous true",
        credentials: tuple[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = find_free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._broker: subprocess.Popen[bytes] | None = None
        self._access = access
        self.total = 0
        self.start_broker()
        self.node = FakeNode(self.port, name, resends, credentials).start()

    def start_broker(self) -> None:
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"user {getpass.getuser()}\nlistener {self.port} 127.0.0.1\n"
            f"{self._access}\npersistence true\npersistence_location {self.folder}/\n"
            "max_queued_messages 0\nmax_inflight_messages 100\n"
        )
        log = (self.folder / "broker.log").open("ab")
        self._broker = subprocess.Popen(
            [find_mosquitto(), "-c", str(config)], stdout=log, stderr=log
        )
        wait_for(lambda: is_open(self.port), "the broker")

    def kill_broker(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker.wait()
            self._broker = None

    def emit(self, count: int) -> list[int]:
        """Let the node send so many new notes; return their numbers."""
        numbers = list(range(self.total, self.total + count))
        self.total += count
        self.node.emit("medic7", *(build_note(number) for number in numbers))
        time.sleep(0.005 * count)
        return numbers

    def close(self) -> None:
        self.node.stop()
        self.kill_broker()


def wait_for(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Return when something holds; fail if it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def find_dead_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"mqtt://127.0.0.1:{probe.getsockname()[1]}"
