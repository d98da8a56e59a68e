"""Real processes for tests of the whole path: nodes, Mosquitto, watchdogs, on free ports."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denwatch.client.subscriber import (
    BackOff,
    HandlerTransaction,
    ReceivedNotification,
    Subscriber,
    SubscriberOptions,
)
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.vocabularies import shorten_hash

from demo.site import call, find_free_ports

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 90.0  # s; the first start on a machine compiles the matcher
ENVIRONMENT = {
    **os.environ,
    "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(REPOSITORY / ".cache/numba")),
}

_PROGRAM = ["-m", "denwatch.cli"]
_WRONG_CLOCK = """
import sys, time
right, error = time.time, float(sys.argv.pop(1))
time.time = lambda: right() + error
from denwatch.cli import main
sys.exit(main(sys.argv[1:]))
"""


def wait_for(what: str, check: Callable[[], Any], patience: float = 30.0) -> Any:
    """Return what a check returns as soon as it is true."""
    end = time.monotonic() + patience
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:.0f} s for {what}")
        time.sleep(0.05)


@dataclass
class HostedNode:
    """A node in its folder, running or not."""

    folder: Path
    name: str
    port: int
    scheme: str = "mqtt"
    arguments: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()  # of the command: into a network namespace
    clock_error: float = 0.0  # s by which the wall clock that it sees is wrong
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def journal(self) -> str:
        return (self.folder / "journal.txt").read_text(encoding="utf-8")

    def configure(self, *changes: tuple[str, str]) -> None:
        """Change lines of node.toml."""
        path = self.folder / "node.toml"
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def keys(self, *words: str) -> str:
        """Run `denwatch keys` here."""
        return call("keys", "--directory", str(self.folder), *words)

    def add_subscriber(self, name: str, role: str = "medic") -> str:
        """Register somebody; return the password."""
        told = self.keys("add", "subscriber", name, "--role", role)
        return told.split("shown this once: ")[1].split()[0]

    def add_device(self, name: str) -> dict[str, Any]:
        """Register a device; return its part of watchdog.json."""
        self.keys("add", "device", name)
        shown: dict[str, Any] = json.loads(self.keys("show", name, "--secrets"))
        return shown

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start it."""
        program = ["-c", _WRONG_CLOCK, str(self.clock_error)] if self.clock_error else _PROGRAM
        command = [*self.prefix, sys.executable, *program, "node", "--level", "info"]
        command += [str(self.folder / "node.toml"), *self.arguments]
        with (self.folder / "journal.txt").open("wb") as journal:
            self._process = subprocess.Popen(
                command, stdout=journal, stderr=journal, cwd=REPOSITORY, env=ENVIRONMENT
            )

    def wait_until_ready(self) -> None:
        """Return when it serves."""
        wait_for(f"{self.name} to be ready", self._is_ready, PATIENCE)

    def check_running(self) -> None:
        """See that it did not end by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{self.journal}"

    def _is_ready(self) -> bool:
        self.check_running()
        return "is ready" in self.journal

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """End it in order; it must end well."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            assert self._process.wait(30) == 0, self.journal
        self._process = None


def make_node(folder: Path, name: str, scheme: str = "mqtt", *words: str) -> HostedNode:
    """Make a node's folder; `words` are more of `denwatch node --init`."""
    node = HostedNode(folder, name, find_free_ports(1)[0], scheme)
    init = ["node", "--init", str(folder), "--listen", node.url, *words]
    if "--join" not in words:
        init += ["--name", name]
    call(*init)
    node.configure(("interval_seconds = 10", "interval_seconds = 1"))
    return node


