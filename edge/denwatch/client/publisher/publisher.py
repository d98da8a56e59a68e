"""A simulated device: publishes readings as a registered device, for tests and `denwatch publish`.

    with Publisher(read_key(Path("dog-1.json")), vocabulary, coverage) as publisher:
        publisher.publish([parse_reading("patient heart_rate=160", vocabulary)])

`SimulatedDevice` is the device's protocol without I/O (hello, readings, acknowledgements),
`Publisher` runs it on a connection of the subscriber library, in the caller's thread.

A real device runs `denwatch.watchdog`, which filters and stores. This one sends whatever it is
given, and readings that are not acknowledged when the program ends are lost. Its sequence numbers
come from the time of its start, so that each run follows the one before. Give it a device name of
its own: a watchdog under the same name counts its starts from 1, and would be refused afterwards.

`send_reports` publishes in words, as a person: the node understands them and answers each.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denwatch.client.subscriber.link import (
    Identity,
    LinkConnected,
    LinkFailed,
    MessageArrived,
    MqttLink,
    NoReplyError,
    TopicsSubscribed,
    Waker,
    exchange_requests,
)
from denwatch.client.subscriber.messages import SubscriberError
from denwatch.client.subscriber.servers import parse_server
from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.protocol import frames, notification, subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import Frame, Link, decode_message, encode_message
from denwatch.protocol.matching import match
from denwatch.protocol.timecode import AGES_PER_SECOND, encode_age
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector


class PublisherError(Exception):
    """Base class of what can go wrong for a publisher."""


class UnacknowledgedError(PublisherError, TimeoutError):
    """The node has not acknowledged everything; what was sent may have arrived all the same."""


# The key file: what `denwatch keys show DEVICE --secrets` writes, or a watchdog.json -----------


@dataclass(frozen=True)
class DeviceKeyFile:
    """A device's node, its key there, and its MQTT login."""

    link: Link
    url: str
    user: str | None
    password: str | None
    ca: Path | None


