"""A plain MQTT client for tests: no library of ours, what anybody has."""

from __future__ import annotations

import json
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from simulator.site import wait_for


class App:
    """Connects, publishes and keeps what comes. Manual acknowledgements are not needed here."""

    def __init__(
        self,
        port: int,
        user: str = "",
        password: str = "",
        client_id: str = "",
        ca: str = "",
        clean: bool = True,
        host: str = "127.0.0.1",
    ) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.refused = 0
        self._lock = threading.Lock()
        self._connected = threading.Event()
        self._granted: list[int] = []
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id or f"test-{user}", clean_session=clean
        )
        if user:
            self._client.username_pw_set(user, password)
        if ca:
            self._client.tls_set(ca)
        self._client.on_connect = self._note_connect
        self._client.on_message = self._take
        self._client.on_subscribe = self._note_grant
        self._client.connect(host, port, 20)
        self._client.loop_start()

    def _note_connect(self, _c: Any, _d: Any, _f: Any, reason: Any, _p: Any) -> None:
        self.refused = reason.value if reason.is_failure else 0
        self._connected.set()

    def _note_grant(self, _c: Any, _d: Any, _mid: int, reasons: Any, _p: Any) -> None:
        self._granted += [reason.value for reason in reasons]

    def _take(self, _c: Any, _d: Any, message: paho.MQTTMessage) -> None:
        with self._lock:
            self.messages.append((message.topic, bytes(message.payload)))

    def wait(self) -> App:
        assert self._connected.wait(10), "no CONNACK"
        return self

    def subscribe(self, *topics: str) -> list[int]:
        """Subscribe and return what was granted."""
        before = len(self._granted)
        self._client.subscribe([(topic, 1) for topic in topics])
        wait_for("SUBACK", lambda: len(self._granted) >= before + len(topics))
        return self._granted[before:]

    def publish(self, topic: str, payload: bytes | str, wait: bool = True) -> bool:
        """Publish at QoS 1; return whether it was acknowledged."""
        info = self._client.publish(topic, payload, 1)
        try:
            if wait:
                info.wait_for_publish(5)
            return info.is_published()
        except RuntimeError:  # not connected any more
            return False

    def find(self, topic: str) -> list[bytes]:
        """Return the payloads that came on a topic."""
        with self._lock:
            return [payload for name, payload in self.messages if name == topic]

    def ask(self, name: str, request: str, what: str = "sub") -> dict[str, Any]:
        """Send a request, or a report, and return the reply to it."""
        topic = f"dens/1/reply/{name}"
        before = len(self.find(topic))
        self.publish(f"dens/1/{what}/{name}", request)
        wait_for(f"a reply to {request}", lambda: len(self.find(topic)) > before)
        reply: dict[str, Any] = json.loads(self.find(topic)[-1])
        return reply

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Return the notifications that came for somebody."""
        return [json.loads(payload) for payload in self.find(f"dens/1/note/{name}")]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> App:
        return self.wait()

    def __exit__(self, *_: object) -> None:
        self.close()
