"""A subscriber's decisions: events in, actions out; no I/O, no clock, no random source of its own.

Each method of `SubscriberCore` takes an event and returns actions, which `session.py` performs.
RULE  All `StoreChange`s of one step are committed in one transaction before any other action is
performed. So a notification is acknowledged only once it is on our disk, and a request is sent only
once it would survive us.

Life of a link: idle -> (probing each node in range, if there are several) -> opening -> listening
-> online. A failure anywhere leads back to idle, and the failed node is left alone for a while.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from denwatch.client.subscriber import messages
from denwatch.client.subscriber.servers import BackOff, NodeUrl, ProbeOffer, ServerList, read_offer

# Actions ------------------------------------------------------------------------------------


class StoreNotification(NamedTuple):
    """Store a notification in the inbox; one that is there already is only reported again."""

    notification: messages.ReceivedNotification
    payload: bytes
    at: int


class MarkReported(NamedTuple):
    """Record that these notifications were reported to a node as received."""

    keys: tuple[str, ...]


class StoreReply(NamedTuple):
    """Store a server's reply to a request."""

    request: SubscriberRequest
    reply: messages.Reply
    server: str


class OpenLink(NamedTuple):
    """Connect; a probe uses a temporary session."""

    server: NodeUrl
    is_probe: bool


class CloseLink(NamedTuple):
    """Disconnect."""


class SubscribeTopics(NamedTuple):
    """Subscribe to MQTT topics."""

    topics: tuple[str, ...]


class PublishMessage(NamedTuple):
    """Publish; the `token` is returned by `sent` once the server has acknowledged."""

    topic: str
    payload: bytes
    token: int = 0


class AcknowledgeMessage(NamedTuple):
    """Send the PUBACK of a message."""

    mid: int


class ConnectionStatus(NamedTuple):
    """The connection's state, with which server, and why; reported to the app."""

    state: ConnectionState
    server: str
    reason: str = ""


class CompleteRequest(NamedTuple):
    """Hand the reply to whoever waits for it; what a node tells unasked has no request."""

    request: str
    reply: messages.Reply


StoreChange = StoreNotification | MarkReported | StoreReply
Action = (
    StoreChange
    | OpenLink
    | CloseLink
    | SubscribeTopics
    | PublishMessage
    | AcknowledgeMessage
    | ConnectionStatus
    | CompleteRequest
)


class ConnectionState(Enum):
    """What the connection is doing, as an app sees it."""

    IDLE = "waiting"
    PROBING = "asking"
    OPENING = "connecting"
    LISTENING = "listening"
    ONLINE = "connected"


class SubscriberRequest(NamedTuple):
    """A request to a node. `kind`: subscribe, unsubscribe, list, report or other (`text` is JSON).

    Only the first two are stored, and sent also by a later run.
    """

    id: str
    kind: str
    name: str = ""
    text: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether it outlives this run."""
        return self.kind in ("subscribe", "unsubscribe")

    def write(self) -> bytes:
        """Return the request's bytes; sending them twice changes nothing."""
        if self.kind in ("report", "other"):
            return messages.write_document({**json.loads(self.text), "request": self.id})
        wanted: dict[str, dict[str, object]] = {
            "subscribe": {"subscribe": self.text, "name": self.name},
            "unsubscribe": {"unsubscribe": self.name},
            "list": {"list": True},
        }
        return messages.write_document({**wanted[self.kind], "request": self.id})


_MAX_PROBE = 12_000  # bytes: a node accepts no longer request


@dataclass(frozen=True)
class SubscriberOptions:
    """How patient a subscriber is; times in ms."""

    back_off: BackOff = field(default_factory=BackOff)
    patience: int = 5_000  # for a connection, a reply; a request is repeated after it
    longest_patience: int = 60_000
    login_patience: int = 15_000  # with nodes that refuse us: they may not have heard of us yet
    probe_patience: int = 2_000
    report_delay: int = 1_000
    report_size: int = 200


@dataclass
class _Waiting:
    request: SubscriberRequest
    due: int = 0
    patience: int = 0


