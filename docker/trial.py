"""`make containers`: builds both images, runs the site of compose.yaml, and walks the path.

Needs Linux, root, podman, buildah, runc and debootstrap; no image is pulled. The base is made by
debootstrap and named as the Dockerfile's. What only this machine needs to reach its package
registries (a proxy's certificate, pip.conf, apt's settings) is a folder that is laid over the base:
--overlay. Everything is in one folder, --folder, and is removed at the end unless --keep.

It prints a log: each step, what was seen, and how long it took. The exit status is 0 if every step
went as docker/README.md says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMPOSE = ROOT / "docker" / "compose.yaml"
PROGRAMS = ("podman", "buildah", "runc", "debootstrap")
SERVICES = (
    *("broker", "north", "middle", "south", "bed-1", "bed-2", "mast-1", "console"),
    *("spark-master", "spark-worker-1", "spark-worker-2"),
)
WORDS = ("patient.heart_rate above 20 bpm, named pulse", "wind_speed at least 0 m/s, named wind")
DEVICES = {"bed-1", "bed-2", "mast-1"}
NODE_LIMIT = 350  # MB: a node alone
_SETTINGS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'


class TrialError(Exception):
    """A step that did not go as the page says."""


class Trial:
    """One run: its folder, its engine's settings, and its log."""

    def __init__(self, folder: Path, overlay: Path | None, variables: Sequence[str]) -> None:
        self.folder = folder
        self.overlay = overlay
        self.variables = variables  # of this machine, that the build needs
        (folder / "containers.conf").write_text(_SETTINGS, encoding="utf-8")
        (folder / "storage.conf").write_text(_STORAGE.format(folder), encoding="utf-8")
        os.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
        os.environ["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """Log a step with what it found and its time."""
        began, found = time.monotonic(), list[str]()
        print(f"{what} …", end=" ", flush=True)
        try:
            yield found
        except BaseException:
            print("FAILED", flush=True)
            raise
        print(f"{'; '.join(found) or 'done'} ({time.monotonic() - began:.0f} s)", flush=True)

    def run(self, *words: str, is_checked: bool = True, **settings: Any) -> str:
        """Run a program; return what it printed."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, **settings)
        if is_checked and done.returncode:
            raise TrialError(f"{' '.join(words)}: {(done.stdout + done.stderr)[-3000:]}")
        return str(done.stdout)

    # The images -----------------------------------------------------------------------------

    def make_base(self) -> None:
        """Make Debian by debootstrap, without what slim images lack, and name it as the base."""
        text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
        found = re.search(r"^FROM (\S+) AS base", text, re.M)
        assert found is not None, "the Dockerfile has a base"
        root = self.folder / "root"
        if not (root / "usr").exists():
            self.run("debootstrap", "--variant=minbase", "bookworm", str(root))
        for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir(parents=True)
        shutil.rmtree(root / "usr/share/locale", ignore_errors=True)
        (root / "var/lib/apt/lists/partial").mkdir()
        (root / "var/cache/apt/archives/partial").mkdir(parents=True)
        if self.overlay is not None:
            shutil.copytree(self.overlay, root, dirs_exist_ok=True, symlinks=True)
        archive = self.folder / "base.tar"
        self.run("tar", "-C", str(root), "-cf", str(archive), ".")
        self.run("podman", "import", str(archive), f"docker.io/library/{found[1]}")
        archive.unlink()

    def build(self, tag: str, target: str) -> float:
        """Build one image; return its size in MB."""
        commit = self.run("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD").strip()
        variables = [f"--env={name}={os.environ[name]}" for name in self.variables]
        options = ("--format=docker", "--isolation=chroot", "--network=host", "--pull-never")
        self.run(
            *("buildah", "bud", *options, "--layers=false", *variables),
            *(f"--build-arg=DENWATCH_COMMIT={commit}", f"--target={target}", f"-t={tag}"),
            *("-f", "docker/Dockerfile", "."),
            cwd=ROOT,
        )
        sizes = self.run("podman", "image", "inspect", tag, "--format", "{{.Size}}")
        return int(sizes) / 1e6

    # A node alone ---------------------------------------------------------------------------

    def try_node(self) -> str:
        """Start a node alone; return how long it took until its health check passed."""
        began = time.monotonic()
        self.run("podman", "run", "-d", "--name=alone", "--hostname=alone", "denwatch-node:local")
        try:
            wait_for("the node alone", lambda: self.is_healthy("alone"), 120)
            seconds = time.monotonic() - began
            version = self.run("podman", "exec", "alone", "denwatch", "--version").strip()
            return f"{version}; healthy {seconds:.0f} s after its first start"
        finally:
            self.run("podman", "rm", "-f", "-t=5", "alone", is_checked=False)

    def is_healthy(self, container: str) -> bool:
        """Return whether a container's own health check passes."""
        return not subprocess.run(
            ["podman", "healthcheck", "run", container], capture_output=True, check=False
        ).returncode

    # The site -------------------------------------------------------------------------------

    def compose(self, *words: str, **settings: Any) -> str:
        """Run podman-compose, which is installed into the run's own folder."""
        programs = self.folder / "compose" / "bin"
        if not programs.exists():
            self.run(sys.executable, "-m", "venv", str(programs.parent))
            self.run(str(programs / "python"), "-m", "pip", "install", "-q", "podman-compose")
        return self.run(str(programs / "podman-compose"), "-f", str(COMPOSE), *words, **settings)

    def find(self, service: str) -> str:
        """Return a service's container."""
        labels = ("--filter", f"label=io.podman.compose.service={service}")
        return self.run("podman", "ps", "-a", *labels, "--format", "{{.Names}}").split()[0]

    def call(self, service: str, *words: str, is_checked: bool = True) -> str:
        """Run a program in a service's container."""
        return self.run("podman", "exec", self.find(service), *words, is_checked=is_checked)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Run the health checks of all containers again and again, as systemd's timers do."""
        end = threading.Event()

        def run() -> None:
            while not end.wait(5):
                for container in self.run("podman", "ps", "--format", "{{.Names}}").split():
                    self.is_healthy(container)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def wait_until_healthy(self, services: Sequence[str], patience: float) -> None:
        """Wait until the health checks of all these pass."""
        for service in services:
            container = self.find(service)
            wait_for(service, partial(self.is_healthy, container), patience)

    def find_volume(self, name: str) -> Path:
        """Return the folder of a volume."""
        volume = self.run("podman", "volume", "inspect", f"denwatch_{name}")
        return Path(json.loads(volume)[0]["Mountpoint"])

    def publish(self, host: str, topic: str, message: str) -> None:
        """Publish as medic7 with Mosquitto's client, at the broker or at a node."""
        words = ("mosquitto_pub", *self.log_in(host), "-t", topic, "-m", message)
        self.call("south", *words)

    def listen(self, host: str, topic: str, count: int, seconds: int) -> list[dict[str, Any]]:
        """Return so many messages for medic7, or as many as came in that time."""
        words = ("mosquitto_sub", *self.log_in(host), "-t", topic, "-C", str(count))
        heard = self.call("south", *words, "-W", str(seconds), is_checked=False)
        return [json.loads(line) for line in heard.splitlines()]

    def log_in(self, host: str) -> list[str]:
        """Return the options of Mosquitto's clients for medic7."""
        password = (self.find_volume("people") / "medic7.key").read_text(encoding="utf-8").strip()
        login = ["-h", host, "-p", "8883", "-u", "medic7", "-P", password, "-q", "1"]
        return [*login, "--cafile", "/site/probe/ca.pem"]

    def hear_everybody(self) -> str:
        """Subscribe at the broker with Mosquitto's clients; hear from devices of all nodes."""
        heard: dict[str, str] = {}

        def hear() -> bool:
            self.publish("broker", "dens/1/sub/medic7", "list")  # there, who asks is served
            for note in self.listen("broker", "dens/1/note/medic7", 20, 10):
                heard[note["device"]] = note["why"]["words"]
            return set(heard) >= DEVICES

        for words in WORDS:
            self.publish("broker", "dens/1/sub/medic7", words)
        wait_for(f"readings of {', '.join(sorted(DEVICES))}", hear, 300)
        self.publish("middle", "dens/1/sub/medic7", "list")
        (reply,) = self.listen("middle", "dens/1/reply/medic7", 1, 60)
        check("middle knows the same", {"pulse", "wind"} == {
            row["name"] for row in reply["subscriptions"]
        })  # fmt: skip
        return "; ".join(f"{name}: {words}" for name, words in sorted(heard.items()))

    def try_to_intrude(self) -> str:
        """See that nobody gets what is not theirs: at the broker, in a service, by a new start."""
        words = ("mosquitto_pub", "-h", "broker", "-p", "8883", "-q", "1", "-t", "t", "-m", "x")
        check("the broker wants TLS", not self.can_call("south", *words))
        ca = ("--cafile", "/site/probe/ca.pem")
        check("the broker wants a name", not self.can_call("south", *words, *ca))
        for topic in ("dens/1/note/probe", "dens/1/wd/+/nv"):
            check(f"{topic} is not for medic7", not self.listen("broker", topic, 1, 5))
        self.publish("broker", "dens/1/status/north", "forged")
        (status,) = self.listen("broker", "dens/1/status/north", 1, 60)
        check("north's status is its own", set(status["peers"]) == {"middle", "south"})
        seen = self.call("bed-1", "find", "/site", "-type", "f").split()
        check("bed-1 sees its own", all(path.startswith("/site/bed-1/") for path in seen))
        check("bed-1 cannot write", not self.can_call("bed-1", "touch", "/opt/denwatch/x"))
        check("the broker's keys stay", not self.can_call("broker", "touch", "/site/broker/x"))
        check("nobody is root", self.call("middle", "id", "-u").strip() == "10001")
        page = ("docker/healthy.sh", "page", "https://console:8443/login")
        check("the console's certificate is the site's", self.can_call("middle", *page))
        before = self.read_keys()
        self.run("podman", "start", "--attach", self.find("init"))
        check("a second start changes no key", self.read_keys() == before)
        return "refused without TLS, without a name, on others' topics; own keys only; none changed"

    def can_call(self, service: str, *words: str) -> bool:
        """Return whether a program ends well in a service's container."""
        command = ["podman", "exec", self.find(service), *words]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    def read_keys(self) -> dict[str, bytes]:
        """Return what the first start made, file by file."""
        return {
            str(path): path.read_bytes()
            for name in ("north", "middle", "broker", "people", "probe", "bed-1")
            for path in sorted(self.find_volume(name).rglob("*"))
            if path.is_file() and path.name != "spool.bin"
        }

    def kill_node(self) -> str:
        """Kill a node's process, and see the engine bring it back with what it had."""
        before = self.run("podman", "inspect", self.find("south"), "--format", "{{.State.Pid}}")
        os.kill(int(before), 9)
        wait_for("the end of south", lambda: not self.is_healthy(self.find("south")), 60)
        # Here no engine's daemon restarts it: `up` does what `restart: unless-stopped` says.
        self.run("podman", "start", self.find("south"))
        self.wait_until_healthy(["south", "mast-1"], 300)
        after = self.run("podman", "inspect", self.find("south"), "--format", "{{.State.Pid}}")
        check("south was killed", before != after)
        return f"process {before.strip()} killed, {after.strip()} serves; mast-1 is connected again"

    def close(self, is_kept: bool) -> None:
        """Stop and remove everything of this run."""
        self.compose("down", "--volumes", is_checked=False)
        self.run("podman", "rm", "-fa", "-t=5", is_checked=False)
        if not is_kept:
            self.run("podman", "system", "reset", "-f", is_checked=False)
            shutil.rmtree(self.folder, ignore_errors=True)


def check(what: str, is_so: bool) -> None:
    """Fail unless something is so."""
    if not is_so:
        raise TrialError(f"not so: {what}")


def wait_for(what: str, is_so: Callable[[], bool], patience: float) -> None:
    """Wait until something is so."""
    until = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > until:
            raise TrialError(f"{what}: not within {patience:g} s")
        time.sleep(1)


def main(argv: list[str]) -> int:
    """Run every step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where everything is kept (a temporary folder)")
    parser.add_argument("--overlay", type=Path, help="files that this machine's base needs")
    parser.add_argument("--env", action="append", default=[], help="a variable that builds need")
    parser.add_argument("--keep", action="store_true", help="keep images and base")
    parser.add_argument("--built", action="store_true", help="with the images of a run with --keep")
    parser.add_argument("--node-only", action="store_true", help="only the image of a node alone")
    arguments = parser.parse_args(argv)
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing or os.geteuid():
        print(f"containers: needs root and {', '.join(missing or PROGRAMS)}", file=sys.stderr)
        return 3
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="containers-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(folder, arguments.overlay, arguments.env)
    try:
        if not arguments.built:
            build_images(trial, arguments.node_only)
        if not arguments.node_only:
            run_site(trial)
    except TrialError as error:
        print(f"containers: {error}", file=sys.stderr)
        return 1
    finally:
        trial.close(arguments.keep)
    return 0


def build_images(trial: Trial, node_only: bool) -> None:
    """Build the images, and try the one of a node alone."""
    with trial.step("base by debootstrap"):
        trial.make_base()
    with trial.step("image of a node alone") as found:
        size = trial.build("denwatch-node:local", "node")
        found.append(f"{size:.0f} MB")
        if size > NODE_LIMIT:
            raise TrialError(f"{size:.0f} MB, above {NODE_LIMIT}")
    with trial.step("a node alone") as found:
        found.append(trial.try_node())
    if not node_only:
        with trial.step("image of all services") as found:
            found.append(f"{trial.build('denwatch:local', 'denwatch'):.0f} MB")


def run_site(trial: Trial) -> None:
    """Run the steps of the page, one after the other."""
    with trial.step("podman-compose up"), trial.checking():  # some services wait for others' health
        trial.compose("up", "-d", "--no-build")
    with trial.step("health checks") as found:
        trial.wait_until_healthy(SERVICES, 300)
        found.append(f"{len(SERVICES)} services healthy")
    with trial.step("plain Mosquitto clients at the broker") as found:
        found.append(trial.hear_everybody())
    with trial.step("what is not theirs") as found:
        found.append(trial.try_to_intrude())
    with trial.step("kill -9 of a node") as found:
        found.append(trial.kill_node())
    with trial.step("Spark's report") as found, trial.checking():
        trial.compose("--profile", "analyze", "run", "--rm", "analyze")
        report = trial.find_volume("reports") / "latest" / "report.html"
        check("the report has pictures", "<svg" in report.read_text(encoding="utf-8"))
        found.append(f"report.html, {report.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
