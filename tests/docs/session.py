"""A shell in an empty folder that runs a page's commands one after the other.

What is started in the background goes on until the page ends. Only this file starts processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from simulator.site import find_free_ports
from tests.docs.comparison import clean, find_difference
from tests.docs.pages import ROOT, File, PageError, Step
from tests.docs.shim import NODE_PORT, PROGRAMS

PATIENCE = 900.0  # s for one command, unless told otherwise
ARRIVAL = 90.0  # s for what is printed in the background
SETTLING = 0.3  # s in which nothing more is printed
TYPING = 3.0  # s that a person needs for the next command, while a job in the background starts
NODE = "1883"

_PORT = re.compile(r"(?:127\.0\.0\.1|localhost):(\d{4,5})\b|\$PORT=(\d{4,5})\b")
_CLIENTS = ("mosquitto_pub", "mosquitto_sub")
_DONE = "done "


class Session:
    """One bash with its folder. `bin` gets a stand-in for each program that needs a port."""

    def __init__(self, folder: Path, place: Path, text: str, patience: float = PATIENCE) -> None:
        self.place = place
        self.patience = patience
        self.ports = self._choose_ports(text)
        self.has_jobs = False
        self._printed: list[bytes] = []
        self._lock = threading.Lock()
        self._done: list[str] = []
        self._bin = folder / "bin"
        programs = self._make_programs(self._bin)
        control, self._control = os.pipe()
        home = folder / "home"
        home.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COV_")},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "NODE_PATH": str(ROOT / ".cache" / "runtimes" / "mqttjs" / "node_modules"),
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "PYTHON": sys.executable,
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(ROOT / ".cache/numba")),
            NODE_PORT: str(self.ports[NODE]),
            PROGRAMS: programs,
        }
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[self._control],
            start_new_session=True,
        )
        os.close(self._control)
        assert self._bash.stdout is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self._bash.stdout.fileno(),), daemon=True),
            threading.Thread(target=self._listen, args=(control,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _choose_ports(self, text: str) -> dict[str, int]:
        """Return a free port for each that the page names."""
        named = sorted({NODE, *(port for pair in _PORT.findall(text) for port in pair if port)})
        return dict(zip(named, find_free_ports(len(named)), strict=True))

    def _make_programs(self, folder: Path) -> str:
        folder.mkdir()
        found = []
        for name in (*_CLIENTS, "denwatch"):
            if name in _CLIENTS:
                path = shutil.which(name)
                if path is None:
                    continue  # a page that needs it fails with "command not found"
                found.append(f"{name}={path}")
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec "$PYTHON" -m tests.docs.shim {name} "$@"\n')
            script.chmod(0o755)
        python = folder / "python"
        python.write_text('#!/bin/sh\nexec "$PYTHON" "$@"\n')
        python.chmod(0o755)
        return os.pathsep.join(found)

    def _read(self, descriptor: int) -> None:
        while data := os.read(descriptor, 65536):
            with self._lock:
                self._printed.append(data)

    def _listen(self, control: int) -> None:
        with os.fdopen(control, "r") as stream:
            for line in stream:
                self._done.append(line.strip())

    def translate(self, text: str, back: bool = False) -> str:
        """Return a text with the page's ports replaced by free ones, or back."""
        for name, port in self.ports.items():
            old, new = (str(port), name) if back else (name, str(port))
            text = re.sub(rf"(?<![\d.]){old}(?!\d)", new, text)
        return text

    def read_output(self) -> str:
        """Return what was printed since the last command began."""
        with self._lock:
            data = b"".join(self._printed)
        return self.translate(data.decode("utf-8", "replace"), back=True)

    def run(self, step: Step, command: str | None = None) -> str | None:
        """Run a command, or another one in its place; return what is not as the page shows."""
        with self._lock:
            self._printed.clear()
        self._done.clear()
        words = self.translate(command or step.command)
        self.has_jobs |= words.endswith("&")
        assert self._bash.stdin is not None
        # A page may put the real programs first; the stand-ins know which port is free.
        first = f"PATH='{self._bin}':$PATH\n"
        self._bash.stdin.write(f"{first}{words}\necho {_DONE}$? >&{self._control}\n".encode())
        self._bash.stdin.flush()
        end = time.monotonic() + self.patience
        while not self._done:
            if self._bash.poll() is not None or time.monotonic() > end:
                return f"did not end; it printed\n{self.read_output()}"
            time.sleep(0.02)
        if words.endswith("&") and not step.shown:
            time.sleep(TYPING)
        return self._compare(step)

    def _compare(self, step: Step) -> str | None:
        end = time.monotonic() + (ARRIVAL if self.has_jobs else SETTLING)
        while True:
            printed = clean(self.read_output())
            found = find_difference(step.shown, printed, step.varies, self.has_jobs)
            if found is None or time.monotonic() > end:
                break
            time.sleep(0.05)
        status = self._done[0][len(_DONE) :]
        if found is None and status != "0" and not step.shown:
            found = "it failed, and the page shows nothing of that"
        if found is None:
            return None
        told = "\n".join(f"  {line}" for line in printed)
        return f"{found}\nIt printed (exit status {status}):\n{told}"

    def close(self) -> None:
        """End everything that was started."""
        os.killpg(self._bash.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._bash.wait(10)
        for reader in self._readers:
            reader.join(10)
        if self._readers[0].is_alive():  # somebody still has the pipe
            os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.wait()


def play(session: Session, steps: Iterable[Step | File]) -> list[str]:
    """Do all steps of a page; return what was wrong."""
    wrong = []
    for step in steps:
        if isinstance(step, File):
            target = session.place / step.name
            if not target.resolve().is_relative_to(session.place.resolve()):
                raise PageError(f"{step.name} is not in the page's folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(session.translate(step.text), encoding="utf-8")
            continue
        found = session.run(step)
        if found is not None:
            wrong.append(f"line {step.line}: $ {step.command}\n{found}")
    return wrong
