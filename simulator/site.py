"""Real node processes on this machine: for tests, benchmarks and the demo.

A `Site` makes the folders as an operator would (`denwatch node --init`, `denwatch keys`), picks
free ports, and runs each node as a process of its own, to be stopped, killed and started again:

    site = Site(folder)
    north = site.add_node("north")  # founds the site
    south = site.add_node("south")  # joins it and calls north
    password = site.add_subscriber("medic7")
    with site:  # all nodes are ready
        north.kill()  # as a power cut does
        north.start()

Nothing here is simulated. Waits are long: a busy machine must not look like a failure.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from denwatch.cli import main as denwatch
from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core.notifications import shorten_hash

REPOSITORY = Path(__file__).resolve().parents[1]
READY = 600.0  # s until a process must be ready
END = 120.0  # s until a process must have ended after it was asked to
ENVIRONMENT = {
    **os.environ,
    "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(REPOSITORY / ".cache/numba")),
    "PYTHONUNBUFFERED": "1",
}

_SCALE = 100  # steps of a replayed sensor in one unit
_WRONG_CLOCK = """
import sys, time
right, error = time.time, float(sys.argv.pop(1))
time.time = lambda: right() + error
from denwatch.cli import main
sys.exit(main(sys.argv[1:]))
"""


class SiteError(RuntimeError):
    """A command failed, a process ended by itself, or something did not happen in time."""


def run_denwatch(*words: str) -> str:
    """Run a `denwatch` command in this process and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = denwatch(words)
    if status:
        raise SiteError(f"denwatch {' '.join(words)}: exit status {status}")
    return printed.getvalue()


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def find_free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    return find_free_ports(1)[0]


