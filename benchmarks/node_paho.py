"""The same measurements with paho-mqtt, the client that apps use; slower than any server here.

One client publishes, another receives, each with its thread, in one process: as in most comparisons
of brokers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.node_client import Login

_PATIENCE = 120.0  # s
WINDOW = 100


class PahoPair:
    """A publisher and a receiver, connected."""

    def __init__(self, port: int, sender: Login, receiver: Login, topic: str) -> None:
        self._wanted = 0
        self._received = 0
        self._done = threading.Event()
        self._sender = _connect(port, sender)
        self._receiver = _connect(port, receiver)
        self._receiver.on_message = self._take
        ready = threading.Event()
        self._receiver.on_subscribe = lambda *_: ready.set()
        self._receiver.subscribe(topic, 1)
        if not ready.wait(_PATIENCE):
            raise TimeoutError(f"no SUBACK for {topic}")

    def measure(self, topic: str, payloads: Sequence[bytes], wanted: int) -> float:
        """Return messages received a second."""
        self._wanted, self._received = wanted, 0
        self._done.clear()
        began = time.perf_counter()
        for payload in payloads:
            self._sender.publish(topic, payload, 1)
        while not self._done.wait(_PATIENCE):
            raise TimeoutError(f"{self._received} of {wanted} came")
        return wanted / (time.perf_counter() - began)

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish one, and wait for its PUBACK."""
        self._sender.publish(topic, payload, 1).wait_for_publish(_PATIENCE)

    def close(self) -> None:
        """Disconnect both."""
        for client in (self._sender, self._receiver):
            client.disconnect()
            client.loop_stop()

    def _take(self, *_: object) -> None:
        self._received += 1
        if self._received == self._wanted:
            self._done.set()


def _connect(port: int, login: Login) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=login.client)
    if login.user:
        client.username_pw_set(login.user, login.password)
    client.max_inflight_messages_set(WINDOW)
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    if not ready.wait(_PATIENCE):
        raise TimeoutError("no CONNACK")
    return client
