"""Runs the services of a compose file without an engine: namespaces, chroot, a bridge, volumes.

The only file that takes an engine's place. A service gets what the file and the Dockerfile say: its
command, its user without capabilities, its environment, its volumes and nothing else of /site, its
own /tmp, its host name, and the other services by name on a network that reaches nobody else. Only
the image itself is missing: the root is this machine's /usr and /etc, and the repository with its
.venv. It needs root, for namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from firmware_tests.runtimes import REPOSITORY, find_cache

DOCKER = REPOSITORY / "docker"
HOME = "/opt/denwatch"  # of the repository in the image
_PREFIX = "dwc"


def find_compose() -> Path:
    """Return Docker's compose."""
    path = find_cache() / "compose" / "docker-compose"
    assert path.exists(), "docker-compose is missing: scripts/get-runtimes.sh compose"
    return path


def read_composition(path: Path = DOCKER / "compose.yaml") -> dict[str, Any]:
    """Return a compose file as Docker's own compose understands it."""
    command = [str(find_compose()), "-f", str(path), "--profile", "*", "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    composition: dict[str, Any] = json.loads(done.stdout)
    return composition


class Image:
    """What a Dockerfile says of the image that it makes: its last stage, and what that is from."""

    def __init__(self, path: Path = DOCKER / "Dockerfile") -> None:
        text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
        self.lines = re.sub(r"\\\n", " ", text).splitlines()
        self.environment: dict[str, str] = {}
        self.user = ""
        for line in self.lines:
            word, _, rest = line.partition(" ")
            if word == "ENV":
                self.environment |= dict(part.split("=", 1) for part in shlex.split(rest))
            elif word == "USER":
                self.user = rest.strip()
        made_by = " ".join(self.lines)
        made = re.findall(r"install -d -o denwatch[^&]*", made_by)
        named = re.search(r"useradd --uid (\d+) --gid (\d+) .*--home-dir (\S+) (\w+)", made_by)
        assert named, "the image's user has a name"
        self.account = f"{named[4]}:x:{named[1]}:{named[2]}::{named[3]}:/bin/sh"
        self.folders = {word for part in made for word in part.split() if word.startswith("/")}


class Engine:
    """The services of one compose file, each in its own namespaces."""

    def __init__(self, folder: Path, composition: dict[str, Any], image: Image) -> None:
        self.folder = folder
        self.services: dict[str, Any] = composition["services"]
        self.image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._spaces: dict[str, str] = {}
        self._bridge = f"{_PREFIX}{os.getpid()}"
        for name in composition["volumes"]:
            self.find_volume(name).mkdir(parents=True)
            self._give_away(self.find_volume(name))
        (folder / "roots").mkdir()
        accounts = Path("/etc/passwd").read_text(encoding="utf-8")
        (folder / "passwd").write_text(f"{accounts}{image.account}\n", encoding="utf-8")
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "bridge", "up")
        hosts = ["127.0.0.1 localhost"]
        try:
            for number, name in enumerate(self.services, 2):
                self._add_place(name, number)
                hosts.append(f"10.77.0.{number} {name}")
        except BaseException:
            self.close()
            raise
        (folder / "hosts").write_text("\n".join(hosts) + "\n", encoding="utf-8")

    def _give_away(self, folder: Path) -> None:
        user, group = map(int, self.image.user.split(":"))
        folder.chmod(0o700)
        os.chown(folder, user, group)

    def _add_place(self, name: str, number: int) -> None:
        space = self._spaces[name] = f"{self._bridge}-{name}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        if self.services[name].get("network_mode") == "none":
            return
        port = f"p{number}"
        peer = ("type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self._bridge, "link", "add", port, *peer)
        _ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")

    def find_volume(self, name: str) -> Path:
        """Return where a volume is on this machine."""
        return self.folder / "volumes" / name

    def read_log(self, name: str) -> str:
        """Return what a service has printed."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    # Running --------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start services with their commands."""
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                self._processes[name] = subprocess.Popen(
                    self._enter(name, self.services[name]["command"]),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def run(self, name: str, timeout: float = 180) -> int:
        """Run a service that ends, and return its exit status."""
        self.start(name)
        status = self._processes[name].wait(timeout)  # if it does not end, `close` ends it
        del self._processes[name]
        return status

    def call(self, name: str, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command where a service runs, as `docker exec` does."""
        return subprocess.run(
            self._enter(name, words),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def is_healthy(self, name: str) -> bool:
        """Run a service's health check; it must still run itself."""
        process = self._processes[name]
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n" + self.read_log(
            name
        )
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.call(name, *words).returncode == 0

    def wait_until_healthy(self, *names: str, patience: float = 180) -> None:
        """Return when services are well."""
        end = time.monotonic() + patience
        for name in names:
            while not self.is_healthy(name):
                assert time.monotonic() < end, f"{name} is not well:\n{self.read_log(name)}"
                time.sleep(0.5)

    def stop(self, name: str) -> int:
        """End a service as an engine does, and return its exit status."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            return process.wait(20)
        finally:
            _kill_group(process)

    def close(self) -> None:
        """End everything."""
        for process in self._processes.values():
            _kill_group(process)
        for space in [*self._spaces.values(), self._bridge]:
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
            for number in listed.stdout.split():  # what a service started in a session of its own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    # Namespaces -----------------------------------------------------------------------------

    def _enter(self, name: str, words: list[str] | tuple[str, ...]) -> list[str]:
        """Return the command that runs another one as a service."""
        unshare = ["unshare", "--mount", "--uts", "--propagation", "private"]
        script = self._write_script(name)
        return [
            "ip",
            "netns",
            "exec",
            self._spaces[name],
            *unshare,
            "sh",
            "-c",
            script,
            "sh",
            *words,
        ]

    def _write_script(self, name: str) -> str:
        service = self.services[name]
        root = shlex.quote(str(self.folder / "roots"))
        lines = [
            "set -eu",
            f"hostname {name}",
            f"R={root}",
            "mount -t tmpfs tmpfs $R",
            "mkdir -p $R/usr $R/etc $R/dev $R/proc $R/sys $R/tmp",
            "for d in bin sbin lib lib32 lib64; do [ ! -L /$d ] || cp -P /$d $R/$d; done",
            "for d in usr dev proc sys; do mount --rbind /$d $R/$d; done",
            "mount --bind /etc $R/etc",
            *(
                f"mount --bind {shlex.quote(str(self.folder / name))} $R/etc/{name}"
                for name in ("hosts", "passwd")
            ),
        ]
        mounts = [(str(REPOSITORY), HOME, True), (str(REPOSITORY), str(REPOSITORY), True)]
        if not sys.base_prefix.startswith("/usr"):  # the .venv's Python is elsewhere
            mounts.append((sys.base_prefix, sys.base_prefix, True))
        for volume in service.get("volumes", ()):
            source = str(self.find_volume(volume["source"]))
            mounts.append((source, volume["target"], volume.get("read_only", False)))
        # Before the others: the repository itself may lie below /tmp.
        lines.append("mount -t tmpfs -o mode=1777 tmpfs $R/tmp")
        for source, target, is_read_only in mounts:
            lines.append(f"mkdir -p $R{target}; mount --bind {shlex.quote(source)} $R{target}")
            if is_read_only:
                lines.append(f"mount -o remount,bind,ro $R{target}")
        lines.append("mount -o remount,ro $R")
        environment = {"HOME": "/tmp", **self.image.environment}
        environment |= {k: v for k, v in (service.get("environment") or {}).items() if v}
        shown = " ".join(shlex.quote(f"{key}={value}") for key, value in environment.items())
        user, group = self.image.user.split(":")
        rights = f"--reuid {user} --regid {group} --clear-groups --no-new-privs"
        rights += " --inh-caps=-all --bounding-set=-all"
        lines.append(f'exec chroot $R /usr/bin/env -i -C {HOME} {shown} setpriv {rights} "$@"')
        return "\n".join(lines)


def find_obstacle() -> str:
    """Return why services cannot be run here, or nothing."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    for tool in ("ip", "unshare", "setpriv", "chroot", "mosquitto_passwd"):
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"{tool} is missing"
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--uts", "true"], capture_output=True, check=False
    )
    return done.stderr.decode().strip()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
