"""Those who talk to the nodes of `durability_world`: a device, apps, plain clients, a peer's link.

Each remembers what was acknowledged to it, as on a disk of its own that does not fail, and says
again what was not.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from denwatch.node.core.events import PEERS, Acknowledged, Message, PeerDown, PeerUp, Publish
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.runtime.durable_node import Effects
from denwatch.protocol import frames, notification
from denwatch.protocol.frames import decode_message, encode_message
from denwatch.protocol.vectors import NotificationVector, Reading

from benchmarks.durability_client import Client
from benchmarks.durability_senders import EAST, PATIENT, RELAY
from benchmarks.durability_site import WORDS
from benchmarks.durability_world import DEVICE, Host


class Dog(Client):
    """A device: a hello at each connection, then numbered notifications, two at a time."""

    def __init__(self, host: Host, count: int) -> None:
        super().__init__(host, DEVICE, (f"dens/1/wd/{DEVICE}/ack",), is_clean=True)
        (key_id,) = host.plan.keyrings[host.name].list_key_ids(DEVICE)
        link = host.plan.keyrings[host.name].link_for(DEVICE, key_id)
        assert link is not None
        self.count = count
        self.may_begin = False
        self.acknowledged = 0
        self._told = 0
        self._key = link
        self._hellos = 0
        self._sent: dict[int, int] = {}
        self._last = 0
        self._batches = 0
        self._answer: frames.HelloAnswer | None = None

    def rise(self) -> None:
        """Say hello."""
        self._hellos += 1
        fields: dict[str, object] = {
            "device": DEVICE,
            "epoch": 1,
            "vocabulary": shorten_hash(self.host.plan.vocabulary),
            "senses": {PATIENT: [1 << EAST, 1 << EAST]},
            "capacity": 1024,
            "languages": [0],
        }
        body = encode_message("hello", fields)
        self._say("hello", frames.Frame(frames.MESSAGE, 1, self._hellos, body))
        self._answer = None
        self._last = self._told

    def speak(self, is_late: bool) -> None:
        """Send the next two, twice, or the same again."""
        is_waiting = self._last > self._told and not is_late
        if not self.may_begin or self._told >= self.count or is_waiting or self._answer is None:
            return
        self._last = min(self.count, self._told + 2)
        vectors = [
            notification.encode(
                NotificationVector(
                    PATIENT, [Reading(EAST, (number, number, number, number), True)], number
                )
            )
            for number in range(self._told + 1, self._last + 1)
        ]
        batch = frames.DeviceBatch(1, self._last, vectors)
        for _ in range(2):  # as if the first answer were lost
            self._batches += 1
            self._sent[self._say("nv", frames.pack_batch(batch, 1, self._batches))] = self._last

    def _say(self, what: str, frame: frames.Frame) -> int:
        payload = frames.seal(self._key, frames.UP, frame, self._answer if what == "nv" else None)
        return self.publish(f"dens/1/wd/{DEVICE}/{what}", payload)

    def published(self, mid: int) -> None:
        """The server has a frame: by its promise, the notifications are on the disk."""
        self.acknowledged = max(self.acknowledged, self._sent.pop(mid, 0))

    def receive(self, topic: str, payload: bytes, mid: int) -> None:  # noqa: ARG002 - there is one
        """Take the node's acknowledgement."""
        self.acknowledge(mid)
        frame = frames.open_frame(self._key, frames.DOWN, payload)
        name, fields = decode_message(frame.body)
        if name == "acknowledge":
            if fields.get("hello") == [1, self._hellos]:
                self._answer = frames.HelloAnswer(1, frame.epoch, frame.sequence)
            self._told = max(self._told, int(str(fields["sequence"])))
            self.acknowledged = max(self.acknowledged, self._told)
            self.note_progress()


