"""Who publishes while others are killed: devices, a planner, a teller. They live in the harness,
so what they were told is known for certain, whatever dies.

Every sender keeps what was acknowledged to it, and nothing else counts: a device the numbers up to
the node's acknowledgement (or the server's, of the frame), a planner the answers to its requests, a
teller the PUBACKs of its messages.
"""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from denwatch.protocol import frames, notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message
from denwatch.protocol.vectors import NotificationVector, Reading
from paho.mqtt.enums import CallbackAPIVersion

PATIENT, EAST = 1, 12  # the event and the attribute that carry a notification's number
LARGEST = 60_000  # numbers are readings of 16 bits
RELAY = "bench/relay"
_PATIENCE = 2.0  # s before something is sent again over the same connection
_PAUSES = (0.0, 0.06)  # s between batches
_LIVE_REQUESTS = 200


class Sender(ABC):
    """A client that connects again and again; `run` works on a thread until `stop`."""

    filters: tuple[str, ...] = ()

    def __init__(self, client_id: str, port: int, user: str = "", password: str = "") -> None:
        self.name = client_id
        self.progress = 0  # rises with everything that was acknowledged
        self.is_stopping = False
        self.connections = 0
        self.changed = threading.Condition()
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=True)
        if user:
            client.username_pw_set(user, password)
        client.reconnect_delay_set(0.1, 0.3)  # type: ignore[arg-type]  # it waits for fractions, too
        client.max_inflight_messages_set(0)  # no bound: each sender has its own
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.on_publish = self._published
        self.client = client
        self.is_up = False
        self.under_way: dict[int, int] = {}  # numbers by paho's message ids
        self._early: set[int] = set()
        self._port = port
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        """Begin to connect, and to send."""
        self.connect()
        self._thread.start()

    def connect(self) -> None:
        """Only connect: nothing is sent by itself."""
        self.client.connect_async("127.0.0.1", self._port, 30)
        self.client.loop_start()

    def stop(self) -> None:
        """Send nothing new, and leave when what was begun is done, or nobody is there."""
        with self.changed:
            self.is_stopping = True
            self.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self.client.disconnect()
        self.client.loop_stop()

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is true."""
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    @abstractmethod
    def work(self) -> None:
        """Send one thing, and wait for what follows; called while there is a connection."""

    def receive(self, topic: str, payload: bytes) -> None:  # noqa: B027 - not all of them listen
        """Take a message; `changed` is held."""

    def confirm(self, number: int) -> None:  # noqa: B027 - nor number what they send
        """Note that the server has what was published under a number; `changed` is held."""

    def publish(self, topic: str, payload: bytes, number: int) -> None:
        """Publish with QoS 1; `confirm` tells of the PUBACK, which may be faster than we are."""
        info = self.client.publish(
            topic, payload, qos=1
        )  # not under `changed`: paho has locks, too
        with self.changed:
            if info.mid in self._early:
                self._early.discard(info.mid)
                self.confirm(number)
            else:
                self.under_way[info.mid] = number

    def _run(self) -> None:
        while True:
            if self.wait(lambda: self.is_up or self.is_stopping, 1.0) and self.is_up:
                self.work()
            if self.is_stopping:
                return

    def _connected(self, client: paho.Client, _d: Any, _f: Any, reason: Any, _p: Any) -> None:
        if reason.is_failure:
            return
        if self.filters:
            client.subscribe([(topic, 1) for topic in self.filters])
        with self.changed:
            self.connections += 1
            self.is_up = True
            self.changed.notify_all()

    def _disconnected(self, _c: paho.Client, _d: Any, _f: Any, _r: Any, _p: Any) -> None:
        with self.changed:
            self.is_up = False
            self.changed.notify_all()

    def _received(self, _c: paho.Client, _d: Any, message: paho.MQTTMessage) -> None:
        with self.changed:
            self.receive(message.topic, bytes(message.payload))
            self.changed.notify_all()

    def _published(self, _c: paho.Client, _d: Any, mid: int, _r: Any, _p: Any) -> None:
        with self.changed:
            number = self.under_way.pop(mid, None)
            if number is None:
                self._early.add(mid)
            else:
                self.confirm(number)
            self.changed.notify_all()


class Device(Sender):
    """A device with its key: numbered notifications in sealed frames, one batch under way."""

    def __init__(
        self, secrets: dict[str, Any], vocabulary: bytes, port: int, rng: random.Random
    ) -> None:
        name, node = str(secrets["device"]), secrets["nodes"][0]
        topic = f"dens/1/wd/{name}/"
        self.filters = (topic + "ack",)
        super().__init__(name, port, node["user"], node["password"])
        key = bytes.fromhex(node["key"])
        self._link = frames.Link(self.name, node["name"], node["key_id"], key)
        self._topic = topic
        self._vocabulary = vocabulary
        self._rng = rng
        self._hellos = self._greeted = self._batches = 0
        self._answer: frames.HelloAnswer | None = None  # to the last hello
        self._told = 0  # the node has all up to this number, by its own word
        self.acknowledged = 0  # the same, by its server's word too

    def work(self) -> None:
        """Send a batch, until the node has it or the link is gone."""
        if self._greeted != self.connections:
            self._greet()
        connection = self.connections
        self.wait(
            lambda: self._answer is not None or not self.is_up or self.connections != connection,
            _PATIENCE,
        )
        if self._answer is None:
            self._greeted = 0  # again
            return
        if self._told >= LARGEST:
            time.sleep(0.1)
            return
        last = min(LARGEST, self._told + self._rng.randint(1, 6))
        self.publish(self._topic + "nv", self.build_batch(self._told + 1, last), last)
        self.wait(
            lambda: self._told >= last or not self.is_up or self.connections != connection,
            _PATIENCE,
        )
        time.sleep(self._rng.uniform(*_PAUSES))

    def build_batch(self, first: int, last: int) -> bytes:
        """Return a frame with these notifications; each reads its own number."""
        vectors = [
            notification.encode(
                NotificationVector(
                    PATIENT,
                    [Reading(EAST, (number, number, number, number), wide=True)],
                    number & 0xFFFF,
                )
            )
            for number in range(first, last + 1)
        ]
        self._batches += 1
        batch = frames.DeviceBatch(1, last, vectors)
        frame = frames.pack_batch(batch, 1, self._batches)
        return frames.seal(self._link, frames.UP, frame, self._answer)

    def _greet(self) -> None:
        self._greeted = self.connections
        self._hellos += 1
        self._answer = None
        fields: dict[str, object] = {
            "device": self.name,
            "epoch": 1,
            "vocabulary": self._vocabulary,
            "senses": {PATIENT: [1 << EAST, 1 << EAST]},
            "capacity": 1024,
            "languages": [0],
        }
        body = encode_message("hello", fields)
        frame = frames.Frame(frames.MESSAGE, 1, self._hellos, body)
        self.publish(self._topic + "hello", frames.seal(self._link, frames.UP, frame), 0)

    def confirm(self, number: int) -> None:
        """The server has a frame; by its promise the notifications are on the disk."""
        self._note(number)

    def receive(self, topic: str, payload: bytes) -> None:  # noqa: ARG002 - there is one
        """Take the node's acknowledgement."""
        try:
            frame = frames.open_frame(self._link, frames.DOWN, payload)
            name, fields = decode_message(frame.body)
        except ProtocolError:
            return
        if fields.get("hello") == [1, self._hellos]:
            self._answer = frames.HelloAnswer(1, frame.epoch, frame.sequence)
        if name == "acknowledge" and fields["epoch"] == 1:
            number = fields["sequence"]
            assert isinstance(number, int)
            self._told = max(self._told, number)
            self._note(number)

    def _note(self, number: int) -> None:
        if number > self.acknowledged:
            self.acknowledged = number
            self.progress += 1


