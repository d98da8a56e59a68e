"""MQTT connections. The only file of the subscriber that imports paho.

`MqttLink` is one connection to one server; `exchange_requests` asks a node and waits for its
answers; `StatusReader` reads the nodes' statuses over several.

One thread drives it from outside: `poll` waits on the socket and on a wake-up pipe, and returns the
events that occurred. Only `acknowledge` acknowledges messages (paho's manual_ack), so the caller
decides when a node may consider a message delivered.
"""

from __future__ import annotations

import json
import secrets
import selectors
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
from denwatch.client.subscriber.messages import (
    STATUS,
    LoginRefusedError,
    SubscriberError,
    read_object,
)
from denwatch.client.subscriber.servers import DENIED, NodeUrl, parse_server
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

MAX_INFLIGHT = 1_000
KEEP_ALIVE = 15  # s
# Not select, which is limited to descriptors below 1,024; not epoll, which costs a call per change.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class LinkConnected(NamedTuple):
    """The server accepted our name and password."""


class TopicsSubscribed(NamedTuple):
    """The server accepted our MQTT subscriptions."""


class LinkFailed(NamedTuple):
    """The connection could not be made, or broke."""

    reason: str


class MessageArrived(NamedTuple):
    """A message; `mid` is 0 where nothing is to be acknowledged."""

    topic: str
    payload: bytes
    mid: int


class MessageSent(NamedTuple):
    """The server acknowledged a message of ours."""

    token: int


LinkEvent = LinkConnected | TopicsSubscribed | LinkFailed | MessageArrived | MessageSent


