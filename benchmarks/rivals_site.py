"""The same readings and rules at a node, at eKuiper behind Mosquitto, and at Mosquitto alone.

All are driven by one client with one window: a reading is sent when the matches of the one
`WINDOW` before it have come, so nobody's buffers run over and everybody's answers can be counted.
Rule 0 matches every MARK-th reading, so that something comes where the others match little.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
import yaml
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from benchmarks.node_client import Client, Login, Publisher, connect
from benchmarks.node_loads import connect_device, greet
from benchmarks.node_servers import MeasuredServer, run_mosquitto, run_node
from benchmarks.node_site import (
    EVENT,
    SENSED,
    Device,
    Node,
    make_node,
    name_person,
    store_subscriptions,
)
from benchmarks.rivals_tree import Rule
from simulator.site import find_free_ports

MARK = 50
WINDOW = 500  # readings under way; a rule of eKuiper drops what is beyond its 1,024
BATCH = 20  # readings in a frame, as a watchdog sends them when it has many
STREAM = "readings"
RELAY = "relay"
FOUND = "found"
NAMES = ("patient_temperature", "heart_rate", "respiration_rate")
_TOP = 255
_PATIENCE = 300.0  # s without any progress
_SETTLE = 0.3  # s in which a match too many would come


@dataclass(frozen=True)
class SiteWork:
    """Rules, readings in steps of their domains, and how many rules each reading matches."""

    rules: Sequence[Rule]
    readings: Sequence[tuple[int, ...]]
    matches: Sequence[int]


@dataclass
class SiteRun:
    """What one of them gave, by rounds: readings/s, and those a second of its processor time."""

    rates: list[float] = field(default_factory=list)
    cpu_rates: list[float] = field(default_factory=list)
    memory_mb: float = 0.0


def draw_site_work(seed: int, rules: int, readings: int) -> SiteWork:
    """Draw crisp rules of two or three attributes, each of which one reading in 1,000 matches."""
    rng = random.Random(seed)
    drawn: list[Rule] = [((SENSED[0], _TOP, _TOP),)]
    while len(drawn) < rules:
        names = sorted(rng.sample(SENSED, rng.choice((2, 3))))
        width = 8 if len(names) == 2 else 26
        lows = [rng.randrange(_TOP - width) for _ in names]
        drawn.append(tuple((a, low, low + width - 1) for a, low in zip(names, lows, strict=True)))
    rows = [
        (_TOP if n % MARK == 0 else rng.randrange(_TOP), rng.randrange(256), rng.randrange(256))
        for n in range(readings)
    ]
    values = np.array(rows)
    matches = np.zeros(len(rows), np.int64)
    for rule in drawn:
        fits = [(values[:, a] >= low) & (values[:, a] <= high) for a, low, high in rule]
        matches += np.logical_and.reduce(fits)
    return SiteWork(drawn, rows, matches.tolist())


def write_sql(rule: Rule) -> str:
    """Return a rule as eKuiper's SQL."""
    parts = [f"{NAMES[a]} >= {low} AND {NAMES[a]} <= {high}" for a, low, high in rule]
    return f"SELECT * FROM {STREAM} WHERE {' AND '.join(parts)}"


def write_json(values: Sequence[int]) -> bytes:
    """Return a reading as a sensor without us would publish it."""
    return json.dumps(dict(zip(NAMES, values, strict=True)), separators=(",", ":")).encode()


def encode_rule(rule: Rule, handle: int = 0) -> bytes:
    """Return a rule as a subscription vector; a device tells its vectors apart by the handle."""
    return encode(SubscriptionVector(EVENT, [Predicate(*part) for part in rule], handle=handle))


# The servers ------------------------------------------------------------------------------------


