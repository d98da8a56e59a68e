"""What goes into the MQTT server and what comes out, and what it asks of its surroundings.

Whoever runs the server performs the `Write`s of a step, and commits, before anything else that the
step gave out: so a PUBACK says that the message is on the disk. `Message`, `Listening` and
`Acknowledged` are for the node's core. `Send`, `Close`, `Pause` and `Resume` are for the listener.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from denwatch.node.core.interface import Acknowledged, Listening, Message, Write

# From the listener --------------------------------------------------------------------------


class Opened(NamedTuple):
    """A connection; numbers of links are never used again."""

    link: int


class Received(NamedTuple):
    """Bytes arrived."""

    link: int
    data: bytes


class Lost(NamedTuple):
    """A connection is gone, whoever closed it."""

    link: int


class Blocked(NamedTuple):
    """The client does not read what we send, or does so again."""

    link: int
    is_blocked: bool


Input = Opened | Received | Lost | Blocked

# To the listener and to whoever runs the server ---------------------------------------------


class Send(NamedTuple):
    """Bytes for a link: whole packets, in order."""

    link: int
    data: bytes


class Close(NamedTuple):
    """Close a link after what was sent before."""

    link: int
    reason: str


class Pause(NamedTuple):
    """Do not read from a link for now."""

    link: int


class Resume(NamedTuple):
    """Read again."""

    link: int


class Refused(NamedTuple):
    """Something that was not done, for the log: by whom, what, and why."""

    link: int  # 0: no link any more
    user: str
    what: str
    why: str


Output = Send | Close | Pause | Resume | Refused | Message | Listening | Acknowledged | Write

# Contracts ----------------------------------------------------------------------------------


class Rules(Protocol):
    """Who may do what. `user` is the name that CONNECT gave and `authenticate` accepted."""

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:
        """Return CONNACK's code: 0 lets the client in, 4 and 5 do not."""

    def may_publish(self, user: str, topic: str) -> bool:
        """Tell whether a user may publish to a topic."""

    def may_subscribe(self, user: str, name: str) -> bool:
        """Tell whether a user may subscribe to a filter."""


class Pace(Protocol):
    """How fast a user may publish."""

    def delay(self, user: str, size: int, now: int) -> int:
        """Return 0 and count a message of this size, or the ms to wait before asking again."""


class OpenRules:
    """Lets everybody do everything, except for some filters: for tests and benchmarks only."""

    def __init__(self, refused: frozenset[str] = frozenset()) -> None:
        self._refused = refused

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        """Let everybody in."""
        return 0

    def may_publish(self, user: str, topic: str) -> bool:  # noqa: ARG002
        """Allow every topic."""
        return True

    def may_subscribe(self, user: str, name: str) -> bool:  # noqa: ARG002
        """Allow every filter but the refused ones."""
        return name not in self._refused


class TokenBucket:
    """A pace for every user: so many messages a second, and a burst of so many at once."""

    def __init__(self, per_second: int, burst: int) -> None:
        if per_second < 1 or burst < 1:
            raise ValueError("a pace below one message")
        self._per_second = per_second
        self._full = burst * 1000  # thousandths of a message
        self._buckets: dict[str, tuple[int, int]] = {}  # user: (level, when)

    def delay(self, user: str, size: int, now: int) -> int:  # noqa: ARG002
        """Take one message from the user's bucket, or return when there will be one."""
        level, when = self._buckets.get(user, (self._full, now))
        level = min(self._full, level + (now - when) * self._per_second)
        if level < 1000:
            self._buckets[user] = (level, now)
            return -((level - 1000) // self._per_second)
        self._buckets[user] = (level - 1000, now)
        return 0
