"""What a subscriber's core asks for, and what it may be asked.

The one rule of durability, the same as a node's: whoever runs the core performs all `Keep`s of a
turn in one transaction, commits, and only then performs the other actions.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from denwatch.client.subscriber.messages import (
    Note,
    Reply,
    write_list,
    write_subscribe,
    write_unsubscribe,
)
from denwatch.client.subscriber.servers import Server

# Actions ------------------------------------------------------------------------------------


class KeepNote(NamedTuple):
    """Put a note into the inbox; one that is there stays as it is, and is reported again."""

    note: Note
    payload: bytes
    at: int


class KeepReported(NamedTuple):
    """Note that a node was told of these notes."""

    keys: tuple[str, ...]


class KeepAnswer(NamedTuple):
    """Note that a request was answered by a server."""

    request: Request
    reply: Reply
    server: str


class Open(NamedTuple):
    """Connect; `is_probe` with a passing session."""

    server: Server
    is_probe: bool


class Close(NamedTuple):
    """Hang up."""


class Listen(NamedTuple):
    """Subscribe to MQTT topics."""

    topics: tuple[str, ...]


class Send(NamedTuple):
    """Publish; `token` comes back when it was acknowledged."""

    topic: str
    payload: bytes
    token: int = 0


class Acknowledge(NamedTuple):
    """Send the PUBACK of a message."""

    mid: int


class Tell(NamedTuple):
    """Tell the app about the link."""

    state: State
    server: str
    reason: str = ""


class Answer(NamedTuple):
    """Tell whoever waits for a request."""

    request: str
    reply: Reply


Keep = KeepNote | KeepReported | KeepAnswer
Action = Keep | Open | Close | Listen | Send | Acknowledge | Tell | Answer


class State(Enum):
    """What the link is doing, as an app sees it."""

    IDLE = "waiting"
    PROBING = "asking"
    OPENING = "connecting"
    LISTENING = "listening"
    ONLINE = "connected"


class Request(NamedTuple):
    """Something to ask a node. `kind`: subscribe, unsubscribe, list."""

    id: str
    kind: str
    name: str = ""
    text: str = ""

    def write(self) -> bytes:
        """Return it as bytes."""
        if self.kind == "subscribe":
            return write_subscribe(self.id, self.name, self.text)
        if self.kind == "unsubscribe":
            return write_unsubscribe(self.id, self.name)
        return write_list(self.id)