class Planner(Sender):
    """Asks for subscriptions and ends them; what was answered must hold from then on."""

    def __init__(self, user: str, password: str, port: int, rng: random.Random) -> None:
        self.filters = (f"dens/1/reply/{user}",)
        super().__init__(f"{user}-bench", port, user, password)
        self._topic = f"dens/1/sub/{user}"
        self._rng = rng
        self._count = 0
        self._request = ""
        self._answer: dict[str, Any] | None = None
        self.wanted: set[str] = set()  # subscribed, and answered so
        self.ended: set[str] = set()  # unsubscribed, and answered so
        self.refusals: list[str] = []

    def work(self) -> None:
        """Ask for one thing, as often as it takes."""
        self._count += 1
        is_end = len(self.wanted) >= _LIVE_REQUESTS or (
            self.wanted and self._rng.random() < 0.4  # rather more come than go
        )
        name = self._rng.choice(sorted(self.wanted)) if is_end else f"want-{self._count}"
        message = {"unsubscribe": name}
        if not is_end:
            message = {"subscribe": "patient_temperature is very high", "name": name}
        if self.ask(message) is None:
            # Unanswered at the end of the run: it may have happened or not.
            self.wanted.discard(name)
            return
        if is_end:
            self.wanted.discard(name)
            self.ended.add(name)
        else:
            self.wanted.add(name)
        self.progress += 1
        time.sleep(self._rng.uniform(*_PAUSES))

    def ask(self, message: dict[str, Any], patience: float = 120.0) -> dict[str, Any] | None:
        """Return the answer to a request, which is repeated until there is one."""
        self._request = f"{self._rng.getrandbits(64):016x}"
        self._answer = None
        text = json.dumps({**message, "request": self._request})
        until = time.monotonic() + patience
        while self._take_answer() is None and time.monotonic() < until:
            if self.wait(lambda: self.is_up, 0.5):
                self.publish(self._topic, text.encode(), 0)
                self.wait(lambda: self._answer is not None or not self.is_up, _PATIENCE)
        answer = self._take_answer()
        if answer is not None and not answer.get("ok"):
            self.refusals.append(f"{text}: {answer}")
        return answer

    def _take_answer(self) -> dict[str, Any] | None:
        with self.changed:
            return self._answer

    def receive(self, topic: str, payload: bytes) -> None:  # noqa: ARG002 - there is one
        """Take an answer."""
        answer = json.loads(payload)
        if answer.get("request") == self._request:
            self._answer = answer


class Teller(Sender):
    """Plain MQTT: numbered messages with QoS 1 for somebody with a persistent session."""

    def __init__(self, port: int, rng: random.Random, user: str = "", password: str = "") -> None:
        super().__init__("teller-bench", port, user, password)
        self._rng = rng
        self._next = 0
        self.acknowledged: set[int] = set()

    def work(self) -> None:
        """Send one, unless too many wait for their PUBACK; paho sends those again by itself."""
        if self.wait(lambda: len(self.under_way) < 20, 0.5):
            self._next += 1
            self.publish(RELAY, b"%d" % self._next, self._next)
            time.sleep(self._rng.uniform(0.0, 0.02))

    def confirm(self, number: int) -> None:
        """Note that the server has one."""
        self.acknowledged.add(number)
        self.progress += 1