@dataclass(frozen=True)
class Identity:
    """Name and password, and how to protect them. `tls`: a context, a CA file, or True for the
    system's authorities."""

    name: str = ""
    password: str | None = None
    tls: ssl.SSLContext | str | Path | bool | None = None
    is_insecure: bool = False  # allows a password in the clear to another machine

    def build_context(self, server: NodeUrl) -> ssl.SSLContext | None:
        """Return the TLS context for a server, or None; refuse to send a password in the clear."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        if self.tls or server.is_tls:
            file = str(self.tls) if isinstance(self.tls, str | Path) else None
            try:
                return ssl.create_default_context(cafile=file)
            except (OSError, ssl.SSLError) as error:
                raise SubscriberError(f"{file}: not a certificate authority: {error}") from None
        if self.password is not None and not server.is_local and not self.is_insecure:
            raise SubscriberError(
                f"{server.url}: the password would be sent in the clear: use mqtts://, or allow it"
            )
        return None


class Waker:
    """Ends a `poll` from another thread."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """End the current poll, or the next one."""
        with suppress(OSError):  # full: it wakes anyway; closed: nobody waits
            self._writer.send(b"x")

    def sleep(self, timeout: float) -> None:
        """Wait to be woken."""
        with _Selector() as selector:
            selector.register(self.reader, selectors.EVENT_READ)
            if selector.select(timeout):
                self.clear()

    def clear(self) -> None:
        """Discard pending wake-ups."""
        with suppress(OSError):
            while self.reader.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()


class MqttLink:
    """A connection, from `open` to `close`; not used again after that."""

    def __init__(
        self,
        server: NodeUrl,
        identity: Identity,
        client_id: str,
        *,
        is_temporary: bool = False,
        timeout: float = 4.0,
        will: str = "",
    ) -> None:
        """`will` is the topic to which the server sends an empty message when this link breaks."""
        self.server = server
        self._events: list[LinkEvent] = []
        self._tokens: dict[int, int] = {}
        self._granted = 0
        self._is_open = True
        client = self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=is_temporary,
            protocol=mqtt.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        context = identity.build_context(server)
        if context is not None:
            client.tls_set_context(context)
        if identity.name:
            client.username_pw_set(identity.name, identity.password)
        if will:
            client.will_set(will, qos=1)
        client.connect_timeout = timeout
        client.max_inflight_messages_set(MAX_INFLIGHT)
        self._set_callbacks(client)

    def open(self) -> None:
        """Connect; `poll` returns the outcome."""
        try:
            self._client.connect(self.server.host, self.server.port, KEEP_ALIVE)
        except (OSError, ValueError) as error:
            self._fail(_describe(error))
            return
        found = self._client.socket()
        if isinstance(found, socket.socket):
            with suppress(OSError):  # small messages, each awaited: Nagle's delay costs 40 ms
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def listen(self, topics: tuple[str, ...]) -> None:
        """Subscribe to topics, QoS 1."""
        self._granted = len(topics)
        self._client.subscribe([(topic, 1) for topic in topics])

    def send(self, topic: str, payload: bytes, token: int = 0) -> None:
        """Publish with QoS 1; `MessageSent` tells a token above 0."""
        info = self._client.publish(topic, payload, qos=1)
        if token:
            self._tokens[info.mid] = token

    def acknowledge(self, mid: int) -> None:
        """Send a message's PUBACK."""
        self._client.ack(mid, 1)

    def close(self) -> None:
        """Disconnect; there are no events after this."""
        self._is_open = False
        with suppress(OSError, ValueError):
            self._client.disconnect()
        found = self._client.socket()
        if found is not None:
            with suppress(OSError):
                found.close()

    def poll(self, timeout: float, waker: Waker, limit: int = 500) -> list[LinkEvent]:
        """Wait for events, and return those that occurred, about `limit` at most."""
        if not self._events:
            self._step(timeout, waker)
        while self._is_open and len(self._events) < limit and self._step(0, waker):
            pass
        found, self._events = self._events, []
        return found

    def keep_alive(self) -> None:
        """Send a keep-alive if one is due, without reading."""
        if self._client.socket() is not None:
            self._client.loop_misc()

    def _step(self, timeout: float, waker: Waker) -> bool:
        """Do one round of the socket; return whether there may be more to read."""
        found = self._client.socket()
        if found is None:
            self._fail("the connection is gone")
            return False
        if isinstance(found, ssl.SSLSocket) and found.pending():
            ready = selectors.EVENT_READ  # decrypted already: the system does not see it
        else:
            try:
                ready = _wait(found, self._client.want_write(), waker, timeout)
            except (OSError, ValueError):
                self._fail("the connection is gone")
                return False
        before = len(self._events)
        if ready & selectors.EVENT_READ:
            self._client.loop_read()
        if ready & selectors.EVENT_WRITE and self._client.socket() is not None:
            self._client.loop_write()
        if self._client.socket() is not None:
            self._client.loop_misc()
        return len(self._events) > before

    def _fail(self, reason: str) -> None:
        if self._is_open:
            self._is_open = False
            self._events.append(LinkFailed(reason))

    # paho's callbacks: of its arguments only these are used ----------------------------------

    def _set_callbacks(self, client: mqtt.Client) -> None:
        client.on_connect = lambda *given: self._on_connect(given[3])
        client.on_disconnect = lambda *given: self._fail(f"lost: {str(given[3]).lower()}")
        client.on_message = lambda *given: self._on_message(given[2])
        client.on_publish = lambda *given: self._on_publish(given[2])
        client.on_subscribe = lambda *given: self._on_subscribe(given[3])

    def _on_connect(self, reason: ReasonCode) -> None:
        if reason.is_failure:
            is_denied = reason.getName() in ("Bad user name or password", "Not authorized")
            self._fail(DENIED if is_denied else f"refused: {str(reason).lower()}")
        else:
            self._events.append(LinkConnected())

    def _on_message(self, message: mqtt.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        mid = message.mid if message.qos else 0
        self._events.append(MessageArrived(topic, bytes(message.payload), mid))

    def _on_publish(self, mid: int) -> None:
        token = self._tokens.pop(mid, 0)
        if token:
            self._events.append(MessageSent(token))

    def _on_subscribe(self, reasons: list[ReasonCode]) -> None:
        if len(reasons) != self._granted or any(reason.is_failure for reason in reasons):
            self._fail("refused: we may not subscribe to these topics")
        else:
            self._events.append(TopicsSubscribed())


def _wait(link: Any, wants_write: bool, waker: Waker, timeout: float) -> int:
    """Wait for a socket or the waker; return what the socket is ready for."""
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_write else 0)
    with _Selector() as selector:
        selector.register(waker.reader, selectors.EVENT_READ)
        selector.register(link, events)
        found = {key.fileobj: ready for key, ready in selector.select(timeout)}
    if waker.reader in found:
        waker.clear()
    return int(found.get(link, 0))


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"refused: its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "unreachable: no answer"
    if isinstance(error, OSError) and error.strerror:
        return f"unreachable: {error.strerror.lower()}"
    return f"unreachable: {error}"


# Requests and their answers, over one link ---------------------------------------------------

_STEP = 0.1  # s


class NoReplyError(SubscriberError):
    """A node was reached, and did not answer in time."""