class SubscriberCore:
    """The state of one subscriber. Each method takes an event and returns actions."""

    def __init__(
        self, name: str, servers: Iterable[NodeUrl], rng: random.Random, settings: SubscriberOptions
    ) -> None:
        self.topics = messages.Topics(name)
        self.servers = ServerList(servers, settings.back_off, rng)
        self.state = ConnectionState.IDLE
        self.server: NodeUrl | None = None  # the one that the link is with
        self._rng = rng
        self._settings = settings
        self._requests: dict[str, _Waiting] = {}
        self._wanted: dict[str, str] = {}  # name -> text
        self._confirmed: dict[str, set[str]] = {}  # name -> the servers that have it
        self._rejected: set[tuple[str, str]] = set()  # (server, name): accepted elsewhere
        self._ended: dict[str, set[str]] = {}  # name -> the servers that may still have it
        self._unreported: dict[str, None] = {}
        self._reporting: dict[int, tuple[str, ...]] = {}
        self._report_due = 0
        self._deadline = 0  # of the step that the link is in
        self._to_probe: list[NodeUrl] = []
        self._offers: dict[NodeUrl, ProbeOffer] = {}
        self._probe = ""
        self._probed = 0  # ms, when the open probe was sent
        self.offers: tuple[ProbeOffer, ...] = ()  # among which the server was chosen last
        self._tokens = 0

    def restore(
        self,
        wanted: Iterable[tuple[str, str, Iterable[str]]],
        ended: Iterable[tuple[str, Iterable[str]]],
        requests: Iterable[SubscriberRequest],
        unreported: Iterable[str],
    ) -> None:
        """Load what an earlier run left."""
        self._ended = {name: set(servers) for name, servers in ended}
        for name, text, servers in wanted:
            self._wanted[name] = text
            self._confirmed[name] = set(servers)
        for request in requests:
            self._requests[request.id] = _Waiting(request)
        self._unreported.update(dict.fromkeys(unreported))

    # From the app -----------------------------------------------------------------------

    def ask(self, request: SubscriberRequest, now: int) -> list[Action]:
        """Send a request that is stored already; it replaces an older one for the same name."""
        if request.is_stored:
            self.drop(
                w.request.id
                for w in list(self._requests.values())
                if w.request.is_stored and w.request.name == request.name
            )
            servers = self._confirmed.pop(request.name, set())
            self._rejected = {pair for pair in self._rejected if pair[1] != request.name}
            if request.kind == "subscribe":
                self._wanted[request.name] = request.text
                self._ended.pop(request.name, None)
            else:
                self._wanted.pop(request.name, None)
                self._ended.setdefault(request.name, set()).update(servers)
        waiting = self._requests[request.id] = _Waiting(request)
        return self._send_request(waiting, now) if self.state is ConnectionState.ONLINE else []

    def drop(self, requests: Iterable[str]) -> None:
        """Forget requests whose replies nobody waits for."""
        for request in requests:
            self._requests.pop(request, None)

    def use_servers(self, servers: Iterable[NodeUrl], now: int) -> list[Action]:
        """Use other servers; the link stays if it is with one of them."""
        self.servers.replace(servers)
        if self.server is not None and self.server not in self.servers:
            return [CloseLink(), *self._go_idle("no longer in the list"), *self.tick(now)]
        return self.tick(now)

    # From the link ----------------------------------------------------------------------

    def opened(self, now: int) -> list[Action]:
        """The server accepted our name and password."""
        if self.state is ConnectionState.PROBING:
            return [SubscribeTopics((self.topics.replies,))]
        self.state = ConnectionState.LISTENING
        self._deadline = now + self._settings.patience
        return [SubscribeTopics((self.topics.replies, self.topics.notifications))]

    def listened(self, now: int) -> list[Action]:
        """The server accepted our MQTT subscriptions: from now on we receive what is sent to us."""
        if self.server is None:
            return []
        if self.state is ConnectionState.PROBING:
            self._probe = self._new_id()
            self._probed = now
            texts = self._wanted.values()
            return [
                PublishMessage(
                    self.topics.requests, messages.write_probe(self._probe, texts, _MAX_PROBE)
                )
            ]
        self.state = ConnectionState.ONLINE
        self.servers.record_success(self.server)
        self._unreported = {
            **dict.fromkeys(key for keys in self._reporting.values() for key in keys),
            **self._unreported,
        }
        self._reporting.clear()
        self._report_due = now
        actions: list[Action] = [ConnectionStatus(self.state, self.server.url)]
        actions += self._report(now) or [self._report_nothing()]
        self._renew(self.server.url)
        for waiting in self._requests.values():
            waiting.patience = 0
            actions += self._send_request(waiting, now)
        return actions

    def failed(self, reason: str, now: int) -> list[Action]:
        """The server cannot be reached or refused us, or the link broke."""
        if self.server is None:
            return []
        self.servers.record_failure(self.server, now, reason)
        if self.state is ConnectionState.PROBING:
            return [
                ConnectionStatus(ConnectionState.IDLE, self.server.url, reason),
                *self._probe_next(now),
            ]
        return [*self._go_idle(reason), *self.tick(now)]

    def receive(self, topic: str, payload: bytes, mid: int, now: int) -> list[Action]:
        """Handle a message; `mid` is 0 where nothing is to be acknowledged."""
        actions: list[Action] = []
        if topic == self.topics.notifications:
            notification = messages.read_notification(payload)
            if notification is not None:
                actions.append(StoreNotification(notification, payload, now))
                if not self._unreported:
                    self._report_due = now + self._settings.report_delay
                self._unreported[notification.key] = None
        elif topic == self.topics.replies:
            reply = messages.read_reply(payload)
            if reply is not None:
                actions += self._handle_reply(reply, now)
        if mid:  # also what we cannot read: a second copy would not be better
            actions.append(AcknowledgeMessage(mid))
        return actions

    def sent(self, token: int) -> list[Action]:
        """The server acknowledged a message that we sent."""
        keys = self._reporting.pop(token, None)
        return [] if keys is None else [MarkReported(keys)]

    def tick(self, now: int) -> list[Action]:
        """Do what is due."""
        if self.state is ConnectionState.ONLINE:
            actions: list[Action] = []
            for waiting in self._requests.values():
                if waiting.due <= now:
                    actions += self._send_request(waiting, now)
            return actions + self._report(now)
        if self.state is ConnectionState.IDLE:
            return self._start(now)
        if self._deadline > now:
            return []
        if self.state is ConnectionState.PROBING and self._probe and self.server is not None:
            return self._add_offer(None, now)  # it is connected, but did not reply
        return [CloseLink(), *self.failed("no answer", now)]

    def leave(self, now: int) -> list[Action]:
        """Send the last reports before the subscriber stops."""
        self._report_due = now
        return [*self._report(now), CloseLink()] if self.state is ConnectionState.ONLINE else []

    def find_next_time(self) -> int:
        """Return when `tick` has something to do, in ms."""
        if self.state is ConnectionState.IDLE:
            return self.servers.find_next_time()
        if self.state is not ConnectionState.ONLINE:
            return self._deadline
        times = [waiting.due for waiting in self._requests.values()]
        if self._unreported:
            times.append(self._report_due)
        return min(times, default=1 << 62)

    # Which server ----------------------------------------------------------------------------

    def _start(self, now: int) -> list[Action]:
        due = self.servers.list_due(now)
        if not due:
            return []
        if len(due) == 1:
            return self._open(due[0], now)
        self._to_probe = due
        self._offers = {}
        return self._probe_next(now)

    def _probe_next(self, now: int) -> list[Action]:
        self._probe = ""
        if self._to_probe:
            self.state = ConnectionState.PROBING
            self.server = self._to_probe.pop(0)
            self._deadline = now + self._settings.probe_patience
            return [ConnectionStatus(self.state, self.server.url), OpenLink(self.server, True)]
        if self._offers:
            self.offers = tuple(self._offers.values())
            return self._open(min(self._offers, key=self._offers.__getitem__), now)
        return self._go_idle("no node answers")

    def _add_offer(self, reply: messages.Reply | None, now: int) -> list[Action]:
        assert self.server is not None, "offers come from the server that the link is with"
        fields = reply.fields if reply is not None and reply.is_ok else None
        self._offers[self.server] = read_offer(self.server, fields, max(0, now - self._probed))
        return [CloseLink(), *self._probe_next(now)]

    def _open(self, server: NodeUrl, now: int) -> list[Action]:
        self.state = ConnectionState.OPENING
        self.server = server
        self._deadline = now + self._settings.patience
        return [ConnectionStatus(self.state, server.url), OpenLink(server, False)]

    def _go_idle(self, reason: str) -> list[Action]:
        url = self.server.url if self.server is not None else ""
        self.state = ConnectionState.IDLE
        self.server = None
        return [ConnectionStatus(self.state, url, reason)]

    # Requests, replies, reports --------------------------------------------------------------

    def _renew(self, server: str) -> None:
        """Request what this server has not confirmed yet, and end what it still has.

        The app may have moved here from another node.
        """
        pending = {w.request.name for w in self._requests.values() if w.request.is_stored}
        for name, text in self._wanted.items():
            known = server in self._confirmed.get(name, ()) or (server, name) in self._rejected
            if name not in pending and not known:
                request = SubscriberRequest(self._new_id(), "subscribe", name, text)
                self._requests[request.id] = _Waiting(request)
        for name, servers in self._ended.items():
            if name not in pending and server in servers:
                request = SubscriberRequest(self._new_id(), "unsubscribe", name)
                self._requests[request.id] = _Waiting(request)

    def _send_request(self, waiting: _Waiting, now: int) -> list[Action]:
        settings = self._settings
        waiting.patience = min(settings.longest_patience, waiting.patience * 2 or settings.patience)
        waiting.due = now + waiting.patience
        is_report = waiting.request.kind == "report"
        topic = self.topics.reports if is_report else self.topics.requests
        return [PublishMessage(topic, waiting.request.write())]

    def _handle_reply(self, reply: messages.Reply, now: int) -> list[Action]:
        if self.state is ConnectionState.PROBING:
            if not self._probe or reply.request != self._probe:
                return []
            return self._add_offer(reply, now)
        if self.state is ConnectionState.ONLINE and reply.is_question:
            return [self._report_nothing()]
        if self.state is ConnectionState.ONLINE and not reply.request and "had" in reply.fields:
            return [CompleteRequest("", reply)]  # told unasked: somebody has something
        if self.server is None or reply.request not in self._requests:
            return []
        request = self._requests.pop(reply.request).request
        if not request.is_stored:
            return [CompleteRequest(request.id, reply)]
        server = self.server.url
        if request.kind == "subscribe" and reply.is_ok:
            self._confirmed.setdefault(request.name, set()).add(server)
        elif request.kind == "subscribe" and self._confirmed.get(request.name):
            # A refusal by one node does not end what another node has accepted.
            self._rejected.add((server, request.name))
            why = f'"{request.name}" is refused here: {reply.build_error()}'
            return [ConnectionStatus(self.state, server, why)]
        elif request.kind == "subscribe":
            self._wanted.pop(request.name, None)
        else:
            left = self._ended.get(request.name, set())
            left.discard(server)
            if not left:
                self._ended.pop(request.name, None)
        return [StoreReply(request, reply, server), CompleteRequest(request.id, reply)]

    def _report(self, now: int) -> list[Action]:
        actions: list[Action] = []
        size = self._settings.report_size
        while self._unreported and (self._report_due <= now or len(self._unreported) >= size):
            keys = tuple(islice(self._unreported, size))
            for key in keys:
                del self._unreported[key]
            self._tokens += 1
            self._reporting[self._tokens] = keys
            actions.append(
                PublishMessage(self.topics.requests, messages.write_received(keys), self._tokens)
            )
        return actions

    def _report_nothing(self) -> Action:
        """Let the node know that we are listening: a broker does not report that to it."""
        return PublishMessage(self.topics.requests, messages.write_received(()))

    def _new_id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"