@contextmanager
def run_ekuiper(
    server: Path, settings: Path, folder: Path, broker: int
) -> Iterator[MeasuredServer]:
    """Run eKuiper on the loopback, its MQTT connection shared by all rules."""
    rpc, rest, http = find_free_ports(3)
    home = folder / "ekuiper"
    for name in ("data", "log", "plugins"):
        (home / name).mkdir(parents=True)
    (home / "etc").symlink_to(_write_settings(settings, folder, (rpc, rest, http), broker))
    log = folder / "ekuiper.log"
    ekuiper = MeasuredServer("ekuiper", [str(server)], log, rest, {"KuiperBaseKey": str(home)})
    try:
        ekuiper.start()
        yield ekuiper
    finally:
        ekuiper.end(signal.SIGTERM)


def _write_settings(settings: Path, folder: Path, ports: tuple[int, int, int], broker: int) -> Path:
    """Copy eKuiper's own settings, with our ports, on the loopback only."""
    etc = folder / "etc"
    for path in settings.rglob("*"):
        if path.is_file():
            target = etc / path.relative_to(settings)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    main = yaml.safe_load((settings / "kuiper.yaml").read_text(encoding="utf-8"))
    rpc, rest, http = ports
    local = "127.0.0.1"
    main["basic"] |= {"ip": local, "port": rpc, "restIp": local, "restPort": rest}
    main["basic"] |= {"logLevel": "error", "pluginHosts": ""}
    main["source"] |= {"httpServerIp": local, "httpServerPort": http}
    link = {"server": f"tcp://{local}:{broker}", "protocolVersion": "3.1.1"}
    files = {
        "kuiper.yaml": main,
        "mqtt_source.yaml": {"default": {"qos": 1, **link}},
        "connections/connection.yaml": {"mqtt": {"bench": link}},
    }
    for name, content in files.items():
        (etc / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return etc


def add_rules(rest: int, rules: Sequence[Rule], broker: int) -> None:
    """Create the stream, shared by all rules, and the rules."""
    words = f'CREATE STREAM {STREAM} () WITH (DATASOURCE="{STREAM}", FORMAT="JSON", SHARED="true")'
    _post(rest, "streams", {"sql": words})
    sink: dict[str, object] = {"topic": FOUND, "qos": 1, "sendSingle": True}
    sink |= {"connectionSelector": "mqtt.bench", "server": f"tcp://127.0.0.1:{broker}"}
    for number, rule in enumerate(rules):
        rule_id = f"rule{number}"
        _post(rest, "rules", {"id": rule_id, "sql": write_sql(rule), "actions": [{"mqtt": sink}]})


def _post(port: int, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as reply:
            reply.read()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"eKuiper refused {body}: {error.read().decode()}") from None


# Driving them ------------------------------------------------------------------------------------


async def drive(
    sender: Client,
    topic: str,
    payloads: Sequence[bytes],
    due: Sequence[int],
    count: Callable[[], int],
    window: int = WINDOW,
) -> float:
    """Send all payloads; return the seconds until the last match came.

    `due` says for each payload how many messages must have come once it is dealt with, `count` how
    many have.
    """
    publisher = Publisher(sender, topic, payloads, len(payloads))
    began = moved = time.perf_counter()
    done = seen = 0
    while True:
        came = count()
        while done < len(due) and due[done] <= came:
            done += 1
        publisher.go_on(done + window)
        now = time.perf_counter()
        if came >= due[-1] and publisher.is_done:
            break
        if came != seen:
            seen, moved = came, now
        elif now - moved > _PATIENCE:
            raise TimeoutError(f"{came} matches came of {due[-1]}")
        await asyncio.sleep(0.001)
    await asyncio.sleep(_SETTLE)
    if count() != due[-1]:
        raise AssertionError(f"{count()} messages instead of {due[-1]}")
    return now - began


async def drive_plain(
    port: int, topic: str, answers: str, work: SiteWork, due: Sequence[int]
) -> float:
    """Publish the readings as JSON to a broker, and count what comes on another topic."""
    receiver = await connect(port, Login("rivals-receiver"), [answers])
    sender = await connect(port, Login("rivals-sender"))
    payloads = [write_json(values) for values in work.readings]
    try:
        return await drive(sender, topic, payloads, due, lambda: receiver.received)
    finally:
        for client in (sender, receiver):
            client.transport.close()


async def drive_node(node: Node, device: Device, work: SiteWork, batch: int) -> float:
    """Send the readings as a device does, to one person whose subscriptions the rules are."""
    name = name_person(0)
    came: list[bytes] = []
    login = Login(f"{name}-app", name, node.passwords[name])
    receiver = await connect(node.port, login, [f"dens/1/note/{name}"], on_note=came.append)
    sender = await connect_device(node, device)
    frames = device.make_frames(work.readings, batch)
    told = list(accumulate(min(1, n) for n in work.matches))  # one message, however many match
    due = [told[min(len(told), at + batch) - 1] for at in range(0, len(told), batch)]
    window = max(1, WINDOW // batch)
    try:
        topic = device.topic + "nv"
        seconds = await drive(sender, topic, frames, due, lambda: len(came), window)
    finally:
        for client in (sender, receiver):
            client.transport.close()
    found = sum(len(json.loads(payload)["subscriptions"]) for payload in came)
    if found != sum(work.matches):
        raise AssertionError(f"{found} matches at the node instead of {sum(work.matches)}")
    return seconds


async def wait_for_rules(port: int, rules: int) -> None:
    """Publish marks until eKuiper's rules answer, and then until nothing more comes."""
    receiver = await connect(port, Login("rivals-receiver"), [FOUND])
    sender = await connect(port, Login("rivals-sender"))
    end = time.monotonic() + _PATIENCE
    while not receiver.received:
        if time.monotonic() > end:
            raise TimeoutError("eKuiper's rules do not answer")
        Publisher(sender, STREAM, [write_json((_TOP, 0, 0))], 1).go_on()
        await asyncio.sleep(0.5)
    await asyncio.sleep(1 + rules / 500)
    for client in (sender, receiver):
        client.transport.close()


def compare_servers(
    work: SiteWork, folder: Path, rounds: int, ekuiper: tuple[Path, Path] | None
) -> dict[str, SiteRun]:
    """Let all deal with the same readings in turns, round after round."""
    found = {name: SiteRun() for name in ("node", "node_batch", "mosquitto")}
    node = make_node(folder, 1, 1)
    now = int(time.time() * 1000)
    owner = name_person(0)
    store_subscriptions(node, [(owner, encode_rule(rule)) for rule in work.rules], now)
    device = Device(node, 0, now // 1000)
    with ExitStack() as stack:
        broker = stack.enter_context(run_mosquitto(folder))
        server = stack.enter_context(run_node(node.config, node.port))
        asyncio.run(greet(node, [device]))
        every = list(range(1, len(work.readings) + 1))
        due = list(accumulate(work.matches))
        ways: dict[str, tuple[list[MeasuredServer], Callable[[], float]]] = {
            "mosquitto": (
                [broker],
                lambda: asyncio.run(drive_plain(broker.port, RELAY, RELAY, work, every)),
            ),
            "node": ([server], lambda: asyncio.run(drive_node(node, device, work, 1))),
            "node_batch": ([server], lambda: asyncio.run(drive_node(node, device, work, BATCH))),
        }
        if ekuiper is not None:
            rules = stack.enter_context(run_ekuiper(*ekuiper, folder, broker.port))
            add_rules(rules.port, work.rules, broker.port)
            asyncio.run(wait_for_rules(broker.port, len(work.rules)))
            found["ekuiper"] = SiteRun()
            ways["ekuiper"] = (
                [rules, broker],
                lambda: asyncio.run(drive_plain(broker.port, STREAM, FOUND, work, due)),
            )
        for number in range(1 + rounds):  # the first warms up
            for name, (servers, way) in ways.items():
                before = sum(each.read_seconds() for each in servers)
                seconds = way()
                used = sum(each.read_seconds() for each in servers) - before
                if number:
                    found[name].rates.append(len(work.readings) / seconds)
                    found[name].cpu_rates.append(len(work.readings) / max(used, 0.01))
        for name, (servers, _) in ways.items():
            found[name].memory_mb = servers[0].read_memory()
    return found
