"""A whole node under load, as a process of its own, beside Mosquitto and amqtt.

Durable PUBACK/s, notifications/s over the full path (a device's frame, its tag, matching, commit,
JSON to the subscriber and its PUBACK), latency at half load, memory and start-up, and where the
time goes. Every server is driven by the same clients; only the node writes to the disk. The last
release's node runs beside it, from a worktree below `.cache`, if this history has it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from denwatch.node.matching.matcher import WORTH_COMPILING

from benchmarks.common import median, percentile, run, say
from benchmarks.node_client import Login
from benchmarks.node_crowd import measure_crowd
from benchmarks.node_loads import (
    PAYLOAD,
    RELAY,
    greet,
    make_logins,
    make_queue_login,
    measure_devices,
    measure_path,
    measure_plain,
    measure_relay,
)
from benchmarks.node_paho import PahoPair
from benchmarks.node_release import Release, make_away_logins, measure_fanout, run_release
from benchmarks.node_report import Report, save_report
from benchmarks.node_servers import MeasuredServer, run_amqtt, run_mosquitto, run_node
from benchmarks.node_site import (
    Device,
    Node,
    draw_readings,
    fill_notes,
    fill_store,
    make_node,
    name_device,
    name_person,
)
from benchmarks.node_stages import Bench

BATCH = 20  # notifications in a frame, as a watchdog sends them when it has many
PEOPLE = 2  # the first is there, the second never: what is for her waits
PUBLISHERS = (1, 10, 100)


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    subscriptions: int
    notifications: int
    pubacks: int  # in each measurement
    copies: int  # for sessions that are away
    relayed: int
    path: int
    paho: int
    paced: int
    repeats: int
    publishers: Sequence[int]
    links: int  # that are idle
    crowd_s: float  # of each measurement of a delay
    has_release: bool  # whether the last release runs beside it: its first start compiles for long


FULL = Sizes(
    100_000, 1_000_000, 10_000, 20_000, 20_000, 6_000, 3_000, 3_000, 3, PUBLISHERS, 2_000, 3.0, True
)
QUICK = Sizes(2_000, 5_000, 1_000, 2_000, 4_000, 1_000, 1_000, 400, 1, (1, 10), 100, 0.5, False)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the headline figures."""
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="denwatch-node-") as name:
        report = _measure_all(Path(name), sizes, options.seed)
    for line in report.describe():
        say(line)
    if options.save:
        save_report(report)
    return report.summarise()


