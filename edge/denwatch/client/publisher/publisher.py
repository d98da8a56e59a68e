"""A simulated device on a real connection: connects, says hello, publishes, waits for the node.

    with Publisher(read_key(Path("dog-1.json")), vocabulary, senses) as publisher:
        publisher.publish([parse_reading("patient heart_rate=160", vocabulary)])

One thread, and the caller's: everything happens inside `publish` and `run`. The MQTT connection is
the subscriber library's.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from denwatch.client.publisher.device import SimulatedDevice
from denwatch.client.publisher.errors import PublisherError, UnacknowledgedError
from denwatch.client.publisher.keys import DeviceKey
from denwatch.client.subscriber.errors import SubscriberError
from denwatch.client.subscriber.link import Arrived, Failed, Identity, Link, Listened, Opened, Waker
from denwatch.client.subscriber.servers import Server, parse_server
from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.protocol.vectors import NotificationVector
from denwatch.watchdog.link import make_context

_STEP = 0.2  # s; how often what is due is looked for


class Publisher:
    """A device that publishes what it is given. `senses` is what it announces, by event."""

    def __init__(
        self,
        key: DeviceKey,
        vocabulary: Vocabulary,
        senses: Mapping[int, tuple[int, int]],
        *,
        server: str | None = None,
        ca: Path | None = None,
        capacity: int = 0,
        is_insecure: bool = False,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`server` is the node's address and `ca` whom to trust, by default the key file's.

        `timeout` is in seconds, `capacity` in bytes of subscription vectors.
        """
        self._server = _parse(server or key.url)
        context: ssl.SSLContext | None = None
        authority = ca or key.ca
        if self._server.is_tls and authority is not None:
            context = _read_context(authority)
        self._identity = Identity(key.user or key.link.device, key.password, context, is_insecure)
        self._timeout = timeout
        self._clock = clock
        self._waker = Waker()
        self._link: Link | None = None
        self._started = time.monotonic()
        self.device = SimulatedDevice(
            key.link,
            bytes.fromhex(vocabulary.hash)[:8],
            senses,
            int(clock() * 1_000_000),
            capacity,
        )

    def __enter__(self) -> Publisher:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect, and say hello until the node answers."""
        try:
            link = self._link = Link(
                self._server,
                self._identity,
                f"{self.device.link.device}-{self.device.start & 0xFFFFFFFF:x}",
                is_passing=True,
            )
        except SubscriberError as error:
            raise PublisherError(str(error)) from None
        link.open()
        until = time.monotonic() + self._timeout
        self._await(Opened, until, "the server did not answer")
        link.listen(self.device.topics)
        self._await(Listened, until, "the server did not let us listen")
        self._run_until(lambda: self.device.is_answered, until)
        if not self.device.is_answered:
            raise UnacknowledgedError(self._explain_silence())

    def publish(self, readings: Iterable[NotificationVector], age: float = 0.0) -> list[int]:
        """Send readings that are so many seconds old; return their numbers once all are there."""
        now = self._read_ms()
        numbers = [self.device.put(reading, now - int(age * 1000)) for reading in readings]
        self._run_until(lambda: self.device.is_done, time.monotonic() + self._timeout)
        if not self.device.is_done:
            raise UnacknowledgedError(
                f"{self._server.url}: the node has not acknowledged within {self._timeout:g} s: "
                "it has no room, or refuses the reading; its log says which"
            )
        return numbers

    def run(self, seconds: float) -> None:
        """Take what the node sends, for a while."""
        self._run_until(lambda: False, time.monotonic() + seconds)

    def close(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self._waker.close()

    def _read_ms(self) -> int:
        """Return ms on a clock that never goes back."""
        return int((time.monotonic() - self._started) * 1000)

    def _run_until(self, is_enough: Callable[[], bool], until: float) -> None:
        while not is_enough() and time.monotonic() < until:
            assert self._link is not None
            message = self.device.next_message(self._read_ms())
            if message is not None:
                self._link.send(*message)
            self._poll(min(_STEP, max(0.0, until - time.monotonic())))

    def _await(self, kind: type, until: float, complaint: str) -> None:
        while time.monotonic() < until:
            if kind in self._poll(max(0.0, until - time.monotonic())):
                return
        raise UnacknowledgedError(f"{self._server.url}: {complaint}")

    def _poll(self, timeout: float) -> list[type]:
        """Let the connection work; return what happened, by kind."""
        assert self._link is not None
        happenings = self._link.poll(timeout, self._waker)
        for one in happenings:
            if isinstance(one, Failed):
                raise PublisherError(f"{self._server.url}: {one.reason}")
            if isinstance(one, Arrived):
                self.device.receive(one.topic, one.payload)
                if one.mid:
                    self._link.acknowledge(one.mid)
        return [type(one) for one in happenings]

    def _explain_silence(self) -> str:
        names = f"{self.device.link.device} at {self.device.link.node}"
        reasons = "the key is of another node, the node does not know the vocabulary, or it has"
        return (
            f"{self._server.url}: the node does not answer {names}: {reasons} heard this device"
            " at a later time than this machine's; its log says which"
        )


def _parse(text: str) -> Server:
    try:
        return parse_server(text)
    except SubscriberError as error:
        raise PublisherError(str(error)) from None


def _read_context(path: Path) -> ssl.SSLContext | None:
    try:
        made = make_context(path.read_bytes())
    except OSError as error:  # of the file, or of the certificate in it
        raise PublisherError(f"{path}: {error.strerror or error}") from None
    return made if isinstance(made, ssl.SSLContext) else None
