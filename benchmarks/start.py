"""A node's start: how soon it answers, and what it takes, without the compiled matcher.

A new node is started on an empty machine (no cache of kernels, numba hidden, as if the extra
`denwatch[fast]` were not installed); somebody logs in and subscribes in words as soon as the port
is open, and the time until the reply counts. Then the node rests. Another one starts on a store
with 100,000 subscriptions: once knowing nothing of their vectors, and once more after it has
written what it found out (`sub.fact`), as every later start does.

Headline: `first_answer_s_empty_cache` (aim: at most 3), `rss_mb_idle` (100), `install_mb_node`
(120), `startup_s_100k` (4), `bytes_per_subscription` (1,500). Times are of a machine with other
work, so each has the processor time of the node beside it (`…_cpu_s`).
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from denwatch.node.runtime.process import TICK
from packaging.requirements import Requirement

from benchmarks.common import describe_machine, format_table, median, run, save_text, say
from benchmarks.node_servers import MeasuredServer
from benchmarks.node_site import Node, fill_store, make_node, name_person
from simulator.client_packets import write_connect, write_publish, write_subscribe

_SUBSCRIPTIONS, _STARTS = 100_000, 5
_QUICK_SUBSCRIPTIONS, _QUICK_STARTS = 2_000, 1
_REST = 5.0  # s before a node counts as idle
_WORDS = b"patient_temperature is very high"
_PATIENCE = 600.0  # s
_WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from denwatch.cli import main
sys.exit(main(sys.argv[1:]))
"""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the headline figures."""
    starts = _QUICK_STARTS if options.quick else _STARTS
    count = _QUICK_SUBSCRIPTIONS if options.quick else _SUBSCRIPTIONS
    with tempfile.TemporaryDirectory(prefix="denwatch-start-") as name:
        folder = Path(name)
        say("first answers")
        firsts = [measure_first(folder / f"new-{n}") for n in range(starts)]
        say(f"a start with {count:,} subscriptions")
        full = measure_full(folder / "full", count, options.seed)
    sizes = measure_install()
    idle = median([first["rss_mb"] for first in firsts])
    result = {
        "first_answer_s_empty_cache": median([first["answer_s"] for first in firsts]),
        "first_answer_cpu_s": median([first["cpu_s"] for first in firsts]),
        "rss_mb_idle": idle,
        "install_mb_node": sum(sizes.values()),
        "startup_s_100k": full["ready_s"],
        "startup_cpu_s_100k": full["cpu_s"],
        "startup_anew_s_100k": full["anew_ready_s"],
        "startup_anew_cpu_s_100k": full["anew_cpu_s"],
        "bytes_per_subscription": round((full["rss_mb"] - idle) * (1 << 20) / count),
    }
    if options.save:
        save_text("start.md", write_report(result, sizes, count, starts))
    return result


@contextmanager
def run_bare(node: Node, cache: Path) -> Iterator[MeasuredServer]:
    """Run a node as if numba were not installed, with an empty cache."""
    command = [sys.executable, "-c", _WITHOUT_NUMBA, "node", str(node.config)]
    places = {"NUMBA_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(cache)}
    log = node.config.parent / "start.log"
    server = MeasuredServer("node", command, log, node.port, places)
    try:
        yield server
    finally:
        server.end(signal.SIGTERM)


def measure_first(folder: Path) -> dict[str, float]:
    """Start a new node; return when it answered, what that took, and its memory at rest."""
    folder.mkdir()
    node = make_node(folder, 0, 1)
    with run_bare(node, folder / "cache") as server:
        began = time.perf_counter()
        server.launch()
        link = connect(server, node)
        seconds = subscribe(link, began)
        used = server.read_seconds()
        time.sleep(_REST)
        memory = server.read_memory()
        link.close()
    return {"answer_s": seconds, "cpu_s": used, "rss_mb": memory}


def connect(server: MeasuredServer, node: Node) -> socket.socket:
    """Return a link to a node that has just been launched, as soon as it listens."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            link = socket.create_connection(("127.0.0.1", node.port), 60)
            break
        except OSError:
            server.check_running()
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
    name = name_person(0)
    link.sendall(write_connect("start", name, node.passwords[name]))
    if link.recv(4) != b"\x20\x02\x00\x00":
        raise OSError("refused")
    return link


