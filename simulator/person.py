"""An emulated subscriber: asks, listens, acknowledges, walks from node to node.

Behaves as `client.subscriber` does: a request is said again until it is answered, and a note
or a reading that came before is shown once. Keeps what it was told and shown, for the checks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


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


class Person:
    """One subscriber. `node` is where it is now, "" for nowhere."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = ""
        self.is_mute = False  # takes notes without acknowledging: a device out of reach
        self.requests: dict[str, Request] = {}
        self.notes: dict[str, Shown] = {}  # by id
        self.readings: set[str] = set()  # that were shown, by whichever id
        self.again: list[tuple[str, str, int]] = []  # id, node, time of what came once more

    def ask(self, body: dict[str, Any], now: int) -> Request:
        """Make a request, which the field sends until it is answered."""
        number = f"{self.name}-{len(self.requests)}"
        request = self.requests[number] = Request(number, {**body, "request": number}, now)
        return request

    def list_open(self) -> list[Request]:
        """Return the requests without an answer, in order."""
        return [request for request in self.requests.values() if request.answer is None]

    def take_reply(self, payload: bytes, now: int) -> None:
        """Take an answer."""
        answer = json.loads(payload)
        request = self.requests.get(answer.get("request", ""))
        if request is not None and request.answer is None:
            request.answer, request.answered, request.node = answer, now, self.node

    def take_note(self, payload: bytes, now: int) -> bool:
        """Take a note; return whether it is acknowledged."""
        fields = json.loads(payload)
        if fields["id"] in self.notes or self.has_twin(fields):
            self.again.append((fields["id"], self.node, now))
        else:
            self.readings.add(fields["reading"])
            self.notes[fields["id"]] = Shown(fields["id"], now, self.node, fields)
        return not self.is_mute

    def has_twin(self, fields: dict[str, Any]) -> bool:
        """Return whether the same reading came before: two nodes may have taken it."""
        return fields["reading"] in self.readings
