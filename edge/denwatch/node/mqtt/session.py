"""A client's session: subscriptions, messages in flight and queued, inbound QoS 2 ids.

Pure data with its own bookkeeping; `exchange.py` decides what goes in and what is made durable.
"""

from __future__ import annotations

from collections import deque

from denwatch.node.mqtt.packets import write_publish_start
from denwatch.node.mqtt.records import make_session_key


class Parcel:
    """A message, shared by all who receive it."""

    __slots__ = ("_first", "_start", "carriers", "payload", "qos", "token", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, token: int = 0) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.token = token  # 0: nobody asked, or somebody has acknowledged it
        self.carriers = 0  # sessions that have it and whose acknowledgement counts
        self._first = 0  # the first byte of `_start`
        self._start = b""  # of the packet, up to the topic: the same for most receivers

    @property
    def size(self) -> int:
        """What it counts for in a queue: about its memory."""
        return len(self.payload) + len(self.topic) + 256

    def write(self, first: int, number: int) -> bytes:
        """Return PUBLISH with this first byte and, unless it is of QoS 0, this packet id."""
        if first != self._first:
            self._start = write_publish_start(first, self.topic.encode(), len(self.payload))
            self._first = first
        if number:
            return b"".join((self._start, number.to_bytes(2, "big"), self.payload))
        return self._start + self.payload


class Delivery:
    """One session's copy of a parcel."""

    __slots__ = (
        "counts",
        "id",
        "is_directed",
        "is_released",
        "is_repeated",
        "number",
        "parcel",
        "qos",
        "retain",
    )

    def __init__(
        self, parcel: Parcel, qos: int, retain: bool, is_directed: bool, counts: bool
    ) -> None:
        self.parcel = parcel
        self.qos = qos
        self.retain = retain
        self.is_directed = is_directed
        self.counts = counts  # its acknowledgement is the parcel's
        self.number = 0  # in the durable queue; 0: it is not there
        self.id = 0
        self.is_released = False  # QoS 2: PUBREC came
        self.is_repeated = False  # it may have been sent before


class Session:
    """Of one client id of one user."""

    __slots__ = (
        "away_since",
        "bytes",
        "client",
        "flight",
        "inbound",
        "is_blocked",
        "is_persistent",
        "key",
        "last_id",
        "link",
        "queue",
        "subscriptions",
        "user",
    )

    def __init__(self, user: str, client: str, is_persistent: bool) -> None:
        self.user = user
        self.client = client
        self.is_persistent = is_persistent
        self.key = make_session_key(user, client)
        self.link = 0  # 0: away
        self.is_blocked = False  # the client does not read
        self.away_since = 0
        self.subscriptions: dict[str, int] = {}
        self.flight: dict[int, Delivery] = {}  # in the order of sending
        self.queue: deque[Delivery] = deque()
        self.bytes = 0  # of flight and queue
        self.inbound: dict[int, None] = {}
        self.last_id = 0

    def take_id(self) -> int:
        """Return the next packet id that is not in flight: 1 to 65,535, and from the start."""
        flight = self.flight
        number = self.last_id
        while True:
            number = number % 65_535 + 1
            if number not in flight:
                self.last_id = number
                return number
