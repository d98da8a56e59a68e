"""Who plays in the demo: watchdogs on MicroPython, people with the client library, and a visitor
with a plain MQTT 5 client."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from typing import Any

from denwatch.client.subscriber import ReceivedNotification, Subscriber
from denwatch.client.subscriber.core import SubscriberOptions
from denwatch.client.subscriber.messages import Reply, read_notification
from denwatch.client.subscriber.store import HandlerTransaction
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from demo.site import DemoSite
from firmware_tests.runtimes import find_library, find_unix
from simulator.site import SiteError

PATIENCE = 600.0  # s: what has not come by then does not come


def read_metrics(url: str) -> dict[str, float]:
    """Return a node's counters and gauges; nothing while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=1) as page:
            text = page.read().decode()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("denwatch_"):
            name, _, value = line.rpartition(" ")
            key = name.partition("{")[0].removeprefix("denwatch_").removesuffix("_total")
            found[key] = found.get(key, 0.0) + float(value)
    return found


class WatchdogProcess:
    """A watchdog on MicroPython; it prints its counters, which are kept here."""

    def __init__(self, site: DemoSite, name: str) -> None:
        self.name = name
        self.report: Mapping[str, Any] = {}
        config = str(site.folder / name / "watchdog.json")
        code = f"from denwatch.watchdog.boot import main; main({config!r}, 1)"
        self._process = subprocess.Popen(
            [str(find_unix(64)), "-X", "heapsize=512k", "-c", code],
            stdout=subprocess.PIPE,
            stderr=(site.folder / f"{name}.log").open("w"),
            env={**os.environ, "MICROPYPATH": f"{find_library()}:.frozen"},
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.report = json.loads(line)

    @property
    def sent(self) -> int:
        """How many of them somebody wanted."""
        return int(self.report.get("matched", 0))

    @property
    def acknowledged(self) -> int:
        """How many the node has on its disk."""
        return int(self.report.get("uplink", {}).get("acknowledged", 0))

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)


class Person:
    """Somebody with the client library, at one node at a time."""

    def __init__(self, site: DemoSite, name: str, node: str, words: str) -> None:
        self.name = name
        self.node = node
        self.words = words
        self.notes: list[ReceivedNotification] = []
        self.told: list[str] = []  # who has what
        self.delays: list[float] = []  # s from the reading to the app
        self._site = site
        self._subscriber = Subscriber(
            name,
            site.passwords[name],
            [site.nodes[node].url],
            store=site.folder / f"{name}.db",
            on_notification=self._take,
            settings=SubscriberOptions(),
        )
        self._subscriber.listen(self._listen)

    def ask(self) -> None:
        """Say what is wanted."""
        self._subscriber.start()
        self._subscriber.subscribe(self.words, name="demo", timeout=PATIENCE)

    def send(self, **document: str) -> Reply:
        """Send another request, such as a report; return the node's reply."""
        reply = self._subscriber.request(document).result(PATIENCE)
        if not reply.is_ok:
            raise reply.build_error()
        return reply

    def walk(self, node: str) -> None:
        """Go to another node."""
        self.node = node
        self._subscriber.use_servers([self._site.nodes[node].url])

    def leave(self) -> None:
        """Close the app."""
        self._subscriber.close()

    def find(self, device: str, since: float = 0.0) -> ReceivedNotification | None:
        """Return the newest notification of a device, read after that time (s since 1970)."""
        for note in reversed(list(self.notes)):
            if note.fields.get("device") == device and (note.at or 0) / 1000 >= since:
                return note
        return None

    def _take(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002
        if note.at is not None:
            self.delays.append(max(0.0, time.time() - note.at / 1000))  # times are rounded
        self.notes.append(note)

    def _listen(self, told: Reply) -> None:
        had = told.fields.get("had")
        if isinstance(had, dict):
            self.told.append(f"{had.get('by')} has {had.get('subject')}")


class Visitor:
    """Somebody without our library: a plain MQTT 5 client, whose request has a mark of its own."""

    def __init__(self, site: DemoSite, name: str, node: str, words: str) -> None:
        self.name = name
        self.node = node
        self.words = words
        self.notes: list[ReceivedNotification] = []
        self.delays: list[float] = []
        self._mark = b"ward 4"
        self._replies: Queue[MQTTMessage] = Queue()
        self._is_listening = threading.Event()
        version = MQTTProtocolVersion.MQTTv5
        self._client = Client(CallbackAPIVersion.VERSION2, name, protocol=version)
        self._client.username_pw_set(name, site.passwords[name])
        self._client.on_connect = lambda client, *_: client.subscribe(
            [(f"dens/1/{kind}/{name}", SubscribeOptions(qos=1)) for kind in ("note", "reply")]
        )
        self._client.on_subscribe = lambda *_: self._is_listening.set()
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", site.nodes[node].port)
        self._client.loop_start()

    def ask(self) -> None:
        """Say what is wanted; the reply must come to where the request says, with its mark."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = f"dens/1/reply/{self.name}"
        properties.CorrelationData = self._mark
        topic = f"dens/1/sub/{self.name}"
        self._is_listening.wait(PATIENCE)
        self._client.publish(topic, self.words, qos=1, properties=properties)
        reply = self._replies.get(timeout=PATIENCE)
        if getattr(reply.properties, "CorrelationData", None) != self._mark:
            raise SiteError(f"{self.name}: the reply is not marked as the request was")

    def leave(self) -> None:
        """Close the app."""
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        if message.topic.startswith("dens/1/reply/"):
            self._replies.put(message)
        elif (note := read_notification(bytes(message.payload))) is not None:
            if note.at is not None:
                self.delays.append(max(0.0, time.time() - note.at / 1000))  # times are rounded
            self.notes.append(note)


def make_folder(root: Path) -> Path:
    """Return a fresh folder for one run; `last` leads to it."""
    folder = root / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    last = root / "last"
    last.unlink(missing_ok=True)
    last.symlink_to(folder.name)
    return folder
