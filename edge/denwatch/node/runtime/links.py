"""Connections that a node opens, to other nodes' servers or to a broker, and discovery.

The only file of a node that imports paho, zeroconf and ifaddr. paho runs its own thread for each
connection; events go to the node through `deliver`, which is called in that thread and must pass
them on safely. A message is acknowledged after the node's commit: what is lost before that is sent
again. Discovery announces this node on the local network (DNS-SD) and reports other nodes.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ifaddr
import paho.mqtt.client as paho
from denwatch.node.core import events
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode
from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf

_log = logging.getLogger("denwatch.links")
Deliver = Callable[[events.Event, Callable[[], None] | None], None]
Found = Callable[[str, str, int, bool], None]  # name, host, port, whether it speaks TLS
SERVICE = "_denwatch._tcp.local."
KEEP_ALIVE = 15  # s
_LOOK = 0.5  # s between two looks whether a connection was stopped
_RESOLVE_WITHIN = 3_000  # ms to resolve an announcement
_WRONG_LOGIN = (0x86, 0x87)  # wrong password, not authorised: as paho has them for both versions
_FIRST_DELAY, _LONGEST_DELAY = 1, 30  # s between attempts


@dataclass(frozen=True)
class ServerLogin:
    """Where a server is, and the name and password for it; without TLS if `tls` is None."""

    host: str
    port: int
    user: str
    password: str
    tls: ssl.SSLContext | None = None


class Connection:
    """One MQTT connection that reconnects by itself; subclasses define what passes over it."""

    filters: tuple[str, ...] = ()
    in_flight = 100
    unhandled = 100  # messages that wait for the node; then we do not read, and the sender waits

    def __init__(self, client_id: str, address: ServerLogin, deliver: Deliver) -> None:
        self.address = address
        self.is_up = False
        self._deliver = deliver
        self._tokens: dict[int, events.Publish] = {}  # by message id, until the server has it
        self._reported = ""  # why there is no link, as it was logged last
        self._room = threading.Semaphore(self.unhandled)
        self._is_stopped = False
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
        """Begin to connect, and retry until `stop`."""
        self._client.connect_async(self.address.host, self.address.port, KEEP_ALIVE)
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnect."""
        self._is_stopped = True
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, message: events.Publish) -> None:
        """Send a message; it is lost if the link breaks before the server has it."""
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
            why = f"refused: {str(reason).lower()}"
            self._report_failure(why)
            if reason.value in _WRONG_LOGIN:
                self.refuse(why)
        else:
            client.subscribe([(topic, 1) for topic in self.filters])

    def _failed(self, _client: paho.Client, _data: Any) -> None:
        self._report_failure(str(sys.exception()))  # paho calls us while it handles it

    def _report_failure(self, why: str) -> None:
        """Log why there is no link: once for each reason, however often it is tried."""
        if why != self._reported:
            self._reported = why
            _log.warning("no link to %s:%d: %s", self.address.host, self.address.port, why)

    def _subscribed(
        self, client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        if any(reason.is_failure for reason in reasons):
            why = "refused: these topics are not ours"
            self._report_failure(why)
            self.refuse(why)
            found = client.socket()
            with suppress(OSError):
                if isinstance(found, socket.socket):
                    found.shutdown(socket.SHUT_RDWR)  # paho sees a lost link, and reconnects
            return
        self.is_up = True
        self._reported = ""
        self.rise()

    def _disconnected(
        self, _client: paho.Client, _data: Any, _flags: Any, _reason: ReasonCode, _p: Any
    ) -> None:
        was_up, self.is_up = self.is_up, False
        self._tokens.clear()
        if was_up:
            self.fall()

    def _received(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        while not self._room.acquire(timeout=_LOOK):
            if self._is_stopped:
                return

        def acknowledge() -> None:
            self._room.release()
            client.ack(message.mid, message.qos)

        self.receive(events.Message("", message.topic, bytes(message.payload)), acknowledge)

    def _published(
        self, _client: paho.Client, _data: Any, mid: int, _reason: ReasonCode, _p: Any
    ) -> None:
        self._report(mid)

    def _report(self, mid: int) -> None:
        message = self._tokens.pop(mid, None)
        if message is not None:
            self._deliver(events.Acknowledged(message.topic, message.token), None)

    # What subclasses add ---------------------------------------------------------------------

    def rise(self) -> None:
        """The connection is there and the filters are granted."""

    def fall(self) -> None:
        """The connection is gone."""

    def refuse(self, why: str) -> None:
        """The server does not accept our name, our password or our filters."""

    def receive(self, message: events.Message, acknowledge: Callable[[], None]) -> None:
        """Pass a message on; `acknowledge` is called after the commit."""
        self._deliver(message, acknowledge)


class PeerConnection(Connection):
    """A link to another node's own server."""

    def __init__(self, own: str, peer: str, address: ServerLogin, deliver: Deliver) -> None:
        self.peer = peer
        self.filters = (events.PEERS + own,)
        super().__init__(f"{own}-to-{peer}", address, deliver)

    def rise(self) -> None:
        self._deliver(events.PeerUp(self.peer), None)

    def fall(self) -> None:
        self._deliver(events.PeerDown(self.peer), None)

    def receive(self, message: events.Message, acknowledge: Callable[[], None]) -> None:
        self._deliver(message._replace(sender=self.peer), acknowledge)


class BrokerConnection(Connection):
    """Somebody else's broker, in the place of our own server.

    A broker does not say who listens. So whoever sends a request is assumed to listen for the
    reply, and a node with a retained status is a peer. `risen` is called when the connection is
    up: then earlier subscribers are asked whether they still listen. `refused` is called if the
    broker refuses us. The broker's acknowledgement counts only for apps that never report what they
    received, because a broker may forget.
    """

    def __init__(
        self,
        own: str,
        address: ServerLogin,
        deliver: Deliver,
        risen: Callable[[], None],
        refused: Callable[[str], None] = lambda _: None,
        others: tuple[str, ...] = (),
    ) -> None:
        """`others`: topics outside ours that the core handles, too."""
        self.own = own
        self._risen = risen
        self._refused = refused
        self._reporters: set[str] = set()  # the note topics of apps that report what they received
        self.filters = (
            events.REQUESTS + "+",
            events.REPORTS + "+",
            events.DEVICES + "+/hello",
            events.DEVICES + "+/nv",
            events.DEVICES + "+/want",
            events.PEERS + own,
            events.OPERATORS + own,
            events.STATUS + "+",
            *others,
        )
        self._known: set[str] = set()
        super().__init__(f"denwatch-{own}", address, deliver)
        self._client.will_set(events.STATUS + own, b"", 1, True)

    def rise(self) -> None:
        self._risen()

    def refuse(self, why: str) -> None:
        self._refused(why)

    def fall(self) -> None:
        known, self._known = self._known, set()
        for topic in sorted(known):
            if topic.startswith(events.PEERS):
                self._deliver(events.PeerDown(topic.removeprefix(events.PEERS)), None)
            else:
                self._deliver(events.Listening(topic, False), None)

    def receive(self, message: events.Message, acknowledge: Callable[[], None]) -> None:
        if message.topic.startswith(events.STATUS):
            self._record_node(message.topic.removeprefix(events.STATUS), bool(message.payload))
            acknowledge()
            return
        if message.topic.startswith(events.REQUESTS):
            self._record_reports(
                events.NOTES + message.topic.removeprefix(events.REQUESTS), message.payload
            )
        self._deliver(message, acknowledge)
        is_there = bool(message.payload)  # a device's will is an empty hello
        for topic in _guess_listeners(message.topic):
            if (topic in self._known) != is_there:
                (self._known.add if is_there else self._known.discard)(topic)
                self._deliver(events.Listening(topic, is_there), None)

    def _record_reports(self, topic: str, payload: bytes) -> None:
        """Record whether an app reports what it received: our library does, plain clients no."""
        if payload.startswith(b'{"received"'):
            self._reporters.add(topic)
        elif topic in self._reporters and b'"request"' not in payload:
            self._reporters.discard(topic)
            if topic in self._known:  # what it did not report is sent again
                self._known.discard(topic)
                self._deliver(events.Listening(topic, False), None)

    def _report(self, mid: int) -> None:
        message = self._tokens.get(mid)
        if message is not None and message.topic in self._reporters:
            del self._tokens[mid]
        else:
            super()._report(mid)

    def _record_node(self, name: str, is_up: bool) -> None:
        topic = events.PEERS + name
        if name == self.own or (topic in self._known) == is_up:
            return
        if is_up:
            self._known.add(topic)
            self._deliver(events.PeerUp(name), None)
        else:
            self._known.discard(topic)
            self._deliver(events.PeerDown(name), None)


def _guess_listeners(topic: str) -> tuple[str, ...]:
    """Return the topics that whoever publishes on this one listens to."""
    if topic.startswith(events.REQUESTS):
        name = topic.removeprefix(events.REQUESTS)
        return events.REPLIES + name, events.NOTES + name
    if topic.startswith(events.REPORTS):
        return (events.REPLIES + topic.removeprefix(events.REPORTS),)
    if topic.startswith(events.DEVICES) and topic.endswith("/hello"):
        return (topic.removesuffix("hello") + "sv",)
    return ()


# Discovery ----------------------------------------------------------------------------------


class Discovery:
    """Announces this node and reports others; `found` is called in zeroconf's thread.

    An announcement is only a hint where a node may be: names that are not among the known nodes
    are ignored, and whoever answers must prove its name like any peer.
    """

    def __init__(self, name: str, found: Found, interfaces: list[str] | None = None) -> None:
        self._name = name
        self._found = found
        self._interfaces = interfaces
        self._zeroconf: Zeroconf | None = None
        self._browser: ServiceBrowser | None = None

    def start(self, addresses: list[str], port: int, has_tls: bool) -> None:
        """Announce our server, and look for others."""
        self._zeroconf = Zeroconf(interfaces=self._interfaces) if self._interfaces else Zeroconf()
        info = ServiceInfo(
            SERVICE,
            f"{self._name}.{SERVICE}",
            parsed_addresses=addresses,
            port=port,
            properties={"tls": "1" if has_tls else "0"},
            server=f"{self._name}.local.",
        )
        self._zeroconf.register_service(info)
        self._browser = ServiceBrowser(self._zeroconf, SERVICE, listener=_Listener(self._report))

    def stop(self) -> None:
        """Withdraw the announcement."""
        if self._zeroconf is not None:
            self._zeroconf.unregister_all_services()
            self._zeroconf.close()

    def _report(self, zeroconf: Zeroconf, service: str) -> None:
        name = service.removesuffix("." + SERVICE)
        info = zeroconf.get_service_info(SERVICE, service, _RESOLVE_WITHIN)
        if name == self._name or info is None or info.port is None:
            return
        hosts = info.parsed_addresses(IPVersion.V4Only) or info.parsed_addresses()
        if hosts:
            host = choose_near(hosts)
            self._found(name, host, info.port, info.properties.get(b"tls") == b"1")


class _Listener(ServiceListener):
    def __init__(self, report: Callable[[Zeroconf, str], None]) -> None:
        self._report = report

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:  # noqa: ARG002
        self._report(zc, name)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:  # noqa: ARG002
        self._report(zc, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Ignore it: a link that breaks is noticed by itself."""


def list_addresses() -> list[str]:
    """Return this machine's IPv4 addresses, those that others reach if there are any."""
    found = [str(address.ip) for address in _list_interfaces()]
    outside = [text for text in found if not ipaddress.ip_address(text).is_loopback]
    return outside or found


def choose_near(hosts: list[str]) -> str:
    """Return the first of a node's addresses that is in a network of ours, else the first."""
    for host in hosts:
        if any(ipaddress.ip_address(host) in near.network for near in _list_interfaces()):
            return host
    return hosts[0]


def _list_interfaces() -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{ip.ip}/{ip.network_prefix}")
        for adapter in ifaddr.get_adapters()
        for ip in adapter.ips
        if ip.is_IPv4
    ]