def read_key(path: Path, device: str | None = None, node: str | None = None) -> DeviceKeyFile:
    """Return a device's key for a node; by default for the first node of the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PublisherError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise PublisherError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise PublisherError(f"{path}: not a device's key file")
    name = _read_text(document, "device", str(path))
    if device is not None and device != name:
        raise PublisherError(f"{path} is the key of {name}, not of {device}")
    entry = _find_node(document.get("nodes"), node, path)
    where = f"{path}: {entry.get('name')}"
    try:
        secret = bytes.fromhex(_read_text(entry, "key", where))
        link = Link(name, _read_text(entry, "name", where), int(entry["key_id"]), secret)
    except (KeyError, TypeError, ValueError, ProtocolError) as error:
        raise PublisherError(f"{where}: not a key: {error}") from None
    ca = entry.get("ca")
    return DeviceKeyFile(
        link,
        _read_text(entry, "url", where),
        entry.get("user"),
        entry.get("password"),
        path.parent / ca if isinstance(ca, str) else None,
    )


def _find_node(nodes: Any, wanted: str | None, path: Path) -> dict[str, Any]:
    entries = [entry for entry in nodes or [] if isinstance(entry, dict)]
    if not entries:
        raise PublisherError(f"{path}: no node is named")
    if wanted is None:
        return entries[0]
    for entry in entries:
        if entry.get("name") == wanted:
            return entry
    known = ", ".join(str(entry.get("name")) for entry in entries)
    raise PublisherError(f"{path}: no key for {wanted}, only for {known}")


def _read_text(document: dict[str, Any], field: str, where: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not value:
        raise PublisherError(f"{where}: {field} is missing")
    return value


# The device, without I/O ---------------------------------------------------------------------

ROOT = "dens/1/wd/"
BATCH = 16  # notifications in a frame
ROOM = 900  # bytes of a frame's body
PATIENCE = 3_000  # ms to wait for an answer before sending the same again

_PER_MICROSECOND = 4_000  # numbers that a run may use before the next one could begin


@dataclass(frozen=True)
class UnacknowledgedReading:
    """A reading that the node has not acknowledged."""

    sequence: int
    reading: NotificationVector
    taken: int  # when, in ms


@dataclass
class SimulatedDevice:
    """One device. `start` is in microseconds since 1970; `now` is in ms, on one clock.

    `coverage` is what it announces to sense: by event number, the attributes as two bit masks.
    `doubts`: by event number, those of them that may be uncertain; None: any may.
    """

    link: Link
    vocabulary: bytes
    coverage: Mapping[int, tuple[int, int]]
    start: int
    capacity: int = 0  # bytes for subscription vectors; with 0 none are sent
    firmware: str = "denwatch publish"
    doubts: Mapping[int, int] | None = None
    is_answered: bool = field(default=False, init=False)  # the node has answered the last hello
    refusals: list[str] = field(default_factory=list, init=False)
    vectors: dict[int, SubscriptionVector] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.epoch, microsecond = divmod(self.start, 1_000_000)
        self.epoch &= 0xFFFFFFFF
        self._first = microsecond * _PER_MICROSECOND
        self._hellos = self._first
        self._frames = self._first  # a number of its own for each: it is the nonce
        self._sequence = self._first
        self._waiting: list[UnacknowledgedReading] = []
        self._sent = 0  # the last number of the frame that is not acknowledged yet
        self._until = 0  # when to send the same again
        self._down = (0, 0)
        self._answer: frames.HelloAnswer | None = None  # what readings are bound to
        self._answered_at = 0

    @property
    def topics(self) -> tuple[str, str]:
        """The topics to subscribe to."""
        return f"{ROOT}{self.link.device}/sv", f"{ROOT}{self.link.device}/ack"

    @property
    def hello_topic(self) -> str:
        """Where it says hello, and where an empty message says that it is gone."""
        return f"{ROOT}{self.link.device}/hello"

    @property
    def is_done(self) -> bool:
        """Whether the node has acknowledged everything."""
        return self.is_answered and not self._waiting

    def put(self, reading: NotificationVector, taken: int) -> int:
        """Queue a reading to be sent; return its sequence number."""
        masks = self.coverage.get(reading.event, (0, 0))
        strange = (reading.features | reading.faults) & ~masks[0]
        if strange:
            raise PublisherError(f"event {reading.event}: {strange:#06x} is not announced")
        if self._sequence + 1 >= self._first + _PER_MICROSECOND * 1_000:
            raise PublisherError("too many readings for one run")
        self._sequence += 1
        self._waiting.append(UnacknowledgedReading(self._sequence, reading, taken))
        return self._sequence

    def next_message(self, now: int) -> tuple[str, bytes] | None:
        """Return the topic and payload to publish now; None: wait."""
        if now < self._until:
            return None
        if self._waiting and self._waiting[0].sequence <= self._sent:
            self.is_answered = False  # not acknowledged: perhaps the node does not know us any more
            self._sent = 0
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
            "senses": {event: list(masks) for event, masks in self.coverage.items()},
            "capacity": self.capacity,
            "languages": [frames.FUZZY],
            "firmware": self.firmware,
        }
        if self.doubts is not None:
            fields["doubts"] = dict(self.doubts)
        frame = Frame(frames.MESSAGE, self.epoch, self._hellos, encode_message("hello", fields))
        return self.hello_topic, frames.seal(self.link, frames.UP, frame)

    def _make_frame(self, now: int) -> tuple[str, bytes]:
        vectors: list[bytes] = []
        room = ROOM
        for waiting in self._waiting[:BATCH]:
            n = waiting.reading
            age = encode_age(max(0, now - waiting.taken) * AGES_PER_SECOND // 1000)
            sequence = waiting.sequence & 0xFFFF
            vector = notification.encode(
                NotificationVector(n.event, n.readings, sequence, age, n.why, n.faults)
            )
            room -= len(vector) + 1
            if vectors and room < 0:
                break
            vectors.append(vector)
            self._sent = waiting.sequence
        self._frames += 1
        batch = frames.DeviceBatch(self.epoch, self._sent, vectors)
        elapsed = (now - self._answered_at) * AGES_PER_SECOND // 1000
        frame = frames.pack_batch(batch, self.epoch, self._frames, elapsed)
        payload = frames.seal(self.link, frames.UP, frame, self._answer)
        return f"{ROOT}{self.link.device}/nv", payload

    def receive(self, topic: str, payload: bytes, now: int) -> bool:
        """Handle a message from the node; return whether it was valid."""
        try:
            frame = frames.open_frame(self.link, frames.DOWN, payload)
            if topic == self.topics[1]:
                self._handle_acknowledgement(frame, now)
            elif topic == self.topics[0]:
                self._handle_change(frame)
            else:
                raise ProtocolError(f"another topic: {topic}")
        except ProtocolError as error:
            self.refusals.append(str(error))
            return False
        return True

    def _handle_acknowledgement(self, frame: Frame, now: int) -> None:
        name, fields = decode_message(frame.body)
        if name != "acknowledge":
            raise ProtocolError(f"{name} is not an acknowledgement")
        epoch, sequence = fields["epoch"], fields["sequence"]
        if fields.get("hello") == [self.epoch, self._hellos] and not self.is_answered:
            self.is_answered = True
            self._until = 0
            self._answer = frames.HelloAnswer(self.epoch, frame.epoch, frame.sequence)
            self._answered_at = now
        if epoch == self.epoch:
            assert isinstance(sequence, int)
            self._waiting = [one for one in self._waiting if one.sequence > sequence]
            if sequence >= self._sent:
                self._until = 0

    def _handle_change(self, frame: Frame) -> None:
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

    def matches(self, reading: NotificationVector) -> bool:
        """Return whether an installed subscription matches a reading, as on a watchdog."""
        found = (match(vector, reading) for vector in self.vectors.values())
        return any(one is not None and one.matched for one in found)


# The device on a connection ------------------------------------------------------------------

_STEP = 0.2  # s between two checks of what is due


class Publisher:
    """A simulated device on a connection. `coverage` and `doubts` are what its hello announces."""

    def __init__(
        self,
        key: DeviceKeyFile,
        vocabulary: Vocabulary,
        coverage: Mapping[int, tuple[int, int]],
        *,
        server: str | None = None,
        ca: Path | None = None,
        capacity: int = 0,
        doubts: Mapping[int, int] | None = None,
        is_insecure: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """`server` is the node's address and `ca` the authority to trust; default: the key file's.

        `timeout` is in seconds, `capacity` in bytes of subscription vectors.
        """
        try:
            self._server = parse_server(server or key.url)
        except SubscriberError as error:
            raise PublisherError(str(error)) from None
        authority = ca or key.ca
        is_own = self._server.is_tls and authority is not None
        context = _read_context(authority) if is_own and authority is not None else None
        self._identity = Identity(key.user or key.link.device, key.password, context, is_insecure)
        self._timeout = timeout
        self._waker = Waker()
        self._link: MqttLink | None = None
        self._started = time.monotonic()
        self.device = SimulatedDevice(
            key.link,
            bytes.fromhex(vocabulary.hash)[:8],
            coverage,
            int(time.time() * 1_000_000),
            capacity,
            doubts=doubts,
        )

    def __enter__(self) -> Publisher:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect, and send hello until the node answers."""
        try:
            link = self._link = MqttLink(
                self._server,
                self._identity,
                f"{self.device.link.device}-{self.device.start & 0xFFFFFFFF:x}",
                is_temporary=True,
                will=self.device.hello_topic,
            )
        except SubscriberError as error:
            raise PublisherError(str(error)) from None
        link.open()
        until = time.monotonic() + self._timeout
        self._await(LinkConnected, until, "the server did not answer")
        link.listen(self.device.topics)
        self._await(
            TopicsSubscribed, until, "the server refused our subscription to the device's topics"
        )
        self._run_until(lambda: self.device.is_answered, until)
        if not self.device.is_answered:
            raise UnacknowledgedError(
                f"{self._server.url}: the node does not answer {self.device.link.device} at"
                f" {self.device.link.node}: the key is of another node, the node does not have the"
                " vocabulary, or it has readings of this device from a later time than this"
                " machine's; see its log"
            )

    def publish(self, readings: Iterable[NotificationVector], age: float = 0.0) -> list[int]:
        """Send readings taken `age` seconds ago; return their numbers once the node has them."""
        now = self._read_ms()
        numbers = [self.device.put(reading, now - int(age * 1000)) for reading in readings]
        self._run_until(lambda: self.device.is_done, time.monotonic() + self._timeout)
        if not self.device.is_done:
            raise UnacknowledgedError(
                f"{self._server.url}: the node did not acknowledge within {self._timeout:g} s: "
                "it has no room, or refuses the reading; see its log"
            )
        return numbers

    def run(self, seconds: float) -> None:
        """Receive what the node sends, for so many seconds."""
        self._run_until(lambda: False, time.monotonic() + seconds)

    def close(self) -> None:
        """Say that the device is gone, and disconnect."""
        if self._link is not None:
            self._link.send(self.device.hello_topic, b"")
            self._link.close()
            self._link = None
        self._waker.close()

    def _read_ms(self) -> int:
        """Return ms on a clock that never falls."""
        return int((time.monotonic() - self._started) * 1000)

    def _run_until(self, is_enough: Callable[[], bool], until: float) -> None:
        while not is_enough() and time.monotonic() < until:
            assert self._link is not None
            message = self.device.next_message(self._read_ms())
            if message is not None:
                self._link.send(*message)
            self._poll(min(_STEP, max(0.0, until - time.monotonic())))

    def _await(self, kind: type, until: float, failure: str) -> None:
        while time.monotonic() < until:
            if kind in self._poll(max(0.0, until - time.monotonic())):
                return
        raise UnacknowledgedError(f"{self._server.url}: {failure}")

    def _poll(self, timeout: float) -> list[type]:
        """Handle the connection's events; return their kinds."""
        assert self._link is not None
        events = self._link.poll(timeout, self._waker)
        for one in events:
            if isinstance(one, LinkFailed):
                is_away = one.reason.startswith("unreachable")
                raise (UnacknowledgedError if is_away else PublisherError)(
                    f"{self._server.url}: {one.reason}"
                )
            if isinstance(one, MessageArrived):
                self.device.receive(one.topic, one.payload, self._read_ms())
                if one.mid:
                    self._link.acknowledge(one.mid)
        return [type(one) for one in events]


# A person on a connection --------------------------------------------------------------------


def send_reports(
    server: str, identity: Identity, texts: Sequence[str], age: float = 0.0, timeout: float = 10.0
) -> list[dict[str, Any]]:
    """Report in words as a person; return the node's answer to each, in order.

    An answer with `ok` was sent after the report was stored; one without says what is wrong.
    """
    reports = [{"report": text, "age": age} for text in texts]
    try:
        return exchange_requests(server, identity, "report", reports, timeout)
    except NoReplyError as error:
        raise UnacknowledgedError(str(error)) from None
    except SubscriberError as error:
        raise PublisherError(str(error)) from None


def _read_context(path: Path) -> ssl.SSLContext:
    """Return a context that trusts one authority (PEM or DER) and no other."""
    try:
        authority = path.read_bytes()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # requires a certificate by default
        is_text = authority.startswith(b"-----")
        context.load_verify_locations(cadata=authority.decode() if is_text else authority)
    except OSError as error:  # of the file, or of the certificate in it
        raise PublisherError(f"{path}: {error.strerror or error}") from None
    return context
