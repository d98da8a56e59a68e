"""What the node's benchmark does to a server, with the raw client: publishing, relaying, the path.

Rates are messages a second, from the first byte sent to the last acknowledgement taken.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.notifications import describe_reading
from denwatch.protocol.vectors import Reading

from benchmarks.node_client import Client, Login, Publisher, connect, wait_until
from benchmarks.node_site import (
    EVENT,
    SENSED,
    Device,
    Node,
    draw_readings,
    name_device,
    name_person,
)

PAYLOAD = b"x" * 100
PLAIN = "bench/plain"
RELAY = "bench/relay"
WINDOW = 10  # of each publisher
RELAY_WINDOW = 100
_PATIENCE = 600.0  # s for the answer to a hello
_SETTLE = 3.0  # s without news from the node: a device has its vectors
_QUEUE = "bench-queue"


async def measure_plain(port: int, logins: Sequence[Login], queue: Login, count: int) -> float:
    """Return PUBACK/s of plain publishes, all of which wait for one absent persistent session."""
    away = await connect(port, queue, [PLAIN], is_clean=False)
    away.transport.write(b"\xe0\x00")
    await asyncio.sleep(0.1)
    away.transport.close()
    clients = [await connect(port, login) for login in logins]
    share = [PAYLOAD] * (count // len(logins))
    rate = await _publish_all([Publisher(c, PLAIN, share, WINDOW) for c in clients])
    for client in clients:
        client.transport.close()
    # A clean session of the same name takes the queue away again.
    last = await connect(port, queue)
    last.transport.close()
    return rate


async def measure_devices(
    node: Node, devices: Sequence[Device], person: int, count: int, seed: int
) -> float:
    """Return PUBACK/s of devices that send one notification in each message."""
    rng = random.Random(seed)
    publishers = []
    clients = []
    for device in devices:
        client = await connect_device(node, device)
        frames = device.make_frames(draw_readings(rng, person, count // len(devices)), 1)
        publishers.append(Publisher(client, device.topic + "nv", frames, WINDOW))
        clients.append(client)
    rate = await _publish_all(publishers)
    for client in clients:
        client.transport.close()
    return rate


async def _publish_all(publishers: Sequence[Publisher]) -> float:
    began = time.perf_counter()
    for publisher in publishers:
        publisher.go_on()
    await wait_until(
        lambda: all(p.is_done for p in publishers), lambda: sum(len(p.sent_at) for p in publishers)
    )
    return sum(len(p.sent_at) for p in publishers) / (time.perf_counter() - began)


async def measure_relay(port: int, count: int) -> float:
    """Return messages/s through a server from one client to another."""
    receiver = await connect(port, Login("bench-receiver"), [RELAY])
    sender = await connect(port, Login("bench-sender"))
    publisher = Publisher(sender, RELAY, [PAYLOAD] * count, RELAY_WINDOW)
    began = time.perf_counter()
    publisher.go_on()
    await wait_until(
        lambda: receiver.received >= count and publisher.is_done, lambda: receiver.received
    )
    rate = count / (time.perf_counter() - began)
    for client in (sender, receiver):
        client.transport.close()
    return rate


async def connect_device(node: Node, device: Device) -> Client:
    """Return a device's link, which listens as a watchdog does."""
    login = Login(device.name, device.name, node.passwords[device.name])
    topics = [device.topic + "sv", device.topic + "ack"]
    return await connect(node.port, login, topics, on_note=device.hear)


async def greet(node: Node, devices: Sequence[Device]) -> None:
    """Let devices say hello, and take the answers and all vectors that the node has for them."""
    clients = []
    for device in devices:
        client = await connect_device(node, device)
        Publisher(client, device.topic + "hello", [device.make_hello()], 1).go_on()
        clients.append(client)
    began = since = time.monotonic()
    seen = -1
    while time.monotonic() - since < _SETTLE or not all(device.is_greeted for device in devices):
        if time.monotonic() - began > _PATIENCE:
            raise TimeoutError("a hello was not answered")
        now = sum(client.received for client in clients)
        if now != seen:
            seen, since = now, time.monotonic()
        await asyncio.sleep(0.05)
    for client in clients:
        client.transport.close()


@dataclass(frozen=True)
class Path:
    """What a run over the full path gave."""

    rate: float  # notifications/s
    latencies: list[float]  # s from the device's write to the subscriber's read


async def measure_path(
    node: Node, device: Device, person: int, count: int, batch: int, rate: float | None, seed: int
) -> Path:
    """Send notifications from one device to one subscriber: as fast as it goes, or so many a s."""
    came: list[tuple[float, bytes]] = []
    name = name_person(person)
    login = Login(f"{name}-app", name, node.passwords[name])
    receiver = await connect(
        node.port,
        login,
        [f"dens/1/note/{name}"],
        on_note=lambda payload: came.append((time.perf_counter(), payload)),
    )
    sender = await connect_device(node, device)
    readings = draw_readings(random.Random(seed), person, count)
    frames = device.make_frames(readings, batch)
    publisher = Publisher(sender, device.topic + "nv", frames, RELAY_WINDOW)
    began = time.perf_counter()
    if rate is None:
        publisher.go_on()
    else:
        await publisher.run_paced(rate / batch)
    await wait_until(lambda: len(came) >= count and publisher.is_done, lambda: len(came))
    elapsed = time.perf_counter() - began
    for client in (sender, receiver):
        client.transport.close()
    sent = [publisher.sent_at[place // batch] for place in range(count)]
    return Path(count / elapsed, _find_latencies(readings, sent, came))


def _find_latencies(
    readings: Sequence[Sequence[int]], sent: Sequence[float], came: Sequence[tuple[float, bytes]]
) -> list[float]:
    """Match what came with what was sent, by the values: the node may change the order."""
    event = next(e for e in load_shipped("rescue").events.values() if e.number == EVENT)
    attributes = sorted(event.attributes.values(), key=lambda a: a.bit)
    names = [attributes[bit].name for bit in SENSED]
    shown = [
        {
            v: json.loads(describe_reading(attributes[bit], Reading(bit, (v, v, v, v))))["value"]
            for v in range(256)
        }
        for bit in SENSED
    ]
    waiting: dict[tuple[float, ...], deque[float]] = defaultdict(deque)
    for values, when in zip(readings, sent, strict=True):
        waiting[tuple(words[v] for words, v in zip(shown, values, strict=True))].append(when)
    latencies = []
    for when, payload in came:
        told = json.loads(payload)["values"]
        latencies.append(when - waiting[tuple(told[name]["value"] for name in names)].popleft())
    return latencies


def make_logins(node: Node | None, count: int) -> list[Login]:
    """Return publishers: devices of a node, or anybody where everybody is let in."""
    if node is None:
        return [Login(f"bench-{number}") for number in range(count)]
    names = [name_device(number) for number in range(count)]
    return [Login(name, name, node.passwords[name]) for name in names]


def make_queue_login(node: Node | None, person: int) -> Login:
    """Return whose persistent session the plain messages wait for."""
    if node is None:
        return Login(_QUEUE)
    name = name_person(person)
    return Login(_QUEUE, name, node.passwords[name])