@contextlib.contextmanager
def running_mosquitto(folder: Path) -> Iterator[tuple[int, Callable[[], None]]]:
    """Run Mosquitto, open to all on the loopback; yield its port and what restarts it."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "mosquitto is missing: scripts/get-runtimes.sh broker"
    port = find_free_ports(1)[0]
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", encoding="utf-8")
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        processes.append(
            subprocess.Popen(
                [program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )

    def restart() -> None:
        processes[-1].kill()
        processes[-1].wait()
        time.sleep(1)
        start()

    start()
    try:
        yield port, restart
    finally:
        processes[-1].kill()
        processes[-1].wait()


def write_watchdog(
    folder: Path,
    device: Mapping[str, Any],
    rows: list[Mapping[str, float]],
    *,
    period: int = 50,
    nodes: list[Mapping[str, Any]] | None = None,
) -> Path:
    """Write the configuration of a device that replays rows of a patient's signs."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = load_shipped("rescue")
    event = vocabulary.events["patient"]
    names = list(rows[0])
    config = {
        "device": device["device"],
        "vocabulary": shorten_hash(vocabulary).hex(),
        "nodes": nodes if nodes is not None else device["nodes"][:1],
        "spool": {"file": str(folder / "spool.bin"), "blocks": 16},
        "sources": {
            "replay": {
                "kind": "csv",
                "path": str(folder / "readings.csv"),
                "columns": names,
                "scales": [100] * len(names),
            }
        },
        "events": [
            {
                "event": event.number,
                "period": period,
                "channels": [
                    {
                        "source": "replay",
                        "field": place,
                        "attribute": event.attributes[name].bit,
                        "low": round(event.attributes[name].low * 100),
                        "high": round(event.attributes[name].high * 100),
                        "wide": event.attributes[name].wide,
                    }
                    for place, name in enumerate(names)
                ],
            }
        ],
        "patience": 1000,
        "hold": 500,
        "link": {"longest_delay": 1, "keep_alive": 5, "timeout": 5},
    }
    lines = [",".join(names), *(",".join(f"{row[name]:.2f}" for name in names) for row in rows)]
    (folder / "readings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "watchdog.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@contextlib.contextmanager
def running_watchdog(
    config: Path, micropython: Path | None = None, prefix: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Run a watchdog; under CPython unless a MicroPython is given."""
    command = [
        *prefix,
        sys.executable,
        "-m",
        "denwatch.cli",
        "watchdog",
        "--report",
        "1",
        str(config),
    ]
    if micropython is not None:
        command += ["--micropython", str(micropython)]
    with (config.parent / "watchdog.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=REPOSITORY, env=ENVIRONMENT, text=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Sensor:
    """A watchdog for which a test writes readings while it runs.

    Each reading is a patient with a number, its position, by which tests count what arrives.
    """

    def __init__(self, folder: Path, device: Mapping[str, Any], first: int = 1) -> None:
        self.config = write_watchdog(folder, device, [{"east": 0.0, "heart_rate": 0.0}])
        self.emitted: list[int] = []
        self._readings = folder / "readings.csv"
        self._next = first

    def emit(self, count: int, heart_rate: int = 150) -> list[int]:
        """Let it read so many patients; return their numbers."""
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self.emitted += numbers
        with self._readings.open("a", encoding="utf-8") as file:
            file.write("".join(f"{number},{heart_rate}\n" for number in numbers))
        return numbers

    def read_report(self) -> dict[str, Any]:
        """Return its counters, as it printed them last."""
        lines = (self.config.parent / "watchdog.log").read_text(encoding="utf-8").splitlines()
        found = next((line for line in reversed(lines) if line.startswith("{")), "{}")
        with contextlib.suppress(ValueError):  # half a line
            report: dict[str, Any] = json.loads(found)
            return report
        return {}

    def count_installed(self) -> int:
        """Return how many subscriptions it has."""
        counts = self.read_report().get("subscriptions", {})
        return sum(sign * counts.get(name, 0) for name, sign in _BALANCE.items())

    def wait_for_subscriptions(self, count: int = 1) -> None:
        """Wait until it has so many subscriptions: what it reads before is nobody's."""
        what = f"{count} subscriptions at {self.config.parent.name}"
        wait_for(what, lambda: self.count_installed() == count, 60)


_BALANCE = {"added": 1, "removed": -1, "expired": -1}


class Person:
    """Somebody with the subscriber library; `numbers` are the patients that they were told of.

    `past` are patients from before they asked: readings of a moment ago may match, too.
    """

    def __init__(
        self,
        name: str,
        password: str | None,
        url: str,
        folder: Path,
        ca: Path | None = None,
        past: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.past = frozenset(past)
        self.notes: list[ReceivedNotification] = []
        self.subscriber = Subscriber(
            name,
            password,
            [url],
            store=folder / f"{name}.db",
            tls=ca,
            on_notification=self._take,
            settings=SubscriberOptions(BackOff(200, 1_000), patience=2_000, report_delay=200),
        )

    @property
    def numbers(self) -> list[int]:
        return [round(note.values["east"]["value"]) for note in self.notes]

    def walk(self, url: str) -> None:
        """Go to another node."""
        self.subscriber.use_servers([url])

    def expect(self, numbers: list[int], patience: float = 120.0) -> None:
        """Wait for all of these patients, and see that they came once, and nobody else."""
        what = f"{len(numbers)} notes for {self.name}"
        wait_for(what, lambda: set(numbers) <= set(self.numbers), patience)
        self.check(numbers)

    def check(self, numbers: list[int]) -> None:
        """See that these patients came once each, and nobody else."""
        assert len(set(self.numbers)) == len(self.numbers), sorted(self.numbers)
        assert sorted(set(self.numbers) - self.past) == sorted(numbers)

    def _take(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002
        self.notes.append(note)

    def __enter__(self) -> Person:
        self.subscriber.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.subscriber.close()