def subscribe(link: socket.socket, began: float) -> float:
    """Subscribe in words; return the seconds from `began` until the reply."""
    name = name_person(0)
    link.sendall(write_subscribe(1, f"dens/1/reply/{name}", qos=0))
    link.sendall(write_publish(f"dens/1/sub/{name}", _WORDS, 0, 0))
    got = b""
    while b'"ok"' not in got:
        more = link.recv(1 << 16)
        if not more:
            raise OSError(f"the link was closed after {got!r}")
        got += more
    if b'"ok": true' not in got and b'"ok":true' not in got:
        raise OSError(f"not subscribed: {got!r}")
    return time.perf_counter() - began


def measure_full(folder: Path, count: int, seed: int) -> dict[str, float]:
    """Start a node twice on a store with many subscriptions: first knowing nothing of them."""
    folder.mkdir()
    node = make_node(folder, 0, 1)
    fill_store(node, count, 1, seed, int(time.time() * 1000))
    found: dict[str, float] = {}
    for prefix in ("anew_", ""):
        with run_bare(node, folder / "cache") as server:
            server.start()
            found[f"{prefix}ready_s"] = server.started_in
            found[f"{prefix}cpu_s"] = server.read_seconds()
            time.sleep(_REST)
            found[f"{prefix}rss_mb"] = server.read_memory()
            if prefix:  # it writes what it knows, a thousand a tick
                time.sleep(2 * TICK * count / 1_000)
    return found


# What is installed ------------------------------------------------------------------------------


def measure_install(extra: str = "node") -> dict[str, float]:
    """Return the MB of each distribution that `denwatch` with an extra needs, itself included."""
    sizes: dict[str, float] = {}
    todo = [("denwatch", extra)]
    seen = set()
    while todo:
        name, part = todo.pop()
        if (name, part) in seen:
            continue
        seen.add((name, part))
        try:
            found = distribution(name)
        except PackageNotFoundError:  # not needed on this machine
            continue
        sizes[name] = _measure_package() if name == "denwatch" else _measure_files(found)
        for text in _list_ours(part) if name == "denwatch" else found.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": part}):
                todo += [(needed.name.lower(), each) for each in needed.extras or ("",)]
    return sizes


def _list_ours(extra: str) -> list[str]:
    """Return what we need with an extra, by the project's own file: it may be newer."""
    path = Path(__file__).resolve().parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return [*project["dependencies"], *extras.get(extra, ())]


def _measure_files(found: Distribution) -> float:
    paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file()) / (1 << 20)


def _measure_package() -> float:
    """Return the MB of our own files; in a checkout they are where they are edited."""
    root = Path(__file__).resolve().parents[1]
    folders = [root / part / "denwatch" for part in ("protocol", "edge", "backend")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in paths) / (1 << 20)


def write_report(result: dict[str, Any], sizes: dict[str, float], count: int, starts: int) -> str:
    """Return the page of results."""
    rows = [
        ("first answer, empty machine", "≤ 3 s", result["first_answer_s_empty_cache"]),
        ("… its processor time, s", "", result["first_answer_cpu_s"]),
        ("memory at rest, MB", "≤ 100", result["rss_mb_idle"]),
        ("installed, MB", "≤ 120", result["install_mb_node"]),
        (f"start with {count:,} subscriptions", "≤ 4 s", result["startup_s_100k"]),
        ("… its processor time, s", "", result["startup_cpu_s_100k"]),
        ("… the first time, nothing known of them, s", "", result["startup_anew_s_100k"]),
        ("… its processor time, s", "", result["startup_anew_cpu_s_100k"]),
        ("bytes a subscription", "≤ 1,500", result["bytes_per_subscription"]),
    ]
    largest = sorted(sizes.items(), key=lambda pair: -pair[1])[:8]
    return "\n".join(
        [
            "# Start: how soon a node answers, and what it takes",
            "",
            "A node without the extra `denwatch[fast]`: numba is hidden, the cache is empty. The",
            f"first answer is the median of {starts} new nodes: from the launch of the process to",
            "the reply to somebody who logs in and subscribes in words. Other work was on this",
            "machine, so the processor time of the node, user and system, says more than the time.",
            "",
            format_table(("what", "aim", "measured"), rows),
            "",
            "What is installed, the largest:",
            "",
            format_table(("distribution", "MB"), largest),
            "",
            f"- {describe_machine()}.",
        ]
    )


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
