"""Where the time of the full path goes: the node in this process, without sockets, sampled.

A timer of processor time interrupts the node a thousand times a second; what was used since the
last time goes to the file whose code was running, and files are grouped into stages.
"""

from __future__ import annotations

import gc
import random
import signal
import time
from types import FrameType

from denwatch.node.config import load_config
from denwatch.node.mqtt.interface import LinkOpened, LinkReceived, Send
from denwatch.node.runtime.process import open_node

from benchmarks.node_client import Login, write_connect, write_publish, write_subscribe
from benchmarks.node_loads import RELAY_WINDOW
from benchmarks.node_site import Device, Node, draw_readings, name_person
from simulator.site import REPOSITORY

STAGES = (
    ("MQTT server", ("edge/denwatch/node/mqtt/",)),
    (
        "device frames: tag, vectors",
        ("edge/denwatch/node/core/device", "protocol/", "edge/denwatch/node/security/"),
    ),
    (
        "matching",
        ("edge/denwatch/node/matching/", "edge/denwatch/node/core/subscriptions.py"),
    ),
    (
        "judging, JSON, delivery",
        (
            "edge/denwatch/node/core/delivery.py",
            "edge/denwatch/node/core/notifications.py",
            "edge/denwatch/node/core/pending.py",
            "edge/denwatch/node/core/subscriber_protocol.py",
            "edge/denwatch/client/",
            "edge/denwatch/node/ranking/",
        ),
    ),
    ("items, context, peers", ("edge/denwatch/node/core/", "edge/denwatch/node/replication/")),
    ("log records", ("edge/denwatch/node/log/",)),
    ("SQLite, with its commits", ("edge/denwatch/node/store/",)),
    ("between them", ("edge/denwatch/node/runtime/",)),
)
_INTERVAL = 0.001  # s
_DEVICE, _PERSON = 1, 2  # links


class Sampler:
    """Processor time by stage while it is on."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((name for name, _ in STAGES), 0.0)
        self._known: dict[str, str | None] = {}
        self._last = 0.0

    def __enter__(self) -> Sampler:
        self._last = time.process_time()
        self._old = signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._old)

    def _take(self, _: int, frame: FrameType | None) -> None:
        now = time.process_time()
        used, self._last = now - self._last, now
        while frame is not None:
            stage = self._find_stage(frame.f_code.co_filename)
            if stage is not None:
                self.seconds[stage] += used
                return
            frame = frame.f_back

    def _find_stage(self, path: str) -> str | None:
        if path not in self._known:
            name = path.removeprefix(f"{REPOSITORY}/")
            found = [stage for stage, starts in STAGES if name.startswith(starts)]
            self._known[path] = found[0] if found else None
        return self._known[path]


class Bench:
    """A node on its store, with a device and a subscriber on links that are lists of bytes."""

    def __init__(self, node: Node, device: Device, person: int) -> None:
        self._opened = open_node(load_config(node.config))
        self._durable_node = self._opened.built.durable_node
        self._device = device
        self._received = 0
        name = name_person(person)
        device_login = Login(device.name, device.name, node.passwords[device.name])
        person_login = Login(name, name, node.passwords[name])
        for link, login, topics in (
            (_DEVICE, device_login, [device.topic + "sv", device.topic + "ack"]),
            (_PERSON, person_login, [f"dens/1/note/{name}"]),
        ):
            self._take(LinkOpened(link))
            self._take(LinkReceived(link, write_connect(login, True) + write_subscribe(topics)))
        for _ in range(100):  # vectors go down, some at a time
            self._answer()
            self._durable_node.tick(self._opened.clock.read())
        gc.collect()  # as the process does
        gc.freeze()

    def run(self, count: int, batch: int, seed: int) -> dict[str, float]:
        """Return the processor time of a notification in µs, by stage."""
        chunks = self._prepare(count, batch, seed)
        self._received = 0
        with Sampler() as sampler:
            for chunk in chunks:
                self._take(LinkReceived(_DEVICE, chunk))
                self._answer()
            while self._received < count:
                self._answer()
        return {stage: used / count * 1e6 for stage, used in sampler.seconds.items()}

    def _prepare(self, count: int, batch: int, seed: int) -> list[bytes]:
        """Return what the device sends, in chunks of about a window."""
        readings = draw_readings(random.Random(seed), 0, count)
        topic = self._device.topic + "nv"
        packets = []
        for number, frame in enumerate(self._device.make_frames(readings, batch)):
            head, payload = write_publish(topic, frame)
            packets.append(head + (number % 60_000 + 1).to_bytes(2, "big") + payload)
        group = max(1, RELAY_WINDOW // batch)
        return [b"".join(packets[i : i + group]) for i in range(0, len(packets), group)]

    def close(self) -> None:
        """Let go of the store."""
        gc.unfreeze()
        self._opened.store.close()

    def _take(self, event: LinkOpened | LinkReceived) -> None:
        self._durable_node.receive_input(event, self._opened.clock.read())

    def _answer(self) -> None:
        """Commit, and acknowledge what was sent: as a client does that gets one write a link."""
        sent: dict[int, bytes] = {}
        for output in self._durable_node.commit().outputs:
            if type(output) is Send:
                sent[output.link] = sent.get(output.link, b"") + output.data
        for link, data in sent.items():
            acks = list(_acknowledge(data))
            if link == _PERSON:
                self._received += len(acks)
            if acks:
                self._take(LinkReceived(link, b"".join(acks)))


def _acknowledge(data: bytes) -> list[bytes]:
    acks = []
    at = 0
    while at < len(data):
        first, size, body = data[at], data[at + 1], at + 2
        if size > 127:
            size, body = size & 127 | data[body] << 7, body + 1
        if first >> 4 == 3 and first & 6:
            start = body + 2 + (data[body] << 8 | data[body + 1])
            acks.append(b"\x40\x02" + data[start : start + 2])
        at = body + size
    return acks
