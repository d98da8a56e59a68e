"""`denwatch node FOLDER --install`: a node that starts with the machine, under systemd.

The folder is copied to /var/lib/denwatch/NAME, where only the user `denwatch` can read it, and a
unit of its own starts the node from there. Steps are made first and carried out one by one, so that
--dry-run shows exactly what would be done. With --root everything is put below another folder (an
image that is being made, a test), and nothing is started. Uninstalling leaves the node's folder.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from denwatch.cli import common
from denwatch.cli.errors import MISSING, CommandError

USER = "denwatch"
HOME = "/var/lib/denwatch"
_UNITS = "etc/systemd/system"
_WANTS = f"{_UNITS}/multi-user.target.wants"
_UNIT = """\
# Made by `denwatch node --install`; `systemctl edit {service}` changes it.
[Unit]
Description=denwatch node {name}
After=network-online.target time-sync.target
Wants=network-online.target

[Service]
User={user}
Group={user}
ExecStart={program} node {folder}
Restart=always
RestartSec=2
# A node stops cleanly at SIGTERM; kill -9 loses nothing either.
TimeoutStopSec=30
LimitNOFILE=65536
TasksMax=256
MemoryHigh=75%
Nice=-2
# It may write its own folder, and nothing else.
ProtectSystem=strict
ReadWritePaths={folder}
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
NoNewPrivileges=true
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
ProtectKernelTunables=true
ProtectControlGroups=true
UMask=0077

[Install]
WantedBy=multi-user.target
"""


class InstallStep(NamedTuple):
    """One step: what it does, and doing it."""

    words: str
    carry_out: Callable[[], object]


class Installation:
    """A node as a service: its name, where it is, and below which root."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.service = f"denwatch-{name}.service"
        self.folder = root / HOME.lstrip("/") / name
        self.unit = root / _UNITS / self.service
        self.link = root / _WANTS / self.service
        self.is_live = root == Path("/")

    def write_unit(self, program: str) -> str:
        """Return the unit."""
        fields = {"name": self.name, "service": self.service, "user": USER}
        return _UNIT.format(**fields, program=program, folder=f"{HOME}/{self.name}")

    def list_steps(self, source: Path, program: str) -> Iterator[InstallStep]:
        """Yield the steps of installing a node that is in the folder `source`."""
        if self.is_live:
            words = f"useradd --system --home-dir {HOME} --shell /usr/sbin/nologin {USER}"
            yield InstallStep(f"{words}   (unless it is there)", lambda: _add_user(words))
        if source.resolve() != self.folder.resolve():
            if self.folder.exists():
                raise CommandError(f"{self.folder} is there already: uninstall, or run it there")
            yield InstallStep(f"copy {source} to {self.folder}", lambda: self._copy(source))
        if self.is_live:
            words = f"chown -R {USER}: {self.folder}"
            yield InstallStep(words, lambda: _call(words))
        text = self.write_unit(program)
        yield InstallStep(f"write {self.unit}:\n{_indent(text)}", lambda: self._write(text))
        yield InstallStep(f"start it at boot: {self.link}", self._enable)
        if self.is_live:
            yield InstallStep("systemctl daemon-reload", lambda: _call("systemctl daemon-reload"))
            words = f"systemctl restart {self.service}"
            yield InstallStep(words, lambda: _call(words))

    def list_removal(self) -> Iterator[InstallStep]:
        """Yield the steps of uninstalling; the node's folder stays."""
        if not self.unit.exists():
            raise CommandError(f"{self.name} is not installed: {self.unit} is missing", MISSING)
        if self.is_live:
            words = f"systemctl stop {self.service}"
            yield InstallStep(words, lambda: _call(words))
        for path in (self.link, self.unit):
            yield InstallStep(f"remove {path}", partial(path.unlink, missing_ok=True))
        if self.is_live:
            yield InstallStep("systemctl daemon-reload", lambda: _call("systemctl daemon-reload"))

    def _copy(self, source: Path) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        shutil.copytree(source, self.folder)
        self.folder.chmod(0o700)

    def _write(self, text: str) -> None:
        self.unit.parent.mkdir(parents=True, exist_ok=True)
        self.unit.write_text(text, encoding="utf-8")

    def _enable(self) -> None:
        self.link.parent.mkdir(parents=True, exist_ok=True)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(f"/{_UNITS}/{self.service}")


def install(name: str, source: Path, root: Path, is_dry: bool) -> int:
    """Install a node; print each step, and carry it out unless this is a rehearsal."""
    made = Installation(name, root)
    program = _find_program(made.is_live and not is_dry)
    words = ["node", str(source), "--install"]
    _carry_out(made.list_steps(source, program), is_dry, made, words)
    if not is_dry:
        print(f"{name} is installed; to look at it:")
        print(
            f"  systemctl status {made.service}\n  denwatch doctor {shlex.quote(str(made.folder))}"
        )
    return 0


def uninstall(name: str, root: Path, is_dry: bool) -> int:
    """Uninstall a node; its folder and the user stay."""
    made = Installation(name, root)
    _carry_out(made.list_removal(), is_dry, made, ["node", name, "--uninstall"])
    if not is_dry:
        print(f"{name} is uninstalled; {made.folder} stays, with its keys and data")
    return 0


def _carry_out(
    steps: Iterator[InstallStep], is_dry: bool, made: Installation, words: list[str]
) -> None:
    """Carry the steps out; `words` are the command's, for somebody who has to repeat it."""
    if made.is_live and not is_dry and os.geteuid():
        # sudo looks for commands in places of its own, so it is told where this one is.
        again = shlex.join(["sudo", str(Path(sys.executable).with_name("denwatch")), *words])
        raise CommandError(f"this needs root; --dry-run shows the steps:\n  {again}")
    if made.is_live and not is_dry and not Path("/run/systemd/system").is_dir():
        raise CommandError("this machine does not run systemd; --root FOLDER prepares another one")
    for step in steps:
        print(step.words)
        if not is_dry:
            with common.reach(made.folder):
                step.carry_out()


def _find_program(is_strict: bool) -> str:
    """Return the command of this denwatch, where the service's user can reach it."""
    program = Path(sys.executable).with_name("denwatch")
    if is_strict and program.parts[1:2] in (("root",), ("home",)):
        raise CommandError(
            f"{program} is in a home folder, which services cannot read. Install it elsewhere:\n"
            "  python3 -m venv /opt/denwatch && /opt/denwatch/bin/pip install 'denwatch[node]'"
        )
    return str(program)


def _add_user(words: str) -> None:
    known = subprocess.run(["id", USER], capture_output=True, check=False)
    if known.returncode:
        _call(words)


def _call(words: str) -> None:
    done = subprocess.run(words.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"{words}: {done.stderr.strip() or done.returncode}")


def _indent(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True)).rstrip("\n")