def exchange_requests(
    server: str,
    identity: Identity,
    what: str,
    bodies: Sequence[Mapping[str, Any]],
    timeout: float = 10.0,
) -> list[dict[str, Any]]:
    """Send requests ("sub") or reports ("report"); return the node's answers, in order.

    An answer with `ok` was sent after the node stored what it was asked for; one without says what
    is wrong.
    """
    waiting = {secrets.token_hex(8): body for body in bodies}
    replies: dict[str, dict[str, Any]] = {}
    waker = Waker()
    link = MqttLink(
        parse_server(server), identity, f"{what}-{secrets.token_hex(6)}", is_temporary=True
    )
    link.open()
    until = time.monotonic() + timeout
    try:
        while len(replies) < len(waiting) and time.monotonic() < until:
            for event in link.poll(min(_STEP, max(0.0, until - time.monotonic())), waker):
                if isinstance(event, LinkFailed):
                    words = f"{link.server.url}: {event.reason}"
                    if event.reason.startswith("unreachable"):
                        raise NoReplyError(words)
                    raise (LoginRefusedError if event.reason == DENIED else SubscriberError)(words)
                if isinstance(event, LinkConnected):
                    link.listen((f"dens/1/reply/{identity.name}",))
                elif isinstance(event, TopicsSubscribed):
                    for request, body in waiting.items():
                        message = {**body, "request": request}
                        payload = json.dumps(message, ensure_ascii=False).encode()
                        link.send(f"dens/1/{what}/{identity.name}", payload)
                elif isinstance(event, MessageArrived):
                    fields = read_object(event.payload) or {}
                    if fields.get("request") in waiting:
                        replies[fields["request"]] = dict(fields)
                    if event.mid:
                        link.acknowledge(event.mid)
    finally:
        link.close()
        waker.close()
    if len(replies) < len(waiting):
        missing = f"{len(waiting) - len(replies)} of {len(waiting)} requests"
        raise NoReplyError(
            f"{link.server.url}: no answer to {missing} within {timeout:g} s; they may have arrived"
        )
    return [replies[request] for request in waiting]


# The nodes' statuses, over several links -------------------------------------------------------

_PAUSE = 2.0  # s between two attempts at a server


class StatusMessage(NamedTuple):
    """A node's status as it arrived; `fields` is None for a node that stopped in order."""

    server: str
    node: str
    fields: Mapping[str, Any] | None


class StatusReader:
    """Reads the nodes' retained statuses at several servers at once, in the caller's thread.

    A lost connection is made again. Nothing is sent, and only the status topics are subscribed to.
    """

    def __init__(self, identity: Identity, servers: Iterable[str], client: str) -> None:
        """`client` is the beginning of the MQTT client ids."""
        self.failures: dict[str, str] = {}  # by server: why it cannot be used now
        self.listening: set[str] = set()
        self._identity = identity
        self._servers = [parse_server(server) for server in servers]
        self._client_id = f"{client}-{secrets.token_hex(6)}-"
        self._links: dict[NodeUrl, MqttLink] = {}
        self._not_before: dict[NodeUrl, float] = {}
        self._waker = Waker()

    @property
    def is_settled(self) -> bool:
        """Whether every server is connected or was found unreachable."""
        return len(self.listening) + len(self.failures) >= len(self._servers)

    def step(self, timeout: float) -> list[StatusMessage]:
        """Wait for at most so many seconds; return the statuses that arrived."""
        found: list[StatusMessage] = []
        for number, server in enumerate(self._servers):
            link = self._links.get(server) or self._open(server, number)
            if link is not None:
                for event in link.poll(timeout / len(self._servers), self._waker):
                    found += self._handle_event(link, event)
        if not self._links:
            self._waker.sleep(timeout)
        return found

    def wake(self) -> None:
        """End a `step` that waits in another thread."""
        self._waker.wake()

    def close(self) -> None:
        """Disconnect."""
        for link in self._links.values():
            link.close()
        self._waker.close()

    def _open(self, server: NodeUrl, number: int) -> MqttLink | None:
        if time.monotonic() < self._not_before.get(server, 0.0):
            return None
        self._not_before[server] = time.monotonic() + _PAUSE
        try:
            link = MqttLink(server, self._identity, f"{self._client_id}{number}", is_temporary=True)
        except SubscriberError as error:
            self.failures[server.url] = str(error)
            return None
        self._links[server] = link
        link.open()
        return link

    def _handle_event(self, link: MqttLink, event: LinkEvent) -> list[StatusMessage]:
        url = link.server.url
        if isinstance(event, LinkConnected):
            link.listen((f"{STATUS}+",))
        elif isinstance(event, TopicsSubscribed):
            self.listening.add(url)
            self.failures.pop(url, None)
        elif isinstance(event, LinkFailed):
            self.failures[url] = event.reason
            self.listening.discard(url)
            self._not_before[link.server] = time.monotonic() + _PAUSE
            self._links.pop(link.server).close()
        elif isinstance(event, MessageArrived):
            if event.mid:
                link.acknowledge(event.mid)
            fields = read_object(event.payload)
            if fields is not None or not event.payload:
                return [StatusMessage(url, event.topic.removeprefix(STATUS), fields)]
        return []
