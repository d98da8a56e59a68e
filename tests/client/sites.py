"""The far end for a subscriber's tests: a scripted node behind a broker, or a real node.

`ScriptedSite` is a Mosquitto with a `FakeNode` behind it, which keeps what the tests need to look
at (requests, subscriptions, reports), answers as the protocol says, and sends what `emit` gives it.
`resends` decides what its promise rests on: True, as a node behind somebody else's broker does, it
repeats a note until it is reported as received; False, each note goes out once, so that the PUBACK
alone keeps it from being lost. `RealSite` is a node's process with its own server, and a watchdog
that reads a file. What a note is about is its number in both, so that the same counting works.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from denwatch.client.vocabulary import load_shipped
from paho.mqtt.enums import CallbackAPIVersion

from simulator.site import ServerProcess, Site, find_free_port, make_mosquitto, write_watchdog
from tests.client.victim import NAME
from tests.watchdog.faults.site import require_mosquitto

PATIENCE = 30.0
PERIOD = 0.3
FORBIDDEN = "lottery"


def number(name: int) -> str:
    """The id of a note: 64 bits in hexadecimal, as nodes have them."""
    return hashlib.blake2b(str(name).encode(), digest_size=8).hexdigest()


def build_note(index: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": number(index),
        "event": "patient",
        "values": {"patient_temperature": {"value": 40.1, "unit": "°C"}},
        "degree": 0.9,
        "possible": 0.9,
        "certain": 0.4,
        "why": {"attribute": "patient_temperature", "degree": 0.9},
        "score": 0.5,
        "index": index,
        **fields,
    }


class FakeNode:
    def __init__(
        self,
        port: int,
        name: str = "tent",
        resends: bool = True,
        credentials: tuple[str, str] | None = None,
    ) -> None:
        self.port, self.name, self.resends = port, name, resends
        self.credentials = credentials
        self.subscriptions: dict[tuple[str, str], str] = {}
        self.requests: list[dict[str, Any]] = []
        self.outbox: dict[str, dict[str, dict[str, Any]]] = {}  # subscriber -> id -> note
        self.received: list[str] = []
        self.offer: dict[str, Any] | None = {"new_roots": 0, "nodes": 0}
        self.is_silent = False
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda _: None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._client: mqtt.Client | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> FakeNode:
        ready = threading.Event()
        self._stop.clear()
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=self.name, clean_session=False)
        client.reconnect_delay_set(1, 1)
        if self.credentials is not None:
            client.username_pw_set(*self.credentials)
        client.on_connect = lambda c, *_: c.subscribe("dens/1/sub/+", 1)
        client.on_subscribe = lambda *_: ready.set()
        client.on_message = lambda _c, _u, message: self._take(message)
        client.connect_async("127.0.0.1", self.port)
        client.loop_start()
        self._client = client
        self._thread = threading.Thread(target=self._resend, daemon=True)
        self._thread.start()
        assert ready.wait(20), "the node does not reach the broker"
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None
        if self._thread is not None:
            self._thread.join()

    def count(self, kind: str) -> int:
        with self._lock:
            return sum(kind in request for request in self.requests)

    # Saying ----------------------------------------------------------------------------------

    def emit(self, subscriber: str, *notes: dict[str, Any]) -> None:
        for note in notes:
            with self._lock:
                self.outbox.setdefault(subscriber, {})[note["id"]] = note
            self.send_note(subscriber, note)

    def send_note(self, subscriber: str, note: dict[str, Any]) -> None:
        self._send(f"dens/1/note/{subscriber}", note)

    def tell_status(self, **fields: Any) -> None:
        self._send(f"dens/1/status/{self.name}", {"node": self.name, **fields}, retain=True)

    def _send(self, topic: str, document: dict[str, Any], retain: bool = False) -> None:
        client = self._client
        if client is not None:
            client.publish(topic, json.dumps(document), qos=1, retain=retain)

    def _resend(self) -> None:
        while not self._stop.wait(PERIOD):
            if self.resends:
                with self._lock:
                    waiting = [(s, n) for s, notes in self.outbox.items() for n in notes.values()]
                for subscriber, note in waiting:
                    self.send_note(subscriber, note)

    # Hearing ---------------------------------------------------------------------------------

    def _take(self, message: mqtt.MQTTMessage) -> None:
        subscriber = message.topic.rpartition("/")[2]
        request = json.loads(message.payload)
        with self._lock:
            self.requests.append(request)
            for key in request.get("received", ()):
                self.received.append(key)
                self.outbox.get(subscriber, {}).pop(key, None)
            reply = None if self.is_silent else self._reply(subscriber, request)
        if reply is not None:
            self._send(f"dens/1/reply/{subscriber}", {**reply, "request": request["request"]})

    def _reply(self, subscriber: str, request: dict[str, Any]) -> dict[str, Any] | None:
        special = self.answer(request)
        if special is not None:
            return special
        if "subscribe" in request:
            text, name = request["subscribe"], request["name"]
            if FORBIDDEN in text:
                at = text.index(FORBIDDEN) + 1
                error = f'"{FORBIDDEN}" is no attribute; did you mean "temperature"?'
                return {"ok": False, "error": error, "at": at, "length": len(FORBIDDEN)}
            self.subscriptions[subscriber, name] = text
            return {"ok": True, "id": number(len(text)), "name": name}
        if "unsubscribe" in request:
            self.subscriptions.pop((subscriber, request["unsubscribe"]), None)
            return {"ok": True, "name": request["unsubscribe"]}
        if "list" in request:
            found = [
                {"name": name, "words": text}
                for (owner, name), text in self.subscriptions.items()
                if owner == subscriber
            ]
            return {"ok": True, "subscriptions": found}
        if "probe" in request and self.offer is not None:
            return {"ok": True, "node": self.name, **self.offer}
        return None


class ScriptedSite:
    """A broker and a scripted node; both can be taken away and come back."""

    words = "patient_temperature is very high"
    password: str | None = None

    def __init__(
        self,
        folder: Path,
        name: str = "tent",
        *,
        resends: bool = True,
        access: str = "allow_anonymous true",
        credentials: tuple[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.total = 0
        require_mosquitto()
        self.broker = make_mosquitto(
            folder,
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "max_inflight_messages 100",
            access=access,
        )
        self.port = self.broker.port
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.broker.start()
        self.node = FakeNode(self.port, name, resends, credentials).start()

    def emit(self, count: int) -> list[int]:
        """Let the node send so many new notes; return their numbers."""
        numbers = list(range(self.total, self.total + count))
        self.total += count
        self.node.emit(NAME, *(build_note(number) for number in numbers))
        time.sleep(0.005 * count)
        return numbers

    def close(self) -> None:
        self.node.stop()
        self.broker.kill()


class RealSite:
    """A node and a watchdog; the node can be killed and started again."""

    words = "east between 1 and 60000 m, event patient"

    def __init__(self, folder: Path) -> None:
        site = Site(folder)
        self.node = site.add_node("north")
        self.url = self.node.url
        self.password: str | None = site.add_subscriber(NAME)
        self.total = 0
        home = folder / "bed-1"
        config = write_watchdog(
            home,
            self.node.add_device("bed-1"),
            [{"east": 0.0}],
            load_shipped("rescue"),
            period=5,
            spool={"file": str(home / "spool"), "blocks": 64},
            hold=50,
            patience=700,
            link={"keep_alive": 2, "timeout": 2, "first_delay": 0, "longest_delay": 1},
        )
        self._readings = home / "readings.csv"
        command = [sys.executable, "-m", "denwatch.cli", "watchdog", str(config)]
        self._watchdog = ServerProcess("watchdog", command, home / "watchdog.log")
        self.node.start()
        self._watchdog.launch()

    def emit(self, count: int) -> list[int]:
        """Let the watchdog read so many new numbers; return them."""
        numbers = list(range(self.total + 1, self.total + count + 1))
        self.total += count
        with self._readings.open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers))
        time.sleep(0.005 * count)
        return numbers

    def close(self) -> None:
        self._watchdog.kill()
        self.node.kill()


def find_dead_url() -> str:
    """Return an address where nobody listens."""
    return f"mqtt://127.0.0.1:{find_free_port()}"
