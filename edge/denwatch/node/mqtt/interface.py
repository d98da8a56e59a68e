"""What goes into the MQTT server, what comes out, its limits, and what its user must provide.

Whoever runs the server performs the `Write`s of a call, and commits, before any other output of the
call: so a PUBACK means that the message is on the disk. `Message`, `Listening` and `Acknowledged`
are for the node's core. `Send`, `Close`, `Pause` and `Resume` are for the listener.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

from denwatch.node.core.events import Acknowledged, Listening, Message, Write

# From the listener --------------------------------------------------------------------------


class LinkOpened(NamedTuple):
    """A connection and where it comes from; numbers of links are never used again."""

    link: int
    address: str = ""


class LinkReceived(NamedTuple):
    """Bytes arrived."""

    link: int
    data: bytes


class LinkLost(NamedTuple):
    """A connection is gone, whoever closed it."""

    link: int


class LinkBlocked(NamedTuple):
    """The client stopped reading what we send, or reads again."""

    link: int
    is_blocked: bool


class LinkRefused(NamedTuple):
    """A connection was closed before anything was received on it."""

    address: str
    why: str


Input = LinkOpened | LinkReceived | LinkLost | LinkBlocked | LinkRefused

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


class ServerRefusal(NamedTuple):
    """Something that was refused, for the log: by whom, what, and why."""

    link: int  # 0: the link is gone
    user: str
    what: str
    why: str
    address: str = ""


Output = Send | Close | Pause | Resume | ServerRefusal | Message | Listening | Acknowledged | Write

DEFECT = "defect: "  # how the reason begins if it is a mistake of ours


def describe_defect(error: Exception) -> str:
    """Return type and place of an exception, and nothing that a stranger may have written."""
    where = "?"
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        if "denwatch" in code.co_filename or where == "?":  # the innermost that is ours
            where = place
        trace = trace.tb_next
    return f"{DEFECT}{type(error).__name__} in {where}"


# What the user of the server provides --------------------------------------------------------


class Rules(Protocol):
    """Who may do what. `user` is the name that CONNECT gave and `authenticate` accepted."""

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:
        """Return CONNACK's code: 0 accepts the client, anything else refuses it."""

    def recognises(self, user: str, password: bytes | None) -> bool:
        """Return whether this password was right before in this run, which costs nothing."""

    def may_publish(self, user: str, topic: str) -> bool:
        """Return whether a user may publish to a topic."""

    def may_subscribe(self, user: str, name: str) -> bool:
        """Return whether a user may subscribe to a filter."""


class Pace(Protocol):
    """How fast a user may publish."""

    def delay(self, user: str, size: int, now: int) -> int:
        """Return 0 and count a message of this size, or the ms to wait before asking again."""


# Limits -------------------------------------------------------------------------------------


# What happens to a receiver whose queue is full: its session ends, or it misses the message, or the
# publisher waits for `hold_ms` and is then refused.
EXPEL, DROP, WAIT = FULL_QUEUE = ("expel", "drop", "wait")


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients can make the server keep is bounded by these and by nothing else.

    Sizes in bytes, times in milliseconds; each is checked in the file that its heading names.
    """

    # Of packets: decoder.py.
    packet_bytes: int = 262_144
    connect_bytes: int = 81_920  # of a packet before CONNECT was accepted: the longest will fits
    topic_bytes: int = 1_024  # of a topic name or filter
    topic_levels: int = 32
    client_bytes: int = 256  # of a client id
    topic_aliases: int = 32  # of MQTT 5, in each direction

    # Of a session: sessions.py.
    subscriptions: int = 1_000
    window: int = 32  # messages sent and not acknowledged
    queue: int = 1_000  # messages that wait for the window or for the client to come back
    queue_bytes: int = 4_194_304
    inbound: int = 1_024  # QoS 2 messages that the client did not release yet

    # Of all sessions together: sessions.py and server.py.
    sessions: int = 10_000
    user_sessions: int = 256  # of one user that stay when their clients leave
    total_queue_bytes: int = 268_435_456
    retained: int = 10_000
    retained_bytes: int = 67_108_864
    wills: int = 1_000  # of lost clients that are due later or wait for room

    # Of a link: server.py.
    waiting: int = 64  # packets decoded and not handled, while a receiver has no room
    waiting_bytes: int = 262_144  # of their payloads
    connect_ms: int = 10_000  # from the connection to CONNECT
    hold_ms: int = 20_000  # a publisher waits for room where it must, or a login for its turn
    patience_ms: int = 1_000  # a receiver that reads may keep publishers waiting
    slow_ms: int = 60_000  # a client may leave what we sent unread
    session_ms: int = 604_800_000  # a persistent session may be away; of 3.1.1, within one run
    # Clients of MQTT 5 that ask for more are told this. Those of 3.1.1 cannot be told: their
    # machines are asked whether they are there (listener.py).
    keep_alive_s: int = 60

    # Of connections: budgets.py.
    links: int = 2_000  # with a name
    links_per_name: int = 100  # of one name
    half_open: int = 256  # without an accepted CONNECT
    half_open_per_address: int = 64  # of one address

    # Of a socket: listener.py.
    buffer_bytes: int = 262_144  # unsent, before the link is blocked and not read any more
    buffer_limit_bytes: int = 16_777_216  # unsent, before the link is cut
    farewell_ms: int = 5_000  # a closed link has to read what was sent before

    # What happens to a receiver that has no room, on topics that are not directed: sessions.py.
    full_queue: str = EXPEL

    def __post_init__(self) -> None:
        if self.full_queue not in FULL_QUEUE:
            raise ValueError(f"limit full_queue: {self.full_queue} is not one of {FULL_QUEUE}")
        for field in fields(self):
            if field.name != "full_queue" and getattr(self, field.name) < 1:
                raise ValueError(f"limit {field.name}: {getattr(self, field.name)} is below 1")
        for name in ("window", "inbound", "topic_aliases", "keep_alive_s"):
            if getattr(self, name) > 65_535:
                raise ValueError(f"limit {name}: MQTT has two bytes for it, 65,535 at most")
        if self.packet_bytes > 268_435_460:
            raise ValueError("limit packet_bytes: MQTT has no packets beyond 268,435,460 bytes")


# Outputs ------------------------------------------------------------------------------------


class Outputs:
    """Collects the outputs of one call of the server: writes first, then bytes, then closings.

    All bytes for one link become one `Send`, so a burst of publishes is answered by one write.
    """

    __slots__ = ("_closes", "_outputs", "_sends", "add")

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._sends: dict[int, list[bytes]] = {}
        self._closes: list[Output] = []
        self.add = self._outputs.append

    def send(self, link: int, data: bytes) -> None:
        """Send a packet."""
        chunks = self._sends.get(link)
        if chunks is None:
            self._sends[link] = [data]
        else:
            chunks.append(data)

    def close(self, link: int, reason: str) -> None:
        """Close a link after what is sent."""
        self._closes.append(Close(link, reason))

    def finish(self) -> list[Output]:
        """Return everything in order, and start again empty."""
        outputs = self._outputs
        for link, chunks in self._sends.items():
            outputs.append(Send(link, chunks[0] if len(chunks) == 1 else b"".join(chunks)))
        if self._sends:
            self._sends = {}
        if self._closes:
            outputs += self._closes
            self._closes = []
        self._outputs = []
        self.add = self._outputs.append
        return outputs
