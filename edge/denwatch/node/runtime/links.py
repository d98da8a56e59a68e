"""Connections that a node opens: to other nodes' servers, or to somebody else's broker.

The only file of a node that imports paho. paho runs its own thread for each connection; events go
to the node through `deliver`, which is called in that thread and must pass them on safely. A
message is acknowledged when the node says so, after its commit: what is lost before, comes again.
"""

from __future__ import annotations

import logging
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from denwatch.node.core.interface import (
    DEVICES,
    NOTES,
    OPERATORS,
    PEERS,
    REPLIES,
    REQUESTS,
    STATUS,
    Acknowledged,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Publish,
)
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

_log = logging.getLogger("denwatch.links")
Deliver = Callable[[Event, Callable[[], None] | None], None]
KEEP_ALIVE = 15
_FIRST_DELAY, _LONGEST_DELAY = 1, 30  # s between attempts


@dataclass(frozen=True)
class Address:
    """Where a server is and how to enter: a name and a password, TLS unless it is None."""

    host: str
    port: int
    user: str
    password: str
    tls: ssl.SSLContext | None = None


class Connection:
    """One MQTT connection that comes back by itself; subclasses say what passes over it."""

    filters: tuple[str, ...] = ()
    in_flight = 100

    def __init__(self, client_id: str, address: Address, deliver: Deliver) -> None:
        self.address = address
        self.is_up = False
        self._deliver = deliver
        self._tokens: dict[int, Publish] = {}  # by message id, until the server has it
        self._trouble = ""  # why there is no link, as it was told last
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, clean_session=True, manual_ack=True
        )
        client.username_pw_set(address.user, address.password)
        if address.tls is not None:
            client.tls_set_context(address.tls)
        client.reconnect_delay_set(_FIRST_DELAY, _LONGEST_DELAY)
        client.max_inflight_messages_set(self.in_flight)
        client.on_connect = self._connected
        client.on_connect_fail = self._failed
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.on_publish = self._published
        self._client = client

    def start(self) -> None:
        """Begin to connect, and keep at it."""
        self._client.connect_async(self.address.host, self.address.port, KEEP_ALIVE)
        self._client.loop_start()

    def stop(self) -> None:
        """Leave in order."""
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, message: Publish) -> None:
        """Send a message; what the server does not take before the link breaks, is lost."""
        if not self.is_up:
            return
        info = self._client.publish(message.topic, message.payload, message.qos, message.retain)
        if message.token:
            self._tokens[info.mid] = message
            if info.is_published():  # between the two lines, in paho's thread
                self._report(info.mid)

    def _connected(
        self, client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._tell_trouble(f"refused: {str(reason).lower()}")
        else:
            client.subscribe([(topic, 1) for topic in self.filters])

    def _failed(self, _client: paho.Client, _data: Any) -> None:
        self._tell_trouble(str(sys.exception()))  # paho calls us while it handles it

    def _tell_trouble(self, why: str) -> None:
        """Tell why there is no link: once, however often it is tried."""
        if why != self._trouble:
            self._trouble = why
            _log.warning("no link to %s:%d: %s", self.address.host, self.address.port, why)

    def _subscribed(
        self, client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        if any(reason.is_failure for reason in reasons):
            self._tell_trouble("refused: these topics are not ours")
            found = client.socket()
            with suppress(OSError):
                if isinstance(found, socket.socket):
                    found.shutdown(socket.SHUT_RDWR)  # which paho takes for a loss, and comes back
            return
        self.is_up = True
        self._trouble = ""
        self.rise()

    def _disconnected(
        self, _client: paho.Client, _data: Any, _flags: Any, _reason: ReasonCode, _p: Any
    ) -> None:
        was_up, self.is_up = self.is_up, False
        self._tokens.clear()
        if was_up:
            self.fall()

    def _received(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        def acknowledge() -> None:
            client.ack(message.mid, message.qos)

        self.receive(Message("", message.topic, bytes(message.payload)), acknowledge)

    def _published(
        self, _client: paho.Client, _data: Any, mid: int, _reason: ReasonCode, _p: Any
    ) -> None:
        self._report(mid)

    def _report(self, mid: int) -> None:
        message = self._tokens.pop(mid, None)
        if message is not None:
            self._deliver(Acknowledged(message.topic, message.token), None)

    # What subclasses add ---------------------------------------------------------------------

    def rise(self) -> None:
        """The connection is there and the filters are granted."""

    def fall(self) -> None:
        """The connection is gone."""

    def receive(self, message: Message, acknowledge: Callable[[], None]) -> None:
        """Take a message; `acknowledge` is called after the commit."""
        self._deliver(message, acknowledge)


class PeerConnection(Connection):
    """A link to another node's own server."""

    def __init__(self, own: str, peer: str, address: Address, deliver: Deliver) -> None:
        self.peer = peer
        self.filters = (PEERS + own,)
        super().__init__(f"{own}-to-{peer}", address, deliver)

    def rise(self) -> None:
        self._deliver(PeerUp(self.peer), None)

    def fall(self) -> None:
        self._deliver(PeerDown(self.peer), None)

    def receive(self, message: Message, acknowledge: Callable[[], None]) -> None:
        self._deliver(message._replace(sender=self.peer), acknowledge)


class BrokerConnection(Connection):
    """Somebody else's broker, in the place of our own server.

    A broker does not say who listens. So whoever asks for something is taken to listen for the
    answer, and a node whose status is there is a peer. `risen` is called when the connection is
    there: then those who asked before are to be asked whether they still listen. The broker's
    acknowledgement counts for apps that never report what they have: a broker may forget.
    """

    def __init__(
        self, own: str, address: Address, deliver: Deliver, risen: Callable[[], None]
    ) -> None:
        self.own = own
        self._risen = risen
        self._reporters: set[str] = set()  # the note topics of apps that report what they have
        self.filters = (
            REQUESTS + "+",
            DEVICES + "+/hello",
            DEVICES + "+/nv",
            PEERS + own,
            OPERATORS + own,
            STATUS + "+",
        )
        self._known: set[str] = set()
        super().__init__(f"denwatch-{own}", address, deliver)
        self._client.will_set(STATUS + own, b"", 1, True)

    def rise(self) -> None:
        self._risen()

    def fall(self) -> None:
        known, self._known = self._known, set()
        for topic in sorted(known):
            if topic.startswith(PEERS):
                self._deliver(PeerDown(topic.removeprefix(PEERS)), None)
            else:
                self._deliver(Listening(topic, False), None)

    def receive(self, message: Message, acknowledge: Callable[[], None]) -> None:
        if message.topic.startswith(STATUS):
            self._note_node(message.topic.removeprefix(STATUS), bool(message.payload))
            acknowledge()
            return
        if message.topic.startswith(REQUESTS):
            self._note_reports(NOTES + message.topic.removeprefix(REQUESTS), message.payload)
        self._deliver(message, acknowledge)
        is_there = bool(message.payload)  # a device's will is an empty hello
        for topic in _guess_listeners(message.topic):
            if (topic in self._known) != is_there:
                (self._known.add if is_there else self._known.discard)(topic)
                self._deliver(Listening(topic, is_there), None)

    def _note_reports(self, topic: str, payload: bytes) -> None:
        """Note whether an app reports: its library begins with that; plain ones number nothing."""
        if payload.startswith(b'{"received"'):
            self._reporters.add(topic)
        elif topic in self._reporters and b'"request"' not in payload:
            self._reporters.discard(topic)
            if topic in self._known:  # what it did not report is sent again
                self._known.discard(topic)
                self._deliver(Listening(topic, False), None)

    def _report(self, mid: int) -> None:
        message = self._tokens.get(mid)
        if message is not None and message.topic in self._reporters:
            del self._tokens[mid]
        else:
            super()._report(mid)

    def _note_node(self, name: str, is_up: bool) -> None:
        topic = PEERS + name
        if name == self.own or (topic in self._known) == is_up:
            return
        if is_up:
            self._known.add(topic)
            self._deliver(PeerUp(name), None)
        else:
            self._known.discard(topic)
            self._deliver(PeerDown(name), None)


def _guess_listeners(topic: str) -> tuple[str, ...]:
    """Return the topics that whoever publishes on this one listens to."""
    if topic.startswith(REQUESTS):
        name = topic.removeprefix(REQUESTS)
        return REPLIES + name, NOTES + name
    if topic.startswith(DEVICES) and topic.endswith("/hello"):
        return (topic.removesuffix("hello") + "sv",)
    return ()
