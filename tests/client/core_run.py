"""A subscriber core that tests drive by hand, and what it says."""

from __future__ import annotations

import json
import random
from typing import Any

from denwatch.client.subscriber.core import (
    Action,
    PublishMessage,
    SubscriberCore,
    SubscriberOptions,
)
from denwatch.client.subscriber.servers import BackOff, NodeUrl, parse_server

from tests.client.sites import build_note

A, B, C = (parse_server(f"mqtt://10.0.0.{i}") for i in (1, 2, 3))


NOTES, REPLIES = "dens/1/note/medic7", "dens/1/reply/medic7"


class Run:
    """A core, and all that it asked for."""

    def __init__(self, *servers: NodeUrl, seed: int = 1) -> None:
        settings = SubscriberOptions(BackOff(1_000, 8_000))
        self.core = SubscriberCore("medic7", servers or (A,), random.Random(seed), settings)
        self.now = 1_000_000
        self.done: list[Action] = []

    def do(self, actions: list[Action]) -> list[Action]:
        self.done += actions
        return actions

    def go_online(self) -> list[Action]:
        self.do(self.core.tick(self.now))
        self.do(self.core.opened(self.now))
        return self.do(self.core.listened(self.now))

    def reply(self, request: str, **fields: Any) -> list[Action]:
        payload = json.dumps({"ok": True, **fields, "request": request}).encode()
        return self.do(self.core.receive(REPLIES, payload, 7, self.now))

    def note(self, index: int, mid: int = 9) -> list[Action]:
        payload = json.dumps(build_note(index)).encode()
        return self.do(self.core.receive(NOTES, payload, mid, self.now))


NOTHING = {"received": []}  # a report that only says that we listen


def read_sent(actions: list[Action]) -> list[dict[str, Any]]:
    found = [json.loads(action.payload) for action in actions if isinstance(action, PublishMessage)]
    return [document for document in found if document != NOTHING]


def find(actions: list[Action], kind: type) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]