class App(Client):
    """A subscriber that tells notes apart by their ids, and keeps them before it acknowledges."""

    def __init__(self, host: Host, user: str, requests: list[dict[str, Any]]) -> None:
        super().__init__(host, user, (f"dens/1/reply/{user}", f"dens/1/note/{user}"), False)
        self.requests = requests
        self.done = 0  # requests that were answered
        self.limit = 1  # requests that may be made by now
        self.wanted: set[str] = set()
        self.ended: set[str] = set()
        self.held: set[str] | None = None
        self.ids: set[str] = set()
        self.handled: Counter[int] = Counter()
        self._reported: set[str] = set()
        self._asked = -1

    def rise(self) -> None:
        """Ask again what was not answered."""
        self._asked = -1

    def speak(self, is_late: bool) -> None:
        """Ask for the next thing, or report what was received."""
        if self.done < self.limit and (self._asked != self.done or is_late):
            self._asked = self.done
            request = {**self.requests[self.done], "request": str(self.done)}
            self.publish(f"dens/1/sub/{self.user}", json.dumps(request).encode())
        elif len(self.ids) - len(self._reported) >= 3:
            self._reported = set(self.ids)
            message = json.dumps({"received": sorted(self.ids)})
            self.publish(f"dens/1/sub/{self.user}", message.encode())

    def receive(self, topic: str, payload: bytes, mid: int) -> None:
        """Take a note or an answer."""
        fields = json.loads(payload)
        if "/note/" in topic:
            if fields["id"] not in self.ids:
                self.ids.add(fields["id"])
                self.handled[round(fields["values"]["east"]["value"])] += 1
        elif fields.get("request") == str(self.done):
            self._take_answer(fields)
        self.acknowledge(mid)

    def _take_answer(self, fields: dict[str, Any]) -> None:
        assert fields["ok"], fields
        request = self.requests[self.done]
        self.done += 1
        self.note_progress()
        if "subscribe" in request:
            self.wanted.add(request["name"])
        elif "unsubscribe" in request:
            self.wanted.discard(request["unsubscribe"])
            self.ended.add(request["unsubscribe"])
        else:
            self.held = {each["name"] for each in fields["subscriptions"]}


class Speaker(Client):
    """Plain messages with QoS 1."""

    def __init__(self, host: Host, count: int) -> None:
        super().__init__(host, "speaker", (), is_clean=True)
        self.count = count
        self.acknowledged: set[int] = set()
        self._sent: dict[int, int] = {}
        self._next = 1

    def rise(self) -> None:
        """Send again what was not acknowledged."""
        for number in sorted(self._sent.values()):
            self._send(number)

    def speak(self, is_late: bool) -> None:  # noqa: ARG002 - the server has it or is dead
        """Send the next one."""
        if self._next <= self.count and not self._sent:
            self._send(self._next)
            self._next += 1

    def _send(self, number: int) -> None:
        for mid in [mid for mid, sent in self._sent.items() if sent == number]:
            del self._sent[mid]
        self._sent[self.publish(RELAY, b"%d" % number)] = number

    def published(self, mid: int) -> None:
        """Note that the server has one."""
        if mid in self._sent:
            self.acknowledged.add(self._sent.pop(mid))


class Hearer(Client):
    """A persistent session that receives plain messages."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, "hearer", (RELAY,), is_clean=False)
        self.numbers: set[int] = set()

    def receive(self, topic: str, payload: bytes, mid: int) -> None:  # noqa: ARG002 - there is one
        """Keep it, then acknowledge it."""
        self.numbers.add(int(payload))
        self.acknowledge(mid)


class PeerLink(Client):
    """The connection that one node opens to another's server, as `runtime.links` does it."""

    def __init__(self, opener: Host, other: Host) -> None:
        super().__init__(other, opener.name, (PEERS + opener.name,), is_clean=True)
        self.opener = opener
        self._deaths = 0
        self._tokens: dict[int, Publish] = {}
        opener.send_out = self._send_out

    def act(self) -> None:
        """Follow the opener's deaths, too."""
        if self.opener.deaths != self._deaths:
            self._deaths = self.opener.deaths
            self.is_ready = False
            self.host.drop(self._link)
        self.is_away = not self.opener.is_up
        super().act()

    def rise(self) -> None:
        """Tell the opener."""
        self._tokens.clear()
        self.opener.deliver(PeerUp(self.host.name))

    def fall(self) -> None:
        """Tell the opener."""
        self.opener.deliver(PeerDown(self.host.name))

    def _send_out(self, effects: Effects) -> None:
        for publish in effects.outgoing:
            if self.is_ready and self._link in self.host.links:
                self._tokens[self.publish(publish.topic, publish.payload)] = publish

    def published(self, mid: int) -> None:
        """Tell the opener that the other one has a message."""
        publish = self._tokens.pop(mid, None)
        if publish is not None and publish.token:
            self.opener.deliver(Acknowledged(publish.topic, publish.token))

    def receive(self, topic: str, payload: bytes, mid: int) -> None:
        """Hand a message to the opener; it is acknowledged after the opener's commit."""
        message = Message(self.host.name, topic, payload)
        self.opener.deliver(message, lambda: self.acknowledge(mid))


def list_requests() -> list[dict[str, Any]]:
    """Return what the first app asks for, in order."""
    return [
        {"subscribe": WORDS, "name": "all"},
        {"subscribe": "patient_temperature is very high", "name": "fever"},
        {"subscribe": "patient_temperature is low", "name": "cold"},
        {"unsubscribe": "fever"},
        {"list": True},
    ]
