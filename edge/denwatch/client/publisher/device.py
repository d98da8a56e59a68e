"""A device as its node sees it, without I/O and without a spool: hello, readings, answers.

What it is for: tests, and `denwatch publish`. A watchdog is `denwatch.watchdog`, which filters and
forgets nothing; this one sends whatever it is given, and what is not acknowledged when the program
ends is gone. Its numbers come from the time of its start, so that each run comes after the one
before: let it have a name of its own, for a watchdog that counts its starts comes after it no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from denwatch.client.publisher.errors import PublisherError
from denwatch.protocol import frames, notification, subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import Frame, Link
from denwatch.protocol.matching import match
from denwatch.protocol.messages import decode_message, encode_message
from denwatch.protocol.timecode import AGES_PER_SECOND, encode_age
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

ROOT = "dens/1/wd/"
BATCH = 16  # notifications in a frame
ROOM = 900  # bytes of a frame's body
FUZZY = 1  # the language of devices
PATIENCE = 3_000  # ms for an answer, before the same is said again

_PER_MICROSECOND = 4_000  # numbers that a run may use before the next one could begin


@dataclass(frozen=True)
class Waiting:
    """A reading that the node has not acknowledged."""

    sequence: int
    reading: NotificationVector
    taken: int  # when, in ms


@dataclass
class SimulatedDevice:
    """One device. `start` is in microseconds since 1970; `now` is in ms, on one clock."""

    link: Link
    vocabulary: bytes
    senses: Mapping[int, tuple[int, int]]
    start: int
    capacity: int = 0  # bytes for subscription vectors: none are sent to a device without
    firmware: str = "denwatch publish"
    is_answered: bool = field(default=False, init=False)  # the node has said something
    refusals: list[str] = field(default_factory=list, init=False)
    vectors: dict[int, SubscriptionVector] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.epoch, microsecond = divmod(self.start, 1_000_000)
        self.epoch &= 0xFFFFFFFF
        self._first = microsecond * _PER_MICROSECOND
        self._hellos = self._first
        self._sequence = self._first
        self._waiting: list[Waiting] = []
        self._sent = 0  # the last number of the frame that waits for its acknowledgement
        self._until = 0  # when to say the same again
        self._down = (0, 0)

    @property
    def topics(self) -> tuple[str, str]:
        """What to subscribe to."""
        return f"{ROOT}{self.link.device}/sv", f"{ROOT}{self.link.device}/ack"

    @property
    def is_done(self) -> bool:
        """Whether the node has everything."""
        return self.is_answered and not self._waiting

    def put(self, reading: NotificationVector, taken: int) -> int:
        """Take a reading to be sent; return its number."""
        masks = self.senses.get(reading.event, (0, 0))
        strange = (reading.features | reading.faults) & ~masks[0]
        if strange:
            raise PublisherError(f"event {reading.event}: {strange:#06x} is not announced")
        if self._sequence + 1 >= self._first + _PER_MICROSECOND * 1_000:
            raise PublisherError("too many readings for one run")
        self._sequence += 1
        self._waiting.append(Waiting(self._sequence, reading, taken))
        return self._sequence

    def next_message(self, now: int) -> tuple[str, bytes] | None:
        """Return the topic and payload to publish now; None: wait."""
        if now < self._until:
            return None
        if not self.is_answered:
            self._until = now + PATIENCE
            self._hellos += 1
            return self._make_hello()
        if not self._waiting:
            return None
        self._until = now + PATIENCE
        return self._make_frame(now)

    def _make_hello(self) -> tuple[str, bytes]:
        fields: dict[str, object] = {
            "device": self.link.device,
            "epoch": self.epoch,
            "vocabulary": self.vocabulary,
            "senses": {event: list(masks) for event, masks in self.senses.items()},
            "capacity": self.capacity,
            "languages": [FUZZY],
            "firmware": self.firmware,
        }
        frame = Frame(frames.MESSAGE, self.epoch, self._hellos, encode_message("hello", fields))
        return f"{ROOT}{self.link.device}/hello", frames.seal(self.link, frames.UP, frame)

    def _make_frame(self, now: int) -> tuple[str, bytes]:
        vectors: list[bytes] = []
        room = ROOM
        for waiting in self._waiting[:BATCH]:
            vector = _write_vector(waiting, now)
            room -= len(vector) + 1
            if vectors and room < 0:
                break
            vectors.append(vector)
            self._sent = waiting.sequence
        frame = Frame(frames.NOTIFICATIONS, self.epoch, self._sent, frames.join_vectors(vectors))
        return f"{ROOT}{self.link.device}/nv", frames.seal(self.link, frames.UP, frame)

    def receive(self, topic: str, payload: bytes) -> bool:
        """Take a message from the node; return whether it was one."""
        try:
            frame = frames.open_frame(self.link, frames.DOWN, payload)
            if topic == self.topics[1]:
                self._take_acknowledgement(frame)
            elif topic == self.topics[0]:
                self._take_change(frame)
            else:
                raise ProtocolError(f"another topic: {topic}")
        except ProtocolError as error:
            self.refusals.append(str(error))
            return False
        if not self.is_answered:
            self.is_answered = True
            self._until = 0
        return True

    def _take_acknowledgement(self, frame: Frame) -> None:
        name, fields = decode_message(frame.body)
        if name != "acknowledge":
            raise ProtocolError(f"{name} is no acknowledgement")
        epoch, sequence = fields["epoch"], fields["sequence"]
        if epoch == self.epoch:
            assert isinstance(sequence, int)
            self._waiting = [one for one in self._waiting if one.sequence > sequence]
            if sequence >= self._sent:
                self._until = 0

    def _take_change(self, frame: Frame) -> None:
        number = (frame.epoch, frame.sequence)
        if number <= self._down:
            raise ProtocolError(f"frame {number} came before")
        self._down = number
        if frame.kind == frames.SUBSCRIPTIONS:
            for vector in frames.split_vectors(frame.body):
                found = subscription.decode(vector)
                self.vectors[found.handle] = found
            return
        name, fields = decode_message(frame.body)
        handles = fields.get("handles")
        if name != "remove" or not isinstance(handles, list):
            raise ProtocolError(f"{name} changes nothing")
        for handle in handles:
            self.vectors.pop(handle, None)

    def wants(self, reading: NotificationVector) -> bool:
        """Return whether a vector of the node asks for a reading, as a watchdog would ask."""
        return any(
            found is not None and found.matched
            for found in (match(vector, reading) for vector in self.vectors.values())
        )


def _write_vector(waiting: Waiting, now: int) -> bytes:
    """Return a notification vector with its number and its age."""
    n = waiting.reading
    age = encode_age(max(0, now - waiting.taken) * AGES_PER_SECOND // 1000)
    sequence = waiting.sequence & 0xFFFF
    return notification.encode(
        NotificationVector(n.event, n.readings, sequence, age, n.why, n.faults)
    )