def _measure_all(folder: Path, sizes: Sizes, seed: int) -> Report:
    report = Report(sizes.subscriptions, sizes.notifications, tuple(sizes.publishers))
    now = int(time.time() * 1000)
    say(f"writing {sizes.subscriptions:,} subscriptions")
    node = make_node(folder, max(sizes.publishers), PEOPLE)
    fill_store(node, sizes.subscriptions, PEOPLE, seed, now)
    full = folder / "full"
    shutil.copytree(node.config.parent, full)
    devices = [Device(node, number, now // 1000) for number in range(max(sizes.publishers))]
    with run_mosquitto(folder) as mosquitto:
        say("the last release")
        beside: AbstractContextManager[Release | None] = nullcontext()
        if sizes.has_release:
            beside = run_release(folder, sizes.subscriptions, seed)
        else:
            report.why_no_release = "it is not run in the quick form"
        with (
            beside as release,
            run_node(node.config, node.port) as server,
        ):
            report.start_subscriptions_s = server.started_in
            report.subscriptions_mb = server.read_memory()
            asyncio.run(greet(node, devices))
            if sizes.subscriptions > WORTH_COMPILING:
                server.wait_for_kernels()
            _measure_pubacks(report, sizes, mosquitto, node, devices, seed)
            _measure_fanouts(report, sizes, mosquitto, release, node)
            _measure_paths(report, sizes, mosquitto, server, release, node, devices[0])
            report.busy_mb = server.read_memory()
            _measure_crowds(report, sizes, mosquitto, server, node)
        with run_amqtt(folder) as amqtt:
            say("amqtt")
            report.add_plain(
                "amqtt",
                [_publish(amqtt.port, None, n, sizes.pubacks // 5) for n in sizes.publishers],
            )
            report.amqtt_relay = asyncio.run(measure_relay(amqtt.port, sizes.relayed // 10))
    say("where the time goes")
    bench = Bench(node, devices[0], 0)
    for batch in (1, BATCH):
        bench.run(sizes.path // 10, batch, seed)
        report.stages[batch] = bench.run(sizes.path, batch, seed)
    bench.close()
    _measure_store(report, sizes, node, full, seed, now)
    return report


def _measure_pubacks(
    report: Report,
    sizes: Sizes,
    mosquitto: MeasuredServer,
    node: Node,
    devices: Sequence[Device],
    seed: int,
) -> None:
    say("PUBACKs")
    counts = sizes.publishers
    report.add_plain(
        "Mosquitto", [_publish(mosquitto.port, None, n, sizes.pubacks) for n in counts]
    )
    report.add_plain("node", [_publish(node.port, node, n, sizes.pubacks) for n in counts])
    report.add_plain(
        "node, notifications",
        [asyncio.run(measure_devices(node, devices[:n], 1, sizes.pubacks, seed)) for n in counts],
    )


def _publish(port: int, node: Node | None, publishers: int, count: int) -> float:
    logins, queue = make_logins(node, publishers), make_queue_login(node, 1)
    return asyncio.run(measure_plain(port, logins, queue, count))


def _measure_fanouts(
    report: Report, sizes: Sizes, mosquitto: MeasuredServer, release: Release | None, node: Node
) -> None:
    """Measure messages for sessions that are away, in turn, as below."""
    sender, person = name_device(0), name_person(1)
    login = Login(sender, sender, node.passwords[sender])
    own = make_away_logins(person, node.passwords[person])
    strangers = make_away_logins()
    for repeat in range(sizes.repeats):
        say(f"sessions that are away {repeat + 1}")
        fanout = measure_fanout(mosquitto.port, Login("bench-sender"), strangers, sizes.copies)
        report.add("fanout, Mosquitto", asyncio.run(fanout))
        fanout = measure_fanout(node.port, login, own, sizes.copies)
        report.add("fanout", asyncio.run(fanout))
        if release is not None:
            report.add("fanout, release", release.measure_fanout(sizes.copies))


def _measure_paths(
    report: Report,
    sizes: Sizes,
    mosquitto: MeasuredServer,
    server: MeasuredServer,
    release: Release | None,
    node: Node,
    device: Device,
) -> None:
    """Measure relay and path in turn, several times, so that a busy machine is busy for both."""
    for repeat in range(sizes.repeats):
        say(f"full path {repeat + 1}")
        used = mosquitto.read_seconds()
        report.add("relay", asyncio.run(measure_relay(mosquitto.port, sizes.relayed)))
        report.add("relay cpu", (mosquitto.read_seconds() - used) / sizes.relayed * 1e6)
        for batch in (1, BATCH):
            used, waited = server.read_seconds(), server.read_waiting()
            path = asyncio.run(measure_path(node, device, 0, sizes.path, batch, None, repeat))
            report.add(f"path {batch}", path.rate)
            report.add(f"cpu {batch}", (server.read_seconds() - used) / sizes.path * 1e6)
            waited = server.read_waiting() - waited
            report.add(f"waiting {batch}", waited * path.rate / sizes.path)
            if release is not None:
                rate = release.measure_path(sizes.path, batch, repeat)
                report.add(f"path {batch}, release", rate)
        report.add("paho relay", _relay_by_paho(mosquitto.port, sizes.paho))
        for batch in (1, BATCH):
            report.add(f"paho path {batch}", _path_by_paho(node, device, sizes.paho, batch, repeat))
    report.load = os.getloadavg()[0]
    half = median(report.samples["path 1"]) / 2
    path = asyncio.run(measure_path(node, device, 0, sizes.paced, 1, half, -1))
    report.half_rate = half
    report.p50_ms = 1000 * percentile(path.latencies, 0.5)
    report.p99_ms = 1000 * percentile(path.latencies, 0.99)


def _measure_crowds(
    report: Report, sizes: Sizes, mosquitto: MeasuredServer, server: MeasuredServer, node: Node
) -> None:
    say("crowds")
    name = name_person(1)
    password = node.passwords[name]
    servers: dict[str, tuple[MeasuredServer, Callable[[str], Login]]] = {
        "Mosquitto": (mosquitto, Login),
        "node": (server, lambda client: Login(client, name, password)),
    }
    for words, (each, make_login) in servers.items():
        found = asyncio.run(measure_crowd(each, make_login, sizes.links, sizes.crowd_s))
        report.crowds[words] = found


def _relay_by_paho(port: int, count: int) -> float:
    pair = PahoPair(port, Login("bench-sender"), Login("bench-receiver"), RELAY)
    try:
        return pair.measure(RELAY, [PAYLOAD] * count, count)
    finally:
        pair.close()


def _path_by_paho(node: Node, device: Device, count: int, batch: int, seed: int) -> float:
    name = name_person(0)
    sender = Login(device.name, device.name, node.passwords[device.name])
    receiver = Login(f"{name}-app", name, node.passwords[name])
    readings = draw_readings(random.Random(seed), 0, count)
    pair = PahoPair(node.port, sender, receiver, f"dens/1/note/{name}")
    try:
        return pair.measure(device.topic + "nv", device.make_frames(readings, batch), count)
    finally:
        pair.close()


def _measure_store(
    report: Report, sizes: Sizes, node: Node, folder: Path, seed: int, now: int
) -> None:
    """Start the node on a copy of its store as it was at first, with many notifications."""
    say(f"writing {sizes.notifications:,} notifications")
    twin = replace(node, config=folder / node.config.name)
    fill_notes(twin, sizes.notifications, seed, now)
    database = sum(path.stat().st_size for path in (folder / "data").glob("node.db*"))
    report.database_mb = database / 1e6
    with run_node(twin.config, twin.port) as server:
        report.start_full_s = server.started_in
        report.full_mb = server.read_memory()


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