def is_open(port: int) -> bool:
    """Return whether a server listens on a port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(
    what: str | Callable[[], str], check: Callable[[], Any], patience: float = 60.0
) -> Any:
    """Return what a check returns as soon as it is true; `what` describes it, or what is amiss."""
    end = time.monotonic() + patience
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise SiteError(f"waited {patience:.0f} s for {what() if callable(what) else what}")
        time.sleep(0.02)


class ServerProcess:
    """One process with its log, running or not; it is ready when its port is open."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self._environment = {**ENVIRONMENT, **(environment or {})}
        self._command = tuple(command)
        self._log = log
        self._log_begins = 0  # where the log of this run begins
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def journal(self) -> str:
        """What the process has printed since its last start."""
        return self._log.read_bytes()[self._log_begins :].decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self, *arguments: str) -> None:
        """Start the process and do not wait."""
        with self._log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [*self._build_command(), *arguments],
                cwd=REPOSITORY,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _build_command(self) -> Sequence[str]:
        return self._command

    def wait_until_ready(self) -> None:
        """Return when the process serves."""

        def check() -> bool:
            self.check_running()
            return self._is_ready()

        wait_for(f"{self.name} to be ready", check, READY)

    def _is_ready(self) -> bool:
        return is_open(self.port)

    def check_running(self) -> None:
        """Raise if the process ended by itself."""
        if self._process is None or self._process.poll() is not None:
            raise SiteError(f"{self.name} does not run:\n{self.journal[-2_000:]}")

    def kill(self) -> None:
        """End the process as a power cut does."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process in order; it must end well."""
        if self._process is not None and self._process.poll() is None:
            status = self.end(signal.SIGTERM)
            if status:
                raise SiteError(f"{self.name}: exit status {status}:\n{self.journal}")
        self._process = None

    def end(self, how: signal.Signals) -> int | None:
        """End the process with a signal; return its exit status, None if it never ran."""
        if self._process is None:
            return None
        self._process.send_signal(how)
        try:
            return self._process.wait(END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise SiteError(f"{self.name} does not end:\n{self.journal}") from None


class NodeProcess(ServerProcess):
    """A node in its folder: `denwatch node`, and the operator's commands for it."""

    def __init__(self, folder: Path, name: str, url: str, prefix: Sequence[str] = ()) -> None:
        super().__init__(name, (), folder / "journal.txt", urlsplit(url).port or 0)
        self.folder = folder
        self.url = url
        self.arguments: Sequence[str] = ()  # more of `denwatch node`
        self.clock_error = 0.0  # s by which the wall clock that it sees is wrong
        self.prefix = prefix  # of the command: into a network namespace

    @property
    def config(self) -> Path:
        return self.folder / "node.toml"

    def configure(self, *changes: tuple[str, str]) -> None:
        """Replace parts of node.toml; each must be there once."""
        text = self.config.read_text(encoding="utf-8")
        for old, new in changes:
            if text.count(old) != 1:
                raise SiteError(f"{old!r} is {text.count(old)} times in {self.config}")
            text = text.replace(old, new)
        self.config.write_text(text, encoding="utf-8")

    def keys(self, *words: str) -> str:
        """Run `denwatch keys` in the node's folder."""
        return run_denwatch("keys", "--directory", str(self.folder), *words)

    def add_subscriber(self, name: str, role: str = "medic") -> str:
        """Register a subscriber; return the password."""
        printed = self.keys("add", "subscriber", name, "--role", role)
        return printed.split("shown this once: ")[1].split()[0]

    def add_device(self, name: str) -> dict[str, Any]:
        """Register a device; return the fields of its watchdog.json that have its keys."""
        self.keys("add", "device", name)
        shown: dict[str, Any] = json.loads(self.keys("show", name, "--secrets"))
        return shown

    def _build_command(self) -> Sequence[str]:
        program = ["-m", "denwatch.cli"]
        if self.clock_error:
            program = ["-c", _WRONG_CLOCK, str(self.clock_error)]
        command = [*self.prefix, sys.executable, *program, "node", "--level", "info"]
        return [*command, str(self.config), *self.arguments]

    def _is_ready(self) -> bool:
        return "is ready" in self.journal


class Site:
    """Nodes of one authority in one folder: the first one founds the site, the others join it.

    `with site:` starts all nodes, and stops them at its end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, NodeProcess] = {}
        self.passwords: dict[str, str] = {}  # of subscribers, by name

    @property
    def first(self) -> NodeProcess:
        return next(iter(self.nodes.values()))

    def add_node(
        self,
        name: str,
        *words: str,
        url: str = "mqtt://127.0.0.1",
        via: str | None = None,
        addresses: Sequence[str] = (),
        prefix: Sequence[str] = (),
        interval: int = 1,
    ) -> NodeProcess:
        """Make a node's folder; `words` are more of `denwatch node --init`.

        The node listens at `url`, on a free port if it names none. `via` is the URL at which it
        calls the first node, where that is not the first node's own; `addresses` are what its
        certificate is for; `interval` is the time in s between two of its status messages.
        """
        if urlsplit(url).port is None:
            url = f"{url}:{find_free_port()}"
        folder = self.folder / name
        named = [word for address in addresses for word in ("--address", address)]
        if self.nodes:
            invitation = str(self.folder / f"{name}.invite")
            called = ("--url", via or self.first.url, "--output", invitation)
            self.first.keys("invite", name, *named, *called)
            named = ["--join", invitation]
        else:
            named += ["--name", name]
        run_denwatch("node", "--init", str(folder), *named, "--listen", url, *words)
        node = NodeProcess(folder, name, url, prefix)
        node.configure(("interval_seconds = 10", f"interval_seconds = {interval}"))
        self.nodes[name] = node
        return node

    def add_subscriber(self, name: str, role: str = "medic") -> str:
        """Register a subscriber at the first node, for all nodes; return the password."""
        self.passwords[name] = self.first.add_subscriber(name, role)
        return self.passwords[name]

    def add_device(self, name: str, node: str | None = None) -> Path:
        """Register a device at a node, or at the first one; return a file with its keys."""
        where = self.first if node is None else self.nodes[node]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(where.add_device(name)), encoding="utf-8")
        return path

    def start(self) -> None:
        """Start all nodes together and wait until they are ready."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()

    def stop(self) -> None:
        """Stop all nodes in order; each must end well."""
        with contextlib.ExitStack() as stack:
            for node in self.nodes.values():
                stack.callback(node.stop)

    def kill(self) -> None:
        """Kill all nodes that run."""
        for node in self.nodes.values():
            node.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


# What is beside nodes ----------------------------------------------------------------------------


def find_mosquitto() -> str:
    """Return where Mosquitto is; it is often not among the commands of ordinary users."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))
    found = shutil.which("mosquitto", path=path)
    if found is None:
        raise SiteError("mosquitto is missing (Debian: apt-get install mosquitto)")
    return found


def make_mosquitto(
    folder: Path, *settings: str, access: str = "allow_anonymous true"
) -> ServerProcess:
    """Make a Mosquitto on a free port of the loopback, open to all unless told otherwise."""
    port = find_free_port()
    config = folder / "mosquitto.conf"
    lines = (f"user {getpass.getuser()}", f"listener {port} 127.0.0.1", access, *settings)
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [find_mosquitto(), "-c", str(config)]
    return ServerProcess("mosquitto", command, folder / "mosquitto.log", port)


def write_watchdog(
    folder: Path,
    device: Mapping[str, Any],
    rows: Sequence[Mapping[str, float]],
    vocabulary: Vocabulary,
    event: str = "patient",
    **fields: object,
) -> Path:
    """Write the configuration of a device that replays rows of values of an event.

    `device` has its keys; it knows its first node only, as the others are out of its reach.
    `period` and all other fields of watchdog.json may be given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kind = vocabulary.events[event]
    names = list(rows[0])
    channels = [
        {
            "source": "replay",
            "field": column,
            "attribute": kind.attributes[name].bit,
            "low": round(kind.attributes[name].low * _SCALE),
            "high": round(kind.attributes[name].high * _SCALE),
            "wide": kind.attributes[name].wide,
        }
        for column, name in enumerate(names)
    ]
    replay = {
        "kind": "csv",
        "path": str(folder / "readings.csv"),
        "columns": names,
        "scales": [_SCALE] * len(names),
    }
    config = {
        "device": device["device"],
        "nodes": device["nodes"][:1],
        "vocabulary": shorten_hash(vocabulary).hex(),
        "spool": {"file": str(folder / "spool.bin"), "blocks": 16},
        "sources": {"replay": replay},
        "events": [
            {"event": kind.number, "period": fields.pop("period", 50), "channels": channels}
        ],
        **fields,
    }
    lines = [",".join(names), *(",".join(f"{row[name]:.2f}" for name in names) for row in rows)]
    (folder / "readings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "watchdog.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
