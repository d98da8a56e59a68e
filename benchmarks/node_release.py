"""The last release beside today's node: its own code, in a worktree, under the same loads.

A release has its own formats and names, so its node is filled, greeted and driven by its own
`benchmarks`: this file is run once more as a process in the worktree, with `benchmarks` meaning
that of the release, and does what it is told on its standard input. What it measures is measured
by the same lines for both.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.node_client import Login, Publisher, connect, wait_until

COMMIT = "f4d8dc35459fe6f9b61fad2d8cbcb4d624dcc6f0"  # the first release, the last one that is out
AWAY = 10  # persistent sessions that are away, each with its own copy of every message
_TOPIC = "bench/fanout"
_PAYLOAD = b"x" * 100
_WINDOW = 100
_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = _ROOT / ".cache" / "last-release"
_DEVICES, _PEOPLE = 1, 2
_PATIENCE = 3_600.0  # s until it listens: at its first start it compiles its matcher


async def measure_fanout(port: int, login: Login, away: Sequence[Login], count: int) -> float:
    """Return the copies a second that wait, acknowledged, for persistent sessions that are away."""
    for each in away:
        client = await connect(port, each, [_TOPIC], is_clean=False)
        client.transport.write(b"\xe0\x00")
        await asyncio.sleep(0.02)
        client.transport.close()
    sender = await connect(port, login)
    publisher = Publisher(sender, _TOPIC, [_PAYLOAD] * (count // len(away)), _WINDOW)
    began = time.perf_counter()
    publisher.go_on()
    await wait_until(lambda: publisher.is_done, lambda: sender.acknowledged)
    elapsed = time.perf_counter() - began
    sender.transport.close()
    for each in away:  # a clean session of the same name takes the queue away again
        client = await connect(port, each)
        client.transport.close()
    return count // len(away) * len(away) / elapsed


def make_away_logins(name: str = "", password: str | None = None) -> list[Login]:
    """Return the sessions that are away, all of one person if there is a name."""
    return [Login(f"bench-away-{number}", name, password) for number in range(AWAY)]


class Release:
    """The node of the last release, which runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure_path(self, count: int, batch: int, seed: int) -> float:
        """Return notifications/s over the full path, with the raw client."""
        return self._ask("path", count, batch, seed)

    def measure_fanout(self, count: int) -> float:
        """Return copies/s for sessions that are away."""
        return self._ask("fanout", count)

    def _ask(self, *words: object) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the last release's node ended; see above")
        return float(json.loads(line))


def add_worktree() -> Path | None:
    """Return the folder with the last release's code; None if this history does not have it."""
    if (_FOLDER / "benchmarks").is_dir():
        return _FOLDER
    git = ["git", "-C", str(_ROOT)]
    known = subprocess.run(
        [*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, check=False
    )
    if known.returncode:
        return None
    command = [*git, "worktree", "add", "--force", "--detach", str(_FOLDER), COMMIT]
    subprocess.run(command, capture_output=True, check=True)
    _declare(_FOLDER)
    return _FOLDER


def _declare(tree: Path) -> None:
    """Declare the release's own plugins, before those of the version that is installed here."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tree / "denwatch-0.dist-info"
    folder.mkdir(exist_ok=True)
    text = "Metadata-Version: 2.1\nName: denwatch\nVersion: 0\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
    lines = []
    for group, points in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@contextmanager
def run_release(folder: Path, subscriptions: int, seed: int) -> Iterator[Release | None]:
    """Run the last release's node with as many subscriptions; None if its code is not here."""
    tree = add_worktree()
    if tree is None:
        yield None
        return
    # -P: what stands beside this file does not come before what the release calls so.
    command = [sys.executable, "-P", __file__, str(folder / "release"), str(subscriptions)]
    process = subprocess.Popen(
        [*command, str(seed)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    release = Release(process)
    try:
        release._ask("ready")
        yield release
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(120)


# In the worktree -------------------------------------------------------------------------------


def _serve(folder: Path, subscriptions: int, seed: int) -> None:
    """Run the release's node and do what standard input says: one figure for each line."""
    from benchmarks import node_loads, node_servers, node_site

    site: Any = node_site  # the release's, whose functions have other arguments
    servers: Any = node_servers
    servers._READY = _PATIENCE
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed
    now = int(time.time() * 1000)
    node = site.make_node(folder, servers.find_free_port(), _DEVICES, _PEOPLE)
    site.fill_store(node, subscriptions, _PEOPLE, seed, now)
    device = site.Device(node, 0, now // 1000)
    device_login = Login(device.name, device.name, node.passwords[device.name])
    person = site.name_person(1)
    away = make_away_logins(person, node.passwords[person])
    with servers.run_node(node.config, node.port):
        asyncio.run(node_loads.greet(node, [device]))
        for line in sys.stdin:
            what, *numbers = json.loads(line)
            figure = 0.0
            if what == "path":
                count, batch, number = numbers
                path = node_loads.measure_path(node, device, 0, count, batch, None, number)
                figure = asyncio.run(path).rate
            elif what == "fanout":
                figure = asyncio.run(measure_fanout(node.port, device_login, away, *numbers))
            os.write(answers, f"{figure}\n".encode())


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
