"""What goes into a node's core and what comes out: topics, events and actions.

The one rule of durability: whoever runs a core performs all `Write`s and `Log`s of an event
in one database transaction (several events may share it), commits, and only then performs its
`Publish`es. So nothing is acknowledged, answered or sent before it is on the disk, and nothing here
waits.

Times are milliseconds of the node's own timeline. It is near the machine's clock, which may be
wrong, but it never falls and never jumps, not over restarts either. `ClockSet` says by how much
somebody corrected the machine's clock: people are shown times by it, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

# Topics -------------------------------------------------------------------------------------

ROOT = "dens/1/"
REQUESTS = ROOT + "sub/"  # + subscriber
REPORTS = ROOT + "report/"  # + subscriber
REPLIES = ROOT + "reply/"
NOTES = ROOT + "note/"
DEVICES = ROOT + "wd/"  # + device + /hello, /nv, /want, /sv, /ack
PEERS = ROOT + "peer/"  # + node
STATUS = ROOT + "status/"
OPERATORS = ROOT + "operator/"  # + node
PLANS = ROOT + "plan/"  # + node
HOME = ROOT + "home/"  # + node + device + event + attribute, for Home Assistant

# Events -------------------------------------------------------------------------------------


class Message(NamedTuple):
    """Somebody published. `sender` is the authenticated name; "" behind somebody else's broker,
    whose access rules then stand for the name in the topic."""

    sender: str
    topic: str
    payload: bytes
    response: str = ""  # MQTT 5: the topic where the answer is wanted, which its sender may read
    correlation: bytes = b""  # what the answer repeats
    others: tuple[bytes, ...] = ()  # what the same sender published there right after it


class Listening(NamedTuple):
    """The first live session that subscribes to exactly this topic came, or the last one left."""

    topic: str
    is_up: bool


class Acknowledged(NamedTuple):
    """A receiver has the message that was published with this token, and with `others`."""

    topic: str
    token: int
    others: tuple[int, ...] = ()  # what it acknowledged in the same breath


class PeerUp(NamedTuple):
    """There is a link to another node, whoever opened it."""

    name: str


class PeerDown(NamedTuple):
    """The link to another node is gone."""

    name: str


class Tick(NamedTuple):
    """Time went on; at least one a second. `part`: do this part of what is due, "" for all."""

    part: str = ""


class ClockSet(NamedTuple):
    """Somebody set the machine's clock by this much; `now` goes on evenly."""

    offset: int


Event = Message | Listening | Acknowledged | PeerUp | PeerDown | Tick | ClockSet

# Actions ------------------------------------------------------------------------------------


class Write(NamedTuple):
    """A durable change of one key in one space; None deletes."""

    space: str
    key: bytes
    value: bytes | None


class Publish(NamedTuple):
    """A message for whoever listens. A `token` above zero asks for `Acknowledged`.

    `correlation` is what a request of MQTT 5 asked its answer to repeat.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    token: int = 0
    correlation: bytes = b""


class Log(NamedTuple):
    """One record of the node's log, for analysis."""

    kind: str
    fields: Mapping[str, object]


class Count(NamedTuple):
    """Something that happened, for metrics: nothing depends on it."""

    name: str
    amount: int = 1
    label: str = ""


Action = Write | Publish | Log | Count

# Contracts ----------------------------------------------------------------------------------


class Reader(Protocol):
    """What was written, committed or not."""

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of keys."""
