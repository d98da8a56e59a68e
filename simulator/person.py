"""An emulated subscriber: asks, listens, acknowledges, walks from node to node.

One with our library behaves as `client.subscriber` does: a request is said again until it is
answered, a note or a reading that came before is shown once, and at another node it asks again for
what it wants by name and reports what it received. One with a plain MQTT client does none of this
but ask until there is an answer. A broken one never acknowledges. Keeps what it was told and
shown, for the checks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

LIBRARY, PLAIN, BROKEN = "library", "plain", "broken"


@dataclass
class Request:
    """Something asked of a node, until it is answered."""

    number: str
    body: dict[str, Any]
    made: int  # ms
    answer: dict[str, Any] | None = None
    answered: int = 0
    node: str = ""  # that answered


@dataclass(frozen=True)
class Shown:
    """A note as it came for the first time."""

    id: str
    time: int
    node: str
    fields: dict[str, Any]
    linked: dict[str, int]  # nodes that the node had a good link with, and since when


class Person:
    """One subscriber. `node` is where it is now, "" for nowhere."""

    def __init__(self, name: str, client: str = LIBRARY) -> None:
        self.name = name
        self.client = client
        self.node = ""
        self.is_mute = False  # takes notes without acknowledging: a device out of reach
        self.requests: dict[str, Request] = {}
        self.notes: dict[str, Shown] = {}  # by id
        self.readings: set[str] = set()  # that were shown, by whichever id
        self.again: list[tuple[str, str, int]] = []  # id, node, time of what came once more
        self.unreported: list[str] = []  # ids
        self._wanted: dict[str, dict[str, Any]] = {}  # by name
        self._asked: set[tuple[str, str]] = set()  # name and node

    def ask(self, body: dict[str, Any], now: int) -> Request:
        """Make a request, which the field sends until it is answered."""
        number = f"{self.name}-{len(self.requests)}"
        request = self.requests[number] = Request(number, {**body, "request": number}, now)
        if "name" in body:
            self._wanted[body["name"]] = body
            self._asked = {each for each in self._asked if each[0] != body["name"]}
            self._asked.add((body["name"], self.node))
        self._wanted.pop(body.get("unsubscribe", ""), None)
        return request

    def renew(self, now: int) -> None:
        """Ask for what is wanted by name at a node where that was not done yet."""
        if self.client == LIBRARY:
            for name, body in list(self._wanted.items()):
                if (name, self.node) not in self._asked:
                    asked = self._asked
                    self.ask(body, now)
                    self._asked |= asked

    def report(self) -> bytes:
        """Return what tells a node what was received elsewhere, b"" for nothing."""
        if self.client != LIBRARY or not self.unreported:
            return b""
        report = json.dumps({"received": self.unreported}).encode()
        self.unreported = []
        return report

    def list_open(self) -> list[Request]:
        """Return the requests without an answer, in order."""
        return [request for request in self.requests.values() if request.answer is None]

    def take_reply(self, payload: bytes, now: int) -> None:
        """Take an answer."""
        answer = json.loads(payload)
        request = self.requests.get(answer.get("request", ""))
        if request is not None and request.answer is None:
            request.answer, request.answered, request.node = answer, now, self.node

    def take_note(self, payload: bytes, now: int, linked: dict[str, int]) -> bool:
        """Take a note; return whether it is acknowledged."""
        fields = json.loads(payload)
        if fields["id"] in self.notes or (self.client == LIBRARY and self.has_twin(fields)):
            self.again.append((fields["id"], self.node, now))
        else:
            self.readings.add(fields["reading"])
            self.notes[fields["id"]] = Shown(fields["id"], now, self.node, fields, linked)
            self.unreported.append(fields["id"])
        return not self.is_mute and self.client != BROKEN

    def has_twin(self, fields: dict[str, Any]) -> bool:
        """Return whether the same reading came before: two nodes may have taken it."""
        return fields["reading"] in self.readings
